"""`elastic policy`, `elastic scheduler`, `elastic nodes auto`: what is asked of the cluster, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from cli_fake import WC, FakeClient, invoke

from benchmarks.placements import chain
from elastic.model.events import Event
from elastic.scheduler.question import Answer, Question, ask
from elastic.scheduler.registry import choose


def asked(client: FakeClient) -> list[object]:
    return [c[1] for c in client.calls if c[0] == "set_elasticity"]


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("policy", "set", "ds2", "--target", "0.5", "--dry-run"), {"policy": "ds2 --target 0.5 --dry-run"}),
        (("policy", "set", "thresholds --scale-out 0.8"), {"policy": "thresholds --scale-out 0.8"}),
        (("policy", "off"), {"policy": "off"}),
        (("scheduler", "set", "tstorm", "--gamma", "1.7"), {"scheduler": "tstorm --gamma 1.7"}),
        (("scheduler", "set", "otd", "--every", "10s"), {"scheduler": "otd", "period": 10.0}),
        (("scheduler", "--every", "5s"), {"period": 5.0}),
        (("scheduler", "off"), {"scheduler": "off"}),
        (("nodes", "auto", "set", "--maximum", "8"), {"nodes": "--maximum 8"}),
        (("nodes", "auto", "set"), {"nodes": "--enabled"}),
        (("nodes", "auto", "off"), {"nodes": "off"}),
    ],
)
def test_what_is_set(words: tuple[str, ...], changes: dict[str, object]) -> None:
    client = FakeClient()
    result = invoke(client, *words)
    assert result.exit_code == 0, result.output
    assert asked(client) == [changes]


def test_serve_decides_and_says_what() -> None:
    case = chain((1, 2), 2)
    line = choose("tstorm --gamma 6 --worker-cores 0")
    asked = ask(3, line, case.demands, case.cluster, case.load, case.current)
    client = FakeClient(questions=[asked, replace(asked, scheduler="tsturm")])
    result = invoke(client, "scheduler", "serve")
    assert result.exit_code == 0, result.output
    decided, failed = result.stdout.splitlines()
    assert "tstorm --gamma 6 " in decided and "T-Storm's schedule, because" in decided
    assert "there is no scheduler 'tsturm'" in failed
    assert [c[0] for c in client.calls] == ["generate"]
    assert invoke(client, "scheduler", "serve", "--every", "5s").exit_code == 2
    lines = [
        json.loads(line) for line in invoke(client, "scheduler", "serve", "-o", "json").stdout.splitlines()
    ]
    assert [line["scheduler"] for line in lines] == [asked.scheduler, "tsturm"]
    assert lines[0]["reasons"] and not lines[0]["failure"] and "tsturm" in lines[1]["failure"]


def test_serve_says_that_nimbus_is_away_and_what_goes_on_without_it() -> None:
    class Interrupted(FakeClient):
        def generate(
            self, name: str, decide: Callable[[Question], Answer]
        ) -> Iterator[tuple[Question, Answer]]:
            self.lost("no Nimbus answers")
            yield from ()
            raise KeyboardInterrupt

    result = invoke(Interrupted(), "scheduler", "serve")
    assert result.exit_code == 130
    assert "no Nimbus answers; trying again\n" in result.stderr
    assert result.stderr.endswith("interrupted: whoever stands by decides now, or Nimbus itself.\n")


@pytest.mark.parametrize("words", [("policy",), ("scheduler",), ("nodes", "auto")])
def test_without_words_it_is_only_shown(words: tuple[str, ...]) -> None:
    client = FakeClient()
    result = invoke(client, *words, "-o", "json")
    assert result.exit_code == 0 and asked(client) == []
    shown = json.loads(result.stdout)
    assert shown["policy"] == "thresholds --scale-out 0.8"
    assert shown["topologies"] == [{"name": "word-count", "policy": "thresholds --scale-out 0.8"}]
    assert shown["schedulers"] == ["otd", "roundrobin", "tstorm"]


@pytest.mark.parametrize("words", [("policy", "ds2"), ("policy", "set"), ("scheduler", "off", "now")])
def test_what_means_nothing_is_a_usage_error(words: tuple[str, ...]) -> None:
    client = FakeClient()
    result = invoke(client, *words)
    assert result.exit_code == 2 and "elastic " + words[0] in result.stderr and client.calls == []


def test_tables() -> None:
    client = FakeClient()
    shown = invoke(client, "policy").stdout
    assert "Policy  thresholds --scale-out 0.8" in shown and "word-count" in shown
    off = invoke(client, "scheduler")
    assert "Scheduler  off" in off.stdout and "scheduler set tstorm" in off.stderr
    on = invoke(client, "scheduler", "set", "otd", "--every", "90s").stdout
    assert "otd" in on and "Every" in on and "1m 30s" in on


def test_describe_says_what_was_decided() -> None:
    client = FakeClient()
    why = Event(5.0, "scale-out", "1 of 1 executors of count are above 0.7 busy", topology=str(WC))
    client.details[str(WC)] = replace(client.details[str(WC)], policy="ds2", decided=(why,))
    result = invoke(client, "describe", str(WC))
    assert "Policy     ds2" in result.stdout and "scale-out: 1 of 1 executors of count" in result.stdout
    data = json.loads(invoke(client, "describe", str(WC), "-o", "json").stdout)
    assert data["policy"] == "ds2" and [e["kind"] for e in data["decided"]] == ["scale-out"]
