"""Makes pieces of a keyed state that are read at once: of as many entries as make one about as large as it should be.

How large entries are is known from those before them. A piece in which they are much larger is made anew, of fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from elastic.api import tracking
from elastic.api.state import StateMap
from elastic.errors import ExecutionError
from elastic.worker.content import codec
from elastic.worker.content.entries import Kinds, Owing
from elastic.worker.shown import shown

WHOLE, LARGE_WHOLE = 2048, 8192
"""Entries of a piece at most: of a state of `MANY` entries, a fraction of a millisecond; of others, which are soon done with, and of one of
which there would be more than `WHOLES` pieces else."""
WHOLES = 512
MANY = 100_000
"""Entries of a state of which the copying lasts: others are let go first after each piece. Where many tasks move together there are few
in each, and who goes first is not what they wait for: whoever lets others go first then falls behind."""
UNKNOWN = 4096.0
"""Bytes of an entry, before any was looked at."""
TOO_LARGE = 4
"""A piece of entries that are so many times larger than those before them is made anew, of fewer."""
LARGEST = 4 << 20
"""Bytes of a piece at most, as stores take it (`statestore.base.MAX_PIECE`)."""

Piece = tuple[int, bytes]


class ByIdentity(Exception):
    """There is a key that is not equal to itself once it has been copied, as NaN or an object without `__eq__`.

    Copied twice it would be there twice, and removed it would be found nowhere: such a state goes as a whole, when nothing changes.
    """


class Wholes:
    """See the module. Between two tuples of the state's task.

    Args:
        name: Of the state, and whose it is: for errors.
        number: Gives the number of a new piece.
        piece: Bytes of a piece, about.

    Attributes:
        piece: As given.
        weight: Bytes of an entry, about.
        kinds: What the types of the keys mean that were seen.
    """

    def __init__(
        self, name: str, state: StateMap[Any, Any], owner: str, number: Callable[[], int], piece: int
    ) -> None:
        self._name, self._state, self._owner, self._number = name, state, owner, number
        self.piece = piece
        self.begin()

    def begin(self) -> None:
        """Forget what was seen."""
        self.weight = UNKNOWN
        self.kinds = Kinds()

    @property
    def many(self) -> bool:
        """Whether there are so many entries that others are let go first all the time."""
        return dict.__len__(self._state) >= MANY

    def of(self, owing: Owing, *, lasting: bool) -> Iterator[tuple[Piece, dict[Any, Any]]]:
        """Pieces with these entries; and what is in each. What could not be used is in `owing` again.

        Args:
            lasting: They are copied while they are in use, perhaps again.

        Raises:
            ByIdentity: There are keys that must not be `lasting`.
            ExecutionError: An entry cannot be encoded, or is too large; says which.
        """
        state = self._state
        most = max(WHOLE, min(LARGE_WHOLE, dict.__len__(state) // WHOLES)) if self.many else LARGE_WHOLE
        count = max(1, min(most, int(self.piece / self.weight)))
        while some := owing.take(count):
            self.kinds.note(some)
            if self.kinds.odd and lasting and not codec.all_last(some.keys()):
                raise ByIdentity
            if self.kinds.alike:
                some = self.kinds.standing(state, some)
                self.kinds.note(some)
            data = self._encode(some, self.look(some.keys(), some.values()))
            fits = max(1, min(most, int(self.piece * len(some) / len(data))))
            if self._is_too_large(some, data):
                owing.put_back(some.items())
                count = min(fits, len(some) // 2)
                continue
            if len(data) > LARGEST:
                raise self._refused(some, len(data))
            yield (self._number(), data), some
            count = fits

    def of_keys(self, keys: Collection[Any]) -> Iterator[Piece]:
        """Pieces with these keys, and no values: those that other pieces may have. One that was there within a tuple alone, as a lock or a
        future by which something was found again, is in none.

        Raises:
            ExecutionError: A key cannot be encoded that could be when it was copied, maybe.
        """
        left, count = Owing(dict.fromkeys(keys).items()), WHOLE
        while some := left.take(count):
            try:
                data = self._encode(some, codec.plain_keys(some))
            except ExecutionError:
                if len(some) == 1 and codec.lasts_written(*some):
                    raise
                data = b""
            if len(some) > 1 and (not data or self._is_too_large(some, data)):
                left.put_back(some.items())
                count = len(some) // 2
                continue
            if len(data) > LARGEST and codec.plain_keys(some):
                # Beside a value that is not plain it was pickled, which may take less.
                data = self._encode(some, False)
            if data and len(data) <= LARGEST:
                yield self._number(), data
            count = min(WHOLE, 2 * count)

    def weigh(self, some: dict[Any, Any]) -> None:
        """Find out how large these entries are; they stand for all."""
        plain = codec.plain_keys(some) and codec.plain_values(some.values())[0]
        self.weight = len(self._encode(some, plain)) / len(some)

    def look(self, keys: Collection[Any], values: Collection[Any]) -> bool:
        """Whether msgpack gives these entries back. If one of their values can be changed, reads are remembered from now on."""
        plain, fixed = codec.plain_values(values)
        if not fixed:
            tracking.track_reads(self._state)
        return plain and codec.plain_keys(keys)

    def blame(self, entries: dict[Any, Any], error: Exception) -> ExecutionError:
        """The error that says which of the entries cannot be encoded."""
        return codec.blame(entries, self._name, self._owner, error)

    def _is_too_large(self, some: dict[Any, Any], data: bytes) -> bool:
        return len(data) > TOO_LARGE * self.piece and len(some) > 1

    def _encode(self, entries: dict[Any, Any], plain: bool) -> bytes:
        try:
            return codec.encode(entries, plain)
        except Exception as e:
            raise self.blame(entries, e) from e

    def _refused(self, some: dict[Any, Any], size: int) -> ExecutionError:
        key = next(iter(some))
        return ExecutionError(
            f"State {self._name!r} of {self._owner} cannot be copied: the entry of key {shown(key)} takes {size:,} bytes, and {LARGEST:,} "
            "is the most.",
            remedy="Divide it among several keys, or return it from get_state(), which may be of any size.",
        )
