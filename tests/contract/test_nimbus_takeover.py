"""More than one Nimbus: takeover in the middle of everything, and leaders that are none any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from coordination_harness import PATIENCE, Seen
from move_harness import Moving
from nimbus_harness import Cluster, spec

from elastic.coordination import paths
from elastic.coordination.base import SessionState
from elastic.errors import (
    Begun,
    NotConnected,
    Refused,
    SessionExpired,
    Superseded,
    Unavailable,
)
from elastic.model.events import Event, Severity
from elastic.model.ids import ComponentId, TopologyName, WorkerId
from elastic.model.records import TopologyStatus
from elastic.nimbus.observing.facts import Facts
from elastic.nimbus.reign import Reign

WC = TopologyName("wc")


# --- more than one Nimbus


def test_only_the_leader_answers(cluster: Cluster) -> None:
    cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    assert second.leader() == "h:1" and not second.leading
    with pytest.raises(Refused, match="h:2 stands by; the leader is h:1"):
        second.topologies()


def test_without_a_connection_coordination_is_not_waited_for_to_say_who_leads(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks waits for less: there would seem to be no Nimbus at all."""
    cluster = moving_in_memory.cluster
    nimbus, session, seen = cluster.nimbus("h:1"), cluster.sessions["h:1"], Seen[SessionState]()
    session.watch_session(seen)
    cluster.service.cut(session)
    seen.until_last(SessionState.SUSPENDED)
    monkeypatch.setattr(session, "children", lambda path: ())
    with pytest.raises(NotConnected, match="no connection"):
        nimbus.leader()
    cluster.service.restore(session)


def kill_leader(cluster: Cluster, how: str) -> None:
    """The process of the leader is gone: its session expires, or it is closed by its owner's end."""
    session = cluster.sessions["h:1"]
    if how == "expired":
        cluster.service.expire(session)
    else:
        session.close()


@pytest.mark.parametrize("how", ["closed", "expired"])
def test_a_standby_takes_over_what_runs(cluster: Cluster, how: str) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    node = cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    before = cluster.started(first, spec())
    kill_leader(cluster, how)
    assert second.wait_leading(PATIENCE) and second.leader() == "h:2"
    if how == "expired":
        assert first.wait_lost(PATIENCE)
        with pytest.raises(Unavailable, match="lost its session"):
            first.topologies()
    assert second.describe("wc").assignment == before
    seqs = [n for n, _ in second.events.since(0)]
    assert seqs == sorted(set(seqs)) and "topology-submitted" in cluster.kinds(second)
    cluster.event(second, "nimbus-elected")
    led = [e.details["address"] for _, e in second.events.since(0) if e.kind == "nimbus-elected"]
    assert led == ["h:1", "h:2"]
    node.finish("wc")
    cluster.event(second, "topology-finished")


def test_a_standby_knows_the_errors_of_what_runs_and_none_of_an_earlier_topology(cluster: Cluster) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    old, new = (
        Event(at, "tuple-failed", f"{at} raised", Severity.ERROR, topology="wc", worker="wc@n1/0")
        for at in (1.0, 2.0)
    )
    cluster.started(first, spec())
    first.ingest("n1", [], [old])
    first.kill("wc", wait=0)
    cluster.event(first, "topology-removed")
    cluster.started(first, spec())
    first.ingest("n1", [], [new])
    assert first.describe("wc").errors == (new,)
    kill_leader(cluster, "closed")
    assert second.wait_leading(PATIENCE)
    assert second.describe("wc").errors == (new,)


@pytest.mark.parametrize("how", ["closed", "expired"])
def test_a_standby_goes_on_with_a_kill(cluster: Cluster, background: ThreadPoolExecutor, how: str) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    node = cluster.node("n1")
    node.change(drains=False)
    cluster.until(first, lambda: len(first.nodes()) == 1)
    cluster.started(first, spec())
    killing = background.submit(first.kill, "wc", wait=3 * PATIENCE)
    cluster.until(first, lambda: first.topologies()[0].status is TopologyStatus.INACTIVE)
    kill_leader(cluster, how)
    if how == "expired":
        with pytest.raises(Unavailable, match="stopped leading"):
            killing.result(PATIENCE)
    else:
        first.close()
    assert second.wait_leading(PATIENCE)
    assert second.topologies()[0].status is TopologyStatus.INACTIVE
    node.change(drains=True)
    cluster.gone(paths.topology(WC))
    cluster.event(second, "topology-removed")


