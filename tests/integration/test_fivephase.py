"""The five-phase experiment as its own process: it ends with 0 when both results are right, and leaves nothing behind."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from watched_run import run as running

MODULE = "examples.demo.fivephase"
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(300),
]


@pytest.mark.slow
def test_both_runs_are_right(tmp_path: Path) -> None:
    with running(MODULE, tmp_path, "--phase", "1", "--rate", "15") as run:
        assert run.end() == 0, run.text
    assert run.text.count("  Equal: ") == 2 and run.text.count("equal to those of the reference") == 2, (
        run.text
    )
    assert "Elastic: ds2 --period 1 --confirm-in 2." in run.text and "PHASE  OFFERED/S" in run.text
    assert run.text.count("\n  met ") + run.text.count("\n  NOT MET ") == 5, run.text
    assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
    assert not run.left()


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with running(MODULE, tmp_path, "--phase", "30", "--rate", "5") as run:
        run.until("phase 1")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.text
    assert run.seen and "Traceback" not in run.text
    assert not run.left()


def test_an_input_that_is_missing_is_an_error_before_anything_is_started(tmp_path: Path) -> None:
    with running(MODULE, tmp_path, "--input", str(tmp_path / "none.txt")) as run:
        assert run.end() == 2
    assert "There is no file" in run.text and "Starting a cluster" not in run.text
