"""What Nimbus decides of a move of many tasks: which outcomes wait for others, and which batches get ready ahead of their time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from elastic.migration import decide as module
from elastic.migration.decide import (
    KEPT,
    PAUSE,
    PREPARE,
    SETTLE,
    SOON,
    TOGETHER,
    Decision,
    Timer,
    again_timer,
    decide,
    restore_timer,
)
from elastic.migration.events import Host
from elastic.migration.record import (
    AT_ONCE,
    BRIEF,
    ENDED,
    FailedMark,
    Marked,
    Marks,
    MoveRecord,
    Outcome,
    Phase,
    SavedMark,
    TaskMove,
    stage_of,
    turn_of,
)
from elastic.model.codec import decode as read
from elastic.model.codec import encode as written
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId, worker_of

A, B = Incarnation("t@a/0#1"), Incarnation("t@b/0#1")
HOSTS = (
    Host(WorkerId("t@a/0"), A, NodeId("a"), 0),
    Host(WorkerId("t@b/0"), B, NodeId("b"), 0),
)
COUNT = TOGETHER + 16


def record(paused: int, ready: int = 0) -> MoveRecord:
    """Of `COUNT` tasks that move one by one, from 1."""
    tasks = tuple(
        TaskMove(TaskId(n), "c", A, B, NodeId("a"), NodeId("b"), n - 1) for n in range(1, COUNT + 1)
    )
    return MoveRecord(TopologyName("t"), Epoch(1), "", tasks, paused, ready=ready)


def decided(
    made: MoveRecord,
    *,
    restored: int = 0,
    ready: int = 0,
    ahead: tuple[int, ...] = (),
    size: int = 9,
    failed: int = 0,
    hosts: tuple[Host, ...] = HOSTS,
    expired: tuple[Timer, ...] = (),
) -> Decision:
    """What follows when so many tasks are restored and so many ready; `failed` says that it cannot."""
    marks = marked(restored=restored, ready=ready, ahead=ahead, size=size)
    if failed:
        source = replace(marks[A].marks, failed={failed: FailedMark(0, "no")})
        marks[A] = Marked(source, 0)
    return decide(made, 0, marks, hosts, expired)


def marked(
    *, restored: int, ready: int, ahead: tuple[int, ...] = (), size: int = 9
) -> dict[Incarnation, Marked]:
    """What the marks say then."""
    numbers = range(1, restored + 1)
    prepared, over = dict.fromkeys(range(1, ready + 1), 1), dict.fromkeys(numbers, 1)
    saved = {n: SavedMark((NodeId("a"),), size) for n in numbers}
    source = Marks(A, tuple(prepared), ahead, saved=saved)
    target = Marks(B, prepared=prepared, fetched=over, restored=over)
    return {A: Marked(source, 0), B: Marked(target, 0)}


def outcomes(decision: Decision) -> int:
    """How many are written."""
    return sum(1 for t in decision.commit.record.tasks if t.outcome) if decision.commit is not None else 0


def test_outcomes_wait_for_each_other_while_all_goes_well() -> None:
    assert outcomes(decided(record(2), restored=1, ready=2)) == 0
    assert outcomes(decided(record(TOGETHER), restored=TOGETHER - 1, ready=TOGETHER)) == 0
    together = decided(record(TOGETHER + 1), restored=TOGETHER, ready=TOGETHER + 1)
    assert outcomes(together) == TOGETHER and together.commit is not None
    assert [t for t, _ in together.commit.places] == list(range(1, TOGETHER + 1))


def test_outcomes_do_not_wait_while_much_is_kept_for_them() -> None:
    """What is restored elsewhere stays in memory where it was until then."""
    assert outcomes(decided(record(4), restored=3, ready=4, size=KEPT // 4)) == 0
    assert outcomes(decided(record(5), restored=4, ready=5, size=KEPT // 4)) == 4


def test_a_move_of_which_all_outcomes_are_written_at_once_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TOGETHER", 1)
    with pytest.raises(AssertionError):
        test_outcomes_wait_for_each_other_while_all_goes_well()


def test_no_outcome_waits_when_nothing_else_is_under_way() -> None:
    settled = tuple(
        replace(t, outcome=Outcome.COMMITTED) if t.task <= COUNT - 2 else t for t in record(COUNT).tasks
    )
    last = replace(record(COUNT, COUNT), tasks=settled)
    assert decided(last, restored=COUNT - 1, ready=COUNT).commit is None
    settling = decided(last, restored=COUNT, ready=COUNT)
    assert settling.commit is None and settling.timers == ((SETTLE, COUNT),), "the stream has its time first"
    assert outcomes(decided(last, restored=COUNT, ready=COUNT, expired=settling.timers)) == COUNT


def test_a_move_whose_last_outcomes_are_written_while_the_stream_catches_up_would_be_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = module._later
    monkeypatch.setattr(module, "_later", lambda draft, expired: given(draft, {*expired, (SETTLE, COUNT)}))
    with pytest.raises(AssertionError):
        test_no_outcome_waits_when_nothing_else_is_under_way()


def test_no_outcome_waits_when_something_goes_wrong() -> None:
    assert outcomes(decided(replace(record(3), abort="stop"), restored=2, ready=3)) == COUNT
    assert outcomes(decided(replace(record(COUNT), abort="stop"), restored=COUNT, ready=COUNT)) == COUNT
    assert outcomes(decided(record(3), restored=2, ready=3, failed=3)) == 3
    assert outcomes(decided(record(3), restored=2, ready=3, hosts=HOSTS[:1])) == COUNT, (
        "its new worker has died"
    )
    assert outcomes(decided(record(3), restored=2, ready=3, hosts=HOSTS[1:])) == COUNT, (
        "its old worker has died"
    )
    assert outcomes(decided(record(3), restored=2, ready=3, expired=((PAUSE, 2),))) == 3
    assert outcomes(decided(record(3, 4), restored=2, ready=3, expired=((PREPARE, 3),))) == 3


def test_a_timer_that_fires_when_what_it_bounds_has_come_in_time_means_nothing() -> None:
    past = (PREPARE, 0), (PREPARE, 1), (PAUSE, 0), (PAUSE, 1)
    assert outcomes(decided(record(3), restored=2, ready=3, expired=past)) == 0
    assert outcomes(decided(record(COUNT, COUNT), restored=COUNT, ready=COUNT, expired=past)) == 0


@pytest.mark.parametrize("behind", [A, B])
def test_nothing_is_decided_where_the_reader_is_behind(behind: Incarnation) -> None:
    """The record names a worker of which the marks have not been read: that it has ended, or has failed, is not in them."""
    marks = marked(restored=1, ready=1)
    del marks[behind]
    for hosts in (HOSTS, ()):
        assert decide(record(1), 0, marks, hosts, ((PREPARE, 0), (PAUSE, 0))) == Decision(None)


def test_nobody_is_told_to_stand_still_before_both_sides_are_ready() -> None:
    def paused(asked: tuple[int, ...], prepared: dict[int, int]) -> int:
        marks = {A: Marked(Marks(A, asked), 0), B: Marked(Marks(B, prepared=prepared), 0)}
        commit = decide(replace(record(0, ready=1), soon=1), 0, marks, HOSTS, ()).commit
        return commit.record.paused if commit is not None else 0

    assert paused((1,), {1: 1}) > 0
    assert paused((1,), {}) == paused((), {1: 1}) == paused((1,), {1: 2}) == 0


def test_how_long_a_task_stands_still_is_bounded_from_the_moment_it_is_told_to() -> None:
    told = decided(record(0, ready=SOON), ready=SOON)
    assert told.commit is not None and told.commit.record.paused == SOON and (PAUSE, 0) in told.timers


def test_who_has_aborted_a_move_can_force_it_afterwards() -> None:
    made = record(1).ending("first", force=False)
    assert (made.abort, made.forced) == ("first", False) and made.ending("again", force=False) is made
    forced = made.ending("second", force=True)
    assert (forced.abort, forced.forced) == ("first", True)
    assert all(forced.ending("third", force=force) is forced for force in (True, False))


def test_what_goes_back_together_is_refused_together() -> None:
    """Each of them, on either side: or one that is saved, or restored, after that has two owners."""
    made = replace(record(1, ready=3), tasks=record(1).tasks[:3], abort="stop")
    commit = decided(made, ready=3).commit
    assert commit is not None
    refused = {c.incarnation: (c.marks.barred, c.marks.revoked) for c in commit.marks}
    assert refused == {A: ((1, 2, 3), {}), B: ((), {1: 1, 2: 1, 3: 1})}


def test_what_was_refused_or_is_of_another_attempt_is_not_restored() -> None:
    source = Marks(A, saved={1: SavedMark((NodeId("a"),), 9)})
    for restored, revoked, attempt, phase in (
        ({1: 1}, {}, 1, Phase.RESTORED),
        ({1: 2}, {1: 1}, 2, Phase.RESTORED),
        ({1: 1}, {1: 1}, 1, Phase.SAVED),
        ({1: 1}, {}, 2, Phase.SAVED),
        ({}, {}, 1, Phase.SAVED),
    ):
        marks = {A: Marked(source, 0), B: Marked(Marks(B, restored=restored, revoked=revoked), 0)}
        made = replace(record(1), tasks=(replace(record(1).tasks[0], attempt=attempt),))
        assert stage_of(made.tasks[0], made, marks, 0)[0] is phase
        assert turn_of(made, marks) == (phase is Phase.RESTORED)


def test_another_attempt_says_why_the_one_before_it_has_failed() -> None:
    """After many of them the time of an attempt is over before the next is due. The process that it was to leave has ended."""
    hosts = tuple(h for h in HOSTS if h.incarnation != A)
    for attempt in (1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 10):
        task = replace(record(1).tasks[0], attempt=attempt)
        made = replace(record(1), tasks=(task,))
        source = Marks(A, saved={1: SavedMark((NodeId("a"),), 9)})
        for failed, expired, why in (
            ({1: FailedMark(attempt, "boom")}, restore_timer(task), "boom"),
            ({1: FailedMark(attempt, "boom")}, again_timer(task), "boom"),
            ({1: FailedMark(attempt - 1, "boom")}, restore_timer(task), "it was not restored in time"),
        ):
            marks = {A: Marked(source, 0), B: Marked(Marks(B, failed=failed), 0)}
            found = decide(made, 0, marks, hosts, (expired,)).commit
            assert found is not None
            assert (found.record.tasks[0].attempt, found.record.tasks[0].reason) == (attempt + 1, why)
        trying = decide(made, 0, marks, hosts, ())
        assert trying.timers == (restore_timer(task),), "the rest is over before the attempt is"
        marks[B] = Marked(Marks(B, failed={1: FailedMark(attempt, "boom")}), 0)
        waiting = decide(made, 0, marks, hosts, ())
        assert (waiting.commit is None) is (attempt >= AT_ONCE)
        assert (again_timer(task) in waiting.timers) is (attempt >= AT_ONCE)


def test_an_operator_can_give_up_what_nobody_could_restore() -> None:
    """Not before so many have tried, nor while somebody tries, nor what the process that it was to leave has; and who tries is refused."""
    gone = tuple(h for h in HOSTS if h.incarnation != A)
    source = Marks(A, saved={1: SavedMark((NodeId("a"),), 9)})
    failed = {n: {1: FailedMark(n, "boom")} for n in (1, AT_ONCE - 1, AT_ONCE)}
    for attempt, forced, marks, hosts, late, lost in (
        (AT_ONCE, True, failed[AT_ONCE], gone, False, "boom"),
        (AT_ONCE, True, failed[AT_ONCE - 1], gone, True, "it was not restored in time"),
        (AT_ONCE + 3, True, {}, (), False, "worker t@b/0 has ended"),
        (AT_ONCE - 1, True, failed[AT_ONCE - 1], gone, False, ""),
        (AT_ONCE, False, failed[AT_ONCE], gone, False, ""),
        (AT_ONCE, True, failed[AT_ONCE - 1], gone, False, ""),
        (AT_ONCE, True, failed[AT_ONCE], HOSTS, False, ""),
    ):
        task = replace(record(1).tasks[0], attempt=attempt)
        made = replace(record(1), tasks=(task,), abort="stop", forced=forced)
        expired = (restore_timer(task),) if late else ()
        commit = decide(
            made, 0, {A: Marked(source, 0), B: Marked(Marks(B, failed=marks), 0)}, hosts, expired
        ).commit
        after = commit.record.tasks[0] if commit is not None else task
        assert (after.outcome is Outcome.LOST) is bool(lost) and lost in after.reason
        if lost:
            assert commit is not None and commit.places == ((1, worker_of(B)),)
            assert [c.marks.revoked for c in commit.marks] == [{1: attempt}], "who restores it is not refused"
    mine = replace(record(1).tasks[0], attempt=AT_ONCE, target=A)
    made = replace(record(1), tasks=(mine,), abort="stop", forced=True)
    commit = decide(made, 0, {A: Marked(source, 0)}, HOSTS, (restore_timer(mine),)).commit
    assert commit is None or not commit.record.tasks[0].outcome, "its own process has it still"


def test_who_still_has_it_goes_on_with_it_when_another_could_not() -> None:
    """At once, also when no store has it; when a process has ended, only after a second one."""
    task = record(1).tasks[0]
    source = Marks(A, saved={1: SavedMark((NodeId("a"), NodeId("c")), 9)})
    all_three = (*HOSTS, host("c/0", -1))
    alone = tuple(h for h in HOSTS if h.incarnation != B)
    for attempt, failed, hosts, expired, target, final in (
        (1, {1: FailedMark(1, "boom")}, all_three, (), A, False),
        (9, {1: FailedMark(9, "boom")}, all_three, (), A, False),
        (1, {1: FailedMark(1, "no store has it", gone=True)}, all_three, (), A, False),
        (1, {}, all_three, (restore_timer(task),), A, False),
        (2, {}, alone, (), A, False),
    ):
        made = replace(record(1), tasks=(replace(task, attempt=attempt),))
        marks = {A: Marked(source, 0), B: Marked(Marks(B, failed=failed), 0)}
        found = decide(made, 0, marks, hosts, expired).commit
        assert found is not None
        (part,) = found.record.tasks
        assert (part.target, part.attempt, part.final, part.outcome) == (target, attempt + 1, final, "")
        assert {c.incarnation: c.marks.revoked for c in found.marks} == {B: {1: attempt}}, "it is refused"
        assert part.meant == worker_of(B)
        restored = Marks(A, saved=source.saved, restored={1: attempt + 1})
        marks = {A: Marked(restored, 0), B: Marked(Marks(B, revoked={1: attempt}), 0)}
        done = decide(found.record, 1, marks, hosts, ()).commit
        assert done is not None and done.places == ((1, worker_of(A)),)
        assert done.record.tasks[0].outcome is Outcome.COMMITTED and done.record.tasks[0].came_back


def dies(places: str) -> tuple[TaskMove, int]:
    """What becomes of a task whose new sides die one after the other, in the order in which they are chosen, until it goes back; and how
    many have by then. The first is at b/0; there are others at these places, `#2` in the next
    life of that worker."""
    b0, others = host("b/0"), tuple(host(p[:3], n, int(p[4:] or 1)) for n, p in enumerate(places.split()))
    own = host("a/0", 99)
    source, target = own.incarnation, b0.incarnation
    task = replace(record(1).tasks[0], source=source, target=target)
    made, living = replace(record(1), tasks=(task,)), [own, b0, *others]
    marks = {
        source: Marked(Marks(source, saved={1: SavedMark((NodeId("a"), NodeId("b")), 9)}), 0),
        target: Marked(Marks(target), 0),
    }
    for count in range(1, 9):
        living = [h for h in living if h.incarnation != made.tasks[0].target]
        found = decide(made, 0, marks, tuple(living), ()).commit
        assert found is not None
        made = found.record
        marks |= {c.incarnation: Marked(c.marks, count) for c in found.marks}
        if made.tasks[0].came_back:
            return made.tasks[0], count
    raise AssertionError("it never comes back")


def test_of_a_node_that_goes_nobody_learns_what_ends_processes() -> None:
    """Its workers' sessions end one after the other; two of different nodes are another thing."""
    task, count = dies("b/1 c/0")
    assert (task.final, count, task.meant) == (False, 1, "t@b/0"), "others of that node may be about to go"
    task, count = dies("a/1 c/0")
    assert (task.final, count, task.meant) == (True, 2, "t@b/0")
    task, count = dies("b/0#2 c/0")
    assert (task.final, count, task.meant) == (False, 2, "t@b/0"), "both were of one node"


