"""events, errors, stacks, logs, top, completion."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from cli_fake import W0, W1, FakeClient, Line, detail, error, invoke, summary
from click.shell_completion import ShellComplete

from elastic.control.cli import top
from elastic.control.cli.app import app
from elastic.control.cli.settings import Connector
from elastic.control.cli.watch import grouped
from elastic.errors import DeadlineExceeded, NotFound, Unavailable
from elastic.model.events import Event, Severity
from elastic.model.ids import TopologyName
from elastic.model.load import TaskLoad, WorkerReport
from elastic.model.records import TopologyStatus
from elastic.model.views import TopologyDetail


def event(time: float, kind: str = "worker-started", topology: str = "word-count") -> Event:
    return Event(time, kind, f"{kind} at {time}", Severity.INFO, topology=topology)


def test_events_once_are_one_list_and_watched_are_lines() -> None:
    client = FakeClient(happened=[event(1.0), event(2.0, topology="other")])
    assert len(json.loads(invoke(client, "events", "-o", "json").stdout)) == 2
    lines = invoke(client, "events", "--watch", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["time"] for line in lines] == [1.0, 2.0]
    assert invoke(client, "events", "word-count").stdout.count("worker-started at") == 1
    assert client.calls[1] == ("events", 0, "", True, None)


def test_events_that_came_late_are_where_they_belong() -> None:
    """A node tells what happened before there was a leader when there is one."""
    client = FakeClient(happened=[event(2.0), event(1.0), event(3.0)])
    lines = invoke(client, "events").stdout.splitlines()
    assert [line[-3:] for line in lines] == ["1.0", "2.0", "3.0"]
    found = json.loads(invoke(client, "events", "-o", "json").stdout)
    assert [e["time"] for e in found] == [1.0, 2.0, 3.0]
    watched = invoke(client, "events", "--watch").stdout.splitlines()
    assert [line[-3:] for line in watched] == ["2.0", "1.0", "3.0"]


def test_events_since() -> None:
    client = FakeClient(happened=[event(1.0), event(time.time() - 1)])
    assert len(invoke(client, "events", "--since", "1h").stdout.splitlines()) == 1


def test_no_events_are_said() -> None:
    result = invoke(FakeClient(happened=[event(1.0)]), "events", "other")
    assert (result.stdout, result.stderr) == ("", "No events of 'other'.\n")
    assert invoke(FakeClient(happened=[event(1.0)]), "events", "other", "-o", "json").stdout == "[]\n"


def test_errors_show_the_users_traceback_first_and_the_same_once() -> None:
    client = FakeClient(happened=[error(1.0, "7"), error(2.0, "8"), error(3.0, "9")])
    text = invoke(client, "errors", "word-count").stdout
    assert text.count("Traceback") == 1 and "ZeroDivisionError: 9" in text and "3 times" in text
    assert text.index("job.py") < text.index("error:")
    assert len(json.loads(invoke(client, "errors", "word-count", "-o", "json").stdout)) == 3


def test_stacks() -> None:
    text = invoke(FakeClient(), "stacks", "word-count").stdout
    assert "job.py:9 in execute" in text
    assert text.endswith(f"{W1} (node node-2)\nno answer\n\n"), "it has no text: that is said"


LOG = [Line(str(W0), "node-1", "one"), Line(str(W1), "node-2", "two")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["node-1/0 | one", "node-2/0 | two"]),
        (("lines",), ["one"]),
        (("count",), ["node-1/0 | one", "node-2/0 | two"]),
        (("node-2/0",), ["two"]),
        ((str(W0),), ["one"]),
    ],
)
def test_logs_of_all_of_a_component_and_of_a_worker(words: tuple[str, ...], expected: list[str]) -> None:
    assert invoke(FakeClient(log=LOG), "logs", "word-count", *words).stdout.splitlines() == expected


def test_logs_say_whose_a_line_is_once_there_is_another_worker_than_the_one_that_runs() -> None:
    one = detail()
    executors = tuple((e, W0) for e, _ in one.assignment.executors)
    workers = {W0: one.assignment.workers[W0]}
    assignment = replace(one.assignment, executors=executors, workers=workers)
    one = replace(one, assignment=assignment, workers=tuple(w for w in one.workers if w.worker == W0))
    log = [*LOG, Line(str(W0), "node-1", "three")]  # of W1 only its log is left, or it has come meanwhile
    lines = invoke(FakeClient(log=log, details={"word-count": one}), "logs", "word-count").stdout.splitlines()
    assert lines == ["one", "node-2/0 | two", "node-1/0 | three"]


def test_logs_of_nobody_names_those_that_there_are() -> None:
    result = invoke(FakeClient(log=LOG), "logs", "word-count", "nobody")
    assert result.exit_code == 4
    assert "count, lines" in result.stderr and str(W1) in result.stderr


def test_logs_of_what_has_ended_are_there_as_long_as_its_nodes() -> None:
    gone = Line("word-count@node-9/1", "node-9", "three")
    client = FakeClient(log=[*LOG, gone])
    for words in (("node-9/1",), (gone.worker,)):
        assert invoke(client, "logs", "word-count", *words).stdout == "three\n"
        assert invoke(client, "logs", "word-count", *words, "-f").exit_code == 4  # it writes nothing more
    assert invoke(client, "logs", "word-count", "node-9/2").exit_code == 4
    client.details.clear()  # killed
    assert invoke(client, "logs", "word-count").stdout.splitlines()[-1] == "node-9/1 | three"
    assert invoke(client, "logs", "word-count", "node-9/1").stdout == "three\n"
    for words in (("node-9/2",), ("count",), ("-f",)):
        assert invoke(client, "logs", "word-count", *words).exit_code == 4


def test_logs_of_a_component_that_nobody_runs_says_so() -> None:
    ended = detail()
    ended = replace(ended, workers=(), assignment=replace(ended.assignment, executors=(), workers={}))
    result = invoke(FakeClient(log=LOG, details={"word-count": ended}), "logs", "word-count", "count")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No worker runs count now" in result.stderr and "elastic logs word-count" in result.stderr


def test_logs_tail() -> None:
    client = FakeClient(log=LOG)
    assert invoke(client, "logs", "word-count", "--tail", "all", "-f").exit_code == 0
    assert client.calls[-1] == ("logs", "word-count", "", True, None)
    assert invoke(client, "logs", "word-count", "--tail", "x").exit_code == 2


def test_top_once() -> None:
    text = invoke(FakeClient(), "top", "--once").stdout
    assert "word-count  active" in text and "1,230" in text and "count[2-3]" in text
    assert json.loads(invoke(FakeClient(), "top", "--once", "-o", "json").stdout)[0]["name"] == "word-count"


def test_top_without_terminal_writes_lines_and_ends_with_the_topology() -> None:
    done = FakeClient(details={"word-count": detail(summary=summary(status=TopologyStatus.FINISHED))})
    lines = invoke(done, "top", "word-count").stdout.splitlines()
    assert len(lines) == 2 and "out/s 1,234" in lines[0]


def test_top_survives_a_nimbus_that_is_away_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    looks = top.Looks(client, "word-count", 0.1)
    assert looks.again() is not None
    client.fail = Unavailable("Nimbus is away")
    assert looks.again() is None and "Nimbus is away" in looks.trouble
    client.fail = DeadlineExceeded("it hangs")
    assert looks.again() is None and "it hangs" in looks.trouble
    monkeypatch.setattr(top, "OUT_OF_REACH_SECONDS", -1.0)
    for client.fail in (Unavailable("away"), DeadlineExceeded("it hangs")):
        with pytest.raises(type(client.fail)):
            looks.again()


def test_top_ends_when_nobody_answers_at_first() -> None:
    """The address may be wrong: who waits a minute for it learns that late."""
    for fail in (Unavailable("no Nimbus answers"), DeadlineExceeded("it hangs")):
        with pytest.raises(type(fail)):
            top.Looks(FakeClient(fail=fail), "word-count", 0.1).again()


@pytest.mark.parametrize("terminal", [False, True])
def test_top_says_at_once_that_nimbus_is_away(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look waits for it for a quarter of a minute."""

    class Away(FakeClient):
        def describe(self, name: str) -> TopologyDetail:
            self.lost("no Nimbus answers")
            self.lost("")
            return super().describe(name)

    monkeypatch.setattr("elastic.control.cli.output.is_terminal", lambda: terminal)
    monkeypatch.setenv(
        "FORCE_COLOR", "1"
    ) if terminal else None  # rich shows nothing of a live view elsewhere
    client = Away(details={"word-count": detail(summary=summary(status=TopologyStatus.FINISHED))})
    result = invoke(client, "top", "word-count")
    assert result.exit_code == 0, result.output
    assert "no Nimbus answers; trying again" in (result.stdout if terminal else result.stderr)


