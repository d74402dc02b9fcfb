"""What a client makes of a Nimbus that goes down in the middle of an answer, and of its own end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from elastic.control.client import Client
from elastic.control.v1 import control_pb2 as pb
from elastic.control.v1.control_pb2_grpc import (
    ControlServiceServicer,
    ControlServiceStub,
    add_ControlServiceServicer_to_server,
)
from elastic.errors import ElasticError, Unavailable
from elastic.rpc.errors import NotLeading
from elastic.rpc.server import Server

LINES = [f"line {n}" for n in range(10)]


class Nimbus(ControlServiceServicer):
    """One that leads, and stops leading after three lines of its first answer."""

    def __init__(self) -> None:
        self.server = Server("127.0.0.1:0", name="fake")
        self.asked: list[int | None] = []
        self.called, self.left = threading.Event(), threading.Event()
        add_ControlServiceServicer_to_server(self, self.server.grpc)
        self.server.start()

    def ClusterInfo(self, request: pb.ClusterInfoRequest, context: Any) -> pb.ClusterInfoResponse:
        address = self.server.address
        return pb.ClusterInfoResponse(
            cluster="x", version="1", leader=address, address=address, leading=True, uptime=1, python="3"
        )

    def ListMoves(self, request: pb.ListMovesRequest, context: Any) -> pb.ListMovesResponse:
        return pb.ListMovesResponse()

    def ListNodes(self, request: pb.ListNodesRequest, context: Any) -> pb.ListNodesResponse:
        """Fails when the caller has gone."""
        context.add_callback(self.left.set)
        self.called.set()
        assert self.left.wait(60)
        raise NotLeading("nobody leads")

    def StreamLogs(self, request: pb.StreamLogsRequest, context: Any) -> Iterator[pb.StreamLogsResponse]:
        tail = request.tail if request.HasField("tail") else None
        self.asked.append(tail)
        for n, text in enumerate(LINES if tail is None else LINES[len(LINES) - tail :]):
            if len(self.asked) == 1 and n == 3:
                raise self.server.gone()
            yield pb.StreamLogsResponse(lines=[pb.LogLine(worker="w", node="n", text=text)])


@pytest.fixture
def nimbus() -> Iterator[Nimbus]:
    made = Nimbus()
    yield made
    made.server.close(0)


def test_logs_of_which_a_part_has_come_do_not_end_well(nimbus: Nimbus) -> None:
    got: list[str] = []
    with Client(nimbus.server.address, timeout=20) as client, pytest.raises(NotLeading):
        got += (line.text for line in client.logs("t"))
    assert nimbus.asked == [None], "what was read would come twice, or the rest never"


def test_logs_that_are_followed_go_on(nimbus: Nimbus) -> None:
    with Client(nimbus.server.address, timeout=20) as client:
        got = [line.text for line in client.logs("t", follow=True)]
    assert got == LINES[:3] and nimbus.asked == [None, 0]


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_another_thread_closes_says_so(
    nimbus: Nimbus, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """Between finding the leader and asking it."""
    client = Client(nimbus.server.address, timeout=20)
    leader, found, go_on = client._connection.leader, threading.Event(), threading.Event()

    def slow(*args: Any, **options: Any) -> Any:
        link = leader(*args, **options)
        found.set()
        assert go_on.wait(60)
        return link

    monkeypatch.setattr(client._connection, "leader", slow)
    raised: list[ElasticError] = []

    def ask() -> None:
        try:
            list(client.logs("t")) if streams else client.moves("t")
        except ElasticError as e:
            raised.append(e)

    asking = threading.Thread(target=ask)
    asking.start()
    assert found.wait(60)
    client.close()
    go_on.set()
    asking.join(60)
    assert [type(e) for e in raised] == [Unavailable]


def test_an_error_that_nobody_waits_for_any_more_is_no_answer_that_cannot_be_sent(
    nimbus: Nimbus, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC logged the traceback of one at each call that was given up."""
    with grpc.insecure_channel(nimbus.server.address) as channel:
        call = ControlServiceStub(channel).ListNodes.future(pb.ListNodesRequest())
        assert nimbus.called.wait(60)
        call.cancel()
    nimbus.server.close(60)
    assert not caplog.records
