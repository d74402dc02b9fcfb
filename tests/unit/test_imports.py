"""Who imports what: the rules that import-linter cannot say, read from the sources, and what `import elastic` loads."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Threads, clocks, sockets, chance: what makes a decision depend on more than its arguments.
IMPURE = {
    *(
        "_thread",
        "asyncio",
        "concurrent",
        "multiprocessing",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
    ),
    *("signal", "socket", "socketserver", "ssl", "subprocess", "threading", "time"),
}
CLIENTS = {"grpc", "hazelcast", "kazoo", "lmdb", "py4j", "pyspark"}
# `api` holds what users subclass and touch files with; it decides nothing, but starts nothing either.
PURE = {
    "elastic.model": IMPURE | CLIENTS,
    "elastic.migration": IMPURE | CLIENTS,
    "elastic.scheduler": IMPURE | CLIENTS,
    "elastic.elasticity": IMPURE | CLIENTS,
    "elastic.api": (IMPURE - {"time"}) | CLIENTS,
    "elastic.flow": IMPURE | CLIENTS,
}
PORTS = {f"elastic.{name}" for name in ("coordination", "transport", "hosts", "nodestore", "reporting")}
# The parts of a port's package that everybody may see; the rest are implementations.
SHARED = {"base", "codec", "election", "keys", "options", "paths", "v1"}
HEAVY = (
    "pyspark",
    "grpc",
    "kazoo",
    "hazelcast",
    "pyarrow",
    "rich",
    "lmdb",
    "pandas",
    "numpy",
    "google.protobuf",
)


# Packages with packages in them, top first; what lies beside them is their front or their ground. What is imported for its type
# alone may lie above: a part knows what it is a part of.
FLOORS = {
    "elastic.control": ("cli", "ui"),
    "elastic.worker": ("moving", "executing", "content", "emitting", "tuples"),
    "elastic.nimbus": ("requests", "balancing", "moves", "deciding", "observing"),
}


class Import(NamedTuple):
    """One imported name: where it stands, the dotted name (`from a.b import c` is `a.b.c`), and whether it is for type checkers alone."""

    module: str
    line: int
    name: str
    typing: bool = False


# A lock around what msgspec notes of a type when its first value is read: what is read does not depend on it.
HARMLESS = {("elastic.model.codec", "threading")}


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def imports_of(module: str, source: str) -> Iterator[Import]:
    tree = ast.parse(source)
    blocks = (n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    typing = {id(inner) for block in blocks for statement in block.body for inner in ast.walk(statement)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(module, node.lineno, alias.name, id(node) in typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (Import(module, node.lineno, name, id(node) in typing) for name in names)


@functools.cache
def all_imports() -> list[Import]:
    found: list[Import] = []
    for package in ("elastic", "statestore"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found += imports_of(module, path.read_text(encoding="utf-8"))
    return found


def impure(imports: Iterable[Import]) -> list[Import]:
    """Imports of pure packages that are not pure."""
    return [
        i
        for i in imports
        for package, forbidden in PURE.items()
        if within(i.module, package)
        and any(within(i.name, name) for name in forbidden)
        and (i.module, i.name) not in HARMLESS
    ]


def adapters_named(imports: Iterable[Import]) -> list[Import]:
    """Imports of a port's implementations by somebody who does not choose implementations."""
    wrong = []
    for i in imports:
        for port in PORTS:
            if not i.name.startswith(port + ".") or within(i.module, port):
                continue
            part = i.name.removeprefix(port + ".").split(".")[0]
            if not (ROOT / port.replace(".", "/") / f"{part}.py").exists() and part != "memory":
                continue  # a name that the package itself offers
            chooses = ["elastic.cluster"]
            if part == "memory":
                chooses += ["elastic.local", "elastic.testing"]
            if part not in SHARED and not any(within(i.module, who) for who in chooses):
                wrong.append(i)
    return wrong


def upside_down(imports: Iterable[Import]) -> list[Import]:
    """Imports of what is built on elastic by elastic."""
    above = ("examples", "benchmarks", "tests", "tools", "protocol_tests", "pytest", "hypothesis")
    return [i for i in imports if any(within(i.name, name) for name in above)]


def from_below(imports: Iterable[Import]) -> list[Import]:
    """Imports from a floor of a package by a lower one."""
    wrong = []
    for i in imports:
        for package, floors in FLOORS.items():
            mine, theirs = (_floor(name, package, floors) for name in (i.module, i.name))
            if not i.typing and mine is not None and theirs is not None and theirs < mine:
                wrong.append(i)
    return wrong


def _floor(name: str, package: str, floors: tuple[str, ...]) -> int | None:
    return next((n for n, floor in enumerate(floors) if within(name, f"{package}.{floor}")), None)


