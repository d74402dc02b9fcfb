"""move, scale, rebalance, drain: what they ask for, and what they say of the moves that follow."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from cli_fake import W0, W1, FakeClient, invoke, move, task_move, under_way

from elastic.control.cli.narration import Waiting
from elastic.control.move_words import progress
from elastic.control.present import STEPS
from elastic.errors import DeadlineExceeded, Refused, Unavailable
from elastic.model.assignment import Assignment
from elastic.model.events import Event, Severity
from elastic.model.ids import TopologyName, WorkerId
from elastic.model.views import MoveView, NodeSummary


def asked(client: FakeClient) -> list[tuple[Any, ...]]:
    """What was asked, looking at moves, nodes and events left out."""
    return [c for c in client.calls if c[0] not in ("moves", "nodes", "events")]


def test_move_says_what_each_task_cost() -> None:
    client = FakeClient(moved=[move(2)], coming=[under_way(), move()])
    result = invoke(client, "move", "word-count", "count[2-3]", "7", "--to", "node-2", "--share", "0.25")
    assert result.exit_code == 0, result.stderr
    assert asked(client) == [("move", "word-count", "count[2-3],7", "node-2", 60.0, 0.25)]
    head, first, second = result.stdout.splitlines()
    assert " ".join(head.split()) == "TASK COMPONENT FROM TO OUTCOME PAUSE AT RECEIVERS SIZE"
    assert " ".join(first.split()) == (
        "2 count word-count@node-1/0 word-count@node-2/0 moved 12.5 ms 15.0 ms 2.0 KiB"
    )
    assert "20.0 ms" in second
    assert (
        "word-count: 2 tasks moved; longest pause 20.0 ms, at receivers 15.0 ms; 4.0 KiB (move 3)."
        in result.stderr
    )


def test_a_move_that_was_tried_again_counts_each_task_once_and_says_which_attempt_failed() -> None:
    tasks = (
        task_move(2),
        task_move(3, "rolled back", reason="no room", size=0, pause=0.0, gap=0.0, times={}),
    )
    client = FakeClient(coming=[move(3, tasks=tasks), move(4, tasks=(task_move(3),))])
    result = invoke(client, "move", "word-count", "2-3", "--to", "node-2")
    assert result.exit_code == 0, result.stderr
    assert "task 3, move 3: no room" in result.stdout
    assert (
        "word-count: 2 tasks moved; longest pause 12.5 ms, at receivers 15.0 ms; 4.0 KiB (moves 3, 4)."
        in result.stderr
    )


def test_a_move_that_fails_in_part_says_what_has_moved() -> None:
    tasks = (
        task_move(2),
        task_move(3, "rolled back", reason="no module", size=0, pause=0.0, gap=0.0, times={}),
    )

    class Failing(FakeClient):
        def move(self, *args: Any, **options: Any) -> Assignment:
            self._moves_now()
            raise Refused("1 task cannot be moved: task 3: no module", remedy="ask again")

        rebalance = move

    for words, why in (
        (("move", "word-count", "2-3", "--to", "node-2"), "move 2-3 to node-2"),
        (("scale", "word-count", "count=2"), "rebalance count=2"),
    ):
        mine, others = move(3, tasks=tasks, why=why), move(5, tasks=(task_move(4),))
        client = Failing(coming=[mine, under_way(4), others])
        result = invoke(client, *words)
        assert result.exit_code == 6
        assert "moved" in result.stdout and "task 3: no module" in result.stdout
        assert "word-count: 1 of 2 tasks moved, 1 stayed;" in result.stderr
        assert "error: 1 task cannot be moved: task 3: no module" in result.stderr
        result = invoke(Failing(coming=[mine]), "-o", "json", *words)
        data = json.loads(result.stdout)
        assert result.exit_code == 6 and data["topology"] == "word-count" and "epoch" not in data
        assert [t["reason"] for m in data["moves"] for t in m["tasks"]] == ["", "no module"]


def test_what_is_not_there_in_time_is_shown_as_far_as_it_is() -> None:
    class Late(FakeClient):
        def move(self, *args: Any, **options: Any) -> Assignment:
            self._moves_now()
            raise DeadlineExceeded("not everything was where it shall be after 60 s")

        rebalance = move

    mine = replace(under_way(), why="move 2-3 to node-2")
    result = invoke(Late(coming=[mine]), "move", "word-count", "2-3", "--to", "node-2")
    assert result.exit_code == 8 and "paused" in result.stdout
    result = invoke(Late(coming=[mine]), "-o", "json", "move", "word-count", "2-3", "--to", "node-2")
    assert result.exit_code == 8 and json.loads(result.stdout)["moves"][0]["state"] == "running"


def test_a_move_that_somebody_else_overtakes_is_shown_as_far_as_it_is() -> None:
    class Overtaken(FakeClient):
        def move(self, *args: Any, **options: Any) -> Assignment:
            self._moves_now()
            raise Refused("something else was asked for meanwhile: tasks 2, 3 shall run in node-1/0 now")

    mine, words = (
        replace(under_way(), why="move 2-3 to node-2"),
        ("move", "word-count", "2-3", "--to", "node-2"),
    )
    result = invoke(Overtaken(coming=[mine]), *words)
    assert result.exit_code == 6 and "paused" in result.stdout
    result = invoke(Overtaken(coming=[mine]), "-o", "json", *words)
    assert result.exit_code == 6 and [m["state"] for m in json.loads(result.stdout)["moves"]] == ["running"]


@pytest.mark.parametrize("late", [False, True])
def test_a_drain_that_comes_to_nothing_says_what_it_has_moved(late: bool) -> None:
    heard = threading.Event()

    class Failing(FakeClient):
        def drain_node(self, *args: Any, **options: Any) -> None:
            assert heard.wait(30)
            self._moves_now()
            raise DeadlineExceeded("not yet") if late else Refused("task 3 cannot be moved")

        def events(self, **options: Any) -> Any:
            for number, event in super().events(**options):
                yield number, event
                if options.get("follow") and event.kind == "node-draining":
                    heard.set()

    moved = move(3, tasks=(task_move(2), task_move(7, source=W1)), state="ended")
    begun = [Event(1.0, "node-draining", "node-1 is being drained", node="node-1")]
    result = invoke(Failing(coming=[moved], happened=begun), "nodes", "drain", "node-1")
    assert result.exit_code == (8 if late else 6) and "moved" in result.stdout
    result = invoke(Failing(coming=[moved], happened=begun), "-o", "json", "nodes", "drain", "node-1")
    data = json.loads(result.stdout)
    assert data["gone"] is False and [t["task"] for m in data["moves"] for t in m["tasks"]] == [2]


ENDED = "its worker's process has ended; it starts anew, without its state"


@pytest.mark.parametrize(
    ("phase", "counts"), [("lost", "1 lost their state"), ("started anew", "1 started anew")]
)
def test_a_task_that_begins_anew_has_not_been_moved(phase: str, counts: str) -> None:
    """Its process ended before it was saved. That it runs where it was to go, or even has moved since, does not make up for that."""
    ended = task_move(2, phase, reason=ENDED, size=0, pause=0.0, gap=0.0, times={})
    mine = "move 2-3 to node-2"
    for more, says in (((), f"1 of 2 tasks moved, {counts}"), ((task_move(2),), f"2 tasks moved, {counts}")):
        coming = [move(3, tasks=(ended, task_move(3)), why=mine)]
        coming += [move(4, tasks=more, why=mine)] if more else []
        words = ("move", "word-count", "2-3", "--to", "node-2")
        result = invoke(FakeClient(coming=coming), *words)
        assert result.exit_code == 6
        assert f"word-count: {says}; longest pause 12.5 ms" in result.stderr
        assert "stayed" not in result.stdout + result.stderr and f"  {phase}  " in result.stdout
        assert f"task 2 (now in worker word-count@node-1/0): {ENDED}" in result.stderr
        assert "elastic events word-count" in result.stderr
        result = invoke(FakeClient(coming=coming), "-o", "json", *words)
        data = json.loads(result.stdout)
        assert result.exit_code == 6 and data["moves"][0]["tasks"][0]["phase"] == phase
        assert data["moves"][0]["rolled_back" if phase == "started anew" else "lost"] == 1
    scaled = [move(3, tasks=(ended,), why="rebalance count=2")]
    result = invoke(FakeClient(coming=scaled), "scale", "word-count", "count=2")
    assert result.exit_code == 6 and ENDED in result.stderr
    others = invoke(FakeClient(coming=scaled), "move", "word-count", "2-3", "--to", "node-2")
    assert others.exit_code == 0, "what somebody else has asked for"


def test_a_task_that_is_restored_where_it_was_came_back() -> None:
    back = task_move(2, target=W0, attempt=2, reason="worker word-count@node-2/0 has ended")
    result = invoke(FakeClient(coming=[move(3, tasks=(back, task_move(3)))]), "rebalance", "word-count")
    assert " came back " in result.stdout
    assert "word-count: 1 of 2 tasks moved, 1 came back; longest" in result.stderr
    (data,) = json.loads(
        invoke(FakeClient(moved=[move(3, tasks=(back, task_move(3)))]), "-o", "json", "moves").stdout
    )
    assert (data["moved"], data["came_back"], data["rolled_back"]) == (1, 1, 0)
    # Where it went after that it has moved to.
    coming = [move(3, tasks=(back,)), move(4, tasks=(task_move(2),))]
    result = invoke(FakeClient(coming=coming), "rebalance", "word-count")
    assert "word-count: 1 task moved; longest" in result.stderr
    assert progress([move(state="closing", tasks=(back,))]).endswith("came back 2")


def test_the_pauses_of_a_move_that_fails_are_waited_for_too() -> None:
    """Nimbus answers with the last attempt's outcome; what the senders measured comes later."""
    asked, why = threading.Event(), "move 2 to node-2"
    back = task_move(2, "rolled back", reason="no module", size=0, pause=0.0, gap=0.0, times={})
    late = replace(back, pause=0.0129, times={"resumed": 1_700_000_100.0})

    class Failing(FakeClient):
        def move(self, *args: Any, **options: Any) -> Assignment:
            asked.set()
            raise Refused("1 task cannot be moved: task 2: no module", remedy="ask again")

        def moves(self, topology: str = "", **options: Any) -> tuple[MoveView, ...]:
            if asked.is_set():
                self.asked.set()
                return (move(3, tasks=(back,), why=why, state="closing", ended=0.0),)
            return ()

    client = Failing(coming=[move(3, tasks=(late,), why=why)])
    result = invoke(client, "move", "word-count", "2", "--to", "node-2")
    assert result.exit_code == 6 and "12.9 ms" in result.stdout
    assert "0 of 1 task moved, 1 stayed; longest pause 12.9 ms;" in result.stderr