def test_only_the_word_of_the_old_side_is_final() -> None:
    """Another new side may do what this one cannot, and who aborts a move may ask for it again."""
    never, once = FailedMark(0, "a generator", final=True), FailedMark(0, "no room")
    by_old, by_new = (
        (Marks(A, failed={1: never}), Marks(B)),
        (Marks(A), Marks(B, failed={1: FailedMark(1, "x")})),
    )
    for (source, target), abort, final in (
        (by_old, "", True),
        ((Marks(A, failed={1: once}), Marks(B)), "", False),
        (by_new, "", False),
        (by_old, "enough", False),
    ):
        marks = {A: Marked(source, 0), B: Marked(target, 0)}
        found = decide(replace(record(0), abort=abort), 0, marks, HOSTS, ()).commit
        assert found is not None
        assert (found.record.tasks[0].outcome, found.record.tasks[0].final) == (Outcome.ROLLED_BACK, final)


def test_tasks_with_small_states_get_ready_some_at_a_time() -> None:
    assert decided(record(0)).commit is None, "what their states are is not known yet"
    first = decided(record(0), ready=1).commit
    assert first is not None and (first.record.paused, first.record.ready) == (0, SOON)
    phases = [stage_of(t, first.record, {}, 0)[0] for t in first.record.tasks]
    assert phases == [Phase.PREPARING] * SOON + [Phase.WAITING] * (COUNT - SOON)
    for restored in range(SOON):
        found = decided(record(SOON, SOON), restored=restored, ready=SOON)
        assert found.commit is None, "they stand still one after the other, and nobody tells them to"
    later = decided(record(SOON, SOON), restored=SOON, ready=SOON).commit
    assert later is not None and (later.record.paused, later.record.ready) == (SOON, 2 * SOON)


