"""Bolts that work a stream up by windows.

Times of events, watermarks and late tuples are those of Storm's windowed bolts, but for one thing: each task that sends has a watermark
of its own, as what comes by one link is in its order, and that of the windows is the least of these. So a task that is behind makes
nothing late.
"""

from __future__ import annotations

import math
import time as clocks
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from elastic.api.components import Presets, StatefulBolt, overrides
from elastic.api.context import Counter, Source, TopologyContext
from elastic.api.state import KeyedState
from elastic.api.windows import Batches, Sessions, Window, Windows
from elastic.errors import TopologyError

_CHUNK = 256
"""Keys in one entry of the list of what closes: a state is copied by entries, and one must stay small."""
_AT_ONCE = 4096
"""Windows that are closed in one go: a task can move, and others of its executor have their turn, between two tuples only."""
_NOTHING = object()
_start = attrgetter("start")
Time = str | Callable[[Any], float]


class WindowedBolt(Presets, StatefulBolt):
    """Works a stream up by windows: fill in `begin`, `add` and `close`.

    What is open is state: it moves with its task.

    Args:
        windows: `Tumbling`, `Sliding`, `Sessions` or `Batches`.
        by: The field whose values each have windows of their own, or several fields; None: there is one window for all tuples of
            a task. Subscribe it by `.fields(source, ...)` with the same fields.
        time: The field that holds the time of an event, in seconds, or a function that makes it of a tuple; None: the time at which a
            tuple comes.
        lateness: Seconds by which an event may come later than later ones of the same task that sends it. Windows close so much later.
        idle: Seconds after which a task that has sent nothing does not hold up windows any more, by the clock of this machine.

    Raises:
        TopologyError: These do not go together.
    """

    presets: ClassVar[Mapping[str, Any]] = {"tick_interval": 0.5}

    # What is in windows: by (step, key); of sessions and batches by key.
    _open = KeyedState[Any, Any]()
    # What is to be closed at which step: its keys, by (step, chunk); and how many these are, by step.
    _due = KeyedState[Any, Any](list)
    _steps = KeyedState[int, int](int)
    # The latest event of each task that sends; and until when all is closed.
    _latest = KeyedState[Source | None, float]()
    _mark = KeyedState[str, float]()

    _late: Counter | None = None

    def __init__(
        self,
        windows: Windows,
        *,
        by: str | Iterable[str] | None = None,
        time: Time | None = None,
        lateness: float = 0.0,
        idle: float = 10.0,
    ) -> None:
        _check(self, windows, time, lateness, idle)
        self.windows = windows
        self.lateness = lateness
        self.idle = idle
        fields = (by,) if isinstance(by, str) else tuple(by or ())
        self._key = attrgetter(*fields) if fields else None
        self._time = attrgetter(time) if isinstance(time, str) else time
        # What follows is found again where the task comes to.
        self._closed = -math.inf
        self._next = -math.inf  # before that time nothing is to be closed
        self._last: Source | None = None  # who sent the tuple before, and its latest time
        self._last_at = -math.inf
        self._spoke: set[Source | None] = set()
        self._heard: dict[Source | None, float] = {}
        self._behind: Source | None = None

    def begin(self) -> Any:
        """What a window holds before its first tuple. By default None."""
        return None

    def add(self, held: Any, tup: Any) -> Any:
        """Take a tuple in.

        Args:
            held: What the window holds.
            tup: The tuple.

        Returns:
            What it holds from now on: something new, or `held`, changed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no add(self, held, tup)")

    def merge(self, earlier: Any, later: Any) -> Any:
        """What two sessions hold together that a tuple has made one. Only `Sessions` need it.

        Args:
            earlier, later: What they hold.
        """
        raise NotImplementedError

    def close(self, window: Window, key: Any, held: Any) -> None:
        """A window has ended: emit what it comes to. The one that ends first is closed first.

        Args:
            window: From when to when.
            key: The value of the field `by`, of several a tuple; None without one.
            held: What it holds.
        """
        raise NotImplementedError(f"{type(self).__name__} has no close(self, window, key, held)")

    def late(self, tup: Any) -> None:
        """A tuple came after all its windows had closed. By default it is counted, as the metric `late`, and left out.

        Args:
            tup: The tuple.
        """
        if self._late is None:  # `prepare` was overridden
            self._late = self.context.counter("late")
        self._late.inc()

    def clock(self) -> float:
        """What the time is where no tuple says it: seconds since 1970."""
        return clocks.time()

    def prepare(self, context: TopologyContext) -> None:
        self._late = context.counter("late")

    def execute(self, tup: Any) -> None:
        key = self._key(tup) if self._key is not None else None
        kind = self.windows.__class__
        if kind is Batches:
            self._count(key, tup)
            return
        at = self._time_of(tup)
        taken = self._in_session(key, at, tup) if kind is Sessions else self._in_windows(key, at, tup)
        if not taken:
            self.late(tup)
        # While another task is further behind, what comes from this one closes nothing.
        if at - self.lateness >= self._next and (self._behind is None or self._behind == self.context.source):
            self._advance()

    def tick(self) -> None:
        if not isinstance(self.windows, Batches):
            self._advance()

    def finish(self) -> None:
        if not isinstance(self.windows, Batches):
            self._close_until(math.inf)
            return
        for key, (first, count, held) in list(self._open.items()):
            del self._open[key]
            if count:
                self.close(Window(first, first + count), key, held)

    def _count(self, key: Any, tup: Any) -> None:
        assert isinstance(self.windows, Batches)
        first, count, held = self._open.get(key) or (0, 0, None)
        held = self.add(held if count else self.begin(), tup)
        last = first + self.windows.size
        if first + count + 1 < last:
            self._open[key] = first, count + 1, held
            return
        self._open[key] = last, 0, None
        self.close(Window(first, last), key, held)

    def _time_of(self, tup: Any) -> float:
        """When it happened. Whoever sends it has come so far."""
        if self._time is None:
            # A clock that is set back, or that of another machine, makes nothing late.
            return max(self.clock(), self._closed_until())
        at: float = self._time(tup)
        try:
            known = -math.inf < at < math.inf
        except TypeError:
            known = False
        if not known:
            raise TypeError(f"the time of an event is a number of seconds, not {at!r}")
        source = self.context.source
        if source is not self._last:
            self._spoke.add(source)
            self._last, self._last_at = source, self._latest.get(source, -math.inf)
        if at > self._last_at:
            self._latest[source] = self._last_at = at
        return at

    def _in_windows(self, key: Any, at: float, tup: Any) -> bool:
        """Take a tuple into its windows; returns whether there was one that is not closed, or none at all."""
        windows = self.windows
        assert not isinstance(windows, Batches | Sessions)
        steps = windows.steps(at)
        taken = not steps
        for step in steps:
            slot = step, key
            held = self._open.get(slot, _NOTHING)
            if held is not _NOTHING:
                self._open[slot] = self.add(held, tup)
            elif windows.end_of(step) > self._closed_until():
                held = self.add(self.begin(), tup)
                self._register(step, key)
                self._open[slot] = held
            else:
                continue
            taken = True
        return taken

    def _in_session(self, key: Any, at: float, tup: Any) -> bool:
        """Take a tuple into the session of its key, or begin one; returns whether that is not closed."""
        windows = self.windows
        assert isinstance(windows, Sessions)
        start, end = at, at + windows.gap
        sessions: list[_Session] = self._open.get(key) or []
        near = [s for s in sessions if s.start < end and start < s.end]
        if not near and end <= self._closed_until():
            return False
        held = near[0].held if near else self.begin()
        for other in near[1:]:
            held = self.merge(held, other.held)
        held = self.add(held, tup)
        if near:
            step = near[0].step
            start, end = min(start, near[0].start), max(end, near[-1].end)
        else:
            step = windows.step_of(end)
            self._register(step, key)
        rest = [s for s in sessions if s not in near]
        self._open[key] = sorted([*rest, _Session(start, end, step, held)], key=_start)
        return True

    def _register(self, step: int, key: Any) -> None:
        """Note that something is to be closed then."""
        count = self._steps[step]
        self._due[step, count // _CHUNK].append(key)
        self._steps[step] = count + 1
        self._next = min(self._next, self._end_of(step))

    def _end_of(self, step: int) -> float:
        assert not isinstance(self.windows, Batches)
        return self.windows.end_of(step)

    def _closed_until(self) -> float:
        if self._closed == -math.inf:
            self._closed = self._mark.get("closed", -math.inf)
        return self._closed

    def _advance(self) -> None:
        """Close what nothing can come for any more."""
        self._close_until(max(self._watermark(), self._closed_until()), _AT_ONCE)

    def _watermark(self) -> float:
        """Before which time nothing comes any more, as far as can be told."""
        if self._time is None:
            return self.clock()
        now = clocks.monotonic()
        if not self._heard:
            self._heard = dict.fromkeys((*self.context.sources, *self._latest), now)
        for source in self._spoke:
            self._heard[source] = now
        self._spoke.clear()
        self._last = None  # so that who sends next is noted
        there = [s for s, heard in self._heard.items() if now - heard < self.idle]
        # Where everybody is silent, what has come is as far as it goes.
        self._behind = min(
            there, key=self._latest_of, default=max(self._latest, key=self._latest_of, default=None)
        )
        return self._latest_of(self._behind) - self.lateness

    def _latest_of(self, source: Source | None) -> float:
        latest: float = self._latest.get(source, -math.inf)
        return latest

    def _close_until(self, watermark: float, most: float = math.inf) -> None:
        """Close what ends then or before, but no more than so many: the next tuple or tick goes on with the rest."""
        if self._closed < watermark < math.inf:
            # First: should something raise, nothing is taken for windows of which a part has closed.
            self._closed = self._mark["closed"] = watermark
        for step in sorted(self._steps):
            if self._end_of(step) > watermark:
                break
            for key in self._take(step):
                most -= 1
                if isinstance(self.windows, Sessions):
                    self._close_sessions(self.windows, key, step, watermark)
                else:
                    assert not isinstance(self.windows, Batches)
                    held = self._open.pop((step, key))
                    self.close(Window(self.windows.start_of(step), self.windows.end_of(step)), key, held)
                if most <= 0:
                    return
        self._next = min(map(self._end_of, self._steps), default=math.inf)

    def _take(self, step: int) -> Iterator[Any]:
        """The keys of what is to be closed then, each forgotten before it is given: what raises does not come again, the rest does."""
        for chunk in range((self._steps[step] - 1) // _CHUNK + 1):
            while keys := self._due.get((step, chunk)):
                yield keys.pop(0)
            self._due.pop((step, chunk), None)
        del self._steps[step]

    def _close_sessions(self, windows: Sessions, key: Any, step: int, watermark: float) -> None:
        """Of a key: close those that were to end then and have; note anew those that have gone on."""
        left: list[_Session] = []
        ended: list[_Session] = []
        for session in self._open.get(key) or ():
            if session.step != step:
                left.append(session)
            elif session.end <= watermark:
                ended.append(session)
            else:
                left.append(session._replace(step=windows.step_of(session.end)))
                self._register(left[-1].step, key)
        if left:
            self._open[key] = left
        else:
            self._open.pop(key, None)
        for session in ended:
            self.close(Window(session.start, session.end), key, session.held)


class _Session(NamedTuple):
    """A session that is open; `step` is when it is looked at next."""

    start: float
    end: float
    step: int
    held: Any


def _check(bolt: WindowedBolt, windows: object, time: object, lateness: object, idle: object) -> None:
    """Raises: TopologyError: These do not go together."""
    kind = type(bolt).__name__
    if not isinstance(windows, Windows):
        raise TopologyError(
            f"{kind} takes windows, not {windows!r}.",
            remedy="Tumbling(60), Sliding(60, 10), Sessions(30), Batches(100)",
        )
    if time is not None and isinstance(windows, Batches):
        raise TopologyError(f"{kind}: Batches go by numbers of tuples, so they take no time.")
    if not (isinstance(lateness, int | float) and 0 <= lateness < math.inf):
        raise TopologyError(f"{kind}: lateness is a number of seconds, not {lateness!r}.")
    if lateness and time is None:
        raise TopologyError(
            f"{kind}: by the time at which tuples come none is late.", remedy='Name a time: time="at"'
        )
    if not (isinstance(idle, int | float) and idle > 0):
        raise TopologyError(f"{kind}: idle is a number of seconds, above 0, not {idle!r}.")
    if isinstance(windows, Sessions) and not overrides(bolt, "merge", WindowedBolt):
        raise TopologyError(
            f"{kind} has sessions, and no merge(): a tuple between two of them makes them one.",
            remedy="def merge(self, earlier, later): return what both come to",
        )
