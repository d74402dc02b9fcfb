"""A node's process as its host holds it: one owner, one end, and nothing left in its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import elastic
from elastic import procs


class Child:
    """A process in its own session that dies with this process. Thread-safe.

    Args:
        argv: The program, by absolute path, and its arguments.
        env: Its whole environment.
        log: File that takes its output, or "" to inherit.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: str = "") -> None:
        self._process = procs.spawn(argv, env=env, log=log or None)
        self._lock = threading.Lock()
        self._reaped = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to it, or to its whole process group; nothing when it has been waited for."""
        with self._lock:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    (os.killpg if group else os.kill)(self.pid, number)

    def wait(self) -> int:
        """Wait until it has ended, and end what is left in its process group.

        One thread does this, once. Children of its own that lead other sessions are not in the group: they
        die with it by `PR_SET_PDEATHSIG`.

        Returns:
            Its exit code; negative: the signal that ended it.
        """
        # It stays a zombie for now: its number can't be anybody else's while the group is killed.
        if hasattr(os, "waitid"):
            # Where SIGCHLD is ignored nothing is left of it by now.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.signal(signal.SIGKILL, group=True)
            with self._lock:
                self._reaped = True
                return self._process.wait()
        code = self._process.wait()
        with self._lock:
            self._reaped = True
        return code


def exit_sentence(code: int) -> str:
    """What an exit code says, for people: negative ones are signals."""
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it was ended by {name}"


def python_path(inherited: str = "") -> str:
    """A PYTHONPATH by which another Python of this machine finds this very package, before the inherited.

    An installed one is found without; naming `site-packages` would only let it hide the standard library.
    """
    here = str(Path(elastic.__file__).resolve().parent.parent)
    parts = [p for p in inherited.split(os.pathsep) if p]
    if Path(here).name not in ("site-packages", "dist-packages") and here not in parts:
        parts.insert(0, here)
    return os.pathsep.join(parts)
