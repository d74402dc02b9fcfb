"""While something is urgent executors rest between two slices."""

from __future__ import annotations

import threading

import pytest

from elastic.worker import haste
from elastic.worker.haste import Haste

LIMIT = 30.0


def test_who_rests_goes_on_when_nothing_is_urgent_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(haste, "LONGEST", 10 * LIMIT)
    urgent = Haste()
    thread = threading.Thread(target=urgent.rest)
    with urgent:
        with urgent:
            thread.start()
        assert urgent.on and thread.is_alive(), "something else is urgent still"
    thread.join(LIMIT)
    assert not thread.is_alive() and not urgent.on


def test_nobody_rests_for_ever() -> None:
    urgent = Haste()
    with urgent:
        urgent.rest()
    assert not urgent.on


def test_what_raises_is_not_urgent_any_more() -> None:
    urgent = Haste()
    with pytest.raises(ValueError, match="x"), urgent:
        raise ValueError("x")
    assert not urgent.on
