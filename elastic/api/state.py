"""Keyed state: a dictionary with a default that knows, when asked to, which of its keys have changed.

Tracking costs something at each access, so it is off until somebody needs it (while a move is under way, or a checkpoint
is being taken). Switching it on exchanges the class of the dictionary in place: what holds a reference to it keeps working,
and an untracked access costs exactly what it costs in a `defaultdict`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")

_IMMUTABLE = (int, float, str, bytes, bool, complex, frozenset, type(None))


class StateMap(defaultdict[K, V]):
    """The dictionary behind a `KeyedState`, one for each task."""

    __slots__ = ("_changed",)
    _changed: set[K]

    def track(self) -> None:
        """Begin to remember which keys change, from none."""
        self._changed = set()
        self.__class__ = _TrackedMap

    def untrack(self) -> None:
        """Stop remembering."""
        self._changed = set()
        self.__class__ = StateMap

    @property
    def tracking(self) -> bool:
        """Whether changes are being remembered."""
        return False

    def take_changes(self) -> tuple[dict[K, V], set[K]]:
        """What changed since tracking began or the last call: (key -> present value, removed keys).

        A key whose mutable value was only read counts as changed: it may have been changed through the reference.
        """
        changed, self._changed = self._changed, set()
        present = {k: dict.__getitem__(self, k) for k in changed if k in self}
        return present, changed - present.keys()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.default_factory, dict(self))


def _rebuild(factory: Callable[[], V] | None, items: dict[K, V]) -> StateMap[K, V]:
    return StateMap(factory, items)


class _TrackedMap(StateMap[K, V]):
    """The same dictionary while changes are being remembered."""

    __slots__ = ()

    @property
    def tracking(self) -> bool:
        return True

    def __getitem__(self, key: K) -> V:
        value = super().__getitem__(key)
        if not isinstance(value, _IMMUTABLE):
            self._changed.add(key)
        return value

    def __missing__(self, key: K) -> V:
        self._changed.add(key)
        return super().__missing__(key)

    def __setitem__(self, key: K, value: V) -> None:
        self._changed.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        self._changed.add(key)
        super().__delitem__(key)

    def get(self, key: K, default: Any = None) -> Any:
        if key in self:
            return self[key]
        return default

    def setdefault(self, key: K, default: Any = None) -> V:
        self._changed.add(key)
        return super().setdefault(key, default)

    def pop(self, key: K, *default: Any) -> Any:
        self._changed.add(key)
        return super().pop(key, *default)

    def popitem(self) -> tuple[K, V]:
        key, value = super().popitem()
        self._changed.add(key)
        return key, value

    def clear(self) -> None:
        self._changed.update(self)
        super().clear()

    def update(self, *others: Any, **more: Any) -> None:
        for key, value in dict(*others, **more).items():
            self[key] = value

    def values(self) -> Any:
        # The values can be changed through what is handed out here, and nobody would notice.
        self._changed.update(k for k, v in super().items() if not isinstance(v, _IMMUTABLE))
        return super().values()

    def items(self) -> Any:
        self._changed.update(k for k, v in super().items() if not isinstance(v, _IMMUTABLE))
        return super().items()

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self


class KeyedState(Generic[K, V]):
    """State by key, declared on the class of a stateful component: `counts = KeyedState(int)`.

    Each task has its own dictionary of that name; the framework saves, moves and restores it.

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
    states: dict[str, KeyedState[Any, Any]] = {}
    for base in reversed(kind.__mro__):
        states.update(vars(base).get("_states", {}))
        states.update({n: v for n, v in vars(base).items() if isinstance(v, KeyedState)})
    for name, value in list(vars(kind).items()):
        if isinstance(value, KeyedState):
            delattr(kind, name)
    return states


def declared_states(kind: type) -> tuple[str, ...]:
    """The names of the `KeyedState`s that a class and its bases declare, sorted."""
    return tuple(sorted(getattr(kind, "_states", None) or take_states(kind)))


def restore(target: StateMap[K, V], items: Iterable[tuple[K, V]]) -> None:
    """Replace the content of a state dictionary in place."""
    target.clear()
    target.update(items)
