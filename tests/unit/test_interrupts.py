"""A process that Ctrl-C ends has its own exit code, also when it came while a text was executed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from elastic.control.cli import interrupts
from elastic.control.cli.interrupts import heard

ROOT = Path(__file__).parents[2]
INTERRUPT = 'exec("import signal; signal.raise_signal(signal.SIGINT)")'
COMMAND_LINE = f"""
import sys
from elastic.control.cli.interrupts import heard
try:
    with heard():
        {INTERRUPT}
except KeyboardInterrupt:
    sys.exit(130)
"""
DEMONSTRATION = f"""
import sys
from examples.demo.stage import Story, perform
def body(home):
    {INTERRUPT}
sys.exit(perform("test", body, Story()))
"""
FOLLOWING = """
import signal, sys, threading
from concurrent import futures
import grpc
from elastic.control.cli import interrupts

interrupts._MOST = int(sys.argv[1])
over = threading.Event()

class Follow(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_stream_rpc_method_handler(self.follow)

    def follow(self, request, context):
        context.add_callback(over.set)
        yield b"one"
        over.wait(60)

class Asking:
    def __init__(self, call):
        self.call = call

    def operate(self, *args):  # in gRPC's books what comes next is expected by now, but has not been asked for
        signal.raise_signal(signal.SIGINT)
        return self.call.operate(*args)

    def __getattr__(self, name):
        return getattr(self.call, name)

server = grpc.server(futures.ThreadPoolExecutor(1), handlers=(Follow(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
try:
    with interrupts.heard():
        stream = channel.unary_stream("/any/Follow")(b"")
        assert next(stream) == b"one"
        watching = [t for t in threading.enumerate() if "_run" in t.name]
        stream._call = Asking(stream._call)
        next(stream)
except KeyboardInterrupt:
    print("interrupted")
channel.close()
server.stop(0).wait(60)
for thread in watching:
    thread.join(60)
print(len(watching))
"""


def ends_with(code: str, directory: Path) -> int:
    """As a module: it is with `-m` that Python ends by the signal."""
    (directory / "interrupted.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "interrupted"],
        env={"TMPDIR": str(directory), "PYTHONPATH": f"{directory}:{ROOT}"},
        timeout=60,
        capture_output=True,
    ).returncode


def test_the_command_line_ends_with_130(tmp_path: Path) -> None:
    assert ends_with(COMMAND_LINE, tmp_path) == 130


def test_a_demonstration_ends_with_130(tmp_path: Path) -> None:
    assert ends_with(DEMONSTRATION, tmp_path) == 130


def following(tmp_path: Path, put_off: int) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", FOLLOWING, str(put_off)],
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        timeout=120,
        capture_output=True,
        text=True,
    )
    return done.stdout, done.stderr


def test_what_follows_a_stream_is_interrupted_where_grpc_waits(tmp_path: Path) -> None:
    said, error = following(tmp_path, 3)
    assert said == "interrupted\n1\n" and not error


def test_an_interrupt_amid_what_grpc_writes_down_is_found(tmp_path: Path) -> None:
    """Planted fault: its thread sees the end of the channel with a call that never came to one."""
    said, error = following(tmp_path, 0)
    assert said == "interrupted\n1\n" and "Traceback" in error


def test_what_was_put_off_comes_at_the_end_at_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_AGAIN", 3600.0)
    monkeypatch.setattr(interrupts, "_finalises", lambda frame: True)
    began = threading.active_count()
    with pytest.raises(KeyboardInterrupt), heard():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(ValueError, match="its own"), heard():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("its own")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for thread in threading.enumerate()[began:]:
        thread.join(30)
        assert not thread.is_alive()


def test_what_is_not_forgotten_is_found(tmp_path: Path) -> None:
    """Planted fault: Python ends by the signal then, whatever the exit code."""
    forgets_not = "from elastic import interrupts\ninterrupts.forget = lambda: None\n"
    assert ends_with(forgets_not + COMMAND_LINE, tmp_path) == -signal.SIGINT
    assert ends_with(forgets_not + DEMONSTRATION, tmp_path) == -signal.SIGINT


AT_THE_LAST = """
import os, signal, sys
from elastic.control.cli import main

class Last:
    def __del__(self, kill=os.kill, me=os.getpid(), number=int(sys.argv.pop())):
        kill(me, number)

last = Last()
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_when_a_command_has_done_its_work_changes_nothing(number: int, tmp_path: Path) -> None:
    """Python has put back by then what the system does with a signal: it ends the process."""
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_LAST, "version", str(int(number))],
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


LOADING = """
import signal
from elastic.control.cli.interrupts import hasten
hasten()
signal.raise_signal(signal.SIGTERM)
"""


def test_sigterm_while_a_command_is_loaded_is_as_ctrl_c(tmp_path: Path) -> None:
    assert ends_with(LOADING, tmp_path) == 130


TERMINATED = """
import signal, sys, threading
from elastic.control.cli import interrupts

signal.signal(signal.SIGINT, signal.SIG_IGN)
times = iter([True])
interrupts._within_call = lambda frame: next(times, False)
try:
    with interrupts.heard():
        signal.raise_signal(signal.SIGTERM)
        threading.Event().wait(60)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_sigterm_that_is_put_off_comes_where_sigint_is_ignored() -> None:
    """As a shell has it ignored by whatever a script begins in the background."""
    done = subprocess.run([sys.executable, "-c", TERMINATED], env={"PYTHONPATH": str(ROOT)}, timeout=50)
    assert done.returncode == 130


WAITING = """
import signal, sys, threading
from elastic.control.cli import interrupts

interrupts._MOST = int(sys.argv[1])
condition = threading.Condition()
let_go, times = condition._release_save, iter([True])

def release():
    saved = let_go()
    if next(times, False):
        signal.raise_signal(signal.SIGINT)
    return saved

condition._release_save = release
try:
    with interrupts.heard(), condition:
        condition.wait(60)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize(("put_off", "code"), [(3, 130), (0, 1)])
def test_an_interrupt_just_as_a_wait_begins_is_no_error_of_its_lock(put_off: int, code: int) -> None:
    """It has let go of its lock, and does not wait yet. Planted fault: it is not put off."""
    done = subprocess.run(
        [sys.executable, "-c", WAITING, str(put_off)],
        env={"PYTHONPATH": str(ROOT)},
        timeout=50,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code and ("RuntimeError" in done.stderr) is (code == 1), done.stderr
