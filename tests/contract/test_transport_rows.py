"""The window of rows: bounds the tuples on their way to a task, whatever their size, and nobody is stuck behind it."""

from __future__ import annotations

import random
import struct
import threading
from typing import Any

import pytest
from transport_harness import BOUND, A, B, Worker, World, joined

from elastic.model.ids import Incarnation
from elastic.transport import session
from elastic.transport.base import Link, TransportOptions

ROWS = TransportOptions(window=20_000, in_flight=40_000, window_rows=100, reconnect_min=0.001)
_ROWS = struct.Struct(">HI")


def test_rows_bound_each_target_and_stop_no_other(world: World) -> None:
    _, at_a, b, at_b, link = joined(world, ROWS)
    for _ in range(2):
        assert link.offer(1, [b"x"], rows=50)
    assert not link.offer(1, [b"x"], rows=1)
    assert link.offer(2, [b"x"], rows=100)
    assert link.offer(1, [b"a mark has no rows"])
    assert link.offer(1, [b"fence"], urgent=True)
    link.flush()
    at_b.until(lambda: at_b.count == 5)
    assert (B, 1) not in at_a.rooms
    b.consumed(A, 1, 1, 50)
    at_a.until(lambda: (B, 1) in at_a.rooms)
    assert link.offer(1, [b"x"], rows=50)
    assert not link.offer(1, [b"x"], rows=1)


def _full(world: World, rows: int) -> tuple[Any, Any, Link]:
    """Who sends and is told of room, who consumes, and the link between them: ten frames fill its window, one with so many rows waits."""
    _, at_a, b, _, link = joined(world, ROWS)
    for _ in range(10):
        assert link.offer(1, [b"x"], rows=10)
    assert not link.offer(1, [b"x"], rows=rows)
    # Behind what the sender asks to be told of: when this has arrived, no report is due any more.
    assert link.offer(2, [b"a mark"])
    arrived = threading.Event()
    link.when_received(arrived.set)
    link.flush()
    assert arrived.wait(BOUND)
    return at_a, b, link


def _told_as_soon_as_there_is_room(world: World) -> None:
    """Everything else that it emits waits along."""
    at_a, b, link = _full(world, 5)
    told = False
    for consumed in range(10):
        b.consumed(A, 1, 1, 10)
        with at_a.changed:
            told = at_a.changed.wait_for(lambda: (B, 1) in at_a.rooms, BOUND if not consumed else 0)
        if told:
            break
    assert told and not consumed, f"after {10 * consumed + 10} rows of 100"
    assert link.offer(1, [b"x"], rows=5)


def test_whoever_waits_is_told_as_soon_as_there_is_room(world: World) -> None:
    _told_as_soon_as_there_is_room(world)


def test_that_somebody_waits_for_half_of_a_window_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PART", 2)
    monkeypatch.setattr("test_transport_rows.BOUND", 0.2)
    with pytest.raises(AssertionError, match="rows of 100"):
        _told_as_soon_as_there_is_room(world)


