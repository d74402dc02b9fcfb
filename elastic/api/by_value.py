"""What a script or notebook defines, as bytes that make it in another process: what pickle has no more of than the name, or refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import gc
import io
import sys
import typing
from types import FunctionType, ModuleType
from typing import Any, NewType, ParamSpec, TypeVar, TypeVarTuple

MARK = b"cloudpickle.cloudpickle"
"""Is in what `dump` gives when there are functions or classes in it, and not just their names."""
_DISPATCHING = vars(functools)["singledispatch"](len).__code__
"""Of all functions that `functools.singledispatch` makes."""
_ALIAS: Any = vars(typing).get("TypeAliasType", ())
"""Made by `type Row = ...`, from Python 3.12 on."""
_ANNOTATING: tuple[Any, ...] = (NewType, ParamSpec, TypeVarTuple, *([_ALIAS] if _ALIAS else []))
"""What annotations are made of, of which pickle has no more than the name."""
_NO_DEFAULT: Any = vars(typing).get("NoDefault")
"""Of a type parameter that has none. From Python 3.13 on there are defaults, and cloudpickle leaves out that of a `TypeVar`."""
_KEYED: type[Any] = type(functools.cmp_to_key(max))
"""What `functools.cmp_to_key` makes, and what that makes of a value."""


def dump(value: object, used: set[str], script: dict[str, object], *, by_name: bool) -> bytes:
    """Pickled, what is of `__main__` by value. What can be found there by its name is put in `script`, and by that name if so wanted.

    So each is made once in a worker, as those of a module are: what one task's copy of it has changed, another's does not undo.
    """
    import cloudpickle

    aliases: dict[int, list[Any]] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: object) -> Any:
            if isinstance(obj, ModuleType | FunctionType | type):
                used.add(str(obj.__name__ if isinstance(obj, ModuleType) else obj.__module__))
            if (name := _name_in_main(obj)) is not None:
                if isinstance(obj, type):
                    script[name] = obj
                first = name.partition(".")[0]
                script[first] = vars(sys.modules["__main__"])[first]
                if by_name:
                    return NotImplemented
            if isinstance(obj, _ANNOTATING) and not _is_found(obj):
                return _annotation(obj, aliases.setdefault(id(obj), []))
            if isinstance(obj, TypeVar) and not _is_found(obj):
                if _ALIAS and getattr(obj, "__infer_variance__", False):
                    return _declared(obj, aliases.setdefault(id(obj), []))
                if _default(obj):
                    return _variable(obj, aliases.setdefault(id(obj), []))
            if isinstance(obj, _KEYED):
                return _keyed, (_compares(obj), *([obj.obj] if _has_value(obj) else []))
            # Of the one, pickle has no more than the name; the other may have a lock.
            if isinstance(obj, functools._lru_cache_wrapper) and obj.__module__ == "__main__":
                return _cached, (obj.__wrapped__, obj.cache_parameters())
            # Its cache has weak references, which cannot be pickled.
            if (
                isinstance(obj, FunctionType)
                and obj.__module__ == "__main__"
                and obj.__code__ is _DISPATCHING
            ):
                registry: Any = vars(obj)["registry"]
                return (
                    functools.singledispatch,
                    (registry[object],),
                    list(registry.items()),
                    None,
                    None,
                    _register,
                )
            if type(obj) is functools.cached_property:
                return _cached_property, (obj.func, obj.attrname)
            if obj is dataclasses.MISSING:
                return "MISSING"  # there is one of it, and who reads fields asks for that one
            reduced = super().reducer_override(obj)
            if isinstance(obj, enum.EnumType) and isinstance(reduced, tuple) and len(reduced) == 6:
                made, (bases, name, whole, values, *more), state, _, _, fill = reduced
                # As it is, a function would be one of the class's methods, and no member.
                values = {n: enum.member(v) if hasattr(v, "__get__") else v for n, v in values.items()}
                arguments = (bases, name, whole, values, *more)
                return made, arguments, (fill, state, _members(obj)), None, None, _fill_enum
            if typing.is_typeddict(obj) and isinstance(reduced, tuple) and "__orig_bases__" not in vars(obj):
                # Before Python 3.12 one that extends another says of itself that it is a plain dictionary.
                made, (meta, name, _, *more), *rest = reduced
                return made, (meta, name, (typing.TypedDict,), *more), *rest
            return reduced

    file = io.BytesIO()
    Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def _name_in_main(obj: object) -> str | None:
    """Of a function or class that pickle would look for in `__main__`, and find there: its name."""
    kinds = (FunctionType, type, functools._lru_cache_wrapper, *_ANNOTATING)
    if not isinstance(obj, kinds) or obj.__module__ != "__main__":
        return None
    found: object = sys.modules["__main__"]
    whole: str = getattr(obj, "__qualname__", obj.__name__)
    for name in whole.split("."):
        found = getattr(found, name, None)
    return whole if found is obj else None


def _is_found(obj: Any) -> bool:
    """Whether a worker finds it by its name, in a module. Python says of some that they are of `typing`."""
    return (
        obj.__module__ != "__main__" and getattr(sys.modules.get(obj.__module__), obj.__name__, None) is obj
    )


def _annotation(obj: Any, means: list[Any]) -> tuple[Any, ...]:
    """One of `_ANNOTATING`, as pickle wants it.

    Args:
        means: What a type alias means, or the default of a parameter, to be filled: the same one each time, as it may name itself.
    """
    if isinstance(obj, _ALIAS):
        if not means:
            try:
                means.append(obj.__value__)
            except Exception:  # noqa: BLE001 - it names what is there for type checkers alone
                means.append(Any)
        return _alias, (obj.__name__, obj.__type_params__, means)
    state = (None, {"__module__": obj.__module__})
    if isinstance(obj, NewType):
        return NewType, (vars(obj)["__qualname__"], obj.__supertype__), state
    means[:] = means or _default(obj)
    return _parameter, (type(obj), obj.__name__, (), {}, means), state


def _variable(obj: Any, means: list[Any]) -> tuple[Any, ...]:
    """One that has a default, as pickle wants it.

    Args:
        means: As for `_annotation`.
    """
    means[:] = means or _default(obj)
    options = {n: getattr(obj, f"__{n}__") for n in ("bound", "covariant", "contravariant", "infer_variance")}
    return (
        _parameter,
        (TypeVar, obj.__name__, obj.__constraints__, options, means),
        (None, {"__module__": obj.__module__}),
    )


def _declared(obj: Any, means: list[Any]) -> tuple[Any, ...]:
    """One that was declared as `class Node[T: Node]` does it, from Python 3.12 on, as pickle wants it.

    Args:
        means: What it is bound to and its default, to be filled: as for `_annotation`.
    """
    try:
        bounds = [*obj.__constraints__] or [obj.__bound__]
    except Exception:  # noqa: BLE001 - it names what is there for type checkers alone
        bounds = [Any]
    default = _default(obj)
    means[:] = means or [*bounds, *default]
    each = [f"{obj.__name__}_[{n}]" for n in range(len(bounds))]
    bound = each[0] if len(each) == 1 else f"({', '.join(each)})"
    text = f"{obj.__name__}: {bound}" + (f" = {obj.__name__}_[-1]" if default else "")
    return _declare, (obj.__name__, text, means), (None, {"__module__": obj.__module__})


def _default(parameter: Any) -> list[Any]:
    """What stands for a type parameter where it is left out, if anything does."""
    if _NO_DEFAULT is None:
        return []
    try:
        default = parameter.__default__
    except Exception:  # noqa: BLE001 - it names what is there for type checkers alone
        default = Any
    return [] if default is _NO_DEFAULT else [default]


def _parameter(
    kind: Any, name: str, constraints: tuple[Any, ...], options: dict[str, Any], default: list[Any]
) -> Any:
    """A type parameter. Within its default itself nothing is in the list yet."""
    return kind(name, *constraints, **options, **({"default": default[0]} if default else {}))


def _declare(name: str, text: str, means: list[Any]) -> Any:
    """A type parameter. What it is bound to, which may be the class that has it, is looked up when somebody asks."""
    scope: dict[str, Any] = {"__name__": "__main__", f"{name}_": means}
    exec(f"def _[{text}](): pass", scope)
    return scope["_"].__type_params__[0]


def _compares(keyed: Any) -> Any:
    """The function that compares, which nothing else gives away: what it holds, in that order, is its class, this, and a value if any."""
    return next(held for held in gc.get_referents(keyed) if held is not _KEYED)


def _has_value(keyed: Any) -> bool:
    """Whether it stands for a value. Of one that doesn't, Python says that its value is None."""
    return len(gc.get_referents(keyed)) > 2