def test_what_cannot_be_followed_to_its_end_is_asked_for() -> None:
    """What comes late is waited for then, too."""
    looks: list[str] = []

    class Deaf(FakeClient):
        def follow_moves(self, topology: str = "") -> Any:
            raise Unavailable("too many streams")

        def moves(self, topology: str = "", **options: Any) -> tuple[MoveView, ...]:
            if not any(c[0] == "move" for c in self.calls):
                return ()
            looks.append(topology)
            return (self.made_for(move() if len(looks) > 3 else under_way()),)

    result = invoke(Deaf(), "move", "word-count", "2", "--to", "node-2")
    assert result.exit_code == 0 and "2 tasks moved; longest pause 20.0 ms" in result.stderr


class Long(FakeClient):
    """All that is kept, with its tasks, is more than an answer holds."""

    def moves(self, topology: str = "", **options: Any) -> tuple[MoveView, ...]:
        if options.get("tasks", True) and options.get("epoch") is None and not options.get("limit"):
            raise Refused("more than an answer holds")
        return super().moves(topology, **options)


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        ("move", "word-count", "2", "--to", "node-2"),
        ("rebalance", "word-count"),
        ("nodes", "drain", "node-1"),
        ("move", "word-count", "--abort"),
    ],
)
def test_a_long_history_is_in_the_way_of_no_request(
    words: tuple[str, ...], deaf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(client: FakeClient, topology: str = "") -> Any:
        raise Unavailable("too many streams")

    if deaf:
        monkeypatch.setattr(Long, "follow_moves", refused)
    client = Long(moved=[move(2)], coming=[under_way(), move()])
    data = json.loads(invoke(client, "-o", "json", *words).stdout)
    assert [m["epoch"] for m in data["moves"]] == [3] and len(data["moves"][0]["tasks"]) == 2


def test_one_move_of_a_long_history() -> None:
    client = Long(moved=[move(6), move(5)])
    assert json.loads(invoke(client, "-o", "json", "moves", "word-count", "5").stdout)["epoch"] == 5
    assert "the latest that is has the number 6" in invoke(client, "moves", "word-count", "9").stderr


def test_move_as_json_has_the_moves_that_it_caused() -> None:
    client = FakeClient(moved=[move(2)], coming=[under_way(), move()])
    data = json.loads(invoke(client, "-o", "json", "move", "word-count", "2", "3", "--to", "node-2").stdout)
    assert (data["topology"], data["epoch"]) == ("word-count", 7)
    assert [m["epoch"] for m in data["moves"]] == [3], "not what had ended before"
    (one,) = data["moves"]
    assert (one["moved"], one["rolled_back"], one["size"]) == (2, 0, 4096)
    assert (one["pause"], one["gap"]) == (0.02, 0.015)
    assert one["tasks"][0]["times"].keys() == set(STEPS)


def test_move_without_waiting_returns_at_once() -> None:
    for words in (("--no-wait",), ("--wait", "0")):
        client = FakeClient(coming=[under_way()])
        result = invoke(client, "-o", "json", "move", "word-count", "2", "--to", "node-2", *words)
        assert result.exit_code == 0 and [m["epoch"] for m in json.loads(result.stdout)["moves"]] == [3]
        assert asked(client) == [("move", "word-count", "2", "node-2", 0, None)]
        assert "elastic moves word-count" in result.stderr


def test_moving_what_is_there_says_so() -> None:
    result = invoke(FakeClient(), "move", "word-count", "2", "--to", "node-1")
    assert result.exit_code == 0 and "nothing had to move" in result.stderr and result.stdout == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("2",), "--to"),
        (("--to", "node-2"), "what to move"),
        (("2", "--to", "node-2", "--share", "0"), "0<x<=1"),
        (("2", "--to", "node-2", "--share", "1.5"), "0<x<=1"),
        (("2", "--to", "node-2", "--why", "x"), "--abort"),
        (("2", "--to", "node-2", "--abort", "3"), "--abort"),
        (("--abort", "x"), "'x'"),
        (("2", "--to", "node-2", "--wait", "3", "--no-wait"), "exclude each other"),
    ],
)
def test_a_wrong_command_line_is_2_and_asks_nothing(words: tuple[str, ...], says: str) -> None:
    client = FakeClient()
    result = invoke(client, "move", "word-count", *words)
    assert result.exit_code == 2 and says in result.stderr, result.stderr
    assert not client.calls


