"""Moves that have ended, as lines of a file: the next leader on this machine goes on with them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastic.model.codec import decode, encode
from elastic.model.ids import TopologyName
from elastic.model.views import MoveView
from elastic.nimbus.line_file import LineFile
from elastic.nimbus.observing.facts import Facts


@dataclass(frozen=True, slots=True)
class _Line:
    """
    Attributes:
        id: Of the topology: another of the same name has moves of its own.
    """

    id: str
    move: MoveView


class MoveHistory:
    """Thread-safe.

    Args:
        path: The file; None: nothing outlives a leader.
        kept: How many of each topology are remembered.
        limit: Bytes at which the file is renamed to `<path>.1` and a new one begun.
    """

    def __init__(self, path: Path | None, kept: int, limit: int = 16 << 20) -> None:
        self._file = LineFile(path, limit)
        self._kept = kept
        self._lock = threading.Lock()
        self._found: dict[tuple[TopologyName, str], deque[MoveView]] = {}

    def load(self) -> None:
        """Take in what the file holds; called by a Nimbus that begins to lead."""
        with self._lock:
            self._found = {}
            for line in self._file.lines():
                with contextlib.suppress(msgspec.MsgspecError):
                    self._note(decode(line, _Line))

    def add(self, id: str, move: MoveView) -> None:
        """A move of the topology with that id has ended."""
        line = _Line(id, move)
        data = encode(line) + b"\n"
        with self._lock:
            self._file.append(data)

    def of(self, name: TopologyName, id: str) -> tuple[MoveView, ...]:
        """Those of a topology that had ended when `load` looked, oldest first."""
        with self._lock:
            return tuple(self._found.get((name, id), ()))

    def keep(self, facts: Facts) -> None:
        """All topologies have been seen: what has been found of others is nobody's."""
        ids = {t.state.id for t in facts.topologies.values()}
        with self._lock:
            self._found = {k: m for k, m in self._found.items() if k[1] in ids or k[0] in facts.elsewhere}

    def forget(self, name: TopologyName, id: str) -> None:
        """That topology is gone."""
        with self._lock:
            self._found.pop((name, id), None)

    def close(self) -> None:
        """Write nothing more. Safe to call twice."""
        with self._lock:
            self._file.close()

    def _note(self, line: _Line) -> None:
        self._found.setdefault((line.move.topology, line.id), deque(maxlen=self._kept)).append(line.move)
