"""The tables are the roles: every state with every event, what is illegal raises and changes nothing, and every arrow is real."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
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
from elastic.migration.table import EmitterState, NewState, NotifierState, OldState, ReceiverState, Table
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
            ev.PauseTask(2, 1, frozenset({1, 5}), True),
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
            ev.TakenBack(2, 1),
        ),
    ),
    "mover, new side": (
        lambda: MoverNew(2, 1, 1),
        (
            ev.PrepareNew(2, 1, 1),
            ev.StillHere(2, 1, 1),
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


def names(role: Role) -> list[str]:
    return sorted({n for kind in type(role).__mro__ for n in getattr(kind, "__slots__", ())})


def inside(role: Role, *without: str) -> str:
    values = [(n, getattr(role, n)) for n in names(role) if n not in without]
    return repr([(n, sorted(v) if isinstance(v, set | frozenset) else v) for n, v in values])


def clone(role: Role) -> Role:
    """A copy: what is in its containers never changes."""
    made: Role = object.__new__(type(role))
    for name in names(role):
        value = getattr(role, name)
        setattr(made, name, copy.copy(value) if isinstance(value, dict | set | list | deque) else value)
    return made


def far(role: Role) -> bool:
    """Numbers only grow from here on, and say nothing new."""
    if isinstance(role, Emitter):
        return role.sent > 3
    return isinstance(role, Notifier) and role.record.tasks[0].attempt > 2


def explore(of: Table) -> Explored:
    """Every configuration that the samples lead to, until numbers grow."""
    return _explore(of.role)


@cache
def _explore(name: str) -> Explored:
    make, samples = SAMPLES[name]
    found = Explored({}, set())
    seen: set[str] = set()
    waiting: deque[Role] = deque()

    def reached(role: Role) -> None:
        configuration = inside(role, "version", "_says", "_started")  # timers that were begun are begun once
        if configuration not in seen:
            seen.add(configuration)
            found.roles.setdefault(role.state, []).append(role)
            if not far(role):
                waiting.append(role)

    reached(make())
    while waiting:
        role = waiting.popleft()
        for event in samples:
            after = clone(role)
            try:
                after.handle(event)
            except ProtocolViolation:
                continue
            found.arrows.add((role.state, type(event), after.state))
            reached(after)
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
                after = clone(role)
                if allowed is None:
                    before = inside(after)
                    with pytest.raises(ProtocolViolation):
                        after.handle(event)
                    assert inside(after) == before, (
                        f"{state}, {type(event).__name__}: refused, and changed something"
                    )


_E, _R, _O, _N, _M = EmitterState, ReceiverState, OldState, NewState, NotifierState
_COME = (_N.INSTALLING, _N.MARKING, _N.RUNNING, _N.FAILED)
_BUSY = (_M.WRITING, _M.CLEANING, _M.REMOVING, _M.ENDED)
SILENT: dict[type, tuple[tuple[tuple[StrEnum, ...], type, tuple[str, ...]], ...]] = {
    Emitter: (
        ((_E.FLOWING, _E.HOLDING), ev.Room, ()),
        (tuple(_E), ev.Detach, ("state", "where")),
    ),
    Receiver: (((_R.UNKNOWN,), ev.FenceArrived, ("_fence",)),),
    MoverOld: (
        ((_O.STOPPING,), ev.Fenced, ("missing",)),
        ((_O.STOPPING,), ev.EmitterGone, ("missing",)),
        ((_O.SAVED, _O.FAILED), ev.SaveDone, ()),
        ((_O.SAVED, _O.FAILED), ev.OldFailed, ()),
        ((_O.FAILED,), ev.Stopped, ()),
        ((_O.FAILED,), ev.Delivered, ("_delivered",)),
    ),
    MoverNew: (
        ((_N.PREPARING, _N.FETCHING, *_COME), ev.SaveHeard, ()),
        ((_N.PREPARING, _N.FETCHING, *_COME), ev.SavedSeen, ("_nodes", "_size")),
        (_COME, ev.AheadSeen, ()),
        (_COME, ev.AheadFetched, ()),
        *(((_N.FAILED,), e, ()) for e in (ev.NewFailed, ev.Prepared, ev.Fetched, ev.Installed)),
    ),
    Notifier: (
        (_BUSY, ev.Observed, ("_open",)),
        ((_M.WATCHING,), ev.AbortAsked, ("_abort", "record", "version")),
        ((*_BUSY, _M.CLOSING), ev.AbortAsked, ("_abort",)),
        (tuple(_M), ev.TimerFired, ("_expired",)),
    ),
}
"""By role: in which states which event asks for nothing, and what is remembered of it alone."""


@pytest.mark.parametrize("of", table.ALL, ids=lambda t: t.role)
def test_what_comes_too_late_or_too_early_does_nothing(of: Table) -> None:
    found, (make, samples) = explore(of), SAMPLES[of.role]
    for states, kind, remembered in SILENT[type(make())]:
        for state in states:
            events = [e for e in samples if type(e) is kind]
            assert (state, kind) in of.rows and events and found.roles[state]
            for role in found.roles[state]:
                before = inside(role, *remembered)
                for event in events:
                    after = clone(role)
                    said = after.handle(event)
                    assert said == (), f"{state}, {event}: {said}"
                    assert inside(after, *remembered) == before, f"{state}, {event}"


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
            assert clone(role).handle(ev.Settled(2, 1, True)) == (ContinueTask(2, 1),)
    assert ways


@pytest.mark.parametrize(
    ("why", "before", "life", "first"),
    [
        ("nothing is known of the source", (), 1, 1),
        ("something early waits", (ev.Opened(1, 2, 1, 0), ev.Arrived(1, 2, 1, 2, 1, "early")), 1, 1),
        ("it is of a life that has ended", (ev.Opened(1, 2, 2, 0),), 1, 1),
        ("it is of a life that nobody has told of", (ev.Opened(1, 2, 1, 0),), 2, 1),
        ("it was taken before", (ev.Opened(1, 2, 1, 3),), 1, 3),
        ("it is not next", (ev.Opened(1, 2, 1, 3),), 1, 5),
        ("a fence waits for it", (ev.Opened(1, 2, 1, 0), ev.FenceArrived(1, 2, 1, 1, 1)), 1, 1),
    ],
)
def test_the_shortcut_of_the_data_path_leaves_everything_unusual_to_the_role(
    why: str, before: tuple[Any, ...], life: int, first: int
) -> None:
    receiver = Receiver(1, 2)
    for event in before:
        receiver.handle(event)
    as_before = receiver.export()
    assert not receiver.takes(life, first, 1), why
    assert receiver.export() == as_before


def test_the_shortcut_takes_what_is_next() -> None:
    receiver = Receiver(1, 2)
    receiver.handle(ev.Opened(1, 2, 1, 3))
    assert receiver.takes(1, 4, 5) and receiver.seen == 8
    assert receiver.takes(1, 9, 1) and not receiver.takes(1, 9, 1)


def test_the_diagrams_in_the_docs_are_those_of_the_tables() -> None:
    text = (Path(__file__).parents[1] / "docs" / "migration.md").read_text()
    assert table.diagrams() in text, (
        "write the output of `python -m elastic.migration.table` into docs/migration.md"
    )
