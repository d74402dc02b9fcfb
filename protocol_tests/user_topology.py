"""A topology as a user writes it, with the API, on the simulated cluster."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from elastic.api.builder import TopologyBuilder
from elastic.api.components import Bolt, Spout
from elastic.api.fields import Fields
from elastic.migration import events as ev
from elastic.model.ids import Incarnation, NodeId
from protocol_tests.shape import Shape
from protocol_tests.situations import A, B, C, D, calm, flow, move, until
from protocol_tests.worker import Worker


class Numbers(Spout):
    """As a user writes it: one stream, and no word of moves."""

    outputs = Fields(n=int)

    def tuples(self) -> Any:
        return iter(())


class Same(Bolt):
    """The same."""

    outputs = Fields(n=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.n)


class Sink(Bolt):
    """It declares no stream at all."""

    def execute(self, tup: Any) -> None:
        pass


def fences_on_links_that_users_declare() -> None:
    """A topology of the API's, in which a task in the middle and one at the end move."""
    builder = TopologyBuilder("plain")
    builder.spout("numbers", Numbers(), executors=2)
    builder.bolt("same", Same()).shuffle("numbers")
    builder.bolt("sink", Sink()).shuffle("same")
    spec = builder.build().spec
    streams = {(c.id, s.id) for c in spec.components for s in c.outputs}
    assert streams == {("numbers", "default"), ("same", "default")} and spec.task_count == 4
    nodes = {w: NodeId(w[4:6]) for w in (A, B, C, D)}
    world = calm(shape=Shape(spec, nodes, {1: C, 2: D, 3: A, 4: A}, 8, 8))
    fences: set[tuple[int, int, int]] = set()
    real = world.network.send

    def send(source: Worker, target: Incarnation, frame: Any) -> None:
        if isinstance(frame, ev.FenceArrived):
            fences.add((frame.source, frame.target, frame.epoch))
        real(source, target, frame)

    with patch.object(world.network, "send", send):
        for task in (3, 4):
            flow(world)
            move(world, {task: B})
            until(world, lambda: not world.coordination.moves)
    assert fences == {(1, 3, 1), (2, 3, 1), (3, 4, 2)}
    world.finish()
    assert world.coordination.places == {1: C, 2: D, 3: B, 4: B}
    assert not world.truth.lost() and not world.truth.lost_states