def test_as_many_get_ready_together_as_is_known_beforehand() -> None:
    few = SOON // 4
    first = decided(replace(record(0), soon=few)).commit
    assert first is not None and (first.record.paused, first.record.ready) == (0, few)
    ahead = tuple(range(1, few + 1))
    for made in (record(few, few), replace(record(few, few), soon=few)):
        later = decided(made, restored=few, ready=few, ahead=ahead).commit
        assert later is not None and later.record.ready == few + max(1, made.soon)
    assert decided(replace(record(0), soon=1), ready=1, ahead=(1,)).commit is None


def test_nobody_is_told_to_stand_still_while_others_get_ready() -> None:
    assert decided(record(0, SOON), ready=SOON - 1).commit is None
    first = decided(record(0, SOON), ready=SOON).commit
    assert first is not None and (first.record.paused, first.record.ready) == (SOON, SOON)
    ready = 2 * SOON
    assert decided(record(SOON, ready), restored=SOON, ready=ready - 1).commit is None
    next_one = decided(record(SOON, ready), restored=SOON, ready=ready).commit
    assert next_one is not None and next_one.record.paused == ready
    late = decided(record(0, SOON), ready=SOON - 1, expired=((PREPARE, SOON - 1),)).commit
    assert late is not None and late.record.tasks[SOON - 1].outcome is Outcome.ROLLED_BACK
    assert late.record.paused == SOON, "they wait no longer than for it to be ready in time"


