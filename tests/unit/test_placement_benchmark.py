"""What the benchmark `placement` reads from a cluster: tuples between nodes by the counters of pairs, latencies from several sinks."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from benchmarks._pauses_notes import Window, parts
from benchmarks._placement_job import PARTS, topology
from benchmarks.harness import Wrong
from benchmarks.placement import aged, between
from benchmarks.placements import assignment, executor, spec
from elastic.model.assignment import ExecutorId
from elastic.model.load import PairLoad, WorkerReport
from elastic.model.records import TopologyState, TopologyStatus
from elastic.model.views import TopologyDetail, TopologySummary

A, B, C = executor("a", 1), executor("b", 2), executor("c", 3)


def detail(places: dict[ExecutorId, tuple[str, int]], *pairs: PairLoad) -> TopologyDetail:
    found = assignment("t", places)
    state = TopologyState(TopologyStatus.ACTIVE, "t-1", "b", 0.0)
    report = WorkerReport("t", "t@n1/0", "t@n1/0#1", 0.0, 1, pairs=pairs)
    summary = TopologySummary(found.topology, "t-1", state.status, 0.0, 0.0, 3, 3, 1)
    wanted = spec("t", {"a": (1, 1), "b": (1, 1), "c": (1, 1)})
    return TopologyDetail(summary, wanted, state, found, reports=(report,))


def test_only_what_was_sent_meanwhile_counts_and_only_to_other_nodes() -> None:
    places = {A: ("n1", 0), B: ("n1", 1), C: ("n2", 0)}
    before = detail(places, PairLoad(1, 2, 1000), PairLoad(2, 3, 5000))
    after = detail(places, PairLoad(1, 2, 1300), PairLoad(2, 3, 5100))
    assert between(before, after) == pytest.approx(0.25)
    assert between(detail(places), after) == pytest.approx(5100 / 6400)


def test_what_cannot_be_told_apart_is_no_figure() -> None:
    here, there = {A: ("n1", 0), B: ("n1", 0)}, {A: ("n1", 0), B: ("n2", 0)}
    with pytest.raises(Wrong, match="sent nothing"):
        between(detail(here, PairLoad(1, 2, 7)), detail(here, PairLoad(1, 2, 7)))
    with pytest.raises(Wrong, match="moved while"):
        between(detail(here), detail(there, PairLoad(1, 2, 7)))


def test_ages_of_several_sinks_whose_times_overlap(tmp_path: Path) -> None:
    for name, stamps, came in (("x", [0, 10, 20], [5, 18, 90]), ("y", [0, 4, 40], [2, 7, 50])):
        with (tmp_path / f"{name}.notes").open("wb") as file:
            for column in ([0, 0, 0], stamps, came):
                array("q", column).tofile(file)
    assert sorted(aged(parts(tmp_path), Window(5, 50))) == [3, 5, 8, 10]


def test_each_chain_has_as_many_executors_as_it_says(tmp_path: Path) -> None:
    for kind, executors in PARTS.items():
        made = topology(["--chain", kind, "--directory", str(tmp_path)])
        assert tuple(c.executors for c in made.spec.components) == executors
        assert made.spec.workers == 4
