"""A worker's threads keep to one core.

Only one of them runs Python at a time, and whoever wants the interpreter next has to be woken. On another core that takes so long
that a worker with some busy threads gets half as much done (`docs/decisions.md`, "One core for each worker"). Linux does not know that
these threads wait for each other, and spreads them.

The first worker of each core keeps to it; further ones go where there is room, as without this. Who has which core is a lock on a file:
it ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import random
import tempfile
from pathlib import Path

from elastic.api.settings import setting
from elastic.cluster.network import is_loopback
from elastic.model.topology import TopologySpec

log = logging.getLogger("elastic.worker")

_held: list[int] = []
"""Descriptors with the locks: open for as long as this process lives."""


def may_keep(spec: TopologySpec, host: str) -> bool:
    """Whether a worker that listens there should keep to one core: with record batches it computes on more than one, and of other machines
    nobody knows what else runs there."""
    vector = any(c.vector for c in spec.components)
    return bool(setting("keep_core", spec.config)) and not vector and is_loopback(host)


def keep_to_one(directory: Path | None = None) -> int | None:
    """Have this process run on a core that no other worker of this user keeps to.

    Args:
        directory: Where the locks are; without it, in a directory of this user among the temporary files.

    Returns:
        The core; None when it is any of them, as before: there is one only, all are taken, or the system does not offer this.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return None
    # Not in order: workers in containers of one machine do not see each other's locks, and must not all come to the first core.
    random.shuffle(cores)
    with contextlib.suppress(OSError):
        place = directory or Path(tempfile.gettempdir()) / f"elastic-cores-{os.getuid()}"
        place.mkdir(mode=0o700, exist_ok=True)
        if place.lstat().st_uid != os.getuid() or place.is_symlink():
            log.warning("%s is not this user's: this worker keeps to no core", place)
            return None
        for core in cores:
            lock = os.open(place / str(core), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for thread in Path("/proc/self/task").iterdir():
                    with contextlib.suppress(ProcessLookupError):  # it has just ended
                        os.sched_setaffinity(int(thread.name), {core})
            except OSError:
                os.close(lock)
                continue
            _held.append(lock)
            return core
    return None
