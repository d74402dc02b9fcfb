"""The loop of a leader: how long it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elastic.nimbus import reign as module
from elastic.nimbus.deciding import decisions
from elastic.nimbus.deciding.decided import Decided
from elastic.nimbus.observing.facts import Facts
from elastic.nimbus.reign import Reign

DUE = 100.0


def waits(
    monkeypatch: pytest.MonkeyPatch,
    looked: float,
    *,
    now: float,
    pause: bool = False,
    timers: Sequence[float] = (),
) -> float | None:
    """How long it waits for something with one deadline, and these seconds until timers of moves."""
    found: list[float | None] = []

    def wait_for(_: Callable[[], bool], timeout: float | None) -> bool:
        found.append(timeout)
        return False

    decided = Decided()
    facts = Facts(looked, {}, {}, {}, {}, {})
    decided.note(facts, None, decisions.next_deadline(facts, cast(Any, None)))
    monkeypatch.setattr(module.time, "time", lambda: now)
    reign = SimpleNamespace(
        _over=False,
        lock=threading.RLock(),
        _decided=decided,
        mirror=SimpleNamespace(wait_for=wait_for, revision=7),
        moves=SimpleNamespace(timeouts=lambda: timers),
        move_log=SimpleNamespace(next_deadline=lambda: None),
        _stands=SimpleNamespace(next_deadline=lambda: None),
    )
    Reign._sleep(cast(Any, reign), 7, pause)
    (timeout,) = found
    return timeout


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `decisions.next_deadline` does: what was due at the time of the facts has been done by them."""
    monkeypatch.setattr(decisions, "next_deadline", lambda facts, _: DUE if facts.now < DUE else None)


def test_a_deadline_that_has_passed_since_the_last_look_is_due_at_once(
    deadline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing happens until something else changes: the retry of a move was forgotten on a busy machine."""
    assert waits(monkeypatch, DUE - 0.001, now=DUE + 0.001) == 0.0


def test_what_was_due_at_the_last_look_is_not_waited_for_again(
    deadline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert waits(monkeypatch, DUE, now=DUE + 0.001) is None


def test_after_an_error_a_deadline_that_has_passed_is_waited_for_all_the_same(
    deadline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What moves it may be what has failed: thousands of times a second."""
    assert waits(monkeypatch, DUE - 1.0, now=DUE + 60.0, pause=True) == module._PAUSE
    assert waits(monkeypatch, DUE - 1.0, now=DUE + 60.0, pause=True, timers=[-1.0]) == module._PAUSE


def test_after_a_failure_a_deadline_that_is_still_to_come_is_kept(
    deadline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed need not have to do with it: the rest between two batches of another move is a fraction of that second."""
    assert waits(monkeypatch, DUE - 1.0, now=DUE - 0.5, pause=True) == 0.5
    assert waits(monkeypatch, DUE - 1.0, now=DUE + 60.0, pause=True, timers=[-1.0, 0.25]) == 0.25


def test_a_timer_of_a_move_is_waited_for(deadline: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits(monkeypatch, DUE, now=DUE, timers=[0.25, 0.5]) == 0.25
    assert waits(monkeypatch, DUE, now=DUE, timers=[-0.25, 0.5]) == 0.0
