"""Tasks that move between workers while the stream runs: nothing is lost, doubled or reordered, and state goes along."""

from __future__ import annotations

import dataclasses
import math
import random
import threading
import time
from typing import Any

import pytest

from elastic import Bolt, Fields, KeyedState, Spout, StatefulBolt, StatefulSpout, TopologyBuilder
from elastic.migration.emitter import Emitter
from elastic.migration.record import Outcome
from elastic.migration.table import ReceiverState
from elastic.model.events import Severity
from elastic.model.ids import ComponentId
from elastic.worker.emitting.crossing import ASK
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.executing.task import Task
from elastic.worker.moving.moves import PASSED
from elastic.worker.moving.moving import MovingTasks
from elastic.worker.moving.words import Words
from elastic.worker.report import Measurer
from elastic.worker.tuples.batch import Batch
from elastic.worker.tuples.wire import Frame
from tests.unit.worker.harness import Check, expected, records
from tests.unit.worker.harness import numbers as _names
from tests.unit.worker.moving_harness import Moving, Process


class Steps(StatefulSpout):
    """Emits (task, key, number) with numbers that count per key; knows how far it is."""

    outputs = Fields(source=int, key=int, number=int)

    def __init__(self, count: int, keys: int = 7) -> None:
        self.count, self.keys = count, keys
        self.at = 0
        self.sent = [0] * keys

    def get_state(self) -> object:
        return self.at, self.sent

    def set_state(self, state: Any) -> None:
        self.at, self.sent = state

    def next_tuple(self) -> None:
        if self.at >= self.count:
            self.exhausted()
            return
        key = self.at * 31 % self.keys
        self.emit(self.context.task, key, self.sent[key])
        self.sent[key] += 1
        self.at += 1


class Counting(StatefulBolt):
    """Counts per key in declared state, and says what it counted at the end."""

    counts = KeyedState(int)
    outputs = Fields(source=int, key=int, number=int)

    def __init__(self, name: str) -> None:
        self.name = name

    def execute(self, tup: Any) -> None:
        self.counts[tup.source, tup.key] += 1
        self.emit(tup.source, tup.key, tup.number)

    def finish(self) -> None:
        records.setdefault(f"{self.name}.counts", []).extend((s, k, n) for (s, k), n in self.counts.items())


def chain(
    count: int, spouts: int = 2, tasks: int = 4, rate: float | None = None, **config: Any
) -> tuple[Any, str]:
    """spout -> counting, by key -> check, by key; the name under which results are noted."""
    name = f"moves{next(_names)}"
    b = TopologyBuilder(name, **{"queue_rows": 128, "batch_rows": 16, **config})
    b.spout("numbers", Steps(count), tasks=spouts, rate=rate)
    b.bolt("count", Counting(name), tasks=tasks, executors=2).fields("numbers", "source", "key")
    b.bolt("check", Check(name), tasks=tasks, executors=2).fields("count", "source", "key")
    return b.build(), name


def check(topology: Any, name: str, count: int) -> None:
    want = expected(topology.spec.tasks_of(ComponentId("numbers")), count)
    assert records.get(f"{name}.wrong") == []
    assert set(records[name]) == want and len(records[name]) == len(want)
    assert set(records[f"{name}.counts"]) == {(s, k, n + 1) for s, k, n in want}


def tasks_of(topology: Any, *components: str) -> list[int]:
    return [t for c in components for t in topology.spec.tasks_of(ComponentId(c))]


