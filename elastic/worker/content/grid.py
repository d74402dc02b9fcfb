"""A piece of the grid: neighbouring buckets with a few entries each, which can be read one by one.

    number of buckets, binary logarithm of the buckets in a run
    a byte for each run: whether its buckets are pickled
    the offset of each bucket's body, and the end of the last
    the number of entries of each bucket
    the bodies: keys and values in turn as msgpack, or a pickled dictionary

Buckets are encoded a run at a time, in one call, and cut apart afterwards: calling the encoder for each costs more than the
encoding. Several of them are read in one call as well, as one dictionary.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import msgspec

from elastic.worker.content.layout import BUCKET

_HEAD = struct.Struct("<IB")
_MOST = 0xFFFF
_MOST_BITS = 24
_HEADS = [bytes((0x80 | n,)) for n in range(16)]
_MARK = os.urandom(16)
_MARKED = b"\xc4\x10" + _MARK
_encode = msgspec.msgpack.Encoder().encode
_decode: Any = msgspec.msgpack.Decoder().decode


def grid_of(count: int, size: int, piece: int) -> tuple[int, int]:
    """(Bits of the number of buckets, bits of the number of pieces) for so many entries of so many bytes in all.

    Args:
        piece: Bytes of a piece, about.
    """
    small = BUCKET if size < count * 1024 else 1
    bits = max(0, (max(1, count) // small - 1).bit_length())
    split = max(0, -(-size // piece) - 1).bit_length()
    return min(max(bits, split), _MOST_BITS), min(split, _MOST_BITS)


def bodies_of(groups: list[list[Any]], keys: list[Any], values: list[Any]) -> list[bytes] | None:
    """The bodies of buckets as msgpack; None: these entries can't be.

    Args:
        groups: The keys of each bucket.
        keys, values: The same keys on end, and their values. All plain (`codec.plain_keys`, `codec.plain_values`).
    """
    entries = list(chain.from_iterable(zip(keys, values, strict=True)))
    flat: list[Any] = []
    at = 0
    for group in groups:
        end = at + 2 * len(group)
        flat += entries[at:end]
        flat.append(_MARK)
        at = end
    try:
        data = _encode(flat)
    except (TypeError, ValueError, OverflowError):  # large integers, lone surrogates
        return None
    count = len(flat)
    bodies = data[1 if count < 16 else 3 if count < 1 << 16 else 5 :].split(_MARKED)
    return bodies[:-1] if len(bodies) == len(groups) + 1 else None


def pickled_bodies(groups: list[list[Any]], values: list[Any]) -> list[bytes]:
    """The bodies of buckets, pickled. Raises what pickling raises."""
    made = []
    each = iter(values)
    for group in groups:
        entries = dict(zip(group, each, strict=False))
        made.append(pickle.dumps(entries, 5) if entries else b"")
    return made


class GridWriter:
    """Puts a piece together, run by run.

    Args:
        run: Binary logarithm of the buckets in a run.
    """

    def __init__(self, run: int) -> None:
        self._run = run
        self._pickled = bytearray()
        self._counts = array("H")
        self._bodies: list[bytes] = []

    def add(self, groups: list[list[Any]], keys: list[Any], values: list[Any], plain: bool) -> None:
        """The next run. Raises what pickling raises.

        Args:
            groups: The keys of each of its buckets.
            keys, values: The same keys on end, and their values.
            plain: Whether msgpack gives them back.
        """
        counts = list(map(len, groups))
        bodies = bodies_of(groups, keys, values) if plain and max(counts) <= _MOST else None
        self._pickled.append(bodies is None)
        self._counts.extend(map(min, counts, [_MOST] * len(counts)))
        self._bodies += pickled_bodies(groups, values) if bodies is None else bodies

    def piece(self) -> bytes:
        """The piece; b"" when there is nothing in it."""
        if not any(self._counts):
            return b""
        offsets = array("I", accumulate(map(len, self._bodies), initial=0))
        head = _HEAD.pack(len(self._bodies), self._run)
        return b"".join((head, self._pickled, _little(offsets), _little(self._counts), *self._bodies))


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class GridPiece:
    """A piece, to be read.

    Args:
        data: What a `GridWriter` made.
    """

    __slots__ = ("_body", "_counts", "_offsets", "_pickled", "_run", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        buckets, self._run = _HEAD.unpack_from(data)
        view = memoryview(data)
        runs = _HEAD.size + -(-buckets // (1 << self._run))
        self._pickled = view[_HEAD.size : runs]
        offsets = runs + 4 * (buckets + 1)
        self._offsets = _numbers(view[runs:offsets], "I")
        self._counts = _numbers(view[offsets : offsets + 2 * buckets], "H")
        self._body = view[offsets + 2 * buckets :]

    def bucket(self, number: int) -> dict[Any, Any] | None:
        """The entries of one bucket; None: it is empty."""
        begin, end = self._offsets[number], self._offsets[number + 1]
        if begin == end:
            return None
        entries: dict[Any, Any]
        if self._pickled[number >> self._run]:
            entries = pickle.loads(self._body[begin:end])
        else:
            count = self._counts[number]
            head = _HEADS[count] if count < 16 else b"\xde" + count.to_bytes(2, "big")
            entries = _decode(head + self._body[begin:end])
        return entries

    def buckets(self, first: int, last: int) -> list[dict[Any, Any]]:
        """The entries of neighbouring buckets.

        Args:
            last: The one behind the last.
        """
        found = []
        while first < last:
            end = min(last, ((first >> self._run) + 1) << self._run)
            if self._pickled[first >> self._run]:
                found += [e for n in range(first, end) if (e := self.bucket(n)) is not None]
            elif count := sum(self._counts[first:end]):
                body = self._body[self._offsets[first] : self._offsets[end]]
                found.append(_decode(b"".join((b"\xdf", count.to_bytes(4, "big"), body))))
            first = end
        return found


def _numbers(data: memoryview, form: str) -> Sequence[int]:
    if sys.byteorder == "big":
        return _little(array(form, data.tobytes()))
    return data.cast(form)  # type: ignore[call-overload, no-any-return]
