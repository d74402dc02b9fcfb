"""Declared streams and the tuple class made for each: one `msgspec.Struct` class a stream, made when it is first needed.

A tuple is read as `tup.word` (shortest and fastest), `tup[0]` or `tup.values`.
"""

from __future__ import annotations

import datetime
import decimal
import keyword
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from elastic.errors import TopologyError
from elastic.model.topology import FieldSpec, StreamSpec

_ATOMIC: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "bytes": bytes}
_NAMED: dict[str, Any] = {
    **_ATOMIC,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "Decimal": decimal.Decimal,
    "UUID": uuid.UUID,
    "list": list,
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "None": None,
}
_NAMES = {kind: name for name, kind in _NAMED.items()}
_RESERVED = frozenset({"values", "fields"})


class Fields:
    """The fields of a stream, in order.

    Declare types where you can (`Fields(word=str, count=int)`): typed rows travel between processes two to
    three times faster, and Arrow batches need them. `Fields("word", "count")` takes any objects.

    Args:
        names: Untyped fields.
        typed: Fields with their types: str, int, float, bool, bytes, date and time types, Decimal, UUID, and list,
            dict, tuple, set of such; any other type is accepted and treated as untyped.

    Raises:
        TopologyError: A name is not an identifier, stands twice, or is one of `values`, `fields`.
    """

    __slots__ = ("specs",)

    def __init__(self, *names: str, **typed: Any) -> None:
        specs = [FieldSpec(n) for n in names] + [FieldSpec(n, type_name(t)) for n, t in typed.items()]
        seen: set[str] = set()
        for spec in specs:
            name = spec.name
            if (
                not isinstance(name, str)
                or not name.isidentifier()
                or keyword.iskeyword(name)
                or name.startswith("_")
            ):
                raise TopologyError(
                    f"{name!r} cannot be the name of a field.",
                    remedy="Use a Python identifier without a leading underscore.",
                )
            if name in _RESERVED:
                raise TopologyError(
                    f"A field cannot be called {name!r}: tuples have an attribute of that name."
                )
            if name in seen:
                raise TopologyError(f"The field {name!r} is declared twice.")
            seen.add(name)
        self.specs = tuple(specs)

    def __repr__(self) -> str:
        return (
            "Fields(" + ", ".join(f"{s.name}={s.type}" if s.type else repr(s.name) for s in self.specs) + ")"
        )


def type_name(kind: Any) -> str:
    """The name that a declared type is stored by, or "" for what is treated as any object."""
    if kind is None or kind is type(None):
        return "None"
    origin = typing.get_origin(kind)
    if origin is None:
        return _NAMES.get(kind, "") if isinstance(kind, type) else ""
    arguments = typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        parts = [type_name(a) for a in arguments]
        return " | ".join(parts) if all(parts) else ""
    base = _NAMES.get(origin, "")
    parts = ["..." if a is Ellipsis else type_name(a) for a in arguments]
    return f"{base}[{', '.join(parts)}]" if base and all(parts) else ""


def type_of(name: str) -> Any:
    """The type behind a stored name; `typing.Any` for "". The inverse of `type_name`."""
    if not name:
        return Any
    return eval(name, {"__builtins__": {}}, dict(_NAMED))


class Tuple(msgspec.Struct):
    """The base of all tuple classes. Tuples are immutable; they are handed on by reference within a process."""

    @property
    def values(self) -> tuple[Any, ...]:
        """All values, in the order of the declaration."""
        return msgspec.structs.astuple(self)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, in the same order."""
        return self.__struct_fields__

    def __getitem__(self, index: int | str) -> Any:
        return getattr(self, index if isinstance(index, str) else self.__struct_fields__[index])

    def __len__(self) -> int:
        return len(self.__struct_fields__)

    def __iter__(self) -> Iterator[Any]:
        return iter(msgspec.structs.astuple(self))


def tuple_class(component: str, stream: StreamSpec) -> type[Tuple]:
    """Make the tuple class of a stream."""
    # Without containers among the values there can be no cycles, and the collector need not look at the tuples.
    atomic = all(f.type in _ATOMIC for f in stream.fields)
    name = "".join(c if c.isalnum() else "_" for c in f"{component}_{stream.id}")
    made = msgspec.defstruct(
        name,
        [(f.name, type_of(f.type)) for f in stream.fields],
        bases=(Tuple,),
        frozen=True,
        array_like=True,
        gc=not atomic,
        module="elastic.tuples",
    )
    return typing.cast(type[Tuple], made)


def is_typed(stream: StreamSpec) -> bool:
    """Whether every field has a declared type, so that rows can travel as msgpack and as Arrow."""
    return all(f.type for f in stream.fields)
