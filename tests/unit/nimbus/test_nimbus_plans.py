"""What is written while tasks are on their way: for any assignment, any plan and any order in which they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.migration.record import MoveRecord, Outcome, TaskMove
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.codec import decode, encode
from elastic.model.ids import (
    ComponentId,
    Epoch,
    Incarnation,
    NodeId,
    TaskId,
    TopologyName,
    WorkerId,
    worker_id,
)
from elastic.nimbus.observing import plans
from elastic.nimbus.observing.plans import Plan, after_outcomes, interim, relocated

T = TopologyName("t")
TRIES = 3
WORKERS = [worker_id(T, NodeId(f"n{i}"), 0) for i in range(4)]
SLOTS = {w: WorkerSlot(NodeId(f"n{i}"), 0) for i, w in enumerate(WORKERS)}
SIZES = (1, 5, 8)
TASKS = sum(SIZES)
Interim = Callable[..., Assignment]
search = settings(max_examples=100)


@st.composite
def assignments(draw: st.DrawFn, epoch: int = 1, waiting: bool = True) -> Assignment:
    """Each component in random ranges in random workers; some may wait for a slot."""
    placed, unassigned, first = [], [], 1
    for index, size in enumerate(SIZES):
        cuts = sorted(draw(st.sets(st.integers(1, size - 1)))) if size > 1 else []
        for a, b in zip([0, *cuts], [*cuts, size], strict=True):
            executor = ExecutorId(ComponentId("abc"[index]), TaskId(first + a), TaskId(first + b - 1))
            worker = draw(st.sampled_from([*WORKERS, None] if waiting else WORKERS))
            if worker is None:
                unassigned.append(executor)
            else:
                placed.append((executor, worker))
        first += size
    named = {w: SLOTS[w] for w in sorted({w for _, w in placed})}
    return Assignment(T, Epoch(epoch), named, tuple(placed), tuple(unassigned))


def check(before: Assignment, after: Assignment, places: dict[TaskId, WorkerId], held: set[WorkerId]) -> None:
    executors = [e for e, _ in after.executors] + list(after.unassigned)
    assert Counter(t for e in executors for t in e.tasks()) == Counter(range(1, TASKS + 1)), "lost or doubled"
    assert after.place_of() == places, "a task changed its worker without a move"
    of = {t: e.component for e in (*dict(before.executors), *before.unassigned) for t in e.tasks()}
    assert all(of[t] == e.component for e in executors for t in e.tasks())
    assert held <= set(after.workers), "a worker that takes part in a move is not named"
    assert after.epoch == before.epoch + (after is not before)


def journey(write: Interim, start: Assignment, desired: Assignment, order: list[list[int]]) -> None:
    """Tasks come to their places in groups, in some order; a worker is held until the next group has come."""
    wanted, now = desired.place_of(), start
    places = {**start.place_of()}
    # Who has no place yet is placed at once; who shall have none leaves at once.
    for task in map(TaskId, range(1, TASKS + 1)):
        if task not in places and task in wanted:
            places[task] = wanted[task]
        elif task in places and task not in wanted:
            del places[task]
    held: set[WorkerId] = set()
    for group in [[], *order]:
        held = {places[TaskId(t)] for t in group if t in places} | {
            wanted[TaskId(t)] for t in group if t in wanted
        }
        places.update({TaskId(t): wanted[TaskId(t)] for t in group if t in wanted})
        new = write(now, desired, dict(places), {w: SLOTS[w] for w in held})
        check(now, new, places, held)
        assert {w for _, w in desired.executors} <= set(new.workers), "who gets tasks is not named"
        assert write(new, desired, dict(places), {w: SLOTS[w] for w in held}) is new, (
            "not settled after one step"
        )
        now = new
    now = write(now, desired, dict(places), {})
    assert set(now.executors) == set(desired.executors) and set(now.unassigned) == set(desired.unassigned)
    assert dict(now.workers) == dict(desired.workers), "workers without tasks stay named"


orders = st.permutations(range(1, TASKS + 1)).flatmap(
    lambda tasks: st.sets(st.integers(1, TASKS - 1), max_size=4).map(
        lambda cuts: [
            list(tasks[a:b]) for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), TASKS], strict=True)
        ]
    )
)


@search
@given(assignments(), assignments(), orders)
def test_every_order_leads_to_the_plan_and_nobody_moves_without_a_move(
    start: Assignment, desired: Assignment, order: list[list[int]]
) -> None:
    journey(interim, start, desired, order)


def _at_once(present: Assignment, desired: Assignment, places: object, held: object) -> Assignment:
    """A planted fault: everybody goes where they shall be."""
    return interim(present, desired, desired.place_of(), held)  # type: ignore[arg-type]


def _forgets_who_waits(present: Assignment, desired: Assignment, places: dict, held: object) -> Assignment:  # type: ignore[type-arg]
    """A planted fault: only those that have come are in executors."""
    there = {t: w for t, w in places.items() if desired.place_of().get(t) == w}
    return interim(present, desired, there, held)  # type: ignore[arg-type]


def _forgets_who_is_held(
    present: Assignment, desired: Assignment, places: object, held: object
) -> Assignment:
    """A planted fault: a worker goes with its last task."""
    return interim(present, desired, places, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", [_at_once, _forgets_who_waits, _forgets_who_is_held])
def test_the_rules_find_planted_faults(fault: Interim) -> None:
    look = settings(search, database=None, phases=[p for p in settings().phases if p.name == "generate"])
    with pytest.raises(AssertionError):
        look(given(assignments(), assignments(), orders)(lambda a, b, o: journey(fault, a, b, o)))()


@search
@given(
    assignments(waiting=False),
    st.sets(st.integers(1, TASKS)),
    st.sampled_from(WORKERS),
    st.lists(st.integers(1, TASKS), min_size=3, max_size=3),
)
def test_relocating_moves_what_is_named_and_nothing_else(
    base: Assignment, tasks: set[int], worker: WorkerId, numbers: list[int]
) -> None:
    wanted = dict(zip(map(ComponentId, "abc"), numbers, strict=True))
    new = relocated(base, map(TaskId, tasks), worker, SLOTS[worker], wanted)
    expected = {t: (worker if t in tasks else w) for t, w in base.place_of().items()}
    assert new.place_of() == expected and set(new.workers) == set(expected.values())
    whole = [e for e, _ in base.executors if not set(e.tasks()) & tasks or set(e.tasks()) <= tasks]
    assert all(any(set(e.tasks()) <= set(n.tasks()) for n, _ in new.executors) for e in whole), (
        "an executor was divided that did not have to be"
    )
    gone = [e for e in whole if e not in dict(new.executors)]
    assert {w for e, w in new.executors for g in gone if g.first in e.tasks()} <= {worker}
    for component, asked in wanted.items():
        before, after = ([e for e, _ in a.executors if e.component == component] for a in (base, new))
        assert len(after) >= min(asked, len(before)), "their number is what somebody has asked for"
        there = sorted(
            (e.first, e.last) for e, w in new.executors if w == worker and e.component == component
        )
        beside = [a for (_, a), (b, _) in pairwise(there) if a + 1 == b and {a, b} & tasks]
        assert not beside or len(after) <= asked, "there are more, and neighbours that could be one"


def test_tasks_that_go_one_by_one_have_no_thread_each() -> None:
    here, there = WORKERS[:2]
    both = (
        (ExecutorId(ComponentId("b"), TaskId(1), TaskId(TASKS // 2)), here),
        (ExecutorId(ComponentId("b"), TaskId(TASKS // 2 + 1), TaskId(TASKS)), here),
    )
    base = Assignment(T, Epoch(1), {here: SLOTS[here]}, both)
    wanted = {ComponentId("b"): 2}
    after = base
    for worker in (there, here):
        for task in range(1, TASKS + 1):
            after = relocated(after, [TaskId(task)], worker, SLOTS[worker], wanted)
            assert len(after.executors) <= 3
        assert len(after.executors) == 2
    whole = relocated(base, map(TaskId, range(1, TASKS + 1)), there, SLOTS[there], wanted)
    assert [e for e, _ in whole.executors] == [e for e, _ in both]


joined = plans._joined


@pytest.mark.parametrize(
    "fault",
    [
        lambda executors, *_: list(executors),
        lambda executors, worker, going, _: joined(executors, worker, going, {"b": TASKS}),
    ],
)
def test_too_many_and_too_few_executors_would_be_found(
    fault: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "_joined", fault)
    with pytest.raises(AssertionError):
        test_tasks_that_go_one_by_one_have_no_thread_each()


def record(*outcomes: tuple[int, Outcome]) -> MoveRecord:
    def part(task: int, outcome: Outcome) -> TaskMove:
        life = Incarnation(f"{WORKERS[0]}#{task}")
        reason = "no" if outcome is Outcome.ROLLED_BACK else ""
        source = Incarnation(f"{WORKERS[1]}#{task}") if outcome is Outcome.COMMITTED else life
        return TaskMove(
            TaskId(task), "b", source, life, NodeId("n0"), NodeId("n1"), outcome=outcome, reason=reason
        )

    return MoveRecord(T, Epoch(1), "why", tuple(part(t, o) for t, o in outcomes))


def wanted_in(worker: WorkerId) -> Plan:
    """A plan that wants tasks 1 to 4 there."""
    executors = ((ExecutorId(ComponentId("b"), TaskId(1), TaskId(4)), worker),)
    return Plan(Assignment(T, Epoch(1), {worker: SLOTS[worker]}, executors), "why", 1.0)


def test_what_failed_on_its_way_to_where_it_is_not_wanted_any_more_is_no_failure() -> None:
    """Somebody has asked for another place since: it has all its attempts to go there."""
    before, after = record((2, Outcome.OPEN)), record((2, Outcome.ROLLED_BACK))
    living = [Incarnation(f"{WORKERS[0]}#2")]
    assert after_outcomes(wanted_in(WORKERS[0]), before, after, living, 5.0, TRIES).failures
    assert not after_outcomes(wanted_in(WORKERS[1]), before, after, living, 5.0, TRIES).failures


def test_what_has_come_back_has_failed_to_go_where_it_was_meant_to() -> None:
    """Nowhere else: somebody may have asked for another place since, and the record has its own worker as the last one it went to."""
    before, after = record((2, Outcome.OPEN)), record((2, Outcome.ROLLED_BACK))
    back = replace(after.tasks[0], outcome=Outcome.COMMITTED, meant=WORKERS[1], stores=(NodeId("n5"),))
    came = replace(after, tasks=(back,))
    living = [back.source]
    asked: list[Any] = []

    def away(task: int, nodes: Any) -> str:
        asked.append(set(nodes))
        return ""

    assert after_outcomes(wanted_in(WORKERS[1]), before, came, living, 5.0, TRIES, away).failures
    assert asked == [{"n0", "n1", "n5"}], "the store where it was to go may have been away"
    assert not after_outcomes(wanted_in(WORKERS[2]), before, came, living, 5.0, TRIES).failures
    assert not after_outcomes(wanted_in(WORKERS[1]), before, came, (), 5.0, TRIES).failures


def test_what_can_never_be_otherwise_is_given_up_at_once() -> None:
    before, after = record((2, Outcome.OPEN)), record((2, Outcome.ROLLED_BACK))
    final = replace(after, tasks=(replace(after.tasks[0], final=True),))
    living = [Incarnation(f"{WORKERS[0]}#2")]
    plan = wanted_in(WORKERS[0])
    away = {"trouble": lambda task, nodes: "a store was away"}
    for made, extra, times in ((after, {}, 1), (after, away, 0), (final, {}, TRIES), (final, away, TRIES)):
        failure = after_outcomes(plan, before, made, living, 5.0, TRIES, **extra).failure(2)
        assert failure is not None
        assert failure.times == times


def test_failures_are_counted_once_and_only_those_of_moves() -> None:
    plan = wanted_in(WORKERS[0])
    o, back, done = Outcome.OPEN, Outcome.ROLLED_BACK, Outcome.COMMITTED
    living = [Incarnation(f"{WORKERS[0]}#{n}") for n in (2, 4)]
    once = after_outcomes(
        plan, record((2, o), (3, o), (4, o)), record((2, back), (3, back), (4, o)), living, 5.0, TRIES
    )
    assert [(f.task, f.times, f.at, f.reason) for f in once.failures] == [(2, 1, 5.0, "no")], (
        "3's worker has died"
    )
    assert after_outcomes(once, record((2, back)), record((2, back)), living, 6.0, TRIES) is once
    twice = after_outcomes(once, record((2, o)), record((2, back)), living, 7.0, TRIES)
    assert twice.failure(2).times == 2  # type: ignore[union-attr]
    assert after_outcomes(twice, record((2, o)), record((2, done)), living, 8.0, TRIES) == plan
    assert decode(encode(twice), Plan) == twice