def test_a_pause_beside_others_that_get_ready_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    given = module._paused
    monkeypatch.setattr(module, "_paused", lambda record, *of: given(replace(record, ready=1), *of))
    with pytest.raises(AssertionError):
        test_nobody_is_told_to_stand_still_while_others_get_ready()


def test_tasks_with_large_states_get_ready_one_after_the_other() -> None:
    first = decided(record(0), ready=1, ahead=(1,)).commit
    assert first is None, "it has not been fetched yet"
    assert decided(record(1), ready=1, ahead=(1,)).commit is None, "somebody stands still"
    after = decided(record(1), restored=1, ready=1, ahead=(1,)).commit
    assert after is not None and (after.record.paused, after.record.ready) == (1, 2)
    assert decided(after.record, restored=1, ready=1, ahead=(1,)).commit is None


def test_only_a_task_that_is_not_ready_in_time_goes_back() -> None:
    late = tuple((PREPARE, n) for n in range(COUNT))
    back = decided(record(1, ready=4), restored=0, ready=3, expired=late).commit
    assert back is not None
    (gone,) = [t for t in back.record.tasks if t.outcome is Outcome.ROLLED_BACK]
    wanted = (
        f"worker {worker_of(gone.source)}, to find out how large its state is, and to ask the stores for room"
    )
    assert (gone.task, gone.reason) == (4, f"it was not ready in time: it still waited for {wanted}")


