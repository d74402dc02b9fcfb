"""list, get, describe, kill, activate, deactivate, rebalance, nodes."""

from __future__ import annotations

import json
import time
from typing import NoReturn

import pytest
import yaml
from cli_fake import FakeClient, Info, detail, invoke, summary

from elastic.errors import Unavailable
from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch
from elastic.model.records import TopologyStatus
from elastic.model.views import CheckpointView


def test_list_as_table_json_and_yaml() -> None:
    client = FakeClient(
        topologies=[summary(), summary(name="other", status=TopologyStatus.FAILED, reason="too many")]
    )
    table = invoke(client, "list").stdout.splitlines()
    assert table[0].split()[:3] == ["NAME", "STATUS", "UPTIME"]
    assert table[1].split()[:2] == ["word-count", "active"] and "too many" in table[2]
    data = json.loads(invoke(client, "list", "-o", "json").stdout)
    assert [t["name"] for t in data] == ["word-count", "other"] and data[1]["status"] == "failed"
    assert yaml.safe_load(invoke(client, "list", "-o", "yaml").stdout) == data


def test_an_empty_list_is_no_data_and_a_hint() -> None:
    client = FakeClient(topologies=[])
    result = invoke(client, "list")
    assert result.stdout == "" and "elastic submit" in result.stderr
    assert json.loads(invoke(client, "list", "-o", "json").stdout) == []


def test_get_shows_the_placement() -> None:
    result = invoke(FakeClient(), "get", "word-count")
    assert "word-count@node-1/0" in result.stdout and "count[2-3]" in result.stdout
    data = json.loads(invoke(FakeClient(), "get", "word-count", "-o", "json").stdout)
    assert data["epoch"] == 7
    assert data["placement"][0]["executors"] == ["count[2-3]", "lines[1-1]"]


def test_when_something_was_submitted_is_said_by_now_only_while_it_runs() -> None:
    assert "(1m 15s ago)" in invoke(FakeClient(), "get", "word-count").stdout
    ended = FakeClient(details={"word-count": detail(summary=summary(status=TopologyStatus.FINISHED))})
    text = invoke(ended, "get", "word-count").stdout
    assert "(ended after 1m 15s)" in text and "ago" not in text


def test_describe_shows_everything() -> None:
    text = invoke(FakeClient(), "describe", "word-count").stdout
    for part in (
        "lines fields(word)",
        "HELD",
        "77",
        "count[4-5]",
        "95%",
        "has not registered yet",
        "ZeroDivisionError",
        "90 MiB",
        "1.5 MiB",
        "1,230 tuples/s between executors, 50% between workers (12 KiB/s), 40% between nodes",
    ):
        assert part in text, part
    data = json.loads(invoke(FakeClient(), "describe", "word-count", "-o", "json").stdout)
    assert data["components"][1]["inputs"] == [
        {"source": "lines", "stream": "default", "grouping": "fields(word)"}
    ]
    assert data["executor_list"][0]["busy"] == 0.9
    assert data["worker_list"][1]["alive"] is False
    assert data["executor_list"][0]["state"] == 3 << 19
    pairs = [(p["source"], p["target"], p["tuples"], p["bytes"]) for p in data["traffic"]["pairs"]]
    assert pairs[0] == ("lines[1-1]", "count[2-3]", 615.0, 0.0)


def test_describe_says_how_far_back_a_crash_would_put_it() -> None:
    def described(c: CheckpointView) -> str:
        text = invoke(
            FakeClient(details={"word-count": detail(checkpoints=c)}), "describe", "word-count"
        ).stdout
        return next((line for line in text.splitlines() if line.startswith("Checkpoint")), "")

    assert described(CheckpointView()) == ""
    assert "none yet, one every 5 s" in described(CheckpointView(5.0))
    told = described(CheckpointView(5.0, 22, time.time() - 90, 0.8, 2048, 0, "no room", 1))
    assert "22, 1m 30s old, 2.0 KiB in 0.80 s; the next was given up: no room; went back 1 time" in told


def test_describe_of_what_is_not_there_is_4() -> None:
    result = invoke(FakeClient(), "describe", "nothing")
    assert result.exit_code == 4 and "elastic list" in result.stderr


def test_kill_waits_and_asks_nothing_without_a_terminal() -> None:
    client = FakeClient()
    assert invoke(client, "kill", "word-count").exit_code == 0
    assert invoke(client, "kill", "word-count", "--wait", "2m").exit_code == 0
    assert client.calls == [("kill", "word-count", 10.0), ("kill", "word-count", 120.0)]


def test_deactivate_and_activate() -> None:
    client = FakeClient()
    assert invoke(client, "deactivate", "word-count", "--wait", "5").exit_code == 0
    assert invoke(client, "activate", "word-count").exit_code == 0
    assert client.calls == [("deactivate", "word-count", 5.0), ("activate", "word-count")]


def test_what_ends_or_stops_a_topology_says_so_as_data() -> None:
    told = {
        ("kill",): {"topology": "word-count", "gone": True},
        ("activate",): {"topology": "word-count", "status": "active"},
        ("deactivate", "--wait", "5"): {"topology": "word-count", "status": "inactive", "drained": True},
    }
    for (name, *rest), data in told.items():
        result = invoke(FakeClient(), name, "word-count", *rest, "-o", "json")
        assert json.loads(result.stdout) == data and "word-count is" in result.stderr
        assert invoke(FakeClient(), name, "word-count", *rest).stdout == ""
    late = invoke(FakeClient(drained=False), "deactivate", "word-count", "--wait", "1", "-o", "json")
    assert late.exit_code == 8
    assert json.loads(late.stdout) == {"topology": "word-count", "status": "inactive", "drained": False}


