"""A Nimbus for tests of the network: real bundles and events, canned answers, and a record of what it was asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastic.control.server import ControlServer
from elastic.errors import ElasticError, NotFound
from elastic.model.assignment import Assignment
from elastic.model.events import Event, Severity
from elastic.model.ids import TopologyName
from elastic.model.load import NodeReport, WorkerReport
from elastic.model.records import TopologyState, TopologyStatus
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.model.views import (
    ElasticityView,
    MoveView,
    NodeSummary,
    SizedView,
    TopologyDetail,
    TopologySummary,
    WorkerView,
)
from elastic.nimbus.balancing.generators import Generators, Seat
from elastic.nimbus.bundle_store import BundleStore
from elastic.nimbus.event_log import EventLog

WAIT = 30.0


class FakeNimbus:
    """Answers like Nimbus, from attributes that the test sets.

    Attributes:
        fail: Raised by the next requests.
        block: While cleared, requests that wait do so.
        calls: (method, arguments) of every request.
    """

    def __init__(self, directory: Path) -> None:
        self.leading = True
        self.leader_address: str | None = None
        self.bundles = BundleStore(directory / "bundles", limit=64 << 20)
        self.events = EventLog(None)
        self.fail: ElasticError | None = None
        self.block = threading.Event()
        self.block.set()
        self.entered = threading.Event()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.specs: dict[str, TopologySpec] = {}
        self.node_list: tuple[NodeSummary, ...] = ()
        self.worker_views: tuple[WorkerView, ...] = ()
        self.ingested: list[tuple[str, tuple[WorkerReport, ...], tuple[Event, ...]]] = []
        self.measured: list[NodeReport] = []
        self.generators = Generators(lambda _: None, WAIT)
        self.elastic = ElasticityView("thresholds", topologies=(SizedView(TopologyName("wc"), "thresholds"),))
        self.moved: list[tuple[int, MoveView]] = []
        self.changed = threading.Condition()

    def _called(self, method: str, **arguments: Any) -> None:
        with self.changed:
            self.calls.append((method, arguments))
            self.changed.notify_all()
        self.entered.set()
        assert self.block.wait(WAIT)
        if self.fail is not None:
            raise self.fail

    def leader(self) -> str | None:
        return self.leader_address

    def submit(self, spec: TopologySpec, *, bundle: str, requires: Sequence[str] = ()) -> TopologyState:
        self._called("submit", spec=spec, bundle=bundle, requires=tuple(requires))
        self.specs[spec.name] = spec
        return self._state(bundle)

    def _state(self, bundle: str = "b") -> TopologyState:
        return TopologyState(TopologyStatus.ACTIVE, "id-1", bundle, 5.0, settings={"x": 1, "y": True})

    def _summary(self, spec: TopologySpec) -> TopologySummary:
        return TopologySummary(spec.name, "id-1", TopologyStatus.ACTIVE, 5.0, 1.5, spec.task_count, 1, 1)

    def topologies(self) -> tuple[TopologySummary, ...]:
        self._called("topologies")
        return tuple(self._summary(s) for s in self.specs.values())

    def describe(self, name: str) -> TopologyDetail:
        self._called("describe", name=name)
        if name not in self.specs:
            raise NotFound(f"no topology {name}", remedy="elastic list shows what there is")
        spec = self.specs[name]
        errors = tuple(e for _, e in self.events.since(0, name))
        return TopologyDetail(
            self._summary(spec),
            spec,
            self._state(),
            Assignment(spec.name, 1),
            workers=self.worker_views,
            errors=errors,
        )

    def kill(self, name: str, *, wait: float) -> None:
        self._called("kill", name=name, wait=wait)

    def activate(self, name: str) -> None:
        self._called("activate", name=name)

    def deactivate(self, name: str, *, wait: float = 0) -> bool:
        self._called("deactivate", name=name, wait=wait)
        return True

    def rebalance(
        self,
        name: str,
        *,
        executors: Mapping[str, int],
        workers: int | None,
        wait: float,
        share: float | None = None,
    ) -> Assignment:
        self._called(
            "rebalance", name=name, executors=dict(executors), workers=workers, wait=wait, share=share
        )
        return Assignment(self.specs[name].name if name in self.specs else name, 7)  # type: ignore[arg-type]

    def move(
        self, name: str, what: str, where: str, *, wait: float, share: float | None = None
    ) -> Assignment:
        self._called("move", name=name, what=what, where=where, wait=wait, share=share)
        return Assignment(name, 8)  # type: ignore[arg-type]

    def abort_move(
        self, name: str, epoch: int | None = None, why: str = "", *, force: bool = False
    ) -> tuple[int, ...]:
        self._called("abort_move", name=name, epoch=epoch, why=why, force=force)
        return (epoch,) if epoch is not None else (3, 4)

    def moves(self, name: str | None = None) -> tuple[MoveView, ...]:
        self._called("moves", name=name)
        newest = {(m.topology, m.epoch): (at, m) for at, m in self.moved if name in (None, m.topology)}
        return tuple(m for _, m in sorted(newest.values(), key=lambda each: -each[0]))

    def changed_moves(
        self, seen: int, timeout: float, name: str | None = None
    ) -> tuple[int, tuple[MoveView, ...]]:
        with self.changed:
            self.changed.wait_for(lambda: len(self.moved) > seen, timeout)
            new = tuple(m for _, m in self.moved[seen:] if name in (None, m.topology))
            return len(self.moved), new

    def moves_on(self, move: MoveView) -> None:
        """Something of a move changes."""
        with self.changed:
            self.moved.append((len(self.moved) + 1, move))
            self.changed.notify_all()

    def nodes(self) -> tuple[NodeSummary, ...]:
        self._called("nodes")
        return self.node_list

    def add_nodes(self, count: int, *, slots: int | None, host: str, wait: float) -> tuple[str, ...]:
        self._called("add_nodes", count=count, slots=slots, host=host, wait=wait)
        return tuple(f"node-{n}" for n in range(count))

    def drain_node(self, node: str, *, wait: float, force: bool = False) -> None:
        self._called("drain_node", node=node, wait=wait, force=force)

    def elasticity(self) -> ElasticityView:
        self._called("elasticity")
        return self.elastic

    def set_elasticity(self, **changes: Any) -> ElasticityView:
        self._called("set_elasticity", **changes)
        self.elastic = replace(self.elastic, **{k: v for k, v in changes.items() if v is not None})
        return self.elastic

    def attach_generator(self, name: str) -> Seat:
        self._called("attach_generator", name=name)
        return self.generators.attach(name)

    def ingest(
        self,
        node: str,
        reports: Sequence[WorkerReport],
        events: Sequence[Event],
        nodes: Sequence[NodeReport] = (),
    ) -> None:
        self._called("ingest", node=node)
        with self.changed:
            self.measured += nodes
            self.ingested.append((node, tuple(reports), tuple(events)))
            self.changed.notify_all()

    def wait_until(self, condition: Any) -> None:
        """Until `condition(self)` holds; looked at after every call."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), WAIT), f"calls: {self.calls}"

    def got(self, method: str) -> list[dict[str, Any]]:
        return [arguments for name, arguments in self.calls if name == method]


