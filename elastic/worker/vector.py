"""Everything that needs Arrow. pyarrow is loaded when the first record batch comes by, not before."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from elastic.errors import ExecutionError
from elastic.model.topology import StreamSpec
from elastic.worker.hashing import KEY_GROUPS, hash_values

if TYPE_CHECKING:
    import pyarrow as pa

_MASK = 0x7FFFFFFF
_TAKEN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "datetime": (datetime.datetime,),
    "date": (datetime.date,),
    "time": (datetime.time,),
}
FEW_TASKS = 4
"""Up to so many, looking for the rows of each is quicker than sorting all."""
PART_BYTES = 1 << 19


@cache
def schema_of(stream: StreamSpec) -> pa.Schema:
    """The Arrow schema of a typed stream.

    Raises:
        ExecutionError: A field has no declared type, or one that Arrow has no counterpart for.
    """
    import pyarrow as pa

    known: dict[str, pa.DataType] = {
        "str": pa.string(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "bytes": pa.binary(),
        "datetime": pa.timestamp("us"),
        "date": pa.date32(),
        "time": pa.time64("us"),
    }

    def arrow(name: str) -> pa.DataType | None:
        name = name.removesuffix(" | None")
        if name.startswith("list[") and name.endswith("]"):
            inner = arrow(name[5:-1])
            return None if inner is None else pa.list_(inner)
        return known.get(name)

    fields = []
    for f in stream.fields:
        kind = arrow(f.type)
        if kind is None:
            what = f"the type {f.type}" if f.type else "no declared type"
            raise ExecutionError(
                f"Field {f.name!r} of stream {stream.id!r} has {what}: it cannot be an Arrow column.",
                remedy="Declare str, int, float, bool, bytes, dates or lists of these, for instance Fields(word=str).",
            )
        fields.append(pa.field(f.name, kind))
    return pa.schema(fields)


def check_record(record: Any, stream: StreamSpec) -> Any:
    """A record batch with the stream's columns, in their order.

    Raises:
        ExecutionError: It is not a record batch, or columns are missing.
    """
    import pyarrow as pa

    if isinstance(record, pa.Table):
        record = (
            record.combine_chunks().to_batches()[0]
            if record.num_rows
            else pa.RecordBatch.from_pylist([], schema=record.schema)
        )
    if not isinstance(record, pa.RecordBatch):
        raise ExecutionError(f"emit_batch takes a pyarrow RecordBatch, not a {type(record).__name__}.")
    names = [f.name for f in stream.fields]
    if record.schema.names == names:
        return record
    missing = [n for n in names if n not in record.schema.names]
    if missing:
        raise ExecutionError(
            f"A record batch for stream {stream.id!r} lacks the column {missing[0]!r}; it has {', '.join(record.schema.names) or 'none'}."
        )
    return record.select(names)


def from_rows(rows: Sequence[Any], stream: StreamSpec) -> Any:
    """Tuples as a record batch."""
    import pyarrow as pa

    schema = schema_of(stream)
    columns = [[getattr(r, f.name) for r in rows] for f in stream.fields]
    for f, c in zip(stream.fields, columns, strict=True):
        unfit = _unfit(f.type, c)
        if unfit is not None:
            raise ExecutionError(
                f"Tuples of stream {stream.id!r} do not fit their declared types: field {f.name!r} is {f.type}, and holds {unfit}."
            )
    arrays: list[Any] = []
    for column, c in zip(schema, columns, strict=True):
        try:
            arrays.append(pa.array(c, type=column.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            raise ExecutionError(
                f"Tuples of stream {stream.id!r} do not fit their declared types: field {column.name!r}: {e}"
            ) from e
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _unfit(kind: str, column: Sequence[Any]) -> str | None:
    """What in a column Arrow would make another value of without a word: 1.5 to 1, bytes to text, a time to its day."""
    kind = kind.removesuffix(" | None")
    if kind.startswith("list["):
        lists = [v for v in column if v is not None]
        for found in set(map(type, lists)):
            if not issubclass(found, list | tuple) and not hasattr(found, "__array__"):
                return f"a {found.__name__}"
        return _unfit(kind[5:-1], list(chain.from_iterable(lists)))
    taken = _TAKEN.get(kind)
    for found in set(map(type, column)) - {type(None)}:
        fits = hasattr(found, "__index__") if kind == "int" else taken is None or issubclass(found, taken)
        if not fits or (kind == "date" and issubclass(found, datetime.datetime)):
            return f"a {found.__name__}"
    if kind in ("datetime", "time") and any(v is not None and v.tzinfo is not None for v in column):
        return f"a {kind} with a time zone, which a column of its kind does not have"
    return None


def to_rows(record: Any, kind: type) -> list[Any]:
    """A record batch as tuples."""
    columns = [c.to_pylist() for c in record.columns]
    if len(columns) == 1:
        return list(map(kind, columns[0]))
    return list(map(kind, *columns))


def to_ipc(record: Any) -> memoryview:
    """A record batch as an Arrow IPC stream. A slice is written without what it leaves out."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, record.schema) as writer:
        writer.write_batch(record)
    return memoryview(sink.getvalue())


