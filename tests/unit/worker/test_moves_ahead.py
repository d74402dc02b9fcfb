"""What the new side does while the task stands still: what was saved is put in before coordination has said that it was."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from elastic import Fields, KeyedState, StatefulBolt, StatefulSpout, Topology, TopologyBuilder
from elastic.api import tracking
from elastic.errors import ElasticError
from elastic.migration.record import Marks, Outcome
from elastic.model.ids import ComponentId
from elastic.worker.content import Arrival, Copier
from elastic.worker.content.layout import is_last
from elastic.worker.moving.coming import Coming
from elastic.worker.moving.copying import Copying
from elastic.worker.moving.fetching import REPLACED, Fetching
from elastic.worker.moving.going import Going
from elastic.worker.moving.moving import MovingTasks
from elastic.worker.moving.saving import Saving
from elastic.worker.moving.words import Words
from tests.unit.worker.moving_harness import Moving, Nimbus, Stores

ENTRIES = 20_000
COUNT = 3000
MOVES = 3
_names = itertools.count(1)
_found: dict[str, int] = {}


class Numbers(StatefulSpout):
    """0 to `COUNT`."""

    outputs = Fields(number=int)

    def __init__(self) -> None:
        self.at = 0

    def get_state(self) -> object:
        return self.at

    def set_state(self, state: Any) -> None:
        self.at = state

    def next_tuple(self) -> None:
        if self.at >= COUNT:
            self.exhausted()
        else:
            self.emit(self.at)
            self.at += 1


class Large(StatefulBolt):
    """Two megabytes, unless it is made smaller; every tuple changes an entry."""

    texts = KeyedState(str)

    def __init__(self, name: str, entries: int) -> None:
        self.name, self.entries = name, entries

    def prepare(self, context: Any) -> None:
        self.texts.update((n, f"{n:0100d}") for n in range(self.entries))

    def execute(self, tup: Any) -> None:
        n = tup.number * 7919 % self.entries
        self.texts[n] = f"{int(self.texts[n]) + 1:0100d}"

    def finish(self) -> None:
        _found[self.name] = sum(map(int, self.texts.values()))


def with_a_large_state(entries: int = ENTRIES, kind: type[Large] = Large) -> tuple[str, Topology, int]:
    """The name under which the result is noted, the topology, and the task with the state."""
    name = f"ahead{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Numbers(), rate=2000.0)
    b.bolt("large", kind(name, entries)).shuffle("numbers")
    topology = b.build()
    (large,) = topology.spec.tasks_of(ComponentId("large"))
    return name, topology, large


def move_while_marks_wait() -> list[int]:
    """Marks are written only when the new side has looked at what was saved last, or has given up. How many pieces each pause fetched."""
    name, topology, large = with_a_large_state()
    looked: dict[tuple[str, int], threading.Event] = {}
    with Moving(topology, 2, lambda c, i: 0) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Words, "along", lambda *_: None)
        stores, look = cluster.stores, Fetching._look

        def looks(self: Fetching, coming: Coming) -> float:
            try:
                return look(self, coming)
            finally:
                for at, (meta, _) in list(stores.states.items()):
                    if is_last(meta):
                        looked.setdefault(at, threading.Event()).set()

        def before_marks(_: Marks) -> None:
            for at, (meta, _) in list(stores.states.items()):
                if is_last(meta):
                    assert looked.setdefault(at, threading.Event()).wait(30.0), "nobody has looked"

        patch.setattr(Fetching, "_look", looks)
        cluster.before_marks = before_marks
        for n in range(MOVES):
            (part,) = cluster.move({large: 1 - n % 2}).tasks
            assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
        brought = list(stores.brought)
    assert _found[name] == sum(range(ENTRIES)) + COUNT
    return brought


def test_what_was_saved_last_is_in_before_coordination_says_so() -> None:
    assert move_while_marks_wait() == [], "and nobody asks a store for it again"


def test_that_what_was_saved_last_is_taken_for_something_else_is_found() -> None:
    """The engine's part comes first then: all that came ahead was given up, and the whole state fetched in the pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elastic.worker.moving.fetching.is_last", lambda meta: False)
        assert max(move_while_marks_wait()) > 5


