"""What coordinates stands behind what streams flow through, where processors are short.

A process that looks after moves wakes up hundreds of times while one goes on. On a machine whose processors are taken, each time costs a
stream its turn (docs/decisions.md, "Who goes first where processors are short").
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from elastic import procs

BEHIND = 10
"""The nice value: with it a process gets a tenth of a core that a stream wants all of, and all that nobody wants. It must not starve:
who coordinates has a session to keep alive."""


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
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(BEHIND))
