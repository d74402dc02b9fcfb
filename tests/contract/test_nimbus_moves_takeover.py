"""Moves when the Nimbus that runs them is gone, or does not know what has become of what it wrote."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from coordination_harness import PATIENCE, Seen
from move_actors import STEPS
from move_harness import COUNT, WC, A, B, Moving, on, places, takes_over
from nimbus_harness import spec

from elastic.coordination import paths
from elastic.coordination.base import Delete, Operation, SessionState, Versioned
from elastic.errors import Conflict, NotConnected, Unavailable
from elastic.migration.record import Phase
from elastic.migration.table import NotifierState
from elastic.model.ids import Epoch
from elastic.model.views import PLANNED
from elastic.nimbus.deciding.decisions import Action, Begin
from elastic.nimbus.moves import move_stands
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.observing.facts import Facts
from elastic.nimbus.observing.followed import FollowedValue
from elastic.nimbus.observing.followed_moves import FollowedMoves
from elastic.nimbus.observing.mirror import Mirror
from elastic.nimbus.reign import Reign


@pytest.mark.parametrize("step", STEPS)
def test_another_nimbus_goes_on_wherever_a_move_is(
    moving: Moving, step: str, background: ThreadPoolExecutor
) -> None:
    first = moving.started({"a": 1, "b": 1})
    second = moving.nimbus("h:2", wait=False)
    moving.actors.hold(step)
    asked = background.submit(first.move, "wc", "count", "b", wait=3 * PATIENCE)
    reached = {
        "asked": Phase.PREPARING,
        "prepared": Phase.PREPARING,
        "saved": Phase.PAUSED,
        "restored": Phase.SAVED,
        "closed": Phase.COMMITTED,
    }
    moving.phase(first, reached[step])
    takes_over(moving, second)
    with pytest.raises(Unavailable, match="stopped leading"):
        asked.result(PATIENCE)
    moving.actors.let()
    moving.quiet(second)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)
    if step != "closed":
        (move,) = moving.moves(second)
        assert {t.phase for t in move.tasks} == {"committed"} and len(second.moves()) == 1


def test_another_nimbus_knows_what_has_ended_before(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    first = moving.started({"a": 1, "b": 1})
    second = moving.nimbus("h:2", wait=False)
    first.move("wc", "count", "b", wait=PATIENCE)
    before = moving.moves(first)
    rules, answers = second._on_ruling, []

    def ruling() -> None:
        answers.append(second.moves())
        rules()

    monkeypatch.setattr(second, "_on_ruling", ruling)
    takes_over(moving, second)
    moving.quiet(second)
    assert answers == [before] == [second.moves()], "from its first answer on"
    second.move("wc", "count", "a", wait=PATIENCE)
    assert [m.epoch for m in moving.moves(second)] == [2, 1]


def test_a_move_that_stands_stops_no_other_topology(moving: Moving) -> None:
    """A Nimbus died within it, and nobody who takes part goes on: others are submitted, placed and moved all the same."""
    first = moving.started({"a": 2, "b": 2})
    second = moving.nimbus("h:2", wait=False)
    moving.actors.only = WC
    moving.actors.hold("saved")
    first.move("wc", "count", "b", wait=0)
    moving.phase(first, Phase.PAUSED)
    takes_over(moving, second)
    (stands,) = moving.facts(second).moves.values()
    moving.cluster.started(second, spec("other", workers=1))
    (home,) = on(second.describe("other").assignment, "count")
    away = "b" if home == "a" else "a"
    moved = second.move("other", "count", away, wait=PATIENCE)
    assert on(moved, "count") == {away}
    moving.quiet(second, "other")
    spread = second.rebalance("other", workers=2, wait=PATIENCE)
    assert len({w for _, w in spread.executors}) == 2
    still = moving.facts(second).moves[stands.record.epoch]
    assert (still.record, {t for t, w in places(moving).items() if w == B}) == (stands.record, set())
    moving.actors.let()
    moving.quiet(second)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)


def test_who_does_not_close_a_move_is_told_of(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_stands, "AFTER", 0.05)
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("closed")
    nimbus.move("wc", "count", "b", wait=0)
    moving.cluster.event(nimbus, "move-stands")
    told = next(e for _, e in nimbus.events.since(0) if e.kind == "move-stands")
    assert told.details["for"] == f"{A}, {B} to close it" and told.details["tasks"] == "6,7,8,9"
    assert [w for w in nimbus.describe("wc").waits if "to close it" in w] == [
        f"move 1: it waits for {A}, {B} to close it"
    ]
    moving.actors.let()
    moving.quiet(nimbus)


def test_another_nimbus_begins_what_was_only_planned(moving: Moving) -> None:
    first = moving.started({"a": 1, "b": 1})
    second = moving.nimbus("h:2", wait=False)
    moving.cluster.nodes["b"].down.add(B)
    first.move("wc", "count", "b", wait=0)
    moving.cluster.until(
        first, lambda: "task 6 waits for worker wc@b/0 to start" in first.describe("wc").waits
    )
    takes_over(moving, second)
    assert [m.state for m in second.moves()] == [PLANNED]
    moving.cluster.nodes["b"].start(B)
    moving.quiet(second)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)
    assert second.moves()[0].why == "move count to b"


@pytest.mark.parametrize("number", range(1, 9))
def test_a_nimbus_may_die_within_any_of_its_writes(moving_in_memory: Moving, number: int) -> None:
    """Its session ends just before, or just after, one of the transactions that a move is made of."""
    moving = moving_in_memory
    first = moving.started({"a": 1, "b": 1})
    second = moving.nimbus("h:2", wait=False)
    session = moving.cluster.sessions["h:1"]
    real, count = session.transaction, 0

    def dying(operations: list[Operation]) -> None:
        nonlocal count
        count += 1
        if count == number // 2 + 1:
            if number % 2:
                real(operations)
            moving.cluster.service.expire(session)
        real(operations)

    session.transaction = dying  # type: ignore[method-assign]
    with contextlib.suppress(Unavailable, Conflict):
        first.move("wc", "count", "b", wait=0)
    assert second.wait_leading(PATIENCE)
    moving.quiet(second)
    assert {t for t, w in places(moving).items() if w == B} in (set(), set(COUNT))
    second.move("wc", "count", "b", wait=PATIENCE)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)


def leading(moving: Moving) -> tuple[Nimbus, Reign, Any]:
    """A Nimbus of two nodes with a running topology, its reign, and its session."""
    nimbus = moving.started({"a": 1, "b": 1})
    assert nimbus._reign is not None
    return nimbus, nimbus._reign, moving.cluster.sessions["h:1"]


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", range(2, 6))
def test_a_write_whose_fate_is_not_known_is_looked_up(
    moving_in_memory: Moving, number: int, written: bool
) -> None:
    """The connection breaks within a write; whether it was done is in coordination, and not in anybody's memory."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    session = moving.cluster.sessions["h:1"]
    real, count = session.transaction, 0

    def breaking(operations: list[Operation]) -> None:
        nonlocal count
        count += 1
        if count != number or written:
            real(operations)
        if count == number:
            raise NotConnected("the connection broke")

    session.transaction = breaking  # type: ignore[method-assign]
    nimbus.move("wc", "count", "b", wait=0)
    moving.quiet(nimbus)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)
    made = [(m.epoch, m.state, [(t.task, t.phase, t.reason) for t in m.tasks]) for m in nimbus.moves()]
    assert count >= number
    assert len(made) == 1, "\n".join(map(str, made))


