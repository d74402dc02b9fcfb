"""Copies one keyed state while it is in use: everything once, then what has changed since, then the rest when its task has stopped.

The first copy may be a grid, of which the other side reads what it is asked for. Everything else goes into pieces that are read at once:
they cost a tenth of a grid's, and so a copy catches up with a state that is changed hundreds of thousands of times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

from elastic.api import tracking
from elastic.api.state import StateMap
from elastic.worker.content import codec
from elastic.worker.content.bins import BITS, places
from elastic.worker.content.grid import GridWriter
from elastic.worker.content.layout import BUCKET, NO_COPY, StateMeta
from elastic.worker.content.lazy import UnreadBins

SMALL = 16 << 10
"""A state of fewer bytes is not copied ahead: it takes about a millisecond. (Many such tasks may stop at once.)"""
LITTLE = 8_000
LITTLE_BYTES = 256 << 10
"""So many changed keys, of so many bytes, are left to the pause at most; and at most a thirty-second part of all."""
MOST_LAYERS = 4
"""A state that is bytes still, in more layers, is read before it moves on."""
MOST_WRITTEN = 1
WRITTEN = 16 << 20
"""When what has changed has been written so many times as often as there are entries, and so many bytes more, all of it is written once
more in its place: what is written has a bound."""
REPEATED = 64 << 20
"""Bytes of a state that is not written once more: stores have room for two of it, not for four. What changes from then on is left to the
pause."""
MOST_REMOVED = 100_000
"""When so many keys more than twice the present ones have been removed, the copy begins anew: what is remembered has a bound."""
_ROUNDS = 4
"""So many times what has changed is copied again before the copy counts as done, and no more once it does not become less by half each
time: a state may change as fast as it is copied."""
_STEP = 512
"""Keys that are looked at in one step: a fraction of a millisecond."""
_WHOLE = 8192
"""Entries of a piece that is read at once, at most: about a millisecond."""
_RUN = 32 << 10
"""Bytes that are encoded in one step, about."""
_SAMPLE = 64
_UNKNOWN = 4096.0
"""Bytes of an entry, before any was looked at."""
_TOO_LARGE = 4
"""A piece of entries that are so many times larger than those before them is made anew, of fewer."""
_MOST_BITS = 24

Piece = tuple[int, bytes]
Steps = Iterator[Piece | None]


class KeyedCopier:
    """See the module. All methods are called between two tuples of the task.

    Args:
        owner: Whose state it is, for errors.
        number: Gives the number of a new piece.
        piece: Bytes of a piece, about.

    Attributes:
        grid: Whether the first copy is one. To be set before the first step.
    """

    def __init__(
        self, name: str, state: StateMap[Any, Any], owner: str, number: Callable[[], int], piece: int
    ) -> None:
        self.name = name
        self._state = state
        self._owner = owner
        self._number = number
        self._piece = piece
        self.grid = True
        self._begin()

    def _begin(self) -> None:
        self._steps: Steps | None = None
        self._bits = self._split = 0
        self._layers: list[list[int]] = []
        self._whole: list[int] = []
        self._first = 0  # how many of these belong to the first copy
        self._todo: list[list[Any]] = []  # keys that are yet to be copied, by piece; taken from its end
        self._there: list[list[int]] = []  # their places
        self._keys: Iterator[Any] = iter(())
        self._seen = 0
        self._sorted = False  # nothing has been copied before
        self._complete = False  # everything was copied once
        self._small = 0
        self._rounds = 0
        self._last = 0  # entries that the last round has copied
        self._copy_number = NO_COPY
        self._kinds: set[type] = set()
        self._mixed = False
        self._gone: set[Any] = set()
        self._owing: Iterator[tuple[Any, Any]] = iter(())  # what has changed and is in no piece yet
        self._written = 0  # entries in the pieces after the first copy
        self._weight = _UNKNOWN

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
        few = {k: dict.__getitem__(state, k) for k in keys}
        data = self._encode(few, codec.plain_keys(few) and codec.plain_values(few.values())[0])
        self._weight = len(data) / len(few)
        return size + int(self._weight * count)

    # ------------------------------------------------------------------ ahead

    def step(self) -> Piece | None:
        """Copy a little; returns a piece when one has become ready."""
        if self._outgrown():
            rounds = self._rounds + 1
            self.cancel()
            self._rounds = rounds
        if self._steps is None:
            self._steps = self._all()
        try:
            return next(self._steps)
        except StopIteration:
            pass
        if not self._settled():
            self._rounds = self._rounds + 1 if not self._in_vain() else _ROUNDS
            self._steps = self._again()
        return None

    def _outgrown(self) -> bool:
        """Whether the copy is of little use any more."""
        if not self._complete:
            return False
        count = dict.__len__(self._state)
        if self._small:
            return count > 4 * self._small
        return len(self._state._removed) > 2 * count + MOST_REMOVED

    def _settled(self) -> bool:
        """Whether there is nothing to copy at present that should not wait for the pause."""
        if self._outgrown():
            return False
        if self._small:
            return True
        if not self._complete or self._todo:
            return False
        changed = len(self._state._changed)
        return changed <= self._few() or (self._repeats(changed) and self._weighs() > REPEATED)

    def _weighs(self) -> float:
        return self._weight * dict.__len__(self._state)

    def _repeats(self, changed: int) -> bool:
        """Whether what has changed, with what was written of that before, is more than there is."""
        return self._written + changed > MOST_WRITTEN * dict.__len__(self._state) + WRITTEN / self._weight

    def _few(self) -> int:
        """So many changed keys are left to the pause."""
        count = dict.__len__(self._state)
        return max(16, min(LITTLE, count // 32, int(LITTLE_BYTES / self._weight)))

    @property
    def done(self) -> bool:
        """Whether everything was copied once, and what has changed since is little, or will not become less."""
        return self._complete and (self._rounds >= _ROUNDS or self._settled())

    def _in_vain(self) -> bool:
        """Whether what has changed has not become less by half."""
        return 2 * len(self._state._changed) > self._last > 0

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do."""
        return not self._settled()

    def cancel(self) -> None:
        """Forget the copy."""
        tracking.untrack(self._state)
        self._begin()

    def _all(self) -> Steps:
        state = self._state
        rest = tracking.unread(state)
        if isinstance(rest, UnreadBins) and (
            len(rest.layers) > MOST_LAYERS or dict.__len__(state) > rest.left * BUCKET
        ):
            while rest.fill(state, _STEP // BUCKET):  # most of it was read: the old bytes say little
                yield None
        rest = tracking.unread(state)
        if isinstance(rest, UnreadBins):
            tracking.track(state, reads=True, first_removal=self._stop_iterating)
            yield from self._as_it_is(rest)
        else:
            size = self.size()
            if size <= SMALL:
                self._complete, self._small = True, max(dict.__len__(state), 1000)
                return
            tracking.track(state, reads=False, first_removal=self._stop_iterating)
            self._bits, self._split = grid_of(dict.__len__(state), size, self._piece)
        self._copy_number = self._number()
        if self.grid:
            self._keys = dict.__iter__(state)
            yield from self._sort()
            self._sorted = True
            yield from self._copy()
        else:
            self._owing, self._sorted = self._entries_of(list(dict.__iter__(state))), True
            for piece, _ in self._wholes():
                yield piece
        self._complete, self._first = True, len(self._whole) if self.grid else 0

    def _as_it_is(self, rest: UnreadBins) -> Iterator[Piece]:
        """What is bytes still travels as it is; what is in the dictionary holds."""
        self._bits, self._split, self._gone, self._mixed = rest.bits, rest.split, rest.gone, True
        for grids in rest.layers:
            layer: list[int] = []
            self._layers.append(layer)
            for grid in grids:
                layer.append(-1 if grid is None else self._number())
                if grid is not None:
                    yield layer[-1], grid.data

    def _again(self) -> Steps:
        """Copy what has changed."""
        state = self._state
        changes = tracking.take_changes(state)
        first = old = len(self._whole)
        self._owing = iter(changes.items())
        self._last = len(changes)
        if self._repeats(len(changes)) and old > self._first:
            # These pieces hold more than there is: all of it once more, in their place. They are kept until that is done.
            first, self._written = self._first, 0
            self._owing = self._entries_of(list(dict.__iter__(state)))
        for piece, size in self._wholes():
            self._written += size
            yield piece
        del self._whole[first:old]

    def _entries_of(self, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """What there is at present under these keys."""
        state = self._state
        for key in keys:
            if dict.__contains__(state, key):
                yield key, dict.__getitem__(state, key)

    def _stop_iterating(self) -> None:
        """A key is about to be removed, or some were added: an iterator can't go on then. The remaining keys are written down."""
        self._keys = iter(list(islice(dict.__iter__(self._state), self._seen, None)))

    def _next_keys(self) -> list[Any]:
        try:
            keys = list(islice(self._keys, _STEP))
        except RuntimeError:
            self._stop_iterating()
            keys = list(islice(self._keys, _STEP))
        self._seen += len(keys)
        return keys

    def _sort(self) -> Steps:
        """Divide the keys by the piece that they belong to."""
        shift = BITS - self._split
        parts: list[list[Any]] = [[] for _ in range(1 << self._split)]
        where: list[list[int]] = [[] for _ in parts]
        loose: list[Any] = []
        while keys := self._next_keys():
            self._note(keys)
            for key, there in zip(keys, places(keys), strict=True):
                if there is None:
                    loose.append(key)
                else:
                    parts[there >> shift].append(key)
                    where[there >> shift].append(there)
            yield None
        self._todo, self._there = [loose, *reversed(parts)], [[], *reversed(where)]

    def _copy(self) -> Steps:
        """Make a layer of the keys in `_todo`."""
        layer: list[int] = []
        self._layers.append(layer)
        while len(self._todo) > 1:
            data = yield from self._grid(self._todo[-1], self._there.pop())
            self._todo.pop()
            layer.append(self._number() if data else -1)
            yield (layer[-1], data) if data else None
        self._owing = self._entries_of(self._todo[0])
        for piece, _ in self._wholes():
            yield piece
        self._todo = []

    def _grid(self, keys: list[Any], where: list[int]) -> Generator[None, None, bytes]:
        """Make one piece of the grid, in steps; b"" when there is nothing to put into it."""
        local = self._bits - self._split
        shift, mask = BITS - self._bits, (1 << local) - 1
        groups: list[list[Any]] = [[] for _ in range(1 << local)]
        for begin in range(0, len(keys), _STEP):
            end = begin + _STEP
            for key, there in zip(keys[begin:end], where[begin:end], strict=True):
                groups[there >> shift & mask].append(key)
            yield None
        entries = max(1.0, min(2.0 * _STEP, _RUN / self._weight))  # of a run
        run = min(local, max(0, int(entries * (1 << local) / max(1, len(keys)))).bit_length())
        writer = GridWriter(run)
        for begin in range(0, len(groups), 1 << run):
            some_groups = groups[begin : begin + (1 << run)]
            try:
                writer.add(some_groups, *self._entries(some_groups))
            except Exception as e:
                those = dict(self._entries_of(chain.from_iterable(some_groups)))
                raise codec.blame(those, self.name, self._owner, e) from e
            yield None
        return writer.piece()

    def _entries(self, groups: list[list[Any]]) -> tuple[list[Any], list[Any], bool]:
        """(Keys, values, whether msgpack gives them back) of the entries of groups, from which absent keys are removed."""
        state = self._state
        if state._removed:
            contains = partial(dict.__contains__, state)
            groups[:] = [list(filter(contains, group)) for group in groups]
        keys = list(chain.from_iterable(groups))
        values = list(map(dict.__getitem__, repeat(state), keys))
        if state._changed:
            for key in state._changed.keys() & keys:
                del state._changed[key]
        return keys, values, self._look(keys, values)

    def so_far(self) -> StateMeta | None:
        """What the state's pieces until now make up: some of it may be out of date, and removed keys may be in it. None: nothing of use."""
        if not self._complete or self._small:
            return None
        return self._meta([])

    def _meta(self, gone: list[int], count: int = -1) -> StateMeta:
        layers = [[*layer, *[-1] * ((1 << self._split) - len(layer))] for layer in self._layers]
        return StateMeta(
            self.name, self._bits, self._split, layers, list(self._whole), gone, self._copy_number, count
        )

    # ------------------------------------------------------------------ the rest

    def rest(self, give_way: Callable[[], None]) -> tuple[list[Piece], StateMeta]:
        """When the task has stopped: what is missing or was changed since it was copied; and what the state consists of."""
        state = self._state
        made: list[Piece] = []
        if not self._sorted:  # nothing was copied: in one go it is cheaper without a grid
            self._layers = []
            unread = tracking.unread(state)
            if isinstance(unread, UnreadBins):
                made += self._as_it_is(unread)
            self._owing = iter(dict.items(state))
        elif self._complete or not self.grid:
            self._owing = chain(self._owing, tracking.take_changes(state).items())
        else:
            missing = chain.from_iterable(self._todo)
            self._owing = self._entries_of(chain(missing, tracking.take_changes(state)))
        gone = self._gone | (state._removed if tracking.is_tracking(state) else set())
        for piece, _ in self._wholes():
            made.append(piece)
            give_way()
        gone = {k for k in gone if not dict.__contains__(state, k)}
        lost: list[int] = []
        for removed in _chunks(dict.fromkeys(gone).items(), lambda: _WHOLE):
            made.append((self._number(), self._encode(removed, codec.plain_keys(removed))))
            lost.append(made[-1][0])
            give_way()
        return made, self._meta(lost, -1 if tracking.is_lazy(state) else dict.__len__(state))

    def _wholes(self) -> Iterator[tuple[Piece, int]]:
        """Pieces with the entries in `_owing`, to be read at once; and how many are in each."""
        count = max(1, min(_WHOLE, int(self._piece / self._weight)))
        standing: dict[Any, Any] | None = None
        while some := dict(islice(self._owing, count)):
            self._note(some)
            if self._alike:
                if standing is None:
                    standing = {k: k for k in dict.__iter__(self._state)}
                some = {standing.get(k, k): v for k, v in some.items()}
            data = self._encode(some, self._look(some.keys(), some.values()))
            fits = max(1, min(_WHOLE, int(self._piece * len(some) / len(data))))
            if len(data) > _TOO_LARGE * self._piece and len(some) > 1:
                self._owing, count = chain(some.items(), self._owing), min(fits, len(some) // 2)
                continue
            piece = self._number(), data
            self._whole.append(piece[0])
            yield piece, len(some)
            count = fits

    # ------------------------------------------------------------------ parts of it

    def _look(self, keys: Collection[Any], values: Collection[Any]) -> bool:
        """Whether msgpack gives these entries back. If one of their values can be changed, reads are remembered from now on."""
        plain, fixed = codec.plain_values(values)
        if not fixed:
            tracking.track_reads(self._state)
        return plain and codec.plain_keys(keys)

    def _encode(self, entries: dict[Any, Any], plain: bool) -> bytes:
        try:
            return codec.encode(entries, plain)
        except Exception as e:
            raise codec.blame(entries, self.name, self._owner, e) from e

    def _note(self, keys: Collection[Any]) -> None:
        """Remember the types of keys (see `_alike`)."""
        kinds = set(map(type, keys))
        if tuple in kinds:
            within = set(map(type, chain.from_iterable(k for k in keys if type(k) is tuple)))
            self._mixed = self._mixed or tuple in within
            kinds |= within
        self._kinds |= kinds

    @property
    def _alike(self) -> bool:
        """Whether a key may be equal to one of another type: after `d[1] = 2; d[True] = 3` the key is 1, and was set by True."""
        others = self._kinds - {str, bytes, tuple, type(None)}
        return bool(others) and (
            self._mixed or len(others) > 1 or issubclass(others.copy().pop(), str | bytes | tuple)
        )


def grid_of(count: int, size: int, piece: int) -> tuple[int, int]:
    """(Bits of the number of buckets, bits of the number of pieces) for so many entries of so many bytes in all.

    Args:
        piece: Bytes of a piece, about.
    """
    small = BUCKET if size < count * 1024 else 1
    bits = max(0, (max(1, count) // small - 1).bit_length())
    split = max(0, -(-size // piece) - 1).bit_length()
    return min(max(bits, split), _MOST_BITS), min(split, _MOST_BITS)


def _chunks(items: Iterable[tuple[Any, Any]], count: Callable[[], int]) -> Iterator[dict[Any, Any]]:
    waiting = iter(items)
    while some := dict(islice(waiting, count())):
        yield some
