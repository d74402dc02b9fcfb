"""Parcels where they arrive: each part is for its task, or for who knows of the moves, and waits as what came by itself."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import astuple

from elastic.transport.base import SEVERAL
from elastic.worker.frames import LONG, Frames
from elastic.worker.tuples import wire
from tests.unit.worker.test_parcels import LIFE, THERE, some


class _Taking:
    """A worker as `Frames` knows it."""

    def __init__(self, streams: Any, here: dict[int, Callable[..., bool]]) -> None:
        self.streams = streams
        self.tasks = {n: SimpleNamespace(take_in=take, queued=0) for n, take in here.items()}
        self.asked: list[tuple[int, int, int, Any]] = []
        self.worked = 0
        self.events: list[str] = []
        self.said: list[str] = []
        self.moves = SimpleNamespace(
            arrived=lambda target, life, first, item: self.asked.append((target, life, first, item)),
            work=self._work,
        )

    def _work(self) -> None:
        self.worked += 1

    def event(self, kind: str, message: str, *_: Any, **__: Any) -> None:
        self.events.append(kind)
        self.said.append(message)


def taking(
    change: Callable[[bytes], bytes] = lambda payload: payload, queued: int = 0
) -> tuple[_Taking, list[Any]]:
    sender, _ = some(4)
    sender.hand_on()
    ((_, payload),) = sender.ways[THERE].taken
    got: list[Any] = []

    def take(item: Any, life: int, first: int) -> bool:
        got.append(item)
        return True

    worker = _Taking(sender.streams, {10: take, 11: take, 12: lambda *_: False})
    for task in worker.tasks.values():
        task.queued = queued
    Frames(worker, None).on_frame(THERE, SEVERAL, memoryview(change(payload)))  # type: ignore[arg-type]
    return worker, got


@pytest.mark.parametrize(("frames", "said"), [(1, "1 frame ("), (1200, "1,200 frames (")])
def test_frames_that_are_lost_are_counted_in_words(frames: int, said: str) -> None:
    worker = _Taking(None, {})
    Frames(worker, None).on_lost(THERE, frames, 48)  # type: ignore[arg-type]
    assert worker.events == ["frames-lost"] and worker.said[0].startswith(said)


def test_what_is_not_the_next_or_not_here_is_looked_at_by_who_knows_of_the_moves() -> None:
    worker, got = taking()
    assert [item.count for item in got] == [2, 2]
    assert [(*asked[:3], asked[3].count) for asked in worker.asked] == [(12, LIFE, 4, 2), (13, LIFE, 4, 2)]
    assert worker.worked == 1
    assert all(item.rows is None and len(wire.rows_of(item)) == 2 for *_, item in worker.asked), "it may wait"


def test_for_whom_much_waits_it_waits_as_bytes_and_is_the_same() -> None:
    _, soon = taking()
    _, late = taking(queued=LONG + 1)
    for a, b in zip(soon, late, strict=True):
        assert b.rows is None
        assert [astuple(row) for row in wire.rows_of(b)] == [astuple(row) for row in wire.rows_of(a)]
        for name in ("source", "count", "weight", "origin", "size", "credit"):
            assert getattr(a, name) == getattr(b, name)


def test_tuples_that_cannot_be_read_take_their_positions_and_are_told_where_they_would_be_executed() -> None:
    worker, got = taking(lambda payload: payload[:-1] + b"\xc1")
    assert [item.count for item in got] == [2, 2] and not worker.events
    for item in got:
        with pytest.raises(ValueError):
            wire.rows_of(item)


def test_a_parcel_that_cannot_be_read_is_told() -> None:
    worker, got = taking(lambda payload: payload[:20])
    assert (worker.events, got) == (["frame-unreadable"], [])
