"""What is found in the logs of a run, and what has its place there."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.logs import RUN, ended, faults
from chaos.plan import choose
from chaos.rounds import Kill
from chaos.run import Options, Run

AT = "2026-03-01 10:00:00,123"
TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1\nKeyError: 1\n'
AGAIN = f"\nDuring handling of the above exception, another exception occurred:\n\n{TRACE}"


@pytest.mark.parametrize(
    ("log", "line", "says"),
    [
        (f"{AT} ERROR elastic.nimbus: reconciling failed\n{TRACE}", 2, "reconciling failed"),
        (f"{AT} ERROR elastic.nimbus: reconciling failed\n{TRACE}{AGAIN}", 2, "reconciling failed"),
        (f"{AT} INFO elastic.nimbus: taken up anew: a fault in elastic: no such\n", 1, "a fault in elastic"),
        (f"{AT} WARNING x: y\nException in thread Thread-1:\n{TRACE}", 2, "Exception in thread"),
        (
            'Exception in thread "hz.gnu.cached.thread-5" java.util.concurrent.RejectedExecutionException: x\n',
            0,
            "",
        ),
        (
            'Exception in thread "hz.gnu.cached.thread-5" java.lang.NullPointerException: x\n',
            1,
            "NullPointer",
        ),
        (TRACE, 1, "Traceback"),
        (f"{AT} WARNING x: y\n{TRACE}elastic.errors.ProtocolViolation: z\n", 5, "ProtocolViolation"),
        (f"{AT} ERROR kazoo.client: the connection has broken\n{TRACE}", 0, ""),
        (f"{AT} WARNING elastic.worker: task 3 is not saved: its store has died\n{TRACE}{AGAIN}", 0, ""),
        (f"{AT} ERROR elastic.worker: state-lost: it starts empty\n", 0, ""),
        (f"{AT} ERROR elastic.nimbus: reconciling failed\nTraceback (most rec", 0, ""),
    ],
)
def test_a_fault_that_was_told_nobody_is_found_by_file_and_line(
    tmp_path: Path, log: str, line: int, says: str
) -> None:
    (tmp_path / RUN).write_text(f"12:00:00 {TRACE}{TRACE}")
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "nimbus-1.log").write_text(log)
    found = list(faults(tmp_path))
    assert len(found) == bool(line)
    assert all(f.startswith(f"h/nimbus-1.log:{line}: ") and says in f for f in found)


def frozen(*, really: bool) -> list[Kill]:
    round = choose(1, 1, cost=True, hazelcast=False, frozen=True)
    return [Kill(dataclasses.replace(round, frozen=really))]


@pytest.mark.parametrize(
    ("line", "wrong", "when_frozen"),
    [
        ("nimbus-2: it was ended by signal 9", False, False),
        ("nimbus-2: it was ended by signal 11", True, True),
        ("nimbus-2: it ended with exit code 1", True, True),
        ("nimbus-2: it ended with exit code 4", True, False),
        ("zookeeper: it ended with exit code 1", True, True),
        ("node node-3, generation 2: it was ended by SIGKILL", False, False),
        ("node node-3, generation 2: it was ended by SIGSEGV", True, True),
        ("node node-3, generation 2: it ended with exit code 4", True, False),
        ("node node-3, generation 2: it ended with exit code 11", True, True),
        ("node node-4, generation 2: it ended with exit code 4", True, False),
        ("the launcher's session with ZooKeeper is lost; it opens another", False, False),
    ],
)
def test_who_ends_unasked_and_was_not_killed_is_found(
    tmp_path: Path, line: str, wrong: bool, when_frozen: bool
) -> None:
    log = tmp_path / "launcher.log"
    log.write_text(f"{AT} WARNING elastic.cluster.running: {line}\n")
    assert len(list(ended(log, [], frozen(really=False)))) == wrong
    assert len(list(ended(log, [], frozen(really=True)))) == when_frozen
    when_cut_off = wrong and not ("node-3" in line and "exit code" in line)
    assert len(list(ended(log, [], [], ["node-3"]))) == when_cut_off


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        ("it was ended by signal 9", False),
        ("its Hazelcast member was ended by signal 9", False),
        ("it was ended by signal 11", True),
        ("it ended with exit code 1", True),
        ("its Hazelcast member ended with 1", True),
        ("it could not be started: no port is free", False),
    ],
)
def test_a_state_store_that_ends_unasked_and_was_not_killed_is_found(
    tmp_path: Path, reason: str, wrong: bool
) -> None:
    (tmp_path / "launcher.log").touch()
    event: dict[str, Any] = {"kind": "store-lost", "message": "x", "details": {"reason": reason}}
    assert len(list(ended(tmp_path / "launcher.log", [event], []))) == wrong


@pytest.mark.parametrize("apart", [False, True])
def test_a_run_looks_through_its_logs_wherever_its_launcher_notes_down(tmp_path: Path, apart: bool) -> None:
    run = Run(Options(directory=str(tmp_path)))
    home = tmp_path / "h"
    home.mkdir()
    cluster: Any = SimpleNamespace(options=SimpleNamespace(directory=home), events=list)
    if apart:
        (home / "launcher.log").write_text(f"{AT} WARNING x: nimbus-2: it ended with exit code 1\n")
    else:
        run.say("    chaos itself: nimbus-2: it ended with exit code 1")
    (home / "supervisor.log").write_text(TRACE)
    run._look_through(cluster)
    ending, fault = run.wrong
    assert ending.startswith("nimbus-2: it ended with exit code 1") and fault.startswith(
        "h/supervisor.log:1: "
    )
