"""Batches and marks as frames and back.

Frame: `kind` (1 byte), stream number (2), source task (4), count (4), position (8), then the body:

    MSGPACK  rows of a typed stream, an array of arrays
    PICKLE   rows of an untyped stream, or typed rows whose values do not fit their types: pickled list of value tuples
    ARROW    an Arrow IPC stream with one record batch
    MARK     no body: stream is the mark's kind, position its number

Big-endian. Both ends run the same version: workers of a topology are started together, from one installation.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from elastic.errors import ExecutionError, TupleTooLarge
from elastic.model.ids import Incarnation
from elastic.transport.base import Buffer, TransportOptions
from elastic.worker import vector
from elastic.worker.batch import Batch, Mark, MarkKind, Streams

MSGPACK, PICKLE, ARROW, MARK = 1, 2, 3, 4
_HEAD = struct.Struct("!BHIIQ")
_encoder = msgspec.msgpack.Encoder()
_astuple = msgspec.structs.astuple

MAX_FRAME = TransportOptions().max_frame

SPLIT = 1 << 19
"""Rows whose encoding is larger than this many bytes are sent as several frames: what is in flight is bounded."""


def encode(item: Batch | Mark, largest: int = MAX_FRAME) -> list[tuple[Buffer, ...]]:
    """The frames of a batch or mark, in order; each frame as the buffers that make it up.

    Args:
        largest: Bytes that one frame may have.

    Raises:
        ExecutionError: A value can neither be encoded nor pickled; says which field.
        TupleTooLarge: One tuple makes a larger frame. In both cases nothing has been sent.
    """
    frames = _frames(item)
    for head, *body in frames:
        size = len(head) + sum(len(b) for b in body)
        if size > largest:
            assert isinstance(item, Batch)
            raise TupleTooLarge(
                f"A tuple of stream {item.stream.spec.id!r} of {str(item.stream.component)!r} (task {item.source}) has {size:,} bytes; "
                f"at most {largest:,} can be sent to another process.",
                remedy="Send a reference (a path, a key) instead of the content, or cut it into pieces.",
            )
    return frames


def _frames(item: Batch | Mark) -> list[tuple[Buffer, ...]]:
    if isinstance(item, Mark):
        return [(_HEAD.pack(MARK, item.kind, item.source, 0, item.number),)]
    stream = item.stream.index
    if item.record is not None:
        return [
            (_HEAD.pack(ARROW, stream, item.source, part.num_rows, end), vector.to_ipc(part))
            for part, end in vector.parts(item.record, item.position)
        ]
    if item.raw is not None:
        kind, body = item.raw
        return [(_HEAD.pack(kind, stream, item.source, item.count, item.position), body)]
    assert item.rows is not None
    frames: list[tuple[Buffer, ...]] = []
    _encode_rows(item, item.rows, item.position, frames)
    return frames


def _encode_rows(item: Batch, rows: list[Any], position: int, frames: list[tuple[Buffer, ...]]) -> None:
    kind, body = MSGPACK, b""
    if item.stream.typed:
        try:
            body = _encoder.encode(rows)
        except (TypeError, ValueError, OverflowError):  # UnicodeEncodeError is a ValueError
            kind = PICKLE
    else:
        kind = PICKLE
    if kind == PICKLE:
        body = _pickle(item, rows)
    if len(body) > SPLIT and len(rows) > 1:
        half = len(rows) // 2
        _encode_rows(item, rows[:half], position - len(rows) + half, frames)
        _encode_rows(item, rows[half:], position, frames)
        return
    frames.append((_HEAD.pack(kind, item.stream.index, item.source, len(rows), position), body))


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
                        f"{type(getattr(row, field.name)).__name__} that cannot be sent to another process: {e}"
                    ) from e
        raise ExecutionError(
            f"Tuples of {item.stream.component!r} cannot be sent to another process: {whole}"
        ) from whole


def decode(payload: memoryview, streams: Streams, origin: Incarnation) -> Batch | Mark:
    """The batch or mark in a frame. The body of a batch stays bytes until `rows_of` or `record_of` need it."""
    kind, stream, source, count, position = _HEAD.unpack_from(payload)
    if kind == MARK:
        return Mark(MarkKind(stream), source, position, origin, len(payload))
    return Batch(
        streams[stream],
        source,
        count,
        position,
        raw=(kind, payload[_HEAD.size :]),
        origin=origin,
        size=len(payload),
    )


def rows_of(batch: Batch) -> list[Any]:
    """The tuples of a batch, whatever form it has."""
    if batch.rows is not None:
        return batch.rows
    if batch.record is not None:
        return vector.to_rows(batch.record, batch.stream.kind)
    assert batch.raw is not None
    kind, body = batch.raw
    if kind == MSGPACK:
        try:
            rows: list[Any] = batch.stream.decoder.decode(body)
            return rows
        except msgspec.ValidationError:
            # The emitter put values of other types than it declared. Within one process nobody would notice; be as lenient here.
            make = batch.stream.kind
            return [make(*values) for values in msgspec.msgpack.decode(body)]
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
