"""What coordinates stands behind what streams flow through, where processors are short.

A process that looks after moves wakes up hundreds of times while one goes on. On a machine whose processors are taken, each time costs a
stream its turn (docs/decisions/data-path.md, "Who goes first where processors are short").
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from elastic import procs

BEHIND = 10
"""The nice value: with it a process gets a tenth of a core that a stream wants all of, and all that nobody wants. It must not starve:
who coordinates has a session to keep alive."""

A_LITTLE = 5
"""That of what others wait for, but not most of the time: a third of a core that a stream wants all of."""
AGAIN, TRIES = 0.1, 10
"""Seconds, at least, before a session's nice value is set once more where that was refused as too early; and how often, at most."""
_BEHIND = '{ echo "$0" > /proc/self/autogroup; } 2>/dev/null; exec nice -n "$0" "$@"'


def behind_streams() -> None:
    """Have this process stand behind others from now on: the calling thread, and threads that it starts after this.

    To be called by a process's main thread before it has others. Programs that `elastic.procs` starts are not behind. Where the system
    refuses it, nothing changes.
    """
    if sys.platform != "linux":
        return
    procs.begin()  # the thread that starts programs: they have the priority of the thread that starts them
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(BEHIND, os.getpriority(os.PRIO_PROCESS, 0)))
    if os.getsid(0) == os.getpid():
        # With autogroups processes of different sessions are weighed against each other by the session's own nice value alone.
        _session_behind()


def _session_behind(group: Path = Path("/proc/self/autogroup")) -> threading.Thread | None:
    """Users other than root may do this once in a tenth of a second, all of them together: who comes too early tries again, beside its
    work.
    """

    def done() -> bool:
        try:
            group.write_text(str(BEHIND))
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def again() -> None:
        for tried in range(1, TRIES):
            time.sleep(AGAIN * (tried + random.random()))  # nothing tells when it may be done
            if done():
                return

    if done():
        return None
    thread = threading.Thread(target=again, name="session-priority", daemon=True)
    thread.start()
    return thread


def a_little_behind(argv: Sequence[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    """The command with which a program stands a little behind streams: the same one, where the system does not provide for that.

    Args:
        argv: The program and its arguments; to be started in a session of its own.
    """
    if sys.platform != "linux" or not shutil.which("nice") or not shutil.which(argv[0]):
        return list(argv)
    return ["/bin/sh", "-c", _BEHIND, str(A_LITTLE), *argv]
