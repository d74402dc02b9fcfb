"""The same in bytewax: lines in memory, a `flat_map` to pairs, a stateful step that counts; one process or two.

Of the ways to write it in bytewax this is the quickest that was found: `count_final`, or `key_on` as a step of its
own, take 1.5 to 2.5 times as long.
Two processes each read half of the lines, as its own partitioned sources do.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.words.contender import not_here
from benchmarks.words.text import arguments, lines, say

BATCH = 256
WHERE = "BENCHMARK_BYTEWAX_DIRECTORY"


def flow(text: list[str], copies: int, out: Path) -> Any:
    """The data flow; each worker writes its counts and its times to a file in `out`."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import DynamicSource, StatelessSourcePartition
    from bytewax.operators import StatefulBatchLogic
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    times: dict[str, float] = {}

    class Part(StatelessSourcePartition[str]):
        def __init__(self, share: list[str]) -> None:
            self.batches = [share[i : i + BATCH] for i in range(0, len(share), BATCH)]
            self.left = copies * len(self.batches)

        def next_batch(self) -> Iterable[str]:
            if not self.left:
                raise StopIteration
            times.setdefault("started", time.monotonic())
            self.left -= 1
            return self.batches[self.left % len(self.batches)]

    class Source(DynamicSource[str]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Part:
            return Part(text[worker_index::worker_count])

    class Count(StatefulBatchLogic[int, int, int]):
        def __init__(self) -> None:
            self.count = 0

        def on_batch(self, values: list[int]) -> tuple[Iterable[int], bool]:
            self.count += len(values)
            return (), False

        def on_eof(self) -> tuple[Iterable[int], bool]:
            return (self.count,), True

        def snapshot(self) -> int:
            return self.count

    class Written(StatelessSinkPartition[tuple[str, int]]):
        def __init__(self, name: str) -> None:
            self.name, self.counts = name, Counter[str]()

        def write_batch(self, items: list[tuple[str, int]]) -> None:
            for word, count in items:
                self.counts[word] += count
            times["ended"] = time.monotonic()

        def close(self) -> None:
            (out / self.name).write_text(json.dumps({**times, "counts": self.counts}))

    class Sink(DynamicSink[tuple[str, int]]):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Written:
            return Written(f"{worker_index}.json")

    made = Dataflow("words")
    stream = op.input("lines", made, Source())
    words = op.flat_map("split", stream, lambda line: [(word, 1) for word in line.split()])
    counts: Any = op.stateful_batch("count", words, lambda state: Count())
    op.output("out", counts, Sink())
    return made


def free_ports(number: int) -> list[int]:
    """Ports of the loopback interface that nobody uses at this moment."""
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main() -> None:
    """The contender as a program."""
    parser = arguments(__doc__)
    parser.add_argument("--process", type=int, help="the number of this process, in a cluster")
    parser.add_argument("--addresses", help="of all processes, in a cluster")
    options = parser.parse_args()
    try:
        import bytewax._bytewax as engine
    except ImportError:
        not_here("bytewax is not installed (it has no release for this Python)")
    cli: Any = engine.cli_main
    text = lines(options.input)
    if options.process is not None:
        made = flow(text, options.copies, Path(os.environ[WHERE]))
        cli(made, process_id=options.process, addresses=options.addresses.split(","))
        return
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory)
        if options.processes == 1:
            cli(flow(text, options.copies, out))
        else:
            addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(2))
            again = [sys.executable, *sys.orig_argv[1:], "--addresses", addresses, "--process"]
            env = {**os.environ, WHERE: directory}
            children = [subprocess.Popen([*again, str(number)], env=env) for number in range(2)]
            if any(codes := [child.wait() for child in children]):
                sys.exit(f"The processes ended with the codes {codes}.")
        parts = [json.loads(path.read_text()) for path in sorted(out.iterdir())]
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part["counts"])
    say(counts, max(part["ended"] for part in parts) - min(part["started"] for part in parts))


if __name__ == "__main__":
    main()