def test_only_a_task_that_is_not_saved_in_time_goes_back() -> None:
    late = tuple((PAUSE, n) for n in range(COUNT))
    back = decided(record(2, ready=4), restored=1, ready=4, expired=late).commit
    assert back is not None
    gone = [t for t in back.record.tasks if t.outcome is Outcome.ROLLED_BACK]
    wanted = f"worker {worker_of(gone[0].source)}, to have all fences and to save it"
    assert [(t.task, t.reason) for t in gone] == [
        (2, f"it was not saved in time: it still waited for {wanted}")
    ]
    assert back.record.tasks[0].outcome is Outcome.COMMITTED, "what has come stays"
    found = decided(record(4, ready=4), restored=1, ready=4, expired=((PAUSE, 1),))
    assert [n for kind, n in found.timers if kind == PAUSE] == [2], "whose turn it is by that has its time"


def test_batches_that_may_pause_do_so_one_after_the_other() -> None:
    made = record(COUNT, COUNT)
    for restored in range(COUNT):
        found = decided(made, restored=restored, ready=COUNT)
        marks = marked(restored=restored, ready=COUNT)
        assert turn_of(made, marks) == restored
        phases = [stage_of(t, made, marks, restored)[0] for t in made.tasks]
        left = COUNT - restored - 1
        assert phases == [Phase.RESTORED] * restored + [Phase.PAUSED] + [Phase.PREPARING] * left
        paused = [n for kind, n in found.timers if kind == PAUSE]
        assert paused == [restored], "who waits for a turn has time"


