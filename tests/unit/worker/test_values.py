"""Values of every kind, within a process and between processes; rows and columns in one topology."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from elastic import Bolt, CustomGrouping, Fields, Spout, TopologyBuilder
from elastic.errors import ExecutionError
from elastic.local import run
from elastic.testing import collect
from elastic.transport.memory import MemoryNetwork
from elastic.transport.sockets import SocketTransport
from elastic.worker.tuples import wire
from tests.unit.worker.harness import InProcess

LIMIT = 30.0


class Values(Spout):
    """Emits given values of one field."""

    def __init__(self, values: Callable[[], Iterable[Any]], fields: Fields) -> None:
        self.outputs = fields  # type: ignore[misc]
        self.values = values

    def tuples(self) -> Iterable[Any]:
        for value in self.values():
            yield (value,)


def sent(
    values: Callable[[], Iterable[Any]],
    fields: Fields | None = None,
    *,
    apart: bool = True,
    group: str = "",
    tasks: int = 1,
) -> tuple[list[Any], list[str], int]:
    """What arrives of values in another process (or the same): (values, what was said, failed tuples)."""
    out = collect()
    b = TopologyBuilder("t", max_errors=1000)
    b.spout("s", Values(values, fields or Fields("v")))
    h = b.bolt("out", out, tasks=tasks)
    if group:
        getattr(h, group)("s", "v")
    else:
        h.all_to_one("s")
    with InProcess(b.build(), 2 if apart else 1, lambda c, i: int(apart and c == "out")) as cluster:
        cluster.wait_finished()
        failed = sum(t.failures.count for w in cluster.workers for t in w.tasks.values())
    return [v for (v,) in out.rows], [f"{e.kind} {e.message}" for e in cluster.events], failed


class Opaque:
    """Equal to others of its kind; can be pickled."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.n == self.n

    def __hash__(self) -> int:
        return self.n


PLAIN = [
    None,
    True,
    -1,
    2**63,
    2**200,
    1.5,
    math.inf,
    "",
    "ü",
    "lone \udcff",
    b"\x00\xff",
    (1, [2]),
    {"a": {1}},
]


@pytest.mark.parametrize("apart", [False, True])
def test_untyped_values_arrive_as_they_are(apart: bool) -> None:
    values = [*PLAIN, Opaque(3), Decimal("1.10"), functools.partial]
    got, said, failed = sent(lambda: values, apart=apart)
    assert got == values and [type(v) for v in got] == [type(v) for v in values]
    assert not failed, said


def test_of_unpicklable_values_only_the_bad_tuple_is_dropped_and_said() -> None:
    got, said, failed = sent(lambda: [1, threading.Lock(), 2, threading.Event(), 3])
    assert got == [1, 2, 3] and failed == 2
    assert any("'v'" in s and "lock" in s and "'default'" in s for s in said)
    got, _, failed = sent(lambda: [1, threading.Lock(), 2], apart=False)
    assert len(got) == 3 and not failed, "within a process nothing needs to be pickled"


@pytest.mark.parametrize("kind", [int, str, float, bool, bytes])
@pytest.mark.parametrize("apart", [False, True])
def test_values_that_do_not_fit_their_declared_type_arrive_all_the_same(kind: type, apart: bool) -> None:
    values = [kind(), 1, "text", 2**70, "lone \udcff", b"bytes", None, Opaque(1), 2.5, -(2**64)]
    got, said, failed = sent(lambda: values, Fields(v=kind), apart=apart)
    assert got == values and not failed, said


def test_a_tuple_of_100_mb_passes_between_workers() -> None:
    (got, *rest), _, failed = sent(lambda: [b"x" * 100_000_000, b"end"], Fields(v=bytes))
    assert len(got) == 100_000_000 and rest == [b"end"] and not failed


@pytest.mark.parametrize("fields", [Fields(v=str), Fields("v")])
def test_a_tuple_beyond_the_largest_frame_is_dropped_and_said(
    fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "encode", functools.partial(wire.encode, largest=1 << 20))
    values = ["a", "x" * (1 << 20), "b", "y" * (1 << 21), "c"]
    got, said, failed = sent(lambda: values, fields)
    assert got == ["a", "b", "c"] and failed == 2
    assert any("1,048,6" in s and "Send a reference" in s and len(s) < 2000 for s in said)


