"""Which real node and slot each group of executors gets, so that as few tasks as possible have to move.

Algorithm 1 of T-Storm makes a schedule from nothing; between nodes that are alike it does not matter to it who is called what. It matters
to those who would have to move. (Not in the paper.)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from elastic.model.ids import TopologyName
from elastic.scheduler.instance import Home, Instance


@dataclass(slots=True, eq=False)
class Group:
    """A worker-to-be: executors of one topology on one node.

    Attributes:
        number: Which of the topology's workers on that node.
        members: Indices of executors.
        load: Cores they use.
        slot: Where it has to be, because of members that have to stay; None: anywhere.
    """

    topology: TopologyName
    node: int
    number: int = 0
    members: list[int] = field(default_factory=list)
    load: float = 0.0
    slot: int | None = None


def label(p: Instance, groups: Sequence[Group | None], cap: Sequence[float]) -> list[Home | None]:
    """Each executor's node and slot.

    Args:
        groups: Each executor's group; None: it has no place.
        cap: Each node's capacity: only nodes that are alike in it may be exchanged.
    """
    tasks = [len(key.executor.tasks()) for key in p.keys]
    node_of = _nodes(p, groups, cap, tasks)
    here: dict[int, list[Group]] = defaultdict(list)
    for group in dict.fromkeys(g for g in groups if g is not None):
        here[node_of[group.node]].append(group)
    holders = _holders(p)
    slot_of: dict[int, int] = {}
    for k in sorted(here):
        slot_of.update(_slots(p, k, here[k], tasks, holders))
    return [None if g is None else (node_of[g.node], slot_of[id(g)]) for g in groups]


def _nodes(
    p: Instance, groups: Sequence[Group | None], cap: Sequence[float], tasks: Sequence[int]
) -> dict[int, int]:
    """Each used node's real one: within each class of nodes that are alike, the greatest overlaps first."""

    def alike(k: int) -> Hashable:
        n = p.nodes[k]
        return cap[k], n.cores, len(n.free), n.load, n.count

    classes = [alike(k) if n.open else None for k, n in enumerate(p.nodes)]
    overlap: Counter[tuple[int, int]] = Counter()
    used = sorted({g.node for g in groups if g is not None})
    for i, group in enumerate(groups):
        home = p.home[i]
        if group is not None and home is not None and classes[group.node] == classes[home[0]]:
            overlap[group.node, home[0]] += tasks[i]
    result = {g.node: g.node for g in groups if g is not None and g.slot is not None}
    taken = set(result)
    for k, real in sorted(overlap, key=lambda pair: (-overlap[pair], pair[0] != pair[1], pair)):
        if k not in result and real not in taken:
            result[k] = real
            taken.add(real)
    left: dict[Hashable, list[int]] = defaultdict(list)
    for k in reversed(range(len(p.nodes))):
        if p.nodes[k].open and k not in taken:
            left[classes[k]].append(k)
    for k in used:
        if k not in result:
            room = left[classes[k]]
            real = k if k in room else room[-1]
            room.remove(real)
            result[k] = real
    return result


def _holders(p: Instance) -> dict[Home, TopologyName]:
    """Whose worker is in each slot now; those without executors included."""
    return {
        (p.node_index[s.node], s.slot): name
        for name, assignment in p.places.items()
        for s in assignment.workers.values()
        if s.node in p.node_index
    }


def _slots(
    p: Instance, k: int, groups: Iterable[Group], tasks: Sequence[int], holders: Mapping[Home, TopologyName]
) -> dict[int, int]:
    """The slot of each group (by its identity) on one node.

    A slot that another topology has now is taken last: it is not free before that one has left, and until then whoever is to have
    it is refused.
    """
    overlap: dict[tuple[int, int], int] = Counter()
    groups = list(groups)
    free = set(p.nodes[k].free)
    for number, group in enumerate(groups):
        for i in group.members:
            home = p.home[i]
            if home is not None and home[0] == k and home[1] in free:
                overlap[number, home[1]] += tasks[i]
    slots = {number: group.slot for number, group in enumerate(groups) if group.slot is not None}
    free -= set(slots.values())
    for number, slot in sorted(overlap, key=lambda pair: (-overlap[pair], pair)):
        if number not in slots and slot in free:
            slots[number] = slot
            free.remove(slot)

    def rank(topology: TopologyName, slot: int) -> tuple[int, int]:
        holder = holders.get((k, slot))
        return (0 if holder == topology else 1 if holder is None else 2), slot

    for number, group in enumerate(groups):
        if number not in slots:
            slots[number] = min(free, key=partial(rank, group.topology))
            free.remove(slots[number])
    return {id(group): slots[number] for number, group in enumerate(groups)}
