"""The launcher: starts a cluster, keeps its processes running and its nodes as wanted, and ends it in order.

    starting -> (all nodes are there, a Nimbus leads) -> running -> (asked to, or starting failed) -> ending

Everything happens as jobs of one loop, in the thread that calls `run`; what may take long (asking coordination,
starting a node by Spark, waiting for a process) is done by other threads, which tell the loop.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from elastic import procs
from elastic.cluster import commands, network
from elastic.cluster import directory as dirs
from elastic.cluster.children import Kept, stop_all
from elastic.cluster.directory import ClusterInfo
from elastic.cluster.java import find_java
from elastic.cluster.loop import Hand, Loop
from elastic.cluster.nodes import Nodes
from elastic.cluster.options import UpOptions
from elastic.cluster.zookeeper_server import EmbeddedZooKeeper, free_port, tail
from elastic.coordination import paths
from elastic.errors import ConfigError, EnvironmentProblem, Unavailable
from elastic.hosts.base import Host, NodeCommand
from elastic.hosts.child import python_path
from elastic.model.ids import NodeId
from elastic.model.records import WantedNode

if TYPE_CHECKING:
    from elastic.coordination.base import SessionState
    from elastic.coordination.zookeeper import ZooKeeperCoordination

log = logging.getLogger(__name__)

_TRIES = 3
"""How often one process may end while the cluster starts."""
_NIMBUS_GRACE = 5.0
_RECONNECT = 1.0


class Launcher:
    """One cluster.

    Args:
        options: See `UpOptions`.
        tell: Told what happens, for people, while the cluster starts and ends.
        ready: Told once that the cluster is ready.
        lock: By which its directory is owned already (`directory.handed_on`).
    """

    def __init__(
        self,
        options: UpOptions,
        tell: Callable[[str], None],
        ready: Callable[[ClusterInfo], None],
        *,
        lock: int | None = None,
    ) -> None:
        self.options = options.validate()
        self.directory = options.directory
        self._tell = tell
        self._on_ready = ready
        self._lock = lock
        self._owns: Callable[[], bool] = lambda: False
        self._loop = Loop()
        self._coordinator = Hand(self._loop, "elastic-launcher-coordination")
        self._coordination: ZooKeeperCoordination | None = None
        self._server: EmbeddedZooKeeper | None = None
        self._kept: list[Kept] = []
        self._nimbus: tuple[str, ...] = ()
        self._zookeeper = ""
        self._hosts: dict[str, Host] = {}
        self._hosts_lock = threading.Lock()
        restarts = functools.partial(commands.restarts, self.options)
        self._nodes = Nodes(self._loop, self._host, self._command, self, restarts, self._node_grace)
        self._registered: frozenset[str] = frozenset()
        self._candidates: frozenset[str] = frozenset()
        self._wanted: dict[NodeId, WantedNode] = {}
        self._ready = False
        self._ending = False
        self._error: Exception | None = None
        self._started = time.time()

    # -- from outside

    def run(self) -> None:
        """Start the cluster and keep it running until `ask_stop`; then end it. Returns when nothing is left of it.

        Raises:
            ElasticError: It could not be started; what had been started has been ended.
        """
        with dirs.owned(self.directory, launcher=True, lock=self._lock) as self._owns:
            try:
                dirs.clean(self.directory, logs=True)
                # In the foreground as well: it tells whose directory this is.
                (self.directory / dirs.LOG).touch()
                self._begin()
                self._loop.run(lambda: self._ending)
            finally:
                self._end()
        if self._error is not None:
            raise self._error

    def ask_stop(self) -> None:
        """End the cluster. From any thread, or a signal handler; safe to call twice."""
        self._loop.call(self._stop)

    # -- starting

    def _begin(self) -> None:
        options = self.options
        network.check_local(options.bind)
        for warning in network.warnings(options):
            self._tell(warning)
        ports = commands.nimbus_ports(options)
        self._nimbus = tuple(f"{options.bind}:{port}" for port in ports)
        if options.zookeeper:
            self._zookeeper = options.zookeeper
            self._tell(f"using ZooKeeper at {self._zookeeper}")
        else:
            # Without Java nothing is said to be starting.
            java = find_java()
            port = free_port(options.bind, besides=ports)
            self._server = EmbeddedZooKeeper(self.directory / "zookeeper", port, host=options.bind, java=java)
            self._zookeeper = self._server.address
            self._keep("zookeeper", self._start_server, self.directory / "zookeeper" / "zookeeper.log")
            self._tell(f"starting ZooKeeper at {self._zookeeper}")
        self._write()
        for n, address in enumerate(self._nimbus, 1):
            self._keep(
                f"nimbus-{n}",
                functools.partial(self._start_nimbus, n, address),
                commands.nimbus_log(options, n),
            )
        self._tell(
            f"starting {_count(options.nimbus, 'Nimbus', 'Nimbuses')} and {_count(options.nodes, 'node')}"
        )
        first = {NodeId(f"node-{n}"): WantedNode(options.slots) for n in range(1, options.nodes + 1)}
        if self._server is not None:  # nobody else knows of this cluster: no need to ask before they start
            self._want(first)
        self._connect(first)
        self._loop.call_later(options.patience, self._too_late)

    def _keep(self, name: str, start: Callable[[], subprocess.Popen[bytes]], log_file: Path) -> None:
        kept = Kept(self._loop, name, start, functools.partial(self._child_ended, name, log_file))
        self._kept.append(kept)
        kept.start()

    def _start_server(self) -> subprocess.Popen[bytes]:
        server = self._server
        assert server is not None
        server.launch()
        assert server.process is not None
        return server.process

    def _start_nimbus(self, number: int, address: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH", ""))}
        argv = commands.nimbus(self.options, self._zookeeper, address)
        return procs.spawn(argv, env=env, log=commands.nimbus_log(self.options, number))

    def _connect(self, first: dict[NodeId, WantedNode]) -> None:
        """Have a session opened, and what is wanted at first written down."""

        def connect() -> tuple[ZooKeeperCoordination, dict[NodeId, int]]:
            from elastic.cluster import root
            from elastic.coordination.zookeeper import connect

            if self._server is not None:
                self._wait_served()
            options = self.options
            coordination = connect(
                self._zookeeper,
                session_timeout=options.session_timeout,
                connect_timeout=min(10.0, options.patience),
                own_server=self._server is not None,
            )
            self._claim(coordination)
            self._coordination = coordination  # from here on it is for the end to clear
            # Both outlive what else knows how far the numbers of moves have come.
            lasting = bool(options.zookeeper) or options.store.startswith("hazelcast:")
            return coordination, root.reset(coordination, first, after=root.after_all_before(lasting))

        def connected(result: tuple[ZooKeeperCoordination, dict[NodeId, int]]) -> None:
            coordination, generations = result
            for node, generation in generations.items():
                self._nodes.seen(node, generation)
            self._want(first)
            self._watch(coordination)

        self._coordinator.do(connect, connected, self._fail)

    def _claim(self, coordination: ZooKeeperCoordination) -> None:
        from elastic.cluster import root

        try:
            root.claim(coordination, self._zookeeper, str(self.directory))
        except BaseException:
            coordination.close()
            raise

    def _wait_served(self) -> None:
        """The server may end and be started again meanwhile; how often is counted elsewhere."""
        server = self._server
        assert server is not None
        deadline = time.monotonic() + self.options.patience
        while not self._ending:
            try:
                server.wait_ready(self.options.patience)
                return
            except EnvironmentProblem:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _watch(self, coordination: ZooKeeperCoordination) -> None:
        call = self._loop.call
        coordination.watch_session(lambda state: call(lambda: self._session(coordination, state)))
        coordination.watch_children(paths.WANTED, lambda names: self._read_wanted(coordination, names))
        coordination.watch_children(paths.NODES, lambda names: call(lambda: self._see(nodes=names)))
        coordination.watch_children(paths.CANDIDATES, lambda names: call(lambda: self._see(candidates=names)))

    def _read_wanted(self, coordination: ZooKeeperCoordination, names: tuple[str, ...]) -> None:
        """On the callbacks' thread. Without a connection it is called again with the connection."""
        from elastic.cluster import root

        with contextlib.suppress(Unavailable):
            wanted = root.read_wanted(coordination, names)
            self._loop.call(lambda: self._want(wanted))

    def _want(self, wanted: dict[NodeId, WantedNode]) -> None:
        self._wanted = wanted
        self._nodes.want(wanted)
        self._see()

    # -- running

    def _see(
        self, *, nodes: tuple[str, ...] | None = None, candidates: tuple[str, ...] | None = None
    ) -> None:
        """What is registered has changed, or what is wanted."""
        if nodes is not None:
            new = frozenset(nodes) - self._registered
            self._registered = frozenset(nodes)
            if not self._ready:
                for name in sorted(new & self._wanted.keys()):
                    self._tell(f"{name} is there ({self._there()})")
        if candidates is not None:
            if candidates and not self._candidates and not self._ready:
                self._tell(f"Nimbus leads (nodes: {self._there()})")
            self._candidates = frozenset(candidates)
        complete = self._wanted.keys() <= self._registered and bool(self._candidates)
        if complete and self._coordination is not None and not self._ready:
            self._ready = True
            self._on_ready(self._write())

    def _there(self) -> str:
        return f"{len(self._registered & self._wanted.keys())} of {len(self._wanted)}"

    def _session(self, coordination: ZooKeeperCoordination, state: SessionState) -> None:
        from elastic.coordination.base import SessionState

        if state is not SessionState.LOST or self._coordination is not coordination or self._ending:
            return
        log.warning("the launcher's session with ZooKeeper is lost; it opens another")
        self._coordination = None
        self._coordinator.do(coordination.close)
        self._reconnect()

    def _reconnect(self) -> None:
        def connect() -> ZooKeeperCoordination:
            from elastic.coordination.zookeeper import connect

            coordination = connect(
                self._zookeeper,
                session_timeout=self.options.session_timeout,
                own_server=self._server is not None,
            )
            self._claim(coordination)
            return coordination

        def connected(coordination: ZooKeeperCoordination) -> None:
            self._coordination = coordination
            self._watch(coordination)

        def failed(error: Exception) -> None:
            log.warning("%s", error)
            self._loop.call_later(_RECONNECT, self._reconnect)

        if not self._ending:
            self._coordinator.do(connect, connected, failed)

    def _child_ended(self, name: str, log_file: Path, why: str | Exception, failures: int) -> None:
        log.warning("%s: %s", name, why)
        if self._ready:
            return
        if isinstance(why, EnvironmentProblem):
            self._fail(why)
        elif failures >= _TRIES:
            self._fail(EnvironmentProblem(f"{name}: {why}: {tail(log_file)}", remedy=f"Its log: {log_file}"))

    def node_started(self, node: NodeId, generation: int) -> None:
        log.info("node %s started, generation %d", node, generation)

    def node_failed(self, node: NodeId, error: Exception, failures: int) -> None:
        log.error("node %s cannot be started: %s", node, error)
        if not self._ready and (failures >= _TRIES or isinstance(error, EnvironmentProblem | ConfigError)):
            self._fail(error)

    def node_ended(self, node: NodeId, generation: int, host: str, why: str, failures: int) -> None:
        if why:
            log.warning("node %s, generation %d: %s", node, generation, why)
            if not self._ready and failures >= _TRIES:
                said, remedy = self._node_said(node)
                self._fail(EnvironmentProblem(f"node {node}: {why}{said}", remedy=remedy))
        coordination = self._coordination
        if coordination is not None:
            from elastic.cluster import root

            self._coordinator.do(
                functools.partial(root.forget, coordination, node, generation),
                lambda wanted: None if wanted else self._nodes.unwanted(node, generation),
            )
            if (host or self.options.host) == "process":
                self._coordinator.do(functools.partial(root.bury, coordination, node))

    def _host(self, kind: str) -> Host:
        """The host of that kind, made when first asked for. By the threads of `Nodes`."""
        kind = kind or self.options.host
        with self._hosts_lock:
            if kind not in self._hosts:
                self._hosts[kind] = commands.host(self.options, kind)
            return self._hosts[kind]

    def _command(self, node: NodeId, generation: int, wanted: WantedNode) -> NodeCommand:
        return commands.node(self.options, self._zookeeper, node, generation, wanted)

    def _node_grace(self) -> float:
        from elastic.cluster import root

        return root.node_grace(self._coordination)

    def _write(self) -> ClusterInfo:
        info = ClusterInfo(
            name=self.options.cluster,
            directory=str(self.directory),
            pid=os.getpid(),
            identity=procs.identity(os.getpid()),
            zookeeper=self._zookeeper,
            nimbus=self._nimbus,
            options=self.options,
            started=self._started,
            ready=self._ready,
            ending=self._ending,
        )
        dirs.write(info)
        return info

    # -- ending

    def _stop(self) -> None:
        self._ending = True

    def _fail(self, error: Exception) -> None:
        if not self._ready and not self._ending:
            self._error = error
            self._ending = True

    def _too_late(self) -> None:
        if self._ready:
            return
        if self._coordination is None and self._server is None:
            self._fail(Unavailable(f"no ZooKeeper at {self._zookeeper}", remedy="Is it running there?"))
            return
        missing: list[str] = sorted(self._wanted.keys() - self._registered)
        said, remedy = self._node_said(NodeId(missing[0])) if missing else ("", "")
        if not self._candidates:
            missing.append("a leading Nimbus")
            said = said or f": {tail(commands.nimbus_log(self.options, 1))}"
        if self._coordination is None:
            missing.append(f"ZooKeeper at {self._zookeeper}")
        self._fail(
            EnvironmentProblem(
                f"not ready after {self.options.patience:g} s: {', '.join(missing)} missing{said}",
                remedy=f"The logs are in {self.directory}. {remedy}".rstrip(),
            )
        )

    def _node_said(self, node: NodeId) -> tuple[str, str]:
        wanted = self._wanted.get(node)
        said, remedy = commands.node_said(self.options, node, wanted.host if wanted is not None else "")
        return f": {said}" if said else "", remedy

    def _end(self) -> None:
        """Nodes, then Nimbus, then ZooKeeper; what is wrong with one does not keep the next from being ended."""
        self._ending = True
        steps: list[tuple[str, Callable[[], None]]] = [
            ("", self._say_ending),
            ("the nodes are told", self._tell_nodes),
            ("stopping nodes", self._nodes.close),
            ("stopping what nodes ran on", self._close_hosts),
            ("stopping Nimbus", functools.partial(self._stop_kept, "nimbus", _NIMBUS_GRACE)),
            ("", self._leave_coordination),
            ("stopping ZooKeeper", functools.partial(self._stop_kept, "zookeeper", 3.0)),
            ("", self._let_go),
            ("", self._clean),
        ]
        for what, step in steps:
            try:
                if what:
                    log.info("%s", what)
                step()
            except Exception:
                log.exception("ending the cluster: %s", what)

    def _say_ending(self) -> None:
        """To whoever asks a Nimbus that does not answer any more."""
        if self._owns() and dirs.stored(self.directory) is not None:
            self._write()

    def _clean(self) -> None:
        """What another cluster has made there, as the directory was removed under this one, is left alone."""
        if self._owns():
            dirs.clean(self.directory)

    def _tell_nodes(self) -> None:
        """Nodes that Spark provides end by themselves when they are not wanted; and Nimbus knows that nobody takes over from it."""
        coordination = self._coordination
        if coordination is None:
            return

        def clear() -> None:
            coordination.delete(paths.WANTED, recursive=True)

        self._coordinator.do(clear)
        self._coordinator.finish(2.0)

    def _close_hosts(self) -> None:
        with self._hosts_lock:
            hosts = list(self._hosts.values())
        for host in hosts:
            host.close()

    def _stop_kept(self, kind: str, grace: float) -> None:
        stop_all([kept for kept in self._kept if kept.name.startswith(kind)], grace)

    def _leave_coordination(self) -> None:
        coordination = self._coordination
        if coordination is None:
            return
        if self._server is None:
            from elastic.cluster import root

            self._coordinator.do(functools.partial(root.remove, coordination))
        self._coordinator.do(coordination.close)
        self._coordinator.finish(10.0)

    def _let_go(self) -> None:
        """The threads that started things end, now that all of those have ended."""
        for hand in (self._coordinator, *self._nodes.hands, *(kept.hand for kept in self._kept)):
            hand.close()


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
