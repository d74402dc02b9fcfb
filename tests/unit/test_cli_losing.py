"""Tasks whose process ended before a move of them began: the command that was to move them says that they began anew."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from cli_fake import W0, W1, FakeClient, invoke, move, task_move

from elastic.control.cli import losing
from elastic.control.cli.losing import Losses
from elastic.model.events import Event, Severity
from elastic.model.ids import WorkerId

REQUESTS = [
    ("move", "word-count", "4-5", "--to", "node-2"),
    ("rebalance", "word-count", "-w", "2"),
    ("scale", "word-count", "count=2"),
    ("nodes", "drain", "node-1"),
]


def happened(kind: str, **details: str) -> Event:
    return Event(1.0, kind, kind, Severity.ERROR, topology="word-count", worker=str(W1), details=details)


def lost(before: WorkerId = W0, tasks: str = "4, 5") -> list[Event]:
    return [happened("worker-lost"), happened("state-lost", tasks=tasks, before=f"{before}#3")]


@pytest.mark.parametrize("words", REQUESTS)
def test_it_is_6_and_names_them(words: tuple[str, ...]) -> None:
    result = invoke(FakeClient(happened=lost()), *words)
    assert result.exit_code == 6, result.stderr
    assert "2 tasks began anew without state" in result.stderr and "task 4 (of worker" in result.stderr
    assert "nothing had to move" not in result.stderr


@pytest.mark.parametrize("words", REQUESTS)
def test_that_nobody_hears_of_it_is_found(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Losses, "_hear", lambda self, event: None)
    with pytest.raises(AssertionError):
        test_it_is_6_and_names_them(words)


def test_what_begins_anew_where_it_was_is_none_of_the_request() -> None:
    assert invoke(FakeClient(happened=lost(W1)), *REQUESTS[0]).exit_code == 0
    assert invoke(FakeClient(happened=lost(W1)), "nodes", "drain", "node-1").exit_code == 0


def test_what_has_moved_and_then_ended_with_its_new_process_has_not_taken_its_state_along() -> None:
    """The table says that it has moved, which it has; the command ends only then."""
    moved = move(3, tasks=(task_move(4), task_move(5)), why="move 4-5 to node-2")
    result = invoke(FakeClient(coming=[moved], happened=lost(W1, "4")), *REQUESTS[0])
    assert result.exit_code == 6 and "1 task began anew without state" in result.stderr
    assert "task 4 (of worker" in result.stderr


def test_that_a_process_has_ended_is_waited_for_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, heard = threading.Event(), threading.Event()

    class Slow(FakeClient):
        def events(
            self, *, since: int = 0, topology: str = "", follow: bool = False, tail: int | None = None
        ) -> Iterator[tuple[int, Event]]:
            for number, event in super().events(since=since, topology=topology, follow=follow, tail=tail):
                if follow and event.kind == "state-lost":
                    ended.wait(10)
                yield number, event
                if follow and event.kind == "worker-lost":
                    heard.set()

    found = Losses.found

    def asks(self: Losses) -> losing.Lost:
        assert heard.wait(10)
        threading.Timer(0.05, ended.set).start()
        return found(self)

    monkeypatch.setattr(Losses, "found", asks)
    assert invoke(Slow(happened=lost()), *REQUESTS[0]).exit_code == 6
    monkeypatch.setattr(losing, "SOON", 0.01)
    assert invoke(FakeClient(happened=lost()[:1]), *REQUESTS[0]).exit_code == 0


def test_a_drain_by_force_says_who_has_left_without_what_it_had() -> None:
    back = move(3, tasks=(task_move(2, "rolled back"), task_move(4)), state="ended")
    client = FakeClient(moved=[], coming=[back], happened=lost(tasks="2"))
    result = invoke(client, "-o", "json", "nodes", "drain", "node-1", "--force")
    assert result.exit_code == 0 and json.loads(result.stdout)["gone"]
    assert "left all the same, and begins anew: task 2 of word-count" in result.stderr
    assert "1 task began anew without state: 2" in result.stderr


def test_a_drain_tells_of_its_own_tasks_alone() -> None:
    client = FakeClient(coming=[move(3, tasks=(task_move(2), task_move(7, source=W1)), state="ended")])
    result = invoke(client, "-o", "json", "nodes", "drain", "node-1")
    assert [t["task"] for m in json.loads(result.stdout)["moves"] for t in m["tasks"]] == [2]
    assert "1 task moved" in result.stderr


def test_no_move_has_the_number_0() -> None:
    client = FakeClient()
    assert invoke(client, "move", "word-count", "--abort", "0").exit_code == 2 and not client.calls
