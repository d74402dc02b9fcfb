"""The tables are the roles: every state with every event, what is illegal raises and changes nothing, and every arrow is real."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from elastic.errors import ProtocolViolation
from elastic.migration import events as ev
from elastic.migration import table
from elastic.migration.actions import ContinueTask
from elastic.migration.emitter import Emitter
from elastic.migration.mover_new import MoverNew
from elastic.migration.mover_old import MoverOld
from elastic.migration.notifier import Notifier
from elastic.migration.receiver import Receiver
from elastic.migration.record import FailedMark, Marked, Marks, MoveRecord, Outcome, SavedMark, TaskMove
from elastic.migration.role import Role
from elastic.migration.snapshot import TaskLinks
from elastic.migration.table import Table
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId

A, B, C = (Incarnation(f"t@n{n}/0#1") for n in range(3))
NODES = (NodeId("n0"), NodeId("n1"))
PART = TaskMove(TaskId(2), "c", A, B, *NODES)
RECORD = MoveRecord(TopologyName("t"), Epoch(1), "why", (PART,))
ABORTED = replace(RECORD, abort="why")
SETTLED = replace(RECORD, tasks=(replace(PART, outcome=Outcome.ROLLED_BACK),), paused=1)


def observed(*living: Incarnation, closed: bool = False, **a: Any) -> ev.Observed:
    b = a.pop("b", {})
    marks = {
        A: Marked(Marks(A, closed=closed, **a), 0),
        B: Marked(Marks(B, closed=closed, **b), 0),
        C: Marked(Marks(C, closed=closed), 0),
    }
    return ev.Observed(marks, tuple(ev.Host(WorkerId(i[:-2]), i, NodeId("n")) for i in living))


SAVED = {2: SavedMark(NODES)}
SAMPLES: dict[str, tuple[Callable[[], Role], tuple[Any, ...]]] = {
    "emitter": (
        lambda: Emitter(1, 2, 1, 2),
        (
            ev.Emitted(1, 2, "x", 1),
            ev.Room(1, 2),
            ev.Pause(1, 2, 1, A),
            ev.Detach(1, 2),
            ev.Resume(1, 2, A),
            ev.Resume(1, 2, B),
        ),
    ),
    "receiver": (
        lambda: Receiver(1, 2),
        (
            *(ev.Opened(1, 2, life, 0) for life in (1, 2)),
            *(ev.Arrived(1, 2, life, first, 1, "x") for life in (1, 2) for first in (1, 2)),
            ev.FenceArrived(1, 2, 1, 1, 2),
        ),
    ),
    "mover, old side": (
        lambda: MoverOld(2, 1),
        (
            ev.PrepareOld(2, 1, NODES),
            ev.StoreAsked(2, 1),
            ev.StoreAsked(2, 1, True),
            ev.PauseTask(2, 1, frozenset({1, 5})),
            ev.Stopped(2, 1),
            ev.Fenced(2, 1, 1),
            ev.EmitterGone(2, 1, 1),
            ev.Fenced(2, 1, 5),
            ev.EmitterGone(2, 1, 5),
            ev.Delivered(2, 1),
            ev.SaveDone(2, 1, NODES, 1),
            ev.OldFailed(2, 1, "why"),
            ev.SaveAccepted(2, 1),
            ev.Settled(2, 1, True),
            ev.Settled(2, 1, False),
        ),
    ),
    "mover, new side": (
        lambda: MoverNew(2, 1, 1),
        (
            ev.PrepareNew(2, 1, 1),
            ev.Prepared(2, 1, 1),
            ev.AheadSeen(2, 1, 1, NODES),
            ev.AheadFetched(2, 1, 1),
            ev.SaveHeard(2, 1, 9, NODES),
            ev.SavedSeen(2, 1, 1, NODES),
            ev.Fetched(2, 1, 1, TaskLinks(1), None),
            ev.Installed(2, 1, 1),
            ev.NewFailed(2, 1, 1, "why"),
            ev.RestoreAccepted(2, 1, 1),
            ev.Settled(2, 1, True),
            ev.Settled(2, 1, False),
        ),
    ),
    "notifier": (
        lambda: Notifier(RECORD, 0),
        (
            observed(A, B),
            observed(A, B, asked=(2,), b={"prepared": {2: 1}}),
            observed(A, B, asked=(2,), ahead=(2,), b={"prepared": {2: 1}}),
            observed(A, B, saved=SAVED, b={"restored": {2: 1}}),
            observed(A, C, saved=SAVED),
            observed(A, B, saved=SAVED, b={"failed": {2: FailedMark(1, "gone", True)}}),
            observed(B),
            observed(A, B, closed=True),
            ev.AbortAsked(ABORTED, 1),
            ev.TimerFired("prepare", 0),
            ev.RecordWritten(1),
            ev.RecordConflict(RECORD, 1),
            ev.RecordConflict(SETTLED, 2),
            ev.StoresCleaned(),
            ev.RecordRemoved(),
        ),
    ),
}


@dataclass
class Explored:
    """Attributes:
    roles: An example of the role in each state, several per state.
    arrows: (state, event, state after) that were taken.
    """

    roles: dict[str, list[Role]]
    arrows: set[tuple[str, type, str]]


def inside(role: Role) -> str:
    names = {n for kind in type(role).__mro__ for n in getattr(kind, "__slots__", ())}
    return repr([(n, getattr(role, n)) for n in sorted(names)])


def explore(of: Table) -> Explored:
    """Every configuration that the samples lead to, as far as there are not too many."""
    make, samples = SAMPLES[of.role]
    found = Explored({}, set())
    seen: set[str] = set()
    waiting = deque([make()])
    while waiting and len(seen) < 1500:
        role = waiting.popleft()
        if inside(role) in seen:
            continue
        seen.add(inside(role))
        found.roles.setdefault(role.state, []).append(role)
        for event in samples:
            after = copy.deepcopy(role)
            try:
                after.handle(event)
            except ProtocolViolation:
                continue
            found.arrows.add((role.state, type(event), after.state))
            waiting.append(after)
    return found


EVERY_EVENT = tuple({type(e): e for _, samples in SAMPLES.values() for e in samples}.values())


@pytest.mark.parametrize("of", table.ALL, ids=lambda t: t.role)
def test_every_state_with_every_event(of: Table) -> None:
    found = explore(of)
    assert set(found.roles) == set(of.states), "a state that nothing leads to"
    for state, roles in found.roles.items():
        for event in EVERY_EVENT:
            allowed = of.rows.get((of.states[[str(s) for s in of.states].index(state)], type(event)))
            for role in roles[:40]:
                after = copy.deepcopy(role)
                if allowed is None:
                    before = inside(after)
                    with pytest.raises(ProtocolViolation):
                        after.handle(event)
                    assert inside(after) == before, (
                        f"{state}, {type(event).__name__}: refused, and changed something"
                    )


@pytest.mark.parametrize("of", table.ALL, ids=lambda t: t.role)
def test_every_arrow_of_the_table_is_taken(of: Table) -> None:
    taken = explore(of).arrows
    drawn = {(str(state), event, str(after)) for (state, event), row in of.rows.items() for after in row}
    assert {(str(a), e, str(b)) for a, e, b in taken} == drawn


@pytest.mark.parametrize("of", table.ALL, ids=lambda t: t.role)
def test_each_event_has_a_door(of: Table) -> None:
    role = SAMPLES[of.role][0]()
    assert set(role.doors) == set(of.events)
    assert all(hasattr(role, name) for name in role.doors.values())


def test_a_task_that_stays_goes_on_however_far_it_has_come() -> None:
    """Also one that was not stopped: it may be being copied, and only this says that nobody wants the copy."""
    ways = 0
    for state, roles in explore(table.MOVER_OLD).roles.items():
        for role in roles if (state, ev.Settled) in table.MOVER_OLD.rows and state != "saved" else ():
            ways += 1
            assert copy.deepcopy(role).handle(ev.Settled(2, 1, True)) == (ContinueTask(2, 1),)
    assert ways


def test_the_diagrams_in_the_docs_are_those_of_the_tables() -> None:
    text = (Path(__file__).parents[1] / "docs" / "migration.md").read_text()
    assert table.diagrams() in text, (
        "write the output of `python -m elastic.migration.table` into docs/migration.md"
    )
