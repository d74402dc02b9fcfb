"""Whether everything flows: the record, read while it is being written."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class _Last:
    at: int
    count: int
    sink: int


class Flow:
    """Every key of the newest life of every spout task, and when it arrived last.

    Args:
        keys: How many keys each spout task has.
        spouts: How many spout tasks there are; they are the first of the topology.
    """

    def __init__(self, place: Path, spouts: int, keys: int) -> None:
        self._place = place
        self._spouts = spouts
        self._keys = keys
        self._read: dict[Path, int] = {}
        self._last: dict[int, dict[str, _Last]] = {}
        self._lives: dict[int, str] = {}
        self.arrived = 0

    def look(self) -> None:
        """Read what has been added."""
        for path in self._place.glob("record-*.txt"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            end = data.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + end
            sink = int(path.name.split("-")[1])
            for line in data[:end].decode().splitlines():
                words = line.split(" ")
                if words[0] == "A":
                    self._arrival(int(words[1]), words[2], int(words[4]), sink)

    def _arrival(self, at: int, key: str, count: int, sink: int) -> None:
        self.arrived += 1
        spout, life, _ = key.split(".")
        task = int(spout)
        if life != self._lives.get(task):
            if life < self._lives.get(task, ""):
                return  # of a life that is no more; names of lives grow
            self._lives[task], self._last[task] = life, {}
        self._last[task][key] = _Last(at, count, sink)

    def standing(self, since: int) -> list[str]:
        """What has not arrived since that time (monotonic ns)."""
        self.look()
        missing = []
        for task in range(1, self._spouts + 1):
            found = self._last.get(task, {})
            late = [k for k, last in found.items() if last.at < since]
            if len(found) < self._keys:
                missing.append(f"{self._keys - len(found)} keys of spout task {task}")
            missing += [f"{k} by {found[k].count} and {found[k].sink}" for k in late]
        return missing

    @staticmethod
    def now() -> int:
        return time.monotonic_ns()
