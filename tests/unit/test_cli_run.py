"""run and submit: in this process, and against a fake cluster."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from cli_fake import FakeClient, detail, invoke

from elastic import procs
from elastic.cluster.directory import ClusterInfo, write
from elastic.cluster.options import UpOptions
from elastic.control.cli import run as run_module
from elastic.control.cli import submit as submit_module
from elastic.control.cli import troubles as troubles_module
from elastic.control.cli.connection import addresses
from elastic.control.cli.settings import Settings
from elastic.control.client import Client
from elastic.errors import (
    DeadlineExceeded,
    ElasticError,
    Ended,
    ExecutionError,
    NotFound,
    Refused,
    Unavailable,
)
from elastic.model.events import Event, Severity
from elastic.model.load import TaskLoad, WorkerReport
from elastic.model.views import NodeSummary, TopologySummary

SOURCE = """
import time
from elastic import Bolt, Fields, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = Fields(n=int)
    def __init__(self, count, pause):
        self.count, self.pause = count, pause
    def tuples(self):
        for n in range(self.count):
            if self.pause:
                time.sleep(self.pause)
            if n == 0:
                print("first", flush=True)
            yield n

class Check(Bolt):
    def __init__(self, bad):
        self.bad = bad
    def execute(self, tup):
        if tup.n in self.bad:
            raise ValueError(f"number {tup.n}")

def topology(args):
    import argparse
    p = argparse.ArgumentParser()
    p.add_argument("--count", type=int, default=10)
    p.add_argument("--pause", type=float, default=0)
    p.add_argument("--bad", type=int, nargs="*", default=[])
    p.add_argument("--max-errors", type=int, default=100)
    a = p.parse_args(args)
    b = TopologyBuilder("numbers", max_errors=a.max_errors)
    b.spout("numbers", Numbers(a.count, a.pause))
    b.bolt("check", Check(a.bad)).shuffle("numbers")
    return b.build()
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "cli_numbers_job.py"
    file.write_text(SOURCE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "cli_numbers_job", raising=False)
    return file


def test_run_to_its_end(job: Path) -> None:
    result = invoke(None, "run", str(job), "--count", "20")
    assert result.exit_code == 0
    assert "numbers finished in" in result.stderr and "20" in result.stderr
    assert result.stdout == "first\n", "data is what the topology itself prints"


def test_run_as_data(job: Path) -> None:
    result = invoke(None, "run", "-o", "json", str(job))
    data = json.loads(result.stdout)
    assert data["components"]["check"]["executed"] == 10 and data["topology"] == "numbers"
    assert "first\n" in result.stderr, "what the topology prints is none of it"


def test_everything_after_the_file_belongs_to_the_topology(job: Path) -> None:
    """Also what looks like an option of elastic: -o here is the topology's, and wrong there."""
    result = invoke(None, "run", str(job), "-o", "json")
    assert result.exit_code == 2 and "finished" not in result.stderr


def test_run_with_failed_tuples_is_10_and_shows_the_first_traceback_once(job: Path) -> None:
    result = invoke(None, "run", str(job), "--bad", "3", "4", "5")
    assert result.exit_code == 10
    assert result.stderr.count("Traceback") == 1 and "number 3" in result.stderr
    assert "numbers finished" in result.stderr


def test_run_of_a_topology_that_fails_is_10_with_the_users_traceback_first(job: Path) -> None:
    result = invoke(None, "run", str(job), "--bad", "3", "--max-errors", "0")
    assert result.exit_code == 10
    assert "numbers failed" in result.stderr and "finished" not in result.stderr
    assert result.stderr.index("cli_numbers_job.py") < result.stderr.index("error: numbers failed")
    assert "elastic/worker" not in result.stderr


