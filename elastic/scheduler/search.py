"""Cheapest seats for a few items under capacities: branch and bound; greedy for many.

Cost is (cores by which capacities are exceeded, cost of the seats), compared in this order. An item alone in a worker never exceeds
the worker's capacity: no other worker would help it. Inside, cores are counted in whole millionths: sums of floats depend on the order, and
two ways that exceed by as much have to compare equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic.model.ids import NodeId

DEPTH = 16
"""Items up to which the best solution is looked for."""
BUDGET = 200_000
"""How many seats are looked at before the best found so far is taken: a fraction of a second."""
MILLION = 1_000_000
UNLIMITED = 1 << 60

Cost = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker that items can go to.

    Attributes:
        load, count: Cores that those who stay in it use, and how many they are.
        room: Cores that it may use.
        fresh: It does not exist yet.
        after: The seat that has to be filled before this one, because the two are alike.
    """

    node: NodeId
    slot: int
    load: float
    count: int
    room: float
    fresh: bool = False
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """An executor that needs a seat: the cores it uses, and what each seat costs it."""

    load: float
    costs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """A seat for each item."""

    seats: tuple[int, ...]
    cost: Cost


def search(
    items: Sequence[Item],
    seats: Sequence[Seat],
    node_room: Mapping[NodeId, float],
    limit: Cost | None = None,
    excess: float = 0.0,
    budget: int = BUDGET,
) -> tuple[Solution | None, bool, int]:
    """The cheapest solution.

    Args:
        node_room: Cores left on each node by everything that is not in `items`, seats' `load` included.
        limit: Only a solution cheaper than this is wanted.
        excess: By how many cores capacities are exceeded without any item.
        budget: How many seats may be looked at.

    Returns:
        The solution, None when there is none (no seat, or nothing cheaper than `limit`); whether no other is cheaper for certain; and
        what is left of the budget.
    """
    if items and not seats:
        return None, True, budget
    state = _Search(items, seats, node_room, limit, budget)
    if len(items) > DEPTH:
        state.greedy(micro(excess))
    else:
        state.descend(0, micro(excess), 0)
    complete = len(items) <= DEPTH and state.budget > 0
    left = max(0, state.budget)
    if state.best is None:
        return None, complete, left
    return Solution(tuple(state.best), (state.best_cost[0] / MILLION, state.best_cost[1])), complete, left


def micro(cores: float) -> int:
    """Cores in whole millionths."""
    return UNLIMITED if math.isinf(cores) else round(cores * MILLION)


class _Search:
    def __init__(
        self,
        items: Sequence[Item],
        seats: Sequence[Seat],
        node_room: Mapping[NodeId, float],
        limit: Cost | None,
        budget: int,
    ) -> None:
        self.items, self.seats = items, seats
        self.loads = [micro(item.load) for item in items]
        self.order = sorted(range(len(items)), key=lambda i: (-self.loads[i], i))
        self.rest = [0] * (len(items) + 1)
        for depth in reversed(range(len(items))):
            self.rest[depth] = self.rest[depth + 1] + min(items[self.order[depth]].costs)
        self.load = [micro(s.load) for s in seats]
        self.limits = [micro(s.room) for s in seats]
        self.count = [s.count for s in seats]
        self.room = {n: micro(room) for n, room in node_room.items()}
        self.chosen = [0] * len(items)
        self.best: list[int] | None = None
        self.best_cost = (UNLIMITED, 0) if limit is None else (micro(limit[0]), limit[1])
        self.budget = budget

    def excess(self, seat: int, load: int) -> int:
        """By how much more capacities are exceeded when an item comes here."""
        limit, room, have = self.limits[seat], self.room[self.seats[seat].node], self.load[seat]
        more = max(0, load - room) - max(0, -room)
        if self.count[seat]:
            alone = have if self.count[seat] == 1 else 0
            more += max(0, have + load - limit) - max(0, have - max(limit, alone))
        return more

    def options(self, index: int) -> list[tuple[int, int, int]]:
        """Seats with what they exceed and cost, the cheapest first."""
        self.budget -= len(self.seats)
        return sorted(
            (self.excess(i, self.loads[index]), self.items[index].costs[i], i)
            for i, seat in enumerate(self.seats)
            if seat.after is None or self.count[seat.after]
        )

    def put(self, index: int, seat: int, sign: int) -> None:
        load = sign * self.loads[index]
        self.load[seat] += load
        self.count[seat] += sign
        self.room[self.seats[seat].node] -= load
        self.chosen[index] = seat

    def descend(self, depth: int, excess: int, cost: int) -> None:
        """Try all ways for the items from `depth` on."""
        if depth == len(self.order):
            if (excess, cost) < self.best_cost:
                self.best, self.best_cost = list(self.chosen), (excess, cost)
            return
        index = self.order[depth]
        for more, price, seat in self.options(index):
            if self.budget <= 0 and self.best_cost[0] < UNLIMITED:
                return
            if (excess + more, cost + price + self.rest[depth + 1]) >= self.best_cost:
                continue
            self.put(index, seat, 1)
            self.descend(depth + 1, excess + more, cost + price)
            self.put(index, seat, -1)

    def greedy(self, excess: int) -> None:
        """One way: each item in turn where it exceeds least and costs least."""
        cost = 0
        for index in self.order:
            more, price, seat = self.options(index)[0]
            excess, cost = excess + more, cost + price
            self.put(index, seat, 1)
        if (excess, cost) < self.best_cost:
            self.best, self.best_cost = list(self.chosen), (excess, cost)
