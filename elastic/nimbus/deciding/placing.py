"""Where tasks are placed without a move, and which moves begin: pure.

Every change of a running task's worker is a move. What is placed at once is what no process runs: tasks that are new, and those whose
worker does not live, or has let go of what a forced drain took from it. Tasks of moves without an outcome are left alone in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from elastic.errors import Refused
from elastic.migration.plan import Change, Seat, changes_between, most_of, plan_move
from elastic.migration.record import MoveRecord
from elastic.model.assignment import Assignment, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, Incarnation, TaskId, WorkerId, node_of
from elastic.nimbus.deciding.dividing import bound_of, fitting, together
from elastic.nimbus.deciding.store_waits import awaited, give_up_at, waiting
from elastic.nimbus.observing.facts import Facts, TopologyFacts, slot_of
from elastic.nimbus.observing.plans import Left, Plan, interim, same

_SENTENCES = 20
HALF = 0.5
"""Of a component's tasks that are paused at once at most when many move, and nobody has said otherwise."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How moves are begun. Times are seconds.

    Attributes:
        tries: How often a task's move may fail before it is given up.
        retry: Pause after the first failure; twice as long after the second, and so on.
        start_timeout: How long the worker that a task shall go to may take to register.
        at_once: So many tasks are moved in one batch, or a part of all of them where that is more (`dividing.BATCHES`).
        share: Of a component's tasks that may be paused at once, unless a request names another; 0: half of them (`HALF`), when there
            are more than `at_once`.
        store_timeout: How long a task waits for state stores that are being started again, altogether.
    """

    tries: int = 3
    retry: float = 2.0
    start_timeout: float = 60.0
    at_once: int = 1
    share: float = 0.0
    store_timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be written.

    Attributes:
        assignment: The very object that is in force when it does not change.
        plan: None: nothing of it is missing.
        gone: Workers that must not live: their tasks are placed elsewhere.
    """

    assignment: Assignment
    plan: Plan | None
    gone: tuple[WorkerId, ...] = ()


def step(t: TopologyFacts, facts: Facts, plan: Plan, rules: Rules) -> Step:
    """What can be written now to come nearer to a plan."""
    present = t.assignment
    assert present is not None
    desired = plan.assignment
    places, gone = _places(t, facts, plan, rules)
    written = interim(present, desired, places, held(t, facts), halted=bool(plan.halted))
    left = _left(t, plan, written)
    if plan.left != left:
        plan = replace(plan, left=left)
    if came_true(plan, written, t.moving):
        return Step(written, None, gone)
    plan = _overdue(t, facts, _still_failed(plan, places), places, rules)
    nodes = () if plan.halted else waiting(_changes(t, plan, places, rules), facts.nodes)
    return Step(written, plan if plan.awaited == nodes else replace(plan, awaited=nodes), gone)


def asked(t: TopologyFacts, facts: Facts, plan: Plan) -> Step:
    """What a request writes: the plan, and the workers that it needs. Everything else follows from that by `step`."""
    assert t.assignment is not None
    written = interim(t.assignment, plan.assignment, t.assignment.place_of(), held(t, facts))
    if t.plan is not None and t.plan.left:
        plan = replace(plan, left=t.plan.left)
    return Step(written, None if came_true(plan, written, t.moving) else plan)


def came_true(plan: Plan, written: Assignment, moving: Collection[int]) -> bool:
    """Whether nothing of a plan is missing: it can go.

    Args:
        written: What is in force then.
        moving: Tasks whose moves have no outcome then. They may be written where they shall be, and be on their way elsewhere: somebody
            has asked them back since.
    """
    return same(written, plan.assignment) and not plan.left and not moving


