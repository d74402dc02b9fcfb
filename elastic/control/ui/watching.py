"""What the page shows, kept at hand: looks at the cluster again and again, and its moves and events as they come."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from elastic.control.tasks import Reports
from elastic.errors import ElasticError, NotFound
from elastic.model.events import Event
from elastic.model.records import TopologyStatus
from elastic.model.views import PLANNED, ComponentView, MoveView, NodeSummary, TopologyDetail, TopologySummary

GOING_ON = (TopologyStatus.ACTIVE, TopologyStatus.INACTIVE)
KEPT_MOVES = 200
KEPT_EVENTS = 200
KEPT_SAMPLES = 300
AGAIN_SECONDS = 2.0
"""How long a cluster that does not answer, or has ended, is left alone before it is asked again."""


class Cluster(Protocol):
    """What a Nimbus says of its cluster."""

    @property
    def cluster(self) -> str: ...
    @property
    def leader(self) -> str: ...
    @property
    def version(self) -> str: ...


class Source(Protocol):
    """What is asked of a cluster. `elastic.control.client.Client` is the real one."""

    def close(self) -> None: ...
    def on_lost(self, told: Callable[[str], None]) -> None: ...
    def info(self) -> Cluster: ...
    def list(self) -> tuple[TopologySummary, ...]: ...
    def describe(self, name: str) -> TopologyDetail: ...
    def nodes(self) -> tuple[NodeSummary, ...]: ...
    def follow_moves(self, topology: str = "") -> Iterator[tuple[MoveView, ...]]: ...
    def events(
        self, *, since: int = 0, topology: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[tuple[int, Event]]: ...


@dataclass(frozen=True, slots=True)
class Look:
    """The cluster at one moment.

    Attributes:
        at: When, in seconds since 1970.
        topologies: Those that run, and those that have ended lately.
        details: Of those that run, by name.
    """

    at: float
    cluster: Cluster
    topologies: tuple[TopologySummary, ...]
    details: Mapping[str, TopologyDetail]
    nodes: tuple[NodeSummary, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """What a topology's components did at one moment: tuples per second, by component.

    Attributes:
        at: Seconds since 1970.
        rates: What bolts execute and spouts emit.
    """

    at: float
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Shown:
    """All that is known now.

    Attributes:
        look: The newest.
        trouble: Why there is no newer one; "" when there is nothing to say.
        moves: Under way and ended, that which began last first.
        events: The newest first.
        history: Samples of the topologies that run, by name, oldest first.
        reports: What their workers have reported, by name.
    """

    look: Look
    trouble: str = ""
    moves: tuple[MoveView, ...] = ()
    events: tuple[Event, ...] = ()
    history: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)
    reports: Mapping[str, Reports] = field(default_factory=dict)


def rate_of(component: ComponentView) -> float:
    """What it does, tuples per second: what a spout emits, and what a bolt executes."""
    return component.emitted_rate if component.kind == "spout" else component.executed_rate


def take(source: Source) -> Look:
    """Look at a cluster.

    Raises:
        Unavailable, DeadlineExceeded: Nobody answers.
    """
    topologies = source.list()
    details = {}
    for summary in topologies:
        if summary.status in GOING_ON:
            try:
                details[str(summary.name)] = source.describe(str(summary.name))
            except NotFound:
                continue  # it has just gone
    return Look(time.time(), source.info(), topologies, details, source.nodes())


class Watcher:
    """Watches a cluster until it is closed, also beyond the end of the cluster and until there is another one.

    Args:
        connect: Makes a client of the cluster that is meant; called again when one has come to its end.
        interval: Seconds between two looks.
    """

    def __init__(self, connect: Callable[[], Source], interval: float = 1.0) -> None:
        self._connect = connect
        self._interval = interval
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self._version = 0
        self._sources: list[Source] = []
        self._look: Look | None = None
        self._trouble = ""
        self._moves: dict[tuple[str, int, float], MoveView] = {}
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._history: dict[tuple[str, str], deque[Sample]] = {}
        self._reports: dict[str, Reports] = {}
        self._threads = [
            threading.Thread(target=self._keep, args=(follow,), name=f"ui-{name}", daemon=True)
            for name, follow in (
                ("looks", self._looks),
                ("moves", self._follow_moves),
                ("events", self._follow_events),
            )
        ]

    def __enter__(self) -> Self:
        self.open()
        return self

    def open(self) -> None:
        """Take a first look, and go on from there.

        Raises:
            Unavailable, DeadlineExceeded: Nobody answers.
        """
        with self._source() as source:
            self._seen(take(source))
        for thread in self._threads:
            thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all that is followed, and whoever waits."""
        with self._changed:
            self._ended.set()
            sources = list(self._sources)
            self._changed.notify_all()
        for source in sources:
            source.close()  # which ends its streams
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def wait(self, seen: int, seconds: float) -> int:
        """Wait until there is something newer.

        Args:
            seen: The number that the last wait has returned; -1 at first.
            seconds: For how long at most.

        Returns:
            The number of what there is now: `seen` if nothing has come.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version != seen or self._ended.is_set(), seconds)
            return self._version

    @property
    def ended(self) -> bool:
        """Whether it is closed."""
        return self._ended.is_set()

    def pause(self, seconds: float) -> None:
        """Wait so long, or until it is closed."""
        self._ended.wait(seconds)

    def shown(self) -> Shown:
        """All that is known now."""
        with self._changed:
            assert self._look is not None, "entered first"
            return Shown(
                self._look,
                self._trouble,
                tuple(sorted(self._moves.values(), key=_newest, reverse=True)),
                tuple(reversed(self._events)),
                {name: tuple(samples) for (name, _), samples in self._history.items()},
                self._reports,
            )

    @contextmanager
    def _source(self) -> Iterator[Source]:
        source = self._connect()
        with self._changed:
            self._sources.append(source)
            if self._ended.is_set():
                source.close()  # nobody else would: what is asked of it ends at once
        try:
            yield source
        finally:
            source.close()
            with self._changed:
                self._sources.remove(source)

    def _keep(self, follow: Callable[[Source], None]) -> None:
        """On a thread of its own: follow something, from the beginning again whenever that comes to an end."""
        while not self._ended.is_set():
            try:
                with self._source() as source:
                    follow(source)
            except ElasticError as error:
                if follow == self._looks:
                    self._lost(" ".join([error.message, *getattr(error, "__notes__", ())]))
            self._ended.wait(AGAIN_SECONDS)

    def _looks(self, source: Source) -> None:
        source.on_lost(self._lost)  # sooner than the look gives up
        while not self._ended.wait(self._interval):
            self._seen(take(source))

    def _seen(self, look: Look) -> None:
        with self._changed:
            self._look, self._trouble = look, ""
            self._reports = {n: self._reports.get(n, Reports()).then(d) for n, d in look.details.items()}
            history = {}
            for name, detail in look.details.items():
                rates = {str(c.id): rate_of(c) for c in detail.components}
                # Another topology may have the name by now.
                key = (name, detail.summary.id)
                history[key] = self._history.get(key) or deque(maxlen=KEPT_SAMPLES)
                history[key].append(Sample(look.at, rates))
            self._history = history
            self._news()

    def _lost(self, why: str) -> None:
        with self._changed:
            if why != self._trouble:
                self._trouble = why
                self._news()

    def _follow_moves(self, source: Source) -> None:
        with self._changed:
            self._moves.clear()  # it begins with all that are known
        for changed in source.follow_moves():
            with self._changed:
                for move in changed:
                    if move.state == PLANNED:
                        continue  # nobody says when it is not any more; `waits` tells of it
                    self._moves[str(move.topology), move.epoch, move.began] = move
                for old in sorted(self._moves, key=lambda key: _newest(self._moves[key]))[:-KEPT_MOVES]:
                    del self._moves[old]
                self._news()

    def _follow_events(self, source: Source) -> None:
        with self._changed:
            self._events.clear()
        for _, event in source.events(follow=True, tail=KEPT_EVENTS):
            with self._changed:
                self._events.append(event)
                self._news()

    def _news(self) -> None:
        self._version += 1
        self._changed.notify_all()


def _newest(move: MoveView) -> tuple[float, int]:
    return move.began, move.epoch
