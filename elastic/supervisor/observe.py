"""What coordination says about topologies, kept up to date by watches, or read when asked (the cycle T_S)."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Versioned, Watch
from elastic.errors import Unavailable
from elastic.model import codec
from elastic.model.assignment import Assignment
from elastic.model.ids import TopologyName
from elastic.model.records import TopologyState, TopologyStatus, WorkerInfo
from elastic.model.topology import TopologySpec

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopologyView:
    """One topology as coordination describes it.

    Attributes:
        workers: The registered workers, by their path element, sorted.
        config: Its settings, with what was changed since.
    """

    name: TopologyName
    state: TopologyState | None = None
    assignment: Assignment | None = None
    workers: tuple[WorkerInfo, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether its workers should run."""
        return self.state is not None and self.state.status in (
            TopologyStatus.ACTIVE,
            TopologyStatus.INACTIVE,
        )


Views = Mapping[TopologyName, TopologyView]


class Observer:
    """Watches all topologies.

    Args:
        changed: Called after each change, on the coordination's thread; must not block.
    """

    def __init__(self, coordination: Coordination, changed: Callable[[], None]) -> None:
        self._coordination = coordination
        self._changed = changed
        self._lock = threading.Lock()
        self._topologies: dict[TopologyName, _Topology] = {}
        self._watch: Watch | None = None
        self._again: Watch | None = None

    def start(self) -> None:
        self._watch = self._coordination.watch_children(paths.TOPOLOGIES, self._on_topologies)

    def views(self) -> Views:
        """What is known now."""
        with self._lock:
            topologies = sorted(self._topologies.items())
        return {name: topology.view() for name, topology in topologies}

    def refresh(self, then: Callable[[], None]) -> None:
        """Read everything anew, and call `then` when nothing is known any more that is older than this call. On the coordination's thread:
        what the watches bring afterwards is newer.

        There is a connection again before the watches have been looked at. Who acts in between acts on what was so when it broke: a worker
        that has been given tasks since would be stopped because they had moved away.
        """
        self._forget_again()
        try:
            if self._watch is not None:
                self._on_topologies(self._coordination.children(paths.TOPOLOGIES) or ())
                with self._lock:
                    topologies = list(self._topologies.values())
                for topology in topologies:
                    topology.refresh()
        except Unavailable:
            # The coordination's thread calls as soon as it can read.
            self._again = self._coordination.watch_children(paths.TOPOLOGIES, lambda _: self.refresh(then))
            return
        then()

    def close(self) -> None:
        self._forget_again()
        if self._watch:
            self._watch.cancel()
        self._on_topologies(())

    def _forget_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _on_topologies(self, names: tuple[str, ...]) -> None:
        with self._lock:
            gone = [self._topologies.pop(n) for n in set(self._topologies) - set(names)]
            new = [TopologyName(n) for n in names if n not in self._topologies]
        for topology in gone:
            topology.close()
        for name in new:
            topology = _Topology(self._coordination, name, self._changed)
            with self._lock:
                self._topologies[name] = topology
            topology.start()
        self._changed()