def test_what_nimbus_refuses_is_6_with_its_remedy() -> None:
    client = FakeClient(fail=Refused("tasks stay where they are: task 2: no", remedy="ask again"))
    result = invoke(client, "move", "word-count", "2", "--to", "node-2")
    assert result.exit_code == 6 and "task 2: no" in result.stderr and "ask again" in result.stderr


def test_a_move_that_cannot_be_followed_is_made_all_the_same() -> None:
    class Deaf(FakeClient):
        def follow_moves(self, topology: str = "") -> Any:
            raise Unavailable("too many streams")

    client = Deaf(coming=[move()])
    result = invoke(client, "move", "word-count", "2", "--to", "node-2")
    assert result.exit_code == 0 and "2 tasks moved" in result.stderr


def test_that_nimbus_is_lost_is_said_once_and_that_it_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    class Lost(FakeClient):
        def move(self, *args: Any, **options: Any) -> Assignment:
            for why in ("no Nimbus answers", "no Nimbus answers", "", "", "no Nimbus answers"):
                self.lost(why)
            raise Unavailable("no Nimbus answers at 127.0.0.1:1")

    result = invoke(Lost(), "move", "word-count", "2", "--to", "node-2")
    assert result.exit_code == 7
    assert result.stderr.splitlines() == [
        "no Nimbus answers; trying again",
        "Nimbus answers again",
        "no Nimbus answers; trying again",
        "error: no Nimbus answers at 127.0.0.1:1",
    ]
    capsys.readouterr()
    waiting, said, until = Waiting("asking for task 2", patience=0.001), "", time.monotonic() + 30
    waiting.lost("no Nimbus answers")
    with waiting:
        while "(" not in said and time.monotonic() < until:
            said += capsys.readouterr().err
    assert "\nno Nimbus answers, trying again: asking for task 2 (" in said, "and so do the lines that follow"