def test_who_has_an_outcome_keeps_nobody_from_a_turn() -> None:
    made = record(COUNT, COUNT)
    back = replace(made.tasks[0], outcome=Outcome.ROLLED_BACK)
    assert turn_of(made, {}) == 0
    assert turn_of(replace(made, tasks=(back, *made.tasks[1:])), {}) == 1
    assert turn_of(replace(made, tasks=(back, *made.tasks[1:])), marked(restored=COUNT, ready=COUNT)) == COUNT


def test_outcomes_are_written_when_the_stream_has_settled() -> None:
    assert (SETTLE, 2) not in decided(record(2), restored=1, ready=2).timers, "it has not all of that time"
    last = decided(record(COUNT, COUNT), restored=COUNT, ready=COUNT)
    assert last.timers == ((SETTLE, COUNT),) and outcomes(last) == 0
    settled = decided(record(COUNT, COUNT), restored=COUNT, ready=COUNT, expired=last.timers)
    assert not settled.timers and outcomes(settled) == COUNT


def test_of_a_task_whose_process_has_ended_nobody_says_that_it_stays() -> None:
    """Also where there is no room for reasons."""
    marks = {A: Marked(Marks(A, asked=(1,)), 0), B: Marked(Marks(B, prepared={1: 1}), 0)}
    made = replace(record(1), tasks=record(1).tasks[:1])
    back = decide(made, 0, marks, HOSTS[1:], ())
    assert back.commit is not None and len(ENDED) <= len(BRIEF)
    (task,) = back.commit.record.brief().tasks
    assert (task.outcome, task.reason) == (Outcome.ROLLED_BACK, ENDED)
    assert [(s.kind, s.message) for s in back.says] == [
        (
            "task-move-rolled-back",
            "Task 1 starts anew, without any state that it had: the process of worker t@a/0 has ended.",
        )
    ]
    both = decide(replace(made, abort="an operator aborted the move"), 0, marks, HOSTS[1:], ())
    assert both.says == back.says, "that it was aborted as well changes nothing"
    (said,) = decide(made, 0, marks, HOSTS[:1], ()).says
    assert said.message.startswith("Task 1 stays in worker t@a/0: worker t@b/0, where it was to go,")


