"""Small batches that wait one behind the other for the same task, made one.

While a task stands still its emitters go on, and hand on what they have whenever they rest: a thousand times a second. Each of these
batches would be sent by itself when the task goes on, which takes longer than what is in it.
"""

from __future__ import annotations

import struct

from elastic.worker.tuples.batch import Batch, Item
from elastic.worker.tuples.wire import MSGPACK

MOST = 16 << 10
"""Bytes up to which batches are joined: the bytes of the first ones are copied with each that follows."""

_FIX, _FIX_MOST = 0x90, 15
_SHORT, _SHORT_MOST = struct.Struct("!BH"), (1 << 16) - 1


def joined(first: Item, second: Item) -> Batch | None:
    """Both batches as one, in order; None when they are not of one kind, or large enough as they are.

    Args:
        first: As it is kept (`wire.Frame.item`).
        second: The next of the same link.
    """
    if not (isinstance(first, Batch) and isinstance(second, Batch)) or first.stream is not second.stream:
        return None
    count = first.count + second.count
    if first.raw is None or second.raw is None or count > _SHORT_MOST:
        return None
    (kind, head), (other, tail) = first.raw, second.raw
    if kind != MSGPACK or other != MSGPACK or len(head) + len(tail) > MOST:
        return None
    body = b"".join((_header(count), head[_header_size(first.count) :], tail[_header_size(second.count) :]))
    return Batch(first.stream, first.source, count, raw=(MSGPACK, memoryview(body)))


def _header(count: int) -> bytes:
    """That of a msgpack array of so many items."""
    return bytes((_FIX | count,)) if count <= _FIX_MOST else _SHORT.pack(0xDC, count)


def _header_size(count: int) -> int:
    return 1 if count <= _FIX_MOST else _SHORT.size
