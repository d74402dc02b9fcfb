"""Keyed state: a dictionary with a default, one for each task, declared on the class of a component.

That it can be copied while it is in use, and read only when it is needed, is in `elastic.api.tracking`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")


class StateMap(defaultdict[K, V]):
    """The dictionary behind a `KeyedState`, one for each task.

    While a task moves, `elastic.api.tracking` exchanges its class in place: what holds a reference to it keeps working, but not what holds
    one of its methods, which is still the one from before. At all other times an access costs exactly what it costs in a `defaultdict`.
    """

    __slots__ = ("_changed", "_first_removal", "_removed", "_unread")
    _changed: dict[K, V]
    _removed: set[K]
    _first_removal: Callable[[], None] | None
    _unread: Unread

    def copy(self) -> Any:
        """A copy that is nobody's state."""
        return StateMap(self.default_factory, self)

    __copy__ = copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.default_factory, dict(self))


class Unread(Protocol):
    """The part of a dictionary that came as bytes and has not been read yet."""

    def read(self, into: StateMap[Any, Any], key: object) -> None:
        """Put in what there is under that key, if anything, unless it is there."""

    def read_all(self, into: StateMap[Any, Any]) -> None:
        """Put in everything that is not there."""

    def forget(self, key: object) -> None:
        """That key was removed: what the bytes say of it holds no longer."""

    def forget_all(self, into: StateMap[Any, Any]) -> None:
        """Nothing of it holds any longer."""


def _rebuild(factory: Callable[[], V] | None, items: dict[K, V]) -> StateMap[K, V]:
    return StateMap(factory, items)


class KeyedState(Generic[K, V]):
    """State by key, declared on the class of a stateful component: `counts = KeyedState(int)`.

    Each task has its own dictionary of that name; the framework saves, moves and restores it. While it does, it sees which values are
    set or read, but not that an object that is a key is changed in place: what can change belongs into the value.

    Args:
        default: Makes the value of a key that is not there yet (`int`, `list`, a function); None: such a key raises
            KeyError.
    """

    __slots__ = ("default", "name")

    def __init__(self, default: Callable[[], V] | None = None) -> None:
        if default is not None and not callable(default):
            raise TypeError(
                f"KeyedState takes a function that makes a default (int, list, ...), not {default!r}"
            )
        self.default = default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> KeyedState[K, V]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> StateMap[Any, Any]: ...
    def __get__(self, instance: object | None, owner: type) -> KeyedState[K, V] | StateMap[Any, Any]:
        # Reached only on classes that `take_states` has not seen: mixins, and classes that are not components.
        if instance is None:
            return self
        made: StateMap[Any, Any] = StateMap(self.default)
        instance.__dict__[self.name] = made
        return made


def take_states(kind: type) -> dict[str, KeyedState[Any, Any]]:
    """The states that a class and its bases declare, by name; those in its own body are taken out of it.

    Instances get a dictionary under that name. With nothing of that name on the class, reading it is an ordinary attribute access,
    which the interpreter makes several times faster than one that a descriptor on the class might have a say in.
    """
    own = {n: v for n, v in vars(kind).items() if isinstance(v, KeyedState)}
    for name in own:
        delattr(kind, name)
        # An annotation that stayed would be a field without a default to a dataclass.
        vars(kind).get("__annotations__", {}).pop(name, None)
    # Those of each class for itself: which of two bases comes first is for the order of all of them to say.
    kind._own_states = {**vars(kind).get("_own_states", {}), **own}  # type: ignore[attr-defined]
    states: dict[str, KeyedState[Any, Any]] = {}
    for base in reversed(kind.__mro__):
        states.update({n: v for n, v in vars(base).items() if isinstance(v, KeyedState)})
        states.update(vars(base).get("_own_states", {}))
    return states


def all_states(kind: type) -> dict[str, KeyedState[Any, Any]]:
    """The `KeyedState`s that a class and its bases declare, sorted by their names."""
    return dict(sorted((getattr(kind, "_states", None) or take_states(kind)).items()))


def declared_states(kind: type) -> tuple[str, ...]:
    """Their names, sorted."""
    return tuple(all_states(kind))


def restore(target: StateMap[K, V], items: Iterable[tuple[K, V]]) -> None:
    """Replace the content of a state dictionary in place."""
    target.clear()
    target.update(items)