class _Topology:
    """The watches of one topology, and what they said last. Its callbacks come one at a time."""

    def __init__(self, coordination: Coordination, name: TopologyName, changed: Callable[[], None]) -> None:
        self._coordination = coordination
        self._name = name
        self._changed = changed
        self._lock = threading.Lock()
        self._watches: list[Watch] = []
        self._leaves: dict[str, Watch] = {}
        self._state: TopologyState | None = None
        self._assignment: Assignment | None = None
        self._config: Mapping[str, Any] = {}
        self._workers: dict[str, WorkerInfo] = {}
        self._closed = False

    def start(self) -> None:
        watch, name = self._coordination, self._name
        self._watches = [
            watch.watch_value(paths.state(name), self._on_state),
            watch.watch_value(paths.assignment(name), self._on_assignment),
            watch.watch_children(paths.workers(name), self._on_leaves),
        ]

    def refresh(self) -> None:
        """Raises Unavailable: there is no connection, and what was known stays."""
        state = _decode(self._name, "state", self._coordination.get(paths.state(self._name)), TopologyState)
        self._read_all_of(state)
        self._changed()

    def _read_all_of(self, state: TopologyState | None) -> None:
        now = _read(self._coordination, self._name)
        with self._lock:
            self._state, self._assignment, self._config = state, now.assignment, now.config
            self._workers = now.workers

    def view(self) -> TopologyView:
        with self._lock:
            return _view(self._name, self._state, self._assignment, self._workers, self._config)

    def close(self) -> None:
        self._closed = True
        for watch in [*self._watches, *self._leaves.values()]:
            watch.cancel()

    def _on_state(self, value: Versioned | None) -> None:
        state = _decode(self._name, "state", value, TopologyState)
        if state is not None and (self._state is None or self._state.id != state.id):
            # New, or another one under the same name, whose parts what is known may be: nobody may act on
            # a mixture.
            self._read_all_of(state)
        with self._lock:
            self._state = state
        self._changed()

    def _on_assignment(self, value: Versioned | None) -> None:
        assignment = _decode(self._name, "assignment", value, Assignment)
        with self._lock:
            self._assignment = assignment
        self._changed()

    def _on_leaves(self, names: tuple[str, ...]) -> None:
        for leaf in self._leaves.keys() - set(names):
            self._leaves.pop(leaf).cancel()
            self._on_leaf(leaf, None)
        with self._lock:
            known = self._workers.keys() | set(names)
        # Also what is known and is not among the names: it was there when all was read, and may have gone before there was a watch on it.
        for leaf in sorted(known - self._leaves.keys()):
            if not self._closed:
                path = f"{paths.workers(self._name)}/{leaf}"
                self._leaves[leaf] = self._coordination.watch_value(
                    path, functools.partial(self._on_leaf, leaf)
                )

    def _on_leaf(self, leaf: str, value: Versioned | None) -> None:
        info = _decode(self._name, leaf, value, WorkerInfo)
        with self._lock:
            if info is None:
                self._workers.pop(leaf, None)
            else:
                self._workers[leaf] = info
        self._changed()


def read_all(coordination: Coordination) -> Views:
    """What coordination says now, read piece by piece.

    Raises:
        Unavailable: There is no connection.
    """
    found = {}
    for child in coordination.children(paths.TOPOLOGIES) or ():
        name = TopologyName(child)
        state = _decode(name, "state", coordination.get(paths.state(name)), TopologyState)
        now = _read(coordination, name)
        found[name] = _view(name, state, now.assignment, now.workers, now.config)
    return found


@dataclass(frozen=True, slots=True)
class _Parts:
    assignment: Assignment | None
    workers: dict[str, WorkerInfo]
    config: Mapping[str, Any]


def _read(coordination: Coordination, name: TopologyName) -> _Parts:
    spec = _decode(name, "spec", coordination.get(paths.spec(name)), TopologySpec)
    return _Parts(
        _decode(name, "assignment", coordination.get(paths.assignment(name)), Assignment),
        _read_workers(coordination, name),
        spec.config if spec else {},
    )


def _read_workers(coordination: Coordination, name: TopologyName) -> dict[str, WorkerInfo]:
    found = {}
    for leaf in coordination.children(paths.workers(name)) or ():
        value = _decode(name, leaf, coordination.get(f"{paths.workers(name)}/{leaf}"), WorkerInfo)
        if value is not None:
            found[leaf] = value
    return found


def _view(
    name: TopologyName,
    state: TopologyState | None,
    assignment: Assignment | None,
    workers: Mapping[str, WorkerInfo],
    config: Mapping[str, Any],
) -> TopologyView:
    living = tuple(workers[leaf] for leaf in sorted(workers))
    settings = {**config, **(state.settings if state else {})}
    return TopologyView(name, state, assignment, living, settings)


def _decode(topology: str, what: str, value: Versioned | None, kind: type[T]) -> T | None:
    """The value, or None when there is none or nobody can read it: then nothing is done about it."""
    if value is None:
        return None
    try:
        return codec.decode(value.data, kind)
    except msgspec.MsgspecError as error:
        log.error("topology %s: %s in coordination cannot be read: %s", topology, what, error)
        return None
