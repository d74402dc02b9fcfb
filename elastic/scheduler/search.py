"""Cheapest seats for a few items under capacities: branch and bound; greedy for many.

Cost is (cores by which capacities are exceeded, cost of the seats), compared in this order. An item alone in a worker never exceeds
the worker's capacity: no other worker would help it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic.model.ids import NodeId

DEPTH = 16
"""Items up to which the best solution is looked for."""
BUDGET = 20_000
"""How many placings of one item are tried before the best found so far is taken."""
EPSILON = 1e-9

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
) -> tuple[Solution | None, bool]:
    """The cheapest solution.

    Args:
        node_room: Cores left on each node by everything that is not in `items`, seats' `load` included.
        limit: Only a solution cheaper than this is wanted.

    Returns:
        The solution, None when there is none (no seat, or nothing cheaper than `limit`); and whether no other is cheaper for certain.
    """
    if items and not seats:
        return None, True
    state = _Search(items, seats, node_room, limit)
    if len(items) > DEPTH:
        state.greedy()
    else:
        state.descend(0, 0.0, 0)
    complete = len(items) <= DEPTH and state.budget > 0
    return (None if state.best is None else Solution(tuple(state.best), state.best_cost)), complete


class _Search:
    def __init__(
        self,
        items: Sequence[Item],
        seats: Sequence[Seat],
        node_room: Mapping[NodeId, float],
        limit: Cost | None,
    ) -> None:
        self.items, self.seats = items, seats
        self.order = sorted(range(len(items)), key=lambda i: (-items[i].load, i))
        self.rest = [0] * (len(items) + 1)
        for depth in reversed(range(len(items))):
            self.rest[depth] = self.rest[depth + 1] + min(items[self.order[depth]].costs)
        self.load = [s.load for s in seats]
        self.count = [s.count for s in seats]
        self.room = dict(node_room)
        self.chosen = [0] * len(items)
        self.best: list[int] | None = None
        self.best_cost: Cost = limit if limit is not None else (math.inf, 0)
        self.budget = BUDGET

    def excess(self, seat: int, load: float) -> float:
        """By how much more capacities are exceeded when an item comes here."""
        s, room, have = self.seats[seat], self.room[self.seats[seat].node], self.load[seat]
        more = max(0.0, load - room) - max(0.0, -room)
        if self.count[seat]:
            alone = have if self.count[seat] == 1 else 0.0
            more += max(0.0, have + load - s.room) - max(0.0, have - max(s.room, alone))
        return more if more > EPSILON else 0.0

    def options(self, item: Item) -> list[tuple[float, int, int]]:
        """Seats with what they exceed and cost, the cheapest first."""
        return sorted(
            (self.excess(i, item.load), item.costs[i], i)
            for i, seat in enumerate(self.seats)
            if seat.after is None or self.count[seat.after]
        )

    def put(self, index: int, seat: int, sign: int) -> None:
        load = sign * self.items[index].load
        self.load[seat] += load
        self.count[seat] += sign
        self.room[self.seats[seat].node] -= load
        self.chosen[index] = seat

    def descend(self, depth: int, excess: float, cost: int) -> None:
        """Try all ways for the items from `depth` on."""
        if depth == len(self.order):
            if (excess, cost) < self.best_cost:
                self.best, self.best_cost = list(self.chosen), (excess, cost)
            return
        index = self.order[depth]
        for more, price, seat in self.options(self.items[index]):
            if self.budget <= 0 and not math.isinf(self.best_cost[0]):
                return
            if (excess + more, cost + price + self.rest[depth + 1]) >= self.best_cost:
                continue
            self.budget -= 1
            self.put(index, seat, 1)
            self.descend(depth + 1, excess + more, cost + price)
            self.put(index, seat, -1)

    def greedy(self) -> None:
        """One way: each item in turn where it exceeds least and costs least."""
        excess, cost = 0.0, 0
        for index in self.order:
            more, price, seat = self.options(self.items[index])[0]
            excess, cost = excess + more, cost + price
            self.put(index, seat, 1)
        if (excess, cost) < self.best_cost:
            self.best, self.best_cost = list(self.chosen), (excess, cost)
