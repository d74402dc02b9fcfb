"""Copies one keyed state while it is in use: everything once, then what has changed since, then the rest when its task has stopped.

The first copy may be a grid, of which the other side reads what it is asked for. Everything else goes into pieces that are read at once:
they cost a tenth of a grid's, and so a copy catches up with a state that is changed hundreds of thousands of times a second.

What has changed is written behind what there is. When that has become as much as the state, all of it is written once more, a part with
each round; pieces that say nothing any more are left out as it goes on. So what is written has a bound, however long the pause has to be
waited for, and what has changed is never left lying meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from elastic.api import tracking
from elastic.api.state import StateMap
from elastic.worker.content.changes import Changes, make_memory
from elastic.worker.content.entries import Owing, Present, entries_of
from elastic.worker.content.grid import grid_of
from elastic.worker.content.gridding import STEP, Gridding
from elastic.worker.content.layout import BUCKET, NO_COPY, StateMeta
from elastic.worker.content.lazy import UnreadBins
from elastic.worker.content.wholes import ByIdentity, Piece, Wholes

SMALL = 16 << 10
"""A state of fewer bytes is not copied ahead: it takes about a millisecond. (Many such tasks may stop at once.)"""
LITTLE = 8_000
LITTLE_BYTES = 256 << 10
"""So many changed keys, of so many bytes, are left to the pause at most; and at most a thirty-second part of all."""
MOST_LAYERS = 4
"""A state that is bytes still, in more layers, is read before it moves on."""
MOST_WRITTEN = 1
LEAST_WRITTEN = 4 << 20
WRITTEN = 16 << 20
"""When what has changed has been written so many times as often as there are entries, and beyond that twice as many bytes as these take,
but not fewer and not more than these, all of it is written once more in its place: what is written has a bound. The stores keep all of it
until the move has ended: of 64 tasks with 2 MB each half a gigabyte at most."""
RENEWED = 2
RENEWED_BYTES = 4 << 20
"""So many times as much of it as has changed goes with a round, and at least so many bytes: while all is written once more, half as much
changes."""
MOST_REMOVED = 100_000
"""When so many keys more than twice the present ones have been removed, the copy begins anew: what is remembered has a bound."""
_ROUNDS = 27
_IN_VAIN = 9
_NEAR = 64
"""So many times what has changed is copied again before the copy counts as done, and no more once it is a part of so many of the state. A
round after which it has not become less by half is in vain; so many of these end it, too: a state may change as fast as it is copied.
After each of them the task of a large one goes slower (`Brake`)."""
_AT_ONCE = 8
"""When there was nothing to copy a moment ago, and half of such a part of all has changed since, the next round has to be quicker."""
_SAMPLE = 64

Steps = Iterator[Piece | None]


class KeyedCopier:
    """See the module. `size`, `step`, `busy` and `settle` are called between two tuples of the task, `rest` when it has stopped; what else
    there is also by other threads while tuples run (`Copier`): what it says of changes is of about now then.

    Args:
        owner: Whose state it is, for errors.
        number: Gives the number of a new piece.
        piece: Bytes of a piece, about.

    Attributes:
        grid: Whether the first copy is one. To be set before the first step.
        piece: As given. To be set before the first step.
        outrun: What has changed is much, and has not become less by half in a round since it was little.
        in_vain: How many rounds in a row that is so of.
    """

    def __init__(
        self, name: str, state: StateMap[Any, Any], owner: str, number: Callable[[], int], piece: int
    ) -> None:
        self.name = name
        self._state = state
        self._number = number
        self._pieces = Wholes(name, state, owner, number, piece)
        self.grid = True
        self._at_once = False  # all of it goes in the pause: see `ByIdentity`
        self._tracked: set[Any] | None = None  # what tells our tracking from that of others
        self._begin()

    def _begin(self) -> None:
        self._steps: Steps | None = None
        self._changes: Changes | None = None
        self._bits = self._split = 0
        self._layers: list[list[int]] = []
        self._whole: list[int] = []
        self._first = 0  # how many of these belong to the first copy, if that is a grid
        self._ends: list[tuple[int, int]] = []  # the last copy of everything: (piece, entries up to its end)
        self._renewing: Iterator[tuple[Piece, int]] | None = None
        self._gridding: Gridding | None = None  # until that is over
        self._sorted = False  # nothing has been copied before
        self._complete = False  # everything was copied once
        self._small = 0
        self._rounds = 0
        self.outrun = False
        self.in_vain = 0  # rounds that were outrun since little had changed
        self._last = 0  # entries that the last round has copied
        self._owed = 0  # of these, what it has not copied yet
        self._copy_number = NO_COPY
        self._pieces.begin()
        self._gone: set[Any] = set()
        self._owing = Owing(())  # what has changed and is in no piece yet
        self._present: Present | None = None
        self._written = 0  # entries in the pieces after the first copy

    @property
    def piece(self) -> int:
        """Bytes of a piece, about."""
        return self._pieces.piece

    @piece.setter
    def piece(self, size: int) -> None:
        self._pieces.piece = size

    @property
    def state(self) -> StateMap[Any, Any]:
        """What it copies."""
        return self._state

    # ------------------------------------------------------------------ how much

    def size(self) -> int:
        """Bytes that it takes, about."""
        state = self._state
        count = dict.__len__(state)
        rest = tracking.unread(state)
        size = rest.size() if isinstance(rest, UnreadBins) else 0
        if not count:
            return size
        keys = chain(islice(dict.__iter__(state), _SAMPLE), islice(dict.__reversed__(state), _SAMPLE))
        self._pieces.weigh({k: dict.__getitem__(state, k) for k in keys})
        return size + int(self._pieces.weight * count)

    # ------------------------------------------------------------------ ahead

    def step(self) -> Piece | None:
        """Copy a little; returns a piece when one has become ready."""
        if self._outgrown():
            rounds = self._rounds + 1
            self.cancel()
            self._rounds = rounds
        if self._steps is None:
            self._steps = self._all()
        if self._changes is not None:
            self._changes.turn_over()
        try:
            return next(self._steps)
        except StopIteration:
            pass
        except ByIdentity:
            self._leave_to_the_pause()
            return None
        if self._settled() or self._near:
            self.outrun, self.in_vain = False, 0
        if not self._settled():
            count = dict.__len__(self._state)
            # The first round has copied everything: is most of that out of date, the next one has to be quicker at once.
            before = self._last or (count // _AT_ONCE if self._rounds else count)
            late = not self._near and 2 * self._changed > before
            in_vain = late and self._last > 0
            self.outrun |= late  # until little is left: a stream that has fallen behind is quicker than ever
            self.in_vain += in_vain
            self._rounds += _ROUNDS // _IN_VAIN if in_vain else 1
            self._steps = self._again()
        return None

    def _outgrown(self) -> bool:
        """Whether the copy is of little use any more."""
        if not self._complete:
            return False
        count = dict.__len__(self._state)
        if self._small:
            return count > 4 * self._small and not self._at_once
        return len(self._state._removed) > 2 * count + MOST_REMOVED

    def _settled(self) -> bool:
        """Whether there is nothing to copy at present that should not wait for the pause."""
        if self._outgrown():
            return False
        if self._small:
            return True
        if not self._complete or self._owed:
            return False
        return self._changed <= self._few()

    def _repeats(self, changed: int, most: int) -> bool:
        """Whether what has changed, with what was written of that before, is more than so many times what there is."""
        count = dict.__len__(self._state)
        more = min(WRITTEN, max(LEAST_WRITTEN, 2 * count * self._pieces.weight))
        return self._written + changed > most * count + more / self._pieces.weight

    def _few(self) -> int:
        """So many changed keys are left to the pause."""
        count = dict.__len__(self._state)
        return max(16, min(LITTLE, count // 32, int(LITTLE_BYTES / self._pieces.weight)))

    @property
    def done(self) -> bool:
        """Whether everything was copied once, and what has changed since is little, or will not become less."""
        return self._complete and (self._rounds >= _ROUNDS or self._settled() or self._near)

    @property
    def caught_up(self) -> bool:
        """Whether there is little to copy at present, or it does not become less."""
        if not self.done:
            return False
        # Far beyond what makes it done: little may be left with each round, and much again whenever somebody asks.
        return bool(self._small) or self._near or self.in_vain >= _IN_VAIN or self._rounds >= 2 * _ROUNDS

    @property
    def _near(self) -> bool:
        if not tracking.is_tracking(self._state):
            return False
        changed = self._changed + self._owed
        return changed <= max(self._few(), dict.__len__(self._state) // _NEAR)

    def settle(self) -> None:
        """`step` has nothing to do: what changes from now on is not what a round has left."""
        self._last = self.in_vain = 0
        self.outrun = False

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do."""
        return not self._settled()

    def cancel(self) -> None:
        """Forget the copy. Again, when it is known to be over only later, costs nothing that came after it."""
        state = self._state
        # Otherwise another copier follows it by now.
        if tracking.is_tracking(state) and tracking.removed(state) is self._tracked:
            tracking.untrack(state)
        self._begin()

    def _leave_to_the_pause(self) -> None:
        """Nothing of it is copied ahead."""
        self.cancel()
        self._at_once = self._complete = True
        self._small = max(1, dict.__len__(self._state))

    def _track(self, *, reads: bool) -> None:
        tracking.track(self._state, reads=reads, first_removal=self._stop_iterating)
        self._tracked = tracking.removed(self._state)
        self._changes = Changes(self._state, large=self.many)

    @property
    def _changed(self) -> int:
        """How many changes are remembered."""
        return len(self._changes) if self._changes is not None else 0

    def _taken(self) -> Iterator[tuple[Any, Any]]:
        """What has changed, of which nothing is remembered any more."""
        return self._changes.take(self._pieces.kinds.note) if self._changes is not None else iter(())

    @property
    def many(self) -> bool:
        """Whether there are so many entries that others are let go first all the time."""
        return self._pieces.many

    def make_ready(self) -> None:
        """Have the memory made that remembering changes needs, while others run."""
        if self.many:
            make_memory(self._state)

    def _all(self) -> Steps:
        state = self._state
        rest = tracking.unread(state)
        if isinstance(rest, UnreadBins) and (
            len(rest.layers) > MOST_LAYERS or dict.__len__(state) > rest.left * BUCKET
        ):
            while rest.fill(state, STEP // BUCKET):  # most of it was read: the old bytes say little
                yield None
        rest = tracking.unread(state)
        if isinstance(rest, UnreadBins):
            self._track(reads=True)
            yield from self._as_it_is(rest)
        else:
            size = self.size()
            if size <= SMALL or self._at_once:
                self._complete, self._small = True, max(dict.__len__(state), 1000)
                return
            self._track(reads=False)
            self._bits, self._split = grid_of(dict.__len__(state), size, self.piece)
        self._copy_number = self._number()
        self._present = Present(state)
        if self.grid:
            assert self._changes is not None
            self._gridding = grid = Gridding(state, self._bits, self._split, self._pieces, self._changes.drop)
            yield from grid.sort(self._present)
            self._sorted = True
            yield from self._grid(grid)
            self._gridding = None
        else:
            self._owing = self._present
            self._sorted = True
            for piece, _ in self._everything_in(self._owing):
                yield piece
        self._complete, self._first = True, len(self._whole) if self.grid else 0
        # All of it was gone through. Whoever asked for what is left would go through it once more: within the pause, or within a tuple.
        self._owing, self._present = Owing(()), None

    def _as_it_is(self, rest: UnreadBins) -> Iterator[Piece]:
        """What is bytes still travels as it is; what is in the dictionary holds."""
        self._bits, self._split, self._gone = rest.bits, rest.split, rest.gone
        self._pieces.kinds.anything()
        for grids in rest.layers:
            layer: list[int] = []
            self._layers.append(layer)
            for grid in grids:
                layer.append(-1 if grid is None else self._number())
                if grid is not None:
                    yield layer[-1], grid.data

    def _again(self) -> Steps:
        """Copy what has changed."""
        assert self._changes is not None
        count = len(self._changes)
        self._owing = Owing(self._taken())
        self._last = self._owed = count
        if self._renewing is None and self._repeats(count, MOST_WRITTEN) and len(self._whole) > self._first:
            self._renewing = self._renew()
        for piece, some in self._wholes(self._owing):
            self._written += len(some)
            self._owed -= len(some)
            yield piece
        self._owed = 0  # a key that came twice was counted twice
        if self._renewing is None:
            return
        left = max(RENEWED * count, RENEWED_BYTES / self._pieces.weight)
        for piece, size in self._renewing:
            yield piece
            left -= size
            if left <= 0:
                return
        self._renewing = None

    def _everything_in(self, owing: Owing) -> Iterator[tuple[Piece, dict[Any, Any]]]:
        """Pieces with all that there is, as it is at the moment when each is made: what had changed by then need not be copied again."""
        copied = 0
        for piece, some in self._wholes(owing, fresh=True):
            copied += len(some)
            if self._standing(some) == len(some):
                self._ends.append((piece[0], copied))
            yield piece, some

    def _standing(self, some: dict[Any, Any]) -> int:
        """How many of these are where they were when they were written down, or further ahead: one that was removed, and set again since,
        is at the end."""
        removed = self._state._removed
        return len(some) if removed.isdisjoint(some) else len(some.keys() - removed)

    def _renew(self) -> Iterator[tuple[Piece, int]]:
        """All of it once more, in the place of the pieces that there are. Nothing is missing at any time, should it come to no end."""
        self._written = 0
        ends, self._ends = self._ends, []
        before = self._whole[self._first :]
        copied = done = 0
        self._present = Present(self._state)
        for piece, some in self._everything_in(self._present):
            copied += self._standing(some)
            # An entry stays where it is in a dictionary, or moves forward as others are removed. So all that this old piece has is in a
            # new one, or was set anew after it, and is in one of those that came between.
            while done < len(ends) and ends[done][1] <= copied:
                self._whole.remove(ends[done][0])
                done += 1
            yield piece, len(some)
        self._present = None
        left = set(before)
        self._whole[self._first :] = [n for n in self._whole[self._first :] if n not in left]

    def _stop_iterating(self) -> None:
        """A key is about to be removed: an iterator can't go on then."""
        if self._present is not None:
            self._present.stop_iterating()

    def _grid(self, grid: Gridding) -> Steps:
        """Make a layer of all that there is."""
        layer: list[int] = []
        self._layers.append(layer)
        for data in grid.pieces():
            if data is not None:
                layer.append(self._number() if data else -1)
            yield (layer[-1], data) if data else None
        self._owing = Owing(entries_of(self._state, grid.loose))
        for piece, _ in self._wholes(self._owing):
            yield piece

    def so_far(self) -> StateMeta | None:
        """What the state's pieces until now make up: some of it may be out of date or missing, and removed keys may be in it. None: nothing
        of use."""
        if self._small or self._copy_number == NO_COPY or (self.grid and not self._complete):
            return None
        return self._meta([])

    def _meta(self, gone: list[int]) -> StateMeta:
        count = -1 if tracking.is_lazy(self._state) else dict.__len__(self._state)
        layers = [[*layer, *[-1] * ((1 << self._split) - len(layer))] for layer in self._layers]
        return StateMeta(
            self.name,
            self._bits,
            self._split,
            layers,
            list(self._whole),
            gone,
            self._copy_number,
            count,
            self._pieces.kinds.alike,
        )

    # ------------------------------------------------------------------ the rest

    def rest(self, give_way: Callable[[], None]) -> tuple[list[Piece], StateMeta]:
        """When the task has stopped: what is missing or was changed since it was copied; and what the state consists of."""
        try:
            return self._rest(give_way)
        except ByIdentity:  # such a key has come only now
            self._leave_to_the_pause()
            return self._rest(give_way)

    def _rest(self, give_way: Callable[[], None]) -> tuple[list[Piece], StateMeta]:
        state = self._state
        made: list[Piece] = []
        if not self._sorted:  # nothing was copied: in one go it is cheaper without a grid
            self._layers = []
            unread = tracking.unread(state)
            if isinstance(unread, UnreadBins):
                made += self._as_it_is(unread)
            self._owing = Owing(dict.items(state))
        elif self._complete or not self.grid:
            self._owing = Owing(chain(self._owing.entries, self._taken()))
        else:
            missing = self._gridding.missing() if self._gridding is not None else ()
            self._owing = Owing(entries_of(state, chain(missing, (key for key, _ in self._taken()))))
        gone = self._gone | (state._removed if tracking.is_tracking(state) else set())
        for piece, _ in self._wholes(self._owing):
            made.append(piece)
            give_way()
        gone = {k for k in gone if not dict.__contains__(state, k)}
        lost: list[int] = []
        for piece in self._pieces.of_keys(gone):
            made.append(piece)
            lost.append(piece[0])
            give_way()
        return made, self._meta(lost)

    def _wholes(self, owing: Owing, *, fresh: bool = False) -> Iterator[tuple[Piece, dict[Any, Any]]]:
        """Pieces with these entries, to be read at once; and what is in each.

        Args:
            fresh: What it gives is as it is at present: of changes until now nothing else has to be copied.
        """
        for piece, some in self._pieces.of(owing, lasting=not self._at_once):
            # Not before: what was put back may be in no piece yet when the pause comes, and is found by its change alone then.
            if fresh and self._changes is not None:
                self._changes.drop(some)
            self._whole.append(piece[0])
            yield piece, some
