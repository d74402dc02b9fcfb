"""What a supervisor does next: a pure function of what it knows. No clock, no thread, no process.

The life of a worker process here:

    (none) -> RUNNING -> STOPPING -> DEAD -> DOWN -> RUNNING ...
                    \\-----------------^          \\-> (none)

RUNNING     started and not asked to end. It may have been dismissed: it has lost all its executors, and
has until
            `dismiss_at` to end by itself.
STOPPING    asked to end; killed at `kill_at`.
DEAD        the process has ended; its registration with coordination may still be there.
DOWN        nothing of it is left. It is started again from `restart_at`, if it should run.

`decide` is level-triggered: it compares what should be with what is and names the steps that are missing.
The driver takes them in order, notes what has changed, and asks again until nothing is missing. A step
that failed is therefore named again, and a note that came twice does no harm.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from elastic.api.settings import setting
from elastic.model.ids import Incarnation, NodeId, TopologyName, WorkerId
from elastic.model.records import Allocation, WorkerInfo
from elastic.supervisor.allocate import allocation, nothing, workers_here
from elastic.supervisor.bundles import BundleState
from elastic.supervisor.observe import TopologyView, Views
from elastic.supervisor.options import SupervisorOptions

ANSWER = 1.0
"""Seconds before a worker is killed because it does not end, at which it is asked what its threads are doing."""


class Phase(Enum):
    RUNNING = "running"
    STOPPING = "stopping"
    DEAD = "dead"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Life:
    """A worker process that this supervisor started.

    Attributes:
        topology_id: Tells it from a worker of a later topology with the same name.
        since: When it was started.
        failures: Lives of this worker that ended badly, one after the other.
        restart_at: DOWN: not before.
        asked: Whether it was asked to end.
        dismiss_at: RUNNING without executors: stop it then.
        kill_at: STOPPING: kill it then.
        questioned: STOPPING: it was asked what it is doing.
        registered: Whether it has been seen to be registered.
        absent_at: RUNNING, and its registration has gone: kill it then.
        broken: Why it makes no sense to start it again, or "".
        told: Whether Nimbus has been told that it is broken.
        apart: `Situation.apart` when it was started.
    """

    worker: WorkerId
    topology: TopologyName
    topology_id: str
    bundle: str
    incarnation: Incarnation
    since: float
    phase: Phase = Phase.RUNNING
    failures: int = 0
    restart_at: float = 0.0
    asked: bool = False
    dismiss_at: float | None = None
    kill_at: float = 0.0
    questioned: bool = False
    registered: bool = False
    absent_at: float | None = None
    broken: str = ""
    told: bool = False
    apart: float = 0.0

    @property
    def alive(self) -> bool:
        return self.phase in (Phase.RUNNING, Phase.STOPPING)


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known at one moment.

    Attributes:
        now: Seconds, monotonic; as in `Life`.
        connected: Whether the session with coordination stands. If not, nothing new is begun.
        ending: All workers are to be stopped, for good.
        lives: The newest life of each worker.
        allocations: What the store says, by worker.
        apart: Seconds without a connection until now, all together: nobody could register then, or be seen to.
    """

    node: NodeId
    now: float
    connected: bool
    ending: bool
    topologies: Views
    lives: Mapping[WorkerId, Life]
    allocations: Mapping[WorkerId, Allocation]
    bundles: Mapping[str, BundleState]
    options: SupervisorOptions
    apart: float = 0.0


@dataclass(frozen=True, slots=True)
class Unregister:
    """Remove what a dead life left in coordination."""

    life: Life


@dataclass(frozen=True, slots=True)
class ReportBroken:
    """Tell Nimbus, durably, that this worker cannot run."""

    life: Life


@dataclass(frozen=True, slots=True)
class Write:
    """Append to the store, and tell the worker."""

    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left of this worker: remove its allocation and the memory of its lives."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Dismiss:
    """It has nothing to do any more: it may go on until then."""

    worker: WorkerId
    until: float


