"""Declared streams and the tuple class made for each: one `msgspec.Struct` class a stream, made when it is first needed.

A tuple is read as `tup.word` (shortest and fastest), `tup[0]` or `tup.values`.

Declared types are not checked when a tuple is made. They decide how tuples travel between processes: those whose values are
exactly of the declared types as msgpack, which knows a value's type from the declaration; all others pickled, which writes it down.
Either way what arrives is what was emitted.
"""

from __future__ import annotations

import datetime
import decimal
import keyword
import types
import typing
import unicodedata
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
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
_SCALARS = frozenset(_NAMED) - {"list", "dict", "tuple", "set", "frozenset"}
# Times that msgpack gives back: without a zone or in UTC, and not the second of two equal hours.
_KEPT = "({v}.tzinfo is None or {v}.tzinfo is utc) and not {v}.fold"


class Fields:
    """The fields of a stream, in order.

    Declare types where you can (`Fields(word=str, count=int)`): typed rows travel between processes two to
    three times faster, and Arrow batches need them. `Fields("word", "count")` takes any objects.

    Args:
        names: Untyped fields.
        typed: Fields with their types: str, int, float, bool, bytes, date and time types, Decimal, UUID, and list,
            dict, tuple, set of such; any other type is accepted and treated as untyped.

    Raises:
        TopologyError: A name is not an identifier, begins with an underscore, stands twice, or is one of `values`, `fields`.
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
                # Python reads it as another name: `tup.name` would not find it.
                or unicodedata.normalize("NFKC", name) != name
            ):
                raise TopologyError(
                    f"{name!r} cannot be the name of a field.",
                    remedy="Use a Python identifier without a leading underscore, in letters that Python keeps as they are (NFKC).",
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

    def __reduce__(self) -> tuple[Any, ...]:
        # In a state, or as a value of another tuple: another process finds its class by the stream.
        return _again, (self._stream, self.values)  # type: ignore[attr-defined]


# One class for equal streams, so that a tuple that comes back equals those that are received.
_classes: weakref.WeakValueDictionary[Any, type[Tuple]] = weakref.WeakValueDictionary()


def tuple_class(component: str, stream: StreamSpec) -> type[Tuple]:
    """Make the tuple class of a stream, or find it."""
    return _class_of((str(component), str(stream.id), tuple((f.name, f.type) for f in stream.fields)))


def _again(stream: tuple[Any, ...], values: tuple[Any, ...]) -> Tuple:
    return _class_of(stream)(*values)


def _class_of(stream: tuple[str, str, tuple[tuple[str, str], ...]]) -> type[Tuple]:
    found = _classes.get(stream)
    if found is not None:
        return found
    component, name, fields = stream
    # Without containers among the values there can be no cycles, and the collector need not look at the tuples.
    atomic = all(kind in _ATOMIC for _, kind in fields)
    made = msgspec.defstruct(
        "".join(c if c.isalnum() else "_" for c in f"{component}_{name}"),
        [(field, type_of(kind)) for field, kind in fields],
        bases=(Tuple,),
        namespace={"_stream": stream},
        frozen=True,
        array_like=True,
        gc=not atomic,
        module="elastic.tuples",
    )
    return _classes.setdefault(stream, typing.cast(type[Tuple], made))


def misfits_of(stream: StreamSpec) -> Callable[[Sequence[Tuple]], list[Tuple]] | None:
    """Make the function that finds those of a stream's tuples whose values msgpack would change.

    An int in a field declared float would arrive as a float, a UUID in one declared str as text, a time with a zone in another
    zone. The function looks at each value's class: some 12 ns a field and tuple, a small part of what it takes to send one.

    Returns:
        The function, or None for a stream that is always pickled: a field has no declared type, or is a container (to look
        at each element takes longer than to pickle them).
    """
    names: dict[str, Any] = {"utc": datetime.UTC}
    tests = []
    for number, field in enumerate(stream.fields):
        if not field.name.isidentifier():  # it becomes code
            raise TopologyError(f"{field.name!r} cannot be the name of a field.")
        parts = field.type.split(" | ")
        if not _SCALARS.issuperset(parts):
            return None
        kinds = [type(None) if p == "None" else _NAMED[p] for p in parts]
        value, known = f"t.{field.name}", f"_{number}"
        names[known] = kinds[0] if len(kinds) == 1 else tuple(kinds)
        tests.append(f"{value}.__class__ {'is not' if len(kinds) == 1 else 'not in'} {known}")
        for kind in (datetime.datetime, datetime.time):
            if kind in kinds:
                names[kind.__name__] = kind
                tests.append(f"{value}.__class__ is {kind.__name__} and not ({_KEPT.format(v=value)})")
    arguments = "".join(f", {n}={n}" for n in names)  # found sooner than global names
    made = eval(f"lambda tuples{arguments}: [t for t in tuples if {' or '.join(tests)}]", names)
    return typing.cast("Callable[[Sequence[Tuple]], list[Tuple]]", made)
