"""T-Storm as a scheduler: algorithm 1, and when its schedule is worth taking. T-Storm (2014), section IV.C; docs/schedulers.md."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic.model.assignment import Assignment
from elastic.model.ids import TopologyName
from elastic.model.loadview import LoadView
from elastic.model.words import counted
from elastic.scheduler import overload
from elastic.scheduler.algorithm1 import EPSILON, Algorithm1, Schedule, TStormParams
from elastic.scheduler.base import ClusterView, Demand
from elastic.scheduler.decision import Decision, Reason
from elastic.scheduler.instance import Home, Instance, cores_of
from elastic.scheduler.labels import label
from elastic.scheduler.prepare import prepare

_SAVES = "it saves"
__all__ = ["Standing", "TStormParams", "decide", "excess"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How good a placement is by the algorithm's own measure: what comes first counts first, less is better.

    Attributes:
        homeless: Executors without a place on an open node.
        excess: Cores by which capacities of nodes and workers are exceeded.
        irregular: Executors on a node beyond what gamma allows, and workers beyond what a topology may have on one node.
        cut: Tuples per second between nodes.
        nodes: How many are used.
    """

    homeless: int
    excess: float
    irregular: int
    cut: float
    nodes: int

    @classmethod
    def of(cls, p: Instance, homes: Sequence[Home | None], run: Algorithm1) -> Standing:
        """That of a placement.

        Args:
            run: Gives limits and capacities only.
        """
        node_load = [n.load for n in p.nodes]
        count = [n.count for n in p.nodes]
        workers: dict[tuple[TopologyName, int, int], list[float]] = defaultdict(list)
        homeless = 0
        for i, home in enumerate(homes):
            if home is None or not p.nodes[home[0]].open:
                homeless += 1
            if home is not None:
                node_load[home[0]] += p.load[i]
                count[home[0]] += 1
                workers[p.keys[i].topology, *home].append(p.load[i])
        over = [max(0.0, x - run.cap[k]) for k, x in enumerate(node_load) if p.nodes[k].open]
        over += [max(0.0, sum(ls) - run.worker_cap) for ls in workers.values() if len(ls) > 1]
        beyond = [max(0, count[k] - run.limit) for k in run.usable]
        executors = sum(count[k] for k in run.usable)
        allowed = max(0, executors - run.limit * len(run.usable))
        irregular = sum(max(0, b - 1) for b in beyond) + max(0, sum(b > 0 for b in beyond) - allowed)
        each: dict[tuple[TopologyName, int], int] = defaultdict(int)
        for topology, node, _ in workers:
            each[topology, node] += 1
        irregular += sum(max(0, n - run.most[k]) for (_, k), n in each.items())
        excess = math.fsum(over)
        cut = p.cut([None if h is None else h[0] for h in homes])
        return cls(
            homeless, excess if excess > EPSILON else 0.0, irregular, cut, len({h[0] for h in homes if h})
        )

    @property
    def duty(self) -> tuple[int, float, int]:
        """What comes before traffic."""
        return self.homeless, round(self.excess, 6), self.irregular


def decide(
    demands: Sequence[Demand],
    cluster: ClusterView,
    load: LoadView,
    current: Mapping[TopologyName, Assignment],
    params: TStormParams,
) -> Decision:
    """One schedule by T-Storm. See `elastic.scheduler.decision.Decide`.

    Topologies about which nothing has been measured keep what round robin gives them, with at most one worker on a node, as in the
    paper; marked ones are placed by minimal relocation this time.
    """
    ready = prepare(
        demands,
        cluster,
        load,
        current,
        capacity=params.capacity,
        worker_cores=params.worker_cores,
        measure=params.measure,
        workers_per_node=params.workers_per_node,
        one_worker_a_node=params.workers_per_node == 1,
    )
    if not ready.movable:
        return ready.decision(
            Reason(
                "nothing-measured",
                "Nothing was measured yet, or only what has just been placed: T-Storm waits.",
            )
        )
    p = Instance(ready.movable, cluster, ready.load, ready.places, params.measure, ready.pinned)
    run = Algorithm1(p, params)
    found = run.run()
    homes = label(p, found.groups, run.cap)
    old, new = Standing.of(p, p.home, run), Standing.of(p, homes, run)
    verdict = _verdict(old, new, params)
    about: dict[str, str | int | float] = {
        "before": old.cut,
        "after": new.cut if verdict else old.cut,
        "nodes_before": old.nodes,
        "nodes_after": new.nodes if verdict else old.nodes,
        "limit": run.limit,
        "gamma": params.gamma,
        "traffic": p.traffic,
    }
    if verdict.startswith(_SAVES) and p.traffic:
        about["saves"] = (old.cut - new.cut) / p.traffic
    usable = counted(len(run.usable), "node")
    allowance = (
        f"gamma {params.gamma:g} allows {run.limit} of {counted(len(p.keys), 'executor')} on each of {usable}"
    )
    change = (
        f"traffic between nodes {old.cut:,.0f} -> {new.cut:,.0f} of {p.traffic:,.0f} tuples/s, "
        f"nodes in use {old.nodes} -> {new.nodes}; {allowance}"
    )
    reasons = []
    if not verdict:
        reasons.append(Reason("kept", f"The placement stays: a new one would bring {change}.", details=about))
        final = old
        answer = p.assignments(p.home, current)
    else:
        reasons.append(
            Reason("rescheduled", f"T-Storm's schedule, because {verdict}: {change}.", details=about)
        )
        final = new
        answer = p.assignments(homes, current)
    reasons += _shortage(p, run, found, final)
    return ready.decision(*reasons, assignments=answer)


