"""Copies one keyed state while it is in use: everything once, then what has changed since, then the rest when its task has stopped."""

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
from elastic.worker.content.layout import BUCKET, StateMeta
from elastic.worker.content.lazy import UnreadBins

SMALL = 16 << 10
"""A state of fewer bytes is not copied ahead: it takes about a millisecond. (Many such tasks may stop at once.)"""
LITTLE = 8_000
LITTLE_BYTES = 256 << 10
"""So many changed keys, of so many bytes, are left to the pause at most; and at most a thirty-second part of all."""
MOST_LAYERS = 4
"""A state that is bytes still, in more layers, is read before it moves on."""
MOST_REMOVED = 100_000
"""When so many keys more than twice the present ones have been removed, the copy begins anew: what is remembered has a bound."""
_ROUNDS = 4
"""So many times what has changed is copied again before the copy counts as done: a state may change as fast as it is copied."""
_STEP = 512
"""Keys that are looked at in one step: a fraction of a millisecond."""
_WHOLE = 4096
"""Entries of a piece that is read at once, at most: about a millisecond."""
_RUN = 32 << 10
"""Bytes that are encoded in one step, about."""
_SAMPLE = 64
_MOST_BITS = 24

Piece = tuple[int, bytes]
Steps = Iterator[Piece | None]


