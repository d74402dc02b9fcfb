"""What is known of moves: who waits for changes, when an end is told, and what all of them came to."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.migration.record import ENDED, Marked, Marks, MoveRecord, Outcome, TaskMove
from elastic.model.events import Event, Severity
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, StreamId, TaskId, TopologyName
from elastic.model.topology import ComponentSpec, InputSpec, StreamSpec, TopologySpec
from elastic.model.views import MoveView
from elastic.nimbus.moves.move_history import MoveHistory
from elastic.nimbus.moves.move_log import MoveLog
from elastic.nimbus.observing.facts import MoveFacts
from elastic.nimbus.stories import move_ended

T = TopologyName("t")
A, B = Incarnation("t@n1/0#1"), Incarnation("t@n2/0#1")
LINES, COUNT = ComponentId("lines"), ComponentId("count")
SPEC = TopologySpec(
    T,
    (
        ComponentSpec(LINES, "spout", 1, 1, outputs=(StreamSpec(StreamId("default"), ()),)),
        ComponentSpec(
            COUNT,
            "bolt",
            2,
            2,
            inputs=(InputSpec(LINES, StreamId("default"), Grouping(GroupingKind.SHUFFLE)),),
        ),
    ),
)

PLACED: Any = SimpleNamespace(place_of=lambda: {1: "t@n1/0", 2: "t@n1/0", 3: "t@n2/0"})


def record(epoch: int = 1, outcome: Outcome = Outcome.OPEN, *tasks: int) -> MoveRecord:
    moving = tuple(
        TaskMove(TaskId(n), str(COUNT), A, B, NodeId("n1"), NodeId("n2"), outcome=outcome)
        for n in tasks or (2, 3)
    )
    return MoveRecord(T, Epoch(epoch), "why not", moving, began=10.0)


def facts(*records: MoveRecord, id: str = "t-1") -> Any:
    moves = {r.epoch: MoveFacts(r, 0) for r in records}
    return SimpleNamespace(
        name=T, state=SimpleNamespace(id=id), moves=moves, spec=SPEC, workers={}, assignment=PLACED
    )


def step(task: int, step: str, at: float = 11.0, epoch: int = 1, worker: str = "", **more: float) -> Event:
    details: dict[str, str | int | float] = {"epoch": epoch, "step": step, "at": at, **more}
    return Event(at, "move-step", "", topology=T, task=task, worker=worker, details=details)


def test_changes_are_what_has_changed_since() -> None:
    log = MoveLog(kept=5, linger=2)
    assert log.changes(0, 0)[1] == ()
    log.see(facts(record(1), record(2)), 10.0)
    seen, views = log.changes(0, 0)
    assert [v.epoch for v in views] == [1, 2]
    log.see(facts(record(1), record(2)), 10.5)
    assert log.changes(seen, 0) == (seen, ()), "nothing is news"
    log.step(step(2, "paused"))
    seen, views = log.changes(seen, 0)
    assert [v.epoch for v in views] == [1] and dict(views[0].tasks[0].times) == {"paused": 11.0}
    log.see(facts(record(1), replace(record(2), abort="no")), 11.0)
    seen, views = log.changes(seen, 0)
    assert [(v.epoch, v.state) for v in views] == [(2, "aborting")]
    assert log.changes(0, 0, TopologyName("other"))[1] == ()


def test_who_waits_for_changes_is_woken_by_one_and_by_the_end() -> None:
    log = MoveLog(kept=5, linger=2)
    found: list[int] = []
    waiting = [
        threading.Thread(target=lambda: found.append(len(log.changes(0, 60)[1]))),
        threading.Thread(target=lambda: found.append(len(log.changes(1 << 62, 60)[1]))),
    ]
    for thread in waiting:
        thread.start()
    log.see(facts(record()), 10.0)
    waiting[0].join(30)
    assert found == [1]
    log.close()
    waiting[1].join(30)
    assert found == [1, 0]


def test_an_end_is_told_before_it_is_shown() -> None:
    log = MoveLog(kept=5, linger=0)
    log.see(facts(record(1, Outcome.COMMITTED)), 11.0)
    told: list[str] = []
    seen: list[tuple[str, list[str]]] = []
    reader = threading.Thread(target=lambda: seen.append((log.views(T)[0].state, list(told))))

    def tell(view: MoveView) -> None:
        reader.start()
        reader.join(0.2)  # the time that it would need to see the end too early
        told.append(view.state)

    assert len(log.see(facts(), 12.0, tell)) == 1
    reader.join(30)
    assert seen == [("ended", ["ended"])]


def test_an_end_is_told_once_the_last_measurements_are_there() -> None:
    log = MoveLog(kept=5, linger=2)
    log.see(facts(record()), 10.0)
    log.see(facts(record(1, Outcome.COMMITTED)), 11.0)
    assert log.see(facts(), 12.0) == []
    (view,) = log.views(T)
    assert (view.state, view.ended) == ("closing", 0.0)
    assert log.next_deadline() == 14.0 and log.totals(T).moves == 0
    log.step(step(2, "resumed", pause_ms=20.0))
    assert log.see(facts(), 12.1) == [], "task 3 has not resumed"
    log.step(step(3, "resumed", pause_ms=700.0))
    assert log.see(facts(), 12.1) == [], "neither side has said anything yet"
    for task in (2, 3):
        log.step(step(task, "saved", bytes=7))
        log.step(step(task, "begun"))
    (told,) = log.see(facts(), 12.2)
    assert (told.state, told.ended) == ("ended", 12.0)
    assert log.see(facts(), 20.0) == [] and log.views(T) == (told,)
    seen, _ = log.changes(0, 0)
    assert log.step(step(3, "resumed", at=73.0, pause_ms=73_000.0))
    assert log.views(T) == (told,) and log.changes(seen, 0) == (seen, ()), (
        "what was told stays as it was told"
    )


@pytest.mark.parametrize("outcome", [Outcome.ROLLED_BACK, Outcome.LOST, Outcome.COMMITTED])
def test_an_end_is_told_when_nothing_more_comes(outcome: Outcome) -> None:
    log = MoveLog(kept=5, linger=2)
    log.see(facts(record(1, outcome)), 11.0)
    told = log.see(facts(), 12.0)
    assert bool(told) == (outcome is not Outcome.COMMITTED)
    assert told or log.see(facts(), 14.0)


def test_an_end_waits_for_those_behind_what_has_moved() -> None:
    """The spout has tasks behind it, and none before it."""
    log = MoveLog(kept=5, linger=2)
    for epoch, last in ((1, "received"), (2, "unheard")):
        log.see(facts(record(epoch, Outcome.COMMITTED, 1)), 11.0)
        assert log.see(facts(), 12.0) == []
        log.step(step(1, "saved", epoch=epoch))
        log.step(step(1, "begun", epoch=epoch))
        for worker, what, at, ms in (("t@n2/0", last, 11.2, 30.0), ("t@n1/0", last, 11.1, 40.0)):
            assert log.see(facts(), 12.1) == [], "not all have said for how long nothing came"
            log.step(step(1, what, at, epoch, worker, gap_ms=ms))
        (told,) = log.see(facts(), 12.2)
        (task,) = told.tasks
        if last == "received":
            assert (task.gap, task.times["received"]) == (0.04, 11.2), "the longest, the last"
            ended = move_ended(told)
            assert ended.details["gap_ms"] == 40.0 and "at receivers 40 ms" in ended.message
        else:
            assert task.gap == 0.0 and set(task.times) == {"saved", "begun"}
    totals = log.totals(T)
    assert (totals.gap_sum, totals.gap_max) == (0.04, 0.04)
    assert (totals.gaps["0.025"], totals.gaps["0.05"], totals.gaps["+Inf"]) == (0, 1, 1), "what is known"


def test_an_end_does_not_wait_for_those_who_came_behind_it_by_the_same_move() -> None:
    """They have nothing to compare with, and say nothing. Who has others behind it that stayed says it."""
    log = MoveLog(kept=5, linger=2)
    both = record(1, Outcome.COMMITTED, 1, 3)
    log.see(facts(replace(both, tasks=(replace(both.tasks[0], component=str(LINES)), both.tasks[1]))), 11.0)
    for task in (1, 3):
        log.step(step(task, "saved"))
        log.step(step(task, "begun"))
    log.step(step(3, "resumed"))
    assert log.see(facts(), 12.0) == [], "of task 2 it has not been said"
    log.step(step(1, "received", worker="t@n1/0"))
    assert len(log.see(facts(), 12.1)) == 1


@pytest.mark.parametrize("outcome", [Outcome.ROLLED_BACK, Outcome.LOST])
def test_the_pause_of_what_does_not_move_is_told_with_the_end(outcome: Outcome) -> None:
    """Who sends to it goes on when it reads the outcome, which is when the move ends, too."""
    log = MoveLog(kept=5, linger=2)
    log.see(facts(replace(record(1, outcome), paused=1, abort="no")), 11.0)
    assert log.see(facts(), 12.0) == [], "its emitters have not said that they go on"
    for task, ms in ((2, 18_664.0), (3, 5.0)):
        log.step(step(task, "resumed", pause_ms=ms))
    (told,) = log.see(facts(), 12.1)
    assert [t.pause for t in told.tasks] == [18.664, 0.005]
    assert move_ended(told).details["pause_ms"] == 18_664.0


def test_what_goes_back_before_its_pause_keeps_no_end_waiting() -> None:
    """A batch counts as paused as soon as nobody of it is left to be paused."""
    log = MoveLog(kept=5, linger=2)
    log.see(facts(record(1)), 10.0)
    log.see(facts(replace(record(1, Outcome.ROLLED_BACK), paused=1)), 11.0)
    assert len(log.see(facts(), 11.0)) == 1


@pytest.mark.parametrize("stateful", [True, False])
def test_what_ended_with_its_process_is_not_said_to_be_where_it_was(stateful: bool) -> None:
    log = MoveLog(kept=5, linger=0)
    shown = facts(record(1))
    shown.spec = replace(
        SPEC, components=(SPEC.components[0], replace(SPEC.components[1], stateful=stateful))
    )
    log.see(shown, 10.0)
    tasks = tuple(replace(t, outcome=Outcome.ROLLED_BACK, reason=ENDED) for t in record(1).tasks)
    for moves in ({1: MoveFacts(replace(record(1), tasks=tasks), 0)}, {}):
        shown.moves = moves
        log.see(shown, 11.0)
    (view,) = log.views(T)
    reason = "its worker's process has ended; it starts anew"
    with_state = ("lost", reason + ", without its state", 2, 0, "0 tasks moved, 2 lost their state")
    without = ("started anew", reason, 0, 2, "0 tasks moved, 2 started anew")
    phase, reason, lost, back, says = with_state if stateful else without
    assert [(t.phase, t.reason) for t in view.tasks] == [(phase, reason)] * 2
    totals, ended = log.totals(T), move_ended(view)
    assert (totals.committed, totals.rolled_back, totals.lost) == (0, back, lost)
    assert (ended.details["rolled_back"], ended.details["lost"]) == (back, lost)
    assert says in ended.message and ended.severity is Severity.WARNING


def test_what_is_restored_where_it_came_from_has_not_moved() -> None:
    log = MoveLog(kept=5, linger=0)
    back = replace(record(1, Outcome.COMMITTED, 2).tasks[0], target=Incarnation("t@n1/0#2"), attempt=2)
    both = record(1, Outcome.COMMITTED)
    log.see(facts(replace(both, tasks=(back, both.tasks[1]))), 11.0)
    (told,) = log.see(facts(), 12.0)
    totals, ended = log.totals(T), move_ended(told)
    assert (totals.committed, totals.rolled_back, totals.lost) == (1, 1, 0)
    assert ended.message.endswith("1 task moved, 1 came back; 0 bytes"), "of pauses nothing is known"
    assert (ended.details["moved"], ended.details["came_back"], ended.details["rolled_back"]) == (1, 1, 0)
    assert ended.severity is Severity.WARNING


def test_totals_add_up_and_begin_anew_with_another_topology() -> None:
    log = MoveLog(kept=1, linger=0)
    log.see(facts(record()), 10.0)
    for task, ms in ((2, 20.0), (3, 700.0)):
        log.step(step(task, "saved", bytes=100))
        log.step(step(task, "resumed", pause_ms=ms))
    log.see(facts(record(1, Outcome.COMMITTED)), 11.0)
    log.see(facts(), 12.0)
    for epoch, outcome in ((2, Outcome.ROLLED_BACK), (3, Outcome.LOST)):
        log.see(facts(record(epoch, outcome, 2)), 13.0)
        log.see(facts(), 14.0)
    total = log.totals(T)
    assert (total.moves, total.committed, total.rolled_back, total.lost, total.size) == (3, 2, 1, 1, 200)
    assert (total.pause_sum, total.pause_max) == (pytest.approx(0.72), 0.7)
    assert [total.pauses[b] for b in ("0.01", "0.025", "0.5", "1", "10", "+Inf")] == [0, 1, 1, 2, 2, 2]
    assert len(log.views(T)) == 1, "only so many are kept, and all are counted"
    log.see(facts(record(4), id="t-2"), 15.0)
    assert log.totals(T).moves == 0
    log.forget(T)
    assert log.views() == () and log.totals(T).moves == 0


def test_the_next_leader_on_the_machine_knows_what_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "moves.jsonl"
    first = MoveHistory(path, 2)
    log = MoveLog(kept=2, linger=0, history=first)
    for epoch in (1, 2, 3):
        log.see(facts(record(epoch, Outcome.COMMITTED)), 10.0 + epoch)
        log.step(step(2, "resumed", epoch=epoch, pause_ms=20.0))
        log.see(facts(), 11.0 + epoch)
    first.close()
    with path.open("ab") as file:
        file.write(b'{"id": "t-1", "mo')
    second = MoveHistory(path, 2)
    second.load()
    log, before = MoveLog(kept=2, linger=0, history=second), log
    assert log.views() == (), "the topology may be gone"
    log.see(facts(), 20.0)
    assert log.views() == before.views() and [v.epoch for v in log.views(T)] == [3, 2], "as many as are kept"
    assert log.views(T)[0].tasks[0].pause == 0.02
    seen, changed = log.changes(0, 0)
    assert [v.epoch for v in changed] == [2, 3] and log.changes(seen, 0, T) == (seen, ())
    log.see(facts(record(4)), 21.0)
    assert [v.state for v in log.views(T)] == ["running", "ended", "ended"]
    log.see(facts(), 22.0)
    assert [v.epoch for v in log.views(T)] == [4, 3]
    other = MoveLog(kept=2, linger=0, history=second)
    other.see(facts(id="t-2"), 20.0)
    assert other.views() == (), "another topology of that name"
    log.forget(T)
    assert log.views() == ()


def test_of_topologies_that_are_gone_nothing_is_kept(tmp_path: Path) -> None:
    first = MoveHistory(tmp_path / "moves.jsonl", 2)
    for id in ("t-1", "t-2"):
        log = MoveLog(kept=2, linger=0, history=first)
        log.see(facts(record(1, Outcome.COMMITTED), id=id), 10.0)
        log.see(facts(id=id), 11.0)
    first.close()
    second = MoveHistory(tmp_path / "moves.jsonl", 2)
    second.load()
    unread: Any = SimpleNamespace(topologies={}, elsewhere={T: PLACED})
    second.keep(unread)
    assert len(second.of(T, "t-1")) == 1, "whose it is is not known yet"
    there: Any = SimpleNamespace(topologies={T: facts(id="t-2")}, elsewhere={})
    second.keep(there)
    assert second.of(T, "t-1") == () and len(second.of(T, "t-2")) == 1


def test_what_workers_say_of_tasks_that_stand_is_said_until_they_go_on() -> None:
    log = MoveLog(kept=5, linger=2)
    log.see(facts(record(1)), 10.0)
    details: dict[str, str | int | float] = {"epoch": 1, "tasks": "2,3", "for": "the fence of task 1"}
    log.stands(Event(11.0, "move-stands", "", topology=T, worker="t@n1/0", details=details))
    # What Nimbus says itself it knows of without that.
    log.stands(Event(11.0, "move-stands", "", topology=T, details={**details, "for": "Nimbus"}))
    log.stands(Event(11.0, "move-stands", "", topology=T, worker="t@n1/0", details={**details, "epoch": 7}))
    log.stands(Event(11.0, "worker-lost", "", topology=T, details=details))

    def said() -> list[str]:
        return [w for w in log.waits(T) if "fence of task 1" in w]

    assert said() == ["move 1: 2 tasks (2 to 3) wait in worker t@n1/0 for the fence of task 1"]
    assert not any("for Nimbus" in w and "in worker" in w for w in log.waits(T))
    waits = log.views(T)[0].waits
    assert waits[0] in said()[0] and len(waits) > 1, "before what is known of them without that"
    one = replace(record(1).tasks[0], outcome=Outcome.ROLLED_BACK)
    log.see(facts(replace(record(1), tasks=(one, record(1).tasks[1]))), 12.0)
    assert said() == ["move 1: task 3 waits in worker t@n1/0 for the fence of task 1"]
    log.see(facts(), 13.0)
    assert said() == []


def test_tasks_that_stand_for_the_same_are_said_together_whenever_they_were_told_of() -> None:
    log = MoveLog(kept=5, linger=2)
    log.see(facts(record(1)), 10.0)

    def stands(tasks: str, what: str) -> None:
        details: dict[str, str | int | float] = {"epoch": 1, "tasks": tasks, "for": what}
        log.stands(Event(11.0, "move-stands", "", topology=T, worker="w", details=details))

    def said() -> list[str]:
        return [w for w in log.waits(T) if "in worker" in w]

    stands("3", "its state")
    stands("2", "its state")
    assert said() == ["move 1: 2 tasks (2 to 3) wait in worker w for its state"]
    stands("2", "its state")
    assert said() == ["move 1: 2 tasks (2 to 3) wait in worker w for its state"], "said again"
    stands("3", "the fence")
    assert said() == [
        "move 1: task 2 waits in worker w for its state",
        "move 1: task 3 waits in worker w for the fence",
    ]


def test_what_is_said_of_a_move_that_has_ended_comes_too_late() -> None:
    log = MoveLog(kept=5, linger=2)
    log.see(facts(record(1, Outcome.COMMITTED)), 10.0)
    log.see(facts(), 11.0)
    details: dict[str, str | int | float] = {"epoch": 1, "tasks": "2", "for": "its state"}
    seen, _ = log.changes(0, 0)
    log.stands(Event(12.0, "move-stands", "", topology=T, worker="w", details=details))
    assert log.views(T)[0].waits == () and log.changes(seen, 0) == (seen, ())


def test_what_a_worker_says_is_over_is_said_no_more_and_what_others_say_stays() -> None:
    log = MoveLog(kept=5, linger=2)
    log.see(facts(record(1)), 10.0)

    def tell(kind: str, worker: str, tasks: str) -> None:
        details: dict[str, str | int | float] = {"epoch": 1, "tasks": tasks, "for": "its executor"}
        log.stands(Event(11.0, kind, "", topology=T, worker=worker, details=details))

    def said() -> list[str]:
        return [w for w in log.waits(T) if "in worker" in w]

    tell("move-stands", "t@n1/0", "2,3")
    tell("move-stands", "t@n2/0", "2")
    seen, _ = log.changes(0, 0)
    tell("move-goes-on", "t@n1/0", "2")
    assert log.changes(seen, 0)[1], "that is news"
    assert said() == [
        "move 1: task 3 waits in worker t@n1/0 for its executor",
        "move 1: task 2 waits in worker t@n2/0 for its executor",
    ]
    tell("move-goes-on", "t@n1/0", "3")
    assert said() == ["move 1: task 2 waits in worker t@n2/0 for its executor"]


def test_what_a_worker_said_that_has_ended_is_said_no_more() -> None:
    log = MoveLog(kept=5, linger=2)
    there = facts(record(1))
    there.workers = {"t@n1/0": SimpleNamespace(incarnation=A), "t@n2/0": SimpleNamespace(incarnation=B)}
    log.see(there, 10.0)
    for worker in there.workers:
        details: dict[str, str | int | float] = {"epoch": 1, "tasks": "2", "for": "its executor"}
        log.stands(Event(11.0, "move-stands", "", topology=T, worker=worker, details=details))
    later = facts(record(1))
    later.workers = {"t@n1/0": there.workers["t@n1/0"]}
    log.see(later, 12.0)
    assert [w for w in log.waits(T) if "in worker" in w] == [
        "move 1: task 2 waits in worker t@n1/0 for its executor"
    ]


def test_a_task_that_has_told_that_it_is_prepared_is_not_said_to_wait_for_that() -> None:
    """Marks of several tasks are written together: those that are ready wait for the others, and not for their worker."""
    log = MoveLog(kept=5, linger=2)
    here = facts(record(1))
    marks = Marks(A, asked=(2, 3))
    here.moves[Epoch(1)] = MoveFacts(record(1), 0, {A: Marked(marks, 0)})
    log.see(here, 10.0)
    assert log.waits(T) == ["move 1: 2 tasks (2 to 3) wait for worker t@n2/0, to prepare it"]
    log.step(step(2, "prepared"))
    assert log.waits(T) == [
        "move 1: task 2 waits for the other tasks of its batch, to be ready",
        "move 1: task 3 waits for worker t@n2/0, to prepare it",
    ]


def test_a_task_whose_turn_it_is_waits_for_those_that_get_ready_with_it() -> None:
    log = MoveLog(kept=5, linger=2)
    first, second, third = record(1, Outcome.OPEN, 2, 3, 4).tasks
    going = replace(record(1), tasks=(first, replace(second, batch=1), replace(third, batch=2)), ready=2)
    here = facts(going)
    marks = Marks(A, asked=(2, 3)), Marks(B, prepared={2: 1})
    here.moves[Epoch(1)] = MoveFacts(going, 0, {m.incarnation: Marked(m, 0) for m in marks})
    log.see(here, 10.0)
    assert log.waits(T) == [
        "move 1: task 2 waits for others that get ready with it: nobody stands still meanwhile",
        "move 1: task 3 waits for worker t@n2/0, to prepare it",
        "move 1: task 4 waits for batch 0 of 2, which comes before it",
    ]


def test_a_task_that_is_ready_before_its_turn_waits_for_the_batch_before_it() -> None:
    """By itself in its batch it has no others to wait for."""
    log = MoveLog(kept=5, linger=2)
    first, second, third = record(1, Outcome.OPEN, 2, 3, 4).tasks
    batches = (first, replace(second, batch=1), replace(third, batch=2))
    going = replace(record(1), tasks=batches, paused=1, ready=3)
    here = facts(going)
    marks = Marks(A, asked=(2, 3, 4)), Marks(B, prepared={2: 1, 3: 1, 4: 1})
    here.moves[Epoch(1)] = MoveFacts(going, 0, {m.incarnation: Marked(m, 0) for m in marks})
    log.see(here, 10.0)
    assert log.waits(T)[1:] == [
        "move 1: 2 tasks (3 to 4) wait for batch 0 of 2, which comes before it",
    ]


def test_a_topology_that_is_still_shown_for_a_moment_has_no_past_any_more(tmp_path: Path) -> None:
    first = MoveHistory(tmp_path / "moves.jsonl", 2)
    log = MoveLog(kept=2, linger=0, history=first)
    log.see(facts(record(1, Outcome.COMMITTED)), 10.0)
    log.see(facts(), 11.0)
    first.close()
    second = MoveHistory(tmp_path / "moves.jsonl", 2)
    second.load()
    log = MoveLog(kept=2, linger=0, history=second)
    log.see(facts(), 20.0)
    assert [v.epoch for v in log.views(T)] == [1]
    log.forget(T)
    log.see(facts(), 21.0)
    assert log.views() == ()


def test_whoever_follows_goes_on_with_the_log_of_the_next_leader() -> None:
    """It does not notice that there is another one, when that comes soon enough."""
    first = MoveLog(kept=5, linger=0)
    for epoch in range(1, 9):
        first.see(facts(record(epoch)), 10.0 + epoch)
    seen, _ = first.changes(0, 0)
    first.close()
    second = MoveLog(kept=5, linger=0)
    second.see(facts(record(9)), 20.0)
    assert [v.epoch for v in second.changes(seen, 0)[1]] == [9]


def test_an_end_that_waits_for_last_words_is_not_lost_with_the_leader(tmp_path: Path) -> None:
    history = MoveHistory(tmp_path / "moves.jsonl", kept=5)
    first = MoveLog(kept=5, linger=60, history=history)
    first.see(facts(record(1)), 10.0)
    first.see(facts(record(1, Outcome.COMMITTED)), 11.0)
    assert first.see(facts(), 12.0) == [], "the workers behind it have said nothing yet"
    assert [v.epoch for v in first.close()] == [1] and first.close() == []
    again = MoveHistory(tmp_path / "moves.jsonl", kept=5)
    again.load()
    second = MoveLog(kept=5, linger=60, history=again)
    second.see(facts(), 13.0)
    assert [(v.epoch, v.state) for v in second.views()] == [(1, "ended")]
