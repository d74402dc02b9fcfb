"""What requests that move tasks say when they are interrupted, or cannot be followed any more."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from cli_fake import FakeClient, invoke, move, under_way

from elastic.control.cli.moving import Following, Request
from elastic.control.cli.narration import Waiting
from elastic.errors import NotConnected, Refused
from elastic.model.assignment import Assignment
from elastic.model.events import Event

REQUESTS = [
    (
        ("move", "word-count", "2-3", "--to", "node-2"),
        "move",
        "move 2-3 to node-2, share 0.5",
        ("--share", "0.5"),
    ),
    (("rebalance", "word-count", "-w", "2"), "rebalance", "rebalance 2 workers", ()),
    (("scale", "word-count", "lines=1", "count=4"), "rebalance", "rebalance count=4, lines=1", ()),
    (("nodes", "drain", "node-1"), "drain_node", "", ()),
]


class Interrupting(FakeClient):
    """Ctrl-C comes when what `at` names is asked for."""

    at = ""

    def _asked(self, *call: Any) -> None:
        super()._asked(*call)
        if call[0] == self.at:
            self._moves_now()
            raise KeyboardInterrupt


@pytest.mark.parametrize(("words", "asks", "why", "options"), REQUESTS)
def test_ctrl_c_says_what_is_true(
    words: tuple[str, ...], asks: str, why: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(client: Interrupting, at: str) -> str:
        client.at = at
        result = invoke(client, *words, *options)
        assert result.exit_code == 130
        return result.stderr

    assert left(Interrupting(), "moves") == "interrupted: nothing was asked for yet.\n"
    unknown = left(Interrupting(moved=[under_way(9)], coming=[under_way(3)]), asks)
    assert "it is not known whether Nimbus took it up; elastic" in unknown and "goes on" not in unknown
    taken = threading.Event()
    made = Request.taken
    monkeypatch.setattr(Request, "taken", lambda self: (made(self), taken.set()))

    class Seen(Interrupting):
        """The answer does not come before what Nimbus does of it has been seen."""

        def _moves_now(self) -> None:
            super()._moves_now()
            assert taken.wait(30)

    begun = Event(2.0, "node-draining", "node node-1 is being drained", node="node-1")
    seen = left(Seen(coming=[replace(under_way(), why=why)], happened=[] if why else [begun]), asks)
    assert "goes on" in seen and "not known" not in seen
    # Between the answer and the last measurements.
    answered = FakeClient()
    monkeypatch.setattr(Following, "settle", interrupt)
    assert "it is done; only what it cost" in invoke(answered, *words).stderr


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "words", [("move", "word-count", "2", "--to", "node-2"), ("nodes", "drain", "node-1")]
)
def test_what_is_out_of_reach_while_a_request_is_under_way_says_that_it_goes_on(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = threading.Event()
    made = Request.taken
    monkeypatch.setattr(Request, "taken", lambda self: (made(self), taken.set()))

    class Cut(FakeClient):
        def _moves_now(self) -> None:
            super()._moves_now()
            assert taken.wait(30)
            raise NotConnected("coordination is out of reach")

    begun = Event(2.0, "node-draining", "node node-1 is being drained", node="node-1")
    result = invoke(Cut(coming=[replace(under_way(), why="move 2 to node-2")], happened=[begun]), *words)
    assert result.exit_code == 7 and "goes on" in result.stderr.splitlines()[-1]
    early = invoke(FakeClient(fail=NotConnected("coordination is out of reach")), *words)
    assert early.exit_code == 7 and "goes on" not in early.stderr


def test_ctrl_c_without_waiting_says_what_is_true() -> None:
    for words in (
        ("move", "word-count", "2", "--to", "node-2", "--no-wait"),
        ("move", "word-count", "--abort"),
    ):
        client = Interrupting()
        client.at = "abort_move" if "--abort" in words else "move"
        assert "it is not known whether Nimbus took it up; elastic moves" in invoke(client, *words).stderr


def test_what_is_not_known_to_be_of_the_request_is_not_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another move is under way while Nimbus makes up its mind, and refuses."""
    said: list[str] = []
    moving, first = threading.Event(), "moving 2 tasks of word-count: paused 2; prepared 3"

    def update(waiting: Waiting, what: str) -> None:
        said.append(what or waiting.first)
        if what.startswith(first):
            moving.set()

    monkeypatch.setattr(Waiting, "update", update)
    refused = Refused("no slot is free")

    class Refusing(FakeClient):
        def move(self, *args: Any, **options: Any) -> Assignment:
            self._moves_now()
            raise refused

        rebalance = move

    for words in (("move", "word-count", "2-3", "--to", "node-9"), ("rebalance", "word-count", "-w", "9")):
        said.clear()
        result = invoke(Refusing(moved=[under_way()], coming=[under_way(), move()]), *words)
        assert result.exit_code == 6 and result.stdout == "" and "moved" not in result.stderr
        assert said and not [s for s in said if s.startswith(("moving", "waiting"))]
        assert any(
            s.startswith("asking for ")
            and "move 3 of word-count is under way (move count[2-3] to node-2)" in s
            for s in said
        )

    class Narrated(FakeClient):
        """It has moved when that has been narrated."""

        def move(self, *args: Any, **options: Any) -> Assignment:
            self._moves_now()
            assert moving.wait(30)
            self.moved = [move()]
            return self.details["word-count"].assignment

    mine = replace(under_way(), why="move 2-3 to node-2")
    assert invoke(Narrated(coming=[mine]), "move", "word-count", "2-3", "--to", "node-2").exit_code == 0
