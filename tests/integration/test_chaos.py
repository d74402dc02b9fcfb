"""A short run of `python -m chaos`: a few kills on a real cluster during moves. The long one is `make chaos`."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_harness import environment
from hazelcast_here import hazelcast_java

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(300),
]


@contextlib.contextmanager
def chaos(*args: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "chaos", *args]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        try:
            yield run
        except BaseException:
            run.kill()  # the cluster dies with it
            raise


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["embedded", "hazelcast"])
def test_a_few_kills_during_moves_cost_what_they_may(tmp_path: Path, store: str) -> None:
    """With Hazelcast, members and stores of both nodes are among those that may die."""
    if store == "hazelcast":
        hazelcast_java()
    place = str(tmp_path / "c")
    with chaos("--kills", "4", "--seed", "11", "--store", store, "--directory", place) as run:
        text, _ = run.communicate()
    assert run.returncode == 0, text[-6000:]
    assert "== free" in text and "== cost" in text and "VIOLATIONS" not in text
    assert not (tmp_path / "c").exists(), "what went well leaves nothing behind"


@pytest.mark.slow
def test_who_is_frozen_for_longer_than_its_session_owns_nothing_when_it_goes_on(tmp_path: Path) -> None:
    only = "source,source-node,paused,committed"
    with chaos(
        "--account", "frozen", "--kills", "3", "--only", only, "--directory", str(tmp_path / "c")
    ) as run:
        text, _ = run.communicate()
    assert run.returncode == 0, text[-6000:]
    assert "== frozen" in text and "VIOLATIONS" not in text


@pytest.mark.slow
def test_a_run_of_moves_in_a_flood_that_is_interrupted_says_what_has_arrived(tmp_path: Path) -> None:
    with chaos("--no-kills", "--seconds", "200", "--directory", str(tmp_path / "c")) as run:
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
    with chaos("--only", "lunch") as run:
        text, _ = run.communicate()
    assert run.returncode == 2 and "lunch" in text and "restoring" in text
