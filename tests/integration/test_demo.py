"""The demonstration as its own process: it ends with 0 only if the counts are equal, and leaves nothing behind, however it ends."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

import pytest
from families import command_of
from hazelcast_here import hazelcast_java
from watched_run import Run
from watched_run import run as running

from examples.demo.counting import Counting
from examples.demo.stage import Story

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(240),
]
SHORT = ("--host", "process", "--seconds", "10", "--rate", "300", "--phase", "0.6")


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts it, a short one, with options."""
    with ExitStack() as runs:
        yield lambda *options: runs.enter_context(running("examples.demo", tmp_path, *SHORT, *options))


def test_from_up_to_equal(tmp_path: Path, demo: Callable[..., Run]) -> None:
    run = demo()
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
    pauses_are_told(run.text)
    assert ElementTree.parse(tmp_path / "figure.svg").getroot().tag.endswith("svg")
    assert not run.left()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "store"),
    [
        pytest.param("spark", "embedded", marks=pytest.mark.spark),
        ("process", "hazelcast"),
        pytest.param("spark", "hazelcast", marks=pytest.mark.spark),
    ],
)
def test_state_moves_as_well_on_spark_and_over_hazelcast(
    demo: Callable[..., Run], host: str, store: str
) -> None:
    """The first act: a node is drained that a Spark task provides, states lie on Hazelcast members of the nodes."""
    if store == "hazelcast":
        hazelcast_java()
    run = demo("--act", "1", "--host", host, "--store", store)
    run.until("Moving count[10-17] from node-1 to node-2")
    commands = [command_of(p) for p in run.seen]
    assert any("HazelcastMemberStarter" in c for c in commands) == (store == "hazelcast")
    assert any("org.apache.spark" in c for c in commands) == (host == "spark")
    run.until("is gone")
    assert "Draining node-2" in run.text and f"node-1 ({host}), node-3 ({host})" in run.text
    run.until("Equal: ")
    assert run.end() == 0, run.text
    pauses_are_told(run.text)
    assert "warning:" not in run.text and "error:" not in run.text
    assert not run.left()


def pauses_are_told(text: str) -> None:
    """Of the regrouping, and of each move, of which the drain is at least one: each task's own, and all together."""
    assert re.search(
        r"tasks changed their executor; each paused for \d+\.\d\d ms \(median\), \d+\.\d\d ms at most", text
    )
    moves = re.findall(
        r"(\d+) tasks moved, [\d,]+ KiB in all; tuples for one were held for \d+ ms \(median\), \d+ ms at most",
        text,
    )
    each = re.findall(r"\w+ (\d+): \d+ ms", text)
    assert len(moves) >= 2 and moves[0] == "8" and len(each) == sum(map(int, moves))


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
def test_ctrl_c_at_any_stage_leaves_nothing(stage: str, demo: Callable[..., Run]) -> None:
    run = demo("--act", "2" if stage == "Elastic: ds2" else "1")
    run.until(stage)
    assert run.seen
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130, run.text
    assert "Traceback" not in run.text
    assert not run.left()


def test_a_text_that_is_too_short_for_the_show_is_an_error(demo: Callable[..., Run]) -> None:
    run = demo("--seconds", "0.1", "--act", "1")
    assert run.end() == 2
    assert "Give more --seconds" in run.text
    assert not run.left()


def test_an_input_that_is_missing_is_an_error_before_anything_is_started(
    tmp_path: Path, demo: Callable[..., Run]
) -> None:
    run = demo("--input", str(tmp_path / "none.txt"))
    assert run.end() == 2
    assert "There is no file" in run.text and "Starting a cluster" not in run.text
    assert not run.left()