def test_a_stateful_task_moves_while_the_stream_runs() -> None:
    topology, name = chain(4000, rate=8000.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        task = tasks_of(topology, "count")[0]
        cluster.wait(lambda: cluster.task(task).executed > 100)
        record = cluster.move({task: 1})
        assert [t.outcome for t in record.tasks] == [Outcome.COMMITTED]
        assert task in cluster.processes[1].worker.tasks and task not in cluster.processes[0].worker.tasks
        assert not cluster.stores.states, "nothing is left in the stores"
        cluster.wait_finished()
    check(topology, name, 4000)
    # The new side may tell that the task is restored while the old one is about to tell that it was saved.
    moved = sorted((e for e in cluster.events if e.kind == "move-step"), key=lambda e: float(e.details["at"]))
    told = [e.details["step"] for e in moved]
    steps = [s for s in told if s not in ("resumed", "received", "unheard")]
    assert steps == ["prepared", "paused", "stopped", "saved", "restored", "begun"]
    assert "resumed" in told
    # As those that check saw it; a machine that is busy may have let nothing through between the first look and the pause.
    (gap,) = [
        e.details.get("gap_ms", math.inf) for e in moved if e.details["step"] in ("received", "unheard")
    ]
    assert float(gap) > 0


def test_what_is_held_for_a_task_that_stands_still_is_reported_by_who_has_emitted_it() -> None:
    topology, name = chain(4000, rate=8000.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        measurer = Measurer(cluster.processes[0].worker)
        found: dict[str, int] = {}

        def holds() -> bool:
            found.update({t.component: t.held for t in measurer.report().tasks if t.held})
            return bool(found)

        def saves(states: Any, nodes: Any) -> Any:
            cluster.wait(holds)
            return save_many(states, nodes)

        save_many, cluster.stores.save_many = cluster.stores.save_many, saves  # type: ignore[method-assign]
        task = tasks_of(topology, "count")[0]
        cluster.wait(lambda: cluster.task(task).executed > 100)
        assert not holds(), "nothing stands still"
        cluster.move({task: 1})
        assert found.keys() == {"numbers"}
        cluster.wait_finished()
        assert not any(t.held for t in measurer.report().tasks)
    check(topology, name, 4000)


@pytest.mark.parametrize("seed", range(4))
def test_everything_moves_again_and_again(seed: int) -> None:
    """All tasks of all components, spouts and neighbours at once, to random workers, in random batches."""
    topology, name = chain(6000, rate=6000.0)
    chance = random.Random(seed)
    with Moving(topology, 3, lambda c, i: i % 3) as cluster:
        moved = 0
        while moved < 3 or (not cluster.finished and moved < 12):  # what has finished moves as well
            moving = [t for t in tasks_of(topology, "numbers", "count", "check") if chance.random() < 0.6]
            to = {t: n for t in moving if (n := chance.randrange(3)) != cluster.place[t]}
            if to:
                record = cluster.move(to, share=chance.choice([0.3, 0.5, 1.0]))
                assert {t.outcome for t in record.tasks} == {Outcome.COMMITTED}, record
                moved += 1
        cluster.wait_finished()
        left = [p.worker.moves.participant for p in cluster.processes]
        cluster.wait(lambda: all(p.quiet for p in left))  # when the last view has been read
    check(topology, name, 6000)


def test_a_stateless_bolt_moves_too() -> None:
    class Relay(Bolt):
        outputs = Fields(source=int, key=int, number=int)

        def execute(self, tup: Any) -> None:
            self.emit(tup.source, tup.key, tup.number)

    name = f"moves{next(_names)}"
    b = TopologyBuilder(name, queue_rows=128, batch_rows=16)
    b.spout("numbers", Steps(4000), rate=8000)
    b.bolt("relay", Relay(), tasks=4).fields("numbers", "key")
    b.bolt("check", Check(name), tasks=2).fields("relay", "source", "key")
    topology = b.build()
    with Moving(topology, 3, lambda c, i: 0) as cluster:
        for n in range(1, 6):
            moving = tasks_of(topology, "relay", "check")
            cluster.move({t: (t + n) % 3 for t in moving if (t + n) % 3 != cluster.place[t]})
        cluster.wait_finished()
    want = expected(topology.spec.tasks_of(ComponentId("numbers")), 4000)
    assert records[f"{name}.wrong"] == [] and set(records[name]) == want


class Seen(StatefulBolt):
    """Counts its tuples, and says at the end how many there were wherever it has been."""

    def __init__(self, name: str) -> None:
        self.name, self.seen = name, 0

    def get_state(self) -> object:
        return self.seen

    def set_state(self, state: Any) -> None:
        self.seen = state

    def execute(self, tup: Any) -> None:
        self.seen += 1

    def finish(self) -> None:
        records.setdefault(self.name, []).append((self.seen,))


def test_finished_tasks_move_and_what_follows_them_still_ends() -> None:
    name = f"moves{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("done", Steps(10))
    b.spout("numbers", Steps(1500), rate=1500)
    b.bolt("slow", Seen(name)).shuffle("done").shuffle("numbers")
    topology = b.build()
    done, slow = tasks_of(topology, "done")[0], tasks_of(topology, "slow")[0]
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.wait(lambda: cluster.task(done).marks.finished)
        cluster.move({done: 1, slow: 1})
        cluster.move({done: 0})
        cluster.wait_finished()
    assert records[name] == [(1510,)]


def test_what_only_who_has_left_held_for_a_task_is_held_here_no_more() -> None:
    """Its links are made anew where it goes: here nobody opens them again, and the pause would last until somebody else does."""
    name = f"moves{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Steps(6000), tasks=2, rate=3000)
    b.bolt("slow", Seen(name)).shuffle("numbers")
    topology = b.build()
    (leaves, stays), (slow,) = tasks_of(topology, "numbers"), tasks_of(topology, "slow")
    # The other emitter is here, too: what it holds is over when it goes on, and not when somebody leaves.
    for at in (1, 0):
        with Moving(topology, 3, lambda c, i, at=at: at if c == "numbers" and i else 0) as cluster:  # type: ignore[misc]
            assert cluster.place[stays] == at
            for n in (2, 0, 2):
                here = cluster.processes[cluster.place[slow]].worker
                record = cluster.move({leaves: n, slow: n})
                assert {t.outcome for t in record.tasks} == {Outcome.COMMITTED}
                cluster.wait(lambda: all(p.worker.moves.participant.quiet for p in cluster.processes))
                assert not any(p.worker.moves._held for p in cluster.processes)
                assert not here.moves.waited_for
                told = [e for e in list(cluster.events) if e.details.get("step") == "resumed"]
                of_here = [e for e in told if e.details["epoch"] == record.epoch and e.worker == here.id]
                assert [e.task for e in of_here] == [slow], "once"
            cluster.wait_finished()


def test_state_that_cannot_be_pickled_costs_the_move_and_nothing_else() -> None:
    class Odd(Seen):
        def get_state(self) -> object:
            return lambda: 1

    name = f"moves{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Steps(2000), rate=4000)
    b.bolt("odd", Odd(name)).shuffle("numbers")
    topology = b.build()
    (odd,) = tasks_of(topology, "odd")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.wait(lambda: cluster.task(odd).executed > 100)
        record = cluster.move({odd: 1})
        assert [t.outcome for t in record.tasks] == [Outcome.ROLLED_BACK]
        assert "odd" in record.tasks[0].reason
        cluster.wait_finished()
    assert records[name] == [(2000,)]


def test_a_prepare_that_raises_at_the_new_place_costs_the_move_and_nothing_else() -> None:
    class Picky(Seen):
        def prepare(self, context: Any) -> None:
            if "@n1/" in context.worker:
                raise RuntimeError("not here")

    name = f"moves{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Steps(2000), rate=4000)
    b.bolt("picky", Picky(name)).shuffle("numbers")
    topology = b.build()
    (picky,) = tasks_of(topology, "picky")
    with Moving(topology, 3, lambda c, i: 0) as cluster:
        record = cluster.move({picky: 1})
        assert [t.outcome for t in record.tasks] == [Outcome.ROLLED_BACK] and "not here" in record.tasks[
            0
        ].reason
        assert [t.outcome for t in cluster.move({picky: 2}).tasks] == [Outcome.COMMITTED]
        cluster.wait_finished()
    assert records[name] == [(2000,)]


def test_a_new_side_that_was_given_up_says_that_nothing_is_left_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It lives, and the record does not name it any more: the move ends only when it has read the outcome, too."""
    # The old side's word of it may come before its mark: who fails in between has the task go back.
    monkeypatch.setattr(Words, "saved", lambda self, states: None)

    class Refuses(Seen):
        def set_state(self, state: Any) -> None:
            if "@n1/" in self.context.worker:
                raise RuntimeError("not here")
            super().set_state(state)

    name = f"moves{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Steps(2000), rate=4000)
    b.bolt("refuses", Refuses(name)).shuffle("numbers")
    topology = b.build()
    (task,) = tasks_of(topology, "refuses")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        (part,) = cluster.move({task: 1}).tasks
        assert (
            part.outcome is Outcome.COMMITTED and part.attempt == 2 and part.target == cluster.processes[0].me
        )
        cluster.wait_finished()
    assert records[name] == [(2000,)]


def test_a_generator_spout_without_state_does_not_move() -> None:
    class Endless(Spout):
        outputs = Fields(n=int)

        def tuples(self) -> Any:
            yield from range(1000)

    class Sum(StatefulBolt):
        total = KeyedState(int)

        def execute(self, tup: Any) -> None:
            self.total["all"] += tup.n

        def finish(self) -> None:
            records.setdefault(name, []).append((self.total["all"],))

    name = f"moves{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Endless(), rate=1000)
    b.bolt("sum", Sum()).shuffle("numbers")
    topology = b.build()
    (numbers,) = tasks_of(topology, "numbers")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        record = cluster.move({numbers: 1})
        assert [t.outcome for t in record.tasks] == [Outcome.ROLLED_BACK]
        assert "StatefulSpout" in record.tasks[0].reason
        assert record.tasks[0].final, "tried again it would be refused again"
        cluster.wait_finished()
    assert records[name] == [(sum(range(1000)),)]


def test_a_spout_without_state_moves_begins_anew_and_says_so() -> None:
    class Counts(Spout):
        outputs = Fields(n=int)

        def prepare(self, context: Any) -> None:
            self.at = 0

        def next_tuple(self) -> None:
            self.emit(self.at)
            self.at += 1

    class First(Bolt):
        def execute(self, tup: Any) -> None:
            if not tup.n:
                firsts.append(tup.n)

    firsts: list[int] = []
    b = TopologyBuilder(f"moves{next(_names)}")
    b.spout("numbers", Counts(), rate=1000)
    b.bolt("first", First()).shuffle("numbers")
    topology = b.build()
    (numbers,) = tasks_of(topology, "numbers")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.wait(lambda: len(firsts) == 1)
        record = cluster.move({numbers: 1})
        assert [t.outcome for t in record.tasks] == [Outcome.COMMITTED]
        cluster.wait(lambda: len(firsts) == 2)
    (said,) = (e for e in cluster.events if e.kind == "spout-begins-anew")
    assert said.severity is Severity.WARNING and said.task == numbers and said.worker == cluster.id(1)
    assert said.details == {"epoch": record.epoch} and "has to be a StatefulSpout" in said.message


def test_a_fault_in_a_workers_own_part_of_moves_ends_it_and_is_said() -> None:
    topology, _ = chain(10_000_000, spouts=1, tasks=2, rate=100.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:

        def planted() -> None:
            raise KeyError("planted")

        cluster.processes[0].worker.moves.feed(planted)
        assert cluster.failures == ["fatal: 'planted'\n"], "its process is to end"
        (said,) = (e for e in cluster.events if e.kind == "worker-broken")
        assert said.severity is Severity.ERROR and said.worker == cluster.id(0) and "planted" in said.message


def test_small_states_are_saved_together_and_one_that_grew_by_itself() -> None:
    class Grows(StatefulBolt):
        """Small when it is asked, large when it stands still."""

        texts = KeyedState(str)

        def execute(self, tup: Any) -> None:
            self.texts[tup.number] = "x" * (4 << 10)

        def finish(self) -> None:
            records.setdefault(name, []).append(len(self.texts))

    name = f"moves{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Steps(600, keys=1), rate=3000)
    b.bolt("grows", Grows()).shuffle("numbers")
    topology = b.build()
    (grows,) = tasks_of(topology, "grows")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.stores.on_reserve = lambda: cluster.wait(lambda: cluster.task(grows).executed >= 500)
        (part,) = cluster.move({grows: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        assert not cluster.stores.lots, "it went by itself"
        cluster.stores.on_reserve = lambda: None
        cluster.wait_finished()
    assert records[name] == [600]


@pytest.mark.parametrize("what", ["saved", "along", "step", "save_many"])
def test_what_fails_for_one_of_those_that_are_saved_together_strands_no_other(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is only told costs nothing; a store's defect costs the moves of those it was asked for, and nobody waits for a word."""
    topology, name = chain(1000, tasks=8, rate=2000)
    tasks = tasks_of(topology, "count")
    step = MovingTasks.step

    def fails(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("a defect")

    def fails_once_saved(self: MovingTasks, task: Any, epoch: int, which: str, **more: float) -> None:
        if which == "saved":
            raise RuntimeError("a defect")
        step(self, task, epoch, which, **more)

    monkeypatch.setattr("elastic.worker.moving.saving.PART", 1)  # each by itself, one after the other
    with Moving(topology, 2, lambda c, i: 0) as cluster, pytest.MonkeyPatch.context() as patch:
        match what:
            case "saved":
                patch.setattr(Words, "saved", fails)
            case "along":
                patch.setattr("elastic.worker.tuples.wire.along", fails)
            case "step":
                patch.setattr(MovingTasks, "step", fails_once_saved)
            case "save_many":
                patch.setattr(cluster.stores, "save_many", lambda states, nodes: [])
        record = cluster.move(dict.fromkeys(tasks, 1), limit=20.0)
        goes = Outcome.ROLLED_BACK if what == "save_many" else Outcome.COMMITTED
        assert [t.outcome for t in record.tasks] == [goes] * len(tasks)
        cluster.wait_finished()
    check(topology, name, 1000)


def test_full_stores_refuse_before_anything_pauses() -> None:
    topology, name = chain(3000, rate=6000.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.stores.full = True
        record = cluster.move({tasks_of(topology, "count")[0]: 1})
        assert [t.outcome for t in record.tasks] == [Outcome.ROLLED_BACK] and "room" in record.tasks[0].reason
        assert not [e for e in cluster.events if e.details.get("step") == "paused"]
        cluster.wait_finished()
    check(topology, name, 3000)


@pytest.mark.parametrize("ahead", ["fetched ahead", "fetching ahead fails"])
def test_a_large_state_that_changes_while_it_is_copied(ahead: str) -> None:
    class Big(StatefulBolt):
        """Two megabytes; every tuple changes some of it."""

        texts = KeyedState(str)

        def prepare(self, context: Any) -> None:
            for n in range(20_000):
                self.texts[n] = f"{n:0100d}"

        def execute(self, tup: Any) -> None:
            n = tup.number * 7919 % 20_000
            self.texts[n] = f"{int(self.texts[n]) + 1:0100d}"
            self.texts.pop(-tup.number - 1, None)
            self.texts[-tup.number - 2] = "1"

        def finish(self) -> None:
            numbers = [int(t) for k, t in self.texts.items() if k >= 0]
            records.setdefault(name, []).append((len(self.texts), sum(numbers)))

    name = f"moves{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Steps(6000, keys=1), rate=3000)
    b.bolt("big", Big()).shuffle("numbers")
    topology = b.build()
    (big,) = tasks_of(topology, "big")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.stores.ahead_fails = ahead == "fetching ahead fails"
        for n in range(4):
            (part,) = cluster.move({big: 1 - n % 2}).tasks
            assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
            assert not any(p.worker.saving.fetching._coming for p in cluster.processes), "it is forgotten"
        cluster.wait_finished()
    assert (sum(cluster.stores.ahead) > 4) == (ahead == "fetched ahead")
    assert (max(cluster.stores.brought, default=0) < 5) == (ahead == "fetched ahead"), "within the pauses"
    assert records[name] == [(20_001, sum(range(20_000)) + 6000)]
    assert max(e.details.get("bytes", 0) for e in cluster.events) > 2_000_000


def test_backpressure_across_a_move() -> None:
    """The spouts are as fast as they can be, queues are tiny, and everything is full when the tasks move."""
    topology, name = chain(20_000, spouts=2, tasks=4, queue_rows=32, batch_rows=8)
    moving = tasks_of(topology, "count", "check")
    with Moving(topology, 2, lambda c, i: i % 2) as cluster:
        for n in range(4):
            if cluster.finished:
                break
            cluster.move({t: (t + n) % 2 for t in moving if (t + n) % 2 != cluster.place[t]})
        cluster.wait_finished()
    check(topology, name, 20_000)


class Slowly(Bolt):
    """Takes so long that whatever wants something of it finds it in the midst of a batch."""

    def execute(self, tup: Any) -> None:
        time.sleep(0.0005)


def move_in_the_midst_of_a_batch() -> None:
    b = TopologyBuilder(f"moves{next(_names)}", queue_rows=2048, batch_rows=512)
    b.spout("numbers", Steps(3000))
    b.bolt("slow", Slowly()).shuffle("numbers")
    topology = b.build()
    (slow,) = tasks_of(topology, "slow")
    with Moving(topology, 2, lambda c, i: int(c == "slow")) as cluster:
        cluster.wait(lambda: cluster.task(slow).bolt._current is not None)
        cluster.move({slow: 0})
        cluster.wait_finished()


def test_a_batch_that_is_not_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: each move makes the way to the task a little narrower, until nothing goes through."""
    real = Task.discard

    def discard(self: Task) -> None:
        if self.bolt is not None:
            self.bolt.give_up()
        real(self)

    move_in_the_midst_of_a_batch()
    monkeypatch.setattr(Task, "discard", discard)
    with pytest.raises(AssertionError, match=r"task \d+: \d+ bytes, [1-9]\d* rows"):
        move_in_the_midst_of_a_batch()


def test_what_is_held_for_a_task_of_the_same_worker_waits_for_room_but_not_for_ever() -> None:
    """Else the emitter would wait for all of it, and with it all else that it emits; and if it came to no end, all would be bytes."""
    topology, _ = chain(1000, rate=500.0)
    with Moving(topology, 1, lambda c, i: 0) as cluster:
        moves = cluster.processes[0].worker.moves
        (source, *_), (target, *_) = tasks_of(topology, "numbers"), tasks_of(topology, "count")
        link, task = moves.participant.emitters[source, target], cluster.task(target)
        few, many = (Batch(task.outputs, source, n, [None] * n) for n in (1, 1 << 20))  # type: ignore[arg-type]
        assert moves._fits(link, few)
        cluster.wait(lambda: task.executor is not None)
        with task.guard:
            task._rows += 1
            assert not moves._fits(link, many) and task._refused, "it says when there is room again"
            moves._passed[source, target] = PASSED * link.limit
            assert moves._fits(link, many)
            moves._passed.clear()
            task._rows += task.capacity
            of_another = Batch(task.outputs, -1, 1, [None])  # type: ignore[arg-type]
            assert moves._fits(link, of_another), "nothing of this source waits, whatever others have sent"
            task._rows -= task.capacity + 1
        cluster.wait_finished()


# ---------------------------------------------------------------- planted faults


def moves_that_are_checked() -> None:
    count = 12_000  # two seconds: it must not have come to its end before the move has stopped anybody
    topology, name = chain(count, rate=6000.0)
    moving = tasks_of(topology, "count")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.wait(lambda: cluster.task(moving[0]).executed > 100)
        cluster.move(dict.fromkeys(moving, 1))
        cluster.wait(lambda: cluster.finished or bool(gaps(cluster)))
        assert not gaps(cluster), "what came before it is missing for ever: nothing here overtakes"
        cluster.wait_finished()
    check(topology, name, count)


def gaps(cluster: Moving) -> list[str]:
    """Links on which something has come that is not the next."""
    receivers = [r for p in cluster.processes for r in list(p.worker.moves.participant.receivers.values())]
    return [str(r) for r in receivers if r.state is ReceiverState.EARLY]


def test_a_process_that_comes_again_is_told_of_though_it_was_seen_to_be_gone() -> None:
    topology, _ = chain(10_000_000, spouts=1, tasks=2)
    with Moving(topology, 2, lambda c, i: int(c == "check")) as cluster:
        other = cluster.processes[1]
        other.close()
        stays = cluster.processes[0].worker
        cluster.wait(lambda: other.id not in stays.moves.participant.view.living)
        assert not [e for e in cluster.events if e.kind == "peer-renewed"]
        cluster.processes[1] = Process(cluster, 1, 2)
        cluster.wait(lambda: any(e.kind == "peer-renewed" and e.worker == other.id for e in cluster.events))
        (told,) = [e for e in cluster.events if e.kind == "peer-renewed"]
        assert "if anything" in told.message, "it may have ended in order"


def test_a_queue_that_is_left_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    real, dropped = Task.export, []

    def export(self: Task) -> Any:
        state = real(self)
        dropped.extend(state.queue)
        return dataclasses.replace(state, queue=())

    monkeypatch.setattr(Task, "export", export)
    topology, _ = chain(10_000_000, spouts=2, tasks=4, queue_rows=512, batch_rows=8)
    moving = tasks_of(topology, "count", "check")
    with (
        pytest.raises(AssertionError, match=r"still waiting|instead of"),
        Moving(topology, 2, lambda c, i: 0) as cluster,
    ):
        for n in range(100):
            cluster.move(dict.fromkeys(moving, 1 - n % 2), limit=15)
            if dropped:
                break
        checks = [cluster.task(t).component for t in tasks_of(topology, "check")]
        cluster.wait(lambda: any(c.wrong for c in checks), 15)
        raise AssertionError(next(c.wrong for c in checks if c.wrong)[0])


def test_a_fence_that_comes_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: what the emitters hold is sent at once."""
    held, faulty, taken = threading.Event(), threading.Event(), set[int]()
    real, export = Outputs._keep, Task.export

    def stands_until_something_is_held_for_it(self: Task) -> Any:
        state = export(self)
        taken.add(self.id)
        held.clear()
        # Once the fault has done its harm, whoever emits to this one may wait for ever for what is missing elsewhere.
        assert held.wait(5.0 if faulty.is_set() else 30.0) or faulty.is_set()
        return state

    def keep(self: Outputs, link: Emitter, frames: list[Frame]) -> int:
        done = real(self, link, frames)
        if link.target in taken:
            held.set()
        return done

    def send(self: Outputs, link: Emitter, frames: list[Frame]) -> int:
        while frames:
            part = frames.pop(0).item(self._streams)
            self._crossing.arrived(link.target, link.life, link.left(part.weight), part)
        if link.target in taken:
            held.set()
        return ASK

    monkeypatch.setattr(Task, "export", stands_until_something_is_held_for_it)
    monkeypatch.setattr(Outputs, "_keep", keep)
    moves_that_are_checked()
    taken.clear()
    faulty.set()
    monkeypatch.setattr(Outputs, "_keep", send)
    with pytest.raises(AssertionError, match="missing for ever"):
        moves_that_are_checked()
