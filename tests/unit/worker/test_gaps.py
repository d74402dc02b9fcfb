"""For how long those behind a task that moves get nothing from it, and that nobody else's links are looked at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.migration import events as ev
from elastic.migration.receiver import Receiver
from elastic.migration.record import MoveRecord, Outcome, TaskMove
from elastic.migration.view import MoveView, View
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.worker.executing import gaps
from elastic.worker.executing.gaps import Gaps, TimedEnd

OLD, NEW = Incarnation("t@a/0#1"), Incarnation("t@b/0#2")
MOVING, OTHER, FIRST, SECOND = 1, 2, 3, 4


def view(number: int, *moves: tuple[int, int, Outcome]) -> View:
    """What is read when the mover takes part in these moves: number, batches paused, outcome."""
    records = [
        MoveView(
            MoveRecord(
                TopologyName("t"),
                Epoch(epoch),
                "why not",
                (TaskMove(TaskId(MOVING), "c", OLD, NEW, NodeId("a"), NodeId("b"), outcome=outcome),),
                paused=paused,
            )
        )
        for epoch, paused, outcome in moves
    ]
    places = dict.fromkeys((MOVING, OTHER, FIRST, SECOND), WorkerId("t@a/0"))
    return View(
        number, max((m[0] for m in moves), default=0), tuple(records), places, {WorkerId("t@a/0"): OLD}
    )


class Place:
    """A worker with two tasks behind the two that send."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(gaps, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.said: list[tuple[int, int, float | None]] = []
        self.later: list[Any] = []
        ends = {(s, t): Receiver(s, t) for s in (MOVING, OTHER) for t in (FIRST, SECOND)}
        for end in ends.values():
            end.handle(ev.Opened(end.source, end.target, 1, 0, 0))
        self.sent = dict.fromkeys(ends, 0)
        self.tasks: Any = {t: SimpleNamespace(receivers={}) for t in (FIRST, SECOND)}
        wiring: Any = SimpleNamespace(
            targets_of=lambda t: (FIRST, SECOND) if t in (MOVING, OTHER) else (),
            emitters_of=lambda t: (MOVING, OTHER) if t in (FIRST, SECOND) else (),
        )
        self.gaps = Gaps(wiring, self.tasks, ends, lambda *what: self.said.append(what), self.later.append)
        for task, one in self.tasks.items():
            one.receivers = self.gaps.over({s: ends[s, task] for s in (MOVING, OTHER)})

    def come(self, at: float, target: int = FIRST, source: int = MOVING) -> None:
        self.now = at
        self.sent[source, target] += 1
        assert self.tasks[target].receivers[source].takes(1, self.sent[source, target], 1)

    def work(self) -> None:
        while self.later:
            self.later.pop(0)()

    @property
    def timed(self) -> set[tuple[int, int]]:
        return {
            (s, t)
            for t, task in self.tasks.items()
            for s, end in task.receivers.items()
            if isinstance(end, TimedEnd)
        }


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield Place(monkeypatch)


def test_from_the_last_of_the_old_place_to_the_first_of_the_new_one(place: Place) -> None:
    place.come(100.0)
    assert not place.timed, "nothing moves"
    place.gaps.see(view(1, (7, 0, Outcome.OPEN)))
    assert place.timed == {(MOVING, FIRST), (MOVING, SECOND)}, "only what comes from the task that moves"
    place.come(101.0)
    place.come(102.0, SECOND)
    place.gaps.see(view(2, (7, 1, Outcome.OPEN)))
    place.come(102.5, SECOND)
    place.come(102.7, source=OTHER)
    place.gaps.opened(MOVING, OLD)  # for a pause of a task that is behind it
    place.come(102.75)
    place.gaps.opened(MOVING, NEW)
    assert not place.said
    place.gaps.see(view(3))  # the record has gone before the first has come
    place.come(103.0, SECOND)
    place.come(103.5)
    assert place.said == [(MOVING, 7, 0.25)]
    place.work()
    assert not place.timed and place.tasks[FIRST].receivers[MOVING].seen == 4
    place.come(104.0)
    place.gaps.see(view(4))
    assert len(place.said) == 1


