"""Spouts in other languages, with real processes."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from elastic import Fields, LocalCluster, ShellSpout, TopologyBuilder
from elastic.errors import ExecutionError
from elastic.multilang import spouts
from elastic.testing import SpoutTester, collect

CHILDREN = Path(__file__).parent / "children"


def spout(mode: str, most: int, **options: Any) -> ShellSpout:
    return ShellSpout(
        [sys.executable, "spout.py", mode, str(most)], Fields("value"), files=CHILDREN, **options
    )


def run(made: ShellSpout) -> tuple[SpoutTester, list[Any]]:
    tester = SpoutTester(made)
    try:
        return tester, [value for (value,) in tester.run()]
    finally:
        tester.close()


def test_what_it_emits_until_it_ends() -> None:
    tester, values = run(spout("plain", 5))
    assert values == ["0", "1", "2", "3", "4"] and tester.exhausted


def test_one_that_waits_for_acknowledgements_gets_them_at_once() -> None:
    _, values = run(spout("waits", 20))
    assert values == [str(n) for n in range(20)]


def test_acknowledgements_follow_what_was_emitted_and_it_is_activated_first() -> None:
    _, values = run(spout("heard", 2))
    assert json.loads(values[-1]) == [["activate"], ["ack", 0], ["ack", 1]]


def test_what_cannot_be_taken_fails() -> None:
    tester = SpoutTester(spout("refused", 2))
    with pytest.raises(ExecutionError, match="takes a list of 1 values"):
        tester.run()
    assert tester.run() == [("failed odd",), ("1",)]
    tester.close()


def test_one_that_has_nothing() -> None:
    tester, values = run(spout("nothing", 0))
    assert values == [] and tester.exhausted


def test_what_it_cannot_emit_as_it_begins_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ExecutionError, match="takes a list of 1 values"):
        SpoutTester(spout("odd-beginning", 1))
    assert not list(tmp_path.iterdir())


def test_it_is_told_when_the_topology_rests() -> None:
    tester = SpoutTester(spout("heard", 1))
    tester.component.deactivate()  # type: ignore[attr-defined]
    tester.component.activate()  # type: ignore[attr-defined]
    ((_,), (heard,)) = tester.run()
    assert json.loads(heard) == [["activate"], ["deactivate"], ["activate"], ["ack", 0]]
    tester.close()


def test_one_that_does_not_know_activate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spouts, "_PATIENCE", 0.2)
    tester = SpoutTester(spout("deaf", 3))
    assert tester.run(2) == [("0",), ("1",)]
    tester.component.deactivate()  # type: ignore[attr-defined]
    assert tester.run() == [("2",)] and tester.exhausted
    tester.close()
    assert [kind for kind, _ in tester.warnings] == ["shell-deaf"]


@pytest.mark.parametrize(
    ("mode", "said"), [("dies", "exit code 5"), ("fails", "exit code 0. It reported: broken")]
)
def test_one_that_dies_is_no_end(mode: str, said: str) -> None:
    tester = SpoutTester(spout(mode, 1))
    with pytest.raises(ExecutionError, match=said):
        tester.run()
    assert not tester.exhausted and tester.take() == [("0",)]
    tester.component.next_tuple()  # type: ignore[attr-defined]
    assert tester.take() == [("0",)], "another one begins"
    tester.close()


def test_in_a_topology() -> None:
    out = collect()
    b = TopologyBuilder("spouts")
    b.spout("numbers", spout("waits", 50), tasks=2)
    b.bolt("out", out).shuffle("numbers")
    with LocalCluster() as cluster:
        cluster.submit(b).wait(60)
    assert sorted(int(v) for (v,) in out.rows) == sorted([*range(50), *range(50)])
