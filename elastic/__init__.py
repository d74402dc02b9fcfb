"""elastic: live elastic stateful stream processing.

Subclass `Spout`, `Bolt` or `StatefulBolt`, put them together with `TopologyBuilder`, run the result with `elastic run`, `elastic submit`
or `LocalCluster`. Importing this package loads neither Spark, gRPC, ZooKeeper's client nor Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elastic.api.builder import Topology, TopologyBuilder
from elastic.api.components import Bolt, CustomGrouping, Spout, StatefulBolt, StatefulSpout, TaskHook
from elastic.api.context import TopologyContext
from elastic.api.fields import Fields, Tuple
from elastic.api.files import TextSink, TextSpout
from elastic.api.ready import CountBy, FlatMap
from elastic.api.state import KeyedState
from elastic.errors import ElasticError

if TYPE_CHECKING:
    from elastic.local import LocalCluster, LocalRun

__version__ = "0.1.0"

__all__ = [
    "Bolt",
    "CountBy",
    "CustomGrouping",
    "ElasticError",
    "Fields",
    "FlatMap",
    "KeyedState",
    "LocalCluster",
    "LocalRun",
    "Spout",
    "StatefulBolt",
    "StatefulSpout",
    "TaskHook",
    "TextSink",
    "TextSpout",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "Tuple",
]


def __getattr__(name: str) -> Any:
    # The engine is loaded when it is used: declaring a topology needs none of it.
    if name in ("LocalCluster", "LocalRun"):
        from elastic import local

        return getattr(local, name)
    raise AttributeError(f"module 'elastic' has no attribute {name!r}")