def test_where_nothing_had_come_there_is_nothing_to_measure(place: Place) -> None:
    place.gaps.see(view(1, (7, 0, Outcome.OPEN)))
    place.gaps.opened(MOVING, NEW)
    place.come(103.0)
    assert place.said == [(MOVING, 7, None)]
    place.work()
    assert not place.timed


@pytest.mark.parametrize("after", [view(2, (7, 1, Outcome.ROLLED_BACK)), view(2)])
def test_what_has_not_moved_or_is_not_known_to_have_is_looked_at_no_more(place: Place, after: View) -> None:
    place.gaps.see(view(1, (7, 1, Outcome.OPEN)))
    place.come(101.0)
    place.gaps.see(after)
    assert not place.timed
    place.gaps.opened(MOVING, NEW)
    place.come(102.0)
    assert not place.said


def test_the_next_move_is_measured_by_itself(place: Place) -> None:
    place.gaps.see(view(1, (7, 1, Outcome.OPEN)))
    place.come(101.0)
    place.gaps.opened(MOVING, NEW)
    place.gaps.see(view(2, (7, 1, Outcome.COMMITTED), (8, 1, Outcome.OPEN)))
    place.come(105.0)
    place.gaps.opened(MOVING, NEW)
    place.come(106.0)
    assert place.said == [(MOVING, 8, 1.0)]


def test_what_is_said_of_a_move_late_does_not_end_the_look_at_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.gaps.see(view(1, (7, 1, Outcome.OPEN)))
    place.come(101.0)
    place.gaps.opened(MOVING, NEW)
    said = place.gaps._said
    first = place.gaps._of[MOVING]

    def late(*what: Any) -> None:  # on the thread that has its first tuple, while another sees the next move
        place.gaps.see(view(2, (8, 1, Outcome.OPEN)))
        said(*what)

    monkeypatch.setattr(first, "_say", late)
    place.come(101.5)
    place.work()
    assert place.said == [(MOVING, 7, 0.5)]
    assert place.timed == {(MOVING, FIRST), (MOVING, SECOND)}
    place.come(105.0)
    place.gaps.opened(MOVING, NEW)
    place.come(106.0)
    assert place.said[1:] == [(MOVING, 8, 1.0)]


def test_a_task_that_begins_here_meanwhile_counts_too(place: Place) -> None:
    place.gaps.see(view(1, (7, 1, Outcome.OPEN)))
    place.come(101.0)
    end = Receiver(MOVING, SECOND)
    end.handle(ev.Opened(MOVING, SECOND, 1, 0, 0))
    place.tasks[SECOND].receivers = place.gaps.over({MOVING: end})
    place.gaps.opened(MOVING, NEW)
    place.come(101.5, SECOND)
    assert place.said == [(MOVING, 7, 0.5)]


def test_what_is_not_the_next_of_its_link_counts_when_it_comes(place: Place) -> None:
    place.gaps.came(MOVING)
    place.gaps.see(view(1, (7, 1, Outcome.OPEN)))
    place.now = 101.0
    place.gaps.came(MOVING)
    place.gaps.opened(MOVING, NEW)
    place.now = 101.25
    place.gaps.came(MOVING)
    assert place.said == [(MOVING, 7, 0.25)]


def test_many_at_once_say_it_once(place: Place) -> None:
    place.gaps.see(view(1, (7, 1, Outcome.OPEN)))
    place.gaps.came(MOVING)
    place.gaps.opened(MOVING, NEW)
    ready = threading.Barrier(4)

    def come() -> None:
        ready.wait(30)
        place.gaps.came(MOVING)

    threads = [threading.Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(place.said) == 1


def test_for_as_long_as_nobody_is_behind_it_nothing_is_missing(place: Place) -> None:
    """Those behind it have gone elsewhere before it goes, and others come after it has."""
    place.gaps.see(view(1, (7, 1, Outcome.OPEN)))
    place.come(101.0)
    here = dict(place.tasks)
    del place.tasks[FIRST]
    place.gaps.left(FIRST)
    place.come(102.0, SECOND)
    place.tasks.clear()
    place.gaps.left(SECOND)
    place.tasks.update(here)
    place.now = 105.0
    place.gaps.opened(MOVING, NEW)
    assert place.said == [(MOVING, 7, None)]


def test_that_it_counts_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Gaps, "left", lambda self, task: None)
    with pytest.raises(AssertionError):
        test_for_as_long_as_nobody_is_behind_it_nothing_is_missing(place)