def test_run_that_takes_too_long_is_8(job: Path) -> None:
    result = invoke(None, "run", "--timeout", "200ms", str(job), "--count", "1000", "--pause", "0.05")
    assert result.exit_code == 8 and "had not finished" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_stop_a_run_in_order(number: signal.Signals, job: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "elastic.control.cli",
        "run",
        str(job),
        "--count",
        "100000",
        "--pause",
        "0.02",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        os.kill(process.pid, number)
        _, narration = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "everything emitted was worked off" in narration and "Traceback" not in narration


STUCK = """
import threading
from elastic import Bolt, Fields, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = Fields(n=int)
    def tuples(self):
        yield 1

inside = threading.Event()

class Stuck(Bolt):
    def execute(self, tup):
        inside.set()
        print("inside", flush=True)
        threading.Event().wait()

def topology():
    b = TopologyBuilder("stuck", stop_grace=0.1)
    b.spout("numbers", Numbers())
    b.bolt("stuck", Stuck()).shuffle("numbers")
    return b
"""


def test_a_time_that_is_over_is_8_also_when_user_code_does_not_return(job: Path) -> None:
    job.write_text(STUCK)
    result = invoke(None, "run", "--timeout", "2s", str(job))  # until then it is in there
    assert result.exit_code == 8, result.stderr
    assert "had not finished" in result.stderr and "in execute" in result.stderr


def test_ctrl_c_is_130_also_when_user_code_does_not_return(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        assert sys.modules["cli_numbers_job"].inside.wait(30)
        raise KeyboardInterrupt

    job.write_text(STUCK)
    monkeypatch.setattr(run_module, "_watch", interrupted)
    monkeypatch.setattr(run_module, "STOP_SECONDS", 0.1)
    result = invoke(None, "run", str(job))
    assert result.exit_code == 130
    assert "some of what was emitted was not worked off" in result.stderr and "in execute" in result.stderr


def test_a_second_ctrl_c_ends_at_once_and_leaves_no_files(tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    with zipfile.ZipFile(tmp_path / "stuck-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("stuck_jobs.py", STUCK)
    process = subprocess.Popen(
        [sys.executable, "-m", "elastic.control.cli", "run", str(tmp_path / "stuck-1.0-py3-none-any.whl")],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path.cwd(),
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "inside\n"
        assert process.stderr.readline().startswith("stuck "), "how it goes: it is being watched"
        assert list(scratch.glob("elastic-wheel-*"))
        os.kill(process.pid, signal.SIGINT)
        while "Ctrl-C again ends it at once" not in process.stderr.readline():
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        _, narration = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and "Ended at once" in narration
    assert not list(scratch.iterdir())


def test_ctrl_c_while_a_command_is_loaded_says_nothing(tmp_path: Path) -> None:
    """The library that every command loads first is one that Ctrl-C meets in the middle."""
    (tmp_path / "click.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('deaf')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "elastic.control.cli", "list"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path.cwd()}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_rates_between_two_measurements() -> None:
    before = {"a": {"executed": 0.0, "emitted": 100.0, "queued": 0.0}}
    now = {
        "a": {"executed": 0.0, "emitted": 300.0, "queued": 0.0},
        "b": {"executed": 50.0, "emitted": 0.0, "queued": 7.0},
    }
    assert run_module.rates(before, now, 2.0) == "a 100/s, b 25/s (7 queued)"


def test_the_same_trouble_is_told_once_and_a_flood_of_others_is_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    troubles = troubles_module.Troubles()
    for number in range(20):
        troubles.on_event(
            Event(1.0, "tuple-failed", f"message {number}", Severity.ERROR, component=f"c{number % 10}")
        )
        troubles.on_event(Event(1.0, "fine", "never told"))
    troubles.tell()
    text = capsys.readouterr().err
    assert (
        text.count("message") == troubles_module.MOST_TRACEBACKS
        and "15 more" in text
        and "never told" not in text
    )


@pytest.mark.parametrize("both", [False, True])
def test_what_has_ended_a_topology_is_told_by_whichever_news_comes(both: bool) -> None:
    troubles = troubles_module.Troubles()
    error = ExecutionError("n failed: too many", remedy="elastic errors n")
    assert troubles.explain("n", error) is error
    trace = {"traceback": "Traceback\n  File j.py, line 3\nValueError: too many"}
    troubles.on_event(Event(2.0, "topology-failed", "n has failed: too many", Severity.ERROR, details=trace))
    if both:
        failed = Event(1.0, "executor-failed", "execute() raised", Severity.ERROR, details=trace)
        troubles.on_event(failed)
    found = troubles.explain("n", error)
    assert found.message == ("n failed: execute() raised" if both else error.message)
    assert "j.py" in getattr(found, "user_traceback", "") and found.remedy == error.remedy


# ---------------------------------------------------------------------- submit


def test_submit_packs_and_sends(job: Path) -> None:
    client = FakeClient(topologies=[])
    result = invoke(client, "submit", str(job), "--count", "7")
    assert result.exit_code == 0, result.output
    assert result.stdout == "numbers\n" and "elastic top numbers" in result.stderr
    call, spec, bundle, requires = client.calls[0]
    assert call == "submit" and spec.name == "numbers" and requires == ()
    with zipfile.ZipFile(io.BytesIO(bundle)) as file:
        assert f"code/{job.name}" in file.namelist()


def test_submit_as_data_has_nothing_among_it_that_the_code_prints(job: Path) -> None:
    job.write_text(
        SOURCE + "print('loaded')\nCheck.__getstate__ = lambda self: print('packed') or vars(self)\n"
    )
    result = invoke(FakeClient(), "submit", "-o", "json", str(job))
    assert json.loads(result.stdout)["name"] == "numbers"
    assert "loaded\n" in result.stderr and "packed\n" in result.stderr


def test_submit_under_another_name_with_other_workers(job: Path) -> None:
    client = FakeClient(topologies=[])
    result = invoke(client, "submit", "--name", "other", "--workers", "3", "-o", "json", str(job))
    assert json.loads(result.stdout)["name"] == "other"
    assert client.calls[0][1].name == "other" and client.calls[0][1].workers == 3


@pytest.mark.parametrize(
    ("workers", "says"),
    [
        (1, "2 executors of it have none, and it lacks 1 slot for the 1 worker that it wants"),
        (3, "2 executors of it have none, and it lacks 2 slots for the 3 workers that it wants"),
        (9, "2 executors of it have none, and it lacks 2 slots for the 9 workers that it wants"),
    ],
)
def test_submit_says_what_it_waits_for_when_no_slot_is_free(job: Path, workers: int, says: str) -> None:
    class Full(FakeClient):
        def list(self) -> tuple[TopologySummary, ...]:
            return tuple(replace(t, executors=0, workers=0, unassigned=2) for t in super().list())

    class Alone(Full):
        def nodes(self) -> tuple[NodeSummary, ...]:
            return super().nodes()[:1]

    result = invoke(Alone(topologies=[]), "submit", "--workers", str(workers), str(job))
    assert result.exit_code == 0 and result.stdout == "numbers\n"
    assert f"numbers waits for slots: {says}. Add some: elastic nodes add 1\n" in result.stderr
    result = invoke(Full(topologies=[]), "submit", "--workers", str(workers), str(job))
    assert f"{says}. node-2 is wanted and not there yet; if that lasts, launcher.log" in result.stderr
    assert "nodes add" not in result.stderr


@pytest.mark.parametrize(
    ("executors", "free", "says"),
    [
        (6, 0, "numbers wants 9 workers, and found slots for 2. Add some: elastic nodes add 2\n"),
        (6, 1, ""),  # the scheduler would have it so
        (2, 0, "numbers wants 9 workers, and gets 2: it has 2 executors.\n"),
    ],
)
def test_submit_says_when_there_are_fewer_workers_than_wanted(
    job: Path, executors: int, free: int, says: str
) -> None:
    class Small(FakeClient):
        def list(self) -> tuple[TopologySummary, ...]:
            return tuple(replace(t, executors=executors, workers=2) for t in super().list())

        def nodes(self) -> tuple[NodeSummary, ...]:
            return tuple(replace(n, used=n.slots - free, alive=True) for n in super().nodes())

    result = invoke(Small(topologies=[]), "submit", "--workers", "9", str(job))
    assert result.exit_code == 0 and result.stdout == "numbers\n"
    assert says in result.stderr if says else "wants" not in result.stderr


@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        ("topology-finished", 0, "has finished"),
        ("topology-failed", 10, "numbers failed: gave up"),
        ("topology-killed", 6, "was killed"),
    ],
)
def test_submit_waits_for_the_end(job: Path, kind: str, code: int, says: str) -> None:
    """By the event alone: the list may still show it as active at that moment."""
    trace = {"traceback": "user's lines"}
    events = [
        Event(50.0, "topology-killed", "an earlier one", topology="numbers"),
        Event(101.0, "topology-submitted", "it runs", topology="numbers"),
        Event(101.5, "topology-finished", "of another id", topology="numbers", details={"id": "numbers-1"}),
        Event(102.0, "tuple-failed", "raised", Severity.ERROR, topology="numbers", details=trace),
        Event(102.5, "executor-failed", "gave up", Severity.ERROR, topology="numbers", details=trace),
        Event(103.0, kind, "it ended", topology="numbers", details={"id": "numbers-9"}),
    ]
    client = FakeClient(topologies=[], happened=events)
    result = invoke(client, "submit", "--wait", str(job))
    assert result.exit_code == code, result.output
    assert says in result.stderr
    assert result.stderr.index("user's lines") < result.stderr.index("raised")


def test_submit_wait_tells_warnings_that_come_later_than_the_end(job: Path) -> None:
    """They come from the workers on another way than the end, which Nimbus says itself."""
    events = [
        Event(103.0, "topology-finished", "it ended", topology="numbers"),
        Event(50.0, "input-undecodable", "of an earlier one", Severity.WARNING, topology="numbers"),
        Event(102.0, "input-undecodable", "not UTF-8", Severity.WARNING, topology="numbers"),
    ]
    result = invoke(FakeClient(topologies=[], happened=events), "submit", "--wait", str(job))
    assert result.exit_code == 0
    assert "warning: not UTF-8" in result.stderr and "earlier" not in result.stderr


def test_submit_wait_is_10_when_tuples_failed_by_the_last_reports(job: Path) -> None:
    """The workers' last reports come after the news that it has finished."""
    client = FakeClient(
        topologies=[], happened=[Event(103.0, "topology-finished", "it ended", topology="numbers")]
    )
    late = detail()
    loads = tuple(TaskLoad(n, "any", "any", finished=True) for n in range(1, late.spec.task_count + 1))
    report = WorkerReport("numbers", "w", "w#1", 103.0, 1, tasks=loads)
    last = tuple(replace(c, failed=3) for c in late.components)
    answers = [late, late, replace(late, components=last, reports=(report,))]
    client.describe = lambda name: answers.pop(0)  # type: ignore[method-assign]
    result = invoke(client, "submit", "--wait", str(job))
    assert result.exit_code == 10 and "6 tuples failed" in result.stderr


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("Nimbus is away"),
        DeadlineExceeded("Nimbus did not answer in the time given"),
        Refused("nimbus already serves 32 followed streams"),
    ],
)
def test_submit_wait_outlives_a_nimbus(
    job: Path, monkeypatch: pytest.MonkeyPatch, error: ElasticError
) -> None:
    """The stream breaks, or is not to be had, and Nimbus is away once; the end is found all the same."""
    broken: list[int] = []

    def on_event(event: Event) -> None:
        if not broken:
            broken.append(1)
            raise error

    client = FakeClient(
        topologies=[], happened=[Event(103.0, "topology-finished", "it ended", topology="numbers")]
    )
    client.on_event = on_event
    monkeypatch.setattr(submit_module.time, "sleep", lambda seconds: None)
    said: list[str] = []
    monkeypatch.setattr(submit_module.Waiting, "update", lambda waiting, what: said.append(what))
    assert invoke(client, "submit", "--wait", str(job)).exit_code == 0
    assert broken
    assert said[-2:] == [f"numbers was running; {error.message}", ""], "not for longer than it is so"


def test_submit_wait_ends_with_its_cluster(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster on this machine that does not run any more: nobody is waited for."""

    class Ending(FakeClient):
        def events(self, **_: object) -> NoReturn:
            raise Unavailable("Nimbus is away")

    clients = [Ending(topologies=[])] * 2  # to send it, and to follow it

    def connect(settings: Settings, *, timeout: float = 30.0) -> FakeClient:
        if not clients:
            addresses(settings)
        return clients.pop(0)

    monkeypatch.setattr(Settings, "connect", connect)
    monkeypatch.setattr(submit_module.time, "sleep", lambda seconds: None)
    result = invoke(None, "--home", str(job.parent / "nowhere"), "submit", "--wait", str(job))
    assert result.exit_code == 7
    assert "cluster default has ended, and numbers with it" in result.stderr


def test_submit_wait_ends_with_a_cluster_elsewhere(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Nimbus says so to who follows it."""

    class Ending(FakeClient):
        def events(self, **_: object) -> NoReturn:
            raise Ended("cluster x has ended")

    client = Ending(topologies=[])
    monkeypatch.setattr(submit_module.time, "sleep", lambda seconds: pytest.fail("it is waited for another"))
    result = invoke(client, "--address", "there:1", "submit", "--wait", str(job))
    assert result.exit_code == 7
    assert "the cluster at there:1 has ended, and numbers with it" in result.stderr


@pytest.mark.parametrize(
    ("fate", "said"),
    [("ending", "Cluster c is being ended."), ("ended", "Cluster c has ended meanwhile."), ("runs", "")],
)
def test_what_a_cluster_on_this_machine_has_come_to_is_said_with_the_error(
    tmp_path: Path, fate: str, said: str
) -> None:
    settings = Settings(home=tmp_path, cluster="c")
    (tmp_path / "c").mkdir()
    mine = procs.identity(os.getpid())
    info = ClusterInfo(
        "c", str(tmp_path / "c"), os.getpid(), mine, "zk:1", ("127.0.0.1:1",), UpOptions(), 0.0, True
    )
    write(info)
    wanted: list[ElasticError] = [
        Unavailable("no Nimbus answers"),
        NotFound("there is no node 'node-1'"),
        Refused("no"),
    ]
    for error in wanted:
        with pytest.raises(type(error)), settings.connect():
            write(replace(info, ending=fate == "ending", identity="another" if fate == "ended" else mine))
            raise error
        assert getattr(error, "__notes__", []) == ([said] if said else [])
        write(info)


def test_what_a_cluster_has_come_to_is_said_with_an_error_that_is_told_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*_: object) -> NoReturn:
        raise Refused("no")

    monkeypatch.setattr(Client, "_asked", asked)
    fates = ["It is being ended.", "It has ended."]
    with Client("127.0.0.1:1", explain=lambda: fates.pop(0)) as client:
        try:
            client.drain_node("node-1")
        except Refused as error:
            failed = error
    assert getattr(failed, "__notes__", []) == ["It is being ended."]


def test_submit_of_what_cannot_be_sent_names_the_attribute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cli_lock_job.py"
    file.write_text(
        "import threading\nfrom elastic import Spout, TopologyBuilder\n"
        "class Bad(Spout):\n    outputs = 'n'\n    def __init__(self):\n        self.door = threading.Lock()\n"
        "    def tuples(self):\n        yield 1\n"
        "def topology(args):\n    b = TopologyBuilder('bad')\n    b.spout('bad', Bad())\n    return b.build()\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    client = FakeClient()
    result = invoke(client, "submit", str(file))
    assert result.exit_code == 3 and "door" in result.stderr
    assert not client.calls, "nothing was asked of the cluster"


def test_the_bundle_that_is_sent_is_the_one_that_was_built(job: Path) -> None:
    first, second = FakeClient(topologies=[]), FakeClient(topologies=[])
    for client in (first, second):
        sys.modules.pop("cli_numbers_job", None)
        assert invoke(client, "submit", str(job)).exit_code == 0
    assert hashlib.sha256(first.calls[0][2]).digest() == hashlib.sha256(second.calls[0][2]).digest()
