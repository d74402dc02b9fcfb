"""Situations of a process that ends, and may begin anew. Each raises when the product is wrong."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from elastic.migration import events as ev
from elastic.migration.record import SETTLED, Phase
from protocol_tests.situations import A, B, C, calm, flow, move, phase, until, worker
from protocol_tests.starting import Starting


def rolled_back_while_it_begins_anew() -> None:
    """The process that task 2 was to leave has ended and is there again, before Nimbus has seen that. It has read that there is nothing to
    start; the move is rolled back then, and it reads once more. What the task emits has to come through."""
    world = calm()
    flow(world)
    until(world, lambda: not world.clock.step())
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.PREPARING)
    before, held, start = worker(world, A), list[Any](), Starting.start
    assert world.nimbus is not None
    world.nimbus.die()
    with patch.object(Starting, "start", lambda self, written: held.append((self, written))):
        world._kill_worker(before, notice=2, restart=2)
        until(world, lambda: bool(held))
        ((beginning, written),) = held
        again = worker(world, A)
        assert again is not before and not written, "nothing was tried: the task may start"
        world._start_nimbus()
        until(world, lambda: phase(world, 2) in SETTLED)
    start(beginning, written)
    until(world, lambda: 2 in again.tasks)
    flow(world)
    world.finish()
    assert world.truth.lost_states == 1


def receivers_have_not_got_it() -> None:
    """What the task has sent is stuck on a broken connection; its process dies as soon as its state is saved: nothing is lost."""
    world = calm()
    flow(world, 2)
    while world.clock.step():
        pass
    connection = world.network.connections[worker(world, A).me, worker(world, C).me]
    while not connection.broken:
        connection.cut(60.0)
    flow(world, 5)
    until(world, lambda: any(isinstance(f, ev.Arrived) for f in connection.waiting.values()))
    move(world, {2: B})
    until(world, lambda: phase(world, 2) >= Phase.SAVED)
    world._kill_worker(worker(world, A), notice=2, restart=20)
    world.finish()
    assert not world.truth.lost() and not world.truth.lost_states


def node_dies_after_saved() -> None:
    """From `saved` on the old host's whole node may go: nothing is lost."""
    world = calm()
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    world.do_lose_node(0, 400.0)
    world.finish()
    assert not world.truth.lost() and not world.truth.lost_states
