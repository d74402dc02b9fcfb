"""The text that the demonstration reads: the lines of a real one, again and again, for as long as there is something to show."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from elastic import TextSpout

AHEAD = 8.0
"""Seconds that the text goes on beyond what can have been read."""
LOOK = 1.0


class Text:
    """A file that grows while it is read, if need be.

    Args:
        path: Where it is written.
        source: The file or folder of which the lines are.
        rate: Lines per second at which it is read.
    """

    def __init__(self, path: Path, source: str, rate: float) -> None:
        spout = TextSpout(source)
        raw = b"\n".join(Path(p).read_bytes().removesuffix(b"\n") for p in spout.paths)
        lines = [line + b"\n" for line in raw.split(b"\n")]
        self.path = path
        self.rate = rate
        self.distinct = len(lines)
        self.lines = 0
        self._all = cycle(lines)

    def write(self, seconds: float) -> None:
        """Have the text last for so long in all."""
        more = max(1, round(seconds * self.rate)) - self.lines
        if more > 0:
            with self.path.open("ab") as file:
                file.writelines(islice(self._all, more))
            self.lines += more

    @contextlib.contextmanager
    def lasting(self) -> Iterator[None]:
        """The text does not end before the body does: a slow machine needs longer for the same show."""
        began, done = time.monotonic(), threading.Event()

        def extend() -> None:
            while not done.wait(LOOK):
                self.write(time.monotonic() - began + AHEAD)

        thread = threading.Thread(target=extend, name="text", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(10.0)