class HeldBack:
    """What the mirror of a Nimbus is told of which moves there are, and of some values: kept from `begin` until `let`, in its order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
        self.told: list[Callable[[], None]] = []
        self._of: Mirror | None = None
        self._lock = threading.Lock()
        take, took = FollowedValue._on_value, FollowedMoves._on_children

        def taking(value: FollowedValue, found: Versioned | None) -> None:
            self._tell(value._mirror if value._path in values else None, lambda: take(value, found))

        def listing(moves: FollowedMoves, names: tuple[str, ...]) -> None:
            self._tell(moves._owner, lambda: took(moves, names))

        monkeypatch.setattr(FollowedValue, "_on_value", taking)
        monkeypatch.setattr(FollowedMoves, "_on_children", listing)

    def begin(self, mirror: Mirror) -> None:
        self._of = mirror

    def _tell(self, of: object, tell: Callable[[], None]) -> None:
        with self._lock:
            mirror = self._of
            if mirror is None or of is not mirror:
                tell()
                return
            self.told.append(tell)
        mirror.nudge()

    def let(self) -> None:
        with self._lock:
            self._of = None
            while self.told:
                self.told.pop(0)()


def test_a_beginning_whose_fate_is_not_known_is_seen_however_late_the_mirror_shows_it(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror shows the number of the move, Nimbus decides again, and only then its record comes."""
    broke, decided = threading.Event(), threading.Event()
    held = HeldBack(monkeypatch)
    moving = moving_in_memory
    nimbus, reign, session = leading(moving)
    held.begin(reign.mirror)
    real, decide, idle = session.transaction, reign._decide, session.caught_up

    def beginning(operations: list[Operation]) -> None:
        real(operations)
        if not broke.is_set() and any(o.path == paths.move(WC, Epoch(1)) for o in operations):
            shown = reign.mirror.wait_for(lambda: reign._shown().topologies[WC].latest == 1, PATIENCE)
            assert shown
            broke.set()
            raise NotConnected("the connection broke")

    def deciding(facts: Facts) -> tuple[Action, ...]:
        actions: tuple[Action, ...] = decide(facts)
        if broke.is_set() and not any(isinstance(a, Begin) for a in actions):
            decided.set()
        return actions

    monkeypatch.setattr(reign, "_decide", deciding)
    monkeypatch.setattr(session, "caught_up", lambda: not held.told and idle())
    session.transaction = beginning
    nimbus.move("wc", "count", "b", wait=0)
    assert decided.wait(PATIENCE)
    held.let()
    moving.quiet(nimbus)
    assert len(nimbus.moves()) == 1


