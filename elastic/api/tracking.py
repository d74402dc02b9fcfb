"""What a state dictionary becomes for a while: one that notices what changes, or one that is read only when it is needed, or both.

    StateMap                 plain: what it is all the time otherwise
    _Written                 remembers which keys were set, to what, and which were removed; reading costs what it always costs
    _Tracked                 also remembers keys whose mutable value was read: it may have been changed through the reference
    _Lazy                    part of it is bytes still; a key that is missing is looked for there
    _LazyTracked             both

`_Written` is enough as long as no mutable value has been copied: a value that cannot be changed has to be set anew.

These functions are for whoever moves a task, between two tuples of it; user code sees a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from elastic.api.state import StateMap, Unread

K = TypeVar("K")
V = TypeVar("V")

IMMUTABLE = frozenset({int, float, str, bytes, bool, complex, type(None)})
"""Values of these types can only be exchanged, not changed. Not tuples and frozensets, which may hold objects that can be changed. Not
those of classes derived from them, which may have attributes."""

_set = dict.__setitem__
_delete = dict.__delitem__
_contains = dict.__contains__
_MISSING: Any = object()


class _Passing(StateMap[K, V]):
    """What a state's dictionary is for a while. What is made of it is not that."""

    __slots__ = ()

    def __new__(cls, *content: Any, **more: Any) -> StateMap[Any, Any]:  # type: ignore[misc]
        # `state | other`, `fromkeys` and `type(state)(...)` make nobody's state: a plain one.
        return StateMap(*content, **more)


class _Written(_Passing[K, V]):
    """Remembers which keys were set, to what, and which were removed.

    The values are remembered as well, because whoever wants to know what has changed would else look all keys up again: that takes
    ten times as long as to encode what is in a dictionary already.
    """

    __slots__ = ()

    def __setitem__(self, key: K, value: V) -> None:
        self._changed[key] = value
        _set(self, key, value)

    def __missing__(self, key: K) -> V:
        value = super().__missing__(key)
        self._changed[key] = value
        return value

    def _removing(self, key: K) -> None:
        if self._first_removal is not None:
            hook, self._first_removal = self._first_removal, None
            hook()
        self._removed.add(key)
        self._changed.pop(key, None)

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._removing(key)
        _delete(self, key)

    def pop(self, key: K, *default: Any) -> Any:
        if key in self:
            self._removing(key)
        return super().pop(key, *default)

    def popitem(self) -> tuple[K, V]:
        if self._first_removal is not None:
            hook, self._first_removal = self._first_removal, None
            hook()
        key, value = super().popitem()
        self._removed.add(key)
        self._changed.pop(key, None)
        return key, value

    def clear(self) -> None:
        if self._first_removal is not None:
            hook, self._first_removal = self._first_removal, None
            hook()
        self._removed.update(dict.keys(self))
        self._changed.clear()
        super().clear()

    def setdefault(self, key: K, default: Any = None) -> V:
        value = self._changed[key] = super().setdefault(key, default)
        return value

    def update(self, /, *others: Any, **more: Any) -> None:
        for key, value in dict(*others, **more).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self


class _Tracked(_Written[K, V]):
    """Remembers also keys whose mutable value was handed out."""

    __slots__ = ()

    def __getitem__(self, key: K) -> V:
        value = super().__getitem__(key)
        if type(value) not in IMMUTABLE:
            self._changed[key] = value
        return value

    def get(self, key: K, default: Any = None) -> Any:
        if key in self:
            return self[key]
        return default

    def _handed_out(self) -> None:
        # The values can be changed through what is handed out here, and nobody would notice.
        self._changed.update((k, v) for k, v in dict.items(self) if type(v) not in IMMUTABLE)

    def __iter__(self) -> Iterator[K]:
        # That it is overridden has dict(map) and {**map} read the values through __getitem__.
        return super().__iter__()

    def values(self) -> Any:
        self._handed_out()
        return super().values()

    def items(self) -> Any:
        self._handed_out()
        return super().items()

    def copy(self) -> Any:
        self._handed_out()
        return super().copy()

    __copy__ = copy

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()


