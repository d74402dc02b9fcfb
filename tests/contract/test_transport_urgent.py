"""Urgent frames pass full windows and overtake nothing; `when_received` calls once, and not before it is true."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

import pytest
from transport_harness import B2, BOUND, A, B, Worker, World, joined, push

from elastic.model.ids import Incarnation
from elastic.transport import inlet
from elastic.transport.base import LARGEST_URGENT, Link, TransportOptions
from elastic.transport.memory import MemoryLink
from elastic.transport.peer import SocketLink

QUICK = TransportOptions(
    window=2000, in_flight=3000, max_frame=1 << 20, reconnect_min=0.001, reconnect_max=0.01
)


class Calls:
    """Counts callbacks, on whatever thread they come."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.made: list[object] = []

    def __call__(self, what: object = None) -> None:
        with self.changed:
            self.made.append(what)
            self.changed.notify_all()

    def until(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.made) >= count, BOUND), "it was not called"


# urgent frames


def test_an_urgent_frame_is_taken_when_its_window_is_full(world: World) -> None:
    _, at_a, b, at_b, link = joined(world)
    assert link.offer(1, [bytes(1000)])
    assert not link.offer(1, [b"x"])
    for n in range(20):
        assert link.offer(1, [b"fence %02d" % n], urgent=True)
    link.flush()
    at_b.until(lambda: at_b.count == 21)
    assert [p for _, _, p in at_b.frames[1:]] == [b"fence %02d" % n for n in range(20)]
    at_b.consume_all()
    at_a.until(lambda: (B, 1) in at_a.rooms)
    push(at_a, link, 1, bytes(1000))  # their room has come back too
    b.consumed(A, 1, 1000)


def test_an_urgent_frame_is_taken_when_too_much_is_in_flight(world: World) -> None:
    _, at_a, _, at_b, link = joined(world)
    at_b.gate.clear()
    target = 0
    while link.offer(target, [bytes(500)]):
        target += 1
    assert link.offer(99, [b"fence"], urgent=True)
    assert not link.offer(98, [bytes(500)])
    at_b.gate.set()
    push(at_a, link, target, b"after")
    link.flush()
    at_b.until(lambda: at_b.count == target + 2)
    assert [t for _, t, _ in at_b.frames] == [*range(target), 99, target]


def test_an_urgent_frame_does_not_take_the_turn_of_a_large_one(world: World) -> None:
    _, at_a, _, at_b, link = joined(world)
    assert link.offer(1, [bytes(600)])
    assert not link.offer(1, [bytes(900)])
    assert link.offer(1, [b"fence"], urgent=True)
    assert not link.offer(1, [b"x"])  # would fit, but would overtake
    at_b.until(lambda: at_b.count == 2)
    at_b.consume_all()
    at_a.until(lambda: (B, 1) in at_a.rooms)
    assert not link.offer(1, [b"x"])
    assert link.offer(1, [bytes(900)])


def test_whoever_waits_is_told_although_urgent_frames_fill_the_window(world: World) -> None:
    """The large frame did not fit when its turn came, because of them; what they leave needs another report."""
    _, at_a, b, _, link = joined(world)
    calls = Calls()
    assert link.offer(2, [b"x"])
    link.when_received(calls)
    calls.until(1)  # there is a connection
    assert link.offer(1, [bytes(900)])
    assert not link.offer(1, [bytes(700)])
    for _ in range(10):
        assert link.offer(1, [bytes(45)], urgent=True)
    link.when_received(calls)
    calls.until(2)  # no report is under way that would take the next ones along
    b.consumed(A, 1, 900)
    for _ in range(10):
        b.consumed(A, 1, 45)
    at_a.until(lambda: (B, 1) in at_a.rooms)
    push(at_a, link, 1, bytes(700))


def test_an_urgent_frame_is_small(world: World) -> None:
    _, _, _, at_b, link = joined(world)
    with pytest.raises(ValueError, match="urgent"):
        link.offer(1, [bytes(LARGEST_URGENT + 1)], urgent=True)
    assert link.offer(1, [bytes(LARGEST_URGENT)], urgent=True)
    link.flush()
    at_b.until(lambda: at_b.count == 1)


