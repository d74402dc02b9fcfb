"""A command of the demonstration as its own process: read until it says something, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from families import concerned_with, family, left_of

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0


class Run:
    """One that runs; its files are in a directory of the test's own.

    Attributes:
        text: What it has said so far.
        seen: Processes that it had started when it was last waited for.
    """

    def __init__(self, module: str, directory: Path, *options: str) -> None:
        self.directory = directory
        self.seen: set[psutil.Process] = set()
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, "--figure", str(directory / "figure.svg"), *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
        )

    def until(self, words: str) -> None:
        """Read on until a line has these words. Remembers what it has started by then."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line
            if words in line:
                self.seen.update(family(self.process.pid), concerned_with(self.directory))
                self.seen.discard(psutil.Process(self.process.pid))
                return
        raise AssertionError(f"it never said {words!r}:\n{self.text}")

    def end(self) -> int:
        """Read on to the end; returns the exit code."""
        assert self.process.stdout is not None
        self.text += self.process.stdout.read()  # bounded by the time of the test
        return self.process.wait(PATIENCE)

    def left(self) -> list[str]:
        """What it started and still runs, and files that it left."""
        return left_of(self.seen, PATIENCE) + [str(p) for p in self.directory.glob("elastic-*")]

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.process.poll() is None:
            self.process.terminate()  # it ends what it has started
            killer = threading.Timer(PATIENCE, self.process.kill)
            killer.start()
            self.process.communicate()
            killer.cancel()


@contextmanager
def run(module: str, directory: Path, *options: str) -> Iterator[Run]:
    """Start one; it ends with the block at the latest."""
    made = Run(module, directory, *options)
    try:
        yield made
    finally:
        made.close()
