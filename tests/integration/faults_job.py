"""Topologies for `test_faults.py`. They end when there is a file called `stop` in the place that they are given."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elastic import Bolt, CustomGrouping, Fields, Spout, StatefulBolt, StatefulSpout, TopologyBuilder


class Numbers(StatefulSpout):
    """0, 1, 2, ... until told to end."""

    outputs = Fields(n=int)

    def __init__(self, place: str) -> None:
        self.place = place
        self.n = 0

    def get_state(self) -> object:
        return self.n

    def set_state(self, state: Any) -> None:
        self.n = state

    def next_tuple(self) -> None:
        if self.n % 64 == 0 and Path(self.place, "stop").exists():
            self.exhausted()
            return
        self.emit(self.n)
        self.n += 1

    def cleanup(self) -> None:
        Path(self.place, "emitted").write_text(str(self.n))


class Sink(StatefulBolt):
    """Looks whether every number comes once and in order; writes what it found."""

    def __init__(self, place: str, slow: float = 0.0) -> None:
        self.place = place
        self.slow = slow
        self.found: dict[str, Any] = {"count": 0, "sum": 0, "last": -1, "wrong": []}

    def get_state(self) -> object:
        return self.found

    def set_state(self, state: Any) -> None:
        self.found = state

    def execute(self, tup: Any) -> None:
        found = self.found
        if tup.n != found["last"] + 1:
            found["wrong"].append(f"{tup.n} instead of {found['last'] + 1}")
        found["count"] += 1
        found["sum"] += tup.n
        found["last"] = tup.n
        if found["count"] % 100 == 1:
            Path(self.place, "beat").touch()
            print("beat", tup.n, flush=True)
        if self.slow:
            time.sleep(self.slow)

    def write(self, name: str) -> None:
        path = Path(self.place, name)
        path.with_suffix(".new").write_text(json.dumps(self.found))
        path.with_suffix(".new").rename(path)

    def finish(self) -> None:
        self.write("result")

    def cleanup(self) -> None:
        self.write("closed")


class Relay(Bolt):
    outputs = Fields(n=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.n)


class Gather(Sink):
    """Order is not promised while stateless tasks move: only that each comes once."""

    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.numbers: set[int] = set()

    def get_state(self) -> object:
        return self.found, sorted(self.numbers)

    def set_state(self, state: Any) -> None:
        self.found, self.numbers = state[0], set(state[1])

    def execute(self, tup: Any) -> None:
        self.numbers.add(tup.n)
        self.found["count"] += 1
        self.found["last"] = max(tup.n, self.found["last"])

    def finish(self) -> None:
        self.found["distinct"] = len(self.numbers)
        super().finish()


class Raises(Sink):
    def execute(self, tup: Any) -> None:
        raise ValueError("as it was told to")


class Leaves(Sink):
    def execute(self, tup: Any) -> None:
        sys.exit(1)


class Prepares(Sink):
    def prepare(self, context: Any) -> None:
        raise OSError("nothing to open")


class Hangs(Sink):
    def execute(self, tup: Any) -> None:
        threading.Event().wait()


class Large(Spout):
    """A tuple of 100 MB between two small ones."""

    outputs = Fields(n=int, data=bytes)

    def tuples(self) -> Iterable[Any]:
        yield 0, b""
        yield 1, b"x" * 100_000_000
        yield 2, b"end"


class Lengths(Sink):
    def execute(self, tup: Any) -> None:
        super().execute(tup)
        self.found.setdefault("sizes", []).append(len(tup.data))


class Unpicklable(Sink):
    def __init__(self, place: str) -> None:
        super().__init__(place)
        self.handle = threading.Lock()


class Grouping(CustomGrouping):
    def prepare(self, tasks: tuple[int, ...]) -> None:
        raise LookupError("no map of the tasks")

    def choose(self, values: tuple[Any, ...]) -> Iterable[int]:
        return ()


class Import(Sink):
    """Unpickled only where it was made."""

    def __reduce__(self) -> Any:
        return _import_here, (self.place,)


def _import_here(place: str) -> Sink:
    if "FAULTS_CLIENT" not in os.environ:
        raise ImportError("only where it was made")
    return Import(place)


SINKS: dict[str, type[Sink]] = {
    "hangs": Hangs,
    "large": Lengths,
    "raises": Raises,
    "leaves": Leaves,
    "prepare": Prepares,
    "unpicklable": Unpicklable,
    "import": Import,
}


def topology(args: list[str]) -> TopologyBuilder:
    kind, values = args[0], json.loads(args[1])
    place = values["place"]
    b = TopologyBuilder(
        "faults", max_errors=2, kill_delay=0.5, report_interval=0.25, watchdog=0.5, stop_grace=0.5
    )
    if kind == "large":
        b.spout("numbers", Large())
    else:
        b.spout("numbers", Numbers(place), rate=values.get("rate", 1000))
    if kind == "relay":
        b.bolt("relay", Relay(), tasks=4, executors=2).shuffle("numbers")
        b.bolt("sink", Gather(place)).all_to_one("relay")
        return b
    sink = SINKS[kind](place) if kind in SINKS else Sink(place, values.get("slow", 0.0))
    handle = b.bolt("sink", sink, tasks=1, executors=values.get("executors", 1))
    if kind == "grouping":
        handle.custom("numbers", Grouping())
    else:
        handle.all_to_one("numbers")
    return b
