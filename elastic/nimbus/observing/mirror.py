"""What coordination holds, followed by watches: `facts()` puts it together, `wait_for` waits until it is so.

The mirror may lag behind, never ahead, and never mixes two topologies that had the same name one after the
other: when the state shows another id, everything below that name is read again, and until then the topology
is not in the facts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.checkpoints import Checkpoints
from elastic.model.ids import NodeId, TopologyName
from elastic.model.records import ElasticitySettings, Progress, TopologyState, WantedNode, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.nimbus.observing.followed import FollowedValue, FollowedValues, read_value
from elastic.nimbus.observing.followed_moves import FollowedMoves
from elastic.nimbus.observing.plans import Plan


class _Parts(NamedTuple):
    """What is followed of one topology beside its state."""

    spec: FollowedValue
    assignment: FollowedValue
    plan: FollowedValue
    checkpoints: FollowedValue
    workers: FollowedValues
    progress: FollowedValues
    moves: FollowedMoves


class _Topology:
    """Everything about one topology; what lies beside the state is followed anew for each id."""

    def __init__(self, mirror: Mirror, name: TopologyName) -> None:
        self._mirror, self._name = mirror, name
        self._id = ""
        self._parts: _Parts | None = None
        self.state = FollowedValue(mirror, paths.state(name), TopologyState)

    def settle(self) -> None:
        state: TopologyState | None = self.state.value
        if (state.id if state is not None else "") != self._id:
            self._close_parts()
            self._id = state.id if state is not None else ""
            if state is not None:
                mirror, name = self._mirror, self._name
                self._parts = _Parts(
                    FollowedValue(mirror, paths.spec(name), TopologySpec),
                    FollowedValue(mirror, paths.assignment(name), Assignment),
                    FollowedValue(mirror, paths.plan(name), Plan),
                    FollowedValue(mirror, paths.checkpoint(name), Checkpoints),
                    FollowedValues(mirror, paths.workers(name), WorkerInfo),
                    FollowedValues(mirror, paths.progress(name), Progress),
                    FollowedMoves(mirror, name),
                )
        if self._parts is not None:
            for part in (self._parts.workers, self._parts.progress, self._parts.moves):
                part.settle()

    @property
    def loaded(self) -> bool:
        """Whether all that there is about it has been read once."""
        if not self.state.loaded or self._parts is None:
            return self.state.loaded
        p = self._parts
        return all(
            part.loaded for part in (p.spec, p.assignment, p.plan, p.checkpoints, p.moves)
        ) and None not in (p.workers.snapshot, p.progress.snapshot)

    def facts(self) -> TopologyFacts | None:
        p = self._parts
        if p is None or not self.loaded or p.spec.value is None:
            return None
        living, done = p.workers.snapshot or {}, p.progress.snapshot or {}
        checkpoints: Checkpoints | None = p.checkpoints.value
        generation = checkpoints.generation if checkpoints is not None else 0
        return TopologyFacts(
            spec=p.spec.value,
            state=self.state.value,
            state_version=self.state.version,
            assignment=p.assignment.value,
            assignment_version=p.assignment.version,
            workers={paths.unleaf(n): w for n, w in living.items()},
            progress={paths.unleaf(n): d for n, d in done.items() if d.generation >= generation},
            moves=p.moves.snapshot or {},
            latest=p.moves.latest,
            latest_version=p.moves.latest_version,
            plan=p.plan.value,
            plan_version=p.plan.version,
            checkpoints=checkpoints,
            checkpoints_version=p.checkpoints.version,
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

    Attributes:
        revision: Grows with every change.
        asked: Grows when it may be another thing that is asked for: what topologies there are, in what state, and who resizes and places
            them. How far workers are, and moves, is not of it.
    """

    def __init__(self, coordination: Coordination) -> None:
        self.coordination = coordination
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.revision = self.asked = 0
        self._asked_anew = threading.Condition(lock)
        self._asks: tuple[object, ...] = ()
        self._closed = False
        self._facts: tuple[int, Facts] | None = None
        self._topologies: dict[TopologyName, _Topology] = {}
        self._listed = False
        with self.changed:
            self._elasticity = FollowedValue(self, paths.ELASTICITY, None)
            self._nodes = FollowedValues(self, paths.NODES, NodeInfo)
            self._wanted = FollowedValues(self, paths.WANTED, WantedNode)
            self._drains = FollowedValues(self, paths.DRAINS, None)
            self._watch = coordination.watch_children(paths.TOPOLOGIES, self._on_topologies)

    def touch(self) -> None:
        """Something has changed; called with the lock."""
        self.revision += 1
        if not self._closed:
            for part in self._parts():
                part.settle()
        if (asks := self._what_is_asked()) != self._asks:
            self._asks = asks
            self.asked += 1
            self._asked_anew.notify_all()
        self.changed.notify_all()

    def _what_is_asked(self) -> tuple[object, ...]:
        topologies = [(n, t.state.version, t.loaded) for n, t in self._topologies.items()]
        return self._elasticity.version, self._listed, topologies

    def _parts(self) -> list[FollowedValues | _Topology]:
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

    @property
    def complete(self) -> bool:
        """Whether the facts show every topology that is listed: none is still being read, none is without what it needs."""
        with self.changed:
            return self._listed and self._newest().topologies.keys() == self._topologies.keys()

    @property
    def elasticity(self) -> ElasticitySettings:
        """Who resizes and places topologies, as far as it was read."""
        with self.changed:
            data = self._elasticity.value
        found = read_value(paths.ELASTICITY, data, ElasticitySettings) if data else None
        return found or ElasticitySettings()

    def facts(self, now: float, expected: Mapping[NodeId, float]) -> Facts:
        """What is known.

        Args:
            now: Seconds since 1970.
            expected: See `Facts`.
        """
        with self.changed:
            seen = self._newest()
        return Facts(now, seen.nodes, seen.wanted, seen.drains, dict(expected), seen.topologies)

    def _newest(self) -> Facts:
        """What is known, put together once for each revision. With the lock."""
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
        return self._facts[1]

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until it is true; it is asked again at every change. Returns what it said last."""
        with self.changed:
            return self.changed.wait_for(predicate, timeout)

    def wait_asked(self, predicate: Callable[[], bool]) -> None:
        """Wait until it is true; it is asked again when `asked` has grown, and when this is closed."""
        with self.changed:
            self._asked_anew.wait_for(predicate)

    def nudge(self) -> None:
        """Something has changed that is not in coordination: who waits for a change goes on."""
        with self.changed:
            self.revision += 1
            self.changed.notify_all()

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
            self._elasticity.close()
            self._watch.cancel()
            self._asked_anew.notify_all()
            self.changed.notify_all()


FORCE = b"force"
"""In a drain's node: state there may be lost."""
