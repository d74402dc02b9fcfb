"""What an operator names when tasks are to be moved: which tasks, and where to. Pure."""

from __future__ import annotations

import re
from collections import Counter

from elastic.errors import Conflict, NotFound, Refused
from elastic.model.assignment import Assignment, WorkerSlot
from elastic.model.ids import ComponentId, NodeId, TaskId, WorkerId, node_of, worker_id
from elastic.model.topology import TopologySpec
from elastic.nimbus.observing.facts import Facts, TopologyFacts, slot_of
from elastic.nimbus.observing.plans import relocated

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NAMED = re.compile(r"(.+?)(?:\[(\d+)(?:-(\d+))?\])?")


def tasks_named(spec: TopologySpec, what: str) -> list[TaskId]:
    """The tasks that a text names: task numbers, executors and components, with commas between.

    Args:
        what: `7`, `3-5`, `count`, `count[3-4]` (as executors are written), or several of these: `3,5-7,count[9-9]`.

    Raises:
        NotFound: There is no such task or component.
    """
    found: set[TaskId] = set()
    for part in (p.strip() for p in what.split(",")):
        if match := _RANGE.fullmatch(part):
            found |= _range(
                spec, range(1, spec.task_count + 1), match[1], match[2], f"topology {spec.name!r}"
            )
            continue
        match = _NAMED.fullmatch(part)
        names = [str(c.id) for c in spec.components]
        if match is None or match[1] not in names:
            raise NotFound(
                f"topology {spec.name!r} has no task or component {part!r}",
                remedy=f"name tasks (`7`, `3-5`), executors (`{names[0]}[1-2]`) or components: it has {', '.join(names)}",
            )
        tasks = spec.tasks_of(ComponentId(match[1]))
        if match[2] is None:
            found.update(map(TaskId, tasks))
        else:
            found |= _range(spec, tasks, match[2], match[3], f"component {match[1]!r}")
    return sorted(found)


def _range(spec: TopologySpec, within: range, first: str, last: str | None, of: str) -> set[TaskId]:
    a, b = int(first), int(last or first)
    if a > b or a not in within or b not in within:
        named = f"task {a}" if last is None or a == b else f"tasks {a} to {b}"
        order = "; write the smaller number first" if a > b else ""
        raise NotFound(
            f"{of} has no {named}", remedy=f"it has tasks {within.start} to {within.stop - 1}{order}"
        )
    return {TaskId(t) for t in range(a, b + 1)}


def place_for(
    facts: Facts, t: TopologyFacts, base: Assignment, tasks: list[TaskId], where: str
) -> Assignment:
    """The assignment with these tasks where an operator wants them.

    Args:
        where: A worker (`wc@node-1/0`), a slot (`node-1/0`) or a node: there, the worker of the topology that has fewest tasks, or
            one in a free slot. Tasks that are on that node already stay in their worker.

    Raises:
        NotFound, Refused: There is no such place, or it cannot be had.
    """
    places = base.place_of()
    if waiting := [n for n in tasks if n not in places]:
        raise Refused(
            f"task {waiting[0]} of topology {t.name!r} has no place yet: no slot is free for it",
            remedy=facts.more_slots(),
        )
    if "/" not in where:
        tasks = [n for n in tasks if node_of(places[n]) != where]
        base, tasks = _staying(t, base, tasks, where)
        worker = _on_node(facts, t, base, NodeId(where))
    else:
        worker = _named(facts, t, where)
    going = [n for n in tasks if places[n] != worker]
    return relocated(base, going, worker, slot_of(worker), t.executors_wanted()) if going else base


def _staying(
    t: TopologyFacts, base: Assignment, tasks: list[TaskId], node: str
) -> tuple[Assignment, list[TaskId]]:
    """With the tasks that were to leave a node, and have not left, staying in their workers; and the others."""
    now = t.assignment.place_of() if t.assignment is not None else {}
    stay = {n: now[n] for n in tasks if n in now and node_of(now[n]) == node}
    for worker in sorted(set(stay.values())):
        staying = [n for n in tasks if stay.get(n) == worker]
        base = relocated(base, staying, worker, slot_of(worker), t.executors_wanted())
    return base, [n for n in tasks if n not in stay]