def _verdict(old: Standing, new: Standing, params: TStormParams) -> str:
    """Why the new placement is to be taken; "" when it is not."""
    if new.homeless != old.homeless:
        lacked = f"{counted(old.homeless - new.homeless, 'executor')} had no place on an open node"
        return lacked if new.homeless < old.homeless else ""
    relief = round(old.excess - new.excess, 6)
    if relief < 0:
        return ""
    # Where everything is full, some other placement is always a little less so: that is measuring, and no reason to move.
    if relief > 0 and relief >= params.gain * old.excess:
        return f"capacities were exceeded by {old.excess:.2f} cores (now {new.excess:.2f})"
    if new.irregular != old.irregular:
        beyond = f"gamma and --workers-per-node were exceeded by {old.irregular} (now {new.irregular})"
        return beyond if new.irregular < old.irregular else ""
    if new.cut < old.cut and old.cut - new.cut >= params.gain * old.cut:
        return f"{_SAVES} {(old.cut - new.cut) / old.cut:.0%} of the traffic between nodes"
    if new.nodes < old.nodes and new.cut <= old.cut:
        return f"it needs {counted(old.nodes - new.nodes, 'node')} less and no more traffic"
    return ""


def excess(
    cluster: ClusterView, load: LoadView, current: Mapping[TopologyName, Assignment], params: TStormParams
) -> float:
    """Cores by which nodes and workers exceed their capacities: what does not wait for the next period."""
    return overload.excess(
        cluster,
        load,
        current,
        capacity=params.capacity,
        worker_cores=params.worker_cores,
        measure=params.measure,
    )


def _shortage(p: Instance, run: Algorithm1, found: Schedule, final: Standing) -> list[Reason]:
    """Warnings about what does not fit."""
    reasons = []
    if final.excess > 0:
        have = sum(run.cap[k] for k in run.usable)
        need = sum(p.load) + sum(p.nodes[k].load for k in run.usable)
        nodes = counted(len(run.usable), "node")
        which = "" if not found.strained else f"; the first that found no room: {p.keys[found.strained[0]]}"
        reasons.append(
            Reason(
                "resources-lack",
                f"Capacities are exceeded by {final.excess:.2f} cores: executors use {need:.2f}, {nodes} may give "
                f"{have:.2f} ({run.params.capacity:.0%} of the cores), and a worker {run.worker_cap:.2f}{which}. "
                f"{_remedy(run, need, have)}",
                warning=True,
                details={"excess": final.excess, "needed": need, "available": have},
            )
        )
    if final.homeless:
        lack = f"{counted(final.homeless, 'executor')} without a slot on an open node."
        reasons.append(
            Reason(
                "slots-lack",
                f"{lack} Add nodes or slots.",
                warning=True,
                details={"executors": final.homeless},
            )
        )
    return reasons


def _remedy(run: Algorithm1, need: float, have: float) -> str:
    """What helps where capacities are exceeded."""
    # A worker is one interpreter, with one lock: where nodes have cores left, it is workers that are missing.
    if need <= have and any(run.most[k] < cores_of(run.p.nodes[k].cores) for k in run.usable):
        return (
            "Its nodes have cores left: let it have as many workers on a node as the node has cores (--workers-per-node 0); "
            "if its work releases the interpreter's lock, let a worker use more than one core (--worker-cores 0)."
        )
    return "Add nodes, slots or executors."