def test_deactivate_that_is_not_worked_off_in_time_is_8() -> None:
    result = invoke(FakeClient(drained=False), "deactivate", "word-count", "--wait", "1")
    assert result.exit_code == 8 and "has not worked off everything" in result.stderr
    assert invoke(FakeClient(drained=False), "deactivate", "word-count").exit_code == 0, (
        "nobody asked to wait"
    )


def test_rebalance_takes_components_and_workers() -> None:
    client = FakeClient()
    result = invoke(
        client, "rebalance", "word-count", "-e", "count=4", "--executors", "lines=1", "--workers", "2"
    )
    assert result.exit_code == 0 and "epoch 7" in result.stderr
    assert [c for c in client.calls if c[0] not in ("moves", "events")] == [
        ("rebalance", "word-count", {"count": 4, "lines": 1}, 2, 30.0, None)
    ]


@pytest.mark.parametrize("text", ["count", "count=", "count=0", "=3", "count=-1"])
def test_rebalance_refuses_what_is_no_number_of_executors(text: str) -> None:
    client = FakeClient()
    assert invoke(client, "rebalance", "word-count", "--executors", text).exit_code == 2
    assert not client.calls


def test_rebalance_says_when_executors_wait_for_a_slot() -> None:
    made = detail()
    ids = tuple(e for e, _ in made.assignment.executors)
    waiting = Assignment(made.assignment.topology, Epoch(8), {}, (), ids)
    client = FakeClient(details={"word-count": detail(assignment=waiting)})
    result = invoke(client, "rebalance", "word-count")
    assert result.exit_code == 8 and "elastic nodes add" in result.stderr


@pytest.mark.parametrize("known", ["", "127.0.0.1:7001"], ids=["none", "one that has gone"])
@pytest.mark.parametrize("late", [False, True], ids=["at first", "when asked for more"])
def test_info_without_a_leader_says_what_any_nimbus_knows(late: bool, known: str) -> None:
    class Leaderless(FakeClient):
        def info(self) -> Info:
            return Info(leader=known, leading=late)

        def nodes(self) -> NoReturn:
            assert late, "asking would wait for a leader"
            raise Unavailable("none of them leads")

    text, data = invoke(Leaderless(), "info"), invoke(Leaderless(), "info", "-o", "json")
    assert text.exit_code == data.exit_code == 0, text.output
    assert "does not lead at the moment" in text.stdout if known else "none at the moment" in text.stdout
    found = json.loads(data.stdout)
    assert [found[n] for n in ("nodes", "slots", "used", "topologies")] == [None] * 4
    assert found["answered"] == "127.0.0.1:7000"


def test_nodes() -> None:
    client = FakeClient()
    table = invoke(client, "nodes", "list").stdout
    assert "node-1  alive     process   1/2" in table and "node-2  starting" in table
    data = json.loads(invoke(client, "nodes", "list", "-o", "json").stdout)
    assert data[0]["workers"] == ["word-count@node-1/0"]
    assert "0.50/2" in table and "90 MiB" in table
    assert (data[0]["cores"], data[0]["cpu"], data[0]["memory"]) == (2.0, 0.5, 90 << 20)
    added = invoke(client, "nodes", "add", "2", "--slots", "3", "--host", "spark")
    assert added.stdout.split() == ["node-3", "node-4"]
    assert invoke(client, "nodes", "drain", "node-1").exit_code == 0
    assert invoke(client, "nodes", "drain", "node-1", "--force").exit_code == 0
    assert [c for c in client.calls[2:] if c[0] not in ("moves", "events")] == [
        ("add_nodes", 2, 3, "spark", 60.0),
        ("drain_node", "node-1", 60.0, False),
        ("drain_node", "node-1", 60.0, True),
    ]


@pytest.mark.parametrize("text", ["x", "5 parsecs", "-3", "", "36501d", "9" * 400])
def test_a_time_that_is_none_is_a_usage_error(text: str) -> None:
    assert invoke(FakeClient(), "kill", "word-count", "--wait", text).exit_code == 2


HUGE = str(1 << 63)


@pytest.mark.parametrize(
    "words",
    [
        ("move", "wc", "--abort", HUGE),
        ("moves", "wc", HUGE),
        ("moves", "--limit", HUGE),
        ("events", "--tail", HUGE),
        ("logs", "wc", "--tail", HUGE),
        ("logs", "wc", "--tail", "9" * 5000),
        ("errors", "--limit", HUGE),
        ("scale", "wc", f"lines={HUGE}"),
        ("scale", "wc", f"lines={'9' * 5000}"),
        ("rebalance", "wc", "--workers", HUGE),
        ("nodes", "add", "1", "--slots", "1001"),
        ("top", "--interval", "1000000000000d"),
    ],
)
def test_a_number_that_is_too_large_is_a_usage_error(words: tuple[str, ...]) -> None:
    client = FakeClient()
    result = invoke(client, *words)
    assert result.exit_code == 2 and "fault of elastic" not in result.stderr, result.stderr
    assert not client.calls
