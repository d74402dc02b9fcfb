"""What a component can say by its context."""

from __future__ import annotations

import datetime
import decimal
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastic import Bolt, Fields, Spout, TextSpout, TopologyBuilder
from elastic.local import LocalCluster
from elastic.model.events import Event, Severity
from elastic.reporting.codec import EVENT
from elastic.supervisor.messages import Messages, encode
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


class Tells(Bolt):
    def execute(self, tup: Any) -> None:
        self.context.warn("told", "this is told", detail=tup.value)


class Unsayable:
    def __str__(self) -> str:
        raise ValueError("no word of it")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.str_("a"), "a"),
        (True, 1),
        (None, "None"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        ((1 << 63) - 1, (1 << 63) - 1),
        (1 << 63, "9223372036854775808"),
        (10**5000, "(int: ValueError)"),
        (decimal.Decimal("1.10"), "1.10"),
        ([1, "a"], "[1, 'a']"),
        (datetime.date(2020, 1, 1), "2020-01-01"),
        (Unsayable(), "(Unsayable: ValueError)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_detail_of_a_warning_is_told_whatever_it_is(value: Any, told: str | int | float) -> None:
    """In a cluster as in one process: it goes through the worker's pipe, and through the supervisor's messages."""
    b = TopologyBuilder("tells")
    b.spout("once", Once(value))
    b.bolt("tells", Tells()).shuffle("once")
    with LocalCluster() as cluster:
        (event,) = cluster.submit(b.build()).wait(timeout=60).events
    assert event.details == {"detail": told, "times": 1}
    assert type(event.details["detail"]) is type(told)
    (came,) = Messages().feed(encode(event))
    assert isinstance(came, Event)
    assert EVENT.decode(EVENT.encode(came)) == event


class Once(Spout):
    outputs = Fields("value")

    def __init__(self, value: Any) -> None:
        self.value = value

    def tuples(self) -> Any:
        yield (self.value,)


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