class KeyedCopier:
    """See the module. All methods are called between two tuples of the task.

    Args:
        owner: Whose state it is, for errors.
        number: Gives the number of a new piece.
        piece: Bytes of a piece, about.
    """

    def __init__(
        self, name: str, state: StateMap[Any, Any], owner: str, number: Callable[[], int], piece: int
    ) -> None:
        self.name = name
        self._state = state
        self._owner = owner
        self._number = number
        self._piece = piece
        self._begin()

    def _begin(self) -> None:
        self._steps: Steps | None = None
        self._bits = self._split = 0
        self._layers: list[list[int]] = []
        self._whole: list[int] = []
        self._todo: list[list[Any]] = []  # keys that are yet to be copied, by piece; taken from its end
        self._keys: Iterator[Any] = iter(())
        self._seen = 0
        self._sorted = False  # nothing has been copied before
        self._complete = False  # everything was copied once
        self._small = 0
        self._rounds = 0
        self._kinds: set[type] = set()
        self._mixed = False
        self._gone: set[Any] = set()
        self._newer: list[set[Any]] = []  # the keys of each layer but the first ones
        self._owed: set[Any] = set()  # those that changed and are not copied yet, while a newer layer is made
        self._weight = 1.0

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
            self._rounds += 1
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
        return self._complete and not self._todo and len(self._state._changed) <= self._few()

    def _few(self) -> int:
        """So many changed keys are left to the pause."""
        count = dict.__len__(self._state)
        return max(16, min(LITTLE, count // 32, int(LITTLE_BYTES / self._weight)))

    @property
    def done(self) -> bool:
        """Whether everything was copied once, and what has changed since is little, or will not become less."""
        return self._complete and (self._rounds >= _ROUNDS or self._settled())

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
        self._keys = dict.__iter__(state)
        yield from self._sort(self._next_keys)
        self._sorted = True
        yield from self._copy()
        self._complete = True

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
        """Copy what has changed. Small layers are copied once more, together: so their number stays a logarithm."""
        state = self._state
        keys = {k for k in self._real(tracking.take_changes(state)) if dict.__contains__(state, k)}
        self._owed = set(keys)
        first = len(self._layers)
        while self._newer and len(self._newer[-1]) <= 2 * len(keys):
            keys |= self._newer.pop()
            first -= 1
        waiting = iter(list(filter(partial(dict.__contains__, state), keys)))
        yield from self._sort(lambda: list(islice(waiting, _STEP)))
        yield from self._copy()
        del self._layers[first:-1]
        self._newer.append(keys)
        self._owed = set()

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

    def _sort(self, take: Callable[[], list[Any]]) -> Steps:
        """Divide keys by the piece that they belong to."""
        shift = BITS - self._split
        parts: list[list[Any]] = [[] for _ in range(1 << self._split)]
        loose: list[Any] = []
        while keys := take():
            self._note(keys)
            for key, there in zip(keys, places(keys), strict=True):
                (loose if there is None else parts[there >> shift]).append(key)
            yield None
        self._todo = [loose, *reversed(parts)]

    def _copy(self) -> Steps:
        """Make a layer of the keys in `_todo`."""
        layer: list[int] = []
        self._layers.append(layer)
        while len(self._todo) > 1:
            data = yield from self._grid(self._todo[-1])
            self._owed.difference_update(self._todo.pop())
            layer.append(self._number() if data else -1)
            yield (layer[-1], data) if data else None
        for piece in self._wholes(self._todo[0]):
            self._whole.append(piece[0])
            yield piece
        self._owed.difference_update(self._todo[0])
        self._todo = []

    def _grid(self, keys: list[Any]) -> Generator[None, None, bytes]:
        """Make one piece of the grid, in steps; b"" when there is nothing to put into it."""
        local = self._bits - self._split
        shift, mask = BITS - self._bits, (1 << local) - 1
        groups: list[list[Any]] = [[] for _ in range(1 << local)]
        for begin in range(0, len(keys), _STEP):
            some = keys[begin : begin + _STEP]
            for key, there in zip(some, places(some), strict=True):
                groups[there >> shift & mask].append(key)  # type: ignore[operator]
            yield None
        entries = max(1.0, min(2.0 * _STEP, _RUN / self._weight))  # of a run
        run = min(local, max(0, int(entries * (1 << local) / max(1, len(keys)))).bit_length())
        writer = GridWriter(run)
        for begin in range(0, len(groups), 1 << run):
            some_groups = groups[begin : begin + (1 << run)]
            try:
                writer.add(some_groups, *self._entries(some_groups))
            except Exception as e:
                present, values = self._take(list(chain.from_iterable(some_groups)))
                entries_of = dict(zip(present, values, strict=True))
                raise codec.blame(entries_of, self.name, self._owner, e) from e
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
        if self._complete:  # until the piece is made, what has changed is not copied
            self._owed |= state._changed.intersection(keys)
        state._changed.difference_update(keys)
        return keys, values, self._look(keys, values)

    # ------------------------------------------------------------------ the rest

    def rest(self, give_way: Callable[[], None]) -> tuple[list[Piece], StateMeta]:
        """When the task has stopped: what is missing or was changed since it was copied; and what the state consists of."""
        state = self._state
        made: list[Piece] = []
        keys: Iterable[Any]
        if not self._sorted:  # nothing was copied: in one go it is cheaper without a grid
            self._layers = []
            unread = tracking.unread(state)
            if isinstance(unread, UnreadBins):
                made += self._as_it_is(unread)
            keys = dict.__iter__(state)
        else:
            missing: Iterable[Any] = self._owed if self._complete else chain.from_iterable(self._todo)
            keys = self._real(chain(missing, tracking.take_changes(state)))
        gone = self._gone | (state._removed if tracking.is_tracking(state) else set())
        for piece in self._wholes(keys):
            made.append(piece)
            self._whole.append(piece[0])
            give_way()
        gone = {k for k in gone if not dict.__contains__(state, k)}
        lost: list[int] = []
        for entries in _chunks(dict.fromkeys(gone).items(), lambda: _WHOLE):
            made.append((self._number(), self._encode(entries, codec.plain_keys(entries))))
            lost.append(made[-1][0])
            give_way()
        layers = [[*layer, *[-1] * ((1 << self._split) - len(layer))] for layer in self._layers]
        meta = StateMeta(self.name, self._bits, self._split, layers, self._whole, lost)
        return made, meta

    def _wholes(self, keys: Iterable[Any]) -> Iterator[Piece]:
        """Pieces with the entries of these keys, to be read at once."""
        count = 64
        waiting = iter(keys)
        while some := list(islice(waiting, count)):
            present, values = self._take(some)
            if not present:
                continue
            try:
                data = codec.encode_pairs(present, values, self._look(present, values))
            except Exception as e:
                entries = dict(zip(present, values, strict=True))
                raise codec.blame(entries, self.name, self._owner, e) from e
            yield self._number(), data
            count = max(1, min(_WHOLE, int(self._piece * len(present) / len(data))))

    # ------------------------------------------------------------------ parts of it

    def _take(self, keys: list[Any]) -> tuple[list[Any], list[Any]]:
        """Those of these keys that are there, and their values; what happened to them until now is known."""
        state = self._state
        present = list(filter(partial(dict.__contains__, state), keys))
        if tracking.is_tracking(state) and state._changed:
            state._changed.difference_update(keys)
        return present, list(map(dict.__getitem__, repeat(state), present))

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

    def _note(self, keys: list[Any]) -> None:
        """Remember the types of keys (see `_real`)."""
        kinds = set(map(type, keys))
        if tuple in kinds:
            within = set(map(type, chain.from_iterable(k for k in keys if type(k) is tuple)))
            self._mixed = self._mixed or tuple in within
            kinds |= within
        self._kinds |= kinds

    def _real(self, keys: Iterable[Any]) -> list[Any]:
        """These keys as they stand in the dictionary: after `d[1] = 2; d[True] = 3` the key is 1, and was set by True."""
        asked = list(keys)
        self._note(asked)
        others = self._kinds - {str, bytes, tuple, type(None)}
        if not others or not (
            self._mixed or len(others) > 1 or issubclass(others.copy().pop(), str | bytes | tuple)
        ):
            return asked
        real = {k: k for k in dict.__iter__(self._state)}
        return [real.get(k, k) for k in asked]


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
