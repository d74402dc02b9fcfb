"""`python -m chaos.cut`: that it says why it does nothing, and one cut of each sort where the machine allows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_harness import environment

from chaos.namespaces import why_not

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(400)


def cut(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chaos.cut", *args]
    env = environment() | variables
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_where_there_are_no_namespaces_it_says_why_and_that_is_no_failure(tmp_path: Path) -> None:
    done = cut("--kills", "1", "--directory", str(tmp_path / "c"), PATH=str(tmp_path))  # no `ip` is there
    assert done.returncode == 0 and "are skipped: " in done.stdout, done
    assert not (tmp_path / "c").exists()


def test_what_it_cannot_move_is_said() -> None:
    done = cut("--only", "lunch")
    assert done.returncode == 2 and "lunch" in done.stderr and "drain" in done.stderr


@pytest.mark.slow
def test_a_short_cut_costs_nothing_and_a_long_one_what_ran_beyond_it(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    args = ("--kills", "2", "--only", "some,worker", "--flooded", "0", "--directory", str(tmp_path / "c"))
    done = cut(*args)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "== short" in done.stdout and "== long" in done.stdout and "VIOLATIONS" not in done.stdout
    assert not (tmp_path / "c").exists(), "what went well leaves nothing behind"
