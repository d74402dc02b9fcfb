"""A worker process ends with its exit code, whatever its main thread comes to and whatever threads user code has."""

from __future__ import annotations

import queue
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import elastic.cluster.worker_main as worker_main
from elastic.coordination.base import GIVE_UP, SessionState

PROGRAM = """
import threading
import elastic.cluster.worker_main as m
import elastic.coordination.zookeeper as zookeeper
from elastic.errors import Unavailable

def load(path):  # user code that has a thread of its own, which is no daemon
    threading.Thread(target=threading.Event().wait).start()
    {loading}

def fail(*args, **more):
    {failing}

m.load_bundle = load
zookeeper.connect = fail
m.procs.die_with_parent = lambda: None
m.main("--topology t --worker t@n/0 --incarnation t@n/0#1 --store s --zookeeper x --bundle b --report-fd 1".split())
"""
CAN_T = 'raise RuntimeError("can\'t start new thread")'


def ended(loading: str, failing: str, code: int) -> str:
    """What a worker process writes to its standard error, which ends with that exit code."""
    program = PROGRAM.format(loading=loading, failing=failing)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("loading", "failing", "code", "said"),
    [
        ("pass", CAN_T, 1, "RuntimeError: can't start new thread"),
        ("pass", "raise Unavailable('no ZooKeeper')", 1, "no ZooKeeper"),
        ("pass", "raise SystemExit(0)", 1, "SystemExit"),
        ("raise ImportError('no such module')", "pass", worker_main.EXIT_BUNDLE, "no such module"),
    ],
)
def test_it_ends_although_a_thread_goes_on(loading: str, failing: str, code: int, said: str) -> None:
    assert said in ended(loading, failing, code)


@pytest.mark.parametrize(
    ("loading", "failing", "code"),
    [
        (f"{stream}.close()", failing, 1)
        for stream in ("sys.stdout", "sys.stderr")
        for failing in (CAN_T, "raise Unavailable('no ZooKeeper')")
    ]
    + [
        ("sys.stdout = sys.stderr = None", CAN_T, 1),
        ("sys.stdout = sys.stderr = object()", CAN_T, 1),
        ("sys.stderr.close(); raise ImportError('no such module')", "pass", worker_main.EXIT_BUNDLE),
    ],
)
def test_it_ends_although_user_code_has_closed_or_replaced_what_it_writes_to(
    loading: str, failing: str, code: int
) -> None:
    ended(f"import sys; {loading}", failing, code)


def test_one_that_has_given_its_session_up_ends_by_itself_before_the_kernel_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers: list[tuple[Any, ...]] = []

    def timer(*what: Any) -> Any:
        timers.append(what)
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(worker_main, "threading", SimpleNamespace(Timer=timer))
    process: Any = SimpleNamespace(
        _coordination=SimpleNamespace(session_timeout=6.0), _notices=queue.SimpleQueue()
    )
    worker_main.WorkerProcess._on_session(process, SessionState.LOST)
    ((seconds, _, (code,)),) = timers
    # It hears of it at the earliest when `GIVE_UP` of the time-out is over since the last proof; the kernel's time is the whole of it.
    assert GIVE_UP * 6.0 + seconds < 6.0
    assert code == worker_main.EXIT_SESSION
    assert process._notices.get_nowait() == "lost"
