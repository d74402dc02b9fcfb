"""Several Nimbuses, of which one leads: whom the client asks, and what it asks again when another one takes over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from control_fake import WAIT, FakeNimbus, a_bundle, event, eventually, free_port, serving, spec

from elastic.control import connection
from elastic.control.client import Client
from elastic.control.server import ControlServer
from elastic.control.v1 import control_pb2 as pb
from elastic.control.v1.control_pb2_grpc import ControlServiceStub
from elastic.errors import (
    Begun,
    DeadlineExceeded,
    ElasticError,
    Refused,
    Superseded,
    Unavailable,
)
from elastic.nimbus.reign import stopped
from elastic.rpc.errors import from_call


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[FakeNimbus, ControlServer, FakeNimbus, ControlServer]]:
    one, two = FakeNimbus(tmp_path / "1"), FakeNimbus(tmp_path / "2")
    two.leading = False
    with serving(one) as first, serving(two) as second:
        one.leader_address = two.leader_address = first.address
        yield one, first, two, second


def test_a_standby_names_the_leader_and_the_client_goes_there(pair: Any, tmp_path: Path) -> None:
    one, first, two, second = pair
    with Client(second.address) as client:
        client.submit(spec(), a_bundle(tmp_path))
        assert client.info().leading
    assert len(one.got("submit")) == 1
    assert two.calls == []
    with grpc.insecure_channel(second.address) as channel, pytest.raises(grpc.RpcError) as caught:
        ControlServiceStub(channel).ListTopologies(pb.ListTopologiesRequest(), timeout=WAIT)
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    error = from_call(caught.value, doing="x", address="y")
    assert isinstance(error, Refused)
    assert first.address in error.message


def test_a_leader_that_cannot_be_reached_from_here_is_named(pair: Any) -> None:
    _, _, two, second = pair
    two.leader_address = away = free_port()
    with Client(second.address, timeout=1) as client, pytest.raises(Unavailable) as caught:
        client.list()
    said = f"Nimbus at {second.address} answers and says that {away} leads, which does not answer here"
    assert caught.value.message == f"{said} (Connection refused)"
    assert "reached from here" in caught.value.remedy


def _hand_over(one: FakeNimbus, two: FakeNimbus, address: str | None) -> None:
    one.leading, two.leading = False, address is not None
    one.leader_address = two.leader_address = address


def test_the_client_follows_when_the_leader_changes(pair: Any) -> None:
    one, first, two, second = pair
    with Client(first.address, timeout=WAIT) as client:  # it knows of the first alone
        one.events.append(event(1))
        stream = client.events(follow=True)
        number, _ = next(stream)
        assert client.list() == ()
        _hand_over(one, two, second.address)
        client.kill("words", wait=0)
        assert len(two.got("kill")) == 1
        # A new leader goes on with the numbers of the old one.
        while two.events.append(event(2)) <= number:
            pass
        assert next(stream)[1] == event(2)
        stream.close()


def test_the_client_waits_for_a_leader_while_one_is_chosen(pair: Any) -> None:
    one, first, two, second = pair
    with Client([first.address, second.address], timeout=WAIT) as client:
        client.list()
        _hand_over(one, two, None)
        timer = threading.Timer(0.5, _hand_over, (one, two, second.address))
        timer.start()
        client.activate("words")
        timer.join()
        assert len(two.got("activate")) == 1
        client._timeout = 1
        _hand_over(one, two, None)
        with pytest.raises(Unavailable, match="none of them leads"):
            client.list()


def test_a_leader_is_not_waited_for_as_long_as_a_request_may_take(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, first, two, second = pair
    with Client([first.address, second.address]) as client:
        _hand_over(one, two, None)
        monkeypatch.setattr(connection, "_LEADERLESS", 0.2)
        with pytest.raises(Unavailable, match="none of them leads"):
            client._connection.leader(time.monotonic() + 3600.0)


def test_the_client_goes_on_when_the_leader_dies(pair: Any) -> None:
    one, first, two, second = pair
    with Client([first.address, second.address], timeout=WAIT) as client:
        one.events.append(event(1))
        stream = client.events(follow=True)
        number, _ = next(stream)
        first.close(0)
        _hand_over(one, two, second.address)
        assert client.list() == ()
        while two.events.append(event(2)) <= number:
            pass
        assert next(stream)[1] == event(2)
        stream.close()


def test_what_happens_between_two_leaders_is_told_also_to_who_wants_nothing_old(pair: Any) -> None:
    one, first, two, second = pair
    number = one.events.append(event(1))
    with ThreadPoolExecutor(1) as pool, Client([first.address, second.address], timeout=WAIT) as client:
        told = pool.submit(next, client.events(follow=True, tail=0))
        eventually(lambda: first._server._streams._value == 31)
        _hand_over(one, two, None)
        while two.events.append(event(2)) <= number:
            pass
        two.leading = True
        try:
            assert told.result(WAIT)[1] == event(2)
        finally:
            client.close()


def test_a_leader_that_hangs_is_not_asked_for_ever(pair: Any) -> None:
    one, first, two, second = pair
    with Client([first.address, second.address], timeout=WAIT) as client:
        client.list()
        one.leader = lambda: one.block.wait(WAIT) and None
        one.block.clear()
        two.leading = True
        client._timeout = 4.0
        with pytest.raises(DeadlineExceeded):
            client.list()
        assert client.list() == ()
        assert len(two.got("topologies")) == 1


def test_a_request_that_must_not_be_repeated_is_not(pair: Any) -> None:
    one, first, two, second = pair
    with Client([first.address, second.address], timeout=WAIT) as client:
        one.block.clear()
        problems: list[ElasticError] = []

        def add() -> None:
            try:
                client.add_nodes(1, wait=0)
            except ElasticError as e:
                problems.append(e)

        thread = threading.Thread(target=add)
        thread.start()
        one.wait_until(lambda n: n.got("add_nodes"))
        _hand_over(one, two, second.address)
        ending = threading.Thread(target=first.close, args=(0,))
        ending.start()
        thread.join(WAIT)
        one.block.set()
        ending.join(WAIT)
        (problem,) = problems
        assert isinstance(problem, Unavailable)
        assert "whether it was done is not known" in problem.message
        assert two.got("add_nodes") == []


def test_a_leader_that_steps_down_in_the_middle_of_a_request_sends_the_client_on(pair: Any) -> None:
    one, first, two, second = pair
    with Client(first.address, timeout=WAIT) as client:
        one.block.clear()
        one.fail = Refused("this Nimbus does not lead")
        done: list[None] = []
        thread = threading.Thread(target=lambda: done.append(client.kill("words", wait=0)))
        thread.start()
        one.wait_until(lambda n: n.got("kill"))
        _hand_over(one, two, second.address)
        one.block.set()
        thread.join(WAIT)
        assert done == [None]
        assert len(two.got("kill")) == 1


def _asked_while_it_steps_down(
    pair: Any, error: ElasticError, ask: Callable[[Client], object]
) -> list[object]:
    """What comes of a request during which the leader changes: the first one raises that. Returns the result, or the error."""
    one, first, two, second = pair
    found: list[object] = []

    def asking() -> None:
        try:
            found.append(ask(client))
        except ElasticError as e:
            found.append(e)

    with Client([first.address, second.address], timeout=WAIT) as client:
        one.block.clear()
        one.fail = error
        thread = threading.Thread(target=asking)
        thread.start()
        one.wait_until(lambda n: n.calls)
        _hand_over(one, two, second.address)
        one.block.set()
        thread.join(WAIT)
    return found


def test_what_the_leader_has_written_before_it_stepped_down_is_not_asked_for_twice(pair: Any) -> None:
    (problem,) = _asked_while_it_steps_down(pair, stopped("nodes came"), lambda c: c.add_nodes(2, wait=1))
    assert isinstance(problem, Begun) and problem.exit_code == Unavailable.exit_code
    assert "that is recorded, and the next leader goes on with it" in problem.message
    assert "elastic nodes list" in problem.remedy
    assert pair[2].calls == []


def test_what_may_be_asked_for_twice_is_asked_of_the_next_leader(pair: Any) -> None:
    _asked_while_it_steps_down(pair, stopped("it moved"), lambda c: c.move("words", "count", "n1", wait=1))
    assert len(pair[2].got("move")) == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_leader_that_has_changed_nothing_sends_the_client_on(pair: Any, again: bool) -> None:
    """Also one that leads again by now: that is another reign."""
    one, first, two, _ = pair
    if not again:
        _asked_while_it_steps_down(pair, Superseded("nothing was changed"), lambda c: c.add_nodes(2, wait=1))
        assert len(two.got("add_nodes")) == 1
        return
    with Client(first.address, timeout=WAIT) as client:
        one.fail, called = Superseded("nothing was changed"), one._called

        def once(method: str, **arguments: Any) -> None:
            try:
                called(method, **arguments)
            finally:
                one.fail = None

        one._called = once
        client.add_nodes(2, wait=1)
        assert len(one.got("add_nodes")) == 2
