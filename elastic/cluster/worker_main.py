"""The main of a worker process; see "Supervisor and worker" in docs/design.md for its contract with the supervisor."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NoReturn

from elastic import procs, timeslice
from elastic.api.bundle import ShippedComponents, load_bundle
from elastic.api.settings import setting
from elastic.cluster import worker_checkpoints, worker_stacks
from elastic.cluster.cores import ALONE, ALWAYS, Core, how
from elastic.cluster.keeping import Keeping
from elastic.cluster.own_log import log_to_stderr
from elastic.cluster.switching import Switching
from elastic.cluster.worker_checkpoints import WorkerCheckpoints
from elastic.cluster.worker_marks import MarksWriter
from elastic.cluster.worker_moves import ViewReader
from elastic.cluster.worker_output import forgive
from elastic.cluster.worker_progress import ProgressWriter
from elastic.cluster.worker_stores import WorkerStores
from elastic.cluster.worker_voice import Voice
from elastic.coordination import paths
from elastic.coordination.base import GIVE_UP, Coordination, SessionState
from elastic.errors import Conflict, ElasticError, ExecutionError, NotFound, NotShippable, Unavailable
from elastic.migration.events import MarksRead
from elastic.migration.view import View
from elastic.model import codec
from elastic.model.events import Event, Severity
from elastic.model.ids import Incarnation, TopologyName, WorkerId, node_of
from elastic.model.records import Allocation, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.nodestore import keys
from elastic.nodestore.base import NodeStoreReader
from elastic.queues import take
from elastic.signals import insist
from elastic.supervisor.ports import CANNOT_LOAD, WORKER_SESSION_LOST
from elastic.transport.base import Transport, TransportOptions
from elastic.worker import memory, standing
from elastic.worker.moving.stores import StoredState
from elastic.worker.outside import Outside
from elastic.worker.report import Measurer
from elastic.worker.shown import user_traceback
from elastic.worker.watchdog import Watchdog
from elastic.worker.worker import Worker

log = logging.getLogger("elastic.worker")

EXIT_BUNDLE, EXIT_SESSION = CANNOT_LOAD, WORKER_SESSION_LOST
EXIT_BROKEN = 5

REACHED = 100.0
"""Seconds that it tries to reach coordination when it starts, which may just be started again itself. It has nothing to lose yet; that it
comes to nothing is for its supervisor to see, which waits longer (`SupervisorOptions.start_timeout`)."""
LAST = 0.8
"""Part of what is left of a session that is given up, after which the process ends by itself with `EXIT_SESSION`. The kernel ends it when
all is over (`procs.end_at`), which says less of why."""
_AGAIN = 1.0
"""Seconds until an allocation is looked at again that could not be carried out, and of which nothing tells when it can."""
WINDOW_QUEUES = 8
"""What is under way must last while both sides wait for their interpreters: a computing executor lets the thread that
receives have a turn when its queue is empty, or after `SWITCH` (docs/decisions/data-path.md, "A window for each target task")."""


class WorkerProcess:
    """What surrounds a `Worker` in its own process: allocations in, progress and reports out.

    Everything that changes the worker happens on the main thread, which waits on one queue of notices.
    """

    def __init__(
        self,
        *,
        spec: TopologySpec,
        id: WorkerId,
        incarnation: Incarnation,
        coordination: Coordination,
        store: NodeStoreReader,
        transport: Transport,
        components: ShippedComponents,
        report_fd: int,
        cycle: float,
        keeping: Keeping,
        checkpoints: WorkerCheckpoints | None = None,
    ) -> None:
        self.id = id
        self.incarnation = incarnation
        self._topology = topology = spec.name
        self._coordination = coordination
        self._store = store
        self._cycle = cycle
        self._notices: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._progressed = threading.Event()
        self._version = 0
        self._applied = True  # all of the allocation that was read last
        self._connected = True
        self._due = math.inf  # when the allocation is looked at although nothing was said (monotonic seconds)
        self._transport = transport
        self._allocation: Allocation | None = None
        self.spec = spec
        self._stores = WorkerStores(coordination, node_of(id))
        self._progress = progress = ProgressWriter(
            coordination,
            topology,
            id,
            incarnation,
            lambda: self.worker,
            checkpoints.go_back if checkpoints is not None else None,
        )
        self._marks = MarksWriter(
            coordination,
            topology,
            incarnation,
            progress.write_first,
            self._feed,
            lambda path, value: self._views.wrote(path, value),
            progress.nothing_first,
        )
        outside = Outside(self._marks, self._stores, lambda: progress.life)
        self._checkpoints = checkpoints
        generation = checkpoints.generation if checkpoints is not None else 0
        self.worker = Worker(self.spec, id, incarnation, components, self, transport, outside, generation)
        self._switching = Switching(moving=keeping.moving)
        self._views = ViewReader(
            coordination, topology, self._on_view, incarnation, self._switching.expect, generation
        )
        interval = setting("report_interval", self.spec.config)
        self._voice = Voice(report_fd, Measurer(self.worker), interval, keeping.measure)
        self._watchdog = Watchdog(self.worker, setting("watchdog", self.spec.config))
        self._watch = coordination.watch_session(self._on_session)

    # ------------------------------------------------------------------ WorkerListener (any thread)

    def on_event(self, event: Event) -> None:
        self._voice.say(event)
        level = {
            Severity.INFO: logging.INFO,
            Severity.WARNING: logging.WARNING,
            Severity.ERROR: logging.ERROR,
        }[event.severity]
        trace = event.details.get("traceback")
        if event.kind == "move-step":
            # Six for each task of a move, and one of each worker that sends to it or is behind it.
            level = logging.DEBUG
        log.log(level, "%s: %s%s", event.kind, event.message, f"\n{trace}" if trace else "")

    def on_progress(self) -> None:
        if not self._progressed.is_set():  # one notice covers all that changes before it is written down
            self._progressed.set()
            self._notices.put("progress")

    def on_failure(self, reason: str, trace: str) -> None:
        self._progress.failed(reason, trace)
        self._notices.put("progress")

    def on_fatal(self, reason: str) -> None:
        self._notices.put("fatal")

    def on_startable(self) -> None:
        self._notices.put("again")

    def _on_view(self, view: View, peers: tuple[WorkerInfo, ...]) -> None:
        self._switching.see(view)
        self._progress.see(view)
        self.worker.see(view, peers)

    def _feed(self, event: MarksRead) -> None:
        self.worker.moves.feed(event)

    def _on_session(self, state: SessionState) -> None:
        self._connected = state is SessionState.CONNECTED
        if state is SessionState.LOST:
            # Whatever the main thread and user code are at: it is over before others may begin.
            left = (1 - GIVE_UP) * self._coordination.session_timeout
            last = threading.Timer(LAST * left, os._exit, (EXIT_SESSION,))
            last.daemon = True
            last.start()
            self._notices.put("lost")
        elif state is SessionState.CONNECTED:
            self._notices.put("allocation")  # what could not be carried out or written down while it was away

    # ------------------------------------------------------------------ the main thread

    def run(self) -> int:
        """Work until told to end; returns the exit code."""
        self._install_signals()
        threading.Thread(target=self._listen, name="supervisor-pipe", daemon=True).start()
        self._voice.start()
        self._watchdog.start()
        self._progress.inherit()
        self._register()
        self._marks.start()
        self._views.start()
        if self._checkpoints is not None:
            self._checkpoints.follow(self.worker.snapshots)
        self._notices.put("allocation")
        while True:
            notice = self._next()
            if notice == "lost":
                log.error(
                    "The session with ZooKeeper has expired: stopping, somebody else may run these tasks now."
                )
                self._end(0.5)
                return EXIT_SESSION
            if notice == "fatal":
                self._end(0.5)
                return EXIT_BROKEN
            if notice == "eof":
                return 0  # the supervisor is gone, and with it everybody who could be told anything
            if notice == "terminate":
                self._end(setting("stop_grace", self.spec.config))
                return 0
            self._progressed.clear()
            try:
                if notice == "allocation" or (notice == "told" and not self._cycle):
                    self._due = time.monotonic() + self._cycle if self._cycle else math.inf
                    self._follow()
                elif notice == "again" and self._allocation is not None:
                    self._apply(self._allocation)
                self._progress.write()
            except Unavailable as e:
                # Unknown is not empty: nothing is begun and nothing given up; the session says when it goes on, or that it is lost.
                log.warning("What is to be done cannot be done now: %s", e)
                if self._connected:  # nobody says when: what is read may have changed faster than it was read
                    self._due = min(self._due, time.monotonic() + _AGAIN)

    def _next(self) -> str:
        """What is to be done next. To look at the allocation, when it is time to: whatever else is said meanwhile, and how often."""
        now, patience = time.monotonic(), self._progress.patience()
        left = min(self._due - now, math.inf if patience is None else patience)
        if self._due <= now and self._notices.empty():
            return "allocation"
        try:
            notice = take(self._notices, None if left == math.inf else max(0.0, left))
        except queue.Empty:
            return "allocation"
        if notice in ("told", "progress", "again") and self._due <= time.monotonic():
            self._notices.put(notice)
            return "allocation"
        return notice

    def _install_signals(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's business

        def tell_stacks() -> None:
            self._voice.tell_stacks(worker_stacks.asked(lambda: standing.told(self.worker)))

        insist({signal.SIGTERM: lambda: self._notices.put("terminate"), signal.SIGUSR1: tell_stacks})

    def _listen(self) -> None:
        """The supervisor writes a line for each new version in the store. Its end of file is its end."""
        with contextlib.suppress(OSError):
            while os.read(0, 1 << 12):
                self._notices.put("told")
        self._notices.put("eof")

    def _register(self) -> None:
        """Say that this life is there.

        Raises:
            NotFound: The topology has been removed since its spec was read. Nothing is made of it again: nobody would take it away.
        """
        address = self._transport.address
        info = WorkerInfo(
            self.id,
            self.incarnation,
            address.tcp,
            address.unix,
            address.boot,
            os.getpid(),
            self.worker.assigned.epoch,
            self.worker.generation,
        )
        path = paths.worker(self._topology, self.id)
        for _ in range(20):
            try:
                self._coordination.create(path, codec.encode(info), ephemeral=True, parents=False)
                return
            except Conflict:
                # An earlier life's node whose session has not expired yet. That process is dead: the supervisor starts
                # one life of a worker at a time.
                self._coordination.delete(path)
        raise Conflict(
            f"Somebody else keeps registering as worker {self.id}.",
            remedy="Two clusters share a ZooKeeper root.",
        )

    def _follow(self) -> None:
        """Read the newest allocation and carry it out."""
        entry = self._store.latest(keys.allocation(self.id))
        if entry is None or (entry.version <= self._version and self._applied):
            return
        allocation = self._allocation = codec.decode(entry.data, Allocation)
        self._apply(allocation)
        self._version = entry.version

    def _apply(self, allocation: Allocation) -> None:
        self._applied = False
        named = {t for _, first, last in allocation.executors for t in range(first, last + 1)}
        if named - self.worker.tasks.keys() - self.worker.arriving.keys():
            # Else nothing is to be started. An allocation comes with every outcome of a move: to read a view because of it kept the thread
            # that reads them from seeing that a task may be sent to again.
            self._views.read()
        starting = self.worker.missing(allocation)
        if starting:
            self._progress.begin(starting)
            # Once more: from here on, whoever takes part in a move knows of this process.
            self._views.read()
        try:
            # These alone: with a life of before, all that a task emits would be dropped where a greater one of it is known, and nobody has
            # looked yet whether it had a state.
            self.worker.apply(allocation, starting, self._states_of(starting))
        except ExecutionError as e:
            # User code that raises where tasks are made does so again in every process: the topology fails instead.
            self.worker.event(
                "executor-failed",
                e.message.partition("\n")[0],
                Severity.ERROR,
                details={"traceback": e.message.partition("\n")[2]},
            )
            self.on_failure(e.message.partition("\n")[0], e.message.partition("\n")[2])
        self._progress.begun()
        self._applied = True

    def _states_of(self, starting: Collection[int]) -> Mapping[int, StoredState]:
        """What a checkpoint has of tasks that are about to begin.

        Raises:
            ExecutionError: It is gone: the topology cannot be what it was.
            Unavailable: It cannot be had now.
        """
        if self._checkpoints is None or not starting:
            return {}
        try:
            return self._checkpoints.fetch(starting, self._stores)
        except NotFound as e:
            raise ExecutionError(
                f"The checkpoint that the topology is to go back to is gone: {e.message}",
                remedy="Submit it again. More copies (checkpoint_copies), or --store hazelcast, outlast the loss of nodes.",
            ) from e

    def _end(self, grace: float) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._watch.cancel()
        self._views.close()
        self._switching.close()
        if not self.worker.close(grace):
            self.worker.event(
                "executor-abandoned",
                f"A call into user code did not return within {grace:g} s; the process ends without it.",
                Severity.WARNING,
                details={"traceback": self._watchdog.stacks()},
            )
        self._marks.close()
        self._stores.close()
        self._watchdog.close()
        with contextlib.suppress(ElasticError):
            self._progress.write(all_of_it=True)
        self._voice.close()
        with contextlib.suppress(ElasticError):
            self._coordination.close()


def _spec(coordination: Coordination, topology: TopologyName) -> TopologySpec:
    stored = coordination.get(paths.spec(topology))
    if stored is None:
        raise NotFound(f"Topology {topology!r} is gone.")
    return codec.decode(stored.data, TopologySpec)


def window_rows(spec: TopologySpec) -> int:
    """Tuples that may be on their way to one task of another worker: `WINDOW_QUEUES` times as many as may wait in a queue here."""
    rows: int = max(setting("queue_rows", spec.config), setting("batch_rows", spec.config))
    return WINDOW_QUEUES * rows


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a worker, and end the process with its exit code."""
    procs.die_with_parent()
    options = _parse(arguments)
    forgive()
    log_to_stderr(options.log_level)  # it is the supervisor that bounds it
    code = 1
    try:
        try:
            code = _run(options)
        except NotShippable as e:
            code = EXIT_BUNDLE
            sys.stderr.write(user_traceback(e))
        except ElasticError as e:
            log.error("%s", e)
        except BaseException:  # its supervisor starts another, once this one is gone
            log.exception("the worker has failed")
    finally:  # even so: user code may have closed or replaced what is written to, and then saying something raises as well
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        # Threads of user code may still run; they must not keep the process.
        os._exit(code)


