"""Puts a state into another copy of its component: at once, or as it comes.

What was copied ahead is put in before the task stops at its former place, again and again, as long as more has come; in the pause only
the pieces follow that are new by then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from elastic.api import tracking
from elastic.api.components import Component
from elastic.api.state import StateMap
from elastic.errors import ExecutionError
from elastic.worker import memory
from elastic.worker.content import codec, whole
from elastic.worker.content.copier import GivingWay, owner_of, present_states, states_of
from elastic.worker.content.entries import chunks
from elastic.worker.content.grid import GridPiece
from elastic.worker.content.layout import NO_COPY, Meta, StateMeta, read_meta
from elastic.worker.content.lazy import UnreadBins
from elastic.worker.content.wholes import MANY
from elastic.worker.memory import TableMemory
from elastic.worker.shown import described

LARGE = 1 << 20
"""Bytes of a table; smaller ones grow in a millisecond."""
PUT, LARGE_PUT = 512, 2048
"""Entries that are put in with one call, in which no other thread gets the interpreter: of a state of `MANY` entries, a fraction of a
millisecond; and of others, which are soon done with."""
FILLED = 128
"""Buckets that are read in one step."""


class Step(NamedTuple):
    """What is to be done after a step, before the next one.

    Attributes:
        others_first: It is a state of so many entries that others are let go first.
        memory: What the next one takes in one block, to be made ready so that it need not make it in its one call; None: nothing.
    """

    others_first: bool
    memory: TableMemory | None


Names = Sequence[Hashable]
"""What tells pieces from all others, in the order of the pieces."""


class Arrival:
    """A state on its way into a component. All methods are called by the executor's thread, after `prepare`, before the first tuple.

    Args:
        component: A copy of the component that the state is taken from.

    Attributes:
        over: Nothing is put in ahead any more: what was about to be is left to `put`, and may be older than what that has.
        here: The pieces that are in, or kept until they are needed: they need not come again, and nothing stands for them.
    """

    def __init__(self, component: Component) -> None:
        self._component = component
        self._owner = owner_of(component)
        self._copies: dict[str, int] = {}
        self._slots: dict[str, int] = {}  # of the tables that there is room for
        self.over = False
        self.here: dict[Hashable, bytes] = {}

    def ahead(self, meta: bytes, names: Names, pieces: Sequence[bytes]) -> Generator[Step, None, None]:
        """Put in what was copied ahead, in steps of about a millisecond: all of it, so that nothing is bytes in the end. To be closed when
        it is given up.

        Args:
            meta: `Copier.so_far`, or `Copier.rest` of a task that has stopped meanwhile.
            names: Of the pieces.
            pieces: Those of that, in that order, or the first of them. Of those in `here` the bytes may be left out.

        Yields:
            After each step what is to be done before the next one.

        Raises:
            ExecutionError: It cannot be read. Nothing that was put in is of use then.
        """
        note = read_meta(meta)
        states = dict(present_states(self._component, self._owner))
        for saved in note.states:
            if self.over:
                return
            if saved.copy == NO_COPY:
                continue  # nothing tells whether what is in is of the same copy: `put` begins from nothing
            state = self._state(states, saved.name)
            if any(n >= len(pieces) for layer in saved.layers for n in layer):
                return  # what may stay bytes begins when all of that has come
            for wanted in self._in_steps(state, saved, names, pieces):
                yield Step(_is_of_many(saved), wanted)
                if self.over:
                    return
            while isinstance(unread := tracking.unread(state), UnreadBins) and unread.fill(state, FILLED):
                yield Step(_is_of_many(saved), None)

    def _in_steps(
        self, state: StateMap[Any, Any], saved: StateMeta, names: Names, pieces: Sequence[bytes]
    ) -> Iterator[TableMemory | None]:
        """Yields: after each step what the next one takes in one block, or None."""
        if self._copies.get(saved.name, NO_COPY) != saved.copy or saved.copy == NO_COPY:
            self._begin(state, saved, names, pieces)
        most = PUT if _is_of_many(saved) else LARGE_PUT
        for number in saved.whole:
            if number >= len(pieces):
                return
            if names[number] not in self.here:
                entries = self._read(saved, pieces[number])
                left = len(entries)
                parts = chunks(entries.items(), lambda: most) if left > most else (entries,)
                for count, some in enumerate(parts):
                    if count:
                        yield None
                    yield from self._make_room(state, saved, left)
                    if saved.alike:
                        # One of another type may be there under an equal key, and would keep its place.
                        for key in some:
                            dict.pop(state, key, None)
                    dict.update(state, some)
                    left -= len(some)
                self.here[names[number]] = b""
                yield None

    def _make_room(self, state: StateMap[Any, Any], saved: StateMeta, more: int) -> Iterator[TableMemory]:
        """Have the memory made for the table of a state that is about to grow, and at once a table as large as it will be: in the call in
        which it grows, nobody else runs.

        Yields: that memory, if there is to be one.
        """
        count = dict.__len__(state)
        if not count:
            return  # only with the first entries it is known how large they are
        slots = self._slots.get(saved.name) or memory.slots_for(count)
        most = saved.count if saved.count >= 0 and memory.makes_tables() else count + more
        wanted = memory.slots_for(most)
        if wanted <= slots:
            return
        size = memory.table_size(sys.getsizeof(state), slots, wanted)
        if size >= LARGE:
            room = TableMemory(size)
            try:
                yield room
                memory.make_table(state, most)  # else it makes one itself with the next entries, and as large
            finally:
                room.let_go()
        self._slots[saved.name] = wanted

    def put(self, meta: bytes, names: Names, pieces: Sequence[bytes]) -> None:
        """Put the state in, in the place of what there is. What came ahead of the same copy stays, and the rest of it follows.

        Of keyed states of which nothing came ahead most stays bytes until it is asked for; `fill` reads it when there is time.

        Args:
            meta: `Content.meta`.
            names: Of the pieces.
            pieces: The pieces of `Content.order`, in that order; they are kept until they have been read. Of those in `here` the bytes may
                be left out.

        Raises:
            ExecutionError: It cannot be read, or is of another class; `set_state` raised.
        """
        self.over = True
        note = read_meta(meta)
        states = dict(present_states(self._component, self._owner))
        give_way = GivingWay()
        for saved in note.states:
            state = self._state(states, saved.name)
            for wanted in self._in_steps(state, saved, names, pieces):
                if wanted is not None:
                    wanted.make_ready()
                give_way()
            self._remove_gone(state, saved, pieces, give_way)
            del states[saved.name]
        for state in states.values():
            state.clear()
        self._put_own(note, pieces)

    def _state(self, states: dict[str, StateMap[Any, Any]], name: str) -> StateMap[Any, Any]:
        state = states.get(name)
        if state is None:
            raise ExecutionError(
                f"{self._owner} has no state {name!r}, but was saved with one.",
                remedy="Both sides of a move must run the same code.",
            )
        return state

    def _begin(
        self, state: StateMap[Any, Any], saved: StateMeta, names: Names, pieces: Sequence[bytes]
    ) -> None:
        """The first copy: bytes that are read when they are asked for."""
        tracking.untrack(state)
        state.clear()
        try:
            layers = [
                [GridPiece(pieces[n]) if n >= 0 else None for n in layer]
                for layer in saved.layers
                if any(n >= 0 for n in layer)
            ]
        except Exception as e:
            raise self._unreadable(saved, e) from e
        if layers:
            tracking.read_later(state, UnreadBins(saved.bits, saved.split, layers, set()))
        self._copies[saved.name] = saved.copy
        self.here.update((names[n], b"") for layer in saved.layers for n in layer if n >= 0)

    def _remove_gone(
        self, state: StateMap[Any, Any], saved: StateMeta, pieces: Sequence[bytes], give_way: GivingWay
    ) -> None:
        unread = tracking.unread(state)
        for number in saved.gone:
            gone = self._read(saved, pieces[number])
            for key in gone:
                dict.pop(state, key, None)
            if isinstance(unread, UnreadBins):
                unread.gone.update(gone)
            give_way()
        if saved.count == dict.__len__(state):
            tracking.all_read(state)  # the bytes say nothing that is not there already

    def _read(self, saved: StateMeta, data: bytes) -> dict[Any, Any]:
        try:
            return codec.decode(data)
        except Exception as e:
            raise self._unreadable(saved, e) from e

    def _unreadable(self, saved: StateMeta, error: Exception) -> ExecutionError:
        return ExecutionError(f"State {saved.name!r} of {self._owner} cannot be read: {described(error)}")

    def _put_own(self, note: Meta, pieces: Sequence[bytes]) -> None:
        if note.custom is not None:
            buffers = [[pieces[n] for n in b] for b in note.buffers]
            whole.put(self._component, self._owner, [pieces[n] for n in note.custom], buffers)


def install(component: Component, meta: bytes, pieces: Sequence[bytes]) -> None:
    """Put a state in of which nothing has come ahead; see `Arrival.put`."""
    Arrival(component).put(meta, range(len(pieces)), pieces)


def fill(component: Component, until: float) -> bool:
    """Read more of what is bytes still. To be called when the task has nothing else to do.

    Args:
        until: The monotonic time to stop at; it may take a millisecond more.

    Returns:
        Whether something is left.
    """
    for _, state in states_of(component):
        while True:
            unread = tracking.unread(state)
            if not isinstance(unread, UnreadBins):
                break
            unread.fill(state, FILLED)
            if time.monotonic() >= until:
                return pending(component)
    return False


def pending(component: Component) -> bool:
    """Whether something is bytes still."""
    return any(tracking.is_lazy(state) for _, state in states_of(component))


def _is_of_many(saved: StateMeta) -> bool:
    return saved.count >= MANY
