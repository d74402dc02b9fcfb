"""What coordination holds, followed by watches: `facts()` puts it together, `wait_for` waits until it is so.

The mirror may lag behind, never ahead, and never mixes two topologies that had the same name one after the
other: when the state shows another id, everything below that name is read again, and until then the topology
is not in the facts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Versioned, Watch
from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.codec import decode
from elastic.model.ids import NodeId, TopologyName
from elastic.model.records import Progress, TopologyState, WantedNode, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.nimbus.facts import Facts, TopologyFacts

log = logging.getLogger(__name__)
T = TypeVar("T")


def read_value(path: str, data: bytes, kind: type[T]) -> T | None:
    """The value at a path, or None when nobody can read it: one bad record must not stop the others."""
    try:
        return decode(data, kind)
    except msgspec.MsgspecError as error:
        log.error("%s holds something that is not a %s: %s", path, kind.__name__, error)
        return None


class _Value:
    """One followed value, decoded; raw bytes when no kind is given."""

    def __init__(self, mirror: Mirror, path: str, kind: type[Any] | None) -> None:
        self.loaded = False
        self.value: Any = None
        self.version = -1
        self._path, self._kind, self._mirror = path, kind, mirror
        self._watch: Watch = mirror.coordination.watch_value(path, self._on_value)

    def _on_value(self, found: Versioned | None) -> None:
        if found is None or self._kind is None:
            value = None if found is None else found.data
        else:
            value = read_value(self._path, found.data, self._kind)
        with self._mirror.changed:
            self.value, self.version = value, -1 if found is None else found.version
            self.loaded = True
            self._mirror.touch()

    def close(self) -> None:
        self._watch.cancel()


class _Values:
    """The values of all children of a path. `snapshot` is the newest moment at which all of them were
    known."""

    def __init__(self, mirror: Mirror, path: str, kind: type[Any] | None) -> None:
        self.snapshot: dict[str, Any] | None = None
        self._members: dict[str, _Value] = {}
        self._listed = False
        self._path, self._kind, self._mirror = path, kind, mirror
        self._watch: Watch = mirror.coordination.watch_children(path, self._on_children)

    def _on_children(self, names: tuple[str, ...]) -> None:
        with self._mirror.changed:
            for name in set(self._members) - set(names):
                self._members.pop(name).close()
            for name in set(names) - set(self._members):
                self._members[name] = _Value(self._mirror, f"{self._path}/{name}", self._kind)
            self._listed = True
            self._mirror.touch()

    def settle(self) -> None:
        """Take a new snapshot, if everything is known."""
        if self._listed and all(m.loaded for m in self._members.values()):
            self.snapshot = {n: m.value for n, m in sorted(self._members.items()) if m.value is not None}

    def close(self) -> None:
        self._watch.cancel()
        for member in self._members.values():
            member.close()


class _Topology:
    """Everything about one topology; what lies beside the state is followed anew for each id."""

    def __init__(self, mirror: Mirror, name: TopologyName) -> None:
        self._mirror, self._name = mirror, name
        self._id = ""
        self._parts: tuple[_Value, _Value, _Values, _Values] | None = None
        self.state = _Value(mirror, paths.state(name), TopologyState)

    def settle(self) -> None:
        state: TopologyState | None = self.state.value
        if (state.id if state is not None else "") != self._id:
            self._close_parts()
            self._id = state.id if state is not None else ""
            if state is not None:
                self._parts = (
                    _Value(self._mirror, paths.spec(self._name), TopologySpec),
                    _Value(self._mirror, paths.assignment(self._name), Assignment),
                    _Values(self._mirror, paths.workers(self._name), WorkerInfo),
                    _Values(self._mirror, paths.progress(self._name), Progress),
                )
        if self._parts is not None:
            self._parts[2].settle()
            self._parts[3].settle()

    @property
    def loaded(self) -> bool:
        """Whether all that there is about it has been read once."""
        if not self.state.loaded or self._parts is None:
            return self.state.loaded
        spec, assignment, workers, progress = self._parts
        return spec.loaded and assignment.loaded and None not in (workers.snapshot, progress.snapshot)

    def facts(self) -> TopologyFacts | None:
        if self._parts is None or not self.loaded:
            return None
        spec, assignment, workers, progress = self._parts
        if spec.value is None:
            return None
        living, done = workers.snapshot or {}, progress.snapshot or {}
        return TopologyFacts(
            spec=spec.value,
            state=self.state.value,
            state_version=self.state.version,
            assignment=assignment.value,
            assignment_version=assignment.version,
            workers={paths.unleaf(n): w for n, w in living.items()},
            progress={paths.unleaf(n): p for n, p in done.items()},
        )

    def _close_parts(self) -> None:
        for part in self._parts or ():
            part.close()
        self._parts = None

    def close(self) -> None:
        self.state.close()
        self._close_parts()


class Mirror:
    """See the module. Thread-safe; `changed` is its lock, and is notified at every change.

    Args:
        coordination: Stays the caller's.
    """

    def __init__(self, coordination: Coordination) -> None:
        self.coordination = coordination
        self.changed = threading.Condition()
        self.revision = 0
        self._closed = False
        self._facts: tuple[int, Facts] | None = None
        self._topologies: dict[TopologyName, _Topology] = {}
        self._listed = False
        with self.changed:
            self._nodes = _Values(self, paths.NODES, NodeInfo)
            self._wanted = _Values(self, paths.WANTED, WantedNode)
            self._drains = _Values(self, paths.DRAINS, None)
            self._watch = coordination.watch_children(paths.TOPOLOGIES, self._on_topologies)

    def touch(self) -> None:
        """Something has changed; called with the lock."""
        self.revision += 1
        if not self._closed:
            for part in self._parts():
                part.settle()
        self.changed.notify_all()

    def _parts(self) -> list[_Values | _Topology]:
        return [self._nodes, self._wanted, self._drains, *self._topologies.values()]

    def _on_topologies(self, names: tuple[str, ...]) -> None:
        with self.changed:
            if self._closed:
                return
            present = {TopologyName(n) for n in names}
            for name in set(self._topologies) - present:
                self._topologies.pop(name).close()
            for name in present - set(self._topologies):
                self._topologies[name] = _Topology(self, name)
            self._listed = True
            self.touch()

    @property
    def ready(self) -> bool:
        """Whether everything has been read once."""
        with self.changed:
            families = (self._nodes, self._wanted, self._drains)
            return (
                self._listed
                and all(f.snapshot is not None for f in families)
                and all(t.loaded for t in self._topologies.values())
            )

    def facts(self, now: float, expected: Mapping[NodeId, float]) -> Facts:
        """What is known.

        Args:
            now: Seconds since 1970.
            expected: See `Facts`.
        """
        with self.changed:
            if self._facts is None or self._facts[0] != self.revision:
                known = {n: t.facts() for n, t in sorted(self._topologies.items())}
                new = Facts(
                    now=0.0,
                    nodes={NodeId(n): i for n, i in (self._nodes.snapshot or {}).items()},
                    wanted={NodeId(n): w for n, w in (self._wanted.snapshot or {}).items()},
                    drains={NodeId(n): data == FORCE for n, data in (self._drains.snapshot or {}).items()},
                    topologies={n: t for n, t in known.items() if t is not None},
                )
                self._facts = (self.revision, new)
            seen = self._facts[1]
        return Facts(now, seen.nodes, seen.wanted, seen.drains, dict(expected), seen.topologies)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until it is true; it is asked again at every change. Returns what it said last."""
        with self.changed:
            return self.changed.wait_for(predicate, timeout)

    def wake(self) -> None:
        """Make everybody who waits look again."""
        with self.changed:
            self.changed.notify_all()

    def close(self) -> None:
        """Follow nothing any more. Safe to call twice."""
        with self.changed:
            self._closed = True
            for part in self._parts():
                part.close()
            self._watch.cancel()
            self.changed.notify_all()


FORCE = b"force"
"""In a drain's node: state there may be lost."""
