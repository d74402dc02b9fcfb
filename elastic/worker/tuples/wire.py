"""Batches and marks as frames and back; and the frames that links say about themselves.

Frame: `kind` (1 byte), stream number (2), source task (4), count (4), life of the source (8), position of the first tuple (8),
then the body:

    MSGPACK  rows of a stream whose fields are declared as numbers, text and the like: an array of arrays
    PICKLE   all others, and those with a value that is not exactly of its declared type: pickled list of value tuples
    ARROW    an Arrow IPC stream with one record batch
    MARK     no body: stream is the mark's kind, count its number
    OPENED   no body: the source begins to send; the position is what has left before; count is a move's epoch, or 0
    FENCE    no body: nothing comes after the position; count is the move's epoch
    STORED   no body: the stores have more of the state of the task that it is for; count is the move's epoch
    ALONG    what is left of the state of that task (`elastic.worker.moving.along`); count is the move's epoch
    SAVED    the stores have all of the states of these tasks: number (4) and size (8) of each; count is the move's epoch
    RESTORED these tasks have begun where this comes from: number (4) and attempt (8) of each; count is the move's epoch
    BEHIND   who is to have the state of the task that it is for takes so many milliseconds (8) for what changes of it meanwhile; count is
             the move's epoch
    PARCEL   rows of one stream on several links: `count` links, each with target (4), source (4), rows (4), life (8) and position (8);
             then all rows, in that order, as MSGPACK

The position is put in when a frame leaves: what waits has none yet. Big-endian. Both ends run the same version: workers of a
topology are started together, from one installation.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from elastic.errors import ExecutionError, TupleTooLarge
from elastic.model.ids import Incarnation
from elastic.transport.base import LARGEST_URGENT, Buffer, TransportOptions
from elastic.worker.shown import described
from elastic.worker.tuples import vector
from elastic.worker.tuples.batch import Batch, Mark, MarkKind, Stream, Streams

MSGPACK, PICKLE, ARROW, MARK, OPENED, FENCE, STORED, SAVED, ALONG, RESTORED, BEHIND, PARCEL = range(1, 13)
_HEAD = struct.Struct("!BHIIQQ")
_ENTRY = struct.Struct("!IIIQQ")
_EACH = struct.Struct("!IQ")
TOLD_MOST = (LARGEST_URGENT - _HEAD.size) // _EACH.size
"""Tasks that one frame can say to be saved, or restored: it waits for no room, and such frames are small."""
_encoder = msgspec.msgpack.Encoder()
_astuple = msgspec.structs.astuple

MAX_FRAME = TransportOptions().max_frame

SPLIT = 1 << 19
"""Rows whose encoding is larger than this many bytes are sent as several frames: what is in flight is bounded."""


class Frame(NamedTuple):
    """A part of an item, encoded, without its position.

    Attributes:
        number: What stands under `count` in its head: how many tuples, or a mark's number.
        weight: How many positions it takes.
        rows: How many tuples count against the window of the target: none of a record batch, which is bounded by its bytes.
    """

    kind: int
    stream: int
    source: int
    number: int
    weight: int
    rows: int
    body: tuple[Buffer, ...]

    def at(self, life: int, first: int) -> tuple[Buffer, ...]:
        """The buffers to send when its first tuple has that position."""
        return (_HEAD.pack(self.kind, self.stream, self.source, self.number, life, first), *self.body)

    def item(self, streams: Streams) -> Batch | Mark:
        """The same to be kept: it fits one frame, and cannot fail to be sent later on."""
        if self.kind == MARK:
            return Mark(MarkKind(self.stream), self.source, self.number)
        return Batch(
            streams[self.stream], self.source, self.number, raw=(self.kind, memoryview(self.body[0]))
        )


def encode(item: Batch | Mark, largest: int = MAX_FRAME) -> list[Frame]:
    """The frames of a batch or mark, in order.

    Args:
        largest: Bytes that one frame may have.

    Raises:
        ExecutionError: A value can neither be encoded nor pickled; says which field.
        TupleTooLarge: One tuple makes a larger frame. In both cases nothing has been sent.
    """
    if isinstance(item, Mark):
        return [Frame(MARK, item.kind, item.source, item.number, 1, 0, ())]
    frames = _frames(item)
    for frame in frames:
        size = _HEAD.size + sum(len(b) for b in frame.body)
        if size > largest:
            raise TupleTooLarge(
                f"A tuple of stream {item.stream.spec.id!r} of {str(item.stream.component)!r} (task {item.source}) has {size:,} bytes; "
                f"at most {largest:,} can be sent to another process.",
                remedy="Send a reference (a path, a key) instead of the content, or cut it into pieces.",
            )
    return frames


def packed(stream: Stream, rows: list[Any]) -> bytes | None:
    """The body of the one frame that tuples of plain values make; None: `encode` has to look at them."""
    misfits = stream.misfits
    if misfits is None or misfits(rows):
        return None
    try:
        body: bytes = _encoder.encode(rows)
    except (ValueError, OverflowError):
        return None
    return body if len(body) <= SPLIT else None


def head(stream: Stream, source: int, count: int, life: int, first: int) -> bytes:
    """What stands before `packed`."""
    return _HEAD.pack(MSGPACK, stream.index, source, count, life, first)


Entry = tuple[int, int, int, int, int]
"""A link's part of a parcel: target, source, number of tuples, life of the source, position of the first."""


