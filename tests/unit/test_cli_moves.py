"""moves, and what describe says of moves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from cli_fake import TOTALS, FakeClient, detail, invoke, move, task_move, under_way

from elastic.control.move_words import cost, progress, ranges, step
from elastic.control.present import move as plain
from elastic.model.ids import WorkerId
from elastic.model.views import PLANNED, MoveView


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
