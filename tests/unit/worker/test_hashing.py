"""The stable hash: golden values, and that rows and Arrow columns agree. State is kept by it: these numbers never change."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.errors import ExecutionError
from elastic.worker.tuples import vector
from elastic.worker.tuples.hashing import DIGITS, KEY_GROUPS, hash_value, hash_values, task_index


class Many(int):
    """A number of a class of its own."""


GOLDEN = {
    "iceberg": 1210000089,  # appendix B of the Iceberg specification
    34: 2017239379,
    "": 0,
    None: 0,
    "word": 1179309216,
    b"\x00\x01\x02\x03": 1958800441,
    -1: 1651860712,
    2.5: 644877468,
    1 << 70: 579853771,
    ("a", 1): 462367186,
}


@pytest.mark.parametrize("value", GOLDEN)
def test_golden_values(value: Any) -> None:
    assert hash_value(value) == GOLDEN[value]


def test_values_that_are_equal_hash_equally() -> None:
    for a, b in [
        (1, 1.0),
        (1, True),
        (1, decimal.Decimal(1)),
        (0.5, decimal.Decimal("0.5")),
        (-0.0, 0),
        ("a", Enumerated.A),
        (clock(12, 0), clock(13, 60)),
        (clock(1, 120), clock(0, 60)),
        (clock(23, -120), clock(22, -180)),
        (LARGEST, decimal.Decimal(LARGEST)),
        (-LARGEST, decimal.Decimal(-LARGEST)),
        (0, decimal.Decimal("0E+1000000")),
    ]:
        assert a == b
        assert hash_value(a) == hash_value(b)


def test_what_a_thread_has_set_for_decimals_decides_nothing() -> None:
    """User code may want another precision, no floats among them, or small letters; each thread has its own."""
    numbers = [
        decimal.Decimal(n) for n in ("3.14159265358979", "0.5", "1.10", "1E-7", "12.3E-30", "1.5E-400", "7")
    ]
    usual = [hash_value(n) for n in numbers]
    with decimal.localcontext() as own:
        own.prec, own.rounding, own.capitals, own.Emin, own.Emax = 9, decimal.ROUND_DOWN, 0, -99, 99
        own.traps[decimal.FloatOperation] = own.traps[decimal.Inexact] = True
        assert [hash_value(n) for n in numbers] == usual


def test_what_is_missing_goes_to_one_task_whatever_it_was_made_by() -> None:
    """What is computed is `nan` with a sign on some machines, and pandas has a time that is none."""
    for nan in (-math.nan, np.float64("nan"), np.float32("-nan"), decimal.Decimal("-NaN")):
        assert hash_value(nan) == hash_value(math.nan)
    signed = pa.array(np.array([math.nan, -math.nan]))
    assert list(vector._hash_column(signed)) == [hash_value(math.nan)] * 2
    for time in (pd.NaT, np.datetime64("NaT")):
        assert hash_value(time) == hash_value(None)


@pytest.mark.parametrize(
    "value", [np.array([1, 2]), np.longdouble("1.5"), pd.Series([1, 2])], ids=["array", "long", "series"]
)
def test_what_numpy_makes_no_value_of_python_of_is_refused_with_its_name(value: Any) -> None:
    with pytest.raises(ExecutionError, match=f"A value of type {type(value).__name__} cannot decide"):
        hash_value(value)


def clock(hour: int, offset: int) -> datetime.time:
    return datetime.time(hour, tzinfo=datetime.timezone(datetime.timedelta(minutes=offset)))


def test_times_in_rows_and_columns_agree() -> None:
    """A column has no zones: its times are those without one, and stay as they were."""
    times = [datetime.time(12), datetime.time(23, 59, 59, 999999), None]
    record = pa.RecordBatch.from_arrays([pa.array(times, pa.time64("us"))], names=["k"])
    assert list(vector.key_groups(record, ["k"])) == [hash_value(t) % KEY_GROUPS for t in times]
    assert hash_value(datetime.time(12)) == hash_value("12:00:00") != hash_value(clock(12, 0))
    assert hash_value(clock(12, 0)) == hash_value("12:00:00+00:00")


def test_a_moment_without_an_offset_is_one_without_a_zone() -> None:
    class Nowhere(datetime.tzinfo):
        def utcoffset(self, moment: datetime.datetime | None) -> None:
            return None

    moment = datetime.datetime(2020, 1, 1, 12)
    assert moment.replace(tzinfo=Nowhere()) == moment
    assert hash_value(moment.replace(tzinfo=Nowhere())) == hash_value(moment)


LARGEST = 10**DIGITS - 1


@pytest.mark.parametrize(
    "value",
    [
        LARGEST + 1,
        -LARGEST - 1,
        decimal.Decimal(LARGEST + 1),
        decimal.Decimal("-1E+400000"),
        Many(LARGEST + 1),
    ],
    ids=["int", "negative", "Decimal", "exponent", "subclass"],
)
def test_a_number_that_is_too_long_to_be_hashed_is_refused(value: Any) -> None:
    kind = "Decimal" if isinstance(value, decimal.Decimal) else "int"
    with pytest.raises(ExecutionError, match=rf"\({kind}\) of more than 4,300 digits"):
        hash_value(value)


class Enumerated(enum.StrEnum):
    A = "a"


def test_other_kinds_have_a_stable_hash() -> None:
    day = datetime.date(2020, 1, 1)
    utc = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
    assert hash_value(day) == hash_value("2020-01-01")
    assert hash_value(utc) == hash_value(utc.astimezone(datetime.timezone(datetime.timedelta(hours=3))))
    assert hash_value(uuid.UUID(int=1)) == hash_value(str(uuid.UUID(int=1)))
    assert hash_value(frozenset({1, 2})) == hash_value(frozenset({2, 1}))


def test_what_has_no_stable_hash_is_refused() -> None:
    with pytest.raises(ExecutionError, match="list"):
        hash_value([1])


columns = st.one_of(
    st.lists(st.one_of(st.none(), st.text(max_size=8))).map(lambda v: pa.array(v, pa.string())),
    st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1))).map(
        lambda v: pa.array(v, pa.int64())
    ),
    st.lists(st.one_of(st.none(), st.integers(-128, 127))).map(lambda v: pa.array(v, pa.int8())),
    st.lists(st.one_of(st.none(), st.integers(0, (1 << 64) - 1))).map(lambda v: pa.array(v, pa.uint64())),
    st.lists(st.one_of(st.none(), st.binary(max_size=8))).map(lambda v: pa.array(v, pa.binary())),
    st.lists(st.one_of(st.none(), st.floats())).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.one_of(st.none(), st.booleans())).map(lambda v: pa.array(v, pa.bool_())),
    st.lists(st.one_of(st.none(), st.dates())).map(lambda v: pa.array(v, pa.date32())),
    st.lists(st.one_of(st.none(), st.text(max_size=2))).map(
        lambda v: pa.array(v, pa.string()).dictionary_encode()
    ),
    st.lists(st.one_of(st.none(), st.integers(0, 2))).map(
        lambda v: pa.DictionaryArray.from_arrays(pa.array(v, pa.uint8()), ["a", None, "b"])
    ),
    st.lists(st.none()).map(
        lambda v: pa.DictionaryArray.from_arrays(pa.array(v, pa.int8()), pa.array([], pa.string()))
    ),
    st.lists(st.one_of(st.none(), st.integers(0, 1 << 50))).map(
        lambda v: pa.array(v, pa.timestamp("us", "Europe/Berlin"))
    ),
)


@given(columns)
def test_rows_and_columns_agree(column: Any) -> None:
    record = pa.RecordBatch.from_arrays([column], names=["k"])
    rows = [hash_values((v,)) % KEY_GROUPS for v in column.to_pylist()]
    assert list(vector.key_groups(record, ["k"])) == rows


@given(st.lists(st.integers(0, 1 << 50), min_size=1))
def test_the_same_moment_is_the_same_key_in_columns_of_every_zone(moments: list[int]) -> None:
    groups = [
        list(
            vector.key_groups(
                pa.record_batch([pa.array(moments, pa.timestamp("us", zone))], names=["k"]), ["k"]
            )
        )
        for zone in ("UTC", "+05:30", "Europe/Berlin")
    ]
    assert groups[0] == groups[1] == groups[2]


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(-5, 5)), max_size=40), st.integers(1, 9))
def test_rows_and_columns_go_to_the_same_tasks(rows: list[tuple[str, int]], tasks: int) -> None:
    record = pa.RecordBatch.from_arrays(
        [pa.array([r[i] for r in rows], t) for i, t in ((0, pa.string()), (1, pa.int64()))], names=["a", "b"]
    )
    expected: dict[int, list[tuple[str, int]]] = {}
    for row in rows:
        expected.setdefault(task_index(hash_values(row), tasks), []).append(row)
    got = {
        i: [(r["a"], r["b"]) for r in part.to_pylist()]
        for i, part in vector.partition(record, vector.key_groups(record, ["a", "b"]), tasks)
        if part.num_rows
    }
    assert got == expected


@given(st.integers(1, 200))
def test_every_task_owns_some_key_groups(tasks: int) -> None:
    assert {task_index(g, tasks) for g in range(KEY_GROUPS)} == set(range(tasks))