def parcel(stream: Stream, entries: Sequence[Entry]) -> bytes:
    """What stands before `packed` of the tuples of several links."""
    pack = _ENTRY.pack
    head = _HEAD.pack(PARCEL, stream.index, 0, len(entries), 0, 0)
    return b"".join([head, *[pack(*entry) for entry in entries]])


def share(body: int, count: int, rows: int) -> int:
    """The bytes of a parcel that a link's target is charged with, at either end.

    Args:
        body: Bytes of all tuples.
        count: How many of them are that link's.
        rows: How many there are.
    """
    return _ENTRY.size + body * count // rows


def parcel_in(
    payload: memoryview, streams: Streams, origin: Incarnation
) -> Iterator[tuple[int, Batch, int, int]]:
    """What `parcel` was given: target, batch, life of its source and position, link by link.

    The tuples are read at once. It takes a third of the time that it takes link by link, and none of them keeps the others' bytes.
    """
    _, index, _, links, _, _ = _HEAD.unpack_from(payload)
    stream, start = streams[index], _HEAD.size + links * _ENTRY.size
    entries, body = list(_ENTRY.iter_unpack(payload[_HEAD.size : start])), payload[start:]
    total, size = sum(entry[2] for entry in entries), len(body)
    try:
        rows: list[Any] = stream.decoder.decode(body)
        readable = len(rows) == total
    except (ValueError, msgspec.DecodeError):
        readable = False
    at = 0
    for target, source, count, life, first in entries:
        charged = share(size, count, total)
        if readable:
            batch = Batch(stream, source, count, rows[at : at + count], None, None, origin, charged, count)
            at += count
        else:  # said where they would be executed, as of a batch
            batch = Batch(stream, source, count, None, None, (MSGPACK, body[:0]), origin, charged, count)
        yield target, batch, life, first


def as_bytes(batch: Batch) -> Batch:
    """What came in a parcel, as it would have come by itself: tuples that wait take five times as much memory as their bytes."""
    if batch.rows is None:
        return batch
    body = memoryview(_encoder.encode(batch.rows))
    return Batch(
        batch.stream, batch.source, batch.count, None, None, (MSGPACK, body), batch.origin, batch.size, batch.credit
    )  # fmt: skip


def opened(source: int, life: int, position: int, epoch: int) -> tuple[Buffer, ...]:
    """The frame that says how far a link has come (`elastic.migration.actions.Open`)."""
    return (_HEAD.pack(OPENED, 0, source, epoch, life, position),)


def fence(source: int, life: int, position: int, epoch: int) -> tuple[Buffer, ...]:
    """The frame that ends what comes to this place (`elastic.migration.actions.SendFence`)."""
    return (_HEAD.pack(FENCE, 0, source, epoch, life, position),)


def stored(task: int, epoch: int) -> tuple[Buffer, ...]:
    """The frame that has the new side of a task look into the stores. It is a hint: nothing follows from it but that look."""
    return (_HEAD.pack(STORED, 0, task, epoch, 0, 0),)


def along(task: int, epoch: int, body: bytes) -> tuple[Buffer, ...]:
    """The frame that brings what is left of a state. Nothing follows from it: the stores have to have all of that first."""
    return (_HEAD.pack(ALONG, 0, task, epoch, 0, 0), body)


def along_in(payload: memoryview) -> memoryview:
    """What `along` was given."""
    return payload[_HEAD.size :]


def saved(states: Sequence[tuple[int, int]], epoch: int) -> tuple[Buffer, ...]:
    """The same when all of them is there: at most `TOLD_MOST` tasks, and the sizes of their states in bytes
    (`elastic.migration.events.SaveHeard`)."""
    return _each(SAVED, states, epoch)


def restored(tasks: Sequence[tuple[int, int]], epoch: int) -> tuple[Buffer, ...]:
    """The frame by which a new side lets those go on who emit to these tasks: at most `TOLD_MOST`, each with its attempt
    (`elastic.migration.actions.TellRestored`)."""
    return _each(RESTORED, tasks, epoch)


def behind(task: int, epoch: int, milliseconds: int) -> tuple[Buffer, ...]:
    """The frame that has the old side of a task let the new one catch up. It is a hint: that side may not listen."""
    return _each(BEHIND, [(task, milliseconds)], epoch)


def told_in(payload: memoryview) -> list[tuple[int, int]]:
    """What `saved`, `restored` or `behind` was given."""
    return list(_EACH.iter_unpack(payload[_HEAD.size :]))


