"""The stable hash of keys: the same for rows and Arrow columns, in every process, on every machine, in every version.

It is the Iceberg bucket hash (Murmur3, 32 bit, x86 variant; Iceberg specification, appendix B), cut to 31 bits, and
folded over several fields. Golden values stand in `tests/unit/test_hashing.py`: they must never change, because state is kept by it.

Values that are equal in Python hash equally: 1, 1.0, True and Decimal(1) are the same key.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
import struct
import uuid
from collections.abc import Sequence
from typing import Any

import mmh3

from elastic.errors import ExecutionError

KEY_GROUPS = 1 << 15
"""Keys fall into this many groups; a task owns a contiguous range of them."""

DIGITS = 4300
"""Whole numbers of more digits are no keys: hashing one takes time with the square of its length, and Python makes no text of it."""

_MASK = 0x7FFFFFFF
_TOO_LARGE = 10**DIGITS
_DAY = datetime.date(2000, 1, 1)
_LONG = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_DECIMALS = decimal.Context(28, decimal.ROUND_HALF_EVEN, -999_999, 999_999, 1, 0, [], [])
"""What every thread has unless it sets another one, as user code may on the thread that emits: it must not decide where a key goes."""


def hash_value(value: Any) -> int:
    """The 31-bit hash of one value.

    Raises:
        ExecutionError: A type whose values have no stable form, or a whole number of more than `DIGITS` digits.
    """
    kind = type(value)
    if kind is str:
        try:
            data = value.encode()
        except UnicodeEncodeError:
            data = value.encode("utf-8", "surrogatepass")
    elif kind is int or kind is bool:
        data = _LONG.pack(value) if -(1 << 63) <= value < (1 << 63) else _long(value)
    elif kind is bytes:
        data = value
    elif value is None:
        return 0
    else:
        return _hash_other(value)
    return int((mmh3.hash(data, 0, False) & _MASK) % _MASK)


def _hash_other(value: Any) -> int:
    if isinstance(value, float):
        if value.is_integer():
            return hash_value(int(value))
        if value != value:
            value = math.nan  # what is computed may have a sign, and other bits
        return int((mmh3.hash(_DOUBLE.pack(value), 0, False) & _MASK) % _MASK)
    if isinstance(value, decimal.Decimal):
        if not value.is_finite():
            return hash_value(str(value) if value.is_snan() else float(value))
        if value == value.to_integral_value():
            # Before it is made an int, which takes as long. A zero has no digits, whatever its exponent.
            if value and value.adjusted() >= DIGITS:
                raise _too_long("Decimal")
            return hash_value(int(value))
        if value == decimal.Decimal.from_float(float(value)):
            return hash_value(float(value))
        return hash_value(_DECIMALS.to_sci_string(_DECIMALS.normalize(value)))
    if isinstance(value, tuple):
        return hash_values(value)
    if isinstance(value, str | int | bytes):  # subclasses, enums among them
        if isinstance(value, str):
            return hash_value(str.__str__(value))
        return hash_value(int(value) if isinstance(value, int) else bytes(value))
    if isinstance(value, bytearray | memoryview):
        return hash_value(bytes(value))
    if isinstance(value, datetime.datetime):
        if value != value:  # pandas' missing time, of which nothing can be asked: NumPy's is None
            return 0
        if value.utcoffset() is not None:
            value = value.astimezone(datetime.UTC)
        return hash_value(value.isoformat())
    if isinstance(value, datetime.time):
        return hash_value(str(_in_utc(value)))
    if isinstance(value, datetime.date | uuid.UUID):
        return hash_value(str(value))
    if isinstance(value, frozenset):
        return sum(hash_value(v) for v in value) & _MASK
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a numpy scalar
        with contextlib.suppress(ValueError):  # an array of several
            item = value.item()
            if type(item) is not type(value):  # no number of Python's has all of its digits
                return hash_value(item)
    raise ExecutionError(
        f"A value of type {type(value).__name__} cannot decide where a tuple goes: it has no stable hash.",
        remedy="Group by str, int, float, bool, bytes, date and time, UUID, Decimal, None, or tuples of these.",
    )


def _long(value: int) -> bytes:
    """What is hashed of an int that does not fit 64 bits."""
    if not -_TOO_LARGE < value < _TOO_LARGE:
        raise _too_long("int")
    return b"int" + str(value).encode()


def _too_long(kind: str) -> ExecutionError:
    return ExecutionError(
        f"A whole number ({kind}) of more than {DIGITS:,} digits cannot decide where a tuple goes.",
        remedy="Group by a smaller number, or by a str or bytes that stand for it.",
    )


def _in_utc(value: datetime.time) -> datetime.time:
    """The same time of day in UTC; one without a zone as it is."""
    offset = value.utcoffset()
    if offset is None:
        return value
    return (datetime.datetime.combine(_DAY, value, tzinfo=datetime.UTC) - offset).timetz()


def hash_values(values: Sequence[Any]) -> int:
    """The 31-bit hash of several values together; of one value, that value's own."""
    folded = 0
    for value in values:
        folded = (folded * 31 + hash_value(value)) & _MASK
    return folded


def task_index(hashed: int, tasks: int) -> int:
    """Which of `tasks` tasks owns the key group of a hash, from 0."""
    return (hashed % KEY_GROUPS) * tasks // KEY_GROUPS
