"""move, moves, scale, and what rebalance, drain and describe say of moves."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from cli_fake import TOTALS, W0, W1, FakeClient, detail, invoke, move, task_move, under_way

from elastic.control.cli.move_shown import cost, progress, ranges, step
from elastic.control.cli.moving import Following, Request
from elastic.control.cli.narration import Waiting
from elastic.control.cli.present import STEPS
from elastic.control.cli.present import move as plain
from elastic.errors import DeadlineExceeded, NotConnected, Refused, Unavailable
from elastic.model.assignment import Assignment
from elastic.model.events import Event, Severity
from elastic.model.ids import TopologyName, WorkerId
from elastic.model.views import PLANNED, MoveView, NodeSummary


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


def planned(says: str, **changes: Any) -> MoveView:
    tasks = (task_move(5, "waiting", target=WorkerId(""), size=0, pause=0.0, gap=0.0, times={}),)
    return move(
        0, **{"state": PLANNED, "began": 0.0, "ended": 0.0, "tasks": tasks, "waits": (says,), **changes}
    )


def test_what_is_to_move_and_has_no_place_is_among_the_moves() -> None:
    """With and without a name, and for programs."""
    says = "node node-1 is being drained, and no other place is free for word-count@node-1/0"
    client = FakeClient(moved=[planned(says, why="node node-1 is being drained"), move()])
    for words in (("moves",), ("moves", "word-count")):
        result = invoke(client, *words)
        assert result.stderr == f"word-count: {says}\n"
        _, first, _ = result.stdout.splitlines()
        assert first.split()[:2] == ["word-count", "-"] and "planned" in first
        assert first.endswith("node node-1 is being drained") and "1970" not in first
        one, _ = json.loads(invoke(client, "-o", "json", *words).stdout)
        assert (one["epoch"], one["state"], one["waits"]) == (0, "planned", [says])
        assert [t["task"] for t in one["tasks"]] == [5]


def test_what_is_planned_is_no_move_of_a_request() -> None:
    """Else its end would be waited for."""
    client = FakeClient(moved=[planned("task 5 waits for its move to begin")], coming=[move()])
    data = json.loads(invoke(client, "-o", "json", "move", "word-count", "2", "--to", "node-2").stdout)
    assert [m["epoch"] for m in data["moves"]] == [3]


def test_moves_lists_them() -> None:
    client = FakeClient(moved=[under_way(4), move()])
    result = invoke(client, "moves")
    head, running, ended = result.stdout.splitlines()
    assert " ".join(head.split()) == "TOPOLOGY MOVE STATE TASKS SIZE PAUSE AT RECEIVERS BEGAN TOOK WHY"
    assert "running" in running and "0 of 2 tasks moved" in running and " ms so far" in running
    assert "2 tasks moved" in ended and "20.0 ms" in ended and "2.0 s" in ended
    assert "task 2 waits for fences" in result.stderr
    said = invoke(client, "moves", "word-count", "--limit", "3").stderr
    assert said.count("task 2 waits") == 1
    assert client.calls == [("moves", "", 20), ("moves", "word-count", 3)]
    data = json.loads(invoke(client, "-o", "json", "moves").stdout)
    assert [m["epoch"] for m in data] == [4, 3] and data[0]["waits"] == ["task 2 waits for fences"]


def test_no_moves_is_no_data_and_a_hint() -> None:
    result = invoke(FakeClient(), "moves", "word-count")
    assert result.exit_code == 0 and result.stdout == "" and "elastic move --help" in result.stderr
    assert json.loads(invoke(FakeClient(), "-o", "json", "moves").stdout) == []


def test_one_move_with_every_step_relative_to_the_pause() -> None:
    client = FakeClient(moved=[under_way(4), move()])
    text = invoke(client, "moves", "word-count", "3").stdout
    for part in ("move count[2-3] to node-2", "2 tasks moved", "-4.0 ms", "+0.0 ms", "+20.0 ms", "20.0 ms"):
        assert part in text, part
    text = invoke(client, "moves", "word-count", "4").stdout
    assert "paused 2; prepared 3" in text and "task 2 waits for fences" in text
    two, three = (line for line in text.splitlines() if "  count  " in line)
    assert " ms so far" in two and "so far" not in three, "one stands still, and one runs"
    assert json.loads(invoke(client, "-o", "json", "moves", "word-count", "4").stdout)["state"] == "running"


def test_a_move_that_nobody_knows_is_4() -> None:
    client = FakeClient(moved=[planned("no place"), move(6), move(5)])
    never = invoke(client, "moves", "word-count", "9")
    assert never.exit_code == 4 and "events" not in never.stderr
    assert never.stderr.startswith(
        "error: no move 9 of topology 'word-count' is known: the latest that is has the number 6\n"
    )
    forgotten = invoke(client, "moves", "word-count", "4")
    assert forgotten.exit_code == 4 and "elastic events word-count" in forgotten.stderr
    assert forgotten.stderr.startswith("error: topology 'word-count' has no move 4 that is still known\n")
    assert "was an earlier topology's (where its numbers ended, this one's began)" in forgotten.stderr
    assert "elastic events word-count" in invoke(FakeClient(), "moves", "word-count", "1").stderr, "who knows"
    assert invoke(FakeClient(), "moves", "word-count", "9", "--watch").exit_code == 2


def test_an_empty_name_is_not_all_topologies() -> None:
    for words in (("moves", ""), ("moves", "", "3"), ("events", ""), ("move", "", "--abort")):
        client = FakeClient()
        result = invoke(client, *words)
        assert result.exit_code == 2 and "the name of a topology is empty" in result.stderr
        assert not client.calls


def test_watch_tells_beginnings_and_ends() -> None:
    client = FakeClient(moved=[move(2)], coming=[under_way(), under_way(), move()])
    client.asked.set()
    lines = invoke(client, "moves", "--watch").stdout.splitlines()
    assert ["move 3  running" in lines[0], "move 3  ended" in lines[1], len(lines)] == [True, True, 2]
    data = [json.loads(x) for x in invoke(client, "-o", "json", "moves", "--watch").stdout.splitlines()]
    assert [m["state"] for m in data] == ["running", "running", "ended"]


def test_what_is_watched_says_that_nimbus_is_lost_and_that_it_is_back() -> None:
    class Lost(FakeClient):
        def _stream(self, *args: Any, **options: Any) -> Any:
            self.lost("no Nimbus answers")
            self.lost("")
            return iter(())

        follow_moves = events = logs = _stream

    for words in (("moves", "--watch"), ("events", "--watch"), ("logs", "word-count", "-f")):
        assert invoke(Lost(), *words).stderr.splitlines() == [
            "no Nimbus answers; trying again",
            "Nimbus answers again",
        ]


def test_describe_shows_moves_under_way_and_totals() -> None:
    client = FakeClient(details={"word-count": detail(moves=(under_way(),), moved=TOTALS)})
    text = invoke(client, "describe", "word-count").stdout
    assert "3 (running): paused 2; prepared 3: move count[2-3] to node-2" in text
    assert "2 tasks in 1 move, 4.0 KiB, longest pause 20.0 ms, at receivers 15.0 ms" in text
    unknown = replace(TOTALS, pause_max=0.0, gap_max=0.0)
    client.details["word-count"] = detail(moves=(under_way(),), moved=unknown)
    assert "2 tasks in 1 move, 4.0 KiB\n" in invoke(client, "describe", "word-count").stdout
    client.moved = [move(tasks=(task_move(2, "rolled back", size=0, pause=0.0, gap=0.0, times={}),))]
    assert "Longest pause  -\n" in invoke(client, "moves", "word-count", "3").stdout
    client.details["word-count"] = detail(moves=(under_way(),), moved=TOTALS)
    data = json.loads(invoke(client, "-o", "json", "describe", "word-count").stdout)
    assert data["moves"][0]["epoch"] == 3
    assert data["moved"]["committed"] == 2 and data["moved"]["pauses"]["0.025"] == 2


def test_progress_says_how_far_each_task_is() -> None:
    tasks = (
        task_move(2),
        task_move(3, times={"restored": 1.0}),
        task_move(4, "saved"),
        *(task_move(n, "preparing", times={"prepared": 1.0}) for n in (5, 6, 7)),
        task_move(9, "preparing", times={}),
        task_move(10, "rolled back"),
    )
    said = progress([move(state="running", tasks=tasks)])
    assert said == (
        "moving 8 tasks of word-count: resumed 2; restored 3; saved 4; prepared 5-7; preparing 9; stayed 10"
    )
    assert progress([move(tasks=tasks)], lambda t: t.task == 4) == "moving 1 task of word-count: saved 4"
    assert step(task_move(1, "lost")) == "lost"


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((3,), "3"), ((4, 3), "3-4"), ((1, 3, 4, 5, 9), "1, 3-5, 9")]
)
def test_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text


def test_the_cost_of_several_moves() -> None:
    back: MoveView = move(4, tasks=(task_move(5, "rolled back", pause=0.0), task_move(6, "lost", pause=0.5)))
    assert cost([plain(move()), plain(back)]) == (
        "2 of 4 tasks moved, 1 stayed, 1 lost their state; longest pause 500 ms, at receivers 15.0 ms; 4.0 KiB"
    )
    # What was tried again is no other task.
    first = move(4, tasks=(task_move(5, "rolled back", pause=0.0), task_move(6)))
    second = move(5, tasks=(task_move(5),))
    assert (
        cost([plain(second), plain(first)])
        == "2 tasks moved; longest pause 12.5 ms, at receivers 15.0 ms; 4.0 KiB"
    )
    third = move(6, tasks=(task_move(5, "rolled back", pause=0.0),))
    assert cost([plain(first), plain(third)]) == (
        "1 of 2 tasks moved, 1 stayed; longest pause 12.5 ms, at receivers 15.0 ms; 2.0 KiB"
    )
    nobody = move(tasks=(task_move(1, pause=0.0, gap=0.0),))
    assert cost([plain(nobody)]) == "1 task moved; nobody had to wait; 2.0 KiB"
    unknown = task_move(1, pause=0.0, gap=0.0, times={"saved": 1.0, "begun": 2.0})
    for state in ("closing", "ended"):
        assert cost([plain(move(state=state, tasks=(unknown,)))]) == "1 task moved; 2.0 KiB"
    behind = replace(unknown, gap=0.015)
    assert cost([plain(move(tasks=(behind,)))]) == "1 task moved; at receivers 15.0 ms; 2.0 KiB"


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