@dataclass(frozen=True, slots=True)
class Recall:
    """It has something to do again."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Registered:
    """Its registration is there."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Absent:
    """Its registration has gone: it may end by itself until then."""

    worker: WorkerId
    until: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask it to end (SIGTERM); it is killed at `kill_at`."""

    worker: WorkerId
    reason: str
    kill_at: float


@dataclass(frozen=True, slots=True)
class Question:
    """Have it say what its threads are doing: it is about to be killed because it does not end."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Kill:
    """End it."""

    worker: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class Want:
    """Fetch a code bundle."""

    bundle: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove a code bundle."""

    bundle: str


@dataclass(frozen=True, slots=True)
class Reap:
    """A registered worker of this node that this supervisor did not start: an earlier one did. See to its
    end."""

    info: WorkerInfo


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker process, as the next incarnation."""

    worker: WorkerId
    topology: TopologyName
    topology_id: str
    bundle: str
    failures: int


@dataclass(frozen=True, slots=True)
class Finish:
    """All workers have ended: the supervisor may."""


Action = (
    Unregister
    | ReportBroken
    | Write
    | Forget
    | Dismiss
    | Recall
    | Registered
    | Absent
    | Stop
    | Question
    | Kill
    | Want
    | Drop
    | Reap
    | Start
    | Finish
)