class _Lazy(_Passing[K, V]):
    """Part of it is bytes still. What is set needs no look into them: what is in the dictionary holds, not what they say."""

    __slots__ = ()

    # Whatever looks for a key may read the last of the bytes, and then this is of another class.

    def __missing__(self, key: K) -> V:
        self._unread.read(self, key)
        if _contains(self, key) or not is_lazy(self):
            return self[key]
        return super().__missing__(key)

    def __contains__(self, key: object) -> bool:
        if _contains(self, key):
            return True
        self._unread.read(self, key)
        return _contains(self, key)

    def get(self, key: K, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        if is_lazy(self):
            self._unread.forget(key)
            super().__delitem__(key)
        else:
            del self[key]

    def pop(self, key: K, *default: Any) -> Any:
        here = key in self
        if not is_lazy(self):
            return self.pop(key, *default)
        if here:
            self._unread.forget(key)
        return super().pop(key, *default)

    def setdefault(self, key: K, default: Any = None) -> V:
        if key in self:
            return self[key]
        return super().setdefault(key, default) if is_lazy(self) else self.setdefault(key, default)

    def clear(self) -> None:
        self._unread.forget_all(self)
        self.clear()  # of another class now

    def _whole(self) -> StateMap[K, V]:
        """Itself, with everything read."""
        self._unread.read_all(self)
        return self

    def popitem(self) -> tuple[K, V]:
        return self._whole().popitem()

    def __len__(self) -> int:
        return len(self._whole())

    def __iter__(self) -> Iterator[K]:
        return iter(self._whole())

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._whole())

    def keys(self) -> Any:
        return self._whole().keys()

    def values(self) -> Any:
        return self._whole().values()

    def items(self) -> Any:
        return self._whole().items()

    def copy(self) -> Any:
        return self._whole().copy()

    __copy__ = copy

    def __eq__(self, other: object) -> bool:
        return bool(self._whole() == other)

    def __ne__(self, other: object) -> bool:
        return bool(self._whole() != other)

    def __or__(self, other: Any) -> Any:
        return self._whole() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._whole()

    def __repr__(self) -> str:
        return repr(self._whole())


class _LazyTracked(_Lazy[K, V], _Tracked[K, V]):
    """Both: each method of `_Lazy` hands on to that of `_Tracked`."""

    __slots__ = ()

    def __missing__(self, key: K) -> V:
        self._unread.read(self, key)
        if _contains(self, key):
            return self[key]
        return _Tracked.__missing__(self, key)  # also when it is no more than that now

    def __getitem__(self, key: K) -> V:
        return _Tracked.__getitem__(self, key)

    def clear(self) -> None:
        self._whole().clear()  # which keys there were has to be known


def track(state: StateMap[Any, Any], *, reads: bool, first_removal: Callable[[], None] | None = None) -> None:
    """Begin to remember which keys change, from none.

    Args:
        reads: Remember also keys whose mutable value is read.
        first_removal: Called once, before the first key is removed.
    """
    state._changed = {}
    state._removed = set()
    state._first_removal = first_removal
    if is_lazy(state):
        state.__class__ = _LazyTracked
    else:
        state.__class__ = _Tracked if reads else _Written


def track_reads(state: StateMap[Any, Any]) -> None:
    """From now on remember also keys whose mutable value is read. No-op unless `track` was called before."""
    if state.__class__ is _Written:
        state.__class__ = _Tracked


def untrack(state: StateMap[Any, Any]) -> None:
    """Stop remembering."""
    if is_tracking(state):
        state.__class__ = _Lazy if is_lazy(state) else StateMap
        state._changed = {}
        state._removed = set()
        state._first_removal = None


def is_tracking(state: StateMap[Any, Any]) -> bool:
    """Whether changes are being remembered."""
    return isinstance(state, _Written)


def take_changes(state: StateMap[K, V]) -> dict[K, V]:
    """The keys that were set, or may have been changed, since tracking began or the last call, with their values. All are there."""
    changed, state._changed = state._changed, {}
    return changed


def removed(state: StateMap[K, V]) -> set[K]:
    """The keys that were removed since tracking began. Some may be there again."""
    return state._removed


def unread(state: StateMap[Any, Any]) -> Unread | None:
    """What of it is bytes still."""
    return state._unread if isinstance(state, _Lazy) else None


def is_lazy(state: StateMap[Any, Any]) -> bool:
    """Whether part of it is bytes still."""
    return isinstance(state, _Lazy)


def read_later(state: StateMap[Any, Any], rest: Unread) -> None:
    """From now on look for what is missing in `rest`."""
    state._unread = rest
    state.__class__ = _Lazy


def all_read(state: StateMap[Any, Any]) -> None:
    """Nothing is left in the bytes: be a plain dictionary again (one that remembers changes, if it did)."""
    if is_lazy(state):
        state.__class__ = _Tracked if is_tracking(state) else StateMap