def spec(name: str = "words", **config: Any) -> TopologySpec:
    component = ComponentSpec("lines", "spout", 4, 2, config={"rate": 10, "deep": {"a": [1, 2.5, None]}})  # type: ignore[arg-type]
    return TopologySpec(name, (component,), 2, config)  # type: ignore[arg-type]


@contextmanager
def serving(nimbus: FakeNimbus, **options: Any) -> Iterator[ControlServer]:
    server = ControlServer(nimbus, **options)  # type: ignore[arg-type]
    server.start()
    try:
        yield server
    finally:
        nimbus.block.set()
        server.close(0.2)


def threads(prefix: str) -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith(prefix))


def lasting(prefix: str, timeout: float = WAIT) -> list[str]:
    """The threads with such names that have not ended in time: what is being closed may still be on its way out."""
    found = [t for t in threading.enumerate() if t.name.startswith(prefix)]
    for thread in found:
        thread.join(timeout)
    return sorted(t.name for t in found if t.is_alive())


def event(number: int, topology: str = "words", severity: Severity = Severity.INFO) -> Event:
    return Event(float(number), f"kind-{number}", "m", severity, topology=topology, details={"n": number})


def a_bundle(directory: Path) -> Path:
    path = directory / "bundle.zip"
    path.write_bytes(bytes(range(256)) * (12 << 10))  # 3 MiB: several pieces
    return path


def eventually(condition: Any) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("it did not happen")


def free_port() -> str:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
