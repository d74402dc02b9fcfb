"""What a component can say by its context."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastic import Bolt, TextSpout, TopologyBuilder
from elastic.local import LocalCluster
from elastic.model.events import Event, Severity
from elastic.testing import BoltTester


class Complainer(Bolt):
    def execute(self, tup: Any) -> None:
        self.context.warn("line-odd", f"this one is odd: {tup.line}", length=len(tup.line))


class Inventor(Bolt):
    """Makes kinds out of data, which it should not."""

    def execute(self, tup: Any) -> None:
        self.context.warn(f"odd-{tup.n}", "odd")


def test_warnings_become_events_and_a_flood_of_them_does_not(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc\n" * 1000)
    b = TopologyBuilder("warns")
    b.spout("lines", TextSpout(tmp_path / "a.txt"))
    b.bolt("complainer", Complainer()).shuffle("lines")
    events: list[Event] = []
    with LocalCluster() as cluster:
        cluster.submit(b.build(), events.append).wait(timeout=60)
    odd = [e for e in events if e.kind == "line-odd"]
    assert [e.details["times"] for e in odd] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert {(e.severity, e.component, e.details["length"]) for e in odd} == {
        (Severity.WARNING, "complainer", 3)
    }


def test_kinds_without_number_are_bounded() -> None:
    tester = BoltTester(Inventor())
    for n in range(1000):
        tester.execute(n=n)
    kinds = {kind for kind, _ in tester.warnings}
    assert len(kinds) == 101 and "other-warning" in kinds
    assert len(tester.warnings) < 120


class Measures(Bolt):
    def execute(self, tup: Any) -> None:
        self.context.counter(tup.name).inc()


def test_the_name_of_a_metric_can_be_told_and_is_none_of_elastics_own() -> None:
    tester = BoltTester(Measures())
    tester.execute(name="read \udcff.txt")
    assert tester.metrics == {"read \\udcff.txt": 1}
    for name in ("executed", "emitted", "failed", "queued"):
        with pytest.raises(ValueError, match=f"{name!r} is measured by elastic itself"):
            tester.execute(name=name)
