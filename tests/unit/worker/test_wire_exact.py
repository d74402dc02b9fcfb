"""Whatever is emitted arrives as it was, at whatever distance: values against declared types, over the wire and as columns."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import functools
import uuid
import zoneinfo
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elastic import Fields
from elastic.errors import ExecutionError
from elastic.model.ids import ComponentId, Incarnation, StreamId
from elastic.model.topology import StreamSpec
from elastic.worker.tuples import vector, wire
from elastic.worker.tuples.batch import Batch, Stream


class Text(str):
    __slots__ = ()


class Number(int):
    __slots__ = ()


class Real(float):
    __slots__ = ()


class Items(list[Any]):
    pass


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


class Level(enum.IntEnum):
    LOW = 1


Point = collections.namedtuple("Point", "x y")
UTC, BERLIN = dt.UTC, zoneinfo.ZoneInfo("Europe/Berlin")
ZONES = st.sampled_from([None, UTC, BERLIN, dt.timezone(dt.timedelta(hours=5, minutes=30))])
ALTERNATIVES = [str | None, int | float, float | Decimal, str | bytes, str | dt.datetime, bool | int | None]
CONTAINERS = [
    list[int],
    list[str],
    tuple[int, ...],
    tuple[int, str],
    set[int],
    dict[str, int],
    list,
    tuple,
    dict,
    set,
]
SCALARS = [str, int, float, bool, bytes, dt.datetime, dt.date, dt.time, Decimal, uuid.UUID, None]
KINDS = st.sampled_from([*SCALARS, *ALTERNATIVES, *CONTAINERS, object])

_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 3),
    st.floats(),
    st.text(st.characters(), max_size=5),  # with lone surrogates
    st.binary(max_size=5),
)
_others = st.one_of(
    st.datetimes(timezones=ZONES, allow_imaginary=False),
    st.datetimes(
        timezones=st.just(BERLIN),
        min_value=dt.datetime(2023, 10, 29, 2),
        max_value=dt.datetime(2023, 10, 29, 3),
    ),
    st.dates(),
    st.times(timezones=ZONES),
    st.timedeltas(),
    st.decimals(),
    st.uuids(),
    st.sampled_from([Colour.RED, Colour.ONE, Level.LOW, Text("t"), Number(3), Real(1.5), bytearray(b"b")]),
    st.sampled_from(
        ["2020-01-01", "12:00:00", "1.5", str(uuid.UUID(int=1))]
    ),  # text that reads like something else
)
_atoms = st.one_of(_plain, _others)
VALUES = st.one_of(
    _atoms,
    st.lists(_plain, max_size=3),
    st.lists(_atoms, max_size=3).map(tuple),
    st.lists(_atoms, max_size=3).map(Items),
    st.sets(st.integers(), max_size=3),
    st.frozensets(st.text(max_size=3), max_size=3),
    st.dictionaries(
        st.one_of(st.text(max_size=3), st.integers(), st.tuples(st.integers())), _atoms, max_size=3
    ),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3).map(collections.Counter),
    st.builds(Point, st.integers(), _plain),
)


def said(value: Any) -> Any:
    """A value as something that is equal only if class, zone, sign and all within are."""
    kind = type(value)
    if isinstance(value, list | tuple):
        return kind, [said(v) for v in value]
    if isinstance(value, dict):
        return kind, [(said(k), said(v)) for k, v in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted(map(repr, value))
    return kind, repr(value), getattr(value, "fold", 0)


def stream_of(*kinds: Any) -> Stream:
    fields = Fields(**{f"f{i}": kind for i, kind in enumerate(kinds)})
    return Stream(0, ComponentId("c"), StreamSpec(StreamId("default"), fields.specs))


def travelled(stream: Stream, rows: list[Any]) -> list[Any]:
    """The tuples as they are after a way between two processes."""
    there: list[Any] = []
    for frame in wire.encode(Batch(stream, 1, len(rows), rows)):
        payload = memoryview(b"".join(frame.at(0, 0)))
        item, _, _ = wire.decode(payload, [stream], Incarnation("w#1"))  # type: ignore[arg-type]
        assert isinstance(item, Batch)
        there += wire.rows_of(item)
    return there


def check_same(kinds: list[Any], values: list[tuple[Any, ...]]) -> None:
    stream = stream_of(*kinds)
    rows = [stream.kind(*v) for v in values]
    assert [said(r.values) for r in travelled(stream, rows)] == [said(v) for v in values]


@st.composite
def _streams(draw: st.DrawFn) -> tuple[list[Any], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(KINDS, min_size=1, max_size=3))
    return kinds, draw(st.lists(st.tuples(*[VALUES for _ in kinds]), min_size=1, max_size=4))


@example(([float], [(1,)]))
@example(([float], [(2**53 + 1,)]))
@example(([str], [(uuid.UUID(int=1),)]))
@example(([list], [((1, 2),)]))
@example(([int, dt.datetime], [(True, dt.datetime(2020, 1, 1))]))  # one that does not fit changes no other
@example(([dt.datetime], [(dt.datetime(2020, 1, 1, tzinfo=BERLIN),)]))
@example(([dt.date], [(dt.datetime(2020, 1, 1),)]))
@given(_streams())
def test_what_arrives_is_what_was_emitted(case: tuple[list[Any], list[tuple[Any, ...]]]) -> None:
    check_same(*case)


FITTING = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(),
    bool: st.booleans(),
    bytes: st.binary(max_size=5),
    dt.datetime: st.datetimes(timezones=st.sampled_from([None, UTC])).map(lambda d: d.replace(fold=0)),
    dt.date: st.dates(),
    dt.time: st.times(timezones=st.sampled_from([None, UTC])).map(lambda t: t.replace(fold=0)),
    Decimal: st.decimals(),
    uuid.UUID: st.uuids(),
    str | None: st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    int | float: st.integers(-9, 9) | st.floats(),
}


@given(st.data())
def test_values_of_their_declared_types_are_not_pickled(data: st.DataObject) -> None:
    """What the exactness must not cost: the fast way is taken by all that fits."""
    kinds = data.draw(st.lists(st.sampled_from(list(FITTING)), min_size=1, max_size=4))
    values = data.draw(st.lists(st.tuples(*[FITTING[k] for k in kinds]), min_size=1, max_size=4))
    stream = stream_of(*kinds)
    (frame,) = wire.encode(Batch(stream, 1, len(values), [stream.kind(*v) for v in values]))
    assert frame.kind == wire.MSGPACK
    check_same(kinds, values)


def test_a_wire_that_trusts_declarations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: nobody looks whether values are what their fields are declared as."""
    honest = Stream.__init__

    @functools.wraps(honest)
    def trusting(self: Stream, *args: Any) -> None:
        honest(self, *args)
        if self.misfits is not None:
            self.misfits = lambda tuples: []

    monkeypatch.setattr(Stream, "__init__", trusting)
    for kinds, values in (
        ([float], [(1,)]),
        ([str], [(uuid.UUID(int=1),)]),
        ([dt.datetime], [(dt.datetime(2020, 1, 1, tzinfo=BERLIN),)]),
    ):
        with pytest.raises(AssertionError):
            check_same(kinds, values)


# ---------------------------------------------------------------- columns


@example(str, [b"x"])
@example(bytes, ["x"])
@example(dt.datetime, [dt.datetime(2020, 1, 1, tzinfo=UTC)])
@example(dt.datetime, [5])
@example(dt.time, [7])
@example(list[int], [[1.5]])
@example(list[list[dt.date]], [[[dt.datetime(2020, 1, 1)]]])
@example(float, [2**53 + 1])
@given(
    st.sampled_from([*SCALARS[:8], str | None, list[int], list[str], list[dt.datetime], list[list[int]]]),
    st.lists(st.one_of(_plain, _others, st.lists(_plain, max_size=3)), min_size=1, max_size=3),
)
def test_a_column_holds_equal_values_or_an_error_names_the_field(kind: Any, values: list[Any]) -> None:
    stream = stream_of(kind)
    try:
        record = vector.from_rows([stream.kind(v) for v in values], stream.spec)
    except ExecutionError as e:
        assert "'f0'" in str(e)
        return
    back = [v for (v,) in vector.to_rows(record, stream.kind)]
    assert [str(v) if v != v else v for v in back] == [str(v) if v != v else v for v in values]
