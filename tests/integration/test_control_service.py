"""ControlService and its client over a real gRPC connection, with a Nimbus that the test controls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from control_fake import WAIT, FakeNimbus, a_bundle, event, eventually, free_port, serving, spec, threads
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from benchmarks.placements import chain
from elastic import errors
from elastic.control import service
from elastic.control.client import Client
from elastic.control.connection import Connection
from elastic.control.server import CONTROL, REPORTING, ControlServer
from elastic.control.v1 import control_pb2 as pb
from elastic.control.v1.control_pb2_grpc import ControlServiceStub
from elastic.errors import (
    AlreadyExists,
    ConfigError,
    DeadlineExceeded,
    ElasticError,
    EnvironmentProblem,
    NotFound,
    Refused,
    Unavailable,
)
from elastic.model.events import Event, Severity
from elastic.model.load import PairLoad, WorkerReport
from elastic.model.views import MoveView, NodeSummary, TaskMoveView
from elastic.nimbus.balancing.generators import Seat
from elastic.rpc.errors import Unreachable, from_call
from elastic.rpc.server import WAITS
from elastic.scheduler.question import answer, ask
from elastic.scheduler.registry import choose


@pytest.fixture
def nimbus(tmp_path: Path) -> FakeNimbus:
    return FakeNimbus(tmp_path)


@pytest.fixture
def server(nimbus: FakeNimbus) -> Iterator[ControlServer]:
    with serving(nimbus, cluster="test", max_bundle=8 << 20) as server:
        yield server


@pytest.fixture
def client(server: ControlServer) -> Iterator[Client]:
    with Client(server.address, timeout=WAIT) as client:
        yield client


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return a_bundle(tmp_path)


def test_a_topology_and_its_bundle_arrive_whole(nimbus: FakeNimbus, client: Client, bundle: Path) -> None:
    seen: list[tuple[int, int]] = []
    wanted = spec(queue_rows=5, name_of="é", flag=True)
    state = client.submit(
        wanted, bundle, requires=["numpy"], progress=lambda done, all: seen.append((done, all))
    )
    (call,) = nimbus.got("submit")
    assert call["spec"] == wanted
    assert call["requires"] == ("numpy",)
    assert nimbus.bundles.path(call["bundle"]).read_bytes() == bundle.read_bytes()
    assert state.bundle == call["bundle"]
    assert seen[-1] == (3 << 20, 3 << 20)


def test_elasticity_is_asked_for_and_set(nimbus: FakeNimbus, client: Client) -> None:
    assert client.elasticity() == nimbus.elastic
    assert client.set_elasticity(policy="off", period=2.5).policy == "off"
    client.set_elasticity(scheduler="", nodes="--maximum 3")
    assert nimbus.got("set_elasticity") == [
        {"policy": "off", "scheduler": None, "period": 2.5, "nodes": None},
        {"policy": None, "scheduler": "", "period": None, "nodes": "--maximum 3"},
    ]


def seated(nimbus: FakeNimbus) -> Seat:
    """The first generator's seat, once it has come."""
    all_of = nimbus.generators
    with all_of._changed:
        assert all_of._changed.wait_for(lambda: all_of._seats, WAIT)
        return all_of._seats[0]


def test_a_generator_is_asked_answers_and_loses_its_seat_with_its_connection(
    nimbus: FakeNimbus, client: Client
) -> None:
    case = chain((1, 2), 2)
    asked = ask(5, choose("otd"), case.demands, case.cluster, case.load, case.current)
    deciding = client.generate("host:7", answer)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, deciding)
        seat = seated(nimbus)
        assert nimbus.generators.names() == ("host:7",)
        found = nimbus.generators.ask(asked)
        assert found is not None and found[0] == answer(asked)
        question, answered = first.result(WAIT)
        assert question == asked and answered == found[0]
    deciding.close()  # type: ignore[attr-defined]
    with nimbus.generators._changed:
        assert nimbus.generators._changed.wait_for(lambda: seat.gone, WAIT)
    assert seat.gone == "its connection has ended"


def test_a_generator_that_is_not_asked_any_more_is_told_why(nimbus: FakeNimbus, client: Client) -> None:
    deciding = client.generate("host:7", answer)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, deciding)
        seated(nimbus).leave("it was too slow")
        with pytest.raises(Refused, match="it was too slow"):
            first.result(WAIT)
    with pytest.raises(ConfigError, match="says its name first"):
        next(client.generate("", answer))


