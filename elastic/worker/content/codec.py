"""Entries as bytes: msgpack where it gives back the very same types, pickle for everything else.

The bytes of several entries are those of a dictionary. Pickled ones begin with 0x80, which in msgpack is the dictionary without entries:
that one is never written.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from types import BuiltinFunctionType, FunctionType
from typing import Any
from uuid import UUID

import msgspec

from elastic.errors import ExecutionError
from elastic.worker.shown import described, shown

SCALARS = frozenset({int, float, str, bytes, bool, type(None)})
"""Types that come back as they are. Their subclasses don't."""
PICKLED = 0x80

_KNOWN = SCALARS | {complex, Decimal, UUID, date, datetime, time, timedelta}
"""Types of keys of which `lasts` knows all by itself."""
_PLAIN = SCALARS | {list, dict}
_KEYS = SCALARS | {tuple}
_encode = msgspec.msgpack.Encoder().encode
_decode: Any = msgspec.msgpack.Decoder().decode


def lasts(key: Any) -> bool:
    """Whether a key that was pickled and read again is equal to itself as it was."""
    if isinstance(key, tuple | frozenset):
        return all(map(lasts, key))
    if isinstance(key, type | FunctionType | BuiltinFunctionType):
        return True  # by name
    by_identity: Any = object.__hash__
    return bool(key == key) and type(key).__hash__ is not by_identity


def all_last(keys: Collection[Any]) -> bool:
    """Whether `lasts` holds of all these keys. One of a class of its own is read again to know it: what is in it may be equal to nothing
    else, as a NaN in a field is."""
    if not all(map(lasts, keys)):
        return False
    kinds = set(map(type, keys))
    within = (
        set(map(type, chain.from_iterable(k for k in keys if type(k) is tuple))) if tuple in kinds else set()
    )
    if kinds - {tuple} | within <= _KNOWN:
        return True
    own = [key for key in keys if type(key) not in _KNOWN]
    try:
        again = pickle.loads(pickle.dumps(own, 5))
    except Exception:
        return True  # whoever writes them says which of them cannot be
    return bool(again == own)


def lasts_written(key: Any) -> bool:
    """Whether a key that cannot be pickled now could have been before, and been found by what was read again: it may hold things that
    have changed. One that is known by its identity, and a function without a name, could not."""
    return lasts(key) and not isinstance(key, FunctionType | BuiltinFunctionType)


def plain_keys(keys: Iterable[Any]) -> bool:
    """Whether msgpack gives these keys back: scalars, and tuples of them (as keys, arrays come back as tuples)."""
    kinds = set(map(type, keys))
    if kinds <= SCALARS:
        return True
    if not kinds <= _KEYS:
        return False
    return set(map(type, chain.from_iterable(k for k in keys if type(k) is tuple))) <= SCALARS


def plain_values(values: Iterable[Any]) -> tuple[bool, bool]:
    """(Whether msgpack gives these values back, whether none of them can be changed).

    Containers within containers are not plain: the same list may be in there twice, and must come back as one.
    """
    kinds = set(map(type, values))
    if kinds <= SCALARS:
        return True, True
    if not kinds <= _PLAIN:
        return False, False
    for value in values:
        kind = type(value)
        if kind is list:
            if not set(map(type, value)) <= SCALARS:
                return False, False
        elif kind is dict and not (
            set(map(type, value)) <= SCALARS and set(map(type, value.values())) <= SCALARS
        ):
            return False, False
    return True, False


def encode(entries: dict[Any, Any], plain: bool) -> bytes:
    """The bytes of some entries, of which there is at least one.

    Args:
        plain: What `plain_keys` and `plain_values` say of them.

    Raises:
        Exception: Whatever pickling raises; `blame` finds out where.
    """
    if plain:
        try:
            return _encode(entries)
        except (TypeError, ValueError, OverflowError):  # large integers, lone surrogates
            pass
    return pickle.dumps(entries, 5)


def decode(data: Any) -> dict[Any, Any]:
    """The entries in `encode`'s bytes."""
    entries: dict[Any, Any] = pickle.loads(data) if data[0] == PICKLED else _decode(data)
    return entries


def blame(entries: dict[Any, Any], state: str, owner: str, error: Exception) -> ExecutionError:
    """The error that says which of these entries cannot be pickled."""
    for key, value in entries.items():
        for what, thing in ((f"the key {shown(key)}", key), (f"the value of key {shown(key)}", value)):
            try:
                pickle.dumps(thing, 5)
            except Exception as e:
                return ExecutionError(
                    f"State {state!r} of {owner} cannot be copied: {what} is a {type(thing).__name__} that "
                    f"cannot be pickled: {described(e)}",
                    remedy="Keep in state only what can be pickled; open files, sockets, locks and connections in prepare().",
                )
    return ExecutionError(f"State {state!r} of {owner} cannot be copied: {described(error)}")
