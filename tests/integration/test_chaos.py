"""A short run of `python -m chaos`: a few kills on a real cluster during moves. The long one is `make chaos`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(300),
]


@pytest.mark.slow
def test_a_few_kills_during_moves_cost_what_they_may(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("ELASTIC_")}
    command = [
        sys.executable,
        "-m",
        "chaos",
        "--kills",
        "4",
        "--seed",
        "11",
        "--directory",
        str(tmp_path / "c"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "== free" in done.stdout and "== cost" in done.stdout and "VIOLATIONS" not in done.stdout
    assert not (tmp_path / "c").exists(), "what went well leaves nothing behind"


@pytest.mark.slow
def test_a_run_of_moves_in_a_flood_that_is_interrupted_says_what_has_arrived(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("ELASTIC_")}
    command = [
        sys.executable,
        "-m",
        "chaos",
        "--no-kills",
        "--seconds",
        "200",
        "--directory",
        str(tmp_path / "c"),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        said = []
        for line in run.stdout:
            said.append(line)
            if "everything flows" in line and len([x for x in said if "everything flows" in x]) == 4:
                run.send_signal(signal.SIGTERM)
        text = "".join(said)
    assert run.returncode == 130, text[-6000:]
    assert " 0 lost, 0 doubled, 0 reordered, 0 forgotten" in text and "as far as it came" in text
    assert "the spouts waited" in text and not (tmp_path / "c").exists()


def test_what_it_cannot_choose_is_said() -> None:
    command = [sys.executable, "-m", "chaos", "--only", "lunch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "lunch" in done.stderr and "restoring" in done.stderr