def circles(imports: Iterable[Import]) -> list[Import]:
    """Imports by a file from one that cannot do without it, by whatever way."""
    given = [i for i in imports if not i.typing]
    files = {i.module for i in given}
    needs: dict[str, set[str]] = {file: set() for file in files}
    for i in given:
        needs[i.module] |= {_file(i, files)} & files - {i.module}
    while leaves := {file for file, others in needs.items() if not others & needs.keys()}:
        needs = {file: others for file, others in needs.items() if file not in leaves}
    tops = set(needs)
    # Each of these needs another one; who is needed by none of them stands above a circle.
    while above := {file for file in tops if not any(file in needs[other] for other in tops)}:
        tops -= above
    return [i for i in given if i.module in tops and _file(i, files) in tops]


def _file(i: Import, files: Collection[str]) -> str:
    return i.name if i.name in files else i.name.rpartition(".")[0]


RULES = {
    "impure": impure,
    "adapters_named": adapters_named,
    "upside_down": upside_down,
    "from_below": from_below,
    "circles": circles,
}


@pytest.mark.parametrize("rule", RULES)
def test_every_module_imports_only_what_its_place_allows(rule: str) -> None:
    imports = all_imports()
    assert len(imports) > 200, "the sources were not found"
    assert [f"{i.module}:{i.line} imports {i.name}" for i in RULES[rule](imports)] == []


@pytest.mark.parametrize(
    ("rule", "module", "source"),
    [
        ("impure", "elastic.scheduler.round_robin", "def f():\n    import random"),
        ("impure", "elastic.model.ids", "from time import monotonic"),
        ("impure", "elastic.api.state", "import os, threading"),
        ("impure", "elastic.migration.mover", "from kazoo.client import KazooClient"),
        (
            "adapters_named",
            "elastic.nimbus.leader",
            "from elastic.coordination.zookeeper import ZooKeeperCoordination",
        ),
        ("adapters_named", "elastic.worker.process", "from elastic.coordination import zookeeper"),
        ("adapters_named", "elastic.worker.process", "import elastic.transport.memory"),
        ("upside_down", "elastic.local", "from benchmarks.text import words"),
        ("from_below", "elastic.worker.tuples.wire", "from elastic.worker.executing.task import Task"),
        ("from_below", "elastic.nimbus.observing.facts", "def f():\n    from elastic.nimbus import requests"),
    ],
)
def test_a_planted_import_is_found(rule: str, module: str, source: str) -> None:
    assert len(RULES[rule](imports_of(module, source))) == 1


def test_a_planted_circle_is_found() -> None:
    sources = {
        "elastic.above": "from elastic.one import a",
        "elastic.one": "from elastic import two",
        "elastic.two": "def f():\n    from elastic.three import b",
        "elastic.three": "from elastic.one import c\nfrom elastic.below import d",
        "elastic.below": "if TYPE_CHECKING:\n    from elastic.above import e",
    }
    found = circles(i for module, source in sources.items() for i in imports_of(module, source))
    assert [i.module for i in found] == ["elastic.one", "elastic.two", "elastic.three"]


def test_allowed_imports_are_not_found() -> None:
    allowed = [
        ("elastic.cluster.wiring", "from elastic.coordination.zookeeper import ZooKeeperCoordination"),
        ("elastic.local", "from elastic.coordination.memory import MemoryCoordination"),
        (
            "elastic.nimbus.leader",
            "from elastic.coordination import paths\nfrom elastic.coordination.base import Watch",
        ),
        ("elastic.worker.executing.executor", "import threading, time"),
        (
            "elastic.worker.executing.part",
            "if TYPE_CHECKING:\n    from elastic.worker.moving.saving import Saving",
        ),
        ("elastic.worker.executing.task", "from elastic.worker.shown import shown"),
    ]
    for module, source in allowed:
        assert [found for rule in RULES.values() for found in rule(imports_of(module, source))] == []


def loaded_by(statement: str) -> list[str]:
    """Which heavy packages a fresh interpreter has loaded after that statement."""
    script = f"{statement}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


def test_importing_elastic_loads_nothing_heavy() -> None:
    names = (
        "Bolt, Fields, KeyedState, Spout, StatefulBolt, StatefulSpout, TextSink, TextSpout, TopologyBuilder"
    )
    assert loaded_by(f"from elastic import {names}") == []


def test_the_command_line_lists_its_commands_without_loading_anything_heavy() -> None:
    assert loaded_by("import elastic.control.cli") == []


def test_a_heavy_import_would_be_noticed() -> None:
    assert loaded_by("import elastic, lmdb") == ["lmdb"]
