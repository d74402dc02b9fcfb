"""When a round may begin: everybody lives whom the last one has killed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from chaos.cluster import Stuck
from chaos.rounds import Rounds


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
