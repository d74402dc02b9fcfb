"""Links at unlucky moments: memory that is short, room that is kept for what cannot come, connections that break while others wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elastic.transport import framing
from elastic.transport.base import TransportOptions
from elastic.transport.session import Outbound
from elastic.transport.sockets import SocketTransport

LIMIT = 20.0
SLOW, FAST = 1, 2


class Taker:
    """Keeps the frames of one task, and takes those of others at once."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, int, Any]] = []
        self.lost: list[Any] = []
        self.room = threading.Event()
        self.came = threading.Condition()
        self.transport: SocketTransport | None = None

    def on_frame(self, source: str, target: int, payload: Any) -> None:
        if target == FAST and self.transport is not None:
            self.transport.consumed(source, target, len(payload), 1, soon=True)  # type: ignore[arg-type]
            return
        with self.came:
            self.kept.append((source, target, payload))
            self.came.notify_all()

    def on_room(self, *_: Any) -> None:
        self.room.set()

    def on_lost(self, *lost: Any) -> None:
        self.lost.append(lost)

    def waits_for(self, count: int) -> bool:
        with self.came:
            return self.came.wait_for(lambda: len(self.kept) >= count, LIMIT)


@contextmanager
def two(
    first: str = "t@a/0#1", **options: Any
) -> Iterator[tuple[SocketTransport, Taker, SocketTransport, Taker]]:
    made = SocketTransport(first, **options), SocketTransport("t@b/0#1")  # type: ignore[arg-type]
    takers = Taker(), Taker()
    for transport, taker in zip(made, takers, strict=True):
        taker.transport = transport
        transport.start(taker)
    try:
        yield made[0], takers[0], made[1], takers[1]
    finally:
        for transport in made:
            transport.close()


def received(link: Any) -> bool:
    got = threading.Event()
    link.when_received(got.set)
    return got.wait(LIMIT)


def test_small_frames_of_a_task_that_stands_still_do_not_keep_what_came_with_them() -> None:
    with two() as (a, sender, b, taker):
        link = a.link("t@b/0#1", b.address)  # type: ignore[arg-type]
        large = bytes(16 << 10)
        for _ in range(100):
            assert link.offer(SLOW, [b"small"], rows=1)
            for _ in range(32):
                while True:
                    sender.room.clear()
                    if link.offer(FAST, [large], rows=1):
                        break
                    assert sender.room.wait(LIMIT)
        link.flush()
        assert received(link)
        kept = {id(p.obj): len(p.obj) for _, _, p in taker.kept}
        assert len(taker.kept) == 100 and sum(kept.values()) < 100 * 1024


def reserved(window: int = 1000) -> Outbound:
    """The link is kept for a large frame of task 1, of which something else fills the window since."""
    out = Outbound(TransportOptions(window=window, in_flight=1000), "p#1")  # type: ignore[arg-type]
    out.resumed(0)
    assert out.offer(1, [bytes(200)]) and out.offer(2, [bytes(700)])
    assert not out.offer(1, [bytes(790)]), "there is no room in flight for it now"
    return out


def test_a_mark_in_the_way_of_a_large_frame_stops_no_other_task() -> None:
    out = reserved()
    assert out.offer(1, [bytes(20)], urgent=True)
    out.confirmed(3)
    out.consumed(2, 700, 0)
    assert out.offer(3, [b"x"]) and out.offer(2, [b"x"])
    assert not out.offer(1, [bytes(790)])
    assert 1 in out.consumed(1, 220, 0) and out.offer(1, [bytes(790)])


def test_a_larger_frame_in_the_way_of_a_large_one_stops_no_other_task() -> None:
    out = reserved()
    assert not out.offer(1, [bytes(950)]), "that of another executor"
    out.confirmed(2)
    out.consumed(2, 700, 0)
    assert out.offer(3, [b"x"])


def test_room_is_kept_for_a_large_frame_all_the_same() -> None:
    out = reserved()
    assert not out.offer(3, [b"x"])
    assert 1 in out.confirmed(2) and out.offer(1, [bytes(790)])


