"""Simulated state stores, one on each node: slow, full, down for a while, out of Nimbus's reach, or gone with their node.

A node removes from its store what belongs to no move any more: when the store begins to serve, and when a record has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from elastic.model.ids import NodeId
from protocol_tests.clock import Clock

GONE, MISSING, DOWN = "gone", "missing", "down"


class Part(NamedTuple):
    """What lies there of a state while it is copied ahead: as it was then."""

    links: Any
    content: Any


class Store:
    """One node's."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.data: dict[tuple[int, int], Any] = {}
        self.ended: set[int] = set()
        self.up = True
        self.full = False
        self.reached = True
        self.life = 1


class Stores:
    """All of them, reached by anybody. `active`: the epochs of moves that have a record."""

    def __init__(self, clock: Clock, nodes: list[NodeId], active: Callable[[], set[int]]) -> None:
        self.clock = clock
        self.delay, self.reading = 2.0, 2.0
        self.at = {n: Store(n) for n in nodes}
        self.lives: dict[tuple[NodeId, int, int], int] = {}
        self._active = active

    def read(self, done: Callable[[], None]) -> None:
        """A state is read, which takes its time: only then does any of it reach a store."""
        self.clock.after(self.reading, done)

    def put(self, node: NodeId, epoch: int, task: int, value: Any, done: Callable[[str], None]) -> None:
        """`done("")`, or why not."""

        def arrive() -> None:
            store = self.at[node]
            if not store.up:
                done(f"the store of node {node} does not answer")
            elif store.full:
                done(f"the store of node {node} is full")
            elif epoch in store.ended:
                done(f"move {epoch} is over")
            else:
                self._keep(store, epoch, task, value)
                done("")

        self.clock.after(self.delay, arrive)

    def put_part(self, node: NodeId, epoch: int, task: int, part: Part) -> None:
        """What is copied ahead, as far as there is room for it."""
        store = self.at[node]
        if store.up and not store.full and epoch not in store.ended:
            self._keep(store, epoch, task, part)

    def _keep(self, store: Store, epoch: int, task: int, value: Any) -> None:
        store.data[epoch, task] = value
        self.lives[store.node, epoch, task] = store.life

    def get(self, node: NodeId, epoch: int, task: int, done: Callable[[str, Any], None]) -> None:
        """`done("", value)`, or GONE, MISSING or DOWN."""

        def arrive() -> None:
            store = self.at[node]
            if self.lives.get((node, epoch, task), store.life) != store.life:
                done(GONE, None)
            elif not store.up:
                done(DOWN, None)
            elif (epoch, task) in store.data:
                done("", store.data[epoch, task])
            else:
                done(MISSING, None)

        self.clock.after(self.delay, arrive)

    def clean(self, epoch: int, nodes: tuple[NodeId, ...], done: Callable[[], None]) -> None:
        def arrive() -> None:
            for node in nodes:
                if self.at[node].up and self.at[node].reached:
                    self._forget(self.at[node], epoch)
            done()

        self.clock.after(self.delay, arrive)

    def _forget(self, store: Store, epoch: int) -> None:
        store.ended.add(epoch)
        for key in [k for k in store.data if k[0] == epoch]:
            del store.data[key]

    def down(self, node: NodeId, longest: float) -> None:
        """Its process ends, and is started again."""
        if self.at[node].up:
            self.at[node].up = False
            self.clock.after(longest, self.start, node)

    def start(self, node: NodeId) -> None:
        """It is there again, with its files; what belongs to no move any more is collected."""
        store = self.at[node]
        store.up = True
        self._collect(store)

    def record_gone(self) -> None:
        """A record was removed: every node hears of that."""
        for store in self.at.values():
            self.clock.after(self.delay, self._collect, store)

    def _collect(self, store: Store) -> None:
        if store.up:
            for epoch in {k[0] for k in store.data} - self._active():
                self._forget(store, epoch)

    def lose(self, node: NodeId) -> None:
        """The node goes, with everything on it."""
        store = self.at[node]
        store.data.clear()
        store.life += 1
        store.up = False
