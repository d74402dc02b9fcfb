"""A node's supervisor, put together: its session, its entry, its workers, and what others may ask it."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import logging
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from elastic.coordination import paths
from elastic.coordination.base import Coordination, SessionState, Versioned, Watch
from elastic.errors import ElasticError, NotFound
from elastic.model.assignment import NodeInfo
from elastic.model.events import Event, Severity
from elastic.model.ids import Incarnation, WorkerId, worker_of
from elastic.model.load import WorkerReport
from elastic.nodestore.base import NodeStore
from elastic.reporting.base import Reporter
from elastic.supervisor import logs, register
from elastic.supervisor.bundles import Bundles
from elastic.supervisor.driver import Driver, Parts
from elastic.supervisor.happenings import Happenings
from elastic.supervisor.metering import NodeMeter
from elastic.supervisor.observe import Observer
from elastic.supervisor.options import SupervisorOptions
from elastic.supervisor.ports import SESSION_LOST, WorkerExit, WorkerLauncher

log = logging.getLogger(__name__)

SUPERSEDED = 9
"""The exit code of a supervisor whose node runs elsewhere, in a newer generation."""

_CLOSE = 30.0
_ASKED = 64
"""Of those who wait for the stacks of a worker that does not answer, the longest is told that there are none."""
_FIRST = 30.0
"""Seconds that a node waits for its launcher to say which nodes are wanted: they start side by side."""


class Supervisor:
    """Makes the assignments of one node true (N-Storm 2019, section III.B).

    It ends by itself when the node is not wanted any more (`/wanted/<node>` is not there, or goes) and its
    workers have stopped; when its session with coordination is lost or a newer generation of the node has
    come, in which case its workers are killed at once; or when asked to by `stop`.

    Args:
        coordination: The session; stays the caller's.
        store: The node's store, open for writing; stays the caller's.
        reporter: The line to Nimbus; stays the caller's.
        launcher: Starts worker processes; closed at the end.
        node: What the node is. Its `address` and `draining` are filled in here.
        directory: The node's directory: `bundles/` and `workers/` are made in it.
        options: See there.
    """

    def __init__(
        self,
        coordination: Coordination,
        store: NodeStore,
        reporter: Reporter,
        launcher: WorkerLauncher,
        node: NodeInfo,
        directory: Path,
        options: SupervisorOptions | None = None,
    ) -> None:
        self._coordination = coordination
        self._reporter = reporter
        self._launcher = launcher
        self._info = node
        self._directory = directory
        self._happenings = Happenings(node.id)
        self._code: int | None = None
        self._ended = threading.Event()
        self._watches: list[Watch] = []
        self._malformed: set[WorkerId] = set()
        self._asking = threading.Lock()
        self._asked: dict[WorkerId, list[Future[str]]] = {}  # whose stacks somebody waits for
        self._was_wanted = False
        self._patience = threading.Timer(_FIRST, self._never_wanted)
        self._patience.daemon = True
        options = options or SupervisorOptions()
        self._meter = NodeMeter(
            node.id,
            options.report_interval,
            options.cores,
            lambda measured: reporter.report(node.id, (), (), measured),
        )
        self._bundles = Bundles(
            directory / "bundles", reporter.fetch_bundle, options, self._note_changed, self._on_bundle_failed
        )
        self._observer = Observer(coordination, self._note_changed)
        self._watching = options.cycle <= 0
        parts = Parts(
            coordination,
            store,
            launcher,
            self,
            self._bundles,
            self._happenings,
            self._report,
            self._observer.views if self._watching else None,
            directory,
            options,
        )
        self._driver = Driver(parts, node, self._on_finished)

    @property
    def node(self) -> NodeInfo:
        """The node as it is registered."""
        return self._info

    # -- its life

    def start(self, address: str = "") -> None:
        """Register the node, and begin.

        Args:
            address: `host:port` of the node's service.

        Raises:
            Superseded: A newer generation of this node is running.
            Unavailable: Coordination cannot be reached.
        """
        self._info = dataclasses.replace(self._info, address=address or self._info.address)
        draining = self._coordination.get(paths.drain(self._info.id)) is not None
        self._info = dataclasses.replace(self._info, draining=draining)
        register.register(self._coordination, self._info)
        self._driver.start()
        node = self._info.id
        self._report(self._happenings.node("node-started", f"node {node} has started"))
        self._patience.start()
        self._watches = [
            self._coordination.watch_session(self._on_session),
            self._coordination.watch_value(paths.node(node), self._on_entry),
            self._coordination.watch_value(paths.wanted(node), self._on_wanted),
            self._coordination.watch_value(paths.drain(node), self._on_drain),
        ]
        self._meter.start()
        if self._watching:
            self._observer.start()

    def set_store(self, address: str) -> None:
        """Say in the node's entry where its state store answers. From any thread, after `start`; returns at once.

        Args:
            address: As in `NodeInfo.store`: "" when it has ended.
        """
        self._driver.call(
            lambda: self._change(store=address, store_life=self._info.store_life + bool(address))
        )

    def tell(self, event: Event) -> None:
        """Pass an event of this node on to Nimbus."""
        self._report(event)

    def stop(self) -> None:
        """Stop all workers, with their grace, then end with 0. Returns at once; safe in a signal handler's
        thread."""
        self._driver.note_end()

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end.

        Returns:
            The exit code: 0 when asked to or not wanted any more, 4 when the session is lost, 9 when
            superseded, 1 for a fault of its own; None when it is still running.
        """
        self._ended.wait(timeout)
        return self._code

    def close(self) -> None:
        """Stop, wait for the end, and let go of everything. Safe to call twice."""
        if self._driver.started:
            self.stop()
            if self.wait(_CLOSE) is None:
                self._driver.abort(1)
            self._driver.join(_CLOSE)
        else:
            self._launcher.close()
            self._release()

    # -- what others may ask

    def log_files(self, topology: str, worker: str = "") -> list[tuple[WorkerId, Path]]:
        """The log files of a topology's workers on this node, present and past, sorted; or of one worker."""
        found = logs.files_of(self._directory, self._info.id, topology)
        return [(w, path) for w, path in found.items() if not worker or w == worker]

    def missing_modules(self, modules: Sequence[str]) -> list[str]:
        """Those of the modules that workers of this node could not import. Nothing is imported to find
        out."""
        importlib.invalidate_caches()
        return [m for m in modules if not _importable(m.partition(".")[0])]

    def request_stacks(self, worker: str) -> Future[str]:
        """Have a worker say what all its threads are doing.

        Returns:
            The stacks; "" when it has ended before it could say.

        Raises:
            NotFound: It does not run here.
        """
        id = WorkerId(worker)
        found: Future[str] = Future()
        with self._asking:
            waiting = self._asked.setdefault(id, [])
            waiting.append(found)
            late = waiting.pop(0) if len(waiting) > _ASKED else None
        if late is not None:
            late.set_result("")
        running = self._driver.running().get(id)  # after that: its end is told to whoever asks
        if running is None:
            self._answer_stacks(id, "")
            raise NotFound(f"worker {worker} does not run on node {self._info.id}")
        running.signal(signal.SIGUSR1)
        return found

    def _answer_stacks(self, worker: WorkerId, text: str) -> None:
        with self._asking:
            asked = self._asked.pop(worker, [])
        for one in asked:
            one.set_result(text)

    # -- told by workers (`WorkerListener`)

    def on_event(self, incarnation: Incarnation, event: Event) -> None:
        worker = worker_of(incarnation)
        self._report(
            dataclasses.replace(
                event,
                topology=event.topology or worker.rpartition("@")[0],
                worker=event.worker or worker,
                node=self._info.id,
            )
        )

    def on_report(self, incarnation: Incarnation, report: WorkerReport) -> None:
        self._meter.saw(incarnation, report)
        self._reporter.report(self._info.id, (report,), ())

    def on_stacks(self, incarnation: Incarnation, text: str) -> None:
        self._driver.note_stacks(worker_of(incarnation), text)
        self._answer_stacks(worker_of(incarnation), text)

    def on_malformed(self, incarnation: Incarnation, what: str) -> None:
        worker = worker_of(incarnation)
        log.warning("%s sent something that is no message: %s", incarnation, what)
        if worker not in self._malformed:
            self._malformed.add(worker)
            event = self._happenings.node(
                "report-malformed",
                f"worker {worker} sent something that is no message: {what}",
                Severity.WARNING,
            )
            self.on_event(incarnation, event)

    def on_exit(self, incarnation: Incarnation, exit: WorkerExit) -> None:
        self._malformed.discard(worker_of(incarnation))
        self._answer_stacks(worker_of(incarnation), "")
        self._meter.gone(incarnation)
        self._driver.note_exit(incarnation, exit)

    # -- told by coordination

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._observer.refresh(lambda: self._driver.note_session(state))
            return
        self._driver.note_session(state)
        if state is SessionState.LOST and not self._driver.aborting:
            self._driver.abort(SESSION_LOST)
            message = f"node {self._info.id} has lost its session with coordination: its workers are killed"
            self._report(self._happenings.node("node-session-lost", message, Severity.ERROR))

    def _on_entry(self, value: Versioned | None) -> None:
        other = register.read(value) if value is not None else None
        if register.same_life(other, self._info):
            return
        if other is not None and other.generation >= self._info.generation:
            log.error("%s", register.superseded(self._info, other).message)
            message = f"node {self._info.id} runs elsewhere, in generation {other.generation}: this one ends"
            self._driver.abort(SUPERSEDED)
            self._report(self._happenings.node("node-superseded", message, Severity.WARNING))
        else:
            self._driver.call(self._register_again)

    def _on_wanted(self, value: Versioned | None) -> None:
        if value is not None:
            self._was_wanted = True
            self._patience.cancel()
        elif self._was_wanted:
            log.info("node %s is not wanted any more: it ends", self._info.id)
            self._driver.note_end()
        else:
            self._driver.call(self._see_wanted)

    def _see_wanted(self) -> None:
        """On the driver's thread. As long as nobody has said what is wanted, nobody has said that this node is not."""
        said = self._coordination.get(paths.WANTED)
        if said is None or said.data != paths.WANTED_SAID:
            return
        if self._coordination.get(paths.wanted(self._info.id)) is None:
            log.info("node %s is not wanted: it ends", self._info.id)
            self._driver.note_end()

    def _never_wanted(self) -> None:
        if not self._was_wanted:
            log.info("nobody has said within %g s that node %s is wanted: it ends", _FIRST, self._info.id)
            self._driver.note_end()

    def _on_drain(self, value: Versioned | None) -> None:
        self._driver.call(lambda: self._change(draining=value is not None))

    def _change(self, **changes: str | bool | int) -> None:
        """On the driver's thread, which runs it again when coordination cannot be reached: so it is remembered only when
        it is written."""
        after = dataclasses.replace(self._info, **changes)  # type: ignore[arg-type]
        if after != self._info:
            register.update(self._coordination, self._info, after)
            self._info = after

    def _register_again(self) -> None:
        log.warning("node %s: its entry in coordination is gone: made again", self._info.id)
        register.register(self._coordination, self._info)

    # -- its parts

    def _note_changed(self) -> None:
        self._driver.note_changed()

    def _report(self, event: Event) -> None:
        self._reporter.report(self._info.id, (), (event,))

    def _on_bundle_failed(self, sha256: str, reason: str, failures: int, pause: float) -> None:
        message = f"code bundle {sha256[:12]} is not available on node {self._info.id}: {reason}"
        event = self._happenings.node("bundle-unavailable", message, Severity.WARNING)
        self._report(
            dataclasses.replace(event, details={"bundle": sha256, "failures": failures, "retry_in": pause})
        )

    def _on_finished(self, code: int) -> None:
        """The driver's last deed, on its thread."""
        self._release()
        if code == 0:
            try:
                register.unregister(self._coordination, self._info)
            except ElasticError as error:  # it goes with the session
                log.info("node %s: entry not removed: %s", self._info.id, error)
        self._report(self._happenings.node("node-stopped", f"node {self._info.id} has stopped"))
        self._code = code
        self._ended.set()

    def _release(self) -> None:
        self._patience.cancel()
        self._meter.close()
        for watch in self._watches:
            watch.cancel()
        self._observer.close()
        self._bundles.close()


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
