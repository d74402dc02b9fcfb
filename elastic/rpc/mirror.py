"""Domain dataclasses (and named tuples) to protobuf messages with the same field names, and back.

A `Mirror` is compiled once from the dataclass's type hints and the message's descriptor. A field that one side has
and the other lacks is an error when the mirror is made, so the two cannot drift apart unnoticed.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from elastic.errors import ConfigError, ElasticError
from elastic.reporting.v1.values_pb2 import Value, ValueList, ValueMap

T = TypeVar("T")
M = TypeVar("M", bound=Message)
Convert = Callable[[Any], Any]
_INT64 = 1 << 63


class Mirror(Generic[T, M]):
    """Translates one dataclass, and what it contains, to one message type and back.

    Args:
        kind: The dataclass.
        message: The generated message class.

    Raises:
        TypeError: Their fields differ.
    """

    def __init__(self, kind: type[T], message: type[M]) -> None:
        self._name = kind.__name__
        self._encode, self._decode = _of_dataclass(kind, message)

    def encode(self, value: T) -> M:
        """The message that says what `value` says.

        Raises:
            ConfigError: Something in it is of a type, or a size, that cannot be sent.
        """
        try:
            return cast(M, self._encode(value))
        except (TypeError, ValueError) as e:
            raise ConfigError(f"this {self._name} cannot be sent: {e}") from e

    def decode(self, message: M) -> T:
        """The value that `encode` was given.

        Raises:
            ElasticError: It contains something that this version does not know.
        """
        return cast(T, self._decode(message))


def encode_value(value: object) -> Value:
    """A setting or detail as a message: None, bool, int, float, str, and lists and mappings of those.

    Raises:
        ConfigError: It is something else, or an integer of more than 64 bits.
    """
    if value is None:
        return Value(null=True)
    if isinstance(value, bool):
        return Value(truth=value)
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise ConfigError(f"the number {value} has more than 64 bits", remedy="Write it as a string.")
        return Value(integer=value)
    if isinstance(value, float):
        return Value(number=value)
    if isinstance(value, str):
        return Value(text=_text(value))
    if isinstance(value, Mapping):
        return Value(map=ValueMap(items={_text(str(k)): encode_value(v) for k, v in value.items()}))
    if isinstance(value, list | tuple | set | frozenset):
        return Value(list=ValueList(items=[encode_value(v) for v in value]))
    raise ConfigError(
        f"{value!r} of type {type(value).__name__} cannot be sent as a setting",
        remedy="Use numbers, strings, booleans, and lists and dictionaries of them.",
    )


def decode_value(message: Value) -> Any:
    """The value that `encode_value` was given; tuples and sets come back as lists."""
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null":
        return None
    if kind == "list":
        return [decode_value(v) for v in message.list.items]
    if kind == "map":
        return {k: decode_value(v) for k, v in message.map.items.items()}
    return getattr(message, kind)


def _text(value: str) -> str:
    """Protobuf strings are UTF-8: what it cannot say (lone surrogates, out of file names) becomes a question mark."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def _same(value: Any) -> Any:
    return value


def _of_dataclass(kind: type[Any], message: type[Message]) -> tuple[Convert, Convert]:
    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind._fields)
    known = message.DESCRIPTOR.fields_by_name
    if set(names) != set(known):
        differing = ", ".join(sorted(set(names) ^ set(known)))
        raise TypeError(
            f"{kind.__name__} and its message {message.DESCRIPTOR.full_name} differ in: {differing}"
        )
    plan = [(name, *_of_field(hints[name], known[name])) for name in names]

    def encode(value: Any) -> Message:
        return message(**{name: to(getattr(value, name)) for name, to, _ in plan})

    def decode(source: Any) -> Any:
        return kind(**{name: back(getattr(source, name)) for name, _, back in plan})

    return encode, decode


def _of_field(hint: Any, field: Any) -> tuple[Convert, Convert]:
    """How a whole field is translated: one value, a list or a map."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        to, back = _of_item(arguments[0], field)
        return (lambda v: [to(x) for x in v]), (lambda v: tuple([back(x) for x in v]))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        to, back = _of_item(arguments[1], field.message_type.fields_by_name["value"])
        return (lambda v: {k: to(x) for k, x in v.items()}), (lambda v: {k: back(x) for k, x in v.items()})
    return _of_item(hint, field)


def _of_item(hint: Any, field: Any) -> tuple[Convert, Convert]:
    """How one value is translated."""
    while hasattr(hint, "__supertype__"):  # a NewType
        hint = hint.__supertype__
    if hint is Any or get_origin(hint) in (Union, types.UnionType):
        return encode_value, decode_value
    if get_origin(hint) is tuple:
        return _of_tuple(get_args(hint), field)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _of_enum(hint, field)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return _of_dataclass(cast(type[Any], hint), GetMessageClass(field.message_type))
    if hint is str:
        return _text, _same
    if hint in (int, float, bool):
        return _same, _same
    raise TypeError(f"no translation for {hint} ({field.full_name})")


def _of_tuple(items: tuple[Any, ...], field: Any) -> tuple[Convert, Convert]:
    """A tuple of fixed length: a message whose fields, by number, are its items."""
    message = GetMessageClass(field.message_type)
    parts: list[Any] = sorted(message.DESCRIPTOR.fields, key=lambda f: f.number)
    if len(parts) != len(items):
        raise TypeError(f"{message.DESCRIPTOR.full_name} has not {len(items)} fields")
    plan = [(f.name, *_of_item(hint, f)) for f, hint in zip(parts, items, strict=True)]

    def encode(value: Any) -> Message:
        return message(**{name: to(v) for (name, to, _), v in zip(plan, value, strict=True)})

    def decode(source: Any) -> Any:
        return tuple(back(getattr(source, name)) for name, _, back in plan)

    return encode, decode


def _of_enum(kind: type[enum.Enum], field: Any) -> tuple[Convert, Convert]:
    prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
    numbers = {v.name.removeprefix(prefix): v.number for v in field.enum_type.values if v.number}
    if set(numbers) != set(kind.__members__):
        raise TypeError(f"{kind.__name__} and {field.enum_type.full_name} differ")
    members = {number: kind[name] for name, number in numbers.items()}
    name = kind.__name__

    def decode(number: int) -> enum.Enum:
        try:
            return members[number]
        except KeyError:
            raise ElasticError(
                f"an answer has {name} number {number}, which this version does not know",
                remedy="Use the same version of elastic here as in the cluster.",
            ) from None

    return (lambda member: numbers[member.name]), decode
