"""Windows over the elements of a key."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from elastic.api.windowed import WindowedBolt
from elastic.api.windows import Sessions, Window, Windows
from elastic.errors import TopologyError
from elastic.flow.keyed import Folding
from elastic.flow.plan import Planned

K = TypeVar("K")
V = TypeVar("V")

Time = str | Callable[[Any], float]


class WindowResult(NamedTuple, Generic[K, V]):
    """What has been made of the elements of a key in a window.

    Attributes:
        key: The key.
        window: From when to when.
        value: What has been made of them.
    """

    key: K
    window: Window
    value: V


class OfValue:
    """The time of a tuple whose value is the element.

    Args:
        time: A function of the element, or the name of an attribute of it.
    """

    def __init__(self, time: Time) -> None:
        self.function: Callable[[Any], float] = attrgetter(time) if isinstance(time, str) else time

    def __call__(self, tup: Any) -> float:
        return self.function(tup.value)


class Windowed(Planned, WindowedBolt):
    """Folds the elements of each key in each window.

    Args:
        folding: How.
        windows, time, lateness, idle: As of `WindowedBolt`; the time is that of an element.

    Raises:
        TopologyError: These do not go together.
    """

    def __init__(
        self, folding: Folding, windows: Windows, time: Time | None, lateness: float, idle: float
    ) -> None:
        of_value = None if time is None else OfValue(time)
        super().__init__(windows, by="key", time=of_value, lateness=lateness, idle=idle)
        if isinstance(windows, Sessions) and not folding.merges:
            raise TopologyError(
                "fold() over sessions needs to know how two of them become one, as an element between them makes them.",
                remedy="fold(begin, add, merge): merge(earlier, later) returns what both come to.",
            )
        self.folding = folding

    def begin(self) -> Any:
        return self.folding.begin()

    def add(self, held: Any, tup: Any) -> Any:
        return self.folding.add(held, tup.value)

    def merge(self, earlier: Any, later: Any) -> Any:
        return self.folding.merge(earlier, later)

    def close(self, window: Window, key: Any, held: Any) -> None:
        self._give(WindowResult(key, window, held))
