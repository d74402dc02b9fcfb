"""The event stream: numbered, bounded in memory, and as JSON lines in a file that the next leader on this
machine goes on with.

Numbers only grow, also from one leader to the next and between machines: a log begins at the milliseconds
since 1970, or after the last number that it finds in its file. So whoever follows the stream asks any leader
for what came after the last number it saw.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastic.model.codec import decode, encode
from elastic.model.events import Event
from elastic.nimbus.line_file import LineFile


@dataclass(frozen=True, slots=True)
class _Line:
    seq: int
    event: Event


class EventLog:
    """Thread-safe.

    Args:
        path: The file; None: in memory only.
        capacity: How many events are kept in memory.
        file_limit: Bytes at which the file is renamed to `<path>.1` and a new one begun.
    """

    def __init__(self, path: Path | None, capacity: int = 10_000, file_limit: int = 16 << 20) -> None:
        self._file = LineFile(path, file_limit)
        self._events: deque[tuple[int, Event]] = deque(maxlen=capacity)
        self._next = int(time.time() * 1000)
        self._closed = False
        self._changed = threading.Condition()

    def load(self) -> None:
        """Take in what the file holds; called by a Nimbus that begins to lead."""
        found: list[_Line] = []
        # Of a full file far more is too old to be kept: decoded as well it would take a second, and 100 MB that stay with the process.
        for line in deque(self._file.lines(), self._events.maxlen):
            with contextlib.suppress(msgspec.DecodeError):
                found.append(decode(line, _Line))
        with self._changed:
            known = {seq for seq, _ in self._events}
            merged = [(x.seq, x.event) for x in found if x.seq not in known] + list(self._events)
            self._events.clear()
            self._events.extend(sorted(merged, key=lambda item: item[0]))
            # Another one may have led since this one was made, on another machine.
            self._next = max(self._next, int(time.time() * 1000))
            if self._events:
                self._next = max(self._next, self._events[-1][0] + 1)

    def append(self, event: Event) -> int:
        """Add an event; returns its number."""
        with self._changed:
            seq = self._next
            self._next += 1
            self._events.append((seq, event))
            self._file.append(encode(_Line(seq, event)) + b"\n")
            self._changed.notify_all()
            return seq

    def since(self, seq: int, topology: str | None = None) -> list[tuple[int, Event]]:
        """The events after number `seq` that are still kept, oldest first; of one topology, or of all."""
        with self._changed:
            # From the newest on: who follows asks at each event, under the lock by which events are added, for the last few of 10,000.
            newer = list(itertools.takewhile(lambda item: item[0] > seq, reversed(self._events)))
        return [(n, e) for n, e in reversed(newer) if topology in (None, e.topology)]

    def wait(self, seq: int, timeout: float) -> bool:
        """Wait until there is an event after number `seq`, but not longer than `timeout` seconds.

        Returns:
            Whether there is one. False also when the log was closed meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.last > seq, timeout)
            return self.last > seq

    @property
    def last(self) -> int:
        """The number of the newest event; 0 when there was none."""
        with self._changed:
            return self._events[-1][0] if self._events else 0

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the file and wake everybody who waits. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._file.close()
            self._changed.notify_all()
