"""Signals are heard when they come, also just before the main thread begins to wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from elastic.signals import POKE, insist, poked

PROGRAM = """
import os, queue, random, signal, sys, threading, time
from elastic.queues import take
from elastic.signals import insist

way, rounds, patience = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
if hasattr(os, "sched_setaffinity"):  # whoever sends it goes first as soon as the main thread lets go of the interpreter, before it waits
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
heard, go = queue.SimpleQueue(), threading.Event()
if way != "told":
    signal.signal(signal.SIGTERM, lambda *_: heard.put(None))
if way != "alone":
    insist({signal.SIGTERM: lambda: heard.put(None)} if way == "told" else {})

def send():
    moments = random.Random(1)
    while True:
        go.wait()
        go.clear()
        at = time.perf_counter() + moments.random() * 5e-5
        while time.perf_counter() < at:
            pass
        os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=send, daemon=True).start()
late = 0
for _ in range(rounds):
    go.set()
    try:
        take(heard, patience)
    except queue.Empty:
        late += 1
        while heard.empty():
            time.sleep(0.001)
        heard.get()
print(late)
"""
"""A thread sends a signal at the very moment at which the main thread begins to wait for it; says how many were heard too late."""


def late(way: str, rounds: int, patience: float) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, way, str(rounds), str(patience)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.parametrize("way", ["insists", "told"])
def test_none_is_heard_only_at_the_end_of_a_wait(way: str) -> None:
    assert [late(way, 500, 50.0) for _ in range(3)] == [0, 0, 0]


def test_one_that_is_heard_too_late_is_found() -> None:
    """Planted fault: Python alone."""
    assert any(late("alone", 100, 0.2) for _ in range(30))


def test_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGUSR2, POKE)]
    came = threading.Event()
    undo = insist({signal.SIGUSR2: came.set})
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert came.wait(30)
    finally:
        undo()
    assert [signal.getsignal(n) for n in (signal.SIGUSR2, POKE)] == before
    assert signal.set_wakeup_fd(-1) == -1


FORKS = """
import os, signal, sys
from elastic.signals import insist
heard = []
insist({signal.SIGTERM: lambda: heard.append("told")})
child = os.fork()
if not child:
    signal.alarm(3)
    while True:
        signal.pause()
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
insist({signal.SIGUSR2: lambda: print(heard, flush=True) or os._exit(0)})
os.kill(os.getpid(), signal.SIGUSR2)
signal.pause()
"""


def forks(before: str = "") -> str:
    done = subprocess.run([sys.executable, "-c", before + FORKS], capture_output=True, text=True, timeout=60)
    return done.stdout


def test_what_is_sent_to_a_forked_process_concerns_that_alone() -> None:
    assert forks() == "-15\n[]\n"


def test_what_a_forked_process_tells_its_parent_is_found() -> None:
    """Planted fault: nothing is done where a process is forked."""
    assert forks("import os\nos.register_at_fork = lambda **_: None\n") == "-14\n['told']\n"


def test_handlers_and_what_is_told_are_both_called() -> None:
    before, came, called = signal.getsignal(signal.SIGUSR2), threading.Event(), threading.Event()
    signal.signal(signal.SIGUSR2, lambda *_: called.set())
    undo = insist({signal.SIGUSR2: came.set})
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert came.wait(30) and called.wait(30)
    finally:
        undo()
        signal.signal(signal.SIGUSR2, before)


def test_what_a_handler_raises_ends_a_wait() -> None:
    code = """
import signal, threading
from elastic import procs
procs.interrupt_once()
try:
    print("up", flush=True)  # from here on it may come
    threading.Event().wait()
except KeyboardInterrupt:
    print("heard", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.read() == "heard\n"
    assert child.returncode == 0


def test_what_the_handler_before_has_raised_goes_on_its_way() -> None:
    """As CPython does it, seldom, when another handler's exception is on its way: what is called here is blamed for it."""

    def blamed(_: None) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt("that")

    with pytest.raises(KeyboardInterrupt, match="that"):
        poked(blamed)

    def broken(_: None) -> None:
        raise SystemError("something else")

    with pytest.raises(SystemError, match="something else"):
        poked(broken)
