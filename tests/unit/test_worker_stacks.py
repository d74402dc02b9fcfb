"""Stacks are told on request, whatever the threads are at, and the process goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from elastic.cluster import worker_stacks

PROGRAM = """
import signal, sys, threading
from elastic.cluster.worker_stacks import asked
from elastic.signals import insist

def compute():
    def deeper(n):
        return deeper(n - 1) if n else 0
    while True:
        deeper(50)

def wait_for_ever():
    threading.Event().wait()

insist({signal.SIGUSR1: lambda: print(asked(), file=sys.stderr, flush=True)})
for n in range(3):
    threading.Thread(target=compute, name=f"busy-{n}", daemon=True).start()
threading.Thread(target=wait_for_ever, name="idle", daemon=True).start()
print("up", flush=True)
sys.stdin.readline()  # here the main thread stays
print("goes on", flush=True)
"""


def test_all_threads_are_written_and_the_process_goes_on() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.readline() == "up\n"
        for _ in range(5):
            process.send_signal(signal.SIGUSR1)
            seen = ""
            while not all(
                f"Thread {name}:" in seen for name in ("busy-0", "busy-1", "busy-2", "idle", "MainThread")
            ):
                line = process.stderr.readline()
                assert line, f"it ended: {seen}"
                seen += line
            assert "in compute" in seen or "in deeper" in seen
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "goes on\n"
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def test_what_comes_first_costs_no_more_than_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks has reason to think that something hangs."""
    monkeypatch.setattr(worker_stacks, "FIRST", 30.0)
    release = threading.Event()

    def hangs() -> str:
        release.wait(60.0)
        return ""

    def fails() -> str:
        raise KeyError("gone")

    try:
        assert worker_stacks._within(lambda: "task 4 waits\n") == "task 4 waits\n\n"
        assert worker_stacks._within(str) == ""
        assert "gone" in worker_stacks._within(fails)
        monkeypatch.setattr(worker_stacks, "FIRST", 0.05)
        assert "does not return" in worker_stacks._within(hangs)
    finally:
        release.set()
