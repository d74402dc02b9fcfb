"""Computing or waiting: told apart by CPU and wall time, also where threads wait for each other."""

from __future__ import annotations

from pathlib import Path

from loads import busy, measured, spec, view

from elastic.elasticity.kinds import COMPUTES, Kind, components
from elastic.elasticity.monitor import LoadMonitor, MonitorConfig
from elastic.model.codec import decode
from elastic.model.ids import ComponentId
from elastic.model.load import WorkerReport
from elastic.model.topology import ComponentSpec, TopologySpec

TRACE = Path(__file__).with_name("traces") / "worker.jsonl"
T = spec(source=1, bolt=2, other=1)
BOLT = ComponentId("bolt")


def test_alone_the_cpu_share_of_busy_time_tells() -> None:
    assert measured(T, view(T, {"bolt": [busy(0.8), busy(0.7)]}))[BOLT].kind is Kind.COMPUTING
    assert measured(T, view(T, {"bolt": [busy(0.8, 0.05)] * 2}))[BOLT].kind is Kind.WAITING
    assert measured(T, view(T, {"bolt": [busy(0.001)] * 2}))[BOLT].kind is Kind.UNKNOWN


def test_computing_threads_that_share_one_lock_are_not_taken_for_waiting() -> None:
    crowd = view(T, {"bolt": [busy(1.0, 0.28)] * 3}, workers={"n1/0": (0.85, ["bolt"])})
    bolt = measured(T, crowd)[BOLT]
    assert (bolt.kind, bolt.held) == (Kind.COMPUTING, True)
    assert bolt.compute < bolt.service * 1.01, "waiting for the lock is not service"


def test_planted_fault_cpu_against_wall_alone_would_have_called_them_waiting() -> None:
    load = busy(1.0, 0.28)
    assert load.cpu < COMPUTES * load.busy


def test_a_waiting_thread_in_a_full_process_still_is_waiting() -> None:
    crowd = view(
        T,
        {"bolt": [busy(0.9, 0.03)] * 2, "other": [busy(1.0, 0.9)]},
        workers={"n1/0": (0.97, ["bolt", "other"])},
    )
    found = measured(T, crowd)
    assert found[BOLT].kind is Kind.WAITING
    assert found[ComponentId("other")].kind is Kind.COMPUTING


def test_on_a_full_node_the_cores_are_what_is_waited_for() -> None:
    crowd = view(T, {"bolt": [busy(1.0, 0.45)] * 2}, nodes={"n1": (1.0, 0.95)})
    assert measured(T, crowd)[BOLT].kind is Kind.COMPUTING
    assert measured(T, crowd)[BOLT].held


def test_what_was_seen_undisturbed_counts_more_than_a_crowd() -> None:
    crowd = view(
        T,
        {"bolt": [busy(0.95, 0.06)] * 2, "other": [busy(1.0, 0.75)]},
        workers={"n1/0": (0.95, ["bolt", "other"])},
    )
    assert components(crowd, T)[BOLT].kind is Kind.WAITING
    assert components(crowd, T, None, {BOLT: 0.95})[BOLT].kind is Kind.COMPUTING


def test_a_recorded_worker_is_told_right_all_the_time() -> None:
    """Two threads that hold the lock and two that wait, in one process, under a load that trebles and comes back."""
    parts = [("source", 1), ("computing", 4), ("waiting", 4)]
    recorded = TopologySpec(
        "recorded",
        tuple(
            ComponentSpec(ComponentId(c), "bolt" if i else "spout", n, 1) for i, (c, n) in enumerate(parts)
        ),
    )
    monitor, memory, seen = LoadMonitor(MonitorConfig(period=1.0)), {}, []
    for line in TRACE.read_text(encoding="utf-8").splitlines():
        report = decode(line.encode(), WorkerReport)
        monitor.observe(report, report.time)
        found = components(monitor.view(report.time), recorded, None, memory)
        memory = {id: load.purity for id, load in found.items()}
        if found:
            seen.append((found[ComponentId("computing")].kind, found[ComponentId("waiting")].kind))
    assert len(seen) > 40
    assert set(seen) == {(Kind.COMPUTING, Kind.WAITING)}