def test_a_whole_batch_that_is_dropped_for_one_tuple_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: nobody looks which tuple it was."""
    from elastic.worker.emitting.outputs import Outputs

    def lazy(self: Outputs, out: Any, stream: Any, count: int, rows: Any, record: Any) -> None:
        from elastic.worker.tuples.batch import Batch

        try:
            self._put(out, Batch(stream, self.task, count, rows, record))
        except ExecutionError as e:
            self.on_unsendable(e, None)

    monkeypatch.setattr(Outputs, "_send", lazy)
    got, _, _ = sent(lambda: [1, threading.Lock(), 2])
    assert got != [1, 2]


# ---------------------------------------------------------------- keys


def test_strange_keys_meet_in_one_task() -> None:
    keys = [
        math.nan,
        float("nan"),
        2**100,
        float(2**100),
        "lone \udcff",
        None,
        Decimal("Infinity"),
        Decimal("NaN"),
    ]
    got, said, failed = sent(lambda: keys * 5, group="fields", tasks=4)
    assert len(got) == len(keys) * 5 and not failed, said


@pytest.mark.parametrize("group", ["fields", "partial_key"])
@pytest.mark.parametrize("key", [[1], {}, Opaque(1), {1}, Decimal("sNaN")])
def test_a_key_without_a_stable_hash_costs_its_tuple(group: str, key: Any) -> None:
    got, said, failed = sent(lambda: [1, key, 2], group=group, tasks=4, apart=False)
    if isinstance(key, Decimal):
        assert not failed, said
    else:
        assert sorted(got) == [1, 2] and failed == 1
        assert any(type(key).__name__ in s for s in said)


# ---------------------------------------------------------------- rows and columns


class Rows(Spout):
    outputs = Fields(key=str, n=int)

    def __init__(self, bad: tuple[Any, ...] = ()) -> None:
        self.bad = bad

    def tuples(self) -> Iterable[Any]:
        for n in range(300):
            yield f"k{n % 20}", n
        for value in self.bad:
            yield "bad", value
        yield "end", 300


class Double(Bolt):
    outputs = Fields(key=str, n=int)

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        assert isinstance(batch, pa.RecordBatch) and batch.schema.names == ["key", "n"]
        n = pa.array([v.as_py() * 2 for v in batch.column(1)], type=pa.int64())
        self.emit_batch(pa.RecordBatch.from_arrays([n, batch.column(0)], names=["n", "key"]))


class Row(Bolt):
    outputs = Fields(key=str, n=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.key, tup.n + 1)


def pipeline(spout: Spout, group: str, workers: int, **config: Any) -> tuple[list[Any], InProcess]:
    out = collect()
    b = TopologyBuilder("t", **config)
    b.spout("s", spout)
    b.bolt("double", Double(), tasks=2).fields("s", "key")
    h = b.bolt("row", Row(), tasks=3)
    arguments = ("key",) if group == "fields" else ()
    getattr(h, group)("double", *arguments)
    b.bolt("out", out).all_to_one("row")
    with InProcess(b.build(), workers) as cluster:
        cluster.wait_finished()
    return out.rows, cluster


@pytest.mark.parametrize("group", ["shuffle", "fields", "all", "all_to_one", "local_or_shuffle", "none"])
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_become_columns_and_rows_again(group: str, workers: int) -> None:
    rows, cluster = pipeline(Rows(), group, workers, batch_rows=32)
    times = 3 if group == "all" else 1
    assert sorted(n for _, n in rows) == sorted([2 * n + 1 for n in range(301)] * times), cluster.describe()


@pytest.mark.parametrize("workers", [1, 2])
def test_of_tuples_that_do_not_fit_their_columns_only_those_are_dropped_and_said(workers: int) -> None:
    rows, cluster = pipeline(Rows(("text", 2**70, "lone \udcff", Opaque(1), 1.5)), "shuffle", workers)
    assert sorted(n for _, n in rows) == [2 * n + 1 for n in range(301)]
    failed = [e for e in cluster.events if e.kind == "tuple-failed"]
    assert len(failed) == 5 and all("do not fit" in e.message for e in failed)


class Emits(Bolt):
    """Emits record batches that are not as declared."""

    outputs = Fields(key=str, n=int)

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def execute(self, tup: Any) -> None:
        if tup.n == 0:
            self.emit_batch(self.batch)
        self.emit(tup.key, tup.n)


@pytest.mark.parametrize(
    ("batch", "group", "says"),
    [
        (pa.RecordBatch.from_pydict({"key": ["a"]}), "shuffle", "lacks the column 'n'"),
        ({"key": ["a"], "n": [1]}, "shuffle", "not a dict"),
        (pa.RecordBatch.from_pydict({"key": ["a"], "n": [1]}), "partial_key", "partial-key"),
        (pa.RecordBatch.from_pydict({"key": [["a"]], "n": [1]}), "fields", "field 'key' is str"),
        (pa.RecordBatch.from_pydict({"key": ["a"], "n": ["12"]}), "shuffle", "field 'n' is int"),
    ],
)
def test_a_record_batch_that_cannot_be_emitted_is_said(batch: Any, group: str, says: str) -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Rows())
    b.bolt("emits", Emits(batch)).shuffle("s")
    arguments = ("key",) if group in ("fields", "partial_key") else ()
    getattr(b.bolt("out", out, tasks=2), group)("emits", *arguments)
    r = run(b.build(), timeout=LIMIT)
    assert r.failed_tuples == 1 and len(out.rows) == 300
    assert any(says in e.message for e in r.events)


class Nobody(CustomGrouping):
    def choose(self, values: tuple[Any, ...]) -> list[int]:
        return []


class Nothing(Bolt):
    def execute(self, tup: Any) -> None: ...


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("group", ["direct", "custom"])
def test_a_record_batch_is_not_divided_for_whom_somebody_names_tuple_by_tuple(group: str, tasks: int) -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Rows())
    b.bolt("emits", Emits(pa.RecordBatch.from_pydict({"key": ["a"], "n": [1]}))).shuffle("s")
    getattr(b.bolt("out", out, tasks=tasks), group)("emits", *([Nobody()] if group == "custom" else []))
    if group == "direct":
        b.bolt("also", Nothing()).shuffle("emits")  # or what it emits beside would be for nobody
    r = run(b.build(), timeout=LIMIT)
    assert r.failed_tuples == 1 and out.rows == []
    assert any(
        f"cannot divide stream 'default' of 'emits' by the grouping {group}" in e.message for e in r.events
    )


def test_a_record_batch_that_cannot_be_divided_for_one_consumer_goes_to_none() -> None:
    out, nobody = collect(), collect()
    b = TopologyBuilder("t")
    b.spout("s", Rows())
    b.bolt("emits", Emits(pa.RecordBatch.from_pydict({"key": ["in the batch"], "n": [1]}))).shuffle("s")
    b.bolt("first", out).shuffle("emits")
    b.bolt("second", nobody, tasks=2).partial_key("emits", "key")
    assert run(b.build(), timeout=LIMIT).failed_tuples == 1
    assert len(out.rows) == len(nobody.rows) == 300
    assert "in the batch" not in {key for key, _ in out.rows}


def test_an_empty_table_and_a_table_of_several_chunks() -> None:
    out = collect()
    table = pa.table({"key": pa.chunked_array([["a"], ["b", "c"]]), "n": pa.chunked_array([[1], [2, 3]])})
    for batch, more in ((table, 3), (table.slice(0, 0), 0)):
        out = collect()
        b = TopologyBuilder("t")
        b.spout("s", Rows())
        b.bolt("emits", Emits(batch)).shuffle("s")
        b.bolt("out", out).shuffle("emits")
        r = run(b.build(), timeout=LIMIT)
        assert len(out.rows) == 301 + more and not r.failed_tuples


def test_a_row_that_is_too_large_for_a_frame_costs_the_record_batch_that_row_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "encode", functools.partial(wire.encode, largest=1 << 20))
    batch = pa.RecordBatch.from_pydict({"key": ["a", "x" * (3 << 20), "b"], "n": [1, 2, 3]})
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Rows())
    b.bolt("emits", Emits(batch)).shuffle("s")
    b.bolt("out", out).shuffle("emits")
    with InProcess(b.build(), 2, lambda c, i: int(c == "out")) as cluster:
        cluster.wait_finished()
        failed = [t.failures.count for w in cluster.workers for t in w.tasks.values()]
    assert len(out.rows) == 303 and sum(failed) == 1


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["a", None, "b", "a"]).dictionary_encode(),
        pa.array(["a", None, "b", "a"], pa.string_view()),
        pa.array(["a", None, "b", "a"], pa.large_string()),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4], pa.array(["a", None, "b", "a"])),
    ],
    ids=["dictionary", "view", "large", "runs"],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_columns_of_every_form_are_divided_by_key_as_rows_are(keys: Any, workers: int) -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Rows())
    b.bolt("emits", Emits(pa.record_batch([keys, pa.array(range(4))], names=["key", "n"]))).shuffle("s")
    b.bolt("double", Double(), tasks=3).fields("emits", "key")
    b.bolt("out", out).all_to_one("double")
    with InProcess(b.build(), workers) as cluster:
        cluster.wait_finished()
        assert not sum(t.failures.count for w in cluster.workers for t in w.tasks.values()), cluster.events
    assert len(out.rows) == 305 and sorted(n for k, n in out.rows if k in ("a", None, "b")) == [0, 2, 4, 6]


class PassesOn(Bolt):
    """Emits what it gets as it has got it."""

    outputs = Fields(key=str, n=int)

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        self.emit_batch(batch)


@pytest.mark.parametrize("real", [False, True])
def test_a_batch_from_another_process_is_passed_on_by_key(
    real: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if real:
        monkeypatch.setattr(MemoryNetwork, "transport", lambda self, me, **options: SocketTransport(me))
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Rows())
    b.bolt(
        "emits", Emits(pa.record_batch([pa.array(["a", "b"]), pa.array([0, 1])], names=["key", "n"]))
    ).shuffle("s")
    b.bolt("on", PassesOn()).shuffle("emits")
    b.bolt("double", Double(), tasks=3).fields("on", "key")
    b.bolt("out", out).all_to_one("double")
    with InProcess(b.build(), 2, place=lambda component, index: int(component != "emits")) as cluster:
        cluster.wait_finished()
        assert not sum(t.failures.count for w in cluster.workers for t in w.tasks.values()), cluster.events
    assert len(out.rows) == 303 and sorted(n for k, n in out.rows if k in ("a", "b")) == [0, 2]