def _named(facts: Facts, t: TopologyFacts, where: str) -> WorkerId:
    name, at, place = where.rpartition("@")
    node, _, slot = place.rpartition("/")
    if (at and name != t.name) or not (slot.isdecimal() and len(slot) < 10):
        raise NotFound(
            f"{where!r} is no worker of topology {t.name!r}",
            remedy=f"its workers are named like {worker_id(t.name, NodeId('node-1'), 0)}",
        )
    _check_node(facts, t, NodeId(node))
    slots = facts.nodes[NodeId(node)].slots
    if int(slot) >= slots:
        raise NotFound(f"node {node!r} has no slot {slot}", remedy=f"it has 0 to {slots - 1}")
    worker = worker_id(t.name, NodeId(node), int(slot))
    owner = _taken(facts).get((NodeId(node), int(slot)))
    if owner not in (None, t.name):
        raise Refused(
            f"slot {slot} of node {node!r} is taken by topology {owner!r}", remedy="name another slot"
        )
    return worker


def _check_node(facts: Facts, t: TopologyFacts, node: NodeId) -> None:
    if node not in facts.nodes:
        raise NotFound(
            f"there is no node {node!r}", remedy=f"there are: {', '.join(sorted(facts.nodes)) or 'none'}"
        )
    if facts.draining(node):
        raise Refused(f"node {node!r} is being drained: it gets nothing new", remedy="name another node")


def _taken(facts: Facts) -> dict[tuple[NodeId, int], str]:
    return {
        (s.node, s.slot): str(n)
        for assignments in (facts.claims(), facts.assignments)
        for n, a in assignments.items()
        for s in a.workers.values()
    }


def check_division(t: TopologyFacts, desired: Assignment) -> None:
    """Raises Conflict when an assignment, of whatever scheduler, is none of the topology as it is: each task once, with others of its
    component, in a worker that is named by its slot."""
    every = [*(e for e, _ in desired.executors), *desired.unassigned]
    ranges = {c.id: t.spec.tasks_of(c.id) for c in t.spec.components}
    whole = all(e.first in ranges.get(e.component, ()) and e.last in ranges[e.component] for e in every)
    if not whole or sorted(n for e in every for n in e.tasks()) != list(range(1, t.spec.task_count + 1)):
        raise Conflict(f"the decision is about another topology than {t.name!r} is now")
    names = {worker_id(t.name, s.node, s.slot) for s in desired.workers.values()}
    if wrong := sorted((names ^ desired.workers.keys()) | ({w for _, w in desired.executors} - names)):
        raise Conflict(
            f"the decision names workers of topology {t.name!r} otherwise than their slots: {', '.join(wrong)}"
        )


def check_slot(facts: Facts, t: TopologyFacts, worker: WorkerId, slot: WorkerSlot) -> None:
    """Raises Conflict when a worker of the topology cannot be in that slot."""
    node = facts.nodes.get(slot.node)
    known = t.assignment is not None and worker in t.assignment.workers
    if not known and (node is None or not 0 <= slot.slot < node.slots):
        raise Conflict(f"worker {worker} of topology {t.name!r} has no slot any more")
    if not known and facts.draining(slot.node) and not (t.base is not None and worker in t.base.workers):
        raise Conflict(
            f"node {slot.node!r}, where worker {worker} was to be, is being drained: it gets nothing new"
        )
    owner = _taken(facts).get((slot.node, slot.slot))
    if owner not in (None, str(t.name)):
        raise Conflict(f"the slot of worker {worker} of topology {t.name!r} is taken by topology {owner!r}")


def _on_node(facts: Facts, t: TopologyFacts, base: Assignment, node: NodeId) -> WorkerId:
    _check_node(facts, t, node)
    load = Counter(base.place_of().values())
    mine = sorted((load[w], w) for w in load if node_of(w) == node)
    if mine:
        return mine[0][1]
    taken = _taken(facts)
    free = [i for i in range(facts.nodes[node].slots) if taken.get((node, i)) in (None, str(t.name))]
    if not free:
        raise Refused(
            f"no slot of node {node!r} is free",
            remedy="name another node, or add one with `elastic nodes add`",
        )
    return worker_id(t.name, node, free[0])