def worker_of(action: Action) -> WorkerId | None:
    """Whom it is about, if it is about one worker."""
    match action:
        case Unregister(life) | ReportBroken(life):
            return life.worker
        case Write(wanted):
            return wanted.worker
        case Reap(info):
            return info.worker
        case Want() | Drop() | Finish():
            return None
    return action.worker


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, in this order, and when to ask again at the latest (None: when something has changed)."""

    actions: tuple[Action, ...]
    wake_at: float | None = None


def decide(situation: Situation) -> Decision:
    """See the top of this module."""
    actions: list[Action] = []
    due: list[float] = []
    wanted: dict[WorkerId, TopologyView] = {}
    if not situation.ending:
        for view in situation.topologies.values():
            wanted |= dict.fromkeys(workers_here(view, situation.node), view)
    for worker in sorted(wanted.keys() | situation.lives.keys() | situation.allocations.keys()):
        for step in _steps(situation, worker, wanted.get(worker)):
            if isinstance(step, float):
                due.append(step)
            else:
                actions.append(step)
    if situation.ending and not any(life.alive for life in situation.lives.values()):
        actions.append(Finish())
    if situation.connected and not situation.ending:
        actions += _unused_bundles(situation, wanted)
    later = [at for at in due if situation.now < at < math.inf]
    return Decision(tuple(actions), min(later, default=None))


def _steps(situation: Situation, worker: WorkerId, view: TopologyView | None) -> Iterator[Action | float]:
    """The steps for one worker (`view`: the topology that wants it here), and the moments that matter to
    it."""
    life = situation.lives.get(worker)
    if life is not None and life.phase is Phase.STOPPING:
        yield life.kill_at
        yield life.kill_at - ANSWER
        if life.kill_at - ANSWER <= situation.now and not life.questioned:
            yield Question(worker)
        if life.kill_at <= situation.now:
            yield Kill(worker, "it did not end when asked to")
        return
    if life is not None and situation.ending and life.phase is Phase.RUNNING:
        yield from _stop(situation, life, "the node stops")
        return
    if not situation.connected:
        return
    if life is not None and life.phase is Phase.DEAD:
        yield Unregister(life)
    if life is not None and life.broken and not life.told:
        yield ReportBroken(life)
    if situation.ending:
        return
    if view is None:
        yield from _unwanted(situation, worker, life)
    else:
        yield from _wanted(situation, worker, life, view)


def _wanted(
    situation: Situation, worker: WorkerId, life: Life | None, view: TopologyView
) -> Iterator[Action | float]:
    assert view.state is not None
    if life is not None and life.phase is Phase.RUNNING and life.topology_id != view.state.id:
        yield from _stop(situation, life, "another topology with its name was submitted")
        return
    yield from _write(situation, allocation(view, worker))
    if life is not None and life.phase is Phase.RUNNING:
        if life.dismiss_at is not None:
            yield Recall(worker)
        yield from _watch_registration(situation, life, view)
        return
    bundle = view.state.bundle
    if bundle not in situation.bundles:
        yield Want(bundle)
    if life is not None and life.phase is Phase.DEAD:
        return
    if life is not None and life.broken and life.topology_id == view.state.id:
        return
    strangers = [
        i for i in view.workers if i.worker == worker and (life is None or i.incarnation != life.incarnation)
    ]
    if strangers:
        yield from map(Reap, strangers)
        return
    fresh = life is None or life.topology_id != view.state.id
    if life is not None and not fresh and life.restart_at > situation.now:
        yield life.restart_at
    elif situation.bundles.get(bundle) is BundleState.READY:
        failures = 0 if life is None or fresh else life.failures
        yield Start(worker, view.name, view.state.id, bundle, failures)


def _unwanted(situation: Situation, worker: WorkerId, life: Life | None) -> Iterator[Action | float]:
    before = situation.allocations.get(worker)
    if life is None or life.phase is Phase.DOWN:
        if life is None or not life.broken or life.told:
            yield Forget(worker)
        return
    if life.phase is Phase.DEAD:
        return
    view = situation.topologies.get(life.topology)
    if view is None or view.assignment is None or not view.running or _id(view) != life.topology_id:
        yield from _write(situation, nothing(life.topology, worker, before))
        yield from _stop(situation, life, "its topology is over")
        return
    # Its executors have moved: it works off what still arrives (N-Storm 2019, section IV.A), and tells others
    # where to.
    yield from _write(situation, allocation(view, worker))
    if life.dismiss_at is None:
        delay = max(situation.options.kill_delay, float(setting("kill_delay", view.config)))
        yield Dismiss(worker, situation.now + delay)
    elif life.dismiss_at <= situation.now:
        yield from _stop(situation, life, "its executors have moved")
    else:
        yield life.dismiss_at


def _stop(situation: Situation, life: Life, reason: str) -> Iterator[Action]:
    view = situation.topologies.get(life.topology)
    own = float(setting("stop_grace", view.config if view else {}))
    yield Stop(life.worker, reason, situation.now + own + situation.options.grace)


def _watch_registration(situation: Situation, life: Life, view: TopologyView) -> Iterator[Action | float]:
    """A worker that never registers is stuck: nobody else would notice. One that was registered and is no more has lost its session, and
    ends by itself, unless user code keeps it from that."""
    options = situation.options
    if any(info.incarnation == life.incarnation for info in view.workers):
        if not life.registered or life.absent_at is not None:
            yield Registered(life.worker)
    elif not life.registered:
        limit = life.since + situation.apart - life.apart + options.start_timeout + 2 * options.cycle
        yield limit
        if limit <= situation.now:
            yield Kill(life.worker, f"it has not registered within {options.start_timeout:g} s")
    elif life.absent_at is None:
        yield Absent(life.worker, situation.now + options.grace)
    else:
        yield life.absent_at
        if life.absent_at <= situation.now:
            yield Kill(life.worker, "it has lost its session with coordination, and does not end by itself")


def _write(situation: Situation, wanted: Allocation) -> Iterator[Action]:
    before = situation.allocations.get(wanted.worker)
    if before is None or dataclasses.replace(before, version=0) != wanted:
        yield Write(wanted)


def _unused_bundles(situation: Situation, wanted: Mapping[WorkerId, TopologyView]) -> list[Action]:
    used = {v.state.bundle for v in situation.topologies.values() if v.running and v.state}
    used |= {v.state.bundle for v in wanted.values() if v.state}
    used |= {life.bundle for life in situation.lives.values() if life.alive}
    return [Drop(b) for b in sorted(situation.bundles.keys() - used)]


def _id(view: TopologyView) -> str:
    return view.state.id if view.state else ""
