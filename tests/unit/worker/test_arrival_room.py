"""The table of a dictionary that a state is put into is made at once, as large as it will be, and its memory before that: no call moves
many entries."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator

import pytest

from elastic import KeyedState, StatefulBolt
from elastic.worker import memory
from elastic.worker.content import Arrival, Copier, Step
from elastic.worker.memory import TableMemory

ENTRIES = 200_000
FEW = 5000
"""Entries that may be there when a large table is made."""


class Counts(StatefulBolt):
    entries = KeyedState[str, int]()


class Grown:
    """Watches a dictionary: how many entries were there when its table became one of a megabyte or more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, seen: bool) -> None:
        self.ready: list[int] = []
        self.at: list[tuple[int, int]] = []
        make_room = Arrival._make_room

        def watched(arrival: Arrival, state: dict[str, int], *rest: object) -> Iterator[TableMemory]:
            if seen:
                yield from make_room(arrival, state, *rest)  # type: ignore[arg-type]
            self.look(state)

        monkeypatch.setattr(TableMemory, "make_ready", lambda room: self.ready.append(room.size))
        monkeypatch.setattr(Arrival, "_make_room", watched)

    def look(self, state: dict[str, int]) -> None:
        size = sys.getsizeof(state)
        if size >= 1 << 20 and (not self.at or size > self.at[-1][0]):
            self.at.append((size, len(state)))


class Copied:
    """A state, and the component that it goes to."""

    def __init__(self) -> None:
        self.coming, self.comes = Counts(), Counts()
        self.coming.entries.update((f"k{n:09d}", n) for n in range(ENTRIES))
        self.arrival = Arrival(self.comes)
        self._copier = Copier(self.coming)
        self._copier.read_at_once(0)
        self._pieces: dict[int, bytes] = {}

    def ahead(self) -> Generator[Step, None, None]:
        """All of it, copied ahead and put in."""
        while not self._copier.done:
            self._pieces.update(self._copier.ahead(0.0))
        some = self._copier.so_far()
        return self.arrival.ahead(some.meta, some.order, [self._pieces[n] for n in some.order])

    def put(self, grown: Grown) -> None:
        """What is left, or all, in the pause."""
        rest = self._copier.rest()
        self._pieces.update(rest.pieces)
        self.arrival.put(rest.meta, rest.order, [self._pieces[n] for n in rest.order])
        grown.look(self.comes.entries)
        assert self.comes.entries == self.coming.entries


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("ahead", [True, False])
def test_a_large_table_is_made_once_and_early(
    monkeypatch: pytest.MonkeyPatch, seen: bool, ahead: bool
) -> None:
    copied, grown = Copied(), Grown(monkeypatch, seen=seen)
    if ahead:
        grown.ready += [step.memory.size for step in copied.ahead() if step.memory is not None]
    copied.put(grown)
    size = sys.getsizeof(copied.comes.entries)
    if not memory.makes_tables():
        pytest.skip("this interpreter makes its tables as it likes")
    once = len(grown.at) == 1 and grown.at[0][1] <= FEW
    ready = any(size <= room < 1.2 * size for room in grown.ready)
    assert (once and ready) == seen, (grown.at, grown.ready, size)


def test_where_tables_grow_as_they_like_room_is_made_once_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "makes_tables", lambda: False)
    copied, grown = Copied(), Grown(monkeypatch, seen=True)
    copied.put(grown)
    assert len(grown.at) == len(grown.ready) >= 2
    assert all(size <= room < 1.2 * size for (size, _), room in zip(grown.at, grown.ready, strict=True))


def test_what_comes_in_the_pause_makes_the_table_that_nobody_has_come_to_make(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory for it was about to be made when the task stopped at its former place."""
    copied, grown = Copied(), Grown(monkeypatch, seen=True)
    ahead = copied.ahead()
    asked = next(step.memory for step in ahead if step.memory is not None)
    assert not grown.at and not grown.ready, "it is for somebody else to make it"
    copied.put(grown)
    if memory.makes_tables():
        assert grown.ready == [asked.size] and len(grown.at) == 1
    assert not asked._over
    ahead.close()
    assert asked._over, "it is not kept for a table that is not made"