def test_the_last_measurements_are_waited_for() -> None:
    """Nimbus answers when the tasks run there; what the senders measured comes later."""

    class Late(FakeClient):
        def moves(self, topology: str = "", **options: Any) -> tuple[MoveView, ...]:
            if not any(c[0] == "move" for c in self.calls):
                return ()
            self.asked.set()
            return (self.made_for(under_way()),)

        def _moves_now(self) -> None:
            pass

    result = invoke(Late(coming=[under_way(), move()]), "move", "word-count", "2", "--to", "node-2")
    assert (
        result.exit_code == 0
        and "2 tasks moved; longest pause 20.0 ms, at receivers 15.0 ms" in result.stderr
    )


def test_what_runs_beside_the_moves_of_a_request_is_neither_waited_for_nor_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody else's move has not ended, and for want of its end it would be waited as long as the test may last."""
    monkeypatch.setattr("elastic.control.cli.moving.SETTLE", 3600.0)
    mine = replace(move(), why="move 2-3 to node-2")
    theirs = replace(under_way(), epoch=mine.epoch + 1, why="move 9 to node-1")
    result = invoke(
        FakeClient(moved=[theirs], coming=[theirs, mine]), "move", "word-count", "2-3", "--to", "node-2"
    )
    assert result.exit_code == 0 and f"(move {mine.epoch})" in result.stderr
    assert f"move {theirs.epoch}" not in result.stderr.splitlines()[-1] and "MOVE" not in result.stdout


