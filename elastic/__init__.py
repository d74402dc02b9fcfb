"""elastic: live elastic stateful stream processing.

Subclass `Spout`, `Bolt` or `StatefulBolt` and put them together with `TopologyBuilder`, or write it all down as streams with `Flow`; run
the result with `elastic run`, `elastic submit` or `LocalCluster`. Importing this package loads nothing but this file: the names below come
when they are used, so that the command line and the cluster's own processes start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastic.api.builder import Topology, TopologyBuilder
    from elastic.api.components import Bolt, CustomGrouping, Spout, StatefulBolt, StatefulSpout, TaskHook
    from elastic.api.context import TopologyContext
    from elastic.api.fields import Fields, Tuple
    from elastic.api.files import TextSink, TextSpout
    from elastic.api.ready import CountBy, FlatMap
    from elastic.api.state import KeyedState
    from elastic.api.windowed import WindowedBolt
    from elastic.api.windows import Batches, Sessions, Sliding, Tumbling, Window
    from elastic.errors import ElasticError
    from elastic.flow.flow import Flow
    from elastic.local import LocalCluster, LocalRun
    from elastic.multilang.bolts import ShellBatchBolt, ShellBolt
    from elastic.multilang.spouts import ShellSpout

__version__ = "0.1.0"

__all__ = [
    "Batches",
    "Bolt",
    "CountBy",
    "CustomGrouping",
    "ElasticError",
    "Fields",
    "FlatMap",
    "Flow",
    "KeyedState",
    "LocalCluster",
    "LocalRun",
    "Sessions",
    "ShellBatchBolt",
    "ShellBolt",
    "ShellSpout",
    "Sliding",
    "Spout",
    "StatefulBolt",
    "StatefulSpout",
    "TaskHook",
    "TextSink",
    "TextSpout",
    "Topology",
    "TopologyBuilder",
    "TopologyContext",
    "Tumbling",
    "Tuple",
    "Window",
    "WindowedBolt",
]

_HOMES = {
    "elastic.api.builder": ("Topology", "TopologyBuilder"),
    "elastic.api.components": (
        "Bolt",
        "CustomGrouping",
        "Spout",
        "StatefulBolt",
        "StatefulSpout",
        "TaskHook",
    ),
    "elastic.api.context": ("TopologyContext",),
    "elastic.api.fields": ("Fields", "Tuple"),
    "elastic.api.files": ("TextSink", "TextSpout"),
    "elastic.api.ready": ("CountBy", "FlatMap"),
    "elastic.api.state": ("KeyedState",),
    "elastic.api.windowed": ("WindowedBolt",),
    "elastic.api.windows": ("Batches", "Sessions", "Sliding", "Tumbling", "Window"),
    "elastic.errors": ("ElasticError",),
    "elastic.flow.flow": ("Flow",),
    "elastic.local": ("LocalCluster", "LocalRun"),
    "elastic.multilang.bolts": ("ShellBatchBolt", "ShellBolt"),
    "elastic.multilang.spouts": ("ShellSpout",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'elastic' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
