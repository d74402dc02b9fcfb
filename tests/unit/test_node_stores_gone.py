"""What a state's stores answer decides whether anybody asks again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from elastic.cluster.node_stores import Gone, NodeStores
from elastic.cluster.store_ways import StoreWays
from elastic.errors import ElasticError, Unavailable
from elastic.model.ids import NodeId
from statestore.errors import Damaged, Lost, NotFound, StateStoreError
from statestore.errors import Unavailable as Busy

NODES = (NodeId("a"), NodeId("b"))


class _Ways:
    """Ways to stores that answer every question with an error."""

    def __init__(self, answers: dict[NodeId, StateStoreError]) -> None:
        self._answers = answers

    def order(self, nodes: Sequence[NodeId]) -> Sequence[NodeId]:
        return nodes

    def to(self, node: NodeId) -> Any:
        class Way:
            def fetch(way, wanted: Sequence[object], *_: object) -> Iterator[StateStoreError]:
                return iter([self._answers[node]] * len(wanted))

        return Way()

    def instead(self, node: NodeId, way: object) -> None:
        return None


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (NotFound("k"), NotFound("k"), Gone),
        (Lost("k: piece 1 is lost"), Lost("k: piece 1 is lost"), Gone),
        (Lost("k"), NotFound("k"), Gone),
        (Lost("k"), Damaged("k"), Unavailable),
        (NotFound("k"), Busy("k"), Unavailable),
    ],
)
def test_only_what_no_store_has_any_more_is_gone(
    one: StateStoreError, other: StateStoreError, said: type[ElasticError]
) -> None:
    stores = NodeStores.__new__(NodeStores)
    stores._ways = cast(StoreWays, _Ways(dict(zip(NODES, (one, other), strict=True))))
    with pytest.raises(said):
        stores.fetch("k", 1, NODES)
