"""How long it takes until something happens: the command's help, a first tuple in process, a cluster that is ready.

Each is a process of its own, as a user starts it; what is measured is from its start by the clock of whoever waits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Goal, Session, Skip, Wrong

NAME = "startup"
SUMMARY = "elastic --help, the first tuple of elastic run, elastic up until it is ready"

COMMAND = (sys.executable, "-m", "elastic.control.cli")
LIMIT = 300.0


def run(session: Session) -> None:
    """Measure all, interleaved."""
    with tempfile.TemporaryDirectory(prefix="elastic-startup-") as directory:
        place = Path(directory)
        contenders: dict[str, Callable[[], float]] = {
            "python -c pass": lambda: _seconds((sys.executable, "-c", "pass")),
            "elastic --help": lambda: _seconds((*COMMAND, "--help")),
            "elastic run, first tuple": lambda: _first_tuple(place),
            "elastic up, 2 process nodes": lambda: _up(place, "process"),
        }
        if not session.quick:
            contenders["elastic up, 2 nodes on Spark"] = lambda: _up(place, "spark", "--host", "spark")
        values = session.interleave(contenders, unit="s")
    session.report(
        values,
        unit="s",
        compare={"elastic --help": "python -c pass"},
        goals={
            ("elastic --help", "python -c pass"): Goal(0.4, at_least=False),
            ("elastic run, first tuple", ""): Goal(0.5, at_least=False),
            ("elastic up, 2 process nodes", ""): Goal(3.0, at_least=False),
            ("elastic up, 2 nodes on Spark", ""): Goal(12.0, at_least=False),
        },
    )


def _seconds(command: tuple[str, ...], *, env: dict[str, str] | None = None) -> float:
    """How long a command takes to its end."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=env)
    took = time.perf_counter() - began
    if done.returncode:
        raise Wrong(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return took


def _first_tuple(place: Path) -> float:
    """From the start of `elastic run` until the word count's bolt has its first tuple."""
    source = place / "startup_first_tuple.py"
    source.write_text(SOURCE)
    text = place / "text.txt"
    if not text.exists():
        text.write_text("to be or not to be\n" * 1000)
    began = time.time()
    done = subprocess.run(
        [*COMMAND, "run", str(source), "--input", str(text), "--output", str(place / "counts.tsv")],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("first ")]
    if done.returncode or not said:
        raise Wrong(f"elastic run ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return float(said[0].split()[1]) - began


SOURCE = '''\
"""The word count of the examples, with a hook that says when the first tuple is executed."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.getcwd(), "examples"))

from elastic import TaskHook
from word_count import topology as word_count


class First(TaskHook):
    def __init__(self):
        self.said = False

    def on_execute(self, *args, **kwargs):
        if not self.said:
            self.said = True
            os.write(1, b"first %.9f\\n" % time.time())


def topology(args):
    made = word_count(args)
    return type(made)(made.spec, made.components, made.groupings, {**made.hooks, "": (First(),)})
'''


def _up(place: Path, name: str, *options: str) -> float:
    """From the start of `elastic up` until it returns: all nodes are there and Nimbus leads."""
    env = {**os.environ, "ELASTIC_HOME": str(place / "home")}
    cluster = ("--cluster", name)
    try:
        return _seconds((*COMMAND, "up", *cluster, "--nodes", "2", *options), env=env)
    except Wrong as error:
        if "exit code 11" in str(error):
            raise Skip(str(error).splitlines()[-1]) from error
        raise
    finally:
        subprocess.run(
            [*COMMAND, "down", *cluster, "--purge"], capture_output=True, timeout=LIMIT, check=False, env=env
        )
