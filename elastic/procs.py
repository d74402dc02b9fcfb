"""Child processes that do not outlive their parent.

`spawn` starts any program so that the kernel kills it when this process ends, however it ends (Linux:
`PR_SET_PDEATHSIG`). The kernel ties that signal to the *thread* that forked, not to the process, so all
children are forked by one thread that lives as long as the process: `spawn` may be called from any thread,
also from one that ends soon.

The signal is armed before the program runs, by `setpriv`, and a line of shell then compares the parent, so
that a parent which died in between is noticed. This keeps `subprocess` on `vfork`: a plain `fork` (which
`preexec_fn` needs) would run gRPC's fork handlers in processes that have gRPC loaded. `preexec_fn` is the
fallback where `setpriv` is missing.

A Python program may call `die_with_parent()` first thing in its main as well: it arms the signal again for
those that were started by something else, and ends at once when the parent is already gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import IO

from elastic.handles import readable
from elastic.signals import insist

PARENT_VARIABLE = "ELASTIC_PARENT_PID"
"""Tells a child made by `spawn` whose child it is."""

_PR_SET_PDEATHSIG = 1
_MOMENT = 0.02
_SAME_PARENT = '[ "$PPID" = "$0" ] && exec "$@"'


def spawn(
    argv: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    log: str | os.PathLike[str] | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    pass_fds: Collection[int] = (),
    cwd: str | os.PathLike[str] | None = None,
    new_session: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a program that the kernel ends when this process ends.

    Args:
        argv: The program (an absolute path, or found on PATH) and its arguments.
        env: Its whole environment; None for this process's.
        log: File that takes stdout and stderr, appended to; its directory is made. `stdout` and `stderr`,
            when given, win.
        stdin: As for `subprocess.Popen`; nothing by default.
        stdout: As for `subprocess.Popen`.
        stderr: As for `subprocess.Popen`.
        pass_fds: File descriptors that stay open in the child, under the same numbers.
        cwd: Where it runs.
        new_session: Away from the terminal, so that Ctrl-C reaches only the parent, which then ends its
            children in order.

    Returns:
        The process; whoever called owns it, ends it and waits for it.

    Raises:
        OSError: The program cannot be started.
    """
    program = shutil.which(os.fspath(argv[0]))
    if program is None:
        raise FileNotFoundError(f"no such program: {os.fspath(argv[0])}")
    command = [program, *(os.fspath(a) for a in argv[1:])]
    environment = dict(os.environ if env is None else env)
    environment[PARENT_VARIABLE] = str(os.getpid())
    preexec: Callable[[], None] | None = None
    if sys.platform == "linux":
        setpriv = _setpriv()
        if setpriv:
            guard = ["--", "/bin/sh", "-c", _SAME_PARENT, str(os.getpid())]
            command = [setpriv, "--pdeathsig", "KILL", *guard, *command]
        else:
            preexec = functools.partial(_arm, _libc(), os.getpid())

    def start() -> subprocess.Popen[bytes]:
        out: int | IO[bytes] | None = stdout
        err: int | IO[bytes] | None = stderr
        with contextlib.ExitStack() as stack:
            if log is not None:
                Path(log).parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(Path(log).open("ab", buffering=0))
                out, err = file if out is None else out, file if err is None else err
            return subprocess.Popen(
                command,
                env=environment,
                stdin=stdin,
                stdout=out,
                stderr=err,
                pass_fds=tuple(pass_fds),
                cwd=cwd,
                start_new_session=new_session,
                preexec_fn=preexec,
            )

    return _spawner().run(start)


def end(process: subprocess.Popen[bytes], grace: float) -> int:
    """Ask a child to end (SIGTERM), wait `grace` seconds, then make it (SIGKILL). Returns its exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            return process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def interrupt_once() -> None:
    """Have SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread: the first of them, and none after it.

    For programs that start a cluster and have to end it whatever ends them: what the first signal sets off is not cut short by
    the next one.
    """
    caught = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal caught
        first, caught = not caught, True
        if first:
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    insist()


def end_stray(pid: int, word: str, timeout: float) -> bool:
    """See to the end of a process that somebody else has started, on this machine, and wait for it.

    Args:
        pid: Its number, which may be another process's by now.
        word: One of its arguments, which no other process has.
        timeout: Seconds that it may take.

    Returns:
        Whether it has surely ended.
    """
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        deadline = time.monotonic() + timeout
        # Empty while it is changing from one program to the next, and when it has ended.
        while not (command := Path(f"/proc/{pid}/cmdline").read_bytes()):
            if _ended(handle, _MOMENT) or time.monotonic() >= deadline:
                return _ended(handle, 0.0)
        if word.encode() not in command.split(b"\0"):  # the number is somebody else's by now
            return True
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return _ended(handle, max(0.0, deadline - time.monotonic()))
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:  # of another user's, or no more files can be opened: nothing is known of it
        return False
    finally:
        os.close(handle)


def _ended(handle: int, timeout: float) -> bool:
    return bool(readable([handle], timeout))


def die_with_parent(parent: int | None = None, signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when its parent ends; ends it at once when the parent is already gone.

    Args:
        parent: The parent's process id; None for what `spawn` said, or else the present parent.
        signal_number: What the kernel sends then.
    """
    if parent is None:
        parent = int(os.environ.pop(PARENT_VARIABLE, "") or os.getppid())  # not for grandchildren to inherit
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def identity(pid: int) -> str:
    """Tells a process from a later one with the same number: its start time as the system writes it.

    Returns:
        "" when there is no such process, or it has ended and only waits to be reaped.
    """
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] in "ZX" else fields[19]
    ask = ["ps", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    return done.stdout.strip()


_Start = Callable[[], subprocess.Popen[bytes]]


class _Spawner:
    """The thread that forks. It is never ended: the kernel would take that for the death of the parent."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="elastic-spawn", daemon=True).start()

    def run(self, start: _Start) -> subprocess.Popen[bytes]:
        future: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((start, future))
        return future.result()

    def _work(self) -> None:
        while True:
            start, future = self._jobs.get()
            try:
                future.set_result(start())
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller, whatever it is
                future.set_exception(error)
            del start, future


_lock = threading.Lock()
_instance: _Spawner | None = None


def begin() -> None:
    """Start the thread that starts programs, if there is none yet: what it inherits from this one, they do too."""
    _spawner()


def _spawner() -> _Spawner:
    global _instance
    with _lock:
        if _instance is None:
            _instance = _Spawner()
        return _instance


def _forget() -> None:
    """In a forked child the thread is gone, and the lock may have been held."""
    global _instance, _lock
    _instance, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def may_be_ended() -> None:
    """Let `end_at` do what it says, whatever was set for its signal before. On the main thread."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})


def end_at(deadline: float) -> None:
    """Have the kernel end this process with SIGALRM at that time (monotonic), and no more at one that was said before. From any thread.

    Nothing in the process has to run for that. Where it stands still until after that time (it was stopped, got no processor, a thread
    kept the interpreter to itself), it does not go on: the signal comes before anything else does.
    """
    signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 1e-6))


@functools.cache
def _setpriv() -> str | None:
    """Path of a `setpriv` that knows `--pdeathsig` (busybox's does not)."""
    path = shutil.which("setpriv")
    if path is None:
        return None
    done = subprocess.run([path, "--pdeathsig", "KILL", "--", "true"], capture_output=True, check=False)
    return path if done.returncode == 0 else None


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _arm(libc: ctypes.CDLL, parent: int) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
