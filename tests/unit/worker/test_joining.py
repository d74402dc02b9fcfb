"""Small batches that a held link keeps become one: the same tuples in the same order, and the same positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic import Fields
from elastic.migration.emitter import Emitter
from elastic.model.ids import ComponentId, StreamId
from elastic.model.topology import StreamSpec
from elastic.worker.tuples import joining, wire
from elastic.worker.tuples.batch import Batch, Mark, MarkKind, Stream
from elastic.worker.tuples.joining import joined


class _Streams(dict[int, Stream]):
    pass


def _stream(index: int = 0) -> Stream:
    declared = Fields(word=str, number=int)
    return Stream(index, ComponentId("c"), StreamSpec(StreamId("default"), declared.specs))


STREAM, OTHER = _stream(), _stream(1)
STREAMS = _Streams({0: STREAM, 1: OTHER})


def _kept(numbers: list[int], stream: Stream = STREAM, word: str = "w") -> Batch:
    rows = [stream.kind(word, n) for n in numbers]
    (frame,) = wire.encode(Batch(stream, 7, len(rows), rows))
    item = frame.item(STREAMS)  # type: ignore[arg-type]
    assert isinstance(item, Batch)
    return item


def _numbers(item: object) -> list[int]:
    assert isinstance(item, Batch)
    (frame,) = wire.encode(item)
    assert frame.number == frame.weight == frame.rows == item.count == item.weight
    rows = wire.rows_of(item)
    assert len(rows) == item.count
    return [r.number for r in rows]


@given(st.lists(st.integers(1, 40), min_size=2, max_size=30))
def test_what_was_kept_piece_by_piece_is_what_was_kept(sizes: list[int]) -> None:
    link = Emitter(7, 8, 1, 10_000)
    at = 0
    for size in sizes:
        assert link.kept(_kept(list(range(at, at + size))), size, joined)
        at += size
    assert link.rows == at == sum(u.count for u in link.buffer)
    assert [n for u in link.buffer for n in _numbers(u.item)] == list(range(at))
    assert all(u.count == u.item.count for u in link.buffer)
    assert len(link.buffer) == 1


def test_a_header_that_counts_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_header_size", lambda count: 1)  # right for fewer than 16 tuples only
    one = joined(_kept(list(range(20))), _kept([20]))
    with pytest.raises(Exception):  # noqa: B017 - whatever the decoder says
        assert _numbers(one) == list(range(21))


def test_what_differs_stays_apart() -> None:
    few = _kept([1, 2])
    assert joined(few, _kept([3], OTHER)) is None
    assert joined(few, Mark(MarkKind.END, 7)) is None
    assert joined(Mark(MarkKind.END, 7), few) is None
    assert joined(few, _kept([1 << 70])) is None  # pickled
    assert joined(few, _kept([3], word="x" * joining.MOST)) is None  # large enough as it is


def test_a_mark_between_batches_stays_between_them() -> None:
    link = Emitter(7, 8, 1, 100)
    for item in (_kept([1]), _kept([2]), Mark(MarkKind.DRAIN, 7, 1), _kept([3]), _kept([4])):
        assert link.kept(item, item.weight, joined)
    assert [type(u.item).__name__ for u in link.buffer] == ["Batch", "Mark", "Batch"]
    assert [_numbers(u.item) for u in (link.buffer[0], link.buffer[2])] == [[1, 2], [3, 4]]


def test_the_bound_holds_for_what_is_joined() -> None:
    link = Emitter(7, 8, 1, 3)
    assert link.kept(_kept([1, 2]), 2, joined)
    assert link.kept(_kept([3]), 1, joined)
    assert not link.kept(_kept([4]), 1, joined)
    assert _numbers(link.buffer[0].item) == [1, 2, 3]
