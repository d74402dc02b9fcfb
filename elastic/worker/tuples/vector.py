"""Everything that needs Arrow. A worker loads pyarrow before it does anything, if a component takes or gives record batches (`load`); else
when the first record batch comes by, if one does."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from elastic.errors import ExecutionError
from elastic.model.topology import StreamSpec
from elastic.worker.tuples.hashing import KEY_GROUPS, hash_values

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
ALIGNED = 8
"""Bytes: Arrow writes each buffer of a stream at a multiple of it, from the stream's beginning."""
PART_BYTES = 1 << 19


def load() -> None:
    """Load all that record batches need. That takes a second or two, for which whoever is in the middle of a stream would stand still."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute
    from pyiceberg_core import transform  # noqa: F401

    pa.array(np.zeros(1, dtype=np.int32))  # the first time it imports pandas, whatever it is given


@cache
def _kind(name: str) -> pa.DataType | None:
    """The type of a column of what is declared by that name; None: Arrow has no counterpart for it."""
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
    name = name.removesuffix(" | None")
    if name.startswith("list[") and name.endswith("]"):
        inner = _kind(name[5:-1])
        return None if inner is None else pa.list_(inner)
    return known.get(name)


@cache
def _columns(stream: StreamSpec) -> tuple[list[str], list[pa.DataType | None], pa.Schema | None]:
    """Name and type of each column of a stream; and its schema, if all are known."""
    names, kinds = [f.name for f in stream.fields], [_kind(f.type) for f in stream.fields]
    return names, kinds, None if None in kinds else schema_of(stream)


@cache
def schema_of(stream: StreamSpec) -> pa.Schema:
    """The Arrow schema of a typed stream.

    Raises:
        ExecutionError: A field has no declared type, or one that Arrow has no counterpart for.
    """
    import pyarrow as pa

    fields = []
    for f in stream.fields:
        kind = _kind(f.type)
        if kind is None:
            what = f"the type {f.type}" if f.type else "no declared type"
            raise ExecutionError(
                f"Field {f.name!r} of stream {stream.id!r} has {what}: it cannot be an Arrow column.",
                remedy="Declare str, int, float, bool, bytes, dates or lists of these, for instance Fields(word=str).",
            )
        fields.append(pa.field(f.name, kind))
    return pa.schema(fields)


def check_record(record: Any, stream: StreamSpec) -> Any:
    """A record batch with the stream's columns, in their order and of their types.

    A column stays as it came where its field has no declared type or one that Arrow has no counterpart for. A dictionary stays one, and
    times keep their zone.

    Raises:
        ExecutionError: It is not a record batch, columns are missing, or one has values that are not of its declared type.
    """
    import pyarrow as pa

    if isinstance(record, pa.Table):
        record = _joined(record, stream)
    if not isinstance(record, pa.RecordBatch):
        raise ExecutionError(f"emit_batch takes a pyarrow RecordBatch, not a {type(record).__name__}.")
    names, kinds, schema = _columns(stream)
    if schema is not None and record.schema.equals(schema):
        return record
    if record.schema.names != names:
        missing = [n for n in names if n not in record.schema.names]
        if missing:
            has = ", ".join(record.schema.names) or "none"
            raise ExecutionError(
                f"A record batch for stream {stream.id!r} lacks the column {missing[0]!r}; it has {has}."
            )
        record = record.select(names)
    given, columns = record.columns, []
    for field, kind, column in zip(stream.fields, kinds, given, strict=True):
        try:
            columns.append(_fitted(column, kind))
        except (pa.ArrowException, TypeError) as e:
            raise ExecutionError(
                f"A record batch for stream {stream.id!r} does not fit: field {field.name!r} is {field.type or 'not typed'}, "
                f"and its column is {column.type}: {e}",
                remedy="Cast the column to the declared type, or declare another one.",
            ) from e
    return _with_columns(record, given, columns)


def _with_columns(record: Any, given: list[Any], columns: list[Any]) -> Any:
    """A record batch with others of its columns in place of those that it has given; the same, if they are those."""
    import pyarrow as pa

    if all(a is b for a, b in zip(given, columns, strict=True)):
        return record
    return pa.RecordBatch.from_arrays(columns, names=record.schema.names)


def _joined(table: Any, stream: StreamSpec) -> Any:
    """A table as one record batch."""
    import pyarrow as pa

    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    if not table.num_rows:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    try:
        return pa.concat_batches(batches)  # type: ignore[attr-defined]
    except pa.ArrowInvalid as e:  # more than 2 GiB in a column, more values than a dictionary can have
        raise ExecutionError(
            f"A table for stream {stream.id!r} makes no single record batch: {e}",
            remedy="Emit each of table.to_batches().",
        ) from e


def _fitted(column: Any, kind: pa.DataType | None) -> Any:
    """A column as one of that type; None: as one that rows can be taken from. Raises TypeError or what Arrow raises."""
    import pyarrow as pa

    has = column.type
    if has == kind:
        return column
    if pa.types.is_dictionary(has):
        values = _fitted(column.dictionary, kind)
        if values is column.dictionary:
            return column
        return pa.DictionaryArray.from_arrays(column.indices, values, ordered=has.ordered)
    if pa.types.is_run_end_encoded(has):
        import pyarrow.compute as pc

        return _fitted(pc.run_end_decode(column), kind)  # type: ignore[attr-defined]
    if kind is None:
        if pa.types.is_string_view(has):
            return column.cast(pa.string())
        return column.cast(pa.binary()) if pa.types.is_binary_view(has) else column
    target = _target(has, kind)
    if target is None:
        raise TypeError(f"{has} is not {kind}")
    if "list_view" in str(has):  # of such a column Arrow's cast makes other values
        return pa.array(column.to_pylist(), type=target)
    return column.cast(target)


def _target(has: Any, kind: Any) -> Any:
    """What a column is cast to for one of type `kind`. None: its values are others, as text that reads like numbers."""
    import pyarrow as pa

    t = pa.types
    if t.is_null(has):
        return kind
    if t.is_timestamp(kind):
        return pa.timestamp("us", has.tz) if t.is_timestamp(has) else None
    if t.is_list(kind):
        if not (t.is_list(has) or t.is_large_list(has) or t.is_fixed_size_list(has) or _is_list_view(has)):
            return None
        inner = _target(has.value_type, kind.value_type)
        return None if inner is None else pa.list_(inner)
    if t.is_dictionary(has):  # within a list
        return _target(has.value_type, kind)
    if t.is_string(kind):
        fits = t.is_string(has) or t.is_large_string(has) or t.is_string_view(has)
    elif t.is_binary(kind):
        fits = (
            t.is_binary(has) or t.is_large_binary(has) or t.is_binary_view(has) or t.is_fixed_size_binary(has)
        )
    elif t.is_floating(kind):
        fits = t.is_floating(has) or t.is_integer(has)
    elif t.is_integer(kind):
        fits = t.is_integer(has)
    else:
        fits = has == kind or (t.is_date(kind) and t.is_date(has)) or (t.is_time(kind) and t.is_time(has))
    return kind if fits else None


def _is_list_view(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


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
    """The record batch of an Arrow IPC stream; without copying, where it lies as Arrow wants it.

    Behind the head of a frame it does not. Kernels that are given columns then read them all the same, or, if they are not Arrow's own,
    end the process's topology: what hashes keys does. To copy 400 KB takes 15 us.
    """
    import pyarrow as pa

    buffer = pa.py_buffer(data)
    if buffer.address % ALIGNED:
        buffer = pa.py_buffer(bytes(data))
    with pa.ipc.open_stream(buffer) as reader:
        return reader.read_next_batch()


def parts(record: Any) -> list[Any]:
    """A record batch cut into pieces of about `PART_BYTES`, each with what it uses of its dictionaries.

    What pieces have in common goes with each of them: there are fewer where more than about twice as much would be sent because of that.
    """
    import pyarrow as pa

    if not any(isinstance(t, pa.DictionaryType) or t.num_fields for t in record.schema.types):
        return _cut(record, -(-record.nbytes // PART_BYTES))
    record = _compact(record)
    size = record.nbytes
    pieces = min(record.num_rows, -(-size // PART_BYTES))
    while pieces > 1:
        cut = [_compact(p) for p in _cut(record, pieces)]
        if sum(p.nbytes for p in cut) <= 2 * size:
            return cut
        pieces //= 2
    return [record]


def _cut(record: Any, pieces: int) -> list[Any]:
    if pieces <= 1:
        return [record]
    rows = record.num_rows
    step = -(-rows // pieces) or 1
    return [record.slice(start, step) for start in range(0, max(rows, 1), step)]


def _compact(record: Any) -> Any:
    """A record batch of which no dictionary has more values than there are rows."""
    import pyarrow as pa

    columns = record.columns
    return _with_columns(
        record, columns, [_used(c) if isinstance(c, pa.DictionaryArray) else c for c in columns]
    )


def _used(column: Any) -> Any:
    """A dictionary column with those values of its dictionary that it uses, if there are more values than rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(column.dictionary) <= len(column):
        return column
    kind = column.type
    used = column.indices.drop_null().unique()
    indices = pc.index_in(column.indices, value_set=used).cast(kind.index_type)
    return pa.DictionaryArray.from_arrays(indices, column.dictionary.take(used), ordered=kind.ordered)


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
        column = _used(column)
        if column.indices.null_count == 0:
            return _hash_column(column.dictionary)[column.indices.to_numpy(zero_copy_only=False)]
        # One more at the end, for what is null.
        hashed = np.append(_hash_column(column.dictionary), 0)
        return hashed[column.indices.cast(pa.int64()).fill_null(-1).to_numpy()]
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
