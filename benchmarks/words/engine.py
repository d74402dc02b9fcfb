"""elastic itself: one process by `LocalCluster`, two workers by a cluster of two nodes on this machine."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from typing import Any

from benchmarks.cluster import Cluster, cluster
from benchmarks.words.text import arguments, say
from benchmarks.words.topologies import build, collected, say_go, wait_ready

TIMEOUT = 240.0
TARGET = "benchmarks.words.topologies"
NAME = "words"


def in_process(options: dict[str, Any]) -> None:
    """Run it here."""
    from elastic.local import LocalCluster

    made = build(**options)
    with LocalCluster() as local:
        run = local.submit(made)
        wait_ready(options["directory"], made, lambda: "")
        say_go(options["directory"])
        run.wait(TIMEOUT)


def place(there: Cluster) -> None:
    """As the hand-written loops have it: the source and the splitter in one process, the counter in the other."""
    placed = {e["component"]: e["worker"] for e in there.ask("describe", NAME)["executor_list"]}
    near = placed["lines"]
    (far,) = {*placed.values()} - {near}
    there.call("move", NAME, "split", "--to", near)
    there.call("move", NAME, "count", "--to", far)


def in_cluster(options: dict[str, Any]) -> None:
    """Run it in workers of its own."""
    made = build(**options)
    with (
        cluster(nodes=options["processes"], slots=1) as there,
        there.began("submit", "--wait", TARGET, json.dumps(options)) as submit,
    ):
        wait_ready(options["directory"], made, lambda: "" if submit.poll() is None else "it ended early")
        if not options["hashed"]:
            place(there)
        say_go(options["directory"])
        submit.wait(TIMEOUT)


def main() -> None:
    """The contender as a program."""
    parser = arguments(__doc__)
    parser.add_argument("--batches", action="store_true", help="on the batch API")
    given = parser.parse_args()
    # Being ended is a reason to take the cluster down, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as directory:
        options = {**vars(given), "directory": directory}
        if given.processes == 1:
            in_process(options)
        else:
            in_cluster(options)
        say(*collected(directory))


if __name__ == "__main__":
    main()