def _keyed(compares: Any, *value: Any) -> Any:
    key = functools.cmp_to_key(compares)
    return key(*value) if value else key


def _members(kind: enum.EnumType) -> dict[str, tuple[str, Any, dict[str, Any]]]:
    """Of an enumeration's members, by each of their names: the first name, the value, and all attributes. Made anew they have none of
    their own, nor other names."""
    found: dict[str, Any] = dict(kind.__members__)
    return {
        name: (m._name_, m._value_, {n: v for n, v in vars(m).items() if n != "__objclass__"})
        for name, m in found.items()
    }


def _fill_enum(kind: Any, given: tuple[Any, Any, dict[str, tuple[str, Any, dict[str, Any]]]]) -> None:
    fill, state, members = given
    fill(kind, state)
    for name, (first, value, attributes) in members.items():
        member = kind._member_map_.get(first)
        if member is None and issubclass(kind, enum.Flag):  # several together, which have a name
            member = kind(value)
        vars(member).update(attributes)
        kind._member_map_[name] = member
        with contextlib.suppress(TypeError):  # it is found by looking at each
            kind._value2member_map_[value] = member


def _alias(name: str, parameters: tuple[Any, ...], means: list[Any]) -> Any:
    """A type alias. Within what it means itself nothing is in the list yet: then it is looked up later, if at all."""
    if parameters:
        return _ALIAS(name, means[0] if means else Any, type_params=parameters)
    scope = {"__name__": "__main__", f"{name}_": means}
    exec(f"type {name} = {name}_[0]", scope)
    return scope[name]


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _register(dispatching: Any, registered: list[tuple[type, Any]]) -> None:
    for kind, function in registered:
        dispatching.register(kind, function)


def _cached_property(function: Any, name: str | None) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made
