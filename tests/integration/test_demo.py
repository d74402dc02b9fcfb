"""The demonstration as its own process: it ends with 0 only if the counts are equal, and leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from examples.demo.counting import Counting
from examples.demo.stage import Story

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(240),
]
SHORT = ("--host", "process", "--seconds", "10", "--rate", "300", "--phase", "0.6")


class Run:
    """A demonstration that runs; its files are in a directory of the test's own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        command = [sys.executable, "-m", "examples.demo"]
        self.process = subprocess.Popen(
            [*command, *SHORT, "--figure", str(directory / "figure.svg"), *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
        )
        self.lines: list[str] = []
        self.seen: set[psutil.Process] = set()

    def until(self, words: str) -> None:
        """Read on until a line has these words. Remembers what is below the process then."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if words in line:
                self.seen.update(
                    p for p in psutil.process_iter() if str(self.directory) in " ".join(_command(p))
                )
                return
        raise AssertionError(f"it never said {words!r}:\n{self.text}")

    def end(self) -> int:
        """Read on to the end; returns the exit code."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout  # bounded by the time of the test
        return self.process.wait(PATIENCE)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def left(self) -> list[str]:
        """What it started and still runs, and files that it left."""
        _, alive = psutil.wait_procs(list(self.seen), timeout=PATIENCE)
        files = [str(p) for p in self.directory.glob("elastic-demo-*")]
        return [" ".join(_command(p)) for p in alive if _command(p)] + files


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Run]]:
    runs: list[Run] = []
    yield runs
    for run in runs:
        if run.process.poll() is None:
            run.process.terminate()  # it ends what it has started
            killer = threading.Timer(PATIENCE, run.process.kill)
            killer.start()
            run.process.communicate()
            killer.cancel()


def test_from_up_to_equal(tmp_path: Path, started: list[Run]) -> None:
    run = Run(tmp_path)
    started.append(run)
    run.until("All workers run")
    assert run.seen, "its processes are known by its directory"
    assert run.end() == 0, run.text
    order = [
        "The cluster is ready",
        "Submitted examples/word_count.py",
        "All workers run",
        "executors 2 for split, 2 for count",
        "24 tasks changed their executor",
        "tasks without state only",
        "nothing is under way",
        "kill -9",
        "is connected to the others",
        "The spout goes on",
        "Moving count[10-17] from node-1 to node-2",
        "8 tasks moved",
        "Adding a node",
        "node-3 is there",
        "Draining node-2",
        "tasks moved",
        "node-2 is gone",
        "There are node-1 (process), node-3 (process)",
        "has finished",
        "Equal: ",
        "Not elastic: the executors stay",
        "Equal: ",
        "Elastic: ds2",
        "Equal: ",
        "PHASE  OFFERED/S",
        "The patterns are equal to those of the reference",
        "The figure: ",
        "Done after",
    ]
    at = 0
    for words in order:
        at = run.text.find(words, at) + 1
        assert at, f"{words!r} is not in its place:\n{run.text}"
    assert "lines/s" in run.text and "split[" in run.text, "throughput and placement were shown"
    assert "warning:" not in run.text and "error:" not in run.text
    assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
    assert not run.left()


def test_counts_that_differ_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A planted fault: a word more in the topology's result than in the text."""
    demo = Counting("", 1.0, 1.0, tmp_path, Story())
    demo.text.write_bytes(b"a b\\c \xff\na\n")
    right = "a\t2\nb\\c\t1\n\ufffd\t1\n"
    demo.counts.write_text(right)
    assert demo.compare()
    demo.counts.write_text(right + "planted\t7\n")
    assert not demo.compare()
    said = capsys.readouterr().out
    assert "Equal: 3 different words, 4 in all" in said
    assert "NOT EQUAL" in said and "'planted': 7 instead of 0" in said


@pytest.mark.parametrize(
    "stage", ["starting 1 Nimbus", "The cluster is ready", "nothing is under way", "Elastic: ds2"]
)
def test_ctrl_c_at_any_stage_leaves_nothing(stage: str, tmp_path: Path, started: list[Run]) -> None:
    run = Run(tmp_path, *(("--act", "2") if stage == "Elastic: ds2" else ("--act", "1")))
    started.append(run)
    run.until(stage)
    assert run.seen
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130, run.text
    assert "Traceback" not in run.text
    assert not run.left()


def test_a_text_that_is_too_short_for_the_show_is_an_error(tmp_path: Path, started: list[Run]) -> None:
    run = Run(tmp_path, "--seconds", "0.1", "--act", "1")
    started.append(run)
    assert run.end() == 2
    assert "Give more --seconds" in run.text
    assert not run.left()


def test_an_input_that_is_missing_is_an_error_before_anything_is_started(tmp_path: Path) -> None:
    run = Run(tmp_path, "--input", str(tmp_path / "none.txt"))
    assert run.end() == 2
    assert "There is no file" in run.text and "Starting a cluster" not in run.text
    assert not run.left()
