"""A child of the launcher that cannot be started again has ended: nobody waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from elastic import procs
from elastic.cluster.children import Kept
from elastic.cluster.loop import Loop
from elastic.errors import EnvironmentProblem


def test_one_that_cannot_be_started_again_is_not_waited_for() -> None:
    loop = Loop()
    told: list[str | Exception] = []
    taken = EnvironmentProblem("its port is taken")

    def start() -> subprocess.Popen[bytes]:
        if told:
            raise taken
        return procs.spawn(["true"])

    kept = Kept(loop, "nimbus-1", start, lambda why, _failures: told.append(why))
    kept.start()
    loop.run(lambda: len(told) == 2)
    assert told == ["it ended with exit code 0", taken]
    stopping = threading.Thread(target=kept.stop, args=(0.1,), daemon=True)
    stopping.start()
    stopping.join(10.0)
    assert not stopping.is_alive()
    kept.hand.close()


IGNORING = """
import signal, threading
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from elastic.hosts.base import NodeCommand
from elastic.hosts.process import ProcessHost
ended, told = threading.Event(), []
def on_exit(node, why):
    told.append(why)
    ended.set()
host = ProcessHost(grace=1)
node = host.start(NodeCommand("n", ("-c", "pass"), {}, ""), on_exit)
assert ended.wait(60)
node.stop(60)
host.close()
print(node.alive(), told)
"""


def test_the_end_of_a_node_is_noticed_where_children_are_not_waited_for() -> None:
    """SIGCHLD is ignored, as this process may have inherited: nothing is left of a child that has ended."""
    done = subprocess.run(
        [sys.executable, "-c", IGNORING],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout.startswith("False ['it ended"), done.stderr
