"""Nodes that Spark provides: each is a job with one task, which runs for as long as the node does.

The job is `spark.range(0, 1, 1, 1).mapInArrow(...).collect()`, called in a thread of its own: the same on classic and
Connect sessions, on `local`, standalone, YARN and Kubernetes. Nodes can be added at any time (another job) and drained
one by one (a job ends); Spark starts one again whose executor or python worker was lost, with a higher generation
(`elastic/hosts/generation.py`).

How a node ends:

- politely: it is told through coordination (its entry under `/wanted` goes), its supervisor ends, its job gives its
  one row. That is the launcher's business; `SparkNode.stop` only waits for it;
- by `SparkNode.stop` on the launcher's own machine: SIGTERM for its supervisor, which then ends in order;
- as the fallback of `stop`, everywhere: its job is cancelled, Spark kills the python worker within 4 s, and what runs
  below it dies with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Any

from elastic.errors import DeadlineExceeded, ElasticError, EnvironmentProblem, Refused, Unavailable
from elastic.handles import readable
from elastic.hosts.base import NodeCommand
from elastic.hosts.spark_notices import Notices
from elastic.hosts.spark_session import PATIENCE, Session, first_line, open_session
from elastic.hosts.spark_task import SCHEMA, Payload, Process
from elastic.model.ids import NodeId
from elastic.model.words import counted

log = logging.getLogger(__name__)

_CLOSED = "the Spark host has been closed"
_CANCEL_EVERY = 1.0
_CANCEL_FOR = 20.0
_DIES_WITHIN = 10.0
_COMING = 20.0
"""Seconds that `SparkHost.close` waits for Spark that is just being started; then the start is given up."""


class SparkNode:
    """A node that is a Spark job. Made by `SparkHost.start`."""

    def __init__(
        self, command: NodeCommand, session: Session, notices: str, on_exit: Callable[[NodeId, str], None]
    ) -> None:
        self._node = command.node
        self._session = session
        self._on_exit = on_exit
        self._tag = f"elastic-{command.node}-{uuid.uuid4().hex[:12]}"
        self._payload = Payload(
            node=command.node,
            arguments=command.arguments,
            environment=dict(command.environment),
            log=command.log,
            launcher=Process.of(os.getpid()),
            tag=self._tag,
            notices=notices,
        ).encode()
        self._supervisor: Process | None = None
        self._asked = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"elastic-node-{command.node}", daemon=True)
        self._thread.start()

    @property
    def node(self) -> NodeId:
        return self._node

    @property
    def session(self) -> Session:
        """Where its job runs."""
        return self._session

    @property
    def tag(self) -> str:
        """The tag of its job, by which it can be found and cancelled in Spark."""
        return self._tag

    def alive(self) -> bool:
        """Whether its job is under way: also while it waits for room, or while Spark starts its task again."""
        return not self._ended.is_set()

    def stop(self, grace: float) -> None:
        """Wait `grace` seconds for the node to end, then cancel its job; at once where that only waits for room.

        A supervisor on this machine gets SIGTERM first. One elsewhere can't be asked by this host: the caller has done
        that through coordination, before. Returns when the job has ended, and a supervisor on this machine as well; one
        elsewhere ends within 4 s of being cancelled. Safe to call twice.

        Raises:
            DeadlineExceeded: The job was cancelled, and did not end.
            Unavailable: Spark cannot be told to cancel it.
        """
        self._asked = True
        self._ask()
        if self._supervisor is None and self._session.waits(self._tag):
            grace = 0.0  # there is nobody yet who could end by himself
        if not self._ended.wait(max(grace, 0.0)):
            self._cancel()
            self._outlive()

    def attach(self, supervisor: Process) -> None:
        """The task has told which process of this machine the supervisor is."""
        self._supervisor = supervisor
        if self._asked:  # before it was there
            self._ask()

    def _ask(self) -> None:
        if self._supervisor is not None and (handle := self._supervisor.open()) is not None:
            _signal(handle, signal.SIGTERM)
            os.close(handle)

    def _cancel(self) -> None:
        for _ in range(round(_CANCEL_FOR / _CANCEL_EVERY)):
            self._session.cancel(self._tag)  # again: one that is only now being submitted has missed the last
            if self._ended.wait(_CANCEL_EVERY):
                return
        raise DeadlineExceeded(
            f"node {self._node}: its Spark job {self._tag} was cancelled {_CANCEL_FOR:g} s ago and has not ended",
            remedy="see whether Spark's driver is alive and busy",
        )

    def _outlive(self) -> None:
        """Wait for the supervisor of a cancelled job: Spark takes a few seconds to kill what ran it."""
        if self._supervisor is not None and (handle := self._supervisor.open()) is not None:
            if not _ended(handle, _DIES_WITHIN):
                _signal(handle, signal.SIGKILL)
                _ended(handle, _DIES_WITHIN)
            os.close(handle)

    def _run(self) -> None:
        reason = "its job ended without a result"
        try:
            host = _shipped(self._payload)
            frame = self._session.spark.range(0, 1, 1, 1).mapInArrow(host, SCHEMA)
            if not self._asked:
                rows = self._session.run_tagged(self._tag, frame.collect)
                reason = rows[0]["reason"] if rows else reason
        except Exception as error:  # noqa: BLE001 - whatever Spark raises, the node has ended by it
            reason = f"its Spark job failed: {first_line(error)}"
        self._ended.set()
        try:
            self._on_exit(self._node, "" if self._asked else reason)
        except Exception:
            log.exception("node %s has ended, and the one who was told of it failed", self._node)


class SparkHost:
    """Starts each node as a one-task Spark job.

    Args:
        master: Spark's master: `local` (room for 64 nodes), `local[N]`, `local-cluster[n,cores,MB]`, `spark://...`,
            `yarn`, `k8s://...`. Not looked at when a Spark session is active in this process: that one is used, and
            left running. `sc://...` is taken as `remote`.
        remote: Instead of a master: `sc://host:port` of a Connect server, or `local[N]` to start one here.
        config: Spark's settings, over those of `spark_session.settings`.
        java_environment: Environment variables by which Spark finds Java; set while it starts.
        python: The interpreter for tasks. "" is this one on this machine, and elsewhere what Spark is set to there.
        grace: Seconds that `close` gives nodes to end by themselves.
        name: Spark's name for the application.
        scratch: Directory for temporary files of a local master: made when it is missing, removed by `close`.
            "" is a new one among the system's temporary files. Whoever must clean up after being killed names one.
        patience: Seconds that Spark may take to start: on a cluster it may have to wait for room.
    """

    def __init__(
        self,
        master: str = "local",
        *,
        remote: str | None = None,
        config: Mapping[str, str] | None = None,
        java_environment: Mapping[str, str] | None = None,
        python: str = "",
        grace: float = 0.0,
        name: str = "elastic",
        scratch: str = "",
        patience: float = PATIENCE,
    ) -> None:
        self._master = master
        self._remote = master if remote is None and master.startswith("sc://") else remote
        self._config = dict(config or {})
        self._java = dict(java_environment or {})
        self._python = python
        self._grace = grace
        self._name = name
        self._scratch = scratch
        self._patience = patience
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._coming: Future[Session] = Future()
        self._nodes: list[SparkNode] = []
        self._closed = False
        self._notices: Notices | None = None

    @property
    def kind(self) -> str:
        return "spark"

    def open(self) -> None:
        """Find or start the Spark session now, which takes seconds; `start` does it otherwise.

        Raises:
            EnvironmentProblem: Spark cannot be started or reached.
            Refused: The host has been closed.
            Unavailable: Spark does not answer, and other nodes still run in it.
        """
        with self._lock:
            self._ready()

    def start(self, command: NodeCommand, on_exit: Callable[[NodeId, str], None]) -> SparkNode:
        """Submit a node's job; the first time, or when Spark has gone, after starting Spark.

        Args:
            command: What to run. The value of `--generation` in its arguments is replaced by that of the task's attempt
                (`elastic/hosts/generation.py`).
            on_exit: Called once, when the job has ended: with the supervisor's exit code or signal in a sentence, or
                what Spark says, or with "" when `stop` had been called.

        Raises:
            EnvironmentProblem: Spark cannot be started or reached, or has no room for another node.
            Refused: The host has been closed.
            Unavailable: Spark does not answer, and other nodes still run in it.
        """
        with self._lock:
            session = self._ready()
            self._nodes = [n for n in self._nodes if n.alive()]
            if session.slots is not None and len(self._nodes) >= session.slots:
                taken = (
                    f"{counted(session.slots, 'node')} at {self._master}, all taken"
                    if session.slots
                    else f"no node at {self._master}"
                )
                raise EnvironmentProblem(
                    f"node {command.node}: Spark has room for {taken}",
                    remedy="give it a larger one, for instance --master local[8]; a node takes spark.task.cpus of it",
                )
            if self._notices is None:
                self._notices = Notices(self._told)
            handle = SparkNode(command, session, self._notices.address, on_exit)
            self._nodes.append(handle)
            return handle

    def close(self) -> None:
        """Stop all nodes, all at once, and then Spark, if it was started here. Safe to call twice.

        Spark that another thread is starting is waited for, so that it ends in order; but not for as long as a start may take.
        """
        self._closed = True
        if self._lock.acquire(timeout=_COMING):
            self._lock.release()
        else:
            with contextlib.suppress(InvalidStateError):  # it has come
                self._coming.set_exception(TimeoutError("it was given up, as the Spark host is closed"))
        with self._lock:
            nodes = list(self._nodes)  # which may still tell of their supervisors
            session, self._session = self._session, None
            notices, self._notices = self._notices, None
        stoppers = [
            threading.Thread(target=_stop, args=(n, self._grace), daemon=True) for n in nodes if n.alive()
        ]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        with self._lock:
            self._nodes = []
        if session is not None:
            session.close()
        if notices is not None:
            notices.close()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _told(self, tag: str, supervisor: Process) -> None:
        with self._lock:
            nodes = [n for n in self._nodes if n.tag == tag]
        for node in nodes:
            node.attach(supervisor)

    def _ready(self) -> Session:
        if self._closed:
            raise Refused(_CLOSED)
        if self._session is not None and not self._usable(self._session):
            log.warning("Spark has gone; it is started again")
            self._session.close()
            self._session = None
        if self._session is None:
            self._scratch = self._scratch or tempfile.mkdtemp(prefix="elastic-spark-")
            Path(self._scratch).mkdir(parents=True, exist_ok=True)
            self._coming = Future()
            if self._closed:  # from now on `close` finds what it gives up
                raise Refused(_CLOSED)
            self._session = open_session(
                *(
                    self._master,
                    self._remote,
                    self._config,
                    self._java,
                    self._python,
                    self._name,
                    self._scratch,
                ),
                self._coming,
                self._patience,
            )
        return self._session

    def _usable(self, session: Session) -> bool:
        """Whether nodes can be started in it. One without an answer is of no use, but those that run in it may well be."""
        try:
            return session.usable()
        except TimeoutError as error:
            others = [n.node for n in self._nodes if n.session is session and n.alive()]
            if not others:
                log.info("the Spark session is of no more use: %s", error)
                return False
            raise Unavailable(
                f"Spark does not answer ({error}): no node can be started in it, and it is not ended while it has {', '.join(others)}",
                remedy="see whether Spark's driver is busy; without other nodes in it, the next start ends it and starts it again",
            ) from error


def _stop(node: SparkNode, grace: float) -> None:
    try:
        node.stop(grace)
    except ElasticError as error:
        log.warning("%s", error)


def _ended(handle: int, seconds: float) -> bool:
    return bool(readable([handle], seconds))


def _signal(handle: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal.pidfd_send_signal(handle, number)


def _shipped(payload: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark sends to the task: by value, so that what it imports is looked for there, not here."""

    def host(batches: Iterable[Any]) -> Iterator[Any]:
        from elastic.hosts.spark_task import run

        return run(batches, payload)

    host.__module__ = "__main__"
    return host