def test_an_ended_link_takes_nothing_urgent(world: World) -> None:
    _, _, _, _, link = joined(world)
    link.close()
    assert not link.offer(1, [b"fence"], urgent=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_urgent_frames_keep_their_place_over_broken_connections_with_full_windows(
    world: World, seed: int
) -> None:
    a, at_a, b, at_b, link = joined(world, QUICK)
    chance = random.Random(seed)
    accepted: list[tuple[Incarnation, int, bytes]] = []
    calls = Calls()
    taken, urgent, refused, cuts, asked = 0, 0, 0, 0, 0
    for n in range(3000):
        target = chance.randrange(3)
        payload = n.to_bytes(4, "big") * chance.choice((1, 10, 100, 400))
        if chance.random() < 0.4:
            payload = payload[:80]
            assert link.offer(target, [payload], urgent=True)
            urgent += 1
            accepted.append((A, target, payload))
        elif link.offer(target, [payload]):
            accepted.append((A, target, payload))
        else:  # full: leave it so for a while
            refused += 1
        if chance.random() < 0.1:
            link.flush()
        if chance.random() < 0.02:
            link.when_received(partial(calls, len(accepted)))
            asked += 1
        if chance.random() < 0.02:
            world.sever(*((a, B) if chance.random() < 0.5 else (b, A)))
            cuts += 1
        if chance.random() < 0.05:  # take all that has come
            with at_b.changed:
                arrived = at_b.frames[taken:]
            for source, to, content in arrived:
                b.consumed(source, to, len(content))
            taken += len(arrived)
            with calls.changed:
                assert all(isinstance(c, int) and c <= at_b.count for c in calls.made), "called too early"
    link.when_received(partial(calls, len(accepted)))
    calls.until(asked + 1)
    assert at_b.frames == accepted
    assert calls.made == sorted(calls.made)  # type: ignore[type-var]
    assert len(calls.made) == asked + 1
    assert min(urgent, refused, cuts) > 20
    for source, to, content in at_b.frames[taken:]:
        b.consumed(source, to, len(content))
    for target in range(3):  # all room has come back
        push(at_a, link, target, bytes(2000))


# when_received


def test_it_calls_at_once_when_nothing_is_outstanding(world: World) -> None:
    _, _, _, _, link = joined(world)
    calls = Calls()
    link.when_received(calls)
    assert len(calls.made) == 1


def _is_called_when_all_has_come(world: World) -> None:
    _, _, _, at_b, link = joined(world)
    at_b.gate.clear()
    calls = Calls()
    for n in range(5):
        assert link.offer(n, [b"x"])
    link.when_received(calls)
    link.flush()
    early = len(calls.made)
    at_b.gate.set()
    calls.until(1)
    assert not early
    assert at_b.count == 5
    assert len(calls.made) == 1


def test_it_calls_when_all_has_come(world: World) -> None:
    _is_called_when_all_has_come(world)


def test_a_call_at_flush_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: what was written counts as received."""

    def at_flush(self: Link, callback: Callable[[], None]) -> None:
        self.flush()
        callback()

    for kind in (MemoryLink, SocketLink):
        monkeypatch.setattr(kind, "when_received", at_flush)
    with pytest.raises(AssertionError):
        _is_called_when_all_has_come(world)


def test_what_is_offered_later_is_not_waited_for(world: World) -> None:
    _, _, _, at_b, link = joined(world)
    calls = Calls()
    assert link.offer(1, [b"x"])
    link.when_received(calls)
    at_b.until(lambda: at_b.count == 1)
    at_b.gate.clear()
    assert link.offer(1, [b"y"])
    link.flush()
    calls.until(1)
    at_b.gate.set()


def test_it_does_not_wait_for_the_usual_confirmation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it was asked before there was a connection, and for frames that were confirmed in part."""
    monkeypatch.setattr(inlet, "_CONFIRM_TIME", 3600.0)
    _, _, _, _, link = joined(world)
    calls = Calls()
    for n in range(20):
        assert link.offer(n, [b"x"])
        link.when_received(calls)
        if n % 3 == 0:
            calls.until(n + 1)
    calls.until(20)


def test_it_asks_again_over_the_next_connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks before the frames, or the question, or the answer came through."""
    monkeypatch.setattr(inlet, "_CONFIRM_TIME", 3600.0)
    a, _, b, at_b, link = joined(world, QUICK)
    calls = Calls()
    for n in range(40):
        for target in range(3):
            assert link.offer(target, [b"x"], urgent=True)
        link.when_received(calls)
        world.sever(*((a, B) if n % 2 else (b, A)))
        if n % 4 == 0:
            calls.until(n + 1)
    calls.until(40)
    assert at_b.count == 120
    assert len(calls.made) == 40


def test_it_calls_when_the_peer_has_died_after_the_loss_was_said(world: World) -> None:
    a, at_a, b, _, link = joined(world)
    port = world.replacement_port(b)
    b.close()
    losses: list[int] = []
    calls = Calls()

    def called() -> None:
        losses.append(len([loss for loss in at_a.losses if loss[0] == B]))
        calls()

    for _ in range(3):
        assert link.offer(1, [b"x"])
        link.when_received(called)
    assert not calls.made
    world.start(B2, port=port)
    calls.until(3)
    assert losses == [1, 1, 1]
    link.when_received(called)
    assert len(calls.made) == 4
    assert a.link(B2, b.address) is not link


def test_it_calls_when_the_link_or_the_transport_is_closed(world: World) -> None:
    a, _, b, at_b, link = joined(world)
    at_b.gate.clear()
    calls = Calls()
    assert link.offer(1, [b"x"])
    link.when_received(calls)
    link.close()
    calls.until(1)
    at_b.gate.set()
    b.close()
    fresh = a.link(B2, b.address)
    assert fresh.offer(1, [b"x"])
    fresh.when_received(calls)
    a.close()
    calls.until(2)
    fresh.when_received(calls)
    assert len(calls.made) == 3


def test_a_callback_may_use_the_link_and_may_fail(world: World, caplog: pytest.LogCaptureFixture) -> None:
    _, _, _, at_b, link = joined(world)
    at_b.gate.clear()
    calls = Calls()

    def goes_on() -> None:
        assert link.offer(2, [b"more"], urgent=True)
        link.when_received(calls)

    def fails() -> None:
        raise RuntimeError("a bug in the worker")

    assert link.offer(1, [b"x"])
    link.when_received(fails)
    link.when_received(goes_on)
    at_b.gate.set()
    calls.until(1)
    assert [t for _, t, _ in at_b.frames] == [1, 2]
    assert "a bug in the worker" in caplog.text


def test_many_threads_ask(world: World) -> None:
    a, at_a, _b, at_b, link = joined(world, QUICK)
    at_b.keep = False
    calls = Calls()

    def send(worker: Worker) -> None:
        for n in range(200):
            push(worker, link, n % 3, bytes(100))
            link.when_received(calls)

    threads = [threading.Thread(target=send, args=(at_a,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for count in range(50, 600, 50):
        at_b.until(lambda count=count: at_b.count >= count)  # type: ignore[misc]
        world.sever(a, B)
    for thread in threads:
        thread.join(BOUND)
    calls.until(600)
    assert (at_b.count, len(calls.made)) == (600, 600)
