"""Whether everything flows, and is right: the checker, as a process of its own that reads while the record is being written."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from chaos.cluster import Stuck

ANSWER = 60.0
"""Seconds that the checker may take for an answer: what has been written since it looked last."""


class Flow:
    """Follows a record (`chaos.check.follow`). Ends with `close`.

    Args:
        place: The directory of the record.
        spouts: How many spout tasks there are; they are the first of the topology.
        keys: How many keys each spout task has.
        keep: What was checked stays.
    """

    def __init__(self, place: Path, spouts: int, keys: int, *, keep: bool = False) -> None:
        self._spouts = spouts
        self._keys = keys
        self._errors = (place / "checker.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.check", "--follow", str(place), *(["--keep"] if keep else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=Path(__file__).parent.parent,
            start_new_session=True,  # an interrupt at the terminal is the run's, which still has questions
        )
        self._heard = b""
        self._owed = 0  # answers that have not come yet
        self.arrived = 0

    def standing(self, since: int) -> list[str]:
        """What has not arrived since that time (monotonic ns). Raises Stuck."""
        flow = self._ask("flow")
        self.arrived = flow["arrived"]
        by_task: dict[int, dict[str, list[int]]] = {}
        for key, last in flow["last"].items():
            by_task.setdefault(int(key.split(".")[0]), {})[key] = last
        missing = []
        for task in range(1, self._spouts + 1):
            found = by_task.get(task, {})
            if len(found) < self._keys:
                missing.append(f"{self._keys - len(found)} keys of spout task {task}")
            missing += [f"{k} by {count} and {sink}" for k, (at, count, sink) in found.items() if at < since]
        return missing

    def report(self) -> dict[str, Any]:
        """All that can be said by now, as `chaos.check --json` says it. Raises Stuck."""
        return self._ask("report")

    def close(self) -> None:
        """End the checker."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _ask(self, what: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        deadline = time.monotonic() + ANSWER
        out = self._process.stdout.fileno()
        try:
            self._owed += 1
            self._process.stdin.write(f"{what}\n".encode())
            self._process.stdin.flush()
            # What comes first may be the answer to a question that was given up: it took too long, or the run was interrupted.
            while self._owed:
                while b"\n" not in self._heard:
                    ready, _, _ = select.select([out], [], [], max(0.0, deadline - time.monotonic()))
                    data = os.read(out, 1 << 20) if ready else b""
                    if not data:
                        raise BrokenPipeError
                    self._heard += data
                line, _, self._heard = self._heard.partition(b"\n")
                self._owed -= 1
        except OSError:
            why = "has ended" if self._process.poll() is not None else f"does not answer within {ANSWER:g} s"
            raise Stuck(f"the checker {why}: see checker.log beside the record") from None
        found: dict[str, Any] = json.loads(line)
        return found

    @staticmethod
    def now() -> int:
        return time.monotonic_ns()
