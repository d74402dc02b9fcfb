"""Nimbus and its nodes: lost, added, drained; and what they report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from coordination_harness import PATIENCE
from nimbus_harness import Cluster, FakeLauncher, spec

from elastic.coordination import paths
from elastic.errors import (
    ConfigError,
    DeadlineExceeded,
    NotFound,
    Refused,
)
from elastic.model.events import Event, Severity
from elastic.model.ids import NodeId, TaskId, TopologyName
from elastic.model.load import ExecutorLoad, TaskLoad, WorkerReport
from elastic.model.views import PLANNED
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.observing.facts import Facts

WC = TopologyName("wc")


# --- nodes


def test_executors_of_a_lost_node_go_elsewhere_at_once(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    n2 = cluster.node("n2")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    before = cluster.started(nimbus, spec())
    n2.leave()
    cluster.until(nimbus, lambda: nimbus.describe("wc").assignment.epoch == 2)
    cluster.settled(nimbus, "wc")
    after = nimbus.describe("wc").assignment
    stayed = {e: w for e, w in before.executors if "@n1/" in w}
    assert stayed.items() <= dict(after.executors).items()
    assert {s.node for s in after.workers.values()} == {"n1"}
    kinds = cluster.kinds(nimbus)
    assert kinds.index("node-lost") < kinds.index("executors-reassigned")


def test_what_found_no_slot_is_placed_when_a_node_comes(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    n1 = cluster.node("n1", 1)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec("first", workers=1))
    nimbus.submit(spec(), bundle=cluster.bundle(nimbus))
    assert nimbus.topologies()[1].unassigned == 5
    assert "no slot is free for lines[1-1]" in nimbus.describe("wc").waits[0]
    cluster.node("n2", 1)
    cluster.event(nimbus, "node-joined")
    cluster.until(nimbus, lambda: not nimbus.describe("wc").assignment.unassigned)
    n1.leave()
    cluster.until(nimbus, lambda: len(nimbus.describe("first").assignment.unassigned) == 5)
    cluster.event(nimbus, "executors-waiting")


def test_without_any_node_everything_stays_written(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    n1 = cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    before = cluster.started(nimbus, spec())
    n1.leave()
    cluster.until(nimbus, lambda: not nimbus.nodes())
    assert "no node is alive" in nimbus.describe("wc").waits[0]
    cluster.node("n1", generation=2)
    cluster.settled(nimbus, "wc")
    assert nimbus.describe("wc").assignment == before
    assert all(w.restarts == 1 for w in nimbus.describe("wc").workers)


def test_nodes_are_added_by_name_and_awaited(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("node-2")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    with pytest.raises(DeadlineExceeded, match="node-1, node-3"):
        nimbus.add_nodes(2, wait=0.1)
    FakeLauncher(cluster)
    assert nimbus.add_nodes(1, slots=3, host="fake", wait=PATIENCE) == ("node-4",)
    wanted = [e.node for _, e in nimbus.events.since(0) if e.kind == "node-wanted"]
    assert wanted == ["node-1", "node-3", "node-4"]
    cluster.until(nimbus, lambda: len([n for n in nimbus.nodes() if n.alive and n.wanted]) == 3)


def test_a_node_cannot_have_any_number_of_slots(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    for count, slots in ((1, 1001), (1, 0), (1001, 1)):
        with pytest.raises(ConfigError, match="1 to 1000 nodes, each with 1 to 1000 slots"):
            nimbus.add_nodes(count, slots=slots, wait=0)
    assert not cluster.look.children(paths.WANTED)


def test_draining_a_node_moves_what_may_move_and_ends_it(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    FakeLauncher(cluster)
    nimbus.add_nodes(2, slots=2, wait=PATIENCE)
    cluster.started(nimbus, spec(stateful=False))
    nimbus.drain_node("node-1", wait=PATIENCE)
    cluster.settled(nimbus, "wc")
    assert [n.id for n in nimbus.nodes()] == ["node-2"]
    assert {s.node for s in nimbus.describe("wc").assignment.workers.values()} == {"node-2"}
    assert cluster.look.children(paths.WANTED) == ("node-2",) and cluster.look.children(paths.DRAINS) == ()
    assert "node-lost" not in cluster.kinds(nimbus)
    assert nimbus.add_nodes(1, wait=PATIENCE) == ("node-1",)


def test_a_drained_node_that_goes_while_something_is_decided_was_not_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its drain is forgotten by the very decision that first sees it gone."""
    nimbus = cluster.nimbus()
    launcher = FakeLauncher(cluster)
    nimbus.add_nodes(2, wait=PATIENCE)
    launcher.stop()
    reign = nimbus._reign
    assert reign is not None
    carry_on = reign.moves.run

    def run(events: Any) -> bool:
        done = carry_on(events)
        facts = reign.facts()
        if NodeId("node-1") not in facts.wanted and NodeId("node-1") in facts.nodes:
            launcher.nodes["node-1"].leave()
            assert reign.mirror.wait_for(lambda: NodeId("node-1") not in reign.facts().nodes, PATIENCE)
        return done

    carry_out = reign._carry_out

    def shown(*arguments: Any) -> bool:
        done = carry_out(*arguments)
        there = cluster.look.children(paths.DRAINS) or ()
        assert reign.mirror.wait_for(lambda: set(reign.facts().drains) == set(there), PATIENCE)
        return done

    monkeypatch.setattr(reign.moves, "run", run)
    monkeypatch.setattr(reign, "_carry_out", shown)
    nimbus.drain_node("node-1", wait=PATIENCE)
    cluster.event(nimbus, "node-left")
    assert "node-lost" not in cluster.kinds(nimbus)


