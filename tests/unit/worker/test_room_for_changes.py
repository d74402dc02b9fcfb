"""While a state is copied there is room for what changes: its table is made at once, of memory that was made before that."""

from __future__ import annotations

import sys
import threading

import pytest

from elastic import KeyedState, StatefulBolt
from elastic.migration.record import Outcome
from elastic.worker import memory
from elastic.worker.content import Copier, changes, keyed
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
    sizes = set()
    for n in range(ENTRIES * 3 // 5):
        coming.entries[f"k{n:09d}"] += 1
        sizes.add(sys.getsizeof(coming.entries._changed))
    assert (len(sizes) == 1) == made
    copier.cancel()
    assert sys.getsizeof(coming.entries._changed) < 1000, "nothing of it stays"


def copied(coming: Counts) -> Copier:
    """Everything is, once."""
    copier = Copier(coming)
    copier.read_at_once(0)
    while not copier.done:
        copier.ahead(0.0)
    return copier


def change(coming: Counts, first: int, count: int) -> set[int]:
    """Some entries; what sizes the table of the changes had meanwhile."""
    sizes = set()
    for n in range(first, first + count):
        coming.entries[f"k{n:09d}"] += 1
        sizes.add(sys.getsizeof(coming.entries._changed))
    return sizes


@pytest.mark.skipif(not memory.makes_tables(), reason="this interpreter's tables grow as they always do")
@pytest.mark.parametrize("made", [True, False])
def test_there_is_room_for_as_many_changes_while_those_before_are_copied(
    monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    coming = counts(ENTRIES)
    copier = copied(coming)
    change(coming, 0, 50_000)
    if not made:
        monkeypatch.setattr(memory, "make_table", lambda entries, count: False)
    before = coming.entries._changed
    while coming.entries._changed is before:  # the next round has begun
        copier.ahead(0.0)
    assert (len(change(coming, 50_000, 50_000)) == 1) == made
    copier.cancel()


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
    Copier(counts(keyed.MANY - 1)).make_ready()
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

    monkeypatch.setattr(keyed, "MANY", 1000)
    monkeypatch.setattr(changes, "LEAST_ROOM", 0)
    monkeypatch.setattr(memory, "make_ready", lambda size, blocks: note("memory"))
    monkeypatch.setattr(memory, "make_table", lambda entries, count: note("table"))
    if fault:
        monkeypatch.setattr(Copier, "make_ready", lambda self: None)
    _, topology, large = moves.with_a_large_state()
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        (part,) = cluster.move({large: 1}).tasks
        assert part.outcome is Outcome.COMMITTED
        cluster.wait_finished()
    (table,) = (
        n for n, (what, thread) in enumerate(made) if what == "table" and thread.startswith("executor-large")
    )
    before = [thread for what, thread in made[:table] if what == "memory"]
    assert (any(t.startswith("states-copied") for t in before)) != fault, made