def test_a_removal_whose_fate_is_not_known_is_seen_however_late_the_mirror_shows_it(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror shows that the marks are gone, Nimbus looks again, and only then the record goes."""
    late, looked, record = threading.Event(), threading.Event(), paths.move(WC, Epoch(1))
    held = HeldBack(monkeypatch, record)
    moving = moving_in_memory
    nimbus, reign, session = leading(moving)
    real, whole = session.transaction, reign.moves.run

    def removing(operations: list[Operation]) -> None:
        if late.is_set() or not any(isinstance(o, Delete) and o.path == record for o in operations):
            real(operations)
        else:
            late.set()
            held.begin(reign.mirror)
            real(operations)
            raise NotConnected("the connection broke")

    def run(facts: Facts) -> bool:
        settled = whole(facts)
        anew = [j for j in reign.moves._jobs.values() if j.notifier.state is NotifierState.WATCHING]
        if len(held.told) >= 2 and anew and not facts.topologies[WC].moves[Epoch(1)].marks:
            looked.set()
        return settled

    monkeypatch.setattr(reign.moves, "run", run)
    session.transaction = removing
    nimbus.move("wc", "count", "b", wait=0)
    assert looked.wait(PATIENCE)
    held.let()
    moving.quiet(nimbus)
    assert len(nimbus.moves()) == 1


def test_without_a_connection_nothing_is_decided(moving: Moving) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("prepared")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.PREPARING)
    session, states = moving.cluster.sessions["h:1"], Seen[SessionState]()
    session.watch_session(states)
    moving.cluster.service.cut(session)
    states.until_last(SessionState.SUSPENDED)
    moving.actors.let()
    moving.cluster.service.restore(session)
    states.until_last(SessionState.CONNECTED)
    assert nimbus.wait_leading(PATIENCE)
    moving.quiet(nimbus)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)
