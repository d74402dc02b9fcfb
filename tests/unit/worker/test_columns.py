"""Record batches as they are emitted and sent: of the declared types, whole, and without what they do not use."""

from __future__ import annotations

import datetime as dt
import mmap
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic import Fields
from elastic.errors import ExecutionError
from elastic.model.ids import StreamId
from elastic.model.topology import StreamSpec
from elastic.worker.tuples import vector


def stream_of(kind: Any) -> StreamSpec:
    return StreamSpec(StreamId("default"), Fields(v=kind).specs)


def checked(column: Any, kind: Any) -> Any:
    return vector.check_record(pa.record_batch([column], names=["v"]), stream_of(kind)).column(0)


MOMENT = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("column", "kind", "becomes"),
    [
        (pa.array([1, None], pa.int8()), int, pa.int64()),
        (pa.array([1, None], pa.uint64()), int, pa.int64()),
        (pa.array([1, 2], pa.int64()), float, pa.float64()),
        (pa.array([1.5, None], pa.float32()), float | None, pa.float64()),
        (pa.nulls(2), str | None, pa.string()),
        (pa.array(["a", None], pa.large_string()), str, pa.string()),
        (pa.array(["a", None], pa.string_view()), str, pa.string()),
        (pa.array([b"a", b"b"], pa.binary(1)), bytes, pa.binary()),
        (pa.array([b"a", None], pa.binary_view()), bytes, pa.binary()),
        (pa.array([dt.date(2020, 1, 1)], pa.date64()), dt.date, pa.date32()),
        (pa.array([dt.time(1, 2)], pa.time32("s")), dt.time, pa.time64("us")),
        (pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("s")), dt.datetime, pa.timestamp("us")),
        (pa.array([MOMENT], pa.timestamp("ms", "UTC")), dt.datetime, pa.timestamp("us", "UTC")),
        (pa.array([[1], None, []], pa.large_list(pa.int8())), list[int], pa.list_(pa.int64())),
        (pa.array([[1], None, [2, 3]], pa.list_view(pa.int8())).slice(2), list[int], pa.list_(pa.int64())),
        (pa.array([["a"]], pa.list_(pa.string_view())), list[str], pa.list_(pa.string())),
        (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", "b"])), str, pa.string()),
        (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", "b"])), object, pa.string()),
        (pa.array(["a"], pa.string_view()), object, pa.string()),
        (pa.array(["a", None]).dictionary_encode(), str, pa.dictionary(pa.int32(), pa.string())),
        (
            pa.array(["a", None], pa.large_string()).dictionary_encode(),
            str,
            pa.dictionary(pa.int32(), pa.string()),
        ),
    ],
)
def test_a_column_is_cast_to_its_declared_type(column: Any, kind: Any, becomes: pa.DataType) -> None:
    got = checked(column, kind)
    assert got.type == becomes and got.to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["12"]), int),
        (pa.array([1.5]), int),
        (pa.array([True]), int),
        (pa.array([1], pa.timestamp("us")), int),
        (pa.array([2**63], pa.uint64()), int),
        (pa.array([2**53 + 1]), float),
        (pa.array([1]), str),
        (pa.array([b"a"]), str),
        (pa.array(["a"]), bytes),
        (pa.array([1]), bool),
        (pa.array([1], pa.timestamp("ns")), dt.datetime),
        (pa.array([dt.date(2020, 1, 1)]), dt.datetime),
        (pa.array([dt.datetime(2020, 1, 1)]), dt.date),
        (pa.array(["12"]).dictionary_encode(), int),
        (pa.array([["1"]]), list[int]),
        (pa.array([1]), list[int]),
    ],
)
def test_a_column_of_other_values_is_refused(column: Any, kind: Any) -> None:
    with pytest.raises(ExecutionError, match=r"(?s)field 'v' is .*Cast the column"):
        checked(column, kind)


def test_a_batch_of_the_declared_types_is_the_same_object() -> None:
    record = pa.record_batch([pa.array(["a"])], names=["v"])
    assert vector.check_record(record, stream_of(str)) is record


