"""How long a client may take its session for alive: told as stories, with the server's side beside it."""

from __future__ import annotations

import math
import random

import pytest

from elastic.coordination import _client
from elastic.coordination._lease import PING, Lease
from elastic.coordination.base import GIVE_UP

T = 6.0
MAY = T * GIVE_UP


@pytest.fixture
def lease() -> Lease:
    made = Lease(60.0)
    assert made.deadline == math.inf
    made.granted(100.0, T)
    assert made.deadline == 100.0 + MAY
    return made


def test_what_counts_is_when_it_was_sent(lease: Lease) -> None:
    lease.sent(1, 101.0)
    lease.sent(PING, 102.0)
    lease.sent(2, 103.0)
    lease.answered(1)
    assert lease.deadline == 101.0 + MAY
    lease.answered(PING)
    assert lease.deadline == 102.0 + MAY
    lease.answered(2)
    assert lease.deadline == 103.0 + MAY


def test_until_when_it_lives_is_told_whenever_that_is_later() -> None:
    told: list[float] = []
    lease = Lease(60.0, told.append)
    lease.granted(100.0, T)
    lease.sent(1, 102.0)
    lease.sent(2, 101.0)  # the clock of another thread
    lease.answered(1)
    lease.answered(2)
    assert told == [100.0 + T, 102.0 + T], (
        "the whole time-out: the sixth that the client gives up before is its own"
    )
    assert lease.down(103.0) and told[-1] == 103.0 + T


def test_notifications_prove_nothing(lease: Lease) -> None:
    lease.sent(1, 103.0)
    lease.answered(-1)
    lease.answered(-4)
    lease.answered(PING)  # of none that was sent
    assert lease.deadline == 100.0 + MAY


def test_answers_of_a_connection_before_do_not_count(lease: Lease) -> None:
    lease.sent(1, 101.0)
    lease.sent(PING, 101.0)
    lease.connecting()
    lease.answered(1)
    lease.answered(PING)
    assert lease.deadline == 100.0 + MAY
    lease.granted(104.0, T)
    assert lease.deadline == 104.0 + MAY


def test_a_server_that_is_down_ends_no_session(lease: Lease) -> None:
    at = 100.0
    for _ in range(100):
        at += MAY - 0.1
        assert lease.down(at)
    assert lease.deadline == at + MAY


def test_a_lease_that_is_over_stays_over(lease: Lease) -> None:
    """The server may have served between two looks, and ended the session."""
    assert not lease.down(100.0 + MAY)
    assert lease.deadline == 100.0 + MAY


def test_without_a_session_there_is_nothing_to_live_on() -> None:
    lease = Lease(T)
    assert not lease.down(1.0)
    assert lease.deadline == math.inf


class _Server:
    """One server that runs and is down by turns; `expires`: when it ends the session, as long as it runs until then."""

    def __init__(self) -> None:
        self.up = True
        self.expires = 0.0
        self.ended = False

    def pass_time(self, now: float) -> None:
        self.ended = self.ended or (self.up and now >= self.expires)

    def touch(self, now: float) -> None:
        if not self.ended:
            self.expires = now + T


@pytest.mark.parametrize("planted", ["", "restarts", "answers"])
def test_never_later_than_the_server(planted: str) -> None:
    """Servers that die and come back, answers that take long, looks that come rarely: the client always gives up first.

    Planted: a refusal counts also when the lease is over; an answer counts from when it came.
    """
    broken = 0
    for seed in range(300):
        dice = random.Random(seed)
        server, lease, now, number = _Server(), Lease(T), 0.0, 0
        server.touch(0.0)
        lease.granted(0.0, T)
        while now < 200.0 and (planted == "restarts" or now < lease.deadline):
            what = dice.randrange(4)
            if what == 0:
                server.up = not server.up
                if server.up:
                    server.touch(now)
            elif server.up and not server.ended and what == 1:
                # A request that arrives late, and whose answer is read even later.
                number += 1
                lease.sent(number, now)
                now += dice.choice((0.0, 1.0, 3.0))
                server.pass_time(now)
                if server.ended:
                    break
                server.touch(now)
                now += dice.choice((0.0, 1.0, 3.0))
                server.pass_time(now)
                if planted == "answers":
                    lease.granted(now, T)
                lease.answered(number)
            elif not server.up:
                if planted == "restarts":
                    lease.granted(now, T)
                lease.down(now)
            if server.ended and lease.deadline > server.expires:
                broken += 1
                break
            now += dice.choice((0.1, 0.5, 2.0, 4.0, 8.0))
            server.pass_time(now)
    assert (broken > 0) == bool(planted)


def test_own_addresses() -> None:
    assert _client.is_own("127.0.0.1")
    assert not _client.is_own("192.0.2.1")  # for documentation: nobody has it
