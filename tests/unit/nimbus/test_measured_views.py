"""What is told of measured traffic, state and nodes: who sends how much to whom, between workers and nodes, and what nodes use."""

from __future__ import annotations

from dataclasses import replace

import pytest
from balance_harness import APART, N1, N2, W1, W2, T, topology

from elastic.model.assignment import NodeInfo
from elastic.model.load import NodeReport, PairLoad, TaskLoad, WorkerReport
from elastic.model.views import PairView, TopologyDetail
from elastic.nimbus.observing.facts import Facts
from elastic.nimbus.observing.reports import ReportStore
from elastic.nimbus.requests import answers

WORK = "work[2-5]"


def report(worker: str, second: float, *pairs: PairLoad, state: int = 0, life: int = 1) -> WorkerReport:
    tasks = (
        (TaskLoad(1, "out", "out[1-1]", emitted=10),)
        if worker == W1
        else tuple(TaskLoad(n, "work", WORK, executed=10, state=state) for n in range(2, 6))
    )
    return WorkerReport(T, worker, f"{worker}#{life}", second, 1, tasks=tasks, pairs=pairs)


def seen(*reports: WorkerReport) -> TopologyDetail:
    store = ReportStore(errors=5)
    store.add_reports(reports)
    facts = Facts(0.0, {}, {}, topologies={T: topology(APART)})
    t = facts.topologies[T]
    return answers.detail(t, facts, store.measured(T), store.rated(T), store.lives(T), ())


def test_traffic_is_what_was_sent_between_two_reports_by_executors() -> None:
    found = seen(
        report(W1, 10.0, PairLoad(1, 2, 1000, 5000), PairLoad(1, 3, 400)),
        report(W1, 12.0, PairLoad(1, 2, 1600, 9000), PairLoad(1, 3, 500, 1000)),
    ).traffic
    assert found.pairs == (PairView("out[1-1]", WORK, 350.0, 2500.0),)
    assert (found.tuples, found.between_workers, found.between_nodes) == (350.0, 350.0, 350.0)
    assert found.bytes == 2500.0


def test_what_began_between_two_reports_is_no_rate_yet() -> None:
    before, after = PairLoad(1, 2, 1000), PairLoad(1, 2, 40)
    assert seen(report(W1, 10.0, before)).traffic.tuples == 0, "one report says nothing about time"
    assert seen(report(W1, 10.0, before), report(W1, 11.0, after, life=2)).traffic.tuples == 0, "another life"
    assert seen(report(W1, 10.0, before), report(W1, 11.0, after)).traffic.tuples == 0, "it began anew"
    assert seen(report(W1, 10.0), report(W1, 11.0, before)).traffic.tuples == 0, "it came from elsewhere"


def counted(worker: str, second: float, life: int = 1, **executed: int) -> WorkerReport:
    """A report of tasks `t2`, `t3` ... with what they have executed so far."""
    tasks = tuple(TaskLoad(int(t[1:]), "work", WORK, executed=n) for t, n in executed.items())
    return WorkerReport(T, worker, f"{worker}#{life}", second, 1, tasks=tasks)


def test_a_task_that_comes_from_elsewhere_goes_on_at_its_rate() -> None:
    """Its counters come along, so there is no dip in what its component does where there was none in the stream."""

    def rate(*reports: WorkerReport) -> float:
        found = seen(*reports)
        (work,) = [c for c in found.components if c.id == "work"]
        assert {e.id: e.executed_rate for e in found.executors}[WORK] == work.executed_rate
        return work.executed_rate

    before = [
        counted(W1, 10.0, t2=100),
        counted(W2, 10.0, t3=50),
        counted(W1, 11.0, t2=200),
        counted(W2, 11.0, t3=80),
    ]
    assert rate(*before) == 130.0
    assert rate(*before, counted(W1, 12.0)) == 130.0, (
        "it has gone from there, and nobody has told where it is"
    )
    assert rate(*before, counted(W2, 11.5, t2=250, t3=95)) == 130.0, "by what was known of it elsewhere"
    came = [counted(W1, 12.0), counted(W2, 12.0, t2=300, t3=110)]
    assert rate(*before, *came, counted(W2, 13.0, t2=400, t3=140)) == 130.0
    assert rate(*before, *(counted(W1, 12.0 + n) for n in range(3))) == 30.0, "nobody tells of it for longer"
    assert rate(*before, counted(W2, 11.5, t2=20, t3=95)) == 30.0, "it has begun anew"
    assert rate(*before, counted(W2, 10.9, 2, t2=250, t3=95)) == 0.0, (
        "a clock that is behind is for one report"
    )


def test_state_is_told_by_executor_and_component() -> None:
    found = seen(report(W2, 10.0, state=1000))
    assert {e.id: e.state for e in found.executors} == {"out[1-1]": 0, WORK: 4000}
    assert {c.id: c.state for c in found.components} == {"out": 0, "work": 4000}


def test_nodes_on_one_machine_share_its_cores_and_those_that_are_gone_are_forgotten() -> None:
    store = ReportStore(errors=5)
    nodes = {n: NodeInfo(n, "h", 2, 1, "process") for n in (N1, N2)}
    facts = Facts(0.0, nodes, {})
    store.add_nodes([NodeReport(n, 1.0, 4.0, 1.0, 100, "m") for n in (N1, N2)], nodes)
    told = answers.node_summaries(facts, store.nodes())
    assert [(n.cores, n.cpu, n.memory) for n in told] == [(2.0, 0.5, 100)] * 2
    store.add_nodes([NodeReport(N1, 2.0, 4.0, 3.0, 200, "m")], [N1])
    assert set(store.nodes()) == {N1}
    alone = answers.node_summaries(replace(facts, nodes={N1: nodes[N1]}), store.nodes())
    assert [(n.cores, n.cpu, n.memory) for n in alone] == [(4.0, 3.0, 200)]


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes counters for rates tells of traffic that there is not."""
    monkeypatch.setattr(
        "elastic.nimbus.observing.reports.Measured.sent",
        lambda self: {(p.source, p.target): (float(p.tuples), 0.0) for p in self.newest.pairs},
    )
    with pytest.raises(AssertionError):
        test_what_began_between_two_reports_is_no_rate_yet()


def test_a_clock_that_was_set_back_does_not_freeze_what_is_told() -> None:
    """What was sent twice does not count; what is an hour older than what is known is no such thing."""
    store = ReportStore(errors=5)
    store.add_reports([report(W1, 7210.0), report(W1, 7211.0), report(W1, 7210.0)])
    assert store.measured(T)[W1].newest.time == 7211.0
    store.add_reports([report(W1, 3600.0)])
    assert store.measured(T)[W1].newest.time == 3600.0 and not store.rated(T)[1].emitted
    store.add_reports([report(W1, 3602.0)])
    assert store.measured(T)[W1].seconds == 2.0