def test_what_is_there_already_is_not_answered_with_what_others_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic.control.cli.moving.SETTLE", 3600.0)
    theirs = replace(under_way(), why="move 9 to node-1")
    result = invoke(FakeClient(coming=[theirs]), "move", "word-count", "2", "--to", "node-1")
    assert result.exit_code == 0 and result.stdout == ""
    assert result.stderr == "word-count: nothing had to move: task 2 at node-1 already, or begins there.\n"
    # Where a reason has no room for all who have asked, it may be theirs.
    cut = move(why="…; move 9 to node-1")
    assert (
        "2 tasks moved"
        in invoke(FakeClient(coming=[cut]), "move", "word-count", "2", "--to", "node-1").stderr
    )


def test_why_an_attempt_came_to_nothing_is_said_when_it_has() -> None:
    """Not only at the end: it is tried again after some seconds, and then after more."""
    failed = task_move(3, "rolled back", reason="no room", size=0, pause=0.0, gap=0.0, times={})
    theirs = move(4, tasks=(replace(failed, task=9),), why="move 9 to node-1")
    again = task_move(3, target=W0, reason="no room at all")  # it has come back
    coming = [move(3, tasks=(failed,)), move(3, tasks=(failed,)), theirs, move(5, tasks=(failed,))]
    coming += [move(6, tasks=(again,)), move(7, tasks=(task_move(3),))]
    result = invoke(FakeClient(coming=coming), "move", "word-count", "3", "--to", "node-2")
    assert result.exit_code == 0
    said = [line for line in result.stderr.splitlines() if "stays for now" in line]
    told = sorted(line.partition("): ")[2] for line in said)
    assert told == ["no room", "no room at all"], "each once, and nothing of others' tasks"
    assert all(line.startswith("task 3 of word-count stays for now (move ") for line in said)
    assert "task 3, move 3, 5: no room\n" in result.stdout
    assert "task 3, move 6: no room at all\n" in result.stdout


def test_two_numbers_for_one_component_are_refused() -> None:
    for words in (("scale", "word-count"), ("rebalance", "word-count", "-e")):
        more = ("-e",) if "-e" in words else ()
        client = FakeClient()
        result = invoke(client, *words, "count=3", *more, "split=2", *more, "count=4")
        assert result.exit_code == 2 and asked(client) == []
        assert "count cannot have 3 and 4 executors" in result.stderr