def from_ipc(data: Any) -> Any:
    """The record batch of an Arrow IPC stream, without copying."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


def parts(record: Any) -> Iterator[Any]:
    """A record batch cut into pieces of about `PART_BYTES`."""
    rows = record.num_rows
    pieces = max(1, min(rows, -(-record.nbytes // PART_BYTES)))
    step = max(1, -(-rows // pieces))
    for start in range(0, max(rows, 1), step):
        yield record.slice(start, step)


def key_groups(record: Any, fields: Sequence[str]) -> Any:
    """The key group of each row, as a numpy array: the same as `hash_values` of the row's values."""
    import numpy as np

    folded: Any = None
    for name in fields:
        hashed = _hash_column(record.column(record.schema.get_field_index(name)))
        # In 32 bits this overflows, but not in the bits that the mask leaves.
        folded = hashed if folded is None else (folded * 31 + hashed) & _MASK
    return folded & (KEY_GROUPS - 1) if folded is not None else np.zeros(record.num_rows, dtype=np.int32)


def _hash_column(column: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hash_column(column.dictionary)[column.indices.to_numpy(zero_copy_only=False)]
    plain = (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_integer(kind)
    )
    if plain and not pa.types.is_uint64(kind):
        if pa.types.is_integer(kind):
            column = column.cast(pa.int64())
        from pyiceberg_core import transform

        # The bucket of 2**31 - 1 buckets is the hash itself, up to that one value.
        hashed = transform.bucket(column, _MASK)
        return (hashed.fill_null(0) if hashed.null_count else hashed).to_numpy(zero_copy_only=False)
    # Dates, floats and the rest have rules of their own there; ours are those of the row hash.
    return np.fromiter((hash_values((v,)) for v in column.to_pylist()), dtype=np.int64, count=len(column))


def partition(record: Any, groups: Any, tasks: int) -> Iterator[tuple[int, Any]]:
    """The rows of each task's key groups, in their order: (task index, record batch). Put in order, and taken at once."""
    import numpy as np
    import pyarrow as pa

    if tasks == 1:
        yield 0, record
        return
    targets = groups.astype(np.int32 if tasks <= 1 << 16 else np.int64) * tasks // KEY_GROUPS
    if tasks <= FEW_TASKS:
        places = [np.flatnonzero(targets == task) for task in range(tasks)]
        order, counts = np.concatenate(places), list(map(len, places))
    else:
        order = np.argsort(targets.astype(np.int16 if tasks < 32768 else np.int64), kind="stable")
        counts = np.bincount(targets, minlength=tasks).tolist()
    taken = record.take(pa.array(order.astype(np.int32)))
    start = 0
    for index in range(tasks):
        count = counts[index]
        if count:
            yield index, taken.slice(start, count)
            start += count