def _places(
    t: TopologyFacts, facts: Facts, plan: Plan, rules: Rules
) -> tuple[dict[TaskId, WorkerId], tuple[WorkerId, ...]]:
    """Each task's worker, with those placed anew that nobody runs; and who must not live for that.

    From a node that is drained by force, what has no other place leaves all the same; and what could not be moved leaves
    without its state: first it has no place; then, when its worker has let go of it, its new one.
    """
    assert t.assignment is not None
    places, wanted = t.assignment.place_of(), plan.assignment.place_of()
    running = {x.task for x in plan.left if not _has_let_go(t, x)}
    gone: set[WorkerId] = set()
    for number in range(1, t.spec.task_count + 1):
        task = TaskId(number)
        now, to = places.get(task), wanted.get(task)
        if now == to or task in t.moving:
            continue
        if now is None:
            assert to is not None
            if task not in running:
                places[task] = to
        elif now not in t.workers:
            gone.add(now)
            if to is None:
                del places[task]
            else:
                places[task] = to
        elif facts.drains.get(node_of(now), False):
            failure = plan.failure(task)
            if to is None or (failure is not None and failure.times >= rules.tries):
                del places[task]
    return places, tuple(sorted(gone))


def _left(t: TopologyFacts, plan: Plan, written: Assignment) -> tuple[Left, ...]:
    """The tasks that are taken from living workers, now or before, and that those have not let go of."""
    assert t.assignment is not None
    now = written.place_of()
    taken = [Left(n, w, written.epoch) for n, w in t.assignment.place_of().items() if n not in now]
    before = [x for x in plan.left if x.task not in now]
    return tuple(sorted((x for x in (*before, *taken) if not _has_let_go(t, x)), key=lambda x: x.task))


def _has_let_go(t: TopologyFacts, left: Left) -> bool:
    """Whether that worker does not run the task any more. One that has begun anew meanwhile has not begun with it."""
    if left.worker not in t.workers:
        return True
    done = t.progress.get(left.worker)
    return done is not None and done.epoch >= left.epoch


def held(t: TopologyFacts, facts: Facts) -> dict[WorkerId, WorkerSlot]:
    """Workers that have to be kept running for the sake of moves that are not closed."""
    workers = {w for m in t.moves.values() for w in m.workers}
    return {
        w: slot_of(w)
        for w in sorted(workers)
        if w in t.workers or node_of(w) in facts.nodes or node_of(w) in facts.expected
    }


def _still_failed(plan: Plan, places: dict[TaskId, WorkerId]) -> Plan:
    """Without the failures of tasks that have come to their place by now."""
    wanted = plan.assignment.place_of()
    return plan.without([f.task for f in plan.failures if places.get(f.task) == wanted.get(f.task)])


def _changes(t: TopologyFacts, plan: Plan, places: dict[TaskId, WorkerId], rules: Rules) -> Iterator[Change]:
    """What is to move, and has been neither begun nor given up."""
    for change in changes_between(places, plan.assignment.place_of()):
        failure = plan.failure(change.task)
        if change.task not in t.moving and (failure is None or failure.times < rules.tries):
            yield change


def to_come(t: TopologyFacts, rules: Rules) -> set[TaskId]:
    """The tasks that are to move because of the plan, and have not begun to."""
    if t.plan is None or t.plan.halted or t.assignment is None:
        return set()
    return {c.task for c in _changes(t, t.plan, t.assignment.place_of(), rules)}


def _overdue(
    t: TopologyFacts, facts: Facts, plan: Plan, places: dict[TaskId, WorkerId], rules: Rules
) -> Plan:
    """With the tasks given up whose new worker, or a store that they need, has not come in time."""
    if plan.halted:
        return plan
    for change in _changes(t, plan, places, rules):
        node = awaited(change, facts.nodes)
        if t.seat(change.target) is None and facts.now >= _start_by(plan, change, rules):
            reason = (
                f"worker {change.target}, where it was to go, did not start within {rules.start_timeout:g} s"
            )
        elif node is not None and facts.now >= give_up_at(plan, change.task, rules.store_timeout):
            reason = f"the state store of node {node} has not come back within {rules.store_timeout:g} s"
        else:
            continue
        plan = plan.with_failure(change.task, facts.now, reason, rules.tries)
    return plan


def _start_by(plan: Plan, change: Change, rules: Rules) -> float:
    failure, asked = plan.failure(change.task), plan.asked_at(change.task)
    return (asked if failure is None else max(asked, failure.at)) + rules.start_timeout


