"""When a round may begin: everybody lives whom the last one has killed; and who is held in it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from chaos.cluster import Stuck
from chaos.rounds import Rounds
from chaos.watch import paused
from elastic.coordination import paths
from elastic.coordination.memory import MemoryZooKeeper
from elastic.migration.record import MoveRecord
from elastic.model import codec
from elastic.model.ids import Epoch, TopologyName


class Cluster:
    """One node and its topology, where nothing happens."""

    def __init__(self) -> None:
        node = SimpleNamespace(id="node-1", alive=True, wanted=True, draining=False)
        detail = SimpleNamespace(waits=(), moves=(), assignment=SimpleNamespace(unassigned=()))
        self.client = SimpleNamespace(nodes=lambda: [node], describe=lambda name: detail)
        self.dead: set[str] = set()

    def store(self, node: str) -> object:
        if node in self.dead:
            raise Stuck(f"there is no process: store of {node}")
        return object()


class Watch:
    """What coordination says: all is well."""

    def refresh(self) -> Any:
        return SimpleNamespace(view=SimpleNamespace(moves=(), places={}, living=()))

    def unsafe(self) -> list[str]:
        return []


def test_a_store_whose_death_nobody_has_noticed_is_waited_for() -> None:
    cluster, shape, nobody = Cluster(), SimpleNamespace(tasks=()), SimpleNamespace()
    given: Any = (cluster, "free", shape, Watch(), nobody, nobody)
    rounds = Rounds(*given, lambda text: None, 1.0)
    assert rounds._unsettled() == ""
    cluster.dead.add("node-1")
    assert rounds._unsettled() == "stores are not as they should be: there is no process: store of node-1"


def test_who_is_to_be_held_in_the_pause_is_held_also_when_no_watch_has_told_of_it() -> None:
    """A worker that is let on may restore what goes with its process a moment later."""
    name = TopologyName("free")
    with contextlib.closing(MemoryZooKeeper()) as server:
        nimbus, chaos = server.connect(), server.connect()
        assert not paused(chaos, name, 0)
        for epoch, batches in ((1, 1), (2, 0)):
            record = MoveRecord(name, Epoch(epoch), "a test", (), paused=batches)
            nimbus.create(paths.move(name, record.epoch), codec.encode(record))
        assert paused(chaos, name, 0)
        assert not paused(chaos, name, 1), "the first is of an earlier round, and the second still gets ready"
        nimbus.set(paths.move(name, Epoch(2)), codec.encode(replace(record, paused=1)))
        assert paused(chaos, name, 1)
