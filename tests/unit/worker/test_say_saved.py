"""That the stores have all of some tasks is said with frames that wait for no room, and such frames are small."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elastic.model.ids import Incarnation
from elastic.transport.base import LARGEST_URGENT
from elastic.worker.moving.stores import LOT
from elastic.worker.moving.words import Words
from elastic.worker.tuples import wire


def said(count: int) -> list[tuple[int, int]]:
    """Which tasks, of so many that were saved together, the new side hears of."""
    view: Any = SimpleNamespace(part=lambda task, epoch: SimpleNamespace(target="there"))
    heard: list[tuple[int, int]] = []

    def offer(target: int, frame: tuple[bytes, ...], *, urgent: bool) -> bool:
        assert urgent
        whole = b"".join(frame)
        assert len(whole) <= LARGEST_URGENT, "the link refuses it"
        states = wire.told_in(memoryview(whole))
        assert target == states[0][0]
        heard.extend(states)
        return True

    way: Any = SimpleNamespace(offer=offer, flush=lambda: None)
    words = Words(Incarnation("here"), lambda: view, lambda where: way)
    words.saved((task, 7, 10 * task) for task in range(count))
    return heard


def test_of_as_many_as_are_saved_together_the_new_side_hears() -> None:
    for count in (1, wire.TOLD_MOST, wire.TOLD_MOST + 1, LOT, 3 * LOT):
        assert said(count) == [(task, 10 * task) for task in range(count)]


def test_one_frame_for_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TOLD_MOST", LOT)
    with pytest.raises(AssertionError, match="refuses"):
        test_of_as_many_as_are_saved_together_the_new_side_hears()
