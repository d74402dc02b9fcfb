"""Views, topologies and reports for the tests of elasticity, in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elastic.elasticity.base import Bounds, Room, Subject
from elastic.elasticity.kinds import ComponentLoad, components
from elastic.model.ids import ComponentId, NodeId, TopologyName, WorkerId
from elastic.model.load import ExecutorLoad, PairLoad, TaskLoad, WorkerReport
from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad, WorkerLoad
from elastic.model.split import split_tasks
from elastic.model.topology import TopologySpec
from elastic.simulation.model import Cost, chain

TASKS = 32


def spec(name: str = "t", **executors: int) -> TopologySpec:
    """A chain of components with so many executors each, 32 tasks each but the spout; the first is a spout with one task."""
    parts = [(c, n, TASKS if i else n, Cost()) for i, (c, n) in enumerate(executors.items())]
    return chain(name, parts).spec


def subject(topology: TopologySpec, workers: int = 1, *, settled: bool = True, **bounds: Bounds) -> Subject:
    """The topology as it was specified."""
    executors = {c.id: c.executors for c in topology.components}
    return Subject(
        topology, executors, workers, {ComponentId(c): b for c, b in bounds.items()}, settled=settled
    )


def keys(topology: TopologySpec, component: str, executors: int) -> list[ExecutorKey]:
    """The executors of a component if it has so many."""
    id = ComponentId(component)
    return [ExecutorKey(topology.name, e) for e in split_tasks(id, topology.tasks_of(id), executors)]


def view(
    topology: TopologySpec,
    loads: Mapping[str, Sequence[SmoothedLoad]],
    *,
    workers: Mapping[str, tuple[float, Sequence[str]]] | None = None,
    nodes: Mapping[str, tuple[float, float]] | None = None,
) -> LoadView:
    """What is measured of one topology.

    Args:
        loads: Of each component, those of its executors.
        workers: Of each worker its CPU and the components that it has executors of; default: every executor alone.
        nodes: Of each node its cores and their use.
    """
    by = {c: dict(zip(keys(topology, c, len(of)), of, strict=True)) for c, of in loads.items()}
    all_ = {k: x for of in by.values() for k, x in of.items()}
    placed: dict[WorkerId, WorkerLoad] = {}
    if workers is None:
        for i, (k, x) in enumerate(all_.items()):
            placed[WorkerId(f"{topology.name}@n1/{i}")] = WorkerLoad(x.cpu, 0.0, (k,))
    else:
        for name, (cpu, of) in workers.items():
            here = tuple(k for c in of for k in by[c])
            placed[WorkerId(f"{topology.name}@{name}")] = WorkerLoad(cpu, 0.0, here)
    known = {NodeId(n): NodeLoad(cores, cpu) for n, (cores, cpu) in (nodes or {}).items()}
    return LoadView(all_, {}, known, 0.0, placed)


def busy(share: float, cpu: float | None = None, **more: Any) -> SmoothedLoad:
    """An executor that is busy for that share of its time, all of it computing unless said otherwise."""
    values = {"samples": 10, "executed": share * 100, "emitted": share * 100, **more}
    return SmoothedLoad(cpu=share if cpu is None else cpu, busy=share, idle=1.0 - share, **values)


def measured(topology: TopologySpec, of: LoadView) -> dict[ComponentId, ComponentLoad]:
    """What the components do, as a policy gets it."""
    return components(of, topology)


ROOM = Room()


def report(
    at: float,
    tasks: Mapping[int, tuple[str, int, int]],
    *,
    worker: str = "t@n1/0",
    life: int = 1,
    epoch: int = 1,
    shares: Mapping[str, tuple[float, float, float, float]] | None = None,
    pairs: Sequence[tuple[int, int, int, int]] = (),
    cpu: float = 0.0,
    **more: Any,
) -> WorkerReport:
    """What a worker reports.

    Args:
        tasks: (executor, executed, emitted) of each task.
        shares: (busy, blocked, idle, cpu) of each executor; default: idle.
    """
    executors = sorted({e for e, _, _ in tasks.values()})
    given = shares or {}
    return WorkerReport(
        TopologyName("t"),
        worker,
        f"{worker}#{life}",
        at,
        epoch,
        cpu=cpu,
        tasks=tuple(
            TaskLoad(t, e.partition("[")[0], e, done, out, **more) for t, (e, done, out) in tasks.items()
        ),
        executors=tuple(ExecutorLoad(e, *given.get(e, (0.0, 0.0, 1.0, 0.0)), 100) for e in executors),
        pairs=tuple(PairLoad(*p) for p in pairs),
    )
