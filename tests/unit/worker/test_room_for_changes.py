"""While a state is copied there is room for what changes: its table is made at once, of memory that was made before that."""

from __future__ import annotations

import sys
import threading

import pytest

from elastic import KeyedState, StatefulBolt
from elastic.api import tracking
from elastic.migration.record import Outcome
from elastic.worker import memory
from elastic.worker.content import Copier, changes, wholes
from tests.unit.worker import test_moves_ahead as moves
from tests.unit.worker.moving_harness import Moving

ENTRIES = 200_000


class Counts(StatefulBolt):
    entries = KeyedState[str, int]()


def counts(entries: int) -> Counts:
    bolt = Counts()
    bolt.entries.update((f"k{n:09d}", n) for n in range(entries))
    return bolt


@pytest.mark.skipif(not memory.makes_tables(), reason="this interpreter's tables grow as they always do")
@pytest.mark.parametrize("made", [True, False])
def test_there_is_room_for_many_changes(monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    if not made:
        monkeypatch.setattr(memory, "make_table", lambda entries, count: False)
    coming = counts(ENTRIES)
    copier = Copier(coming)
    copier.read_at_once(0)
    copier.ahead(0.0)
    assert (len(change(coming, 0, ENTRIES * 3 // 5)) == 1) == made
    copier.cancel()
    assert sys.getsizeof(coming.entries._changed) < 1000, "nothing of it stays"


def change(coming: Counts, first: int, count: int) -> set[int]:
    """Some entries; what sizes the table of the changes had meanwhile."""
    sizes = set()
    for n in range(first, first + count):
        coming.entries[f"k{n:09d}"] += 1
        sizes.add(sys.getsizeof(coming.entries._changed))
    return sizes


@pytest.mark.skipif(not memory.makes_tables(), reason="this interpreter's tables grow as they always do")
@pytest.mark.parametrize("fault", [False, True])
def test_another_table_follows_before_one_grows(monkeypatch: pytest.MonkeyPatch, fault: bool) -> None:
    """In the first copy, which may last, and in later ones."""
    if fault:
        monkeypatch.setattr(changes.Changes, "turn_over", lambda self: None)
    monkeypatch.setattr(changes, "TABLE", changes.LEAST)
    coming = counts(ENTRIES)
    copier = Copier(coming)
    copier.read_at_once(0)
    copier.ahead(0.0)
    sizes = set()
    for number in range(0, 150_000, 5_000):
        sizes |= change(coming, number, 5_000)
        copier.ahead(0.0)
    assert (len(sizes) == 1) != fault
    for _ in range(100_000):
        if copier.done:
            break
        copier.ahead(0.0)
    pieces = [data for _, data in copier.rest().pieces]
    assert copier.done and pieces
    copier.cancel()


def test_tables_do_not_become_more_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same keys change for as long as nobody copies what has changed."""
    monkeypatch.setattr(changes, "TABLE", changes.LEAST)
    state = counts(2 * changes.LEAST).entries
    tracking.track(state, reads=False)
    of = changes.Changes(state, large=True)
    for number in range(40):
        for key in list(state)[number % 2 :: 2]:
            state[key] += 1
        of.turn_over()
    assert len(of) <= (changes.MOST + 1) * len(state)
    newest: dict[str, int] = dict(of.take())
    assert newest == dict(state)
    assert len(of) <= 1, "what has changed is remembered anew"


@pytest.mark.skipif(not memory.makes_tables(), reason="this interpreter's tables grow as they always do")
def test_for_few_changes_no_table_is_made_and_one_follows_when_they_become_more() -> None:
    """In the pause nothing changes any more, and until it comes little does between two looks."""
    coming = counts(ENTRIES)
    state = coming.entries
    tracking.track(state, reads=False)
    of = changes.Changes(state, large=True)
    assert len(dict(of.take())) == 1, "the one for which the first table was made"
    assert len(of) == 0 and sys.getsizeof(state._changed) < 1000
    sizes = set()
    for number in range(0, 100_000, 5_000):
        change(coming, number, 5_000)
        of.turn_over()
        sizes.add(sys.getsizeof(state._changed))
    large = max(sizes)
    assert sys.getsizeof(state._changed) == large and len(sizes) <= 4, "it has not grown any more"
    assert len(dict(of.take())) == 100_000


@pytest.mark.skipif(not memory.makes_tables(), reason="this interpreter's tables grow as they always do")
@pytest.mark.parametrize("entries", [ENTRIES, 1_200_000])
def test_its_memory_is_known_before(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    ready: list[int] = []
    monkeypatch.setattr(memory, "make_ready", lambda size, blocks=1: ready.append(size))
    coming = counts(entries)
    copier = Copier(coming)
    copier.make_ready()
    (room,) = ready
    copier.ahead(0.0)
    assert room == pytest.approx(sys.getsizeof(coming.entries._changed), rel=0.1)
    copier.cancel()


def test_what_is_small_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ready: list[int] = []
    monkeypatch.setattr(memory, "make_ready", lambda size, blocks=1: ready.append(size))
    Copier(counts(wholes.MANY - 1)).make_ready()
    assert not ready


@pytest.mark.skipif(not memory.makes_tables(), reason="this interpreter's tables grow as they always do")
@pytest.mark.parametrize("fault", [False, True])
def test_it_is_made_beside_the_task_of_which_the_state_is(
    monkeypatch: pytest.MonkeyPatch, fault: bool
) -> None:
    """Not by its executor, which has tuples to work off."""
    made: list[tuple[str, str]] = []

    def note(what: str) -> None:
        made.append((what, threading.current_thread().name))

    monkeypatch.setattr(wholes, "MANY", 1000)
    monkeypatch.setattr(changes, "LEAST", 0)
    monkeypatch.setattr(memory, "make_ready", lambda size, blocks: note("memory"))
    monkeypatch.setattr(memory, "make_table", lambda entries, count: note("table"))
    if fault:
        monkeypatch.setattr(Copier, "make_ready", lambda self: None)
    _, topology, large = moves.with_a_large_state()
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        (part,) = cluster.move({large: 1}).tasks
        assert part.outcome is Outcome.COMMITTED
        cluster.wait_finished()
    # The first: on a busy machine copying takes rounds, and each has a table of its own.
    table = next(
        n for n, (what, thread) in enumerate(made) if what == "table" and thread.startswith("executor-large")
    )
    before = [thread for what, thread in made[:table] if what == "memory"]
    assert (any(t.startswith("states-copied") for t in before)) != fault, made
