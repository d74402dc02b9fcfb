"""Views that take over what is as it was from those that were read before them say what they would have said without that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.migration import view as module
from elastic.migration.record import (
    FailedMark,
    Marked,
    Marks,
    MoveRecord,
    Outcome,
    Phase,
    SavedMark,
    TaskMove,
    differences,
)
from elastic.migration.view import EMPTY, NOBODY, MoveView, View
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId, worker_of

TASKS = (1, 2, 3)
WORKERS = tuple(WorkerId(f"t@{n}/0") for n in "abc")
LIVES = tuple(Incarnation(f"{w}#{life}") for w in WORKERS for life in (1, 2))
NODE = NodeId("a")

SEEDS = 400


def _a_record(rnd: Random, epoch: Epoch) -> MoveRecord:
    moving = tuple(
        TaskMove(TaskId(t), "c", rnd.choice(LIVES), rnd.choice(LIVES), NODE, NODE, rnd.randint(0, 2))
        for t in rnd.sample(TASKS, rnd.randint(1, len(TASKS)))
    )
    return MoveRecord(TopologyName("t"), epoch, "", moving, rnd.randint(0, 3), ready=rnd.randint(0, 3))


def _read_anew(record: MoveRecord, rnd: Random) -> MoveRecord:
    moving = tuple(
        replace(t, outcome=rnd.choice((t.outcome, *Outcome)), attempt=rnd.randint(1, 2)) for t in record.tasks
    )
    return replace(record, tasks=moving, paused=rnd.randint(0, 3), ready=rnd.randint(0, 3))


def _marked(marks: Marks, record: MoveRecord, rnd: Random) -> Marks:
    """Marks that say something else than before: mostly of a task that comes there."""
    part = rnd.choice([t for t in record.tasks if t.target == marks.incarnation] or record.tasks)
    task, number = rnd.choice((part.task, part.task, *TASKS)), part.attempt + rnd.randint(-1, 0)
    return rnd.choice(
        (
            replace(marks, saved={**marks.saved, task: SavedMark((NODE,), rnd.randint(1, 2))}),
            replace(marks, restored={**marks.restored, task: part.attempt}),
            replace(marks, revoked={**marks.revoked, task: number + 1}),
            replace(marks, failed={**marks.failed, task: FailedMark(number, "no")}),
            replace(marks, asked=(*marks.asked, task)),
            Marks(marks.incarnation),
        )
    )


def _next(view: View, rnd: Random) -> View:
    """What is read next."""
    moves, what = list(view.moves), rnd.randint(0, 9)
    if what == 0 or not moves:
        epoch = Epoch(view.latest + 1)
        made = _a_record(rnd, epoch)
        marks = {i: Marked(Marks(i), 0) for i in made.participants}
        return replace(view, latest=epoch, moves=(*moves, MoveView(made, marks)))
    if what == 1:
        living = {w: rnd.choice([i for i in LIVES if worker_of(i) == w]) for w in WORKERS[:2]}
        return replace(view, living=living)
    if what == 2:
        return replace(view, places={t: rnd.choice(WORKERS) for t in TASKS})
    at = rnd.randrange(len(moves))
    move = moves[at]
    if what == 3:
        del moves[at]
    elif what == 4:
        moves[at] = MoveView(_read_anew(move.record, rnd), move.marks)
    else:
        life = rnd.choice((*move.marks, LIVES[0]))
        before = move.marks[life].marks if life in move.marks else Marks(life)
        moves[at] = MoveView(move.record, {**move.marks, life: Marked(_marked(before, move.record, rnd), 1)})
    return replace(view, moves=tuple(moves))


def read(rnd: Random) -> Iterator[View]:
    """Views, one after the other; some are not handed on."""
    view = replace(EMPTY, places=dict.fromkeys(TASKS, WORKERS[0]), living={WORKERS[0]: LIVES[0]})
    yield view
    for _ in range(20):
        view = _next(view, rnd)
        if rnd.random() < 0.8:
            yield view


def check(views: Iterable[View]) -> None:
    """Each says the same whether or not it follows the one before."""
    last = EMPTY
    for view in views:
        anew = replace(view, moves=tuple(MoveView(m.record, m.marks) for m in view.moves))
        view.follows(last)
        assert view.standing == anew.standing
        assert view._parts == anew._parts
        assert set(view.changed(last.standing)) == {
            t for t, at in anew.standing.items() if last.standing.get(t) != at
        }
        assert view.elsewhere(last) == tuple(
            t for t, at in anew.standing.items() if t in last.standing and last.standing[t].owner != at.owner
        )
        last = view


@settings(deadline=None)
@given(st.integers(SEEDS, 1 << 32))
def test_a_view_that_follows_another_says_what_it_would_say_by_itself(seed: int) -> None:
    check(read(Random(seed)))


@settings(deadline=None)
@given(st.integers(0, 1 << 32))
def test_what_has_not_changed_is_the_same_object(seed: int) -> None:
    for view in read(Random(seed)):
        next_one = replace(view, number=view.number + 1)
        next_one.follows(view)
        assert all(next_one.standing[t] is at for t, at in view.standing.items())


def test_one_may_run_a_task_and_only_one_that_has_no_part_in_a_move_is_started() -> None:
    a, again, b, b_again, c, _ = LIVES
    part = TaskMove(TaskId(1), "c", a, b, NODE, NODE)
    moving = MoveRecord(TopologyName("t"), Epoch(1), "", (part,), 1)
    over = {o: replace(moving, tasks=(replace(part, outcome=o),)) for o in Outcome if o}
    saved, restored = Marks(a, saved={1: SavedMark((NODE,))}), Marks(b, restored={1: 1})
    for record, marks, at, owner, starts in (
        (None, (), a, a, True),
        (replace(moving, paused=0), (), a, a, False),
        (moving, (), a, a, False),
        (moving, (saved,), a, NOBODY, False),
        (moving, (saved, restored), a, b, False),
        (moving, (restored,), a, b, False),
        (over[Outcome.COMMITTED], (saved, restored), b, b, True),
        (over[Outcome.ROLLED_BACK], (), a, a, True),
        (over[Outcome.LOST], (saved,), b, b, True),
    ):
        moves = (MoveView(record, {m.incarnation: Marked(m, 1) for m in marks}),) if record else ()
        for living in ((a, b), (again, b_again)):
            view = View(1, 1, moves, {1: worker_of(at)}, {worker_of(i): i for i in living})
            expected = living[(a, b).index(owner)] if starts else owner if owner in living else NOBODY
            assert view.stands(1).owner == expected
            assert [i for i in LIVES if view.may_start(1, i)] == ([expected] if starts else [])
    for living, owner in (
        ((a, b), b),
        ((a, b_again), NOBODY),
    ):  # it is heard, and not read, that it is restored
        told = (MoveView(moving, {a: Marked(saved, 1)}),)
        view = View(1, 1, told, {1: WORKERS[0]}, {worker_of(i): i for i in living})
        assert view.with_restored({1: (1, 1)}).stands(1)[1:4:2] == (Phase.RESTORED, owner)
        assert view.with_restored({1: (1, 2)}).stands(1).phase is Phase.SAVED, "that is another attempt"
    following = replace(moving, epoch=Epoch(2), tasks=(replace(part, source=b, target=c),))
    both = MoveView(moving, {b: Marked(restored, 1)}), MoveView(following, {})
    for order in (both, both[::-1]):
        view = View(1, 2, order, {1: WORKERS[0]}, {worker_of(i): i for i in (a, b, c)})
        assert (view.stands(1).epoch, view.stands(1).owner) == (2, b), "the newest move says where it stands"


def _some_of(*kept: str) -> Callable[[Any, Any], Iterator[int]]:
    """Of marks only these are compared."""

    def fewer_differences(before: Any, now: Any) -> Iterator[int]:
        def with_those(read: Any) -> Any:
            record, marks, turn = read
            fewer = {
                i: replace(m, marks=replace(m.marks, **{n: {} for n in ("saved", "restored", "revoked") if n not in kept}))
                for i, m in marks.items()
            }  # fmt: skip
            return record, fewer, turn

        return differences(with_those(before), with_those(now))

    return fewer_differences


@pytest.mark.parametrize("kept", [("saved", "restored"), ("saved", "revoked"), ("restored", "revoked")])
def test_a_mark_that_is_not_compared_would_be_found(
    kept: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "differences", _some_of(*kept))
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            check(read(Random(seed)))


def test_a_turn_that_is_not_compared_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_the_same_turn(before: Any, now: Any) -> Iterator[int]:
        return differences((*before[:2], 0), (*now[:2], 0))

    monkeypatch.setattr(module, "differences", of_the_same_turn)
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            check(read(Random(seed)))


@pytest.mark.parametrize("field", ["places", "living"])
def test_places_and_lives_that_are_not_compared_would_be_found(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = View.follows

    def follows(self: View, before: View) -> None:
        same: Any = replace(before, **{field: getattr(self, field)})
        same.__dict__["standing"] = before.standing
        given(self, same)

    monkeypatch.setattr(View, "follows", follows)
    with pytest.raises(AssertionError):
        for seed in range(SEEDS):
            check(read(Random(seed)))