def test_memory_that_is_short_for_a_moment_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = [True]

    def makes(size: int = 0) -> bytearray:
        if size > 100_000 and fails:
            fails.pop()
            raise MemoryError
        return bytearray(size)

    with two() as (a, sender, b, taker):
        monkeypatch.setattr(framing, "bytearray", makes, raising=False)
        link = a.link("t@b/0#1", b.address)  # type: ignore[arg-type]
        sent = [b"one", b"two", bytes(400_000), b"three", b"four"]
        for frame in sent:
            assert link.offer(SLOW, [frame])
        link.flush()
        assert received(link) and not fails
        assert [bytes(p) for _, _, p in taker.kept] == sent and not sender.lost


def test_a_peer_that_says_it_has_more_than_was_sent_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """It will say so each time."""
    with two() as (a, sender, b, _taker):
        link = a.link("t@b/0#1", b.address)  # type: ignore[arg-type]
        assert link.offer(SLOW, [b"one"])
        link.flush()
        assert received(link)
        ended = threading.Event()
        monkeypatch.setattr(sender, "on_lost", lambda *_: ended.set())
        for source in b._sources.values():
            source.inbound.received += 5
        a._loop.post(a._sever)
        assert ended.wait(LIMIT) and link.ended


def test_closing_waits_for_a_peer_whose_connection_has_just_broken() -> None:
    with two(linger=LIMIT) as (a, sender, b, taker):
        link = a.link("t@b/0#1", b.address)  # type: ignore[arg-type]
        assert link.offer(SLOW, [b"first"])
        link.flush()
        assert received(link)
        broken = threading.Event()

        def breaks() -> None:
            assert link.offer(SLOW, [b"last"])  # type: ignore[union-attr]
            link._broken("a test")  # type: ignore[attr-defined]
            broken.set()

        a._loop.post(breaks)
        assert broken.wait(LIMIT)
        a.close()
        assert [bytes(p) for _, _, p in taker.kept] == [b"first", b"last"] and not sender.lost


def test_closing_does_not_wait_for_a_peer_that_cannot_be_reached() -> None:
    with two(linger=1000.0) as (a, _sender, b, _):
        link: Any = a.link("t@b/0#1", b.address)  # type: ignore[arg-type]
        assert link.offer(SLOW, [b"first"])
        link.flush()
        assert received(link)
        b.close()
        assert link.offer(SLOW, [b"last"]) or link.ended
        a.close()


def test_a_life_that_dials_late_does_not_end_the_session_of_a_later_one() -> None:
    with two("t@a/0#2") as (later, told, b, taker):
        link: Any = later.link("t@b/0#1", b.address)  # type: ignore[arg-type]
        assert link.offer(SLOW, [b"one"])
        link.flush()
        assert received(link)
        held, dial = threading.Event(), link.dial
        link.dial = held.set
        later._loop.post(later._sever)
        assert held.wait(LIMIT) and link.offer(SLOW, [b"two"])
        earlier, other = SocketTransport("t@a/0#1"), Taker()  # type: ignore[arg-type]
        earlier.start(other)
        try:
            old = earlier.link("t@b/0#1", b.address)  # type: ignore[arg-type]
            assert old.offer(SLOW, [b"old"])
            old.flush()
            assert received(old)
        finally:
            earlier.close()
        later._loop.post(dial)
        assert taker.waits_for(3) and not told.lost
        assert [bytes(p) for source, _, p in taker.kept if source == "t@a/0#2"] == [b"one", b"two"]


def test_who_waits_is_told_although_a_receiver_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any) -> None:
        raise RuntimeError("a fault in the receiver")

    with two() as (a, sender, b, taker):
        entered, go_on = threading.Event(), threading.Event()

        def waits(*_: Any) -> None:
            entered.set()
            assert go_on.wait(LIMIT)

        for what in ("on_room", "on_lost"):
            monkeypatch.setattr(sender, what, raises)
        monkeypatch.setattr(taker, "on_frame", waits)
        link: Any = a.link("t@b/0#1", b.address)  # type: ignore[arg-type]
        assert link.offer(SLOW, [b"one"])
        link.flush()
        assert entered.wait(LIMIT)
        lost, room = threading.Event(), threading.Event()
        link.when_received(lost.set)
        with monkeypatch.context() as patch:
            patch.setattr(Outbound, "due", lambda self: [room.set])
            with pytest.raises(RuntimeError):
                link._announce([SLOW])
        assert room.is_set()
        link.close()
        assert lost.wait(LIMIT)
        go_on.set()