def test_every_request_reaches_nimbus_with_its_arguments(nimbus: FakeNimbus, client: Client) -> None:
    nimbus.specs["words"] = spec()
    nimbus.node_list = (NodeSummary("n1", True, True, False, 2, 1, ("words@n1/0",)),)  # type: ignore[arg-type]
    assert [t.name for t in client.list()] == ["words"]
    assert client.describe("words").spec == spec()
    client.kill("words", wait=1.5)
    client.activate("words")
    assert client.deactivate("words", wait=2) is True
    assert client.rebalance("words", executors={"lines": 4}, wait=3).epoch == 7
    client.rebalance("words", workers=0, wait=3, share=0.25)
    assert client.move("words", "1,lines", "n1", wait=2, share=0.5).epoch == 8
    client.move("words", "2", "words@n1/0", wait=0)
    assert client.abort_move("words") == (3, 4)
    assert client.abort_move("words", 0, why="late", force=True) == (0,), "a number, also when it is 0"
    assert client.nodes() == nimbus.node_list
    assert client.add_nodes(2, slots=None, host="spark", wait=4) == ("node-0", "node-1")
    client.drain_node("n1", wait=5)
    client.drain_node("n2", wait=5, force=True)
    assert nimbus.got("kill") == [{"name": "words", "wait": 1.5}]
    assert nimbus.got("deactivate") == [{"name": "words", "wait": 2}]
    assert nimbus.got("rebalance") == [
        {"name": "words", "executors": {"lines": 4}, "workers": None, "wait": 3, "share": None},
        {"name": "words", "executors": {}, "workers": 0, "wait": 3, "share": 0.25},
    ]
    assert nimbus.got("move") == [
        {"name": "words", "what": "1,lines", "where": "n1", "wait": 2, "share": 0.5},
        {"name": "words", "what": "2", "where": "words@n1/0", "wait": 0, "share": None},
    ]
    assert nimbus.got("abort_move") == [
        {"name": "words", "epoch": None, "why": "", "force": False},
        {"name": "words", "epoch": 0, "why": "late", "force": True},
    ]
    assert nimbus.got("add_nodes") == [{"count": 2, "slots": None, "host": "spark", "wait": 4}]
    assert nimbus.got("drain_node") == [
        {"node": "n1", "wait": 5, "force": False},
        {"node": "n2", "wait": 5, "force": True},
    ]
    info = client.info()
    assert (info.cluster, info.leading) == ("test", True)
    assert info.uptime > 0


def _move(epoch: int, state: str, topology: str = "words") -> MoveView:
    task = TaskMoveView(2, "lines", "words@n1/0", "words@n2/0", "saved", 1, "", 9, {"saved": 7.5}, 0.25)  # type: ignore[arg-type]
    return MoveView(topology, epoch, "because", state, 5.0, 0.0, (task,), ("it waits",))  # type: ignore[arg-type]


def test_moves_are_listed_and_followed(nimbus: FakeNimbus, client: Client) -> None:
    nimbus.specs["words"] = spec()
    followed = client.follow_moves("words")
    assert next(followed) == (), "what is known comes at once, also when it is nothing"
    nimbus.moves_on(_move(1, "running"))
    nimbus.moves_on(_move(1, "running", topology="other"))
    assert next(followed) == (_move(1, "running"),)
    nimbus.moves_on(_move(1, "ended"))
    nimbus.moves_on(_move(2, "running"))
    new = next(followed)
    while len(new) < 2:
        new += next(followed)
    assert new == (_move(1, "ended"), _move(2, "running"))
    followed.close()
    assert client.moves("words", limit=2) == (_move(2, "running"), _move(1, "ended"))
    nimbus.moves_on(_move(3, "ended"))
    shown = client.moves("words", limit=1)
    assert [m.epoch for m in shown if m.state == "ended"] == [3]
    assert _move(2, "running") in shown, "what goes on is shown besides"
    assert len(client.moves()) == 4
    with pytest.raises(NotFound, match="no topology nothing"):
        next(client.follow_moves("nothing"))