def test_abort_of_all_and_of_one() -> None:
    tasks = (
        task_move(2, "rolled back", reason="not now", size=0, pause=0.0, gap=0.0, times={}),
        task_move(3),
    )
    back = move(tasks=tasks)
    client = FakeClient(moved=[under_way()], coming=[back])
    result = invoke(client, "move", "word-count", "--abort", "--why", "not now")
    assert result.exit_code == 0, result.stderr
    assert asked(client) == [("abort_move", "word-count", None, "not now", False)]
    assert "stayed" in result.stdout and "task 2: not now" in result.stdout
    assert "1 of 2 tasks moved, 1 stayed" in result.stderr
    client = FakeClient(moved=[under_way()], coming=[back])
    data = json.loads(invoke(client, "-o", "json", "move", "word-count", "--abort", "3").stdout)
    assert asked(client) == [("abort_move", "word-count", 3, "", False)]
    assert data["epochs"] == [3] and data["moves"][0]["rolled_back"] == 1


def test_a_forced_abort_says_whose_state_was_given_up() -> None:
    reason = "given up after 4 attempts to restore it: set_state() raised ValueError"
    lost = move(tasks=(task_move(2, "lost", reason=reason, pause=0.0, gap=0.0, times={}), task_move(3)))
    client = FakeClient(moved=[under_way()], coming=[lost])
    result = invoke(client, "move", "word-count", "--abort", "--force")
    assert result.exit_code == 0, result.stderr
    assert asked(client) == [("abort_move", "word-count", None, "", True)]
    assert f"task 2: {reason}" in result.stdout
    assert "word-count: 1 task began anew without state: 2." in result.stderr
    result = invoke(client, "move", "word-count", "count", "--to", "node-2", "--force")
    assert result.exit_code == 2 and "--why and --force go with --abort" in result.stderr


def test_abort_asks_when_moves_cannot_be_followed_any_more() -> None:
    """Nimbus ended in between: the wait goes on by asking, for as long as was said."""
    running = under_way()
    ended = replace(running, state="ended", ended=2.0)

    class Ending(FakeClient):
        looks = 0

        def abort_move(
            self, name: str, epoch: int | None = None, *, why: str = "", force: bool = False
        ) -> tuple[int, ...]:
            super().abort_move(name, epoch, why=why, force=force)
            return (running.epoch,)

        def moves(self, topology: str = "", **options: Any) -> tuple[MoveView, ...]:
            self.looks += 1
            return (ended if self.looks > 3 else running,)

    client = Ending(moved=[running], coming=[])
    result = invoke(client, "move", "word-count", "--abort")
    assert result.exit_code == 0, result.stderr
    assert client.looks > 3


def test_abort_of_what_a_drain_has_asked_for_says_that_the_node_is_still_being_drained() -> None:
    class Draining(FakeClient):
        def nodes(self) -> tuple[NodeSummary, ...]:
            first, second = super().nodes()
            return replace(first, draining=True), second

    back = move(tasks=(task_move(2, "rolled back", reason="not now", size=0, pause=0.0, gap=0.0, times={}),))
    result = invoke(Draining(moved=[under_way()], coming=[back]), "move", "word-count", "--abort")
    assert result.exit_code == 0, result.stderr
    assert "node-1 is still being drained: that was asked for and stands." in result.stderr
    assert "elastic nodes drain node-1" in result.stderr
    other = move(topology=TopologyName("other"))
    for client, name in ((Draining(coming=[other]), "other"), (FakeClient(coming=[back]), "word-count")):
        assert "still being drained" not in invoke(client, "move", name, "--abort").stderr

    class Blind(FakeClient):
        def nodes(self) -> tuple[NodeSummary, ...]:
            raise Unavailable("gone")

    assert invoke(Blind(coming=[back]), "move", "word-count", "--abort").exit_code == 0, "it is aborted"


def test_abort_that_takes_longer_is_8() -> None:
    client = FakeClient(moved=[under_way()], coming=[under_way()])
    result = invoke(client, "move", "word-count", "--abort", "--wait", "0.1")
    assert result.exit_code == 8 and "elastic moves word-count" in result.stderr