def begun_before_saved(entries: int, patience: float) -> bool:
    """Whether the task runs at its new place while `saved` is still to be written, which waits for that so many seconds."""
    name, topology, large = with_a_large_state(entries)
    begun, first = threading.Event(), []
    begin = MovingTasks.begin

    def begins(self: MovingTasks, action: Any) -> None:
        begin(self, action)
        begun.set()

    def waits(marks: Marks) -> None:
        if marks.saved and not first:
            first.append(begun.wait(patience))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MovingTasks, "begin", begins)
        with Moving(topology, 2, lambda c, i: 0) as cluster:
            cluster.before_marks = waits
            (part,) = cluster.move({large: 1}).tasks
            assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
            cluster.wait_finished()
    assert _found[name] == sum(range(entries)) + COUNT
    return all(first)


@pytest.mark.parametrize("entries", [ENTRIES, 500], ids=["large", "small"])
def test_nobody_waits_until_saved_is_written(entries: int) -> None:
    assert begun_before_saved(entries, 30.0)


@pytest.mark.parametrize("entries", [ENTRIES, 500], ids=["large", "small"])
def test_that_somebody_waits_for_it_is_found(entries: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Words, "saved", lambda *_: None)
        assert not begun_before_saved(entries, 0.5)


def test_a_hint_that_gets_lost_costs_time_and_nothing_else() -> None:
    name, topology, large = with_a_large_state()
    with Moving(topology, 2, lambda c, i: 0) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Words, "stored", lambda *_: None)
        patch.setattr(Words, "saved", lambda *_: None)
        (part,) = cluster.move({large: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT


def move_large(**stores: Any) -> tuple[Moving, str]:
    """One move of the large state, with stores that behave in some way."""
    name, topology, large = with_a_large_state()
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        for key, value in stores.items():
            setattr(cluster.stores, key, value)
        (part,) = cluster.move({large: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT
    return cluster, name


def test_what_is_replaced_while_it_is_looked_at_is_looked_at_again() -> None:
    cluster, _ = move_large(replaced=REPLACED)
    assert max(cluster.stores.brought, default=0) <= 2, "nearly all of it came ahead"


def test_that_it_is_given_up_then_is_found() -> None:
    cluster, _ = move_large(replaced=100)
    assert max(cluster.stores.brought, default=0) > 5


def test_it_comes_while_it_is_being_copied() -> None:
    """The old side goes on copying when the new side has put in the first of it; and goes on only then."""
    there, in_ = threading.Event(), threading.Event()
    put_in, commit = Arrival.ahead, Copying._commit_ahead

    def puts_in(self: Arrival, *arguments: Any) -> Any:
        yield from put_in(self, *arguments)
        if there.is_set() and self.here:
            in_.set()

    def commits(self: Copying, old: Any, copier: Copier, write: Any) -> None:
        commit(self, old, copier, write)
        if not there.is_set():
            assert not copier.done, "there is more to copy"
            there.set()
            assert in_.wait(30.0), "nothing was put in"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elastic.worker.moving.copying.COMMIT_EVERY", 0.0)
        patch.setattr("elastic.worker.moving.copying.SLICE", 1e-5)
        patch.setattr(Arrival, "ahead", puts_in)
        patch.setattr(Copying, "_commit_ahead", commits)
        move_large()
    assert in_.is_set()


def test_more_than_a_part_comes_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic.worker.moving.fetching.PART", 300_000)
    cluster, _ = move_large()
    assert max(cluster.stores.ahead) <= 4, (
        "what the engine knows of the task, and pieces of a quarter of a megabyte"
    )
    assert sum(cluster.stores.ahead) >= 8
    assert max(cluster.stores.brought, default=0) <= 2


def fetches_after(told: threading.Event, patch: pytest.MonkeyPatch) -> None:
    """The new side gets nothing before that: so the pause comes later, too."""
    fetch = Stores.fetch

    def late(*arguments: Any, **named: Any) -> Any:
        assert told.wait(30.0)
        return fetch(*arguments, **named)

    patch.setattr(Stores, "fetch", late)


@pytest.mark.parametrize("number", [0, 1], ids=["the first", "one that follows"])
def test_stores_that_fail_while_it_is_copied_cost_the_move_and_nothing_else(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, topology, large = with_a_large_state()
    commits, failed = itertools.count(), threading.Event()

    def fails() -> None:
        if next(commits) == number:
            failed.set()
            raise ElasticError("the store does not answer")

    monkeypatch.setattr("elastic.worker.content.keyed.LITTLE", 16)  # so few changes are copied ahead
    fetches_after(failed, monkeypatch)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.stores.on_commit = fails
        (part,) = cluster.move({large: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.ROLLED_BACK, "the store does not answer")
        (part,) = cluster.move({large: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT


class Stays(Large):
    """Not to worker 1, where that is found out when something of it was committed."""

    copied = threading.Event()

    def prepare(self, context: Any) -> None:
        super().prepare(context)
        if "@n1/" in context.worker:
            assert self.copied.wait(30.0)
            raise RuntimeError("not here")


def test_nothing_is_copied_any_more_of_what_was_rolled_back_before_the_pause() -> None:
    Stays.copied.clear()
    name, topology, large = with_a_large_state(kind=Stays)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.stores.on_commit = Stays.copied.set
        (part,) = cluster.move({large: 1}).tasks
        assert part.outcome is Outcome.ROLLED_BACK and "not here" in part.reason
        worker = cluster.processes[0].worker
        assert not worker.saving._old
        cluster.wait(lambda: not worker.saving._copying._kept and not worker.saving._copying._keeping)
        cluster.wait(lambda: not tracking.is_tracking(worker.tasks[large].component.texts))
        cluster.wait(lambda: bool(cluster.stores.closed))
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT


def test_what_is_given_back_while_it_is_being_saved_is_closed_afterwards() -> None:
    name, topology, large = with_a_large_state()
    saving, may_end = threading.Event(), threading.Event()
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        task = cluster.task(large)

        def commits() -> None:
            if task.stopped:
                saving.set()
                assert may_end.wait(30.0)

        try:
            cluster.stores.on_commit = commits
            move = Nimbus(cluster, {large: 1}, 1.0)
            while not saving.wait(0.02):
                move.look()
            move.abort("somebody wants it back")
            assert move.run(30.0).tasks[0].outcome is Outcome.ROLLED_BACK
            cluster.wait(lambda: not task.stopped)
            cluster.processes[0].worker.saving._pool.submit(lambda: None).result(30.0)  # it had its turn
            assert not cluster.stores.closed, "it is being used"
        finally:
            may_end.set()
        cluster.wait(lambda: bool(cluster.stores.closed))
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT


def test_nothing_is_remembered_any_more_of_what_could_not_be_copied() -> None:
    name, topology, large = with_a_large_state()

    def fails() -> None:
        raise ElasticError("the store does not answer")

    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.stores.on_commit = fails
        (part,) = cluster.move({large: 1}).tasks
        assert part.outcome is Outcome.ROLLED_BACK
        cluster.wait(lambda: not tracking.is_tracking(cluster.task(large).component.texts))
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT


def test_that_saving_has_failed_is_said_before_the_stores_are_told() -> None:
    """One of them does not answer, mostly: the task would stand still for as long as that is waited for once more."""
    name, topology, large = with_a_large_state()
    said, given_up = threading.Event(), threading.Event()

    def fails() -> None:
        raise ElasticError("the store does not answer")

    def waits() -> None:
        if said.wait(10.0):
            given_up.set()

    def notes(marks: Marks) -> None:
        if marks.failed:
            said.set()

    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.stores.on_commit, cluster.stores.on_abort = fails, waits
        cluster.before_marks = notes
        (part,) = cluster.move({large: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.ROLLED_BACK, "the store does not answer")
        cluster.wait(lambda: bool(cluster.stores.given_up))
        assert given_up.is_set()
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT


def given_up_when_copying_ahead_fails_late() -> int:
    """It fails when the stopped task has been saved already. How many writes are given up for that."""
    begun, saved, copy, says = threading.Event(), threading.Event(), Copying._copy_some, Saving._saved

    def copies(self: Copying, old: Going, copier: Copier, *arguments: Any) -> bool:
        if not (old.told and copier.done):  # the pause comes when all was copied once
            return copy(self, old, copier, *arguments)
        begun.set()
        assert saved.wait(30.0)
        raise ElasticError("the store does not answer")

    def tells(self: Saving, *arguments: Any) -> None:
        says(self, *arguments)
        saved.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copying, "_copy_some", copies)
        patch.setattr(Saving, "_saved", tells)
        fetches_after(begun, patch)
        cluster, _ = move_large()
    return len(cluster.stores.given_up)


def test_what_has_been_saved_cannot_fail_any_more() -> None:
    assert not given_up_when_copying_ahead_fails_late()


def test_that_it_fails_afterwards_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Going, "ends_now", lambda self: True)
    with pytest.raises(AssertionError):  # the write is given up, or the worker cannot go on
        assert not given_up_when_copying_ahead_fails_late()