def test_what_a_drained_node_had_is_read_anew_when_it_goes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror may show its end before the assignment that left it."""
    nimbus = cluster.nimbus()
    FakeLauncher(cluster)
    nimbus.add_nodes(2, slots=2, wait=PATIENCE)
    cluster.started(nimbus, spec(stateful=False))
    reign = nimbus._reign
    assert reign is not None
    show, old = reign.mirror.facts, reign.facts().topologies

    def behind(now: float, expected: Mapping[NodeId, float]) -> Facts:
        seen = show(now, expected)
        return seen if NodeId("node-1") in seen.nodes else replace(seen, topologies=old, drains={})

    monkeypatch.setattr(reign.mirror, "facts", behind)
    nimbus.drain_node("node-1", wait=0)
    cluster.event(nimbus, "node-left")
    assert "node-lost" not in cluster.kinds(nimbus)


def drained_but_for(cluster: Cluster, nimbus: Nimbus, stuck: TaskId) -> None:
    """Drain node-1, and wait until all has gone but what cannot, which is not tried any more."""
    nimbus.drain_node("node-1", wait=0)
    cluster.event(nimbus, "move-given-up")

    def over() -> bool:
        places = nimbus.describe("wc").assignment.place_of()
        there = [t for t, w in places.items() if "@node-1/" in w]
        return there == [stuck] and not cluster.look.children(paths.moves(WC))

    cluster.until(nimbus, over)


def test_draining_by_force_also_ends_what_cannot_be_moved(cluster: Cluster) -> None:
    nimbus = cluster.nimbus(move_tries=2, move_retry=0.01)
    FakeLauncher(cluster)
    nimbus.add_nodes(2, slots=2, wait=PATIENCE)
    before = cluster.started(nimbus, spec()).place_of()
    stuck = next(t for t, w in sorted(before.items()) if "@node-1/" in w)
    cluster.actors.fails["saved", stuck] = "it cannot be pickled"
    drained_but_for(cluster, nimbus, stuck)
    for _ in range(2):  # it is tried anew
        moves = len(nimbus.moves("wc"))
        with pytest.raises(Refused, match=f"1 task cannot be moved: task {stuck} of wc: .*pickled") as info:
            nimbus.drain_node("node-1", wait=PATIENCE)
        assert "--force" in str(info.value.remedy) and len(nimbus.moves("wc")) >= moves + 2
    assert any(f"task {stuck} stays in worker wc@node-1/0" in w for w in nimbus.describe("wc").waits)
    nimbus.drain_node("node-1", wait=PATIENCE, force=True)
    assert [n.id for n in nimbus.nodes()] == ["node-2"]
    cluster.settled(nimbus, "wc")
    assert not [e for _, e in nimbus.events.since(0) if e.kind == "executors-waiting"], "slots are free"
    assert {s.node for s in nimbus.describe("wc").assignment.workers.values()} == {"node-2"}
    with pytest.raises(NotFound, match="no node 'node-9'"):
        nimbus.drain_node("node-9", wait=1)


def test_what_is_drained_by_force_begins_elsewhere_when_it_has_stopped(cluster: Cluster) -> None:
    """Whatever Nimbus leads by then; until then nobody runs it beside a worker that has not heard of it."""
    nimbus = cluster.nimbus(move_tries=1)
    second = cluster.nimbus("h:2", wait=False, move_tries=1)
    FakeLauncher(cluster)
    nimbus.add_nodes(2, slots=2, wait=PATIENCE)
    before = cluster.started(nimbus, spec()).place_of()
    here = sorted(t for t, w in before.items() if "@node-1/" in w)
    cluster.actors.fails["saved", here[0]] = "it cannot be pickled"
    drained_but_for(cluster, nimbus, here[0])
    cluster.nodes["node-1"].change(obedient=False)
    nimbus.drain_node("node-1", wait=0, force=True)
    told = f"task {here[0]} waits for worker wc@node-1/0 to let go of it"
    cluster.until(nimbus, lambda: told in nimbus.describe("wc").waits)
    cluster.service.expire(cluster.sessions["h:1"])
    assert second.wait_leading(PATIENCE)
    cluster.until(second, lambda: told in second.describe("wc").waits)
    assert set(second.describe("wc").assignment.place_of()) == {*before} - {here[0]}
    cluster.nodes["node-1"].change(obedient=True)
    cluster.until(second, lambda: [n.id for n in second.nodes()] == ["node-2"])
    cluster.settled(second, "wc")
    after = second.describe("wc").assignment
    assert {s.node for s in after.workers.values()} == {"node-2"} and set(after.place_of()) == {*before}


def test_draining_says_what_finds_no_other_place(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    FakeLauncher(cluster)
    nimbus.add_nodes(1, slots=2, wait=PATIENCE)
    cluster.started(nimbus, spec(workers=1, stateful=False))
    with pytest.raises(DeadlineExceeded, match="no other place is free for wc@node-1/0"):
        nimbus.drain_node("node-1", wait=0.1)
    waits = "node node-1 is being drained, and no other place is free for wc@node-1/0"
    cluster.event(nimbus, "node-drain-waits")
    (told,) = (e for _, e in nimbus.events.since(0) if e.kind == "node-drain-waits")
    assert told.message.startswith(f"topology wc: {waits}") and told.details["workers"] == "wc@node-1/0"
    assert any(w.startswith(waits) for w in nimbus.describe("wc").waits)
    for (planned,) in (nimbus.moves(), nimbus.moves("wc")):
        assert (planned.state, planned.epoch, planned.began, planned.ended) == (PLANNED, 0, 0.0, 0.0)
        assert planned.why == "node node-1 is being drained" and planned.waits[0].startswith(waits)
        assert {t.task for t in planned.tasks} == set(nimbus.describe("wc").assignment.place_of())
        assert {(t.source, t.target, t.phase) for t in planned.tasks} == {("wc@node-1/0", "", "waiting")}
    with pytest.raises(
        Refused, match=f"no move of topology 'wc' is under way, and what is planned .*: {waits}"
    ):
        nimbus.abort_move("wc")
    nimbus.rebalance("wc", executors={"count": 2}, wait=PATIENCE)
    assert cluster.kinds(nimbus).count("node-drain-waits") == 1, "once, whatever is decided meanwhile"
    nimbus.drain_node("node-1", wait=0)
    assert cluster.kinds(nimbus).count("node-drain-waits") == 2, "whoever asks again is told again"
    nimbus.add_nodes(1, slots=2, wait=PATIENCE)
    cluster.until(nimbus, lambda: [n.id for n in nimbus.nodes()] == ["node-2"])
    assert not [m for m in nimbus.moves() if m.state == PLANNED]


# --- reports


def test_reports_become_rates_and_events_become_errors(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec(workers=1))
    (worker,) = nimbus.describe("wc").workers

    def report(
        time: float, executed: int, worker_id: str = worker.worker, topology: str = "wc"
    ) -> WorkerReport:
        return WorkerReport(
            topology, worker_id, worker.incarnation, time, 1, rss=1000,
            tasks=(TaskLoad(2, "split", "split[2-3]", executed=executed, emitted=2 * executed, queued=7, held=3),),
            executors=(ExecutorLoad("split[2-3]", busy=0.5),),
        )  # fmt: skip

    nimbus.ingest("n1", [report(10.0, 100), report(10.0, 1, topology="unknown")], [])
    assert nimbus.describe("wc").components[1].executed_rate == 0
    failure = Event(1.0, "tuple-failed", "ValueError", Severity.WARNING, "wc", "split", 2)
    nimbus.ingest("n1", [report(12.0, 500)], [failure])
    nimbus.ingest("n1", [report(11.0, 300)], [])
    detail = nimbus.describe("wc")
    split = detail.components[1]
    assert (split.executed, split.executed_rate, split.emitted_rate, split.queued) == (500, 200.0, 400.0, 7)
    assert split.held == 3 == detail.executors[1].held
    assert split.busy == 0.5 and detail.executors[1].executed_rate == 200.0
    assert detail.workers[0].rss == 1000 and detail.errors == (failure,)
    assert nimbus.events.since(0, "wc")[-1][1] == failure
