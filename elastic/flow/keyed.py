"""The bolts of a flow that keep something for each key. Tuples have the fields `key` and `value`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from elastic.api.components import StatefulBolt
from elastic.api.state import KeyedState
from elastic.flow.plan import Planned

K = TypeVar("K")
V = TypeVar("V")

NOTHING = object()
_UNCHANGING = frozenset({str, int, float, bool, bytes, tuple, frozenset, type(None)})


class Pair(NamedTuple, Generic[K, V]):
    """What has been made of the elements of a key.

    Attributes:
        key: The key.
        value: What has been made of them.
    """

    key: K
    value: V


class Folding:
    """How the elements of a key become one value. This one counts them.

    Attributes:
        merges: Whether two values can be put together.
    """

    merges = True

    def begin(self) -> Any:
        """What there is before the first element."""
        return 0

    def add(self, held: Any, value: Any) -> Any:
        """Take an element in; returns what there is now."""
        return held + 1

    def merge(self, earlier: Any, later: Any) -> Any:
        """Put two values together."""
        return earlier + later


class Collecting(Folding):
    """Keeps all in a list."""

    def begin(self) -> list[Any]:
        return []

    def add(self, held: list[Any], value: Any) -> list[Any]:
        held.append(value)
        return held


class Reducing(Folding):
    """By a function of two; the first element is there by itself."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def begin(self) -> Any:
        return NOTHING

    def add(self, held: Any, value: Any) -> Any:
        return value if held is NOTHING else self.function(held, value)

    def merge(self, earlier: Any, later: Any) -> Any:
        return self.function(earlier, later)


class FoldingBy(Folding):
    """By functions of the user's."""

    def __init__(
        self,
        begin: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self.make, self.function, self.joined = begin, add, merge
        self.merges = merge is not None

    def begin(self) -> Any:
        return self.make()

    def add(self, held: Any, value: Any) -> Any:
        return self.function(held, value)

    def merge(self, earlier: Any, later: Any) -> Any:
        assert self.joined is not None
        return self.joined(earlier, later)


class Fold(Planned, StatefulBolt):
    """Folds the elements of each key.

    Args:
        folding: How.
        final: Whether what comes of it is given when the input has ended; else with each element.
    """

    held = KeyedState[Any, Any]()

    def __init__(self, folding: Folding, final: bool) -> None:
        self.folding = folding
        self.final = final

    def execute(self, tup: Any) -> None:
        key = tup.key
        held = self.held.get(key, NOTHING)
        held = self.folding.add(self.folding.begin() if held is NOTHING else held, tup.value)
        self.held[key] = held
        if not self.final:
            # What is a state changes again, and whoever got it would see that.
            self._give(Pair(key, held if held.__class__ in _UNCHANGING else copy.copy(held)))

    def finish(self) -> None:
        if self.final:
            for key, held in self.held.items():
                self._give(Pair(key, held))


class Process(Planned, StatefulBolt):
    """Calls a function with what it kept for the key.

    Args:
        function: Of the key, what is kept for it or None, and the element; returns what to keep from now on, None for nothing, and what
            to give.
    """

    held = KeyedState[Any, Any]()

    def __init__(self, function: Callable[[Any, Any, Any], tuple[Any, Iterable[Any]]]) -> None:
        self.function = function

    def execute(self, tup: Any) -> None:
        key = tup.key
        made = self.function(key, self.held.get(key), tup.value)
        if not isinstance(made, tuple) or len(made) != 2:
            raise TypeError(
                f"a function of process() returns a pair, what to keep and what to give, not {made!r}"
            )
        kept, given = made
        if kept is not None:
            self.held[key] = kept
        else:
            self.held.pop(key, None)
        for value in given:
            self._give(value)
