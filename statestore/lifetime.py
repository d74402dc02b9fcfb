"""Child processes that end with their parent, and a server that ends with its own."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

_PR_SET_PDEATHSIG = 1


class Spawn(Protocol):
    """Starts a program that ends when this process ends, however that ends.

    Args:
        argv: The program and its arguments.
        log: File that takes stderr, and stdout when nothing else is said, appended to.
        stdout: As for `subprocess.Popen`.
        stderr: As for `subprocess.Popen`.

    Raises:
        OSError: It cannot be started.
    """

    def __call__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        log: str | os.PathLike[str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> subprocess.Popen[bytes]: ...


def spawn(
    argv: Sequence[str | os.PathLike[str]],
    *,
    log: str | os.PathLike[str] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[bytes]:
    """A plain `Spawn`. The kernel ties a child to the thread that started it: call it from one that lives long."""
    program = shutil.which(os.fspath(argv[0]))
    if program is None:
        raise FileNotFoundError(f"no such program: {os.fspath(argv[0])}")
    command = [program, *(os.fspath(a) for a in argv[1:])]
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    if setpriv is not None:
        guard = '[ "$PPID" = "$0" ] && exec "$@"'  # the parent may have died before the signal was armed
        command = [setpriv, "--pdeathsig", "KILL", "--", "/bin/sh", "-c", guard, str(os.getpid()), *command]
    file = None
    if log is not None:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        file = Path(log).open("ab", buffering=0)  # noqa: SIM115  closed below
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file if stdout is None else stdout,
            stderr=file if stderr is None else stderr,
            start_new_session=True,
        )
    finally:
        if file is not None:
            file.close()


def end(process: subprocess.Popen[bytes], grace: float) -> int:
    """Ask a child to end, wait `grace` seconds, then make it. Returns its exit code."""
    if process.poll() is None:
        process.terminate()
        try:
            return process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def die_with_parent(parent: int | None) -> None:
    """Have the kernel end this process when its parent ends; ends it at once when it has another one already.

    Args:
        parent: The parent's process id; None for the present one.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(0)
