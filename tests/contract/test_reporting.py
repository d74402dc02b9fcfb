"""The reporter's contract, for the one in memory and the one over gRPC with a real server; and what only the latter
can promise: it finds the leader, finds the next one, and gives everything once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from elastic.coordination import paths
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.errors import EnvironmentProblem, NotFound, Unavailable
from elastic.model.events import Event
from elastic.model.load import NodeReport, WorkerReport
from elastic.nimbus.bundle_store import BundleStore
from elastic.reporting import grpc_client
from elastic.reporting.base import Reporter
from elastic.reporting.codec import EVENT
from elastic.reporting.grpc_client import GrpcReporter
from elastic.reporting.memory import MemoryReporter
from elastic.reporting.outbox import Batch, Outbox

sys.path.append(str(Path(__file__).parents[1] / "integration"))
from control_fake import WAIT, FakeNimbus, lasting, serving

CONTENT = bytes(range(256)) * 10_000  # 2.4 MiB: several pieces


def report(number: int) -> WorkerReport:
    return WorkerReport("t", "t@n/0", "t@n/0#1", float(number), number)


def event(number: int, message: str = "m") -> Event:
    return Event(float(number), f"kind-{number}", message)


def candidate(session: MemoryCoordination, address: str) -> str:
    return session.create_sequential(f"{paths.CANDIDATES}/", address.encode())


@dataclass
class Side:
    """A reporter, and the other end of its line."""

    reporter: Reporter
    add_bundle: Callable[[bytes], str]
    received: Callable[[int, int], tuple[list[WorkerReport], list[Event]]]
    take_away: Callable[[], object]
    measured: Callable[[], NodeReport | None]


def bundle_into(nimbus: FakeNimbus, content: bytes) -> str:
    writer = nimbus.bundles.begin()
    writer.write(content)
    return writer.commit()


def received(nimbus: FakeNimbus, reports: int, events: int) -> tuple[list[WorkerReport], list[Event]]:
    """What has come, once it is at least so much."""

    def got() -> tuple[list[WorkerReport], list[Event]]:
        return (
            [r for _, some, _ in nimbus.ingested for r in some],
            [e for _, _, some in nimbus.ingested for e in some],
        )

    nimbus.wait_until(lambda _: len(got()[0]) >= reports and len(got()[1]) >= events)
    return got()


@pytest.fixture(params=["memory", "grpc"])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Side]:
    if request.param == "memory":
        memory = MemoryReporter()

        def unreachable() -> None:
            memory.reachable = False

        yield Side(
            memory,
            memory.add_bundle,
            lambda *_: ([r for _, r in memory.reports], list(memory.events)),
            unreachable,
            lambda: memory.measured,
        )
        return
    service = MemoryZooKeeper()
    nimbus, zookeeper = FakeNimbus(tmp_path / "nimbus"), service.connect()
    with serving(nimbus) as server, ExitStack() as stack:
        stack.callback(service.close)
        mine = candidate(zookeeper, server.address)
        reporter = GrpcReporter(zookeeper, "n", parting=WAIT)
        stack.callback(reporter.close)
        yield Side(
            reporter,
            lambda content: bundle_into(nimbus, content),
            lambda *wanted: received(nimbus, *wanted),
            lambda: (zookeeper.delete(mine), server.close(0)),
            lambda: nimbus.measured[-1] if nimbus.measured else None,
        )


def test_reports_and_events_arrive_once_and_in_order(side: Side) -> None:
    for n in range(1, 50):
        side.reporter.report("n", [report(n)], [event(n)] if n % 10 == 0 else [])
    reports, events = side.received(49, 4)
    assert reports == [report(n) for n in range(1, 50)]
    assert events == [event(n) for n in (10, 20, 30, 40)]


def test_what_a_node_says_about_itself_arrives(side: Side) -> None:
    newest = NodeReport("n", 2.0, 4.0, 1.5, 100, "m")
    side.reporter.report("n", [], [], NodeReport("n", 1.0, 4.0))
    side.reporter.report("n", [report(1)], [event(1)], newest)
    side.received(1, 1)
    assert side.measured() == newest


def test_a_bundle_is_fetched_whole(side: Side, tmp_path: Path) -> None:
    sha256 = side.add_bundle(CONTENT)
    into = tmp_path / "bundle.zip"
    side.reporter.fetch_bundle(sha256, into, WAIT)
    assert into.read_bytes() == CONTENT
    assert [p.name for p in tmp_path.iterdir() if p.name != "nimbus"] == ["bundle.zip"]


def test_a_bundle_that_nobody_has_leaves_nothing(side: Side, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        side.reporter.fetch_bundle("0" * 64, tmp_path / "bundle.zip", WAIT)
    assert not [p.name for p in tmp_path.iterdir() if p.name != "nimbus"]


def test_nobody_to_fetch_from(side: Side, tmp_path: Path) -> None:
    sha256 = side.add_bundle(CONTENT)
    side.take_away()
    with pytest.raises(Unavailable, match="Nimbus"):
        side.reporter.fetch_bundle(sha256, tmp_path / "bundle.zip", 0.3)


def test_closing_delivers_what_is_there(side: Side) -> None:
    side.reporter.report("n", [report(1)], [])
    side.reporter.close()
    assert side.received(1, 0)[0] == [report(1)]
    side.reporter.report("n", [report(2)], [])
    side.reporter.close()


@pytest.fixture
def zookeeper() -> Iterator[MemoryCoordination]:
    service = MemoryZooKeeper()
    yield service.connect()
    service.close()


@pytest.fixture
def nimbus(tmp_path: Path) -> FakeNimbus:
    return FakeNimbus(tmp_path / "nimbus")


def test_what_is_said_before_anybody_leads_is_kept(zookeeper: MemoryCoordination, nimbus: FakeNimbus) -> None:
    reporter = GrpcReporter(zookeeper, "n")
    reporter.report("n", [report(1)], [event(1)])
    with serving(nimbus) as server:
        candidate(zookeeper, server.address)
        assert received(nimbus, 1, 1) == ([report(1)], [event(1)])
        assert nimbus.ingested[0][0] == "n"
        reporter.close()
    assert lasting("elastic-reporter") == []


def test_it_goes_to_the_next_leader(
    zookeeper: MemoryCoordination, nimbus: FakeNimbus, tmp_path: Path
) -> None:
    second = FakeNimbus(tmp_path / "second")
    with serving(nimbus) as one, serving(second) as two:
        first = candidate(zookeeper, one.address)
        candidate(zookeeper, two.address)
        reporter = GrpcReporter(zookeeper, "n")
        reporter.report("n", [], [event(1)])
        received(nimbus, 0, 1)
        one.close(0)
        reporter.report("n", [], [event(2)])
        zookeeper.delete(first)
        reporter.report("n", [], [event(3)])
        second.wait_until(lambda n: any(event(3) in events for _, _, events in n.ingested))
        # The first leader may have taken event 1 and died before it said so: then it comes again.
        assert received(second, 0, 2)[1][-2:] == [event(2), event(3)]
        sha256 = bundle_into(second, CONTENT)
        reporter.fetch_bundle(sha256, tmp_path / "b.zip", WAIT)
        reporter.close()


def test_a_bundle_that_is_removed_just_now_is_one_that_nobody_has(
    zookeeper: MemoryCoordination, nimbus: FakeNimbus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256, find = bundle_into(nimbus, CONTENT), nimbus.bundles.path

    def found_and_removed(sha256: str) -> Path:
        path = find(sha256)
        path.unlink()
        return path

    monkeypatch.setattr(nimbus.bundles, "path", found_and_removed)
    with serving(nimbus) as server:
        candidate(zookeeper, server.address)
        reporter = GrpcReporter(zookeeper, "n")
        with pytest.raises(NotFound, match="there is no code bundle"):
            reporter.fetch_bundle(sha256, tmp_path / "b.zip", WAIT)
        reporter.close()


def test_a_candidate_that_does_not_lead_yet_is_asked_again(
    zookeeper: MemoryCoordination, nimbus: FakeNimbus
) -> None:
    nimbus.leading = False
    with serving(nimbus) as server:
        candidate(zookeeper, server.address)
        reporter = GrpcReporter(zookeeper, "n")
        reporter.report("n", [], [event(1)])
        nimbus.leading = True
        assert received(nimbus, 0, 1)[1] == [event(1)]
        reporter.close()


def test_a_batch_whose_answer_was_lost_is_taken_once(nimbus: FakeNimbus) -> None:
    from elastic.reporting.v1 import reporting_pb2 as pb
    from elastic.reporting.v1.reporting_pb2_grpc import ReportingServiceStub

    with serving(nimbus) as server, grpc.insecure_channel(server.address) as channel:
        stub = ReportingServiceStub(channel)
        for session, sequence in (("a", 1), ("a", 1), ("a", 2), ("b", 1), ("a", 1), ("b", 2)):
            stub.Report(
                pb.ReportRequest(
                    node="n",
                    session=session,
                    sequence=sequence,
                    events=[EVENT.encode(event(sequence, session))],
                ),
                timeout=WAIT,
            )
    assert [(e.message, e.time) for _, _, es in nimbus.ingested for e in es] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
        ("b", 2),
    ]


def test_a_batch_that_was_not_taken_comes_again(zookeeper: MemoryCoordination, nimbus: FakeNimbus) -> None:
    nimbus.fail = Unavailable("coordination is out of reach")
    with serving(nimbus) as server:
        candidate(zookeeper, server.address)
        reporter = GrpcReporter(zookeeper, "n")
        reporter.report("n", [], [event(1)])
        nimbus.wait_until(lambda n: n.got("ingest"))
        nimbus.fail = None
        assert received(nimbus, 0, 1)[1] == [event(1)]
        reporter.close()


def test_it_never_blocks_and_says_what_it_dropped(zookeeper: MemoryCoordination, nimbus: FakeNimbus) -> None:
    reporter = GrpcReporter(zookeeper, "n", outbox=Outbox("n", report_bytes=2000, event_bytes=20_000))
    for n in range(1, 1001):
        reporter.report("n", [report(n)], [event(n, "x" * 100)])
    with serving(nimbus) as server:
        candidate(zookeeper, server.address)
        nimbus.wait_until(lambda n: any(e.time == 1000 for _, _, events in n.ingested for e in events))
        received(nimbus, 1, 1)
        events = [e for _, _, some in nimbus.ingested for e in some]
        said = [int(e.details["count"]) for e in events if e.kind == "events-dropped"]
        assert said
        assert len(events) - len(said) + sum(said) == 1000
        assert received(nimbus, 1, 1)[0][-1] == report(1000)
        reporter.close()


def test_what_arrives_damaged_is_not_kept(
    zookeeper: MemoryCoordination, tmp_path: Path, background: ThreadPoolExecutor
) -> None:
    asked = threading.Semaphore(0)

    class Asked(BundleStore):
        def path(self, sha256: str) -> Path:
            asked.release()
            return super().path(sha256)

    nimbus = FakeNimbus(tmp_path / "nimbus")
    nimbus.bundles = Asked(tmp_path / "nimbus" / "bundles")
    sha256 = bundle_into(nimbus, CONTENT)
    nimbus.bundles.path(sha256).write_bytes(CONTENT[:-1] + b"\0")
    with serving(nimbus) as server:
        candidate(zookeeper, server.address)
        reporter = GrpcReporter(zookeeper, "n")
        (tmp_path / "file").write_text("")
        with pytest.raises(EnvironmentProblem, match="writing"):
            reporter.fetch_bundle(sha256, tmp_path / "file" / "b.zip", WAIT)
        while asked.acquire(blocking=False):
            pass
        fetched = background.submit(reporter.fetch_bundle, sha256, tmp_path / "b.zip", WAIT)
        assert asked.acquire(timeout=WAIT)
        assert asked.acquire(timeout=WAIT), "it was asked for once, and so taken"
        reporter.close()
        with pytest.raises(Unavailable, match="another hash"):
            fetched.result(WAIT)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "nimbus"]


def test_closing_does_not_wait_for_a_nimbus_that_is_not_there(zookeeper: MemoryCoordination) -> None:
    reporter = GrpcReporter(zookeeper, "n")
    reporter.report("n", [], [event(1)])
    waiting = threading.Thread(
        target=pytest.raises, args=(Unavailable, reporter.fetch_bundle, "0" * 64, Path("x"), 60)
    )
    waiting.start()
    reporter.close()
    waiting.join(WAIT)
    assert not waiting.is_alive()
    assert lasting("elastic-reporter") == []


def test_who_leads_may_be_heard_while_closing(zookeeper: MemoryCoordination, nimbus: FakeNimbus) -> None:
    closing = threading.Event()

    class Tells(Outbox):
        def take(self) -> Batch:
            closing.set()
            return super().take()

    zookeeper.watch_children(paths.CANDIDATES, lambda _: closing.wait(WAIT))  # calls come one at a time
    with serving(nimbus) as server:
        candidate(zookeeper, server.address)
        reporter = GrpcReporter(zookeeper, "n", outbox=Tells("n"), parting=WAIT)
        reporter.report("n", [report(1)], [])
        reporter.close()
        assert received(nimbus, 1, 0)[0] == [report(1)]


def test_closing_ends_a_call_that_gets_no_answer(
    zookeeper: MemoryCoordination, nimbus: FakeNimbus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_client, "_DEADLINE", 10 * WAIT)
    nimbus.block.clear()
    with serving(nimbus) as server:
        candidate(zookeeper, server.address)
        reporter = GrpcReporter(zookeeper, "n", parting=0.1)
        reporter.report("n", [], [event(1)])
        assert nimbus.entered.wait(WAIT)
        reporter.close()
        assert lasting("elastic-reporter", WAIT / 3) == []  # before the Nimbus gives up by itself
