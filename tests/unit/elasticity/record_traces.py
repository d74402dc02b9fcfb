"""Records the traces that tests replay: what a real worker reports while its load goes up and down.

    python tests/unit/elasticity/record_traces.py traces/worker.jsonl

One worker runs a computing and a waiting component, two executors each; 20, 60 and 20 tuples per second arrive for 8 s each.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import Any

from elastic import Bolt, Fields, LocalCluster, Spout, TopologyBuilder
from elastic.model.codec import encode

RATES, SECONDS, EVERY = (20.0, 60.0, 20.0), 8.0, 0.5


class Source(Spout):
    """Emits on schedule, and says what the schedule offers."""

    outputs = Fields(number=int)

    def prepare(self, context: Any) -> None:
        self.began, self.sent = time.monotonic(), 0
        context.gauge("offered", self.offered)

    def offered(self) -> float:
        at = int((time.monotonic() - self.began) / SECONDS)
        return RATES[min(at, len(RATES) - 1)]

    def next_tuple(self) -> None:
        passed, due = time.monotonic() - self.began, 0.0
        for rate in RATES:
            due += rate * max(0.0, min(passed, SECONDS))
            passed -= SECONDS
        while self.sent < due:
            self.sent += 1
            self.emit(self.sent)


class Computing(Bolt):
    """About 8 ms of computing, with the interpreter's lock held."""

    def execute(self, tup: Any) -> None:
        data = b"x"
        until = time.thread_time() + 0.008
        while time.thread_time() < until:
            for _ in range(50):
                data = hashlib.sha256(data).digest()


class Waiting(Bolt):
    """Waits for 8 ms."""

    def execute(self, tup: Any) -> None:
        time.sleep(0.008)


def main(path: Path) -> None:
    b = TopologyBuilder("recorded")
    b.spout("source", Source())
    b.bolt("computing", Computing(), tasks=4, executors=2).shuffle("source")
    b.bolt("waiting", Waiting(), tasks=4, executors=2).shuffle("source")
    lines = []
    with LocalCluster() as cluster:
        run = cluster.submit(b.build())
        until = time.monotonic() + SECONDS * len(RATES)
        while time.monotonic() < until:
            time.sleep(EVERY)
            lines.append(encode(run.report()).decode())
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
