"""The promises of `elastic/transport/base.py`, kept by the memory network and by sockets, TCP and Unix."""

from __future__ import annotations

import hashlib
import random
import struct
import threading
from collections import Counter

import pytest
from transport_harness import B2, BOUND, SMALL, A, B, C, Worker, World, joined, push

from elastic.errors import TupleTooLarge
from elastic.model.ids import Incarnation
from elastic.transport.base import SEVERAL, TransportOptions


def test_a_frame_arrives_whole(world: World) -> None:
    _, _, _, at_b, link = joined(world)
    assert link.offer(7, [b"one ", bytearray(b"two "), memoryview(b"three")])
    assert link.offer(8, [])
    link.flush()
    at_b.until(lambda: at_b.count == 2)
    assert at_b.frames == [(A, 7, b"one two three"), (A, 8, b"")]
    assert link.peer == B
    assert link.connected


def test_frames_offered_before_there_is_a_connection_arrive(world: World) -> None:
    a, _ = world.start(A)
    b, at_b = world.start(B)
    link = a.link(B, b.address)
    for n in range(100):
        assert link.offer(1, [str(n).encode()])
    link.flush()
    at_b.until(lambda: at_b.count == 100)
    assert [p for _, _, p in at_b.frames] == [str(n).encode() for n in range(100)]


def test_there_is_one_link_to_a_peer(world: World) -> None:
    a, _, b, _, link = joined(world)
    assert a.link(B, b.address) is link


def test_both_directions_and_several_peers(world: World) -> None:
    a, at_a = world.start(A)
    b, at_b = world.start(B)
    c, at_c = world.start(C)
    for transport, peer, address in (
        (a, B, b.address),
        (b, A, a.address),
        (c, A, a.address),
        (a, C, c.address),
    ):
        link = transport.link(peer, address)
        assert link.offer(1, [f"to {peer}".encode()])
        link.flush()
    at_a.until(lambda: at_a.count == 2)
    at_b.until(lambda: at_b.count == 1)
    at_c.until(lambda: at_c.count == 1)
    assert {s for s, _, _ in at_a.frames} == {B, C}


def test_a_window_bounds_each_target_and_stops_no_other(world: World) -> None:
    _, at_a, b, at_b, link = joined(world)
    for _ in range(2):
        assert link.offer(1, [bytes(500)])
    assert not link.offer(1, [b"x"])
    link.flush()
    at_b.until(lambda: at_b.count == 2)
    for n in range(40):  # ten windows' worth elsewhere
        push(at_a, link, 2 + n, bytes(250))
    link.flush()
    at_b.until(lambda: at_b.count == 42)
    assert not link.offer(1, [b"x"])
    assert (B, 1) not in at_a.rooms
    b.consumed(A, 1, 500)
    at_a.until(lambda: (B, 1) in at_a.rooms)
    assert link.offer(1, [bytes(500)])
    assert not link.offer(1, [b"x"])


def test_all_room_comes_back_when_everything_was_consumed(world: World) -> None:
    """Also the room of a few small frames, for which nobody would send a report of its own accord."""
    _, at_a, b, at_b, link = joined(world)
    assert link.offer(1, [bytes(10)])
    link.flush()
    at_b.until(lambda: at_b.count == 1)
    assert not link.offer(1, [bytes(1000)])
    b.consumed(A, 1, 10)
    at_a.until(lambda: (B, 1) in at_a.rooms)
    assert link.offer(1, [bytes(1000)])


def test_in_flight_is_bounded_and_room_is_announced(world: World) -> None:
    _, at_a, _, at_b, link = joined(world)
    at_b.gate.clear()  # nothing is received there now
    taken = 0
    for target in range(1, 100):
        if not link.offer(target, [bytes(492)]):  # 500 with its header
            break
        taken += 1
    assert taken == 8
    assert at_a.rooms == []
    at_b.gate.set()
    at_a.until(lambda: (B, 9) in at_a.rooms)
    assert link.offer(9, [bytes(492)])
    link.flush()
    at_b.until(lambda: at_b.count == 9)