def test_a_table_that_makes_no_single_batch_is_refused_and_not_cut_off() -> None:
    with mmap.mmap(-1, 1_200_000_000) as memory:  # pages that nobody touches
        buffers = [None, pa.py_buffer(struct.pack("<ii", 0, len(memory))), pa.py_buffer(memory)]
        chunk = pa.Array.from_buffers(pa.binary(), 1, buffers)
        table = pa.table({"v": pa.chunked_array([chunk, chunk])})
        with pytest.raises(ExecutionError, match=r"Emit each of table.to_batches\(\)"):
            vector.check_record(table, stream_of(bytes))
        del chunk, table, buffers


def sent(record: Any) -> list[int]:
    """Bytes of each frame; all rows arrive as they are."""
    sizes, back = [], []
    for part in vector.parts(record):
        data = vector.to_ipc(part)
        sizes.append(len(data))
        back += vector.from_ipc(data).to_pylist()
    assert back == record.to_pylist()
    return sizes


def dictionary_of(values: int, size: int) -> Any:
    return pa.array([f"{n:0{size}d}" for n in range(values)])


@pytest.mark.parametrize(
    ("rows", "values", "size", "most"),
    [
        (512, 1 << 14, 256, 1),  # far more values than rows: 4 MiB of which 128 KiB are used
        (1 << 14, 1 << 10, 1 << 12, 8),  # every part may need all of it
        (256, 256, 1 << 14, 9),  # each row has its own: parts as of plain text
        (512, 1, 1 << 20, 2),  # one large value for all
    ],
)
def test_a_dictionary_is_not_multiplied_on_the_wire(rows: int, values: int, size: int, most: int) -> None:
    indices = pa.array([n % values if n % 7 else None for n in range(rows)], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, dictionary_of(values, size))
    record = pa.record_batch([column, pa.array(range(rows))], names=["k", "n"])
    sizes = sent(record)
    used = min(rows, values) * size
    assert len(sizes) <= most and sum(sizes) < 2 * used + 64 * rows + 4096


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=12),
    st.integers(0, 4),
    st.sampled_from([pa.int8(), pa.uint16(), pa.int64()]),
)
def test_a_slice_of_a_dictionary_column_arrives_as_it_is(
    indices: list[int | None], start: int, kind: pa.DataType
) -> None:
    values = pa.array(["a", "b", None, "a", "", "c"])
    column = pa.DictionaryArray.from_arrays(pa.array(indices, kind), values).slice(start)
    record = pa.record_batch([column], names=["k"])
    sent(record)
    assert all(p.schema == record.schema for p in vector.parts(record))


COLUMNS = {
    "int": pa.array([1, None, 3]),
    "float": pa.array([1.5, None, 3.0]),
    "str": pa.array(["a", None, "cc"]),
    "bytes": pa.array([b"a", None, b"cc"]),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "date": pa.array([dt.date(2020, 1, 1), None, dt.date(2020, 1, 3)]),
    "moment": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
}


def groups_at_each_offset(column: Any) -> None:
    """Of a batch that lies at any place in what has come: those that it had where it was made."""
    record = pa.record_batch([column], names=["v"])
    data = bytes(vector.to_ipc(record))
    for offset in range(vector.ALIGNED):
        come = memoryview(bytes(offset) + data)[offset:]
        there = vector.from_ipc(come)
        assert there.to_pylist() == record.to_pylist()
        assert vector.key_groups(there, ("v",)).tolist() == vector.key_groups(record, ("v",)).tolist()


@pytest.mark.parametrize("kind", COLUMNS)
def test_what_has_come_behind_the_head_of_a_frame_is_hashed_like_any(kind: str) -> None:
    groups_at_each_offset(COLUMNS[kind])


def test_columns_that_lie_anywhere_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: what hashes is not Arrow's own, and raises what is no `Exception`."""
    monkeypatch.setattr(vector, "ALIGNED", 1)
    with pytest.raises(BaseException, match="not aligned"):
        for offset in range(8):
            record = pa.record_batch([COLUMNS["int"]], names=["v"])
            come = memoryview(bytes(offset) + bytes(vector.to_ipc(record)))[offset:]
            vector.key_groups(vector.from_ipc(come), ("v",))
