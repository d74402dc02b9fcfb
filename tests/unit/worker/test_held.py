"""For how long what is for a task is held, as the workers of its emitters tell."""

from __future__ import annotations

from elastic.migration.plan import Wiring
from elastic.migration.record import Marked, Marks, MoveRecord, SavedMark, TaskMove
from elastic.migration.view import MoveView, View
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.worker.moving.held import Held, Pause

A, B = Incarnation("t@n0/0#1"), Incarnation("t@n1/0#1")
N0, N1 = NodeId("n0"), NodeId("n1")
WIRING = Wiring({1: (2,), 2: (3,)})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def view(number: int, restored: dict[int, int]) -> View:
    """Tasks 2 and 3 move from A to B, and some of them are restored there."""
    tasks = tuple(TaskMove(TaskId(t), "c", A, B, N0, N1) for t in (2, 3))
    record = MoveRecord(TopologyName("t"), Epoch(1), "why", tasks, 1)
    marks = {
        A: Marked(Marks(A, asked=(2, 3), saved={t: SavedMark((N0,)) for t in (2, 3)}), 1),
        B: Marked(Marks(B, prepared={2: 1, 3: 1}, restored=restored), number),
    }
    places = {1: WorkerId("t@n0/0"), 2: WorkerId("t@n0/0"), 3: WorkerId("t@n0/0")}
    return View(number, 1, (MoveView(record, marks),), places, {WorkerId("t@n0/0"): A, WorkerId("t@n1/0"): B})


def held() -> tuple[Held, Clock]:
    clock = Clock()
    found = Held(WIRING, clock)
    for target in (2, 3):
        found.begin(target, 1)
    return found, clock


def test_what_is_opened_again_here_was_held_until_then() -> None:
    found, clock = held()
    clock.now = 2.0
    found.begin(
        2, 1
    )  # another task here holds something for it as well: the pause lasts since the first one did
    clock.now = 5.0
    assert 2 in found and found.end(2) == Pause(1, 5.0, 0.0)
    assert 2 not in found and found


def test_emitters_that_have_moved_along_have_gone_on_when_both_were_restored() -> None:
    found, clock = held()
    for number, at, restored in ((1, 3.0, {3: 1}), (2, 4.0, {2: 1, 3: 1}), (3, 6.0, {2: 1, 3: 1})):
        clock.now = at
        found.see(view(number, restored))
    clock.now = 100.0
    assert found.left({1, 2}) == [] and found.left({1}) == [3]
    assert found.end(3, elsewhere=True) == Pause(1, 4.0, 96.0)


def test_what_was_not_restored_was_held_until_it_is_let_go_of() -> None:
    found, clock = held()
    clock.now = 7.0
    found.see(view(1, {}))
    assert found.end(3, elsewhere=True) == Pause(1, 7.0, 0.0)


def test_nothing_is_remembered_when_nothing_is_held() -> None:
    found, clock = held()
    found.see(view(1, {2: 1, 3: 1}))
    for target in (2, 3):
        found.end(target)
    found.see(view(2, {2: 1, 3: 1}))
    found.begin(3, 1)
    clock.now = 2.0
    assert found.end(3, elsewhere=True) == Pause(1, 2.0, 0.0)
