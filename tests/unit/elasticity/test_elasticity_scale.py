"""Size: 10,000 executors on 1,000 nodes, with 100,000 pairs that exchange tuples."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from elastic.elasticity.base import Room, Subject
from elastic.elasticity.infrastructure import Infrastructure, Node, Past, Wants, decide, measured
from elastic.elasticity.manager import ElasticityManager
from elastic.model.ids import NodeId, WorkerId
from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad, WorkerLoad
from elastic.model.split import split_tasks
from elastic.simulation import Simulation, SimulationOptions
from elastic.simulation.model import Cost, chain
from elastic.simulation.profile import steady

NODES = 1000


@pytest.mark.parametrize("policy", ["thresholds", "ds2"])
def test_a_decision_for_ten_thousand_executors_is_quick(policy: str) -> None:
    """Ten components of a thousand executors each. The bound of a second is checked with room, on the CPU time of this thread."""
    costs = [(f"c{i}", 1000, 4000 if i else 1000, Cost(0.01)) for i in range(10)]
    spec = chain("large", costs).spec
    keys = [
        [ExecutorKey(spec.name, e) for e in split_tasks(c.id, spec.tasks_of(c.id), 1000)]
        for c in spec.components
    ]
    load = SmoothedLoad(cpu=0.85, busy=0.9, executed=80, emitted=80, newest=80, samples=9)
    executors = dict.fromkeys((k for of in keys for k in of), load)
    traffic = {
        (a, of[(i * 7 + j) % 1000]): 8.0
        for before, of in pairwise(keys)
        for i, a in enumerate(before)
        for j in range(11)
    }
    every = list(executors)
    workers = {
        WorkerId(f"large@n{n}/{s}"): WorkerLoad(0.9, 0, tuple(every[(n * 5 + s) * 2 : (n * 5 + s) * 2 + 2]))
        for n in range(NODES)
        for s in range(5)
    }
    nodes = {NodeId(f"n{n}"): NodeLoad(16.0, 9.0) for n in range(NODES)}
    view = LoadView(executors, traffic, nodes, 0.0, workers)
    assert (len(executors), len(traffic)) == (10_000, 99_000)
    subject = Subject(spec, {c.id: c.executors for c in spec.components}, 5000)
    manager = ElasticityManager(policy)
    began = time.thread_time()
    outcome = manager.run(view, [subject], Room(16.0 * NODES, 9.0 * NODES, 5000), 1.0)
    have = [Node(n, 8, 5, 10) for n in nodes]
    wants = Wants(outcome.cores, outcome.lacking, outcome.workers)
    decide(measured(have, view), wants, Infrastructure(enabled=True, maximum=2000), Past(), 1.0)
    assert time.thread_time() - began < 1.0
    assert outcome.decision is not None
    assert sum(outcome.decision.executors.values()) > 15_000


def test_ten_thousand_executors_are_simulated() -> None:
    model = chain(
        "large", [("source", 1, 1, Cost()), ("work", 9_999, 20_000, Cost(0.02, makes=0.0))], workers=4000
    )
    options = SimulationOptions(nodes=NODES, cores=8.0, slots=8, step=1.0, report=2.0, pairs=False)
    result = Simulation(model, steady(12.0, 400_000.0), options=options).run()
    assert result.samples[0].executors == 10_000
    assert len(result.decisions) >= 1
    assert result.samples[-1].executors > 10_000