def _told_of_a_little(world: World, *, soon: bool) -> None:
    """By a target that takes little at a time: less than the sender has asked to be told of."""
    at_a, b, link = _full(world, 1)
    b.consumed(A, 1, 0, ROWS.window_rows // session.PART - 1, soon=soon)
    with at_a.changed:
        assert at_a.changed.wait_for(lambda: (B, 1) in at_a.rooms, BOUND), "nobody was told"
    assert link.offer(1, [b"x"], rows=1)


def test_whoever_waits_is_told_of_a_little_where_that_is_wanted(world: World) -> None:
    _told_of_a_little(world, soon=True)


def test_that_nobody_is_told_of_a_little_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_transport_rows.BOUND", 0.2)
    with pytest.raises(AssertionError, match="nobody was told"):
        _told_of_a_little(world, soon=False)


def test_more_rows_than_a_window_pass_alone(world: World) -> None:
    _, at_a, b, at_b, link = joined(world, ROWS)
    assert link.offer(1, [b"x"], rows=1000)
    assert not link.offer(1, [b"x"], rows=1)
    at_b.until(lambda: at_b.count == 1)
    b.consumed(A, 1, 1, 1000)
    at_a.until(lambda: (B, 1) in at_a.rooms)
    assert link.offer(1, [b"x"], rows=1)
    assert not link.offer(1, [b"x"], rows=1000)
    assert not link.offer(1, [b"x"], rows=2)  # would fit, but would overtake
    at_b.until(lambda: at_b.count == 2)
    rooms = len(at_a.rooms)
    b.consumed(A, 1, 1, 1)  # nobody would say so of his own accord
    at_a.until(lambda: len(at_a.rooms) > rooms)
    assert link.offer(1, [b"x"], rows=1000)


def test_a_frame_that_fills_one_window_and_one_that_fills_the_other_both_get_their_turn(world: World) -> None:
    _, at_a, b, at_b, link = joined(world, ROWS)
    assert link.offer(1, [bytes(10_000)], rows=60)
    waiting = [(bytes(15_000), 1), (b"x", 90)]
    taken = [(10_000, 60)]
    count = 1
    while waiting:
        with at_a.changed:
            before = len(at_a.rooms)
        for frame in list(waiting):
            if link.offer(1, [frame[0]], rows=frame[1]):
                waiting.remove(frame)
                taken.append((len(frame[0]), frame[1]))
                count += 1
        if waiting:
            link.flush()
            at_b.until(lambda: at_b.count == count)  # noqa: B023
            for size, rows in taken:
                b.consumed(A, 1, size, rows)
            taken = []
            at_a.until(lambda: len(at_a.rooms) > before)  # noqa: B023


def test_without_a_bound_rows_are_only_counted(world: World) -> None:
    _, _, b, at_b, link = joined(world, TransportOptions())
    for _ in range(100):
        assert link.offer(1, [b"x"], rows=1 << 20)
    link.flush()
    at_b.until(lambda: at_b.count == 100)
    b.consumed(A, 1, 100, 100 << 20)


class Counts:
    """Rows on their way to each task; what was offered is counted before, what was consumed before it is given back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, list[int]] = {}
        self.broken: list[str] = []

    def offer(self, link: Link, target: int, payload: bytes, rows: int) -> bool:
        """Offer a frame, one at a time, and see whether it should have been taken."""
        with self._lock:
            held = self._held.setdefault(target, [])
            taken = link.offer(target, [payload], rows=rows)
            if taken:
                if rows and sum(held) and sum(held) + rows > ROWS.window_rows:
                    self.broken.append(f"{rows} rows for {target} in addition to {sum(held)}")
                held.append(rows)
            return taken

    def consume(self, worker: Worker, source: Incarnation, target: int, payload: bytes) -> None:
        rows = _ROWS.unpack_from(payload)[0]
        with self._lock:
            self._held[target].remove(rows)
        assert worker.transport is not None
        worker.transport.consumed(source, target, len(payload), rows)


def _never_too_many_never_stuck(world: World, seed: int) -> None:
    a, at_a, b, at_b, link = joined(world, ROWS)
    counts = Counts()
    senders, each = 3, 400
    done = threading.Event()

    def send(sender: int) -> None:
        chance = random.Random(f"{seed} {sender}")
        for n in range(each):
            rows = chance.choice((0, 1, 5, 20, 60, 99, 100, 300))
            payload = _ROWS.pack(rows, sender * each + n) + bytes(chance.choice((0, 10, 1000, 9000)))
            while not done.is_set():
                with at_a.changed:
                    before = len(at_a.rooms)
                if counts.offer(link, n % 2, payload, rows):
                    break
                at_a.until(lambda: len(at_a.rooms) > before or done.is_set())  # noqa: B023
            if chance.random() < 0.2:
                link.flush()
        link.flush()

    threads = [threading.Thread(target=send, args=(s,)) for s in range(senders)]
    for thread in threads:
        thread.start()
    chance = random.Random(seed)
    taken = 0
    try:
        while taken < senders * each:
            at_b.until(lambda: at_b.count > taken)  # noqa: B023
            with at_b.changed:
                come = at_b.frames[taken : taken + chance.randrange(1, 20)]
            for source, target, payload in come:
                counts.consume(at_b, source, target, payload)
            taken += len(come)
            if chance.random() < 0.1:
                world.sever(*((a, B) if chance.random() < 0.5 else (b, A)))
    finally:
        done.set()
        with at_a.changed:
            at_a.changed.notify_all()
        for thread in threads:
            thread.join(BOUND)
    assert not counts.broken, counts.broken[0]
    found: dict[int, list[int]] = {}
    for _, _, payload in at_b.frames:
        number = _ROWS.unpack_from(payload)[1]
        found.setdefault(number // each, []).append(number % each)
    assert found == {s: list(range(each)) for s in range(senders)}


@pytest.mark.parametrize("seed", [1, 2])
def test_there_are_never_too_many_rows_and_nobody_is_stuck(world: World, seed: int) -> None:
    _never_too_many_never_stuck(world, seed)


def test_a_sender_that_does_not_count_rows_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Uncounted(session.Outbound):
        def __init__(self, options: TransportOptions, peer: str) -> None:
            super().__init__(options, peer)
            self._window_rows = 1 << 62

    monkeypatch.setattr("elastic.transport.link.Outbound", Uncounted)
    with pytest.raises(AssertionError, match="in addition to"):
        _never_too_many_never_stuck(world, 1)