def begin(
    t: TopologyFacts, facts: Facts, rules: Rules, sizes: Mapping[TaskId, int] | None = None
) -> MoveRecord | None:
    """The move that can begin now, if there is one: of everything that is to move, as soon as all new workers live. What has not begun
    where it is, and what there is no room for, is moved after that, by another one.

    Args:
        sizes: Bytes of state by task, as far as they are known. They decide how the move is divided, if nobody has said that.
    """
    plan, assignment = t.plan, t.assignment
    if plan is None or plan.halted or assignment is None or not t.running or t.kill_at is not None:
        return None
    if _divided(t) is not None:
        return None
    now, asked = [], plan.asks()
    # Its process has ended, or is about to: it is placed without a move.
    changes = [c for c in _changes(t, plan, assignment.place_of(), rules) if _lives(t, facts, c.source)]
    # All that one request wants begins together; what another one wants need not wait for the workers of that.
    late = {asked.get(c.task, plan.newest).why for c in changes if not _lives(t, facts, c.target)}
    for change in changes:
        if asked.get(change.task, plan.newest).why in late:
            continue
        # After that time the worker itself says why it cannot move.
        begun = t.begun(change.source) or facts.now >= _start_by(plan, change, rules)
        if begun and awaited(change, facts.nodes) is None and facts.now >= _retry_at(plan, change, rules):
            now.append(change)
    named, share, now = _of_one_share(t, plan, now, rules)
    if not now:
        return None
    living = seats(t)
    part = now[: fitting(t, now, living)]
    bound = None if named else bound_of([c.task for c in part], rules.at_once, sizes or {})
    why = plan.why_of([c.task for c in part])
    try:
        record = plan_move(
            t.spec, Epoch(t.latest + 1), why, part, living, busy=t.moving, share=share, bound=bound
        )
    except Refused:
        return None
    soon = together(t.spec, [c.task for c in part], sizes or {})
    return replace(record, began=facts.now, later=len(now) - len(part), soon=soon)


def _lives(t: TopologyFacts, facts: Facts, worker: WorkerId) -> bool:
    return t.seat(worker) is not None and node_of(worker) in facts.nodes


def pausing_elsewhere(t: TopologyFacts) -> Counter[ComponentId]:
    """How many tasks of each component the moves under way may pause at a time: of each move those of its largest batch."""
    result: Counter[ComponentId] = Counter()
    for move in t.moves.values():
        batches = Counter((task.component, task.batch) for task in move.record.tasks if not task.outcome)
        largest: dict[str, int] = {}
        for (component, _), count in batches.items():
            largest[component] = max(count, largest.get(component, 0))
        for component, count in largest.items():
            result[ComponentId(component)] += count
    return result


def _of_one_share(
    t: TopologyFacts, plan: Plan, changes: Sequence[Change], rules: Rules
) -> tuple[float, float, list[Change]]:
    """Each share that was asked for has a move of its own: the first of which some can begin, how much of a component may be paused then,
    and those that begin."""
    asked, pausing = plan.asks(), pausing_elsewhere(t)
    by_share: dict[float, list[Change]] = {}
    for change in changes:
        by_share.setdefault(asked.get(change.task, plan.newest).share, []).append(change)
    for named, alike in by_share.items():
        few = len(alike) + sum(pausing.values()) <= rules.at_once
        fit, share = _beside(t, alike, named or rules.share or (1.0 if few else HALF), pausing)
        if fit:
            return named, share, fit
    return 0.0, 0.0, []


def _beside(
    t: TopologyFacts, changes: Sequence[Change], share: float, pausing: Mapping[ComponentId, int]
) -> tuple[list[Change], float]:
    """Those of which some may be paused beside what other moves may pause of their components, and the share of these that may be."""
    if not pausing:
        return list(changes), share
    fit, left = [], share
    for change in changes:
        component = t.spec.component_of(change.task)
        if not (elsewhere := pausing.get(component.id, 0)):
            fit.append(change)
        elif (room := most_of(component, share) - elsewhere) > 0:
            fit.append(change)
            left = min(left, (room + 0.5) / component.tasks)
    return fit, left


def _divided(t: TopologyFacts) -> Epoch | None:
    """The move that others wait for, as there was no room for their tasks in it."""
    return next((e for e, m in t.moves.items() if m.record.later and not m.record.settled), None)


def _moves_by_component(t: TopologyFacts) -> dict[str, Epoch]:
    """Of each component the first move under way that may pause tasks of it."""
    moves = sorted(t.moves.items(), reverse=True)
    return {task.component: e for e, m in moves for task in m.record.tasks if not task.outcome}


