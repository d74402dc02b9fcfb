"""Entries on their way into pieces: taken some at a time and put back, and what the types of their keys mean."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

from elastic.api.state import StateMap

_ASKING = frozenset({int, bool, float, complex, str, bytes, tuple, type(None), Decimal})
"""Keys of these types leave it to another object whether it is equal to them."""
_ASKED = frozenset({int, bool, float, complex, tuple, Decimal})
_LASTING = frozenset({int, bool, str, bytes, tuple, type(None)})
_ONLY_EQUAL_TO_THEIR_OWN = frozenset({str, bytes, tuple, type(None)})


def entries_of(state: StateMap[Any, Any], keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """What there is under these keys, each entry as it is when its turn comes."""
    return ((key, dict.__getitem__(state, key)) for key in keys if dict.__contains__(state, key))


class Owing:
    """Entries that are to be copied; what was taken and could not be used is put back."""

    def __init__(self, entries: Iterable[tuple[Any, Any]]) -> None:
        self.entries: Iterator[tuple[Any, Any]] = iter(entries)

    def take(self, count: int) -> dict[Any, Any]:
        """The next ones, so many at most."""
        return dict(islice(self.entries, count))

    def put_back(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """These come next."""
        self.entries = chain(entries, self.entries)


class Present(Owing):
    """All that there is in a state, each entry as it is at the moment when it is taken.

    It is gone through as it lies in memory: to write down all keys first, or to look each of them up, takes several times as long, in which
    no other thread gets the interpreter. That does for as long as no key is removed; when some are added it is noticed.
    """

    def __init__(self, state: StateMap[Any, Any]) -> None:
        self._state = state
        self._seen = 0
        self._items = iter(dict.items(state))
        self._keys: Iterator[Any] | None = None
        self._back: list[Any] = []
        if state._first_removal is None:  # something was removed already, and nobody would say so again
            self.stop_iterating()

    def stop_iterating(self) -> None:
        """A key is about to be removed, or some were added: the remaining ones are written down."""
        if self._keys is None:
            self._keys = iter(list(islice(dict.__iter__(self._state), self._seen, None)))

    @property
    def entries(self) -> Iterator[tuple[Any, Any]]:  # type: ignore[override]
        """All that have not been taken, each as it is when its turn comes."""
        self.stop_iterating()
        return entries_of(self._state, chain(self._back, self._keys or ()))

    def take(self, count: int) -> dict[Any, Any]:
        """The next ones, so many at most."""
        if self._back:
            keys, self._back = self._back[:count], self._back[count:]
            return self._look_up(keys) or self.take(count)
        if self._keys is None:
            try:
                some = dict(islice(self._items, count))
            except RuntimeError:  # some were added
                self.stop_iterating()
            else:
                self._seen += len(some)
                return some
        assert self._keys is not None
        while keys := list(islice(self._keys, count)):
            if found := self._look_up(keys):
                return found
        return {}

    def _look_up(self, keys: list[Any]) -> dict[Any, Any]:
        state = self._state
        there = list(filter(partial(dict.__contains__, state), keys))
        if not state._removed.isdisjoint(there):  # and set again, maybe by an equal key of another type
            there = [_standing(state, k) if k in state._removed else k for k in there]
        return dict(zip(there, map(dict.__getitem__, repeat(state), there), strict=True))

    def put_back(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """These come next, as they are by then."""
        self._back = [*(key for key, _ in entries), *self._back]


class _Asks:
    """Is found where a key is, and says which one that is."""

    __slots__ = ("_key", "found")

    def __init__(self, key: Any) -> None:
        self._key = self.found = key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if equal := bool(self._key == other):
            self.found = other
        return equal


def _standing(state: StateMap[Any, Any], key: Any) -> Any:
    """The key itself that is there, where one of that type may be equal to others and can be asked for them."""
    if type(key) not in _ASKED:
        return key
    asks = _Asks(key)
    dict.__contains__(state, asks)
    return asks.found


class Kinds:
    """The types of all keys that were seen."""

    def __init__(self) -> None:
        self._kinds: set[type] = set()
        self._mixed = False

    def anything(self) -> None:
        """There are keys that nobody sees."""
        self._mixed = True

    def note(self, keys: Collection[Any]) -> None:
        """Remember the types of keys."""
        kinds = set(map(type, keys))
        if tuple in kinds:
            within = set(map(type, chain.from_iterable(k for k in keys if type(k) is tuple)))
            self._mixed = self._mixed or tuple in within
            kinds |= within
        self._kinds |= kinds

    def standing(self, state: StateMap[Any, Any], entries: dict[Any, Any]) -> dict[Any, Any]:
        """The same entries, with the keys themselves that are in the state: another one that is equal may have been given."""
        if self._kinds <= _ASKING:  # any of them can be asked for
            return {_standing(state, k): v for k, v in entries.items()}
        there = {k: k for k in dict.__iter__(state) if k in entries}
        return {there.get(k, k): v for k, v in entries.items()}

    @property
    def odd(self) -> bool:
        """Whether a key may not be equal to what it is read as after it was written down."""
        return self._mixed or not self._kinds <= _LASTING

    @property
    def alike(self) -> bool:
        """Whether a key may be equal to one of another type: after `d[1] = 2; d[True] = 3` the key is 1, and was set by True."""
        others = self._kinds - _ONLY_EQUAL_TO_THEIR_OWN
        return bool(others) and (
            self._mixed or len(others) > 1 or issubclass(others.copy().pop(), str | bytes | tuple)
        )


def chunks(items: Iterable[tuple[Any, Any]], count: Callable[[], int]) -> Iterator[dict[Any, Any]]:
    """Dictionaries of so many each."""
    waiting = iter(items)
    while some := dict(islice(waiting, count())):
        yield some