def test_all_stores_that_got_something_are_known_whoever_restores_it() -> None:
    """Saved at a and b; b's process dies, then c's, and then d's: what is decided of it is in the record."""
    a, b, c, d, e = (Host(WorkerId(f"t@{n}/0"), Incarnation(f"t@{n}/0#1"), NodeId(n), 0) for n in "abcde")
    task = TaskMove(TaskId(1), "c", A, B, a.node, b.node)
    made = MoveRecord(TopologyName("t"), Epoch(1), "", (task,), 1)
    marks = {
        A: Marked(Marks(A, (1,), saved={1: SavedMark((a.node, b.node), 9)}), 1),
        B: Marked(Marks(B, prepared={1: 1}), 1),
    }
    for living, nodes in (((c,), "abc"), ((d,), "abcd"), ((e,), "abcde")):
        found = decide(made, 0, marks, living, ())
        assert found.commit is not None
        marks |= {m.incarnation: Marked(m.marks, 2) for m in found.commit.marks}
        made = read(written(found.commit.record), MoveRecord)
        assert made.tasks[0].target == living[0].incarnation and made.nodes() == tuple(nodes)


def test_a_record_of_before_stores_were_named_is_read() -> None:
    made = record(1)
    assert b'"stores":[]' in written(made)
    assert read(written(made).replace(b'"stores":[],', b""), MoveRecord) == made


def _saved(attempt: int, target: Incarnation, stores: tuple[str, ...], target_node: str) -> MoveRecord:
    made = record(1)
    task = replace(
        made.tasks[0],
        attempt=attempt,
        target=target,
        target_node=NodeId(target_node),
        stores=tuple(map(NodeId, stores)),
    )
    return replace(made, tasks=(task,))


def life(worker: str, number: int = 1) -> Incarnation:
    return Incarnation(f"t@{worker}#{number}")


def host(worker: str, load: int = 0, number: int = 1) -> Host:
    return Host(WorkerId(f"t@{worker}"), life(worker, number), NodeId(worker.split("/")[0]), load)


def tried(
    hosts: tuple[Host, ...], fails: Callable[[Incarnation], bool], times: int, first: Incarnation = B
) -> list[str]:
    """Where a saved task is tried, until it does not fail. The first to have tried it has ended."""
    made = _saved(1, first, (), "b")
    marks = {
        A: Marked(Marks(A, saved={1: SavedMark((NodeId("a"), NodeId("b")), 9)}), 0),
        first: Marked(Marks(first), 0),
    }
    expired: set[tuple[str, int]] = set()
    went: list[str] = []
    for n in range(times):
        found = decide(made, n, marks, hosts, expired)
        expired.update(t for t in found.timers if t[0] == "again")
        if found.commit is None:
            continue
        made = found.commit.record
        for change in found.commit.marks:
            marks[change.incarnation] = Marked(change.marks, n)
        target = made.tasks[0].target
        went.append(worker_of(target))
        if not fails(target):
            break
        now = marks[target].marks
        failed = {**now.failed, 1: FailedMark(made.tasks[0].attempt, "no such file")}
        marks[target] = Marked(replace(now, failed=failed), n)
    return went


def test_a_worker_that_could_not_comes_after_all_others() -> None:
    """Two on the node that has the state cannot, for good."""
    hosts = host("a/1", 50), host("a/2", 50), host("c/0")
    assert tried(hosts, lambda i: "@c/" not in i, 40) == ["t@a/1", "t@a/2", "t@c/0"]
    everywhere = tried(hosts, lambda i: True, 14)
    assert everywhere[:3] == everywhere[3:6] == ["t@a/1", "t@a/2", "t@c/0"], "and then once more, each"


