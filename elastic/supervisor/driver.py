"""The thread that owns a supervisor's worker lives: asks `decide` what to do, and does it.

Everybody else leaves a note (`note_...`) and wakes it. Two things don't wait for it: when the session is
lost or the node is superseded, `abort` kills all workers on the spot, and from then on none is started.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastic.coordination.base import Coordination, SessionState
from elastic.errors import Conflict, ElasticError, Unavailable
from elastic.model import codec
from elastic.model.assignment import NodeInfo
from elastic.model.events import Event, Severity
from elastic.model.ids import Epoch, Incarnation, TopologyName, WorkerId
from elastic.model.records import Allocation, WorkerInfo
from elastic.nodestore import keys
from elastic.nodestore.base import NodeStore
from elastic.supervisor import decide as d
from elastic.supervisor import logs, register
from elastic.supervisor.bundles import Bundles
from elastic.supervisor.decide import Life, Phase
from elastic.supervisor.happenings import Happenings, last_line
from elastic.supervisor.incarnations import Incarnations
from elastic.supervisor.loading import Loading
from elastic.supervisor.observe import Views, read_all
from elastic.supervisor.options import SupervisorOptions
from elastic.supervisor.ports import (
    CANNOT_LOAD,
    WORKER_WENT_BACK,
    RunningWorker,
    WorkerExit,
    WorkerLaunch,
    WorkerLauncher,
    WorkerListener,
)
from elastic.supervisor.repeated import Repeated

log = logging.getLogger(__name__)

_RETRY = 1.0
"""Seconds until a step that failed is tried again, unless something changes before."""
_STRAY = 2.0
_ABORT = 10.0
_GONE = 1000
_SAID = 40_000
"""Characters of what a worker's threads do in the event of its being killed."""


@dataclass(slots=True)
class Parts:
    """What a driver works with."""

    coordination: Coordination
    store: NodeStore
    launcher: WorkerLauncher
    listener: WorkerListener
    bundles: Bundles
    happenings: Happenings
    report: Callable[[Event], None]
    views: Callable[[], Views] | None
    """What is watched, or None: look every `options.cycle` seconds."""
    directory: Path
    options: SupervisorOptions