def _run(options: argparse.Namespace) -> int:
    # Tuples of plain values are invisible to the collector; what it sees lives long. Fewer collections are worth 10 % in row mode.
    gc.set_threshold(50_000, 20, 50)
    memory.keep()
    timeslice.shorten()  # before there are other threads, which have what this one has

    # Imported here: what the bundle says does not need them, and a worker that cannot load it should say so soonest.
    from elastic.coordination.zookeeper import connect
    from elastic.nodestore.lmdb_store import open_reader
    from elastic.transport.sockets import SocketTransport

    try:
        components = load_bundle(Path(options.bundle))
    except (Exception, SystemExit) as e:  # noqa: BLE001 - importing user code may raise anything
        # The supervisor tells its end, so it must be short: the user's frames alone. That code may have closed what is written to.
        with contextlib.suppress(Exception):
            sys.stderr.write(user_traceback(e))
        return EXIT_BUNDLE
    procs.may_be_ended()  # after the bundle, which may have set anything
    coordination = connect(
        options.zookeeper,
        session_timeout=options.session_timeout,
        connect_timeout=REACHED,
        own_server=options.own_zookeeper,
        # A process that has stood still until others may run its tasks must not go on, not for one tuple: the kernel sees to that.
        on_proof=procs.end_at,
    )
    incarnation = Incarnation(options.incarnation)
    run_dir = Path(options.run_dir) if options.run_dir else None
    spec = _spec(coordination, TopologyName(options.topology))
    core, kept = Core(), how(spec, options.host)
    if kept == ALWAYS and (one := core.keep()) is not None:
        log.info("this worker keeps to core %d", one)
    transport = SocketTransport(
        incarnation,
        host=options.host,
        run_dir=run_dir,
        options=TransportOptions(window_rows=window_rows(spec)),
    )
    process = WorkerProcess(
        spec=spec,
        id=WorkerId(options.worker),
        incarnation=incarnation,
        coordination=coordination,
        store=open_reader(options.store),
        transport=transport,
        components=components,
        report_fd=options.report_fd,
        cycle=options.cycle,
        keeping=Keeping(core if kept == ALONE else None),
        checkpoints=worker_checkpoints.begin(coordination, spec.name, WorkerId(options.worker), incarnation),
    )
    return process.run()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="elastic.cluster.worker_main", description="A worker process; started by a supervisor."
    )
    parser.add_argument("--topology", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--incarnation", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--own-zookeeper", action="store_true")
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--report-fd", type=int, required=True)
    parser.add_argument("--run-dir", default="")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on and to register")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--cycle", type=float, default=0.0)
    parser.add_argument("--session-timeout", type=float, default=6.0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
