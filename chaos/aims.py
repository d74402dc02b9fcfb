"""From a round to what it does: which tasks go where, and which process dies."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.cluster import Cluster, NotNow, Process, Stuck
from chaos.plan import INFRA, LARGE, MEMBERS, Round
from chaos.watch import Seen, Watch, reached
from elastic.errors import ElasticError
from elastic.model.ids import WorkerId

if TYPE_CHECKING:
    from chaos.rounds import Rounds

MOST_NODES = 4
ABORT = 10.0
"""Seconds that a step is waited for at which a move is aborted."""


@dataclass
class Aim:
    """What a round comes to, with what runs where.

    Attributes:
        node, other: Nodes that the victims are of, when they are whole nodes or supervisors.
        forgotten: What was saved is gone with them: members of Hazelcast have no files.
    """

    act: Callable[[], None]
    victims: Callable[[Seen], list[Process]]
    moving: set[int]
    what: str
    source: str = ""
    target: str = ""
    node: str = ""
    other: str = ""
    forgotten: bool = False


def numbers(tasks: Sequence[int]) -> str:
    return ",".join(map(str, sorted(tasks)))


def node_in(worker: str) -> str:
    """The node in a worker's name, or in a slot's."""
    return worker.rpartition("@")[2].partition("/")[0]


def drain(cluster: Cluster, node: str) -> None:
    """Drain a node, and have another one added."""
    try:
        cluster.client.drain_node(node, wait=0)
    finally:
        cluster.client.add_nodes(1, wait=0)


def aim(rounds: Rounds, cluster: Cluster, name: str, watch: Watch, round: Round) -> Aim:
    """What the round comes to, with what runs where."""
    chance = round.chance
    by_worker = rounds.by_worker()
    workers = sorted(by_worker)
    per_node: dict[str, list[int]] = {n: [] for n in rounds.nodes()}
    for worker, tasks in by_worker.items():
        per_node.setdefault(node_in(worker), []).extend(tasks)

    if round.victim in ("target", "target-node", "target-supervisor"):
        return _to_fresh(rounds, cluster, name, round, per_node)
    if round.victim in ("source-node", "source-supervisor") or (
        round.victim == "source" and round.action == "worker"
    ):
        return _all_away(rounds, cluster, name, round, per_node)

    source = chance.choice(workers)
    tasks = by_worker[source]
    action = round.action
    if round.hold and round.hold != ("prepare",):
        holders = [w for w in workers if set(by_worker[w]) & set(rounds.shape.held)]
        source = chance.choice(holders)
        tasks = sorted(set(by_worker[source]) & set(rounds.shape.held))
        action = "some" if action in ("rebalance", "scale") else action
    elif round.step in LARGE and action in ("some", "worker"):
        source = chance.choice([w for w in workers if set(by_worker[w]) & set(rounds.shape.count_tasks)])
        tasks = sorted(set(by_worker[source]) & set(rounds.shape.count_tasks))
    nodes = rounds.nodes()
    target = chance.choice([n for n in nodes if n != node_in(source)] or nodes)
    moving = set(tasks)
    if action == "worker":
        moving = set(by_worker[source])
        what = f"all of {source} ({numbers(sorted(moving))}) to {target}"

        def act() -> None:
            cluster.client.move(name, numbers(sorted(moving)), target, wait=0, share=1.0)
    elif action == "drain" and len(nodes) > 2 and len(per_node[node_in(source)]) > 0:
        gone = node_in(source)
        moving = set(per_node[gone])
        what = f"drain of {gone}, and another node"

        def act() -> None:
            drain(cluster, gone)
    elif action == "rebalance":
        count = chance.choice([n for n in (2, 3, 4, 5, 6) if n != len(workers)])
        moving = set(rounds.shape.tasks)
        what = f"rebalance from {len(workers)} to {count} workers"

        def act() -> None:
            cluster.client.rebalance(name, workers=count, wait=0, share=chance.choice((0.3, 0.5, 1.0)))
    elif action == "scale":
        counts = {"count": chance.randint(2, 8), "sink": chance.randint(2, 6)}
        moving = set(rounds.shape.tasks)
        what = f"scale to {counts}"

        def act() -> None:
            cluster.client.rebalance(name, executors=counts, wait=0)
            if int(watch.now.view.latest) == base:  # nothing had to move: something shall
                cluster.client.move(name, numbers(picked), target, wait=0)
    else:
        picked = sorted(chance.sample(tasks, min(len(tasks), chance.choice((1, 2, 4)))))
        moving = set(picked)
        what = f"tasks {numbers(picked)} of {source} to {target}"
        # One that is aborted sooner does not come to where it is held.
        ends = ("saved",) if round.hold else ("recorded", "prepared", "paused", "saved")
        end = chance.choice(ends) if action == "abort" else ""
        if end:
            what += f", aborted when {end}"

        def act() -> None:
            cluster.client.move(name, numbers(picked), target, wait=0)
            if end and watch.wait(end, lambda seen: reached(end, seen.view, base), ABORT):
                cluster.client.abort_move(name, why="chaos")

    base = int(watch.now.view.latest)
    picked = sorted(chance.sample(tasks, min(len(tasks), 2))) if action == "scale" else sorted(moving)
    node = other = ""
    hazelcast = cluster.options.store.startswith("hazelcast")
    if round.victim == "both-nodes":
        node, other = node_in(source), target
        if other == node:
            raise NotNow(f"there is no other node than {node}")
        victims = [*cluster.node(node), *cluster.node(other)]
    elif round.victim in ("bystander-node", "bystander-supervisor"):
        node = target if chance.random() < 0.5 else node_in(source)
        victims = cluster.node(node) if round.victim == "bystander-node" else [cluster.supervisor(node)]
    else:
        victims = _victim(cluster, round, source, target, workers, nodes, watch)
    return Aim(act, lambda _: victims, moving, what, source, target, node, other, bool(other) and hazelcast)


def _victim(
    cluster: Cluster,
    round: Round,
    source: str,
    target: str,
    workers: list[str],
    nodes: list[str],
    watch: Watch,
) -> list[Process]:
    victim, chance = round.victim, round.chance
    if victim == "nimbus":
        return [cluster.nimbus(leading=True)]
    if victim == "standby":
        return [cluster.nimbus(leading=False)]
    if victim == "zookeeper":
        return [cluster.zookeeper()]
    if victim in INFRA or victim in MEMBERS:
        kind, _, side = victim.partition("-")
        sides = {"source": node_in(source), "target": target.partition("/")[0]}
        node = sides.get(side) or chance.choice([n for n in nodes if n not in sides.values()] or nodes)
        return [cluster.store(node) if kind == "store" else cluster.member(node)]
    if victim == "bystander":
        worker = chance.choice([w for w in workers if w != source] or workers)
        return [cluster.worker(watch.now.workers[WorkerId(worker)].pid)]
    return [cluster.worker(watch.now.workers[WorkerId(source)].pid)]


def _to_fresh(
    rounds: Rounds, cluster: Cluster, name: str, round: Round, per_node: dict[str, list[int]]
) -> Aim:
    """To a worker, or a node, in which nothing of the topology runs: its death can cost only what goes there."""
    chance = round.chance
    if round.victim != "target":
        empty = [n for n, tasks in sorted(per_node.items()) if not tasks]
        if empty:
            node = chance.choice(empty)
        else:
            node = make_empty(rounds, cluster, name, per_node, chance)
            now = _per_node(rounds)
            if left := now.get(node):  # to go on would cost them, and be taken for a loss that nobody caused
                raise Stuck(f"{node} was emptied, and tasks {numbers(left)} run there")
            return _to_fresh(rounds, cluster, name, round, {**per_node, **now, node: []})
    by_worker = rounds.by_worker()
    fit = set(rounds.shape.tasks)
    if round.step in LARGE:
        fit = set(rounds.shape.count_tasks)
    elif round.hold and round.hold != ("prepare",):
        fit = set(rounds.shape.held)
    source = chance.choice([w for w in sorted(by_worker) if set(by_worker[w]) & fit])
    pool = sorted(set(by_worker[source]) & fit)
    moving = sorted(chance.sample(pool, min(len(pool), chance.choice((1, 2, 3, 6)))))
    slots = rounds.free_slots()
    if round.victim != "target":
        slots = [s for s in slots if s.startswith(f"{node}/")]
    if not slots:
        raise NotNow(f"no slot is free for a target: {by_worker}, {sorted(watch_workers(rounds))}")
    slot = chance.choice(slots)
    target = f"{name}@{slot}"

    def act() -> None:
        cluster.client.move(name, numbers(moving), slot, wait=0, share=1.0)

    known: list[Process] = []
    if round.victim == "target-node":
        known = cluster.node(slot.partition("/")[0])
    elif round.victim == "target-supervisor":
        known = [cluster.supervisor(slot.partition("/")[0])]

    def find(seen: Seen) -> list[Process]:
        info = seen.workers.get(WorkerId(target))
        if info is None or round.victim == "target-supervisor":
            return known
        return [*known, cluster.worker(info.pid)]

    what = f"tasks {numbers(moving)} of {source} to {slot}, where nothing runs"
    return Aim(act, find, set(moving), what, source, target, slot.partition("/")[0])


def _all_away(
    rounds: Rounds, cluster: Cluster, name: str, round: Round, per_node: dict[str, list[int]]
) -> Aim:
    """Everything of a worker, or of a node, goes away: from `saved` on nothing is left there that could be lost."""
    chance = round.chance
    by_worker = rounds.by_worker()
    held = bool(round.hold) and round.hold != ("prepare",)
    if round.victim == "source":
        choices = [w for w in sorted(by_worker) if not held or set(by_worker[w]) & set(rounds.shape.held)]
        source = chance.choice(choices)
        moving = by_worker[source]
        node = node_in(source)
        slots = [s for s in rounds.free_slots() if chance.random() < 0.7 or not s.startswith(node)]
        others = [w.partition("@")[2] for w in sorted(by_worker) if w != source]
        target = (
            chance.choice(slots + others)
            if slots + others
            else chance.choice([n for n in rounds.nodes() if n != node])
        )
    else:
        full = [
            n
            for n, tasks in sorted(per_node.items())
            if tasks and (not held or set(tasks) & set(rounds.shape.held))
        ]
        node = chance.choice(full)
        source, moving = node, per_node[node]
        target = chance.choice([n for n in rounds.nodes() if n != node])

    def act() -> None:
        cluster.client.move(name, numbers(moving), target, wait=0, share=1.0)

    pid = 0
    if round.victim == "source":
        pid = rounds.watch.now.workers[WorkerId(source)].pid
        victims = [cluster.worker(pid)]
    elif round.victim == "source-node":
        victims = cluster.node(node)
    else:
        victims = [cluster.supervisor(node)]
    what = f"all of {source} ({numbers(moving)}) to {target}"
    return Aim(act, lambda _: victims, set(moving), what, source, target, node)


def make_empty(
    rounds: Rounds, cluster: Cluster, name: str, per_node: dict[str, list[int]], chance: random.Random
) -> str:
    """A node on which nothing runs: a new one as long as there are few, else the one with the least is emptied."""
    if len(per_node) < MOST_NODES:
        try:
            (node,) = cluster.client.add_nodes(1, wait=30)
            return str(node)
        except ElasticError as e:
            raise NotNow(f"no node could be added: {e}") from e
    least = min(sorted(per_node), key=lambda n: len(per_node[n]))
    other = chance.choice([n for n in sorted(per_node) if n != least])
    try:
        cluster.client.move(name, numbers(per_node[least]), other, wait=30)
    except ElasticError as e:
        raise NotNow(f"{least} could not be emptied: {e}") from e
    rounds.settle()
    return least


def watch_workers(rounds: Rounds) -> set[str]:
    return {str(w) for w in rounds.watch.now.workers}


def _per_node(rounds: Rounds) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {n: [] for n in rounds.nodes()}
    for worker, tasks in rounds.by_worker().items():
        found.setdefault(node_in(worker), []).extend(tasks)
    return found