def _each(kind: int, tasks: Sequence[tuple[int, int]], epoch: int) -> tuple[Buffer, ...]:
    body = b"".join(_EACH.pack(*one) for one in tasks)
    return (_HEAD.pack(kind, 0, tasks[0][0], epoch, 0, 0), body)


def _frames(item: Batch) -> list[Frame]:
    stream = item.stream.index
    if item.record is not None:
        return [
            Frame(ARROW, stream, item.source, part.num_rows, part.num_rows, 0, (vector.to_ipc(part),))
            for part in vector.parts(item.record)
        ]
    if item.raw is not None:
        kind, body = item.raw
        return [Frame(kind, stream, item.source, item.count, item.count, _rows(kind, item.count), (body,))]
    assert item.rows is not None
    frames: list[Frame] = []
    misfits = item.stream.misfits
    _encode_rows(item, item.rows, misfits is None or bool(misfits(item.rows)), frames)
    return frames


def _rows(kind: int, count: int) -> int:
    return 0 if kind == ARROW else count


def _encode_rows(item: Batch, rows: list[Any], pickled: bool, frames: list[Frame]) -> None:
    kind, body = PICKLE, b""
    if not pickled:
        # An int of more than 64 bits; text with lone surrogates (UnicodeEncodeError).
        with contextlib.suppress(ValueError, OverflowError):
            kind, body = MSGPACK, _encoder.encode(rows)
    if kind == PICKLE:
        body = _pickle(item, rows)
    count = len(rows)
    if len(body) > SPLIT and count > 1:
        half = count // 2
        _encode_rows(item, rows[:half], pickled, frames)
        _encode_rows(item, rows[half:], pickled, frames)
        return
    frames.append(Frame(kind, item.stream.index, item.source, count, count, count, (body,)))


def _pickle(item: Batch, rows: list[Any]) -> bytes:
    try:
        return pickle.dumps([_astuple(r) for r in rows], protocol=5)
    except Exception as whole:
        for row in rows:
            for field in item.stream.spec.fields:
                try:
                    pickle.dumps(getattr(row, field.name), protocol=5)
                except Exception as e:
                    raise ExecutionError(
                        f"Field {field.name!r} of stream {item.stream.spec.id!r} of {item.stream.component!r} holds a "
                        f"{type(getattr(row, field.name)).__name__} that cannot be sent to another process: {described(e)}"
                    ) from None  # what pickle itself was at says nothing more
        raise ExecutionError(
            f"Tuples of {item.stream.component!r} cannot be sent to another process: {described(whole)}"
        ) from None


class Told(NamedTuple):
    """What a link says about itself: `kind` is OPENED or FENCE; or one of those about states: `source` is the very task then."""

    kind: int
    source: int
    epoch: int


def decode(
    payload: memoryview, streams: Streams, origin: Incarnation
) -> tuple[Batch | Mark | Told, int, int]:
    """What is in a frame, the life of its source, and its position. The body of a batch stays bytes until it is needed."""
    kind, stream, source, count, life, first = _HEAD.unpack_from(payload)
    if kind == MARK:
        return Mark(MarkKind(stream), source, count, origin, len(payload)), life, first
    if kind >= OPENED:
        return Told(kind, source, count), life, first
    body, credit = (kind, payload[_HEAD.size :]), _rows(kind, count)
    batch = Batch(streams[stream], source, count, None, None, body, origin, len(payload), credit)
    return batch, life, first


def rows_of(batch: Batch) -> list[Any]:
    """The tuples of a batch, whatever form it has."""
    if batch.rows is not None:
        return batch.rows
    if batch.record is not None:
        return vector.to_rows(batch.record, batch.stream.kind)
    assert batch.raw is not None
    kind, body = batch.raw
    if kind == MSGPACK:
        rows: list[Any] = batch.stream.decoder.decode(body)
        return rows
    if kind == PICKLE:
        make = batch.stream.kind
        return [make(*values) for values in pickle.loads(body)]
    return vector.to_rows(vector.from_ipc(body), batch.stream.kind)


def record_of(batch: Batch) -> Any:
    """The tuples of a batch as an Arrow record batch, whatever form it has."""
    if batch.record is not None:
        return batch.record
    if batch.raw is not None and batch.raw[0] == ARROW:
        return vector.from_ipc(batch.raw[1])
    return vector.from_rows(rows_of(batch), batch.stream.spec)


def fitting(batch: Batch, error: Exception, unfit: Callable[[Exception, Any, int], None]) -> Any:
    """The tuples that fit into columns of a batch that as a whole does not; None when there are none.

    Args:
        error: What `record_of` raised.
        unfit: Told of each other tuple: why, which, and how many.
    """
    try:
        rows = rows_of(batch)
    except Exception:
        unfit(error, None, batch.count)
        return None
    fit = []
    for row in rows:
        try:
            vector.from_rows([row], batch.stream.spec)
            fit.append(row)
        except Exception as e:
            unfit(e, row, 1)
    return vector.from_rows(fit, batch.stream.spec) if fit else None
