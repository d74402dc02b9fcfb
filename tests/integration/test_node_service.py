"""A node's own service over a real connection, and logs and stacks through Nimbus."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from control_fake import WAIT, FakeNimbus, lasting, serving, spec

from elastic.control.client import Client
from elastic.control.log_merge import LogMerge
from elastic.control.types import LogLine
from elastic.errors import ConfigError, ElasticError, NotFound, Refused, Unavailable
from elastic.model.views import NodeSummary, WorkerView
from elastic.reporting.node_gateway import GrpcNodeGateway
from elastic.reporting.node_server import NodeServer
from elastic.rpc.errors import Unreachable


class FakeSupervisor:
    """Workers with log files in a directory."""

    def __init__(self, directory: Path, *workers: str) -> None:
        self.logs = {w: directory / f"{w.replace('/', ':')}.log" for w in workers}
        directory.mkdir(exist_ok=True)
        for path in self.logs.values():
            path.touch()
        self.running = set(workers)
        self.lacking = {"torch"}

    def write(self, worker: str, text: str) -> None:
        with self.logs[worker].open("a") as file:
            file.write(text)

    def log_files(self, topology: str, worker: str = "") -> Sequence[tuple[str, Path]]:
        return [
            (w, path)
            for w, path in sorted(self.logs.items())
            if w.startswith(f"{topology}@") and worker in ("", w)
        ]

    def missing_modules(self, modules: Sequence[str]) -> Sequence[str]:
        return [m for m in modules if m in self.lacking]

    def request_stacks(self, worker: str) -> Future[str]:
        if worker not in self.running:
            raise NotFound(f"worker {worker} does not run here")
        found: Future[str] = Future()
        threading.Timer(0.1, found.set_result, (f"Thread of {worker}\n  File x\n",)).start()
        return found


@pytest.fixture
def supervisor(tmp_path: Path) -> FakeSupervisor:
    return FakeSupervisor(tmp_path / "n1", "words@n1/0", "words@n1/1", "other@n1/2")


@pytest.fixture
def node(supervisor: FakeSupervisor) -> Iterator[NodeServer]:
    server = NodeServer(supervisor)
    server.start()
    yield server
    server.close()
    server.close()
    assert lasting("node-service") == []


gateway = GrpcNodeGateway()


def lines_of(address: str, worker: str = "", tail: int | None = None) -> list[tuple[str, str]]:
    stream = gateway.logs(address, "words", worker, follow=False, tail=tail)
    try:
        return [line for lines in stream for line in lines]
    finally:
        stream.close()


def test_modules_that_the_node_lacks(node: NodeServer) -> None:
    assert gateway.missing_modules(node.address, ["json", "torch"], WAIT) == ("torch",)
    assert gateway.missing_modules(node.address, [], WAIT) == ()


def test_logs_of_all_workers_or_one(node: NodeServer, supervisor: FakeSupervisor) -> None:
    supervisor.write("words@n1/0", "a\nb\nc")
    supervisor.write("words@n1/1", "".join(f"{n}\n" for n in range(20_000)))
    supervisor.write("other@n1/2", "not mine\n")
    found = lines_of(node.address)
    assert [t for w, t in found if w == "words@n1/0"] == ["a", "b", "c"]
    assert [t for w, t in found if w == "words@n1/1"] == [str(n) for n in range(20_000)]
    assert lines_of(node.address, "words@n1/0", tail=2) == [("words@n1/0", "b"), ("words@n1/0", "c")]
    assert lines_of(node.address, "words@n1/9") == []


def test_a_followed_log_goes_on_also_with_new_workers(node: NodeServer, supervisor: FakeSupervisor) -> None:
    supervisor.write("words@n1/0", "old\n")
    stream = gateway.logs(node.address, "words", "", follow=True, tail=1)
    lines = (line for batch in stream for line in batch)
    assert next(lines) == ("words@n1/0", "old")
    supervisor.write("words@n1/0", "new\n")
    assert next(lines) == ("words@n1/0", "new")
    supervisor.logs["words@n1/7"] = supervisor.logs["words@n1/0"].with_name("late.log")
    supervisor.write("words@n1/7", "first\nsecond\n")
    assert [next(lines), next(lines)] == [("words@n1/7", "first"), ("words@n1/7", "second")]
    stream.close()


def test_closing_the_node_ends_what_follows_it(node: NodeServer, supervisor: FakeSupervisor) -> None:
    supervisor.write("words@n1/0", "one\n")
    stream = gateway.logs(node.address, "words", "", follow=True, tail=None)
    lines = iter(stream)
    next(lines)
    node.close()
    with pytest.raises(Refused, match="going down"):
        next(lines)
    stream.close()
    assert lasting("node-service") == []


def test_stacks_of_all_workers_or_one(node: NodeServer, supervisor: FakeSupervisor) -> None:
    supervisor.write("words@n1/0", "earlier output\n")
    expected = {w: f"Thread of {w}\n  File x\n" for w in ("words@n1/0", "words@n1/1")}
    assert dict(gateway.stacks(node.address, "words", "", WAIT)) == expected
    supervisor.running.discard("words@n1/1")
    assert [w for w, _ in gateway.stacks(node.address, "words", "", WAIT)] == ["words@n1/0"]
    with pytest.raises(NotFound, match="does not run here"):
        gateway.stacks(node.address, "words", "words@n1/1", WAIT)


def test_a_node_that_does_not_answer_in_time(node: NodeServer, supervisor: FakeSupervisor) -> None:
    asked, answer = threading.Event(), threading.Event()

    def wait(_: Sequence[str]) -> Sequence[str]:
        asked.set()
        assert answer.wait(WAIT)
        return []

    supervisor.missing_modules = wait  # type: ignore[method-assign]
    for limit in (0.3, 3.0, 20.0):  # to reach it may take longer
        if not asked.is_set():
            with pytest.raises(Unavailable, match="did not answer in the time"):
                gateway.missing_modules(node.address, ["json"], limit)
    answer.set()
    assert asked.is_set()


def test_a_node_that_is_not_there(supervisor: FakeSupervisor) -> None:
    server = NodeServer(supervisor)
    address = server.address
    server.close()
    with pytest.raises(Unavailable, match=address):
        gateway.missing_modules(address, ["json"], 5)
    with pytest.raises(Unavailable, match=address):
        lines_of(address)
    with pytest.raises(ConfigError, match="no authentication"):
        NodeServer(supervisor, "0.0.0.0:0")


# --- through Nimbus


@pytest.fixture
def cluster(
    tmp_path: Path,
) -> Iterator[tuple[FakeNimbus, Client, dict[str, tuple[FakeSupervisor, NodeServer]]]]:
    nimbus = FakeNimbus(tmp_path)
    nimbus.specs["words"] = spec()
    with ExitStack() as stack:
        nodes = {}
        for name in ("n1", "n2"):
            supervisor = FakeSupervisor(tmp_path / name, f"words@{name}/0")
            server = NodeServer(supervisor)
            server.start()
            stack.callback(server.close)
            nodes[name] = supervisor, server
        nimbus.node_list = tuple(summary(n, s.address) for n, (_, s) in nodes.items())
        nimbus.worker_views = tuple(WorkerView(f"words@{n}/0", n, 0, alive=True) for n in nodes)  # type: ignore[arg-type]
        server = stack.enter_context(serving(nimbus, nodes=GrpcNodeGateway()))
        client = stack.enter_context(Client(server.address, timeout=WAIT))
        yield nimbus, client, nodes
    assert lasting("logs-") == []


def summary(name: str, address: str) -> NodeSummary:
    return NodeSummary(name, True, True, False, 2, 1, address=address)  # type: ignore[arg-type]


Cluster = tuple[FakeNimbus, Client, dict[str, tuple[FakeSupervisor, NodeServer]]]


def test_logs_of_all_nodes_through_nimbus(cluster: Cluster) -> None:
    _, client, nodes = cluster
    for name, (supervisor, _) in nodes.items():
        supervisor.write(f"words@{name}/0", "".join(f"{n}\n" for n in range(1000)))
    found = list(client.logs("words"))
    for name in nodes:
        mine = [line for line in found if line.node == name]
        assert mine == [LogLine(f"words@{name}/0", name, str(n)) for n in range(1000)]
    assert len(found) == 2000
    for worker in ("words@n2/0", "n2/0"):
        assert [line.text for line in client.logs("words", worker=worker, tail=2)] == ["998", "999"]


def test_followed_logs_through_nimbus_take_in_new_nodes(cluster: Cluster) -> None:
    nimbus, client, nodes = cluster
    second = nimbus.node_list[1]
    nimbus.node_list = nimbus.node_list[:1]
    nodes["n1"][0].write("words@n1/0", "one\n")
    stream = client.logs("words", follow=True)
    assert next(stream) == LogLine("words@n1/0", "n1", "one")
    nodes["n2"][0].write("words@n2/0", "two\n")
    nimbus.node_list = (*nimbus.node_list, second)
    assert next(stream) == LogLine("words@n2/0", "n2", "two")
    # A node whose stream breaks is read again when it is back, from then on.
    nodes["n2"][1].close()
    nimbus.node_list = nimbus.node_list[:1]
    looks = len(nimbus.got("nodes"))
    nimbus.wait_until(lambda n: len(n.got("nodes")) >= looks + 3)
    back = NodeServer(nodes["n2"][0])
    back.start()
    nimbus.node_list = (nimbus.node_list[0], summary("n2", back.address))
    stop = threading.Event()

    def keep_writing() -> None:
        while not stop.wait(0.1):
            nodes["n2"][0].write("words@n2/0", "three\n")

    writer = threading.Thread(target=keep_writing)
    writer.start()
    assert next(stream) == LogLine("words@n2/0", "n2", "three")
    stop.set()
    writer.join()
    stream.close()
    back.close()


class Told:
    """One stream of a node: its lines, then how it ends."""

    def __init__(self, lines: Sequence[str], end: ElasticError) -> None:
        self._lines, self._end = lines, end

    def __iter__(self) -> Iterator[list[tuple[str, str]]]:
        for text in self._lines:
            yield [("words@n1/0", text)]
        raise self._end

    def close(self) -> None: ...


class Telling:
    """Nodes that tell what is given here, a stream each time that they are read."""

    def __init__(self, *streams: Told) -> None:
        self.tails: list[int | None] = []
        self._streams = list(streams)

    def logs(self, *_: str, follow: bool, tail: int | None) -> Told:
        self.tails.append(tail)
        return self._streams[len(self.tails) - 1]

    def stacks(self, *_: Any) -> Any:
        raise AssertionError


def test_a_node_that_is_read_again_does_not_repeat_what_it_has_told() -> None:
    away = Unreachable("away")
    nodes = Telling(Told([], away), Told(["one"], away), Told([], away))
    merge = LogMerge(nodes, "words", "", follow=True)
    for tail in (5, None, None):
        merge.attach("n1", "address", tail)
        while not merge.done:
            merge.next(WAIT)
        assert merge.failures() == {"n1": away} and merge.failures() == {}
    assert nodes.tails == [5, 5, 0], "the first time it had told nothing yet"
    merge.close()


def test_a_node_that_refuses_to_be_followed_is_said(tmp_path: Path) -> None:
    nimbus = FakeNimbus(tmp_path)
    nimbus.specs["words"] = spec()
    nimbus.node_list = (summary("n1", "127.0.0.1:1"),)
    nodes = Telling(*[Told(["one"], Refused("no room for another one"))] * 9)
    with serving(nimbus, nodes=nodes) as server, Client(server.address, timeout=WAIT) as client:
        stream = client.logs("words", follow=True)
        assert next(stream).text == "one"
        with pytest.raises(Refused, match="no room for another one"):
            next(stream)


def test_a_node_has_room_for_as_many_followers_as_a_nimbus(
    node: NodeServer, supervisor: FakeSupervisor
) -> None:
    supervisor.write("words@n1/0", "one\n")
    with ExitStack() as stack:
        for _ in range(32):
            logs = GrpcNodeGateway().logs(node.address, "words", "", follow=True, tail=None)
            stack.callback(logs.close)
            assert next(iter(logs)) == [("words@n1/0", "one")]


def test_a_node_that_cannot_be_read_is_said_after_the_others(cluster: Cluster) -> None:
    _, client, nodes = cluster
    nodes["n1"][0].write("words@n1/0", "one\n")
    nodes["n2"][1].close()
    stream = client.logs("words")
    assert next(stream).text == "one"
    with pytest.raises(Unavailable, match="not complete"):
        next(stream)


def test_logs_of_a_topology_that_is_gone_and_of_one_that_never_was(cluster: Cluster) -> None:
    nimbus, client, nodes = cluster
    nimbus.specs.clear()
    with pytest.raises(NotFound, match="no topology words"):
        list(client.logs("words"))
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(next, client.logs("words", follow=True))
        timer = threading.Timer(WAIT, client.close)
        timer.start()
        with pytest.raises(NotFound, match="no topology words"):
            followed.result()
        timer.cancel()
    nodes["n1"][0].write("words@n1/0", "last words\n")
    assert [line.text for line in client.logs("words")] == ["last words"]


def test_stacks_through_nimbus(cluster: Cluster) -> None:
    _, client, nodes = cluster
    assert [(s.worker, s.node) for s in client.stacks("words")] == [
        ("words@n1/0", "n1"),
        ("words@n2/0", "n2"),
    ]
    (one,) = client.stacks("words", worker="words@n2/0")
    assert "Thread of words@n2/0" in one.text
    assert client.stacks("words", worker="n2/0") == (one,), "for short, as elsewhere"
    with pytest.raises(NotFound, match=r"no worker words@n9/0\n.*words@n1/0, words@n2/0"):
        client.stacks("words", worker="words@n9/0")
    nodes["n2"][1].close()
    first, second = client.stacks("words")
    assert "Thread of words@n1/0" in first.text
    assert (second.worker, second.node, second.text) == ("words@n2/0", "n2", ""), "its node does not answer"
    with pytest.raises(Unavailable, match="no stacks of words"):
        client.stacks("words", worker="words@n2/0")


def test_nodes_are_asked_for_stacks_at_the_same_time(tmp_path: Path) -> None:
    """Where something hangs on several, each takes its time to say so."""
    nimbus = FakeNimbus(tmp_path)
    nimbus.specs["words"] = spec()
    nimbus.node_list = tuple(summary(f"n{n}", f"n{n}:1") for n in range(3))
    nimbus.worker_views = tuple(WorkerView(f"words@n{n}/0", f"n{n}", 0, alive=True) for n in range(3))  # type: ignore[arg-type]
    together = threading.Barrier(3)

    class Asked(Telling):
        def stacks(self, address: str, topology: str, worker: str, timeout: float) -> Any:
            together.wait(WAIT / 3)
            return [(f"words@{address.partition(':')[0]}/0", "stack")]

    with serving(nimbus, nodes=Asked()) as server, Client(server.address, timeout=WAIT) as client:
        assert [s.worker for s in client.stacks("words")] == [f"words@n{n}/0" for n in range(3)]


def test_a_nimbus_without_nodes_refuses(tmp_path: Path) -> None:
    nimbus = FakeNimbus(tmp_path)
    nimbus.specs["words"] = spec()
    with serving(nimbus) as server, Client(server.address) as client:
        with pytest.raises(Refused):
            list(client.logs("words"))
        with pytest.raises(Refused):
            client.stacks("words")