def test_the_next_life_of_a_worker_comes_before_all_others() -> None:
    """Where the task was to go; also when others have the state, which it has not, and nothing to do."""
    again = host("c/0", 50, number=2)
    others = host("b/0"), host("a/1"), host("d/0")
    assert tried((again, *others), lambda i: False, 1, first=life("c/0")) == ["t@c/0"]
    assert tried(others, lambda i: False, 1, first=life("c/0")) in (["t@a/1"], ["t@b/0"]), "it has the state"


def test_of_several_nodes_one_that_has_the_state_is_chosen() -> None:
    made = _saved(2, life("c/0"), ("a", "b"), "c")
    source = Marks(A, saved={1: SavedMark((NodeId("a"), NodeId("b")), 9)})
    failed = Marks(life("c/0"), failed={1: FailedMark(2, "x")})
    marks = {A: Marked(source, 0), life("c/0"): Marked(failed, 0)}
    found = decide(made, 0, marks, (host("c/1"), host("b/1")), ()).commit
    assert found is not None and found.record.tasks[0].target == life("b/1")


def test_tasks_that_lose_their_new_side_together_are_shared_out() -> None:
    tasks = tuple(replace(t, batch=0) for t in record(1).tasks[:6])
    made = replace(record(1), tasks=tasks)
    saved = {int(t.task): SavedMark((NodeId("c"),), 9) for t in tasks}
    marks = {A: Marked(Marks(A, saved=saved), 0), B: Marked(Marks(B), 0)}
    found = decide(made, 0, marks, (host("c/0"), host("c/1"), host("c/2")), ()).commit
    assert found is not None
    targets = [t.target for t in found.record.tasks]
    assert {t: targets.count(t) for t in targets} == {life(f"c/{n}"): 2 for n in range(3)}


def ended_by_it(rests: int) -> list[str]:
    """Where it is tried when each process that does so ends, and so many rests are over."""
    lives = dict.fromkeys((f"n{n}/0" for n in range(4)), 1)
    made = _saved(1, life("n1/0"), (), "n1")
    marks = {
        A: Marked(Marks(A, saved={1: SavedMark((NodeId("a"),), 9)}), 0),
        life("n1/0"): Marked(Marks(life("n1/0")), 0),
    }
    expired: set[Timer] = set()
    went: list[str] = []
    for n in range(60):
        ended = made.tasks[0].target
        worker = worker_of(ended).split("@")[1]
        lives[worker] = int(ended.rpartition("#")[2]) + 1
        # The worker of the one that has ended is not there again yet.
        hosts = tuple(host(w, number=number) for w, number in lives.items() if w != worker)
        found = decide(made, n, marks, hosts, expired)
        if found.commit is None:
            assert again_timer(made.tasks[0]) in found.timers
            if len(expired) == rests:
                break
            expired.add(again_timer(made.tasks[0]))
            continue
        made = found.commit.record
        for change in found.commit.marks:
            marks[change.incarnation] = Marked(change.marks, n)
        went.append(worker_of(made.tasks[0].target))
    return went


def test_a_state_that_ends_each_process_keeps_nobody_busy() -> None:
    """As one that each process refuses; and all have their turn."""
    assert len(ended_by_it(0)) == AT_ONCE - 1
    assert len(ended_by_it(6)) == AT_ONCE - 1 + 6
    assert set(ended_by_it(6)) == {f"t@n{n}/0" for n in range(4)}


def test_what_is_restored_where_the_process_has_ended_is_not_said_to_run() -> None:
    said = [s.message for s in decided(record(1), restored=1, ready=1, hosts=HOSTS[:1]).says if s.task == 1]
    assert said and "has ended since: it starts anew" in said[0]
    lives = decided(replace(record(1), abort="stop"), restored=1, ready=1)
    assert ["runs in worker t@b/0 now" in s.message for s in lives.says if s.task == 1] == [True]