class Driver:
    """See the top of this module.

    Args:
        finish: Called on the thread, with the exit code, when all workers have ended and nothing more will be done.
    """

    def __init__(self, parts: Parts, node: NodeInfo, finish: Callable[[int], None]) -> None:
        self._parts = parts
        self._node = node
        self._finish = finish
        self._incarnations = Incarnations(parts.store, node.generation)
        self._loading = Loading(parts.options.load_tries)
        self._lives: dict[WorkerId, Life] = {}
        self._allocations: dict[WorkerId, Allocation] = {}
        self._said: dict[WorkerId, str] = {}
        self._repeated = Repeated()
        self._gone: deque[Incarnation] = deque(maxlen=_GONE)
        self._seen: Views = {}
        self._look_at = 0.0
        # Of the connection: how many there were, and up to which one it was looked.
        self._breaks, self._looked = 0, -1
        self._retry_at: float | None = None
        self._code: int | None = None
        self._wake = threading.Condition()
        self._awake = False
        self._exits: deque[tuple[Incarnation, WorkerExit]] = deque()
        self._jobs: deque[Callable[[], None]] = deque()
        self._connected = True
        self._apart, self._apart_since = 0.0, 0.0  # seconds without it, until it broke last
        self._ending = False
        self._running_lock = threading.Lock()
        self._running: dict[WorkerId, RunningWorker] = {}
        self._abort: int | None = None
        self._abort_until = 0.0
        self._thread = threading.Thread(target=self._work, name="elastic-supervisor", daemon=True)

    # -- notes, from any thread

    def start(self) -> None:
        for key in self._parts.store.keys():  # noqa: SIM118 - it is no dictionary
            entry = self._parts.store.latest(key)
            if entry is not None and key.startswith(keys.allocation(WorkerId(""))):
                try:
                    before = codec.decode(entry.data, Allocation)
                except msgspec.MsgspecError:  # of another version of this program, perhaps
                    self._parts.store.forget(key)
                else:
                    self._allocations[before.worker] = before
        self._thread.start()

    def note_changed(self) -> None:
        with self._wake:
            self._awake = True
            self._wake.notify()

    def note_exit(self, incarnation: Incarnation, exit: WorkerExit) -> None:
        with self._wake:
            self._exits.append((incarnation, exit))
        self.note_changed()

    def note_stacks(self, worker: WorkerId, text: str) -> None:
        """What its threads are doing: told when it is killed because it does not end."""
        life = self._lives.get(worker)
        if life is not None and life.questioned:
            self._said[worker] = text

    def note_session(self, state: SessionState) -> None:
        before, connected, now = self._connected, state is SessionState.CONNECTED, time.monotonic()
        if before and not connected:
            self._apart_since = now
        elif connected and not before:
            self._apart += now - self._apart_since  # first: who sees that it stands sees that, too
        self._connected = connected
        if not connected:
            self._breaks += 1
        self.note_changed()

    def note_end(self) -> None:
        """Stop all workers, then finish with 0."""
        self._ending = True
        self.note_changed()

    def call(self, job: Callable[[], None]) -> None:
        """Run something on the thread, which may wait for coordination. One that is `Unavailable` is run again."""
        with self._wake:
            self._jobs.append(job)
        self.note_changed()

    def abort(self, code: int) -> None:
        """Kill all workers now, then finish with `code`."""
        with self._running_lock:
            if self._abort is None:
                self._abort, self._abort_until = code, time.monotonic() + _ABORT
            for worker in self._running.values():
                worker.kill()
        self.note_changed()

    @property
    def aborting(self) -> bool:
        return self._abort is not None

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def running(self) -> dict[WorkerId, RunningWorker]:
        """The worker processes that run now."""
        with self._running_lock:
            return dict(self._running)

    def join(self, timeout: float) -> bool:
        """Wait for the end of the thread. Returns whether it has ended."""
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- the thread

    def _work(self) -> None:
        code = 1
        try:
            while self._code is None:
                self._round()
            code = self._code
        except Exception:
            log.exception("the supervisor of node %s has failed", self._node.id)
            self.abort(1)
        finally:
            self._parts.launcher.close()
            self._take_exits()
            self._finish(code)

    def _round(self) -> None:
        self._retry_at = None
        self._take_exits()
        if self._abort is not None:
            if self._running and time.monotonic() < self._abort_until:
                self._wait(self._abort_until)
            else:
                self._code = self._abort
            return
        self._run_jobs()
        self._look()
        decision = d.decide(self._situation())
        if not self._carry_out(decision.actions):
            self._wait(decision.wake_at)

    def _wait(self, until: float | None) -> None:
        cycle = self._look_at if self._parts.views is None else None
        times = [t for t in (until, self._retry_at, cycle) if t is not None]
        with self._wake:
            if not self._awake:
                self._wake.wait(max(0.0, min(times) - time.monotonic()) if times else None)
            self._awake = False

    def _situation(self) -> d.Situation:
        return d.Situation(
            node=self._node.id,
            now=time.monotonic(),
            connected=self._connected and self._fresh,
            ending=self._ending,
            topologies=self._views(),
            lives=dict(self._lives),
            allocations=dict(self._allocations),
            bundles=self._parts.bundles.states(),
            options=self._parts.options,
            apart=self._apart,
        )

    def _views(self) -> Views:
        views = self._seen if self._parts.views is None else self._parts.views()
        gone = set(self._gone)
        return {
            name: dataclasses.replace(
                view, workers=tuple(w for w in view.workers if w.incarnation not in gone)
            )
            for name, view in views.items()
        }

    @property
    def _fresh(self) -> bool:
        """Whether what is known of topologies is of the present connection. With watches there is none before that: `Observer.refresh`."""
        return self._parts.views is not None or self._looked == self._breaks

    def _look(self) -> None:
        """The cycle T_S (N-Storm 2019, section IV.B): look at coordination at fixed intervals."""
        now = time.monotonic()
        if self._parts.views is not None or (now < self._look_at and self._fresh):
            return
        self._look_at = now + self._parts.options.cycle
        if self._connected:
            breaks = self._breaks
            try:
                self._seen = read_all(self._parts.coordination)
                self._looked = breaks
            except Unavailable as error:
                log.info("coordination could not be looked at: %s", error)

    def _run_jobs(self) -> None:
        while self._jobs:
            try:
                self._jobs[0]()
                self._repeated.over("postponed")
            except Unavailable as error:
                now = time.monotonic()
                if self._repeated.is_news("postponed", str(error), now):
                    log.info("postponed: %s", error)
                self._retry_at = now + _RETRY
                return  # those that came after it too: the last one says what is so
            except ElasticError:
                log.exception("node %s", self._node.id)
            self._jobs.popleft()

    # -- carrying out

    def _carry_out(self, actions: tuple[d.Action, ...]) -> bool:
        """In order; when one fails, what follows for the same worker does not happen. Returns whether anything has changed."""
        changed = False
        failed: set[WorkerId | None] = set()
        for action in actions:
            worker = d.worker_of(action)
            if worker in failed or (failed and isinstance(action, d.Finish)):
                continue
            matter = type(action).__name__, worker
            try:
                changed |= self._do(action)
                self._repeated.over(matter)
            except (ElasticError, msgspec.MsgspecError) as error:
                now = time.monotonic()
                if self._repeated.is_news(matter, str(error), now):
                    level = logging.INFO if isinstance(error, Unavailable) else logging.WARNING
                    log.log(level, "%s: not done: %s", matter[0], error)
                self._retry_at = now + _RETRY
                if isinstance(error, Unavailable):  # nor would anything else be
                    return False
                failed.add(worker)
        return changed

    def _do(self, action: d.Action) -> bool:
        match action:
            case d.Write(wanted):
                return self._write(wanted)
            case d.Start():
                return self._start(action)
            case d.Stop(worker, reason, kill_at):
                return self._stop(worker, reason, kill_at)
            case d.Question(worker):
                self._running[worker].signal(signal.SIGUSR1)
                return self._change(worker, questioned=True)
            case d.Kill(worker, reason):
                return self._kill(worker, reason)
            case d.Dismiss(worker, until):
                return self._change(worker, dismiss_at=until)
            case d.Recall(worker):
                return self._change(worker, dismiss_at=None)
            case d.Registered(worker):
                return self._change(worker, registered=True, absent_at=None)
            case d.Absent(worker, until):
                return self._change(worker, absent_at=until)
            case d.Unregister(life):
                self._remove_registration(life.topology, life.worker, life.incarnation)
                return self._change(life.worker, phase=Phase.DOWN)
            case d.ReportBroken(life):
                allocation = self._allocations.get(life.worker)
                epoch = allocation.epoch if allocation else Epoch(0)
                register.report_broken(self._parts.coordination, life, epoch)
                return self._change(life.worker, told=True)
            case d.Reap(info):
                return self._reap(info)
            case d.Forget(worker):
                self._parts.store.forget(keys.allocation(worker))
                self._loading.forget(worker)
                self._lives.pop(worker, None)
                self._allocations.pop(worker, None)
                return True
            case d.Want(bundle):
                self._parts.bundles.want(bundle)
                return True
            case d.Drop(bundle):
                self._parts.bundles.drop(bundle)
                self._loading.drop(bundle)
                return True
            case d.Finish():
                self._code = 0
                return True

    def _change(self, worker: WorkerId, **changes: object) -> bool:
        self._lives[worker] = dataclasses.replace(self._lives[worker], **changes)  # type: ignore[arg-type]
        return True

    def _write(self, wanted: Allocation) -> bool:
        key = keys.allocation(wanted.worker)
        newest = self._parts.store.latest(key)
        allocation = dataclasses.replace(wanted, version=newest.version + 1 if newest else 1)
        self._parts.store.append(key, codec.encode(allocation))
        self._allocations[wanted.worker] = allocation
        running = self._running.get(wanted.worker)
        if running is not None and not self._parts.options.worker_cycle:
            running.tell(allocation.version)
        return True

    def _start(self, start: d.Start) -> bool:
        incarnation = self._incarnations.next(start.worker)
        life = Life(
            start.worker,
            start.topology,
            start.topology_id,
            start.bundle,
            incarnation,
            time.monotonic(),
            failures=start.failures,
            apart=self._apart,
        )
        launch = WorkerLaunch(
            start.topology,
            start.worker,
            incarnation,
            self._parts.bundles.path(start.bundle),
            logs.file_of(self._parts.directory, start.topology, start.worker),
        )
        self._lives[start.worker] = life
        try:
            with self._running_lock:
                if self._abort is not None:
                    return False
                running = self._parts.launcher.start(launch, self._parts.listener)
                self._running[start.worker] = running
        except ElasticError as error:
            self._failed(life, WorkerExit(1, str(error)), started=False)
            raise
        self._parts.report(self._parts.happenings.started(life, running.pid))
        return True

    def _stop(self, worker: WorkerId, reason: str, kill_at: float) -> bool:
        log.info("stopping %s: %s", worker, reason)
        self._running[worker].signal(signal.SIGTERM)
        return self._change(worker, phase=Phase.STOPPING, asked=True, kill_at=kill_at)

    def _kill(self, worker: WorkerId, reason: str) -> bool:
        life = self._lives[worker]
        said = self._said.pop(worker, "")
        if said:
            log.warning("%s is killed: %s\n%s", worker, reason, said)
        self._parts.report(
            self._parts.happenings.worker(
                "worker-killed",
                life,
                f"worker {worker} is killed: {reason}",
                Severity.WARNING,
                {"traceback": said[:_SAID]} if said else None,
            )
        )
        self._running[worker].kill()
        return self._change(worker, phase=Phase.STOPPING, kill_at=math.inf)

    def _remove_registration(
        self, topology: TopologyName, worker: WorkerId, incarnation: Incarnation
    ) -> None:
        register.unregister_worker(self._parts.coordination, topology, worker, incarnation)
        self._gone.append(incarnation)

    def _reap(self, info: WorkerInfo) -> bool:
        """A worker of an earlier supervisor. On this machine it is dead or about to be; elsewhere its session tells."""
        if not self._incarnations.lived_here(info.worker, info.incarnation):
            log.info("waiting for the end of %s, which runs or ran on another machine", info.incarnation)
            return False
        if not self._parts.launcher.end_stray(info.pid, info.incarnation, _STRAY):
            raise Conflict(f"{info.incarnation} of an earlier supervisor does not end (process {info.pid})")
        topology = TopologyName(info.worker.rpartition("@")[0])
        self._remove_registration(topology, info.worker, info.incarnation)
        return True

    # -- exits

    def _take_exits(self) -> None:
        while True:
            with self._wake:
                if not self._exits:
                    return
                incarnation, exit = self._exits.popleft()
            life = next((x for x in self._lives.values() if x.incarnation == incarnation), None)
            if life is not None:
                with self._running_lock:
                    self._running.pop(life.worker, None)
                self._ended(life, exit)

    def _ended(self, life: Life, exit: WorkerExit) -> None:
        self._said.pop(life.worker, None)
        if life.asked or self._abort is not None or (life.dismiss_at is not None and exit.code == 0):
            self._lives[life.worker] = dataclasses.replace(life, phase=Phase.DEAD, failures=0, restart_at=0.0)
            self._parts.report(self._parts.happenings.stopped(life, exit))
        elif exit.code == WORKER_WENT_BACK:
            self._loading.loaded(life)
            self._lives[life.worker] = dataclasses.replace(life, phase=Phase.DEAD, restart_at=0.0)
            self._parts.report(self._parts.happenings.went_back(life))
        else:
            self._failed(life, exit)

    def _failed(self, life: Life, exit: WorkerExit, *, started: bool = True) -> None:
        now, options = time.monotonic(), self._parts.options
        before = now - options.healthy_after
        healthy = life.since <= before
        if healthy and exit.code != CANNOT_LOAD:
            self._loading.loaded(life)
        failures = 1 if healthy else life.failures + 1
        pause = options.restart_pause(failures)
        dead = dataclasses.replace(life, phase=Phase.DEAD, failures=failures, restart_at=now + pause)
        if exit.code == CANNOT_LOAD and self._loading.hopeless(life, self._lives.values(), before):
            dead = dataclasses.replace(dead, broken=f"{life.worker}: {last_line(exit.tail)}")
            self._parts.report(self._parts.happenings.broken(dead, exit))
        elif started:
            self._parts.report(self._parts.happenings.lost(dead, exit, pause, now - life.since))
        else:
            self._parts.report(self._parts.happenings.not_started(dead, exit.tail, pause))
        self._lives[life.worker] = dead