def seats(t: TopologyFacts) -> dict[WorkerId, Seat]:
    """The workers that live and that the assignment names."""
    found: dict[WorkerId, Incarnation] = {w: i for w in t.workers if (i := t.seat(w)) is not None}
    return {w: Seat(i, node_of(w)) for w, i in found.items()}


def _retry_at(plan: Plan, change: Change, rules: Rules) -> float:
    failure = plan.failure(change.task)
    return 0.0 if failure is None else failure.at + rules.retry * max(1, failure.times)


def deadlines(t: TopologyFacts, facts: Facts, rules: Rules) -> Iterator[float]:
    """When `step` or `begin` may say something else although nothing else has changed: seconds since 1970."""
    if t.plan is None or t.plan.halted or t.assignment is None:
        return
    for change in _changes(t, t.plan, t.assignment.place_of(), rules):
        yield _retry_at(t.plan, change, rules)
        if t.seat(change.target) is None or not t.begun(change.source):
            yield _start_by(t.plan, change, rules)
        if awaited(change, facts.nodes) is not None:
            yield give_up_at(t.plan, change.task, rules.store_timeout)


def failed(t: TopologyFacts, rules: Rules) -> dict[TaskId, str]:
    """The tasks that are not where they shall be, and stay where they are until somebody asks again, with the reason."""
    if t.plan is None or t.assignment is None:
        return {}
    changes = changes_between(t.assignment.place_of(), t.plan.assignment.place_of())
    staying = {c.task for c in changes} - t.moving
    if t.plan.halted:
        return dict.fromkeys(sorted(staying), t.plan.halted)
    return {f.task: f.reason for f in t.plan.failures if f.times >= rules.tries and f.task in staying}


def stuck(t: TopologyFacts, rules: Rules) -> dict[TaskId, str]:
    """The same, when nothing else is under way or to come."""
    if t.plan is None or t.assignment is None or t.moving:
        return {}
    given_up = failed(t, rules)
    left = {c.task for c in changes_between(t.assignment.place_of(), t.plan.assignment.place_of())}
    return given_up if left <= given_up.keys() else {}


def waits(t: TopologyFacts, facts: Facts, rules: Rules, tasks: Collection[TaskId] | None = None) -> list[str]:
    """Sentences that say why tasks, these or all, are not where they shall be, as far as no move says so."""
    if t.plan is None or t.assignment is None:
        return []
    places, divided, beside = t.assignment.place_of(), _divided(t), _moves_by_component(t)
    result = [
        f"task {x.task} waits for worker {x.worker} to let go of it"
        for x in t.plan.left
        if not _has_let_go(t, x) and (tasks is None or x.task in tasks)
    ]
    for change in changes_between(places, t.plan.assignment.place_of()):
        if change.task in t.moving or (tasks is not None and change.task not in tasks):
            continue
        failure, node = t.plan.failure(change.task), awaited(change, facts.nodes)
        stays = f"task {change.task} stays in worker {change.source}"
        if t.plan.halted:
            result.append(f"{stays}: {t.plan.halted}; it is tried again when somebody asks for it")
        elif failure is not None and failure.times >= rules.tries:
            result.append(
                f"{stays}: {failure.reason.rstrip('.')}; it is tried again when somebody asks for it"
            )
        elif node is not None:
            result.append(
                f"task {change.task} waits for the state store of node {node}, which is being started again"
            )
        elif failure is not None:
            result.append(f"{stays}, and is tried again: {failure.reason}")
        elif divided is not None:
            result.append(
                f"task {change.task} waits for the end of move {divided}, which goes before its own"
            )
        elif t.seat(change.target) is None:
            result.append(f"task {change.task} waits for worker {change.target} to start")
        elif not t.begun(change.source):
            result.append(f"task {change.task} waits for worker {change.source} to begin with it")
        elif (before := beside.get(t.spec.component_of(change.task).id)) is not None:
            result.append(
                f"task {change.task} waits for move {before}, beside which no more of its component may be paused"
            )
        else:
            result.append(f"task {change.task} waits for its move to begin")
    more = len(result) - _SENTENCES
    return result if more <= 0 else [*result[:_SENTENCES], f"{more} more tasks wait to be moved"]
