"""What waits for a task: in order from each source, and the sources take turns.

A task that has stood still sends all that it was held up with in one go. In a single queue everybody else's tuples would stand behind
that, also those that have nothing to do with it. Nothing is promised of the order between different sources.

What a source has sent after its mark of a checkpoint is kept apart until the marks of all others have come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from elastic.worker.tuples.batch import Item


class Turns:
    """See the module. Not locked: its task does that."""

    __slots__ = ("_apart", "_lanes", "_turns")

    def __init__(self) -> None:
        # None of them empty. Where one item waits it stands there by itself: mostly, and a queue of its own is made in twice the time.
        self._lanes: dict[int, Item | deque[Item]] = {}
        self._turns: deque[int] = deque()  # the sources of which something waits, the next one first
        self._apart: dict[int, deque[Item]] = {}  # of sources that have no turn

    def __bool__(self) -> bool:
        return bool(self._turns)

    def __contains__(self, source: int) -> bool:
        """Whether something of that source waits."""
        return source in self._lanes or bool(self._apart.get(source))

    def keep_apart(self, source: int) -> int:
        """That source has no turn until `let_in`. Returns the tuples of it that wait."""
        lane = self._lanes.pop(source, None)
        if lane is not None:
            self._turns.remove(source)
        apart = self._apart[source] = (
            lane if isinstance(lane, deque) else deque(() if lane is None else (lane,))
        )
        return sum(item.count for item in apart)

    def let_in(self) -> None:
        """All sources have their turns again."""
        apart, self._apart = self._apart, {}
        for source, lane in apart.items():
            if lane:
                self._lanes[source] = lane
                self._turns.append(source)

    @property
    def sources(self) -> int:
        """Of how many sources something waits."""
        return len(self._lanes)

    def __iter__(self) -> Iterator[Item]:
        """Everything; what one source has sent in that order."""
        for source in self._turns:
            lane = self._lanes[source]
            if isinstance(lane, deque):
                yield from lane
            else:
                yield lane
        for apart in self._apart.values():
            yield from apart

    def append(self, item: Item) -> None:
        """Put in what its source has sent last."""
        source = item.source
        if self._apart and (apart := self._apart.get(source)) is not None:
            apart.append(item)
            return
        lane = self._lanes.get(source)
        if lane is None:
            self._lanes[source] = item
            self._turns.append(source)
        elif isinstance(lane, deque):
            lane.append(item)
        else:
            self._lanes[source] = deque((lane, item))

    def put_before(self, items: Iterable[Item]) -> None:
        """Put in what their sources have sent before all that is there of them, in order."""
        for item in reversed(list(items)):
            if (apart := self._apart.get(item.source)) is not None:
                apart.appendleft(item)
                continue
            lane = self._lanes.get(item.source)
            if lane is None:
                self._lanes[item.source] = item
                self._turns.appendleft(item.source)
            elif isinstance(lane, deque):
                lane.appendleft(item)
            else:
                self._lanes[item.source] = deque((item, lane))

    def next(self) -> Item | None:
        """Take the first item of the source whose turn it is; None: nothing waits."""
        if not self._turns:
            return None
        source = self._turns.popleft()
        lane = self._lanes[source]
        if isinstance(lane, deque):
            item = lane.popleft()
            if lane:
                self._turns.append(source)
                return item
        else:
            item = lane
        del self._lanes[source]
        return item

    def clear(self) -> None:
        """Forget everything."""
        self._lanes.clear()
        self._turns.clear()
        for apart in self._apart.values():
            apart.clear()
