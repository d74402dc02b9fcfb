"""What a life of a worker writes down is taken over by the next one, whatever that one does first."""

from __future__ import annotations

import os
import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import Fields, KeyedState, Spout, StatefulBolt, TopologyBuilder
from elastic.cluster.keeping import Keeping
from elastic.cluster.worker_main import EXIT_SESSION, REACHED, WorkerProcess
from elastic.cluster.worker_progress import SINCE
from elastic.cluster.worker_states import States
from elastic.coordination import paths
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import Unavailable
from elastic.migration.record import Marks, MoveRecord, Outcome, TaskMove
from elastic.migration.view import MoveView, View
from elastic.model import codec
from elastic.model.assignment import Assignment, Lost
from elastic.model.ids import (
    ComponentId,
    Epoch,
    Incarnation,
    NodeId,
    TaskId,
    TopologyName,
    WorkerId,
    worker_of,
)
from elastic.model.records import Held, Progress
from elastic.supervisor.options import SupervisorOptions


class Numbers(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> None:
        pass


class Count(StatefulBolt):
    counts: KeyedState[int, int] = KeyedState(int)

    def execute(self, tup: Any) -> None:
        pass


W = WorkerId("t@n/0")
FIRST, SECOND = Incarnation(f"{W}#1"), Incarnation(f"{W}#2")
OTHER = WorkerId("t@m/0")
THERE = Incarnation(f"{OTHER}#9")
PATH = paths.worker_progress("t", W)  # type: ignore[arg-type]


@pytest.fixture
def life(tmp_path: Path) -> Any:
    b = TopologyBuilder("t", report_interval=7.5)
    b.spout("numbers", Numbers())
    b.bolt("count", Count(), tasks=4).fields("numbers", "n")
    service = MemoryZooKeeper()
    coordination = service.connect()
    held = Held(FIRST, 5, (2, 3))
    earlier = Progress(FIRST, 3, held=(held,), finished=(1,))  # type: ignore[arg-type]
    coordination.put(PATH, codec.encode(earlier))
    read, write = os.pipe()
    made: Any = WorkerProcess(
        spec=b.build().spec,
        id=W,
        incarnation=SECOND,
        coordination=coordination,
        store=None,  # type: ignore[arg-type]
        transport=None,  # type: ignore[arg-type]
        components=None,  # type: ignore[arg-type]
        report_fd=write,
        cycle=0,
        keeping=Keeping(None),
    )
    made.said, made.service = [], service
    made.on_event = made.said.append
    yield made
    service.close()
    os.close(read)
    os.close(write)


def standing() -> Any:
    """A task, as far as progress looks at it."""
    return SimpleNamespace(marks=SimpleNamespace(drained=0, finished=False))


def begins(life: Any, *tasks: int) -> None:
    """What was written down is carried out, as far as these tasks are concerned."""
    life.worker.tasks.update({n: standing() for n in tasks})
    life._progress.begun()


def test_it_measures_itself_as_often_as_its_topology_says(life: Any) -> None:
    assert life._voice._report() == 7.5


def test_a_task_that_comes_first_does_not_wipe_out_what_was_started(life: Any) -> None:
    life._progress.inherit()
    life.worker.will_start(4)  # a move brings it
    life._progress.write()
    stored = codec.decode(life._coordination.get(PATH).data, Progress)
    assert stored.incarnation == SECOND and stored.finished == (1,)
    assert stored.held == (Held(FIRST, 5, (2, 3)), Held(SECOND, 0, (4,)))
    assert lost(life, {2, 3, 5}) == {FIRST: "2, 3"}


def test_what_has_finished_anywhere_is_not_started_again(life: Any) -> None:
    """Whatever process it was in: what that has written down is read before the task begins. Nobody misses its state."""
    record = Progress(THERE, 4, finished=(3, 5))  # type: ignore[arg-type]
    life._coordination.put(paths.worker_progress("t", OTHER), codec.encode(record))  # type: ignore[arg-type]
    life._progress.begin({1, 2, 3, 4})
    assert [t for t in range(1, 6) if life.worker.history.has_finished(t)] == [1, 3]
    assert [e.details["tasks"] for e in life.said] == ["2"]


def test_a_failure_is_written_down_whatever_user_code_has_raised(life: Any) -> None:
    life.on_failure(
        "Task 3 of 'count' gave up: No such file: 'caf\udce9.txt'" + "x" * 10**6,
        "Traceback \ud83d" + "x" * 10**6,
    )
    life._progress.write()
    stored = codec.decode(life._coordination.get(PATH).data, Progress)
    assert "'caf\\udce9.txt'" in stored.failed and stored.trace.startswith("Traceback \\ud83d")
    assert len(stored.failed) + len(stored.trace) < 50_000


def lost(life: Any, starting: set[int]) -> dict[str, str]:
    """What would be said of tasks that start without their states: which of them, by who had them."""
    life.said.clear()
    states = life._progress._states
    known = dict(states._lost)
    life._progress._say_lost(starting, life._progress._records())
    states._lost = known
    assert all(e.kind == "state-lost" for e in life.said)
    return {e.details["before"]: e.details["tasks"] for e in life.said}


def elsewhere(life: Any, *held: Held) -> None:
    record = Progress(THERE, 4, held=held)  # type: ignore[arg-type]
    life._coordination.put(paths.worker_progress("t", OTHER), codec.encode(record))  # type: ignore[arg-type]


def test_the_life_is_named_that_had_the_state_last(life: Any) -> None:
    """Task 2 was lost here, and began anew elsewhere; task 3 came here after it had been there."""
    elsewhere(life, Held(THERE, 6, (2,)), Held(THERE, 4, (3,)))
    assert lost(life, {2, 3}) == {THERE: "2", FIRST: "3"}


def test_who_was_only_about_to_have_it_is_not_named(life: Any) -> None:
    elsewhere(life, Held(THERE, 0, (2, 4)))
    assert lost(life, {2, 4}) == {FIRST: "2", THERE: "4"}


def test_a_state_that_went_nowhere_is_lost_for_whoever_starts_the_task(life: Any) -> None:
    """The task was taken from this life without a move: it stays written down, with the same place among all writes."""
    life.worker.history.start(4)
    life.worker.tasks[4] = standing()
    life._progress.write(all_of_it=True)
    life._progress.write(all_of_it=True)  # since when, too
    (before,) = (h for h in codec.decode(life._coordination.get(PATH).data, Progress).held if 4 in h.tasks)
    assert before.since > 0
    del life.worker.tasks[4]
    life.worker.history.forsake(4)
    life.worker.assigned.epoch = Epoch(9)
    life._progress.write(all_of_it=True)
    stored = codec.decode(life._coordination.get(PATH).data, Progress)
    assert stored.epoch == 9 and before in stored.held


def held(life: Any) -> tuple[Held, ...]:
    """What it has written down."""
    return codec.decode(life._coordination.get(PATH).data, Progress).held


def has(life: Any, task: int) -> None:
    """A task begins here."""
    life.worker.will_start(task)
    life._progress.write()
    life.worker.tasks[task] = standing()


def leaves(life: Any, task: int) -> None:
    """It is no more here."""
    del life.worker.tasks[task]
    life.worker.history.leave(task)


def view(
    life: Any,
    *moves: tuple[int, Incarnation, Outcome],
    task: int = 2,
    source: Incarnation = FIRST,
    living: tuple[Incarnation, ...] = (),
) -> None:
    """Moves of a task to these lives; what was lost on its way comes from elsewhere."""
    records = [
        MoveRecord(
            TopologyName("t"),
            Epoch(epoch),
            "",
            (
                TaskMove(
                    TaskId(task),
                    ComponentId("count"),
                    THERE if outcome is Outcome.LOST else source,
                    target,
                    NodeId("n"),
                    NodeId("m"),
                    outcome=outcome,
                ),
            ),
        )
        for epoch, target, outcome in moves
    ]
    life._on_view(
        View(
            life.worker.moves.participant.view.number + 1,
            2,
            tuple(map(MoveView, records)),
            {},
            {worker_of(i): i for i in living},
        ),
        (),
    )


def test_who_a_task_has_moved_to_is_named_before_it_has_said_since_when(life: Any) -> None:
    """Both sides of the move ended before the one had written that the task is no more there, and the other since when it is."""
    elsewhere(life, Held(THERE, 0, (2, 3)))
    view(life, (1, THERE, Outcome.COMMITTED))
    assert lost(life, {2, 3}) == {THERE: "2", FIRST: "3"}
    for moves in (
        [(1, THERE, Outcome.ROLLED_BACK)],
        [(1, THERE, Outcome.COMMITTED), (2, FIRST, Outcome.COMMITTED)],
        [(1, THERE, Outcome.COMMITTED), (2, FIRST, Outcome.LOST)],
    ):
        view(life, *moves)
        assert lost(life, {2, 3}) == {FIRST: "2, 3"}, moves


def test_what_a_move_has_lost_is_said_once(life: Any) -> None:
    """Nimbus says it. Should it be lost again, whoever had begun it since is named."""
    elsewhere(life, Held(THERE, 6, (2, 3)))
    view(life, (1, SECOND, Outcome.LOST))
    assert lost(life, {2}) == {} and lost(life, {2, 3}) == {THERE: "3"}
    view(life)
    assert lost(life, {2}) == {}, "the record of the move has gone before the task begins anew"
    life._progress.begin({2})
    assert lost(life, {2}) == {}, "it has not begun yet"
    begins(life, 2)
    assert lost(life, {2}) == {THERE: "2"}, "it came back to the same life, and ended with it"
    again = Incarnation(f"{OTHER}#10")
    elsewhere(life, Held(THERE, 6, (3,)), Held(again, 7, (2,)))
    assert lost(life, {2, 3}) == {again: "2", THERE: "3"}


def lost_before_it_began(life: Any) -> dict[str, str]:
    """Both nodes of a move had gone, its record went as well: the assignment alone says that it has been said."""
    elsewhere(life, Held(THERE, 6, (2, 3)))
    path = paths.assignment("t")  # type: ignore[arg-type]
    life._coordination.put(
        path, codec.encode(Assignment("t", 7, lost=(Lost(THERE, (2,)), Lost(FIRST, (3,)))))
    )  # type: ignore[arg-type]
    return lost(life, {2, 3})


def test_what_a_move_has_lost_before_a_process_began_is_not_said_by_that(life: Any) -> None:
    assert lost_before_it_began(life) == {THERE: "3"}, "task 3 has had another holder since"


def test_a_process_that_does_not_look_at_what_has_been_said_is_found(
    life: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(States, "has_been_said", lambda *_: None)
    assert lost_before_it_began(life) == {THERE: "2, 3"}


def test_what_ended_with_a_process_is_said_once_however_often_it_is_begun(
    life: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt fails before its write, the second one after it."""
    elsewhere(life, Held(THERE, 6, (2,)))
    with monkeypatch.context() as patch:
        patch.setattr(life._coordination, "put", fails)
        with pytest.raises(Unavailable):
            life._progress.begin({2})
    for _ in range(2):
        life._progress.begin({2})
    assert [e.kind for e in life.said] == ["state-lost"]
    begins(life, 2)
    life._progress.begin({2})
    assert [e.kind for e in life.said] == ["state-lost"] * 2, "it had begun, and was lost again"


def test_what_ended_is_said_once_also_of_what_is_not_started_after_all(life: Any) -> None:
    """A move of it begins before it does, and goes back as it has not."""
    elsewhere(life, Held(THERE, 6, (2, 3)))
    life._progress.begin({2, 3})
    begins(life, 3)
    view(life, (1, Incarnation("t@m/5#1"), Outcome.ROLLED_BACK), source=SECOND)
    assert lost(life, {2, 3}) == {THERE: "3"}
    life._progress.begin({2})
    begins(life, 2)
    assert lost(life, {2}) == {THERE: "2"}


def fails(*_: object) -> None:
    raise Unavailable("no connection")


def test_a_move_that_brings_a_task_back_takes_back_that_its_state_was_lost_on_its_way(life: Any) -> None:
    """It began anew elsewhere, went back to who had it before, and ended with that: both records are still there."""
    elsewhere(life, Held(THERE, 6, (2,)))
    there_and_back = (1, Incarnation("t@m/5#1"), Outcome.LOST), (2, THERE, Outcome.COMMITTED)
    view(life, there_and_back[0])
    assert lost(life, {2}) == {}
    view(life, *there_and_back)
    assert lost(life, {2}) == {THERE: "2"}


def lost_and_about_to_move(life: Any) -> None:
    """Nimbus begins another move of it at once, which goes back: it has not begun where it was to leave."""
    elsewhere(life, Held(THERE, 6, (2,)))
    of_loss = (1, SECOND, Outcome.LOST)
    view(life, of_loss)
    view(life, of_loss, (2, Incarnation("t@m/5#1"), Outcome.ROLLED_BACK), source=SECOND)
    assert lost(life, {2}) == {}


def test_what_a_move_has_lost_is_said_once_also_when_another_goes_back_meanwhile(life: Any) -> None:
    lost_and_about_to_move(life)
    view(life, (3, FIRST, Outcome.ROLLED_BACK), source=THERE)
    assert lost(life, {2}) == {THERE: "2"}, "who had lost it has had it again since"


def test_a_loss_that_a_later_move_takes_back_is_found(life: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = States._follow

    def forgets(states: States, epoch: Epoch, part: TaskMove) -> None:
        states._lost.pop(part.task, None)
        given(states, epoch, part)

    monkeypatch.setattr(States, "_follow", forgets)
    with pytest.raises(AssertionError):
        lost_and_about_to_move(life)


def test_whoever_hands_a_task_on_says_who_has_it_before_the_record_of_the_move_may_go(life: Any) -> None:
    """The new place ends before it has said since when it has it. Another record still lists it, of long ago."""
    elsewhere(life, Held(Incarnation("t@m/0#3"), 2, (4,)), Held(THERE, 0, (4,)))
    has(life, 4)
    life._progress.write(all_of_it=True)
    for _ in range(2):  # the same again, by a later view
        view(life, (7, THERE, Outcome.COMMITTED), task=4, source=SECOND)
    life._progress.write(all_of_it=True)
    (mine,) = held(life)
    assert mine.incarnation == SECOND, "it is about to go"
    leaves(life, 4)
    life._progress.write_first(Marks(SECOND, closed=True))
    assert held(life) == (Held(THERE, mine.since, (4,)),)
    view(life)
    life._progress.write()
    assert lost(life, {4}) == {THERE: "4"}


def test_that_a_task_was_handed_on_is_forgotten_when_its_new_place_has_said_so(life: Any) -> None:
    """That lives when the record of the move has gone: it has closed the move by then."""
    has(life, 3)
    has(life, 4)
    life._progress.write(all_of_it=True)
    view(life, (7, THERE, Outcome.COMMITTED), task=4, source=SECOND)
    leaves(life, 4)
    life._progress.write(all_of_it=True)
    view(life, (7, THERE, Outcome.COMMITTED), task=4, source=SECOND, living=(THERE,))
    life._progress.write(all_of_it=True)
    assert {h.incarnation: h.tasks for h in held(life)} == {SECOND: (3,), THERE: (4,)}
    view(life, living=(THERE,))
    life._progress.write()
    assert {h.incarnation: h.tasks for h in held(life)} == {SECOND: (3,)}


def test_a_task_that_comes_back_at_once_is_its_own_before_the_move_may_go(life: Any) -> None:
    has(life, 4)
    life._progress.write(all_of_it=True)
    view(life, (7, THERE, Outcome.COMMITTED), task=4, source=SECOND)
    leaves(life, 4)
    life._progress.write_first(Marks(SECOND, closed=True))
    ((_, before, _),) = ((h.incarnation, h.since, h.tasks) for h in held(life))
    has(life, 4)
    life._progress.write_first(Marks(SECOND, restored={4: 1}))
    view(life, (9, SECOND, Outcome.COMMITTED), task=4, source=THERE)
    life._progress.write_first(Marks(SECOND, closed=True))
    (mine,) = held(life)
    assert mine.incarnation == SECOND and mine.since > before


def test_a_task_of_an_earlier_life_is_its_own_before_the_move_may_go(life: Any) -> None:
    life._progress.inherit()
    has(life, 4)
    has(life, 2)
    life._progress.write_first(Marks(SECOND, restored={2: 1}, closed=True))
    assert any(h.incarnation == SECOND and h.since and 2 in h.tasks for h in held(life))


def test_nobody_waits_to_write_what_needs_not_be_written(life: Any) -> None:
    """Moves bring tasks that do not stay for half a second: else the worker would look all the time."""
    life._progress.inherit()
    has(life, 4)
    life._progress.write(all_of_it=True)
    assert life._progress.patience() is None
    life.worker.will_start(2)
    life._progress.write()
    life.worker.will_not_start(2)
    life._progress.write()
    assert life._progress.patience() is None
    has(life, 5)
    life._progress.write()
    assert life._progress.patience() is not None, "since when it is here"
    del life.worker.tasks[5]
    life._progress.write()
    assert life._progress.patience() is None


def test_since_when_a_task_is_here_is_written_before_the_move_may_go(life: Any) -> None:
    life._progress.inherit()
    life.worker.will_start(2)
    life._progress.write()
    life.worker.tasks[2] = standing()
    life._progress.write_first(Marks(SECOND, restored={2: 1}))
    assert codec.decode(life._coordination.get(PATH).data, Progress).held == (Held(FIRST, 5, (2, 3)),)
    life._progress.write_first(Marks(SECOND, restored={2: 1}, closed=True))
    one, two = codec.decode(life._coordination.get(PATH).data, Progress).held
    assert one == Held(FIRST, 5, (3,))
    assert (two.incarnation, two.tasks) == (SECOND, (2,)) and two.since > 0


def test_since_when_a_task_is_here_is_written_once_it_has_begun(life: Any) -> None:
    life._progress.inherit()
    life.worker.will_start(2)
    life._progress.write()
    stored = codec.decode(life._coordination.get(PATH).data, Progress)
    assert stored.held == (Held(FIRST, 5, (2, 3)),), "should it die now, the first life had them last"
    life.worker.tasks[2] = standing()
    version = life._coordination.get(PATH).version
    life._progress.write_first(Marks(SECOND))
    assert life._coordination.get(PATH).version == version, "marks do not wait for that"
    life._progress.write()
    assert life._coordination.get(PATH).version == version, "more of it may come"
    assert 0.0 < life._progress.patience() <= SINCE
    life._progress._since_due = 1.0  # long ago
    life._progress.write()
    assert life._progress.patience() is None
    one, two = codec.decode(life._coordination.get(PATH).data, Progress).held
    assert one == Held(FIRST, 5, (3,))
    assert (two.incarnation, two.tasks) == (SECOND, (2,)) and two.since > 0
    del life.worker.tasks[2]
    life.worker.history.leave(2)
    version = life._coordination.get(PATH).version
    life._progress.write()
    assert life._coordination.get(PATH).version == version + 1, "who has a task no more says so at once"


def test_coordination_is_read_before_something_is_started_and_not_for_what_is_here(
    life: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allocation comes with every outcome of a move: nothing may wait for a view then."""
    read: list[int] = []
    monkeypatch.setattr(life._views, "read", lambda: read.append(1))
    monkeypatch.setattr(life.worker, "missing", lambda allocation: set())
    monkeypatch.setattr(life.worker, "apply", lambda allocation, written, states: None)
    life.worker.tasks[2] = life.worker.tasks[3] = standing()
    life.worker.arriving[4] = SimpleNamespace()

    def named(*executors: tuple[str, int, int]) -> Any:
        return SimpleNamespace(executors=executors)

    life._apply(named(("count", 2, 4)))
    life._apply(named(("count", 3, 3)))
    assert not read
    life._apply(named(("count", 2, 5)))
    assert read


def test_when_the_session_is_lost_the_process_ends_whatever_its_main_thread_is_at(
    life: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes the notices of this one: it might be within somebody's `prepare`."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    monkeypatch.setattr(os, "_exit", ended.put)
    life.service.expire(life._coordination)
    assert ended.get(timeout=30.0) == EXIT_SESSION


def test_a_worker_does_not_give_up_coordination_before_its_supervisor_looks() -> None:
    """A server that is being started again on a busy machine takes longer than a command would wait for it."""
    assert 60.0 <= REACHED < SupervisorOptions().start_timeout


def test_marks_before_which_nothing_is_to_be_written_are_known(life: Any) -> None:
    """They need no thread of their own; whoever says so of others would have them written too early."""
    progress = life._progress
    progress.inherit()
    life.worker.will_start(2)
    assert not progress.nothing_first(Marks(SECOND)), "that it is started here"
    progress.write()
    life.worker.tasks[2] = standing()
    version = life._coordination.get(PATH).version
    assert progress.nothing_first(Marks(SECOND, restored={2: 1}))
    progress.write_first(Marks(SECOND, restored={2: 1}))
    assert life._coordination.get(PATH).version == version
    assert not progress.nothing_first(Marks(SECOND, closed=True)), "since when it is here"
    with progress._lock:
        assert not progress.nothing_first(Marks(SECOND)), "somebody is writing, and it does not wait for that"
