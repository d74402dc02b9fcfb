"""Children die with their parent, also when the thread that asked for them ended long before."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from elastic import procs

STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()"
PARENT = f"""
import sys, threading
from elastic import procs
children = []
def start():
    children.append(procs.spawn([sys.executable, "-c", {STUBBORN!r}], stdout=1))
t = threading.Thread(target=start); t.start(); t.join()
print(children[0].pid, flush=True)
children[0].wait()
"""


def ended(pidfd: int, seconds: float = 20.0) -> bool:
    return bool(select.select([pidfd], [], [], seconds)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
@pytest.mark.parametrize("setpriv", [True, False])
def test_child_of_a_short_lived_thread_lives_on_and_dies_with_the_process(setpriv: bool) -> None:
    code = (
        PARENT if setpriv else PARENT.replace("children = []", "children, procs._setpriv = [], lambda: None")
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    said = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}  # in either order
    child = os.pidfd_open(int((said - {"up"}).pop()))
    assert not ended(child, 0.0)
    parent.kill()
    parent.wait()
    assert ended(child)
    os.close(child)
    parent.stdout.close()


def test_end_asks_first_and_then_makes_it() -> None:
    polite = procs.spawn([sys.executable, "-c", "import signal; signal.pause()"])
    assert procs.end(polite, 20.0) == -signal.SIGTERM
    stubborn = procs.spawn([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    assert procs.end(stubborn, 0.1) == -signal.SIGKILL
    stubborn.stdout.close()


def test_log_takes_both_streams_and_a_missing_program_is_named(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "child.log"
    code = "import os; os.write(1, b'out'); os.write(2, b'err')"
    assert procs.spawn([sys.executable, "-c", code], log=log).wait() == 0
    assert log.read_bytes() == b"outerr"
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        procs.spawn(["no-such-program"])


def test_orphan_ends_itself() -> None:
    code = "from elastic import procs; procs.die_with_parent(1 << 30); print('still here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_identity_tells_processes_apart() -> None:
    child = procs.spawn([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        assert procs.identity(child.pid) == procs.identity(child.pid) != ""
    finally:
        procs.end(child, 20.0)
    assert procs.identity(child.pid) == ""


def test_spawning_from_many_threads() -> None:
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(procs.spawn(["true"]).wait())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 8


def test_the_first_signal_interrupts_and_the_next_ones_do_not_cut_short_what_it_set_off() -> None:
    code = """
import os, signal
from elastic import procs
procs.interrupt_once()
try:
    print('up', flush=True)
    signal.pause()
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    print('ended in order', flush=True)
"""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None and child.stdout.readline() == "up\n"
            child.send_signal(number)
            assert child.stdout.read() == "ended in order\n"
        assert child.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads which signals are waiting from /proc")
def test_what_stood_still_until_its_time_was_over_does_not_go_on() -> None:
    code = """
import os, signal, threading, time
from elastic import procs
signal.signal(signal.SIGALRM, lambda *_: None)  # as code of a topology might
procs.may_be_ended()
procs.end_at(time.monotonic() + 60)
thread = threading.Thread(target=procs.end_at, args=(time.monotonic() + 2,))
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGSTOP)
os.write(1, b"went on")
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
            status = Path(f"/proc/{child.pid}/status")
            alarm = 1 << signal.SIGALRM - 1
            deadline = time.monotonic() + 30
            while not int(status.read_text().partition("ShdPnd:")[2].split()[0], 16) & alarm:
                assert time.monotonic() < deadline, "it never comes due"
                time.sleep(0.01)  # nobody tells that a signal waits for a process that stands still
            os.kill(child.pid, signal.SIGCONT)
            out, _ = child.communicate(timeout=30)
        finally:
            child.kill()
    assert (child.returncode, out) == (-signal.SIGALRM, b"")


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nothing is known of other processes here")
@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE])
def test_a_stray_of_which_nothing_can_be_known_has_not_surely_ended(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is another user's by now, say, of whom nothing is shown."""

    def refuses(self: Path) -> bytes:
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "read_bytes", refuses)
    assert procs.end_stray(os.getpid(), "no such argument", 1.0) is False


def test_a_process_whose_name_is_cut_within_a_letter_has_an_identity() -> None:
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b'a' * 14 + b'\\xc3'); print('named', flush=True); input()"
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert procs.identity(process.pid).isdecimal()
        process.kill()
