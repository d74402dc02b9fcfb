"""docs/metrics.md names what programs get (`-o json`), and nothing else; a worker measures all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_fake import detail

from elastic import Fields, KeyedState, LocalCluster, Spout, StatefulBolt, TopologyBuilder
from elastic.control import present
from elastic.model.ids import NodeId
from elastic.model.views import NodeSummary

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def named(heading: str) -> set[str]:
    """The names in the table below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {
        n
        for row in re.findall(r"^\| (`[^|]+`) \|", section, re.MULTILINE)
        for n in re.findall(r"`(\w+)`", row)
    }


SHOWN = detail()


@pytest.mark.parametrize(
    ("heading", "shown", "others"),
    [
        ("By component", present.component(SHOWN.components[0]), "id kind stateful executors tasks"),
        (
            "By executor",
            present.executor(SHOWN.executors[0]),
            "id component first_task last_task node worker",
        ),
        ("Between executors", present.traffic(SHOWN.traffic), "pairs"),
        ("By worker", present.worker(SHOWN.workers[0]), "worker node slot"),
        ("Of moves", present.move_totals(SHOWN.moved), ""),
    ],
)
def test_each_metric_is_there_by_its_name(heading: str, shown: dict[str, object], others: str) -> None:
    assert named(heading) == shown.keys() - set(others.split())


def test_those_of_nodes_are_there() -> None:
    node = NodeSummary(NodeId("n"), True, True, False, 2, 1, cores=2.0, cpu=0.5, memory=7)
    assert {k: present.node(node)[k] for k in ("cores", "cpu", "memory")} == {
        "cores": 2.0,
        "cpu": 0.5,
        "memory": 7,
    }


class Numbers(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Iterator[int]:
        yield from range(300)


class Sums(StatefulBolt):
    sums = KeyedState(int)

    def prepare(self, context: Any) -> None:
        self.seen = context.counter("seen")
        context.gauge("nothing", lambda: float("nan"))

    def execute(self, tup: Any) -> None:
        self.seen.inc()
        self.sums[tup.n % 7] += 1
        if tup.n >= 290:
            raise ValueError("planted")


def test_a_worker_measures_them() -> None:
    b = TopologyBuilder("measured")
    b.spout("numbers", Numbers())
    b.bolt("sums", Sums(), tasks=2).fields("numbers", "n")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build()).wait(timeout=60)
        report = run.report()
    numbers, *sums = report.tasks
    assert (numbers.executed, numbers.emitted, numbers.failed) == (300, 300, 0)
    assert sum(t.executed for t in sums) == 290 and sum(t.failed for t in sums) == 10
    assert all(t.finished and not t.queued for t in report.tasks)
    assert sum(t.custom.pop("seen") for t in sums) == 300 and not any(t.custom for t in sums)
    assert sum(p.tuples for p in report.pairs) == 300 and {p.source for p in report.pairs} == {numbers.task}
    assert report.rss > 1 << 20 and report.cpu > 0 and len(report.executors) == 2
    for e in report.executors:
        assert (
            e.busy + e.blocked + e.idle == pytest.approx(1.0) and min(e.busy, e.blocked, e.idle, e.cpu) >= 0
        )
