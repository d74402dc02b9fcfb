"""How the bytes of a state are arranged, and the note (`Meta`) that says which piece is what.

A state is one or more *layers* of the same grid, then *whole* pieces, then the keys that are gone. What comes later holds.

*Grid*: the places of keys (`bins.place`) are divided into `2**bits` buckets by their upper bits, of about four entries each; a piece
holds `2**(bits - split)` neighbouring buckets. So the entry of a key is found without reading any other but its few neighbours. Piece:
the number of buckets and whether one is pickled, the offsets of the buckets, their bytes; a bucket's are those of `codec.encode`, or none.

*Whole* pieces hold entries in any order, and are read at once. They are cheaper to make: for what changed last, for small states, and for
keys without a place.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from elastic.errors import ExecutionError
from elastic.worker.content import codec

VERSION = 1
BUCKET = 4
"""Entries that are read together, about. More of them read fewer at a time in vain; fewer are found with less work each."""

_HEAD = struct.Struct("<II")
_ANY_PICKLED = 1


class StateMeta(msgspec.Struct, array_like=True):
    """One keyed state. Numbers of pieces are places in the order in which they are given to `install`; -1: no piece.

    Attributes:
        layers: Oldest first; in each the pieces of the grid, `2**split` of them.
        whole: In the order in which they are to be read.
        gone: Pieces with keys that were removed.
    """

    name: str
    bits: int
    split: int
    layers: list[list[int]]
    whole: list[int]
    gone: list[int]


class Meta(msgspec.Struct, array_like=True):
    """Everything of a component.

    Attributes:
        custom: Pieces of what `get_state` gave, pickled; None: it has none of its own.
        buffers: Pieces of each buffer that was kept out of that pickle.
    """

    version: int
    states: list[StateMeta]
    custom: list[int] | None
    buffers: list[list[int]]


_to_bytes = msgspec.msgpack.Encoder().encode
_to_meta = msgspec.msgpack.Decoder(Meta)


def write_meta(meta: Meta) -> bytes:
    return _to_bytes(meta)


def read_meta(data: bytes) -> Meta:
    """The note in these bytes.

    Raises:
        ExecutionError: It is none, or of another version.
    """
    try:
        meta = _to_meta.decode(data)
    except msgspec.MsgspecError as e:
        raise ExecutionError(f"The note on a saved state cannot be read: {e}") from e
    if meta.version != VERSION:
        raise ExecutionError(
            f"A saved state has the form {meta.version}; this version of elastic reads {VERSION}.",
            remedy="Run the same version of elastic on all nodes.",
        )
    return meta


def grid_piece(buckets: Iterable[bytes], pickled: bool) -> bytes:
    """The piece with these buckets."""
    made = list(buckets)
    offsets = array("I", accumulate(map(len, made), initial=0))
    if sys.byteorder == "big":
        offsets.byteswap()
    return b"".join((_HEAD.pack(len(made), _ANY_PICKLED if pickled else 0), memoryview(offsets), *made))


class GridPiece:
    """A piece of the grid, to be read bucket by bucket."""

    __slots__ = ("body", "data", "offsets", "pickled")

    def __init__(self, data: bytes) -> None:
        self.data = data
        count, flags = _HEAD.unpack_from(data)
        self.pickled = bool(flags & _ANY_PICKLED)
        view = memoryview(data)
        end = _HEAD.size + 4 * (count + 1)
        self.offsets: Sequence[int] = view[_HEAD.size : end].cast("I")
        if sys.byteorder == "big":
            swapped = array("I", self.offsets)
            swapped.byteswap()
            self.offsets = swapped
        self.body = view[end:]

    def bucket(self, number: int) -> dict[Any, Any] | None:
        """The entries of one bucket."""
        begin, end = self.offsets[number], self.offsets[number + 1]
        return codec.decode(self.body[begin:end]) if begin < end else None

    def buckets(self, first: int, last: int) -> list[dict[Any, Any]]:
        """The entries of neighbouring buckets, those of each in one dictionary.

        Args:
            last: The one behind the last.
        """
        if self.pickled:
            found = (self.bucket(n) for n in range(first, last))
            return [f for f in found if f is not None]
        offsets = self.offsets[first : last + 1]
        count = len(set(offsets)) - 1
        return codec.decode_many(self.body[offsets[0] : offsets[-1]], count) if count else []
