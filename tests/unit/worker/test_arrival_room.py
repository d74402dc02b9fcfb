"""Before the table of a dictionary grows while a state is put in, its memory is made: for each table that is large, and of its size."""

from __future__ import annotations

import sys

import pytest

from elastic import KeyedState, StatefulBolt
from elastic.worker import memory
from elastic.worker.content import Arrival, Copier, arrival

ENTRIES = 200_000


class Counts(StatefulBolt):
    entries = KeyedState[str, int]()


@pytest.mark.parametrize("seen", [True, False])
def test_room_is_made_before_a_large_table_grows(monkeypatch: pytest.MonkeyPatch, seen: bool) -> None:
    made: list[int] = []
    grown: list[int] = []
    coming, comes = Counts(), Counts()
    coming.entries.update((f"k{n:09d}", n) for n in range(ENTRIES))
    make_room = arrival._make_room

    def watched(state: object, more: int) -> None:
        grown.append(sys.getsizeof(state))
        if seen:
            make_room(state, more)

    monkeypatch.setattr(memory, "make_ready", made.append)
    monkeypatch.setattr(arrival, "_make_room", watched)
    copier = Copier(coming)
    copier.read_at_once(0)
    rest = copier.rest()
    pieces = dict(rest.pieces)
    Arrival(comes).put(rest.meta, range(len(rest.order)), [pieces[n] for n in rest.order])
    assert comes.entries == coming.entries
    grown.append(sys.getsizeof(comes.entries))
    large = sorted({size for size in grown if size >= 2 * arrival.LARGE})
    assert len(large) >= 2
    matched = [any(size <= room < 1.2 * size for room in made) for size in large]
    assert all(matched) == seen, (large, made)
