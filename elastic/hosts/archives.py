"""Spark's own archives in a module path, left out where the same is installed unpacked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import PurePath

_OF_SPARK = ("pyspark", "py4j", "spark-core")


def without_archives(path: Sequence[str]) -> list[str]:
    """A module path without Spark's own archives, if PySpark is installed for this interpreter beside them."""
    rest = [p for p in path if not _is_archive(p)]
    return (
        rest if PathFinder.find_spec("pyspark", [p for p in sys.path if not _is_archive(p)]) else list(path)
    )


def _is_archive(path: str) -> bool:
    return path.endswith((".zip", ".jar")) and PurePath(path).name.startswith(_OF_SPARK)
