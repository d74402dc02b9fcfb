"""Spark as the pipeline in and out: DataFrames and streaming DataFrames feed spouts and are made of what bolts emit.

Both sides meet at a *pipe*, a directory that both reach. What is for the topology's side loads no pyspark, what is for Spark's side does:
each name is loaded when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastic.spark.frames import finish, register
    from elastic.spark.sink import DataFrameSink
    from elastic.spark.spout import DataFrameSpout

__all__ = ["DataFrameSink", "DataFrameSpout", "finish", "register"]

_HOMES = {
    "DataFrameSink": "elastic.spark.sink",
    "DataFrameSpout": "elastic.spark.spout",
    "finish": "elastic.spark.frames",
    "register": "elastic.spark.frames",
}


def __getattr__(name: str) -> Any:
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module 'elastic.spark' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