def test_scale_is_rebalance_of_executors() -> None:
    client = FakeClient(coming=[move()])
    result = invoke(client, "-o", "json", "scale", "word-count", "count=4", "lines=1", "--wait", "1m")
    assert asked(client) == [("rebalance", "word-count", {"count": 4, "lines": 1}, None, 60.0, None)]
    data = json.loads(result.stdout)
    assert data["executors"] == 3 and [m["epoch"] for m in data["moves"]] == [3]
    assert invoke(client, "scale", "word-count").exit_code == 2
    assert invoke(client, "scale", "word-count", "count").exit_code == 2


def test_rebalance_shows_what_moved() -> None:
    client = FakeClient(coming=[under_way(), move()])
    result = invoke(client, "rebalance", "word-count", "--workers", "2", "--share", "1")
    assert asked(client) == [("rebalance", "word-count", {}, 2, 30.0, 1.0)]
    assert result.stdout.count("moved") == 2 and "2 tasks moved" in result.stderr
    assert "3 executors in 2 workers" in result.stderr


def test_drain_shows_the_moves_that_empty_the_node() -> None:
    elsewhere = move(9, tasks=(task_move(5, source=WorkerId("word-count@node-7/0")),))
    client = FakeClient(coming=[elsewhere, move()])
    data = json.loads(invoke(client, "-o", "json", "nodes", "drain", "node-1").stdout)
    assert [m["epoch"] for m in data["moves"]] == [3], "not what leaves another node"
    assert (data["node"], data["gone"]) == ("node-1", True)


def test_drain_of_a_task_that_begins_anew_is_no_success() -> None:
    ended = task_move(2, "lost", reason=ENDED, size=0, pause=0.0, gap=0.0, times={})
    client = FakeClient(coming=[move(tasks=(ended, task_move(3)))])
    result = invoke(client, "-o", "json", "nodes", "drain", "node-1")
    assert result.exit_code == 6 and "node-1 is gone." in result.stderr
    assert json.loads(result.stdout)["moves"][0]["lost"] == 1, "the data come all the same"
    assert f"task 2 (it was to go to word-count@node-2/0): {ENDED}" in result.stderr
    assert "elastic events word-count" in result.stderr
    forced = invoke(FakeClient(coming=[move(tasks=(ended,))]), "nodes", "drain", "node-1", "--force")
    assert forced.exit_code == 0, "that says that a state may be lost"
    of_others = replace(ended, source=WorkerId("word-count@node-7/0"))
    others = FakeClient(coming=[move(tasks=(of_others, task_move(3)))])
    assert invoke(others, "nodes", "drain", "node-1").exit_code == 0, "another node's"


def test_drain_says_of_which_topology_each_task_is_where_there_are_several() -> None:
    back = task_move(3, "rolled back", reason="no room", size=0, pause=0.0, gap=0.0, times={})
    others = move(topology=TopologyName("other"), tasks=(task_move(2), back))
    text = invoke(FakeClient(coming=[move(2), others]), "nodes", "drain", "node-1").stdout
    head, *rows = (line.split() for line in text.splitlines())
    assert head[:3] == ["TOPOLOGY", "MOVE", "TASK"]
    assert sorted(r[:3] for r in rows[:4]) == [
        ["other", "3", "2"],
        ["other", "3", "3"],
        ["word-count", "2", "2"],
        ["word-count", "2", "3"],
    ]
    assert "task 3 of other, move 3: no room" in text
    one = invoke(FakeClient(coming=[move(2), move(3)]), "nodes", "drain", "node-1").stdout
    assert one.split()[:2] == ["MOVE", "TASK"]


def test_drain_says_what_finds_no_other_place() -> None:
    says = "node node-1 is being drained, and no other place is free for word-count@node-1/0"
    told = Event(1.0, "node-drain-waits", says, Severity.WARNING, topology="word-count", node="node-1")
    others = [replace(told, kind="node-draining"), replace(told, node="node-2")]
    client = FakeClient(happened=[*others, told])
    assert invoke(client, "nodes", "drain", "node-1").stderr.splitlines()[0] == says