def test_a_frame_larger_than_a_window_passes_alone(world: World) -> None:
    _, at_a, b, at_b, link = joined(world)
    assert link.offer(1, [bytes(10)])
    assert not link.offer(1, [bytes(50_000)])
    at_b.until(lambda: at_b.count == 1)
    b.consumed(A, 1, 10)
    at_a.until(lambda: (B, 1) in at_a.rooms)
    push(at_a, link, 1, bytes(50_000))
    link.flush()
    at_b.until(lambda: at_b.count == 2)
    assert not link.offer(1, [b"x"])
    b.consumed(A, 1, 50_000)
    push(at_a, link, 1, b"x")


def test_a_large_frame_gets_its_turn_among_many_small_ones(world: World) -> None:
    _, at_a, _, at_b, link = joined(world)
    at_b.keep = False
    stop = threading.Event()

    def chatter(target: int) -> None:
        while not stop.is_set():
            push(at_a, link, target, bytes(100))
            link.flush()

    threads = [threading.Thread(target=chatter, args=(t,)) for t in (1, 1, 2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            push(at_a, link, 1, bytes(20_000))
            link.flush()
    finally:
        stop.set()
        for thread in threads:
            thread.join(BOUND)


def test_a_tuple_too_large_is_refused_by_name(world: World) -> None:
    _, _, _, _, link = joined(world)
    with pytest.raises(TupleTooLarge, match="task 5"):
        link.offer(5, [bytes(1 << 20), b"x"])
    assert link.offer(5, [b"fine"])


def test_a_frame_of_100_mb(world: World) -> None:
    _, at_a, _, at_b, link = joined(world, TransportOptions())
    at_b.keep = False
    large = random.Random(1).randbytes(1 << 20) * 100
    push(at_a, link, 1, b"before")
    push(at_a, link, 1, large)
    push(at_a, link, 1, b"after")
    link.flush()
    at_b.until(lambda: at_b.count == 3)
    assert at_b.digest.digest() == hashlib.sha256(b"before" + large + b"after").digest()


def test_a_payload_stays_valid(world: World) -> None:
    a, at_a = world.start(A)
    kept: list[memoryview] = []

    class Keeper(Worker):
        def on_frame(self, source: Incarnation, target: int, payload: memoryview) -> None:
            kept.append(payload)
            super().on_frame(source, target, payload)
            b.consumed(source, target, len(payload))

    transport, worker = world.start(B)
    b = transport
    worker.__class__ = Keeper
    link = a.link(B, b.address)
    wanted = []
    chance = random.Random(2)
    for n in range(2000):
        payload = n.to_bytes(4, "big") * chance.randrange(600)
        wanted.append(payload)
        push(at_a, link, 1, payload)
        if not n % 7:
            link.flush()
    link.flush()
    worker.until(lambda: worker.count == 2000)
    assert [bytes(k) for k in kept] == wanted


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_doubled_when_the_connection_breaks_again_and_again(
    world: World, seed: int
) -> None:
    options = TransportOptions(window=20_000, in_flight=30_000, reconnect_min=0.001)
    a, at_a, b, at_b, link = joined(world, options)
    at_b.keep = True
    chance = random.Random(seed)
    total = 4000
    done = threading.Event()

    def consume() -> None:
        taken = 0
        while taken < total and not done.is_set():
            at_b.until(lambda taken=taken: at_b.count > taken or done.is_set())  # type: ignore[misc]
            for source, target, payload in at_b.frames[taken:]:
                b.consumed(source, target, len(payload))
                taken += 1

    def vandal() -> None:
        cuts = sorted(random.Random(seed + 100).sample(range(1, total - 100), 40))
        for number, cut in enumerate(cuts):
            at_b.until(lambda cut=cut: at_b.count >= cut or done.is_set())  # type: ignore[misc]
            world.sever((a, b)[number % 2], (B, A)[number % 2])

    threads = [threading.Thread(target=consume), threading.Thread(target=vandal)]
    for thread in threads:
        thread.start()
    wanted = []
    try:
        for n in range(total):
            target = chance.randrange(5)
            payload = n.to_bytes(4, "big") * chance.choice((1, 10, 100, 1000))
            wanted.append((A, target, payload))
            push(at_a, link, target, payload)
            if chance.random() < 0.3:
                link.flush()
        link.flush()
        at_b.until(lambda: at_b.count >= total)
    finally:
        done.set()
        with at_b.changed:
            at_b.changed.notify_all()
        for thread in threads:
            thread.join(BOUND)
    assert at_b.frames == wanted
    assert at_a.losses == []


def test_a_replaced_peer_gets_nothing_and_the_loss_is_counted(world: World) -> None:
    a, at_a, b, at_b, link = joined(world)
    assert link.offer(1, [b"received"])
    link.flush()
    at_b.until(lambda: at_b.count == 1)
    port = world.replacement_port(b)
    b.close()
    # While nobody answers, frames are kept.
    for size in (10, 20):
        assert link.offer(3, [bytes(size)])
    link.flush()
    _, at_b2 = world.start(B2, port=port)
    at_a.until(lambda: any(p == B for p, _, _ in at_a.losses))
    losses = [loss for loss in at_a.losses if loss[0] == B]
    assert len(losses) == 1
    assert losses[0][1:] in ((2, 30), (3, 38))  # "received" may have died unconfirmed
    assert not link.offer(1, [b"for the dead"])
    fresh = a.link(B2, b.address)
    assert fresh.offer(1, [b"for the living"])
    fresh.flush()
    at_b2.until(lambda: at_b2.count == 1)
    assert at_b2.frames == [(A, 1, b"for the living")]


def test_a_link_to_the_next_incarnation_ends_the_one_before(world: World) -> None:
    """Also when nobody answers at the old address, which is the usual end of a process."""
    a, at_a, b, _, link = joined(world)
    address = b.address
    b.close()
    assert link.offer(1, [bytes(40)])
    b2, at_b2 = world.start(B2)
    fresh = a.link(B2, b2.address)
    assert fresh.offer(1, [b"hello"])
    fresh.flush()
    at_b2.until(lambda: at_b2.count == 1)
    at_a.until(lambda: bool(at_a.losses))
    assert at_a.losses == [(B, 1, 40)]
    assert a.link(B, address) is link
    assert not link.offer(1, [b"x"])


def test_a_closed_link_reports_what_was_not_received(world: World) -> None:
    _, at_a, _, at_b, link = joined(world)
    at_b.gate.clear()
    for size in (10, 20, 30):
        assert link.offer(1, [bytes(size)])
    link.flush()
    link.close()
    link.close()
    at_a.until(lambda: bool(at_a.losses))
    assert at_a.losses == [(B, 3, 60)]
    assert not link.offer(1, [b"x"])
    assert not link.connected
    at_b.gate.set()


def test_close_waits_for_what_living_peers_have_not_received(world: World) -> None:
    a, at_a, _, at_b, link = joined(world)
    at_b.keep = False
    for n in range(500):
        push(at_a, link, n % 3, bytes(100))
    link.flush()
    a.close()
    a.close()
    assert at_b.count == 500
    assert at_a.losses == []


def test_a_peer_that_starts_late_or_comes_back_is_found(world: World) -> None:
    a, _ = world.start(A)
    early, _ = world.start(B)
    address, port = early.address, world.replacement_port(early)
    early.close()
    link = a.link(B, address)
    assert link.offer(1, [b"wait"])
    link.flush()
    _, at_b = world.start(B, port=port)
    at_b.until(lambda: at_b.count == 1)


def test_consumed_of_unknown_sources_is_ignored(world: World) -> None:
    a, _ = world.start(A)
    a.consumed(C, 1, 100)


def test_a_receiver_that_raises_does_not_stop_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, _, at_b, link = joined(world)
    original = at_b.on_frame

    def on_frame(source: Incarnation, target: int, payload: memoryview) -> None:
        if target == 1:
            raise RuntimeError("a bug in the worker")
        original(source, target, payload)

    at_b.on_frame = on_frame  # type: ignore[method-assign]
    assert link.offer(1, [b"x"])
    assert link.offer(2, [b"y"])
    link.flush()
    at_b.until(lambda: at_b.count == 1)
    assert Counter(t for _, t, _ in at_b.frames) == {2: 1}
    assert "task 1" in caplog.text


def test_many_threads_on_one_link_keep_each_its_order(world: World) -> None:
    """Executors share the link to a worker: each one's frames arrive once and in its order, also over a broken connection."""
    options = TransportOptions(window=5000, in_flight=8000, reconnect_min=0.001)
    a, at_a, b, at_b, link = joined(world, options)
    senders, each = 4, 1500

    def send(sender: int) -> None:
        for n in range(each):
            push(at_a, link, n % 3, struct.pack(">II", sender, n) * (1 + n % 20))
            if n % 5 == 0:
                link.flush()
        link.flush()

    threads = [threading.Thread(target=send, args=(s,)) for s in range(senders)]
    for thread in threads:
        thread.start()
    taken = 0
    while taken < senders * each:
        at_b.until(lambda: at_b.count > taken)  # noqa: B023
        for source, target, payload in at_b.frames[taken:]:
            b.consumed(source, target, len(payload))
            taken += 1
            if taken % 500 == 0:
                world.sever(a, B)
    for thread in threads:
        thread.join(BOUND)
    found: dict[int, list[int]] = {}
    for _, _, payload in at_b.frames:
        sender, n = struct.unpack_from(">II", payload)
        found.setdefault(sender, []).append(n)
    assert found == {s: list(range(each)) for s in range(senders)}


def test_a_frame_for_several_comes_between_what_was_offered_before_and_after(world: World) -> None:
    _, _, _, at_b, link = joined(world)
    assert link.offer(1, [b"before"])
    assert link.offer_together([(1, 5, 0), (2, 4, 0)], [b"for ", b"both"])
    assert link.offer(2, [b"after"])
    link.flush()
    at_b.until(lambda: len(at_b.frames) == 3)
    assert [f[1:] for f in at_b.frames] == [(1, b"before"), (SEVERAL, b"for both"), (2, b"after")]


def test_each_of_several_is_charged_with_its_share_and_gives_it_back_by_itself(world: World) -> None:
    _, at_a, b, at_b, link = joined(world, SMALL)
    assert link.offer_together([(1, 900, 0), (2, 100, 0)], [bytes(1000)])
    assert (link.outstanding(1), link.outstanding(2)) == ((900, 0), (100, 0))
    assert not link.offer(1, [bytes(101)])
    assert link.offer(2, [bytes(900)])
    link.flush()
    at_b.until(lambda: len(at_b.frames) == 2)
    b.consumed(A, 1, 900)
    at_a.until(lambda: (B, 1) in at_a.rooms)
    assert link.offer(1, [bytes(101)])


def test_where_one_of_several_has_no_room_nobody_gets_anything_and_nobody_waits(world: World) -> None:
    _, at_a, b, at_b, link = joined(world, SMALL)
    assert link.offer(1, [bytes(950)])
    assert not link.offer_together([(2, 10, 0), (1, 51, 0)], [bytes(61)])
    assert link.outstanding(2) == (0, 0)
    assert link.offer(2, [bytes(1000)]), "nothing is kept for what was refused"
    link.flush()
    at_b.until(lambda: len(at_b.frames) == 2)
    b.consumed(A, 1, 950)
    arrived = threading.Event()
    link.when_received(arrived.set)
    assert arrived.wait(BOUND)
    assert not at_a.rooms
    assert not link.offer_together([(1, 10, 0), (3, 10, 0)], [bytes(SMALL.in_flight)]), "in flight"


def test_what_several_have_not_received_comes_again_over_the_next_connection(world: World) -> None:
    a, _, _, at_b, link = joined(world)
    assert link.offer_together([(1, 5, 0), (2, 4, 0)], [b"first"])
    link.flush()
    at_b.until(lambda: len(at_b.frames) == 1)
    world.sever(a, B)
    assert link.offer_together([(1, 5, 0), (2, 4, 0)], [b"second"])
    link.flush()
    at_b.until(lambda: len(at_b.frames) == 2)
    assert [payload for _, _, payload in at_b.frames] == [b"first", b"second"]


def test_nothing_is_taken_for_several_over_a_link_that_has_ended(world: World) -> None:
    _, _, _, _, link = joined(world)
    link.close()
    assert not link.offer_together([(1, 1, 0), (2, 1, 0)], [b"xy"])
