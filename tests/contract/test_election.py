"""One leads; the next leads when it goes; nobody leads without knowing it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from coordination_harness import PATIENCE, Memory, Real, Seen, Service

from elastic.coordination.base import Coordination, Create, SessionState
from elastic.coordination.election import Election, leader
from elastic.errors import Conflict, Refused

PATH = "/candidates"


@pytest.fixture(params=["memory", "zookeeper"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    made: Service = (
        Memory() if request.param == "memory" else Real(request.getfixturevalue("zookeeper_address"))
    )
    yield made
    made.close()


def stand(session: Coordination, name: str) -> tuple[Election, Seen[bool]]:
    seen: Seen[bool] = Seen()
    election = Election(session, PATH, name.encode(), seen)
    election.start()
    return election, seen


def stood(session: Coordination, count: int) -> None:
    names: Seen[tuple[str, ...]] = Seen()
    session.watch_children(PATH, names)
    names.wait(lambda calls: bool(calls) and len(calls[-1]) == count)


def test_the_first_leads_and_the_others_follow_in_order(service: Service) -> None:
    sessions = [service.connect() for _ in range(3)]
    elections = []
    for n, session in enumerate(sessions):
        elections.append(stand(session, f"n{n}"))
        stood(session, n + 1)
    elections[0][1].until_last(True)
    assert leader(sessions[2], PATH) == b"n0"
    assert [e.leading for e, _ in elections] == [True, False, False]
    assert elections[1][1].calls == elections[2][1].calls == []
    elections[0][0].close()
    elections[0][0].close()
    elections[1][1].until_last(True)
    assert leader(sessions[2], PATH) == b"n1"
    assert not elections[2][0].leading
    sessions[1].close()
    elections[2][1].until_last(True)
    elections[2][0].close()
    assert leader(sessions[2], PATH) is None
    assert elections[0][1].calls == [True]  # whoever closes is not told


def test_one_in_the_middle_may_go_and_nothing_changes(service: Service) -> None:
    sessions = [service.connect() for _ in range(3)]
    elections = []
    for n, session in enumerate(sessions):
        elections.append(stand(session, f"n{n}"))
        stood(session, n + 1)
    elections[0][1].until_last(True)
    elections[1][0].close()
    stood(sessions[0], 2)
    assert elections[0][0].leading and not elections[2][0].leading
    elections[0][0].close()
    elections[2][1].until_last(True)


def test_a_leader_without_a_connection_does_not_lead_until_it_knows(service: Service) -> None:
    first, second = service.connect(session_timeout=20.0), service.connect()
    election, seen = stand(first, "first")
    seen.until_last(True)
    other, other_seen = stand(second, "second")
    stood(second, 2)
    service.cut(first)
    seen.until_last(False)
    with pytest.raises(Refused):
        election.guard()
    assert not other.leading
    service.restore(first)
    seen.until_last(True)
    assert other_seen.calls == []
    assert leader(second, PATH) == b"first"


def test_a_leader_whose_session_expired_is_replaced_and_its_writes_are_refused(service: Service) -> None:
    first, second = service.connect(), service.connect()
    election, seen = stand(first, "first")
    seen.until_last(True)
    first.transaction([election.guard(), Create("/by-first")])
    guard = election.guard()
    _, other_seen = stand(second, "second")
    stood(second, 2)
    states: Seen[SessionState] = Seen()
    first.watch_session(states)
    service.expire(first)
    other_seen.until_last(True)
    states.until_last(SessionState.LOST)
    assert not election.leading
    with pytest.raises(Conflict):  # what it decided before is refused when it comes late
        second.transaction([guard, Create("/late")])
    election.close()


def test_what_a_leader_decided_before_a_break_is_refused_after_it(service: Service) -> None:
    """It may have decided otherwise since, and be the same candidate all the same."""
    session = service.connect(session_timeout=20.0)
    election, seen = stand(session, "one")
    seen.until_last(True)
    before = election.guard()
    assert election.guard() == before
    service.cut(session)
    seen.until_last(False)
    service.restore(session)
    seen.until_last(True)
    with pytest.raises(Conflict):
        session.transaction([before, Create("/late")])
    session.transaction([election.guard(), Create("/now")])
    assert session.get("/late") is None and session.get("/now") is not None


def test_a_candidate_whose_node_was_removed_stands_again(service: Service) -> None:
    session, other = service.connect(), service.connect()
    election, seen = stand(session, "one")
    seen.until_last(True)
    for name in other.children(PATH) or ():
        other.delete(f"{PATH}/{name}")
    seen.wait(lambda calls: calls == [True, False, True])
    assert election.leading
    assert leader(other, PATH) == b"one"


def test_an_earlier_life_with_the_same_address_does_not_stand_in_the_way(service: Service) -> None:
    crashed, again = service.connect(session_timeout=4 * PATIENCE), service.connect()
    _, seen = stand(crashed, "host:1")
    seen.until_last(True)
    service.cut(crashed)  # or it would stand once more, and remove the other one as its own earlier life
    _, seen_again = stand(again, "host:1")
    seen_again.until_last(True)
    assert leader(again, PATH) == b"host:1"


def test_it_stands_once_the_connection_is_there(service: Service) -> None:
    session = service.connect(session_timeout=20.0)
    states: Seen[SessionState] = Seen()
    session.watch_session(states)
    service.cut(session)
    states.until_last(SessionState.SUSPENDED)
    _, seen = stand(session, "late")
    service.restore(session)
    seen.until_last(True)


def test_a_candidate_whose_node_goes_just_as_it_comes_to_lead_stands_again(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, other = service.connect(), service.connect()
    real, removed = session.set, threading.Event()

    def set_(path: str, data: bytes, *, version: int = -1) -> int:
        if not removed.is_set():
            removed.set()
            other.delete(path)
        return real(path, data, version=version)

    monkeypatch.setattr(session, "set", set_)
    election, seen = stand(session, "one")
    seen.until_last(True)
    assert election.leading and removed.is_set() and leader(other, PATH) == b"one"
    session.transaction([election.guard(), Create("/now")])
    assert not [r for r in caplog.records if r.exc_info]