def test_a_standby_goes_on_with_a_rebalance(cluster: Cluster, background: ThreadPoolExecutor) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    node = cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    cluster.started(first, spec())
    node.change(obedient=False)
    waiting = background.submit(first.rebalance, "wc", executors={"split": 4}, wait=3 * PATIENCE)
    cluster.until(first, lambda: first.describe("wc").assignment.epoch == 2)
    kill_leader(cluster, "expired")
    with pytest.raises(Unavailable, match="stopped leading"):
        waiting.result(PATIENCE)
    assert second.wait_leading(PATIENCE)
    assert second.describe("wc").assignment.epoch == 2
    node.change(obedient=True)
    a = second.rebalance("wc", executors={"split": 4}, wait=PATIENCE)
    assert a.epoch == 2 and len(a.executors) == 7


def test_who_waits_is_told_that_it_is_recorded_also_by_a_nimbus_that_does_not_know_yet(
    cluster: Cluster, background: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session has expired, and the first to hear of that is the request: it reads when the mirror shows what it waits for."""
    first = cluster.nimbus("h:1")
    node = cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    cluster.started(first, spec())
    node.change(obedient=False)
    waiting = background.submit(first.rebalance, "wc", executors={"split": 4}, wait=3 * PATIENCE)
    cluster.until(first, lambda: first.describe("wc").assignment.epoch == 2)

    def expired() -> Facts:
        raise SessionExpired("look at 6 nodes: the session has expired")

    monkeypatch.setattr(first._reign, "refresh", expired)
    node.change(obedient=True)
    with pytest.raises(Unavailable, match="stopped leading"):
        waiting.result(PATIENCE)


def test_a_submit_is_done_or_not_when_the_leader_dies(cluster: Cluster) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    code = cluster.bundle(first)
    reign = first._reign
    assert reign is not None
    before, real = threading.Event(), cluster.sessions["h:1"].transaction

    def dying(operations: object) -> None:
        if not before.is_set():
            before.set()
            kill_leader(cluster, "expired")
        real(operations)  # type: ignore[arg-type]

    reign.coordination.transaction = dying  # type: ignore[method-assign]
    with pytest.raises((Unavailable, Superseded)):
        first.submit(spec(), bundle=code)
    assert second.wait_leading(PATIENCE) and second.topologies() == ()
    cluster.started(second, spec())


@pytest.fixture
def blinded(cluster: Cluster) -> Iterator[tuple[Cluster, object]]:
    """A first leader that does not notice that it is superseded: the thread that would tell it is held up."""
    first = cluster.nimbus("h:1")
    cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    cluster.started(first, spec())
    held, release = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        release.wait(2 * PATIENCE)

    cluster.sessions["h:1"].watch_value("/hold", hold)
    assert held.wait(PATIENCE)
    second = cluster.nimbus("h:2", wait=False)
    two = Seen[tuple[str, ...]]()
    cluster.look.watch_children(paths.CANDIDATES, two)
    mine = two.wait(lambda calls: bool(calls) and len(calls[-1]) == 2)[-1][0]
    cluster.look.delete(f"{paths.CANDIDATES}/{mine}")
    assert second.wait_leading(PATIENCE) and first.leading
    yield cluster, first
    release.set()


def test_a_superseded_leader_changes_nothing(blinded: tuple[Cluster, object]) -> None:
    cluster, first = blinded
    before = cluster.look.get(paths.state(WC))
    with pytest.raises(Superseded, match="does not lead any more"):
        first.deactivate("wc")  # type: ignore[attr-defined]
    assert cluster.look.get(paths.state(WC)) == before


def test_without_the_guard_a_superseded_leader_would(
    blinded: tuple[Cluster, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault that the test above finds."""
    cluster, first = blinded
    monkeypatch.setattr(Reign, "guard", lambda self: ())
    monkeypatch.setattr(first, "options", replace(first.options, answer_timeout=0.1))  # type: ignore[attr-defined]
    before = cluster.look.get(paths.state(WC))
    first._reign.options = first.options  # type: ignore[attr-defined]
    first.deactivate("wc")  # type: ignore[attr-defined]
    assert cluster.look.get(paths.state(WC)) != before


def test_a_new_leader_waits_for_nodes_that_register_one_by_one(cluster: Cluster) -> None:
    first = cluster.nimbus("h:1")
    nodes = [cluster.node("n1"), cluster.node("n2")]
    cluster.until(first, lambda: len(first.nodes()) == 2)
    before = cluster.started(first, spec())
    first.close()
    for node in nodes:
        node.leave()
    second = cluster.nimbus("h:2", takeover_grace=PATIENCE)
    cluster.node("n1", generation=2)
    cluster.until(second, lambda: len(second.nodes()) == 1)
    assert second.describe("wc").assignment == before
    cluster.node("n2", generation=2)
    cluster.settled(second, "wc")
    assert second.describe("wc").assignment == before


def test_a_lost_connection_is_not_an_empty_cluster(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    before = cluster.started(nimbus, spec())
    session = cluster.sessions["h:1"]
    states = Seen[SessionState]()
    session.watch_session(states)
    cluster.service.cut(session)
    states.until_last(SessionState.SUSPENDED)
    with pytest.raises(NotConnected):
        nimbus.topologies()
    cluster.service.restore(session)
    assert nimbus.wait_leading(PATIENCE)
    assert nimbus.describe("wc").assignment == before and before.executors
    nimbus.rebalance("wc", executors={"split": 4}, wait=PATIENCE)


def test_ids_are_what_people_expect(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    a = cluster.started(nimbus, spec())
    assert WorkerId("wc@n1/0") in a.workers
    assert {e.component for e, _ in a.executors} == {ComponentId(c) for c in ("lines", "split", "count")}


def test_a_request_that_comes_late_is_not_decided_by_a_reign_that_is_over(
    cluster: Cluster, background: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same Nimbus leads again, after a break: what the earlier reign knows is of before, and the slot has been given away since."""
    nimbus = cluster.nimbus()
    cluster.node("n1", slots=1)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    code = cluster.bundle(nimbus)
    earlier, held, release = nimbus._reign, threading.Event(), threading.Event()
    path = nimbus.bundles.path

    def late(sha256: str) -> Path:
        if not held.is_set():
            held.set()
            release.wait(PATIENCE)
        return path(sha256)

    monkeypatch.setattr(nimbus.bundles, "path", late)
    waiting = background.submit(nimbus.submit, spec("late", workers=1), bundle=code)
    assert held.wait(PATIENCE)
    states = Seen[SessionState]()
    session = cluster.sessions["h:1"]
    session.watch_session(states)
    cluster.service.cut(session)
    states.until_last(SessionState.SUSPENDED)
    cluster.service.restore(session)
    cluster.leads_anew(nimbus, earlier)
    cluster.started(nimbus, spec("first", workers=1))
    release.set()
    with pytest.raises(Superseded, match="does not lead any more"):
        waiting.result(PATIENCE)
    assert cluster.look.get(paths.topology(TopologyName("late"))) is None


def test_who_writes_when_the_connection_is_lost_is_told_what_is_known(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec())
    reign = nimbus._reign
    assert reign is not None

    def lost(_: object) -> None:
        raise NotConnected("transaction: no connection")

    with monkeypatch.context() as planted:
        planted.setattr(reign.coordination, "transaction", lost)
        with pytest.raises(Begun, match="whether it was written is not known"):
            nimbus.deactivate("wc")
    with monkeypatch.context() as planted:
        planted.setattr(nimbus._election, "_leading", False)  # so it has just been told
        with reign.lock, pytest.raises(Superseded, match="nothing was changed"):
            reign.commit([])