def test_top_of_all_goes_on_without_one_that_has_just_gone() -> None:
    client = FakeClient(topologies=[summary(), summary(name=TopologyName("gone"))])
    assert [d.summary.name for d in top.look(client, None)] == ["word-count"]
    with pytest.raises(NotFound):
        top.look(client, "gone")


def test_numbers_that_json_does_not_know_are_text() -> None:
    odd = {"a": float("nan"), "b": [float("inf"), {"c": -float("inf")}], "d": 1.5}
    client = FakeClient(happened=[replace(event(1.0), details=odd)])
    for words in (("events", "-o", "json"), ("events", "--watch", "-o", "json")):
        text = invoke(client, *words).stdout
        found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        details = (found[0] if isinstance(found, list) else found)["details"]
        assert details == {"a": "NaN", "b": ["Infinity", {"c": "-Infinity"}], "d": 1.5}


def test_the_live_view_fits_into_the_terminal() -> None:
    from rich.console import Console

    for height in (12, 24, 60):
        console = Console(width=160, height=height, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
        console.print(top.render([detail()], "", height))
        text = console.export_text()
        assert len(text.splitlines()) <= height, height
        assert "1,230" in text


def by_task(time: float, executed: int) -> TopologyDetail:
    tasks = (TaskLoad(2, "count", "count[2-3]", executed, executed, queued=4, state=3 << 19),)
    return detail(reports=(WorkerReport("word-count", str(W0), "life", time, 7, tasks=tasks),))


class Reporting(FakeClient):
    """Its worker reports once a look."""

    looks = 0

    def describe(self, name: str) -> TopologyDetail:
        super().describe(name)
        self.looks += 1
        return by_task(float(self.looks), 100 * self.looks)


def test_top_by_task_measures_between_two_looks() -> None:
    client = Reporting()
    (found,) = json.loads(
        invoke(client, "top", "--once", "--tasks", "--interval", "0.1", "-o", "json").stdout
    )
    assert [t["task"] for t in found["task_list"]] == [1, 2, 3, 4, 5] and client.looks == 2
    task = found["task_list"][1]
    assert (task["executed"], task["executed_rate"], task["queued"]) == (200, 100.0, 4)
    text = invoke(Reporting(), "top", "word-count", "--once", "--tasks", "--interval", "0.1").stdout
    assert "EXECUTOR " not in text and "COMPONENT" in text
    (row,) = [line.split() for line in text.splitlines() if line.split()[:2] == ["2", "count"]]
    assert row[2:7] == [str(W0), "100", "100", "200", "200"] and row[-2:] == ["1.5", "MiB"]


def test_top_by_task_has_a_line_for_each_in_a_log() -> None:
    client = FakeClient()
    ended = replace(by_task(9.0, 900), summary=summary(status=TopologyStatus.FINISHED))
    client.details["word-count"] = ended
    lines = invoke(client, "top", "word-count", "--tasks").stdout.splitlines()
    assert len(lines) == 5 and "task 2  count  in/s 0  out/s 0  queued 4  failed 0" in lines[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = invoke(None, "completion", shell)
    assert result.exit_code == 0 and "_ELASTIC_COMPLETE" in result.stdout


def complete(client: FakeClient | None, args: list[str], incomplete: str) -> list[str]:
    def connect(settings: object, timeout: float) -> FakeClient:
        if client is None:
            raise Unavailable("no cluster")
        return client

    shell = ShellComplete(app, {"obj": Connector(connect)}, "elastic", "_ELASTIC_COMPLETE")
    return [item.value for item in shell.get_completions(args, incomplete)]


def test_completion_of_names() -> None:
    assert complete(FakeClient(), ["describe"], "wo") == ["word-count"]
    assert complete(FakeClient(), ["logs", "word-count"], "li") == ["lines"]
    assert complete(FakeClient(), ["nodes", "drain"], "") == ["node-1", "node-2"]
    assert complete(FakeClient(), [], "de") == ["describe", "deactivate"] or complete(
        FakeClient(), [], "des"
    ) == ["describe"]


def test_completion_without_cluster_is_silent() -> None:
    assert complete(None, ["describe"], "") == []


def test_errors_of_a_task_are_counted_each_by_itself() -> None:
    """It says how many of its tuples have failed so far, of whatever."""

    def failed(count: int, trace: str) -> Event:
        details: dict[str, str | int | float] = {"traceback": trace, "failed": count}
        return Event(
            float(count), "tuple-failed", trace, Severity.ERROR, "t", "b", 2, "t@n/0", details=details
        )

    found = [
        failed(1, "ValueError: a"),
        failed(2, "KeyError: b"),
        failed(3, "TypeError: c"),
        failed(20, "KeyError: b"),
    ]
    counts = {event.message: times for event, times in grouped(found)}
    assert counts == {"ValueError: a": 1, "TypeError: c": 1, "KeyError: b": 18}
    anew = [failed(8, "ValueError: a"), replace(failed(1, "ValueError: a"), time=9.0)]
    assert [times for _, times in grouped(anew)] == [9], "its process has begun anew"
