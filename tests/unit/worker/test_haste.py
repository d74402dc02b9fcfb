"""While something is urgent executors rest between two slices."""

from __future__ import annotations

import threading

import pytest

from elastic.worker.executing import haste
from elastic.worker.executing.haste import Haste

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


def test_what_is_held_is_urgent_until_it_is_let_go_or_has_lasted_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    urgent = Haste()
    urgent.hold(True)
    with urgent:
        urgent.hold(False)
        assert urgent.on, "something else is urgent still"
    assert not urgent.on
    monkeypatch.setattr(haste, "HELD", 0.0)
    urgent.hold(True)
    assert urgent.on
    urgent.hold(True)
    urgent.rest()
    assert not urgent.on, "a task that stands still for long waits for something else"
    with urgent:
        assert urgent.on
        monkeypatch.setattr(haste, "LONGEST", 0.0)
        urgent.rest()
        assert urgent.on
    urgent.hold(False)
    urgent.hold(True)
    assert urgent.on, "the next one"
