"""The five-phase experiment as its own process: it ends with 0 when both results are right, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(300),
]


class Run:
    """An experiment that runs; its files are in a directory of the test's own."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.seen: set[psutil.Process] = set()
        self.text = ""
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "examples.demo.fivephase",
                "--figure",
                str(directory / "figure.svg"),
                *options,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
        )

    def until(self, words: str) -> None:
        """Read on until a line has these words. Remembers what is below the process then."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line
            if words in line:
                self.seen.update(psutil.Process(self.process.pid).children(recursive=True))
                self.seen.update(p for p in psutil.process_iter() if str(self.directory) in _command(p))
                return
        raise AssertionError(f"it never said {words!r}:\n{self.text}")

    def end(self) -> int:
        """Read on to the end; returns the exit code."""
        assert self.process.stdout is not None
        self.text += self.process.stdout.read()  # bounded by the time of the test
        return self.process.wait(PATIENCE)

    def left(self) -> list[str]:
        """What it started and still runs, and files that it left."""
        _, alive = psutil.wait_procs([p for p in self.seen if p.pid != self.process.pid], timeout=PATIENCE)
        return [_command(p) for p in alive if _command(p)] + [
            str(p) for p in self.directory.glob("elastic-fivephase-*")
        ]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()  # it ends what it has started
            killer = threading.Timer(PATIENCE, self.process.kill)
            killer.start()
            self.process.communicate()
            killer.cancel()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.slow
def test_both_runs_are_right(tmp_path: Path) -> None:
    run = Run(tmp_path, "--phase", "1", "--rate", "15")
    try:
        run.until("\n")
        assert run.end() == 0, run.text
    finally:
        run.close()
    assert run.text.count("  Equal: ") == 2 and run.text.count("equal to those of the reference") == 2, (
        run.text
    )
    assert "Elastic: ds2 --period 1 --confirm-in 2." in run.text and "PHASE  OFFERED/S" in run.text
    assert run.text.count("\n  met ") + run.text.count("\n  NOT MET ") == 5, run.text
    assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
    assert not list(tmp_path.glob("elastic-fivephase-*"))


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "--phase", "30", "--rate", "5")
    try:
        run.until("phase 1")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.text
    finally:
        run.close()
    assert run.seen and "Traceback" not in run.text
    assert not run.left()


def test_an_input_that_is_missing_is_an_error_before_anything_is_started(tmp_path: Path) -> None:
    run = Run(tmp_path, "--input", str(tmp_path / "none.txt"))
    try:
        assert run.end() == 2
    finally:
        run.close()
    assert "There is no file" in run.text and "Starting a cluster" not in run.text
