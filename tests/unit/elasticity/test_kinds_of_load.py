"""Computing or waiting: told apart by CPU and wall time, also where threads wait for each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from loads import busy, measured, spec, view

from elastic.elasticity import kinds
from elastic.elasticity.base import Room, Subject
from elastic.elasticity.kinds import COMPUTES, Kind, components
from elastic.elasticity.manager import ElasticityManager
from elastic.elasticity.monitor import LoadMonitor, MonitorConfig
from elastic.elasticity.processes import ManagerConfig
from elastic.model.codec import decode
from elastic.model.ids import ComponentId, TopologyName
from elastic.model.load import WorkerReport
from elastic.model.loadview import LoadView
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


def test_among_other_programs_that_fill_the_machine_both_kinds_are_told_right() -> None:
    """What those leave is so little that a computing thread gets no more of it than a waiting one needs."""
    full = view(
        T,
        {"bolt": [busy(1.0, 0.05, ready=0.3)] * 5, "other": [busy(1.0, 0.05, ready=0.9)]},
        workers={"n1/0": (0.25, ["bolt"]), "n1/1": (0.05, ["other"])},
        nodes={"n1": (2.0, 2.0)},
    )
    found = measured(T, full)
    assert found[BOLT].kind is Kind.WAITING
    assert found[ComponentId("other")].kind is Kind.COMPUTING
    assert components(full, T, None, {BOLT: 0.95})[BOLT].kind is Kind.COMPUTING, "as it was seen undisturbed"


def test_where_nobody_says_who_waited_for_a_core_a_little_is_computing_s_least() -> None:
    def full(cpu: float) -> LoadView:
        return view(T, {"bolt": [busy(1.0, cpu)] * 5}, nodes={"n1": (2.0, 2.0)})

    assert measured(T, full(0.02))[BOLT].kind is Kind.WAITING
    assert measured(T, full(0.05))[BOLT].kind is Kind.COMPUTING


def test_planted_fault_without_the_waiting_for_cores_they_would_have_been_mistaken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds, "_own", lambda load: load.busy)
    with pytest.raises(AssertionError):
        test_among_other_programs_that_fill_the_machine_both_kinds_are_told_right()


def test_what_was_seen_while_a_core_was_waited_for_is_not_remembered() -> None:
    starved = view(T, {"bolt": [busy(1.0, 0.002, ready=0.998)]}, nodes={"n1": (2.0, 2.0)})
    assert measured(T, starved)[BOLT].purity == 0.0
    assert measured(T, view(T, {"bolt": [busy(1.0, 0.05, ready=0.1)]}))[BOLT].purity > 0.0


def test_what_was_seen_undisturbed_counts_more_than_a_crowd() -> None:
    crowd = view(
        T,
        {"bolt": [busy(0.95, 0.06)] * 2, "other": [busy(1.0, 0.75)]},
        workers={"n1/0": (0.95, ["bolt", "other"])},
    )
    assert components(crowd, T)[BOLT].kind is Kind.WAITING
    assert components(crowd, T, None, {BOLT: 0.95})[BOLT].kind is Kind.COMPUTING


def recorded_spec() -> TopologySpec:
    parts = [("source", 1, 1), ("computing", 4, 2), ("waiting", 4, 2)]
    return TopologySpec(
        TopologyName("recorded"),
        tuple(
            ComponentSpec(ComponentId(c), "bolt" if i else "spout", n, e) for i, (c, n, e) in enumerate(parts)
        ),
    )


def test_a_recorded_worker_is_told_right_all_the_time() -> None:
    """Two threads that hold the lock and two that wait, in one process, under a load that trebles and comes back."""
    recorded = recorded_spec()
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


def answers(policy: str) -> list[tuple[float, dict[str, tuple[int, int]]]]:
    """What a policy would decide over the recorded time. What is recorded does not follow it, so it may repeat itself."""
    recorded = recorded_spec()
    subject = Subject(recorded, {c.id: c.executors for c in recorded.components}, 1)
    monitor = LoadMonitor(MonitorConfig(period=1.0))
    manager = ElasticityManager(policy, ManagerConfig(period=2.0, cooldown=0))
    reports = [decode(line.encode(), WorkerReport) for line in TRACE.read_text(encoding="utf-8").splitlines()]
    found = []
    for report in reports:
        monitor.observe(report, report.time)
        decision = manager.run(monitor.view(report.time), [subject], Room(), report.time).decision
        if decision is not None and decision.changes:
            found.append((report.time - reports[0].time, {str(c): n for c, n in decision.changes.items()}))
    return found


def test_on_a_recorded_load_thresholds_follow_the_load_and_do_not_turn_round_within_a_phase() -> None:
    """The load trebles after 8 s, for 8 s."""
    turns = [(at, b - a) for at, changes in answers("thresholds") for a, b in changes.values()]
    assert any(change > 0 for _, change in turns)
    assert all(8.0 < at < 18.0 for at, change in turns if change > 0)
    assert not any(8.5 < at < 16.0 for at, change in turns if change < 0)


def test_on_a_recorded_load_ds2_says_the_same_all_the_time() -> None:
    """60 tuples/s of 8 ms are half an executor's time, however long the threads waited for each other in that one process."""
    found = answers("ds2")
    assert len(found) > 5
    assert {(c, n) for _, changes in found for c, n in changes.items()} == {
        ("computing", (2, 1)),
        ("waiting", (2, 1)),
    }