def test_a_topology_of_very_many_pairs_of_tasks_is_described_without_them(
    nimbus: FakeNimbus, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus.specs["words"] = spec()
    plain = nimbus.describe("words")
    for count, told in (service.MOST_PAIRS, service.MOST_PAIRS), (service.MOST_PAIRS + 1, 0):
        some = tuple(PairLoad(n, n + 1, 5) for n in range(count // 2))
        rest = tuple(PairLoad(n, n + 2, 5) for n in range(count - len(some)))
        reports = tuple(
            WorkerReport("words", w, f"{w}#1", 1.0, 1, pairs=pairs) for w, pairs in (("a", some), ("b", rest))
        )
        described = replace(plain, reports=reports)
        monkeypatch.setattr(nimbus, "describe", lambda name, described=described: described)
        found = client.describe("words").reports
        assert [r.worker for r in found] == ["a", "b"]
        assert sum(len(r.pairs) for r in found) == told


def test_errors_that_are_more_than_a_message_holds(nimbus: FakeNimbus, client: Client) -> None:
    long = Event(1.0, "tuple-failed", "raised", Severity.ERROR, details={"traceback": "x" * 20_000})
    for _ in range(1000):
        nimbus.events.append(long)
    with pytest.raises(Refused, match="1,000 errors are more than an answer holds") as caught:
        client.errors()
    assert "--limit" in caught.value.remedy
    assert len(client.errors(limit=200)) == 200


def test_moves_by_number_and_without_their_tasks(nimbus: FakeNimbus, client: Client) -> None:
    for epoch in (1, 2):
        nimbus.moves_on(_move(epoch, "ended"))
    assert client.moves("words", epoch=1) == (_move(1, "ended"),)
    assert client.moves("words", epoch=3) == ()
    assert client.moves(tasks=False) == tuple(
        replace(_move(epoch, "ended"), tasks=(), waits=()) for epoch in (2, 1)
    )


def test_moves_that_are_more_than_a_message_holds(nimbus: FakeNimbus, client: Client) -> None:
    (task,) = _move(1, "ended").tasks
    reason = "r" * 1000
    tasks = tuple(replace(task, task=n, reason=reason) for n in range(1500))
    kept = tuple(replace(_move(epoch, "ended"), tasks=tasks) for epoch in range(1, 13))
    for move in kept:
        nimbus.moves_on(move)
    with pytest.raises(
        Refused, match="12 moves with all their tasks are more than an answer holds"
    ) as caught:
        client.moves()
    assert "--limit" in caught.value.remedy
    assert [m.epoch for m in client.moves(tasks=False)] == list(range(12, 0, -1))
    assert client.moves(epoch=7) == (kept[6],)
    followed = client.follow_moves()
    assert next(followed) == kept, "all that are known come first"
    nimbus.moves_on(_move(13, "running"))
    assert next(followed) == (_move(13, "running"),)
    followed.close()


def test_following_moves_goes_on_with_the_next_leader(nimbus: FakeNimbus, tmp_path: Path) -> None:
    other = FakeNimbus(tmp_path / "other")
    nimbus.leading, other.leading = True, False
    with (
        serving(nimbus) as first,
        serving(other) as second,
        Client([first.address, second.address], timeout=WAIT) as client,
    ):
        followed = client.follow_moves()
        assert next(followed) == ()
        other.moves_on(_move(9, "running"))
        other.leading, nimbus.leading, nimbus.leader_address = True, False, second.address
        assert next(followed) == (_move(9, "running"),)
        followed.close()


def test_errors_come_back_as_what_they_were(nimbus: FakeNimbus, client: Client, bundle: Path) -> None:
    for kind in (
        AlreadyExists,
        errors.NotShippable,
        errors.NotConnected,
        errors.Conflict,
        errors.ExecutionError,
    ):
        nimbus.fail = kind("what happened", remedy="what to do")
        with pytest.raises(kind) as caught:
            client.submit(spec(), bundle)
        assert type(caught.value) is kind
        assert (caught.value.message, caught.value.remedy) == ("what happened", "what to do")
    nimbus.fail = None
    with pytest.raises(NotFound, match="no topology nothing"):
        client.describe("nothing")


def test_what_no_message_can_hold_is_the_callers(client: Client) -> None:
    named: tuple[Callable[[str], object], ...] = (
        lambda name: client.kill(name, wait=0),
        lambda name: next(client.events(topology=name)),
        lambda name: next(client.logs(name, follow=True)),
        lambda name: next(client.follow_moves(name)),
        lambda name: next(client.generate(name, answer)),
    )
    for of in named:
        with pytest.raises(ConfigError, match="is not text in UTF-8"):
            of("w\udcff")
    numbered: tuple[Callable[[int], object], ...] = (
        lambda number: client.abort_move("words", number),
        lambda number: next(client.events(tail=number)),
        lambda number: client.rebalance("words", executors={"lines": number}),
    )
    for of_number in numbered:
        with pytest.raises(ConfigError, match=f"the number {1 << 63} is too large"):
            of_number(1 << 63)


def test_a_defect_in_the_server_is_said_and_logged(
    nimbus: FakeNimbus, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    nimbus.fail = ZeroDivisionError("by zero")  # type: ignore[assignment]
    with pytest.raises(ElasticError, match="ListTopologies failed in the server: ZeroDivisionError: by zero"):
        client.list()
    assert "Traceback" in caplog.text


def test_a_bundle_that_is_too_large_is_refused_before_it_is_sent(
    nimbus: FakeNimbus, client: Client, tmp_path: Path
) -> None:
    large = tmp_path / "large.zip"
    with large.open("wb") as file:
        file.truncate(9 << 20)
    with pytest.raises(Refused, match="9437184 bytes, and at most 8388608"):
        client.submit(spec(), large)
    assert nimbus.got("submit") == []
    assert list(nimbus.bundles.directory.iterdir()) == []


def test_a_bundle_that_is_not_what_was_announced_is_not_kept(
    nimbus: FakeNimbus, server: ControlServer, client: Client, tmp_path: Path
) -> None:
    from elastic.control.codec import SPEC

    def send(size: int, *chunks: bytes, sha256: str = "0" * 64) -> None:
        header = pb.SubmitHeader(spec=SPEC.encode(spec()), bundle_sha256=sha256, bundle_size=size)
        pieces = [pb.SubmitRequest(header=header), *(pb.SubmitRequest(chunk=c) for c in chunks)]
        with grpc.insecure_channel(server.address) as channel:
            try:
                ControlServiceStub(channel).Submit(iter(pieces), timeout=WAIT)
            except grpc.RpcError as e:
                raise from_call(e, doing="submit", address=server.address) from e

    with pytest.raises(ConfigError, match="did not arrive as announced"):
        send(3, b"abc")
    with pytest.raises(ConfigError, match="did not arrive as announced"):
        send(3, b"ab")
    with pytest.raises(ConfigError, match="did not arrive as announced"):
        send(3, b"abcd", b"e")
    with pytest.raises(ConfigError, match="pieces of at most"):
        send(2 << 20, b"x" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="no SHA-256"):
        send(3, b"abc", sha256="../../x")
    assert nimbus.got("submit") == []
    assert list(nimbus.bundles.directory.iterdir()) == []
    with pytest.raises(EnvironmentProblem, match="cannot be read"):
        client.submit(spec(), tmp_path / "missing.zip")


def test_a_deadline_ends_the_call_and_bounds_the_wait(nimbus: FakeNimbus, server: ControlServer) -> None:
    with Client(server.address, timeout=WAIT) as client:
        client.list()
        nimbus.block.clear()
        client._timeout = 0.5  # connecting may have taken longer
        with pytest.raises(DeadlineExceeded, match="kill words"):
            client.kill("words", wait=0)
        nimbus.block.set()
    with grpc.insecure_channel(server.address) as channel:
        ControlServiceStub(channel).Kill(pb.KillRequest(name="words", wait=1000), timeout=20)
    assert nimbus.got("kill")[-1]["wait"] < 20
    with grpc.insecure_channel(server.address) as channel:
        ControlServiceStub(channel).Kill(pb.KillRequest(name="words", wait=1000))
    assert nimbus.got("kill")[-1]["wait"] <= 30
    with Client(server.address) as client, pytest.raises(ConfigError, match="no time to wait"):
        client.deactivate("words", wait=-1)


def test_events_kept_filtered_and_the_last_ones(nimbus: FakeNimbus, client: Client) -> None:
    numbers = [nimbus.events.append(event(n, "words" if n % 2 else "other")) for n in range(6)]
    assert [e for _, e in client.events()] == [event(n, "words" if n % 2 else "other") for n in range(6)]
    assert [n for n, _ in client.events(since=numbers[3])] == numbers[4:]
    assert [n for n, _ in client.events(topology="words")] == numbers[1::2]
    assert [n for n, _ in client.events(topology="words", tail=1)] == numbers[5:]
    assert list(client.events(tail=0)) == []


def test_a_followed_stream_goes_on_and_ends_with_its_caller(nimbus: FakeNimbus, client: Client) -> None:
    first = nimbus.events.append(event(1))
    stream = client.events(follow=True, topology="words")
    assert next(stream) == (first, event(1))
    nimbus.events.append(event(2, "other"))
    third = nimbus.events.append(event(3))
    assert next(stream) == (third, event(3))
    busy = _streams_open(client)
    assert busy() == 1
    stream.close()
    eventually(lambda: busy() == 0)


def test_closing_the_client_ends_its_streams(nimbus: FakeNimbus, server: ControlServer) -> None:
    nimbus.events.append(event(1))
    client = Client(server.address)
    stream = client.events(follow=True)
    next(stream)
    rest: list[Any] = []
    reader = threading.Thread(target=lambda: rest.extend(stream))
    reader.start()
    client.close()
    client.close()
    reader.join(WAIT)
    assert not reader.is_alive()
    assert rest == []
    with pytest.raises(Unavailable, match="closed"):
        client.list()


def _streams_open(client: Client) -> Any:
    import gc

    from elastic.rpc.server import Server

    servers = [o for o in gc.get_objects() if isinstance(o, Server) and o._open]
    (server,) = servers
    return lambda: len(server._open)


def test_closing_the_server_ends_streams_and_threads(nimbus: FakeNimbus) -> None:
    before = threads("nimbus")
    with serving(nimbus) as server, Client(server.address, timeout=WAIT) as client:
        nimbus.events.append(event(1))
        stream = client.events(follow=True)
        next(stream)
        server.close()
        assert threads("nimbus") == before
        client._timeout = 1
        with pytest.raises(Unavailable, match=r"elastic up"):
            next(stream)


def test_no_more_followers_than_threads_allow(
    nimbus: FakeNimbus, server: ControlServer, client: Client
) -> None:
    nimbus.events.append(event(1))
    streams = [client.events(follow=True) for _ in range(33)]
    for stream in streams[:32]:
        next(stream)
    with pytest.raises(Refused, match="already serves 32 followed streams"):
        next(streams[32])
    assert client.list() == ()
    assert [e for _, e in client.events(tail=1)] == [event(1)], "only who follows takes room"
    for stream in streams:
        stream.close()


def test_requests_that_wait_leave_threads_to_those_that_do_not(
    nimbus: FakeNimbus, server: ControlServer
) -> None:
    nimbus.specs["words"] = spec()
    nimbus.events.append(event(1))
    nimbus.block.clear()
    with Client(server.address, timeout=WAIT) as client, ThreadPoolExecutor(WAITS) as pool:
        waiting = [pool.submit(client.move, "words", "1", "n1", wait=60) for _ in range(WAITS)]
        nimbus.wait_until(lambda n: len(n.got("move")) == WAITS)
        with pytest.raises(Refused, match=f"{WAITS} requests wait already"):
            client.drain_node("n1", wait=60)
        assert not nimbus.got("drain_node")
        assert [e for _, e in client.events(tail=1)] == [event(1)]
        nimbus.block.set()
        for each in waiting:
            each.result(WAIT)
        client.drain_node("n1", wait=60)


def test_errors_of_one_topology_and_of_all(nimbus: FakeNimbus, client: Client) -> None:
    nimbus.specs["words"] = spec()
    for n in range(4):
        nimbus.events.append(event(n, "words" if n < 3 else "other", Severity.ERROR))
    nimbus.events.append(event(9, "other"))
    assert [e.kind for e in client.errors()] == ["kind-0", "kind-1", "kind-2", "kind-3"]
    assert [e.kind for e in client.errors(limit=2)] == ["kind-2", "kind-3"]
    assert [e.kind for e in client.errors("words")] == ["kind-0", "kind-1", "kind-2"]


def test_health_and_reflection_answer(nimbus: FakeNimbus, server: ControlServer) -> None:
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def status(service: str) -> int:
            return health.Check(health_pb2.HealthCheckRequest(service=service), timeout=WAIT).status

        serving_, not_serving = 1, 2
        assert [status(s) for s in ("", CONTROL, REPORTING)] == [serving_] * 3
        watch = health.Watch(health_pb2.HealthCheckRequest(service=CONTROL), timeout=WAIT)
        assert next(watch).status == serving_
        nimbus.leading = False
        assert next(watch).status == not_serving
        watch.cancel()
        assert [status(s) for s in ("", CONTROL, REPORTING)] == [serving_, not_serving, not_serving]
        with pytest.raises(grpc.RpcError) as caught:
            status("nothing")
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        known = set(ProtoReflectionDescriptorDatabase(channel).get_services())
        assert {CONTROL, REPORTING, "grpc.health.v1.Health"} <= known


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "example.org:0", ":0", "127.0.0.1", "127.0.0.1:x"])
def test_it_does_not_listen_for_other_machines_unasked(nimbus: FakeNimbus, listen: str) -> None:
    with pytest.raises(ConfigError):
        ControlServer(nimbus, listen)  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_said(nimbus: FakeNimbus, server: ControlServer) -> None:
    with pytest.raises(EnvironmentProblem, match="port taken"):
        ControlServer(nimbus, server.address)  # type: ignore[arg-type]


def test_nobody_there_names_the_addresses_and_what_to_do() -> None:
    addresses = [free_port(), free_port()]
    with Client(addresses, patience=0.3) as client:
        for ask in (client.list, client.info, lambda: next(client.events(follow=True))):
            with pytest.raises(Unavailable) as caught:
                ask()
            assert caught.value.message == f"no Nimbus answers at {', '.join(addresses)} (Connection refused)"
            assert "elastic up" in caught.value.remedy
    with pytest.raises(ConfigError):
        Client([])
    with pytest.raises(ConfigError):
        Client("")


def test_that_somebody_has_answered_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([(pb.ClusterInfoResponse(), None)])
    late = None, DeadlineExceeded("no time was left")
    monkeypatch.setattr(Connection, "_ask_round", lambda *_: next(rounds, late))
    with Client(free_port(), timeout=0.3) as client, pytest.raises(Unavailable, match="none of them leads"):
        client.list()


def test_a_nimbus_that_has_ended_is_not_said_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it ends, it stands down before it stops to answer: nobody takes over, and waiting for that is no remedy."""
    rounds = iter([(pb.ClusterInfoResponse(), None)])
    gone = None, Unreachable("127.0.0.1:1 cannot be reached (Connection refused)")
    monkeypatch.setattr(Connection, "_ask_round", lambda *_: next(rounds, gone))
    address = free_port()
    with Client(address, patience=0.3) as client, pytest.raises(Unavailable) as caught:
        client.list()
    assert caught.value.message == f"no Nimbus answers at {address} (Connection refused)"


def test_a_leader_that_is_lost_is_told_within_two_seconds_and_one_that_is_found(
    nimbus: FakeNimbus, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, float]] = []
    with serving(nimbus) as server, Client(server.address, timeout=WAIT) as client:
        began = time.monotonic()
        client.on_lost(lambda why: told.append((why, time.monotonic() - began)))
        assert client.moves() == () and not told
        real = Connection._ask_round

        def away(self: Connection, deadline: float, known: str) -> Any:
            if time.monotonic() < began + 2.5:
                return None, Unreachable("127.0.0.1:1 cannot be reached (Connection refused)")
            return real(self, deadline, known)

        monkeypatch.setattr(Connection, "_ask_round", away)
        monkeypatch.setattr(client._connection, "_leader", "")
        assert client.moves() == ()
        assert [why for why, _ in told] == ["no Nimbus answers", ""]
        assert 0.9 < told[0][1] < 2.0
        server.close()
        monkeypatch.setattr(Connection, "_ask_round", real)
        client._connection._patience = (3.0, 3.0)
        with pytest.raises(Unavailable, match="no Nimbus answers at"):
            client.move("words", "1", "n1")
        assert [why for why, _ in told[2:]] == ["no Nimbus answers"]


def test_something_else_at_the_address_is_said() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        other = grpc.server(pool)
        address = f"127.0.0.1:{other.add_insecure_port('127.0.0.1:0')}"
        other.start()
        with Client(address) as client, pytest.raises(ElasticError, match="does not know this request"):
            client.list()
        other.stop(0).wait()
