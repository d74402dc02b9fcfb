"""The engine's part of a task travels: counts, marks, what waits in its queue, and its links with what is held back there."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.api.context import TopologyContext
from elastic.errors import ExecutionError
from elastic.migration.snapshot import Early, InLink, OutLink, TaskLinks, Unsent
from elastic.worker.content.engine import (
    PIECE,
    EngineState,
    SpoutState,
    decode_engine,
    encode_engine,
    metrics_of,
    put_metrics,
)
from elastic.worker.tuples import wire
from elastic.worker.tuples.batch import Batch, Mark, MarkKind, Stream, Streams


class Source(Spout):
    outputs = MappingProxyType({"typed": Fields(text=str, number=int), "untyped": Fields("value")})

    def next_tuple(self) -> None: ...


class Sink(Bolt):
    def execute(self, tup: Any) -> None: ...


def topology() -> Any:
    b = TopologyBuilder("t")
    b.spout("source", Source())
    b.bolt("sink", Sink()).shuffle("source", stream="typed").shuffle("source", stream="untyped")
    return b.build().spec


STREAMS = Streams(topology())
TYPED, UNTYPED = STREAMS.all


def batch(stream: Stream, source: int, rows: list[tuple[Any, ...]]) -> Batch:
    return Batch(stream, source, len(rows), [stream.kind(*r) for r in rows])


def shown(item: Any) -> Any:
    if isinstance(item, Mark):
        return item.kind, item.source, item.number
    return item.stream.index, item.source, [tuple(r.values) for r in wire.rows_of(item)]


tasks = st.integers(1, 1 << 20)
counts = st.integers(0, 1 << 40)
marks = st.builds(Mark, st.sampled_from(MarkKind), tasks, st.integers(0, 1000))
batches = st.one_of(
    st.builds(
        batch,
        st.just(TYPED),
        tasks,
        st.lists(st.tuples(st.text(max_size=3), st.integers(-9, 9)), min_size=1, max_size=4),
    ),
    st.builds(
        batch,
        st.just(UNTYPED),
        tasks,
        st.lists(
            st.tuples(st.one_of(st.none(), st.tuples(st.integers()), st.text())), min_size=1, max_size=4
        ),
    ),
)
items = st.one_of(marks, batches)


def unsent(item: Any) -> Unsent:
    return Unsent(item, item.weight)


engines = st.builds(
    EngineState,
    counts,
    counts,
    counts,
    st.booleans(),
    counts,
    st.lists(st.tuples(tasks, counts), max_size=3).map(tuple),
    st.none() | st.floats(0, 100),
    st.none() | st.builds(SpoutState, st.booleans(), counts),
    st.dictionaries(st.text(max_size=3), counts | st.floats(0, 10)),
    st.dictionaries(st.text(max_size=3), st.floats(-10, 10)),
    st.lists(items, max_size=4).map(tuple),
)
links = st.builds(
    TaskLinks,
    counts,
    st.lists(
        st.builds(
            InLink,
            tasks,
            counts,
            counts,
            st.lists(st.builds(lambda i, f: Early(3, f, i.weight, i), items, counts), max_size=3).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    st.lists(
        st.builds(OutLink, tasks, counts, counts, st.lists(items.map(unsent), max_size=3).map(tuple)),
        max_size=3,
    ).map(tuple),
)


def plain(state: EngineState, of: TaskLinks) -> Any:
    inputs = [
        (i.source, i.life, i.seen, [(e.life, e.first, e.count, shown(e.item)) for e in i.early])
        for i in of.inputs
    ]
    outputs = [(o.target, o.sent, o.epoch, [(u.count, shown(u.item)) for u in o.buffer]) for o in of.outputs]
    engine = {f: getattr(state, f) for f in state.__slots__} | {"queue": [shown(i) for i in state.queue]}
    return engine, of.life, inputs, outputs


@given(state=engines, of=links)
def test_what_went_comes_back(state: EngineState, of: TaskLinks) -> None:
    pieces = encode_engine(state, of)
    *back, own = decode_engine([*pieces, b"content"], STREAMS)
    assert plain(*back) == plain(state, of)
    assert own == len(pieces)
    again = encode_engine(*back)
    assert again == pieces, "what is bytes still moves on as it is"


def test_nothing_is_decoded_before_it_is_executed() -> None:
    pieces = encode_engine(EngineState(queue=(batch(TYPED, 1, [("a", 1)]),)), TaskLinks(1))
    state, _, _ = decode_engine(pieces, STREAMS)
    [item] = state.queue
    assert isinstance(item, Batch)
    assert item.raw is not None
    assert not item.origin, "nobody in another process waits for its room"


def test_a_large_batch_travels_as_several_and_positions_go_on() -> None:
    rows = [("x" * 1000, n) for n in range(2000)]
    large = batch(TYPED, 1, rows)
    of = TaskLinks(7, (InLink(1, 7, 5, (Early(7, 9, 2000, large),)),), (OutLink(2, 4, 0, (unsent(large),)),))
    pieces = encode_engine(EngineState(queue=(large,)), of)
    assert len(pieces) > 1
    assert max(map(len, pieces)) == PIECE, "more would be refused by the store"
    state, back, own = decode_engine([*pieces, b"content"], STREAMS)
    assert own == len(pieces)
    assert len(state.queue) > 1
    assert [r for i in state.queue for r in shown(i)[2]] == rows
    early = back.inputs[0].early
    assert [e.first for e in early] == [9 + sum(x.count for x in early[:n]) for n in range(len(early))]
    assert sum(e.count for e in early) == sum(u.count for u in back.outputs[0].buffer) == 2000
    assert all(e.count == e.item.count for e in early)


def test_what_cannot_be_encoded_is_named() -> None:
    held = batch(UNTYPED, 1, [(lambda: 0,)])
    with pytest.raises(
        ExecutionError, match="Field 'value' of stream 'untyped' of 'source' holds a function"
    ):
        encode_engine(EngineState(), TaskLinks(1, outputs=(OutLink(2, 0, 0, (unsent(held),)),)))


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x90", encode_engine(EngineState(), TaskLinks(1))[0][:-1], b"\0\0\0\2" + b"\x90"]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ExecutionError, match="cannot be read"):
        decode_engine([data], STREAMS)


def test_of_several_pieces_none_may_lack() -> None:
    pieces = encode_engine(
        EngineState(queue=(batch(TYPED, 1, [("x" * 1000, n) for n in range(2000)]),)), TaskLinks(7)
    )
    with pytest.raises(ExecutionError, match="it has 2 pieces, and 1 are there"):
        decode_engine(pieces[:-1], STREAMS)


def test_another_version_is_refused() -> None:
    [piece] = encode_engine(EngineState(), TaskLinks(1))
    fields: list[Any] = msgspec.msgpack.decode(piece[4:])
    with pytest.raises(ExecutionError, match="has the form 99"):
        decode_engine([piece[:4] + msgspec.msgpack.encode([99, *fields[1:]])], STREAMS)


def test_metrics_go_on() -> None:
    def context() -> TopologyContext:
        return TopologyContext(topology(), "sink", 2, "w", {})

    old, new = context(), context()
    old.counter("seen").inc(5)
    old.gauge("level").set(2.5)
    old.gauge("read", lambda: 7.0)
    values: Mapping[str, float]
    old.gauge("late").set(1.5)
    counters, gauges = metrics_of(old)
    assert (counters, gauges) == ({"seen": 5}, {"level": 2.5, "late": 1.5})
    new.counter("seen").inc(1)  # in prepare()
    new.gauge("read", lambda: 8.0)
    new.gauge("level")
    put_metrics(new, counters, gauges)
    values = new.metric_values()
    assert values == {"seen": 6.0, "read": 8.0, "level": 2.5, "late": 1.5}
    assert new.counter("seen").value == 6
    assert new.gauge("late").value == 1.5, "whoever registers it finds it"


@pytest.mark.parametrize(
    ("value", "count", "level"),
    [
        (np.int64(1000), 1000, 1000.0),
        (np.uint64((1 << 64) - 1), float(1 << 64), float(1 << 64)),
        (np.float32(1.5), 1.5, 1.5),
        (np.bool_(True), 1, 1.0),
        (Decimal("0.5"), 0.5, 0.5),
        (True, 1, 1.0),
        (1 << 80, float(1 << 80), float(1 << 80)),
    ],
)
def test_metrics_of_other_types_travel_as_they_are_told(value: Any, count: Any, level: float) -> None:
    context = TopologyContext(topology(), "sink", 2, "w", {})
    context.counter("c").value = value
    context.gauge("g").set(value)
    counters, gauges = metrics_of(context)
    assert context.metric_values() == {"c": float(count), "g": level} == {**counters, **gauges}
    assert counters == {"c": count}
    assert gauges == {"g": level}
    state = EngineState(counters=counters, gauges=gauges)
    assert decode_engine(encode_engine(state, TaskLinks(1)), STREAMS)[0] == state


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float64("nan"), 10**400, None, "many", [1]])
def test_what_is_no_number_does_not_travel_and_keeps_nothing_else(value: Any) -> None:
    context = TopologyContext(topology(), "sink", 2, "w", {})
    context.counter("c").value = value
    context.gauge("g").set(value)
    context.counter("good").inc()
    assert context.metric_values() == {"good": 1.0}
    assert metrics_of(context) == ({"good": 1}, {})
