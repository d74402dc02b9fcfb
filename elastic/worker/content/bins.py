"""Where a key's entry lies among the bytes of a state: the same in every process.

Keys that are equal in Python have the same place, whatever their types (1, 1.0 and True; a tuple and a named tuple). A key of a type
that has no stable hash has no place: it is told apart (`None`), travels by itself and is put in at once.
"""

from __future__ import annotations

import datetime
import numbers
import uuid
from collections.abc import Callable, Collection
from typing import Any

import mmh3

BITS = 32
"""Bits of a place."""

_SEED = 0x5EED
"""Another one than that of the grouping: the keys of one task are alike in that hash."""
_MASK = 0xFFFFFFFF
_ODD = 0x9E3779B97F4A7C15
_NONE = 0x6E6F6E65
_hash = mmh3.hash


def place(key: object) -> int | None:
    """The place of a key, from 0 to 2**32 - 1; None: it has none."""
    kind = type(key)
    if kind is str:
        # Encoded here: mmh3 doesn't survive a lone surrogate.
        try:
            return _hash(key.encode(), _SEED, False)  # type: ignore[attr-defined]
        except UnicodeEncodeError:
            return _hash(key.encode("utf-8", "surrogatepass"), _SEED, False)  # type: ignore[attr-defined]
    if kind is int or kind is bool or kind is float:
        # Python's hash of numbers is the same in all processes, and equal for equal numbers of all types.
        return (hash(key) * _ODD >> 32) & _MASK if key == key else 0
    if kind is bytes:
        return _hash(key, _SEED, False)  # type: ignore[arg-type]
    if key is None:
        return _NONE
    if kind is tuple:
        return _tuple(key)  # type: ignore[arg-type]
    other = _OTHERS.get(kind)
    if other is not None:
        return other(key)
    if isinstance(key, tuple) and kind.__eq__ is tuple.__eq__ and kind.__hash__ is tuple.__hash__:
        return _tuple(key)
    if isinstance(key, numbers.Number):
        return (hash(key) * _ODD >> 32) & _MASK if key == key else 0
    return None


def places(keys: Collection[Any]) -> list[int | None]:
    """The places of keys."""
    if set(map(type, keys)) == {str}:
        try:
            return [_hash(k.encode(), _SEED, False) for k in keys]
        except UnicodeEncodeError:
            pass
    return [place(k) for k in keys]


def _tuple(key: tuple[Any, ...]) -> int | None:
    folded = len(key)
    for part in key:
        there = place(part)
        if there is None:
            return None
        folded = (folded * 1000003 ^ there) & _MASK
    return (folded * _ODD >> 32) & _MASK


def _text(key: object) -> int:
    return _hash(str(key).encode(), _SEED, False)


def _moment(key: datetime.datetime) -> int | None:
    if key.tzinfo is not None:
        if key.utcoffset() is None:
            return None
        key = key.astimezone(datetime.UTC)
    return _hash(key.replace(fold=0).isoformat().encode(), _SEED, False)


_OTHERS: dict[type, Callable[[Any], int | None]] = {
    uuid.UUID: _text,
    datetime.date: _text,
    datetime.datetime: _moment,
}
