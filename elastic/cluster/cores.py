"""A worker's threads keep to one core.

Only one of them runs Python at a time, and whoever wants the interpreter next has to be woken. On another core that takes so long
that a worker with some busy threads gets half as much done (`docs/decisions/data-path.md`, "One core for each worker"). Linux does not
know that these threads wait for each other, and spreads them.

The first worker of each core keeps to it; further ones go where there is room, as without this. Who has which core is a name among the
system's sockets (abstract ones): it ends with its process, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import NamedTuple

from elastic.api.settings import setting
from elastic.cluster.network import is_loopback
from elastic.model.topology import TopologySpec

NEVER, ALWAYS, ALONE = 0, 1, 2
"""The setting `keep_core`."""
_PASSES = 8
"""So often it is looked for threads that were just being started, at most."""


def how(spec: TopologySpec, host: str) -> int:
    """When a worker that listens there is to keep to one core: with record batches it computes on more than one, and of other machines
    nobody knows what else runs there."""
    vector = any(c.vector for c in spec.components)
    return NEVER if vector or not is_loopback(host) else int(setting("keep_core", spec.config))


class _Held(NamedTuple):
    """A core that is kept to.

    Attributes:
        lock: Has the core's name.
        before: Where threads ran before.
        since: Clock ticks from the start of the system until then.
        own: Threads that run Python and had cores of their own.
    """

    core: int
    lock: socket.socket
    before: frozenset[int]
    since: int
    own: frozenset[int]


class Core:
    """The core that this process keeps to, if it does. Thread-safe.

    Args:
        name: Which others look for cores beside this one; without it, all of this user's workers.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._left: list[_Held] = []  # what was kept to, and may still be by what was started meanwhile

    @property
    def kept(self) -> int | None:
        """The core, while one is kept to."""
        held = self._held
        return None if held is None else held.core

    @property
    def others(self) -> frozenset[int]:
        """The cores that this process could run on as well, while one is kept to."""
        held = self._held
        return frozenset() if held is None else held.before - {held.core}

    def keep(self, used: Mapping[int, float] | None = None) -> int | None:
        """Have this process run on a core that no other worker of this user keeps to: all threads that run Python, but those that have
        cores of their own.

        Args:
            used: How much of each core is used, as far as that is known: the one with most room comes first.

        Returns:
            The core; None when it is any of them, as before: there is one only, all are taken, or the system does not offer this.
        """
        if not hasattr(os, "sched_setaffinity"):
            return None
        with self._lock:
            if self._held is not None:
                return self._held.core
            before = frozenset(os.sched_getaffinity(0))
            if len(before) < 2:
                return None
            # Not in order: workers in containers of one machine do not see each other's locks, and must not all come to the first core.
            cores = random.sample(sorted(before), len(before))
            for core in sorted(cores, key=lambda c: (used or {}).get(c, 0.0)):
                lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                try:
                    lock.bind(f"\0{self._name or f'elastic-{os.getuid()}'}-core-{core}")
                    since = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
                    own = _put(before, core)
                except OSError:
                    lock.close()
                    continue
                self._held = _Held(core, lock, before, since, own)
                return core
            return None

    def leave(self) -> None:
        """Have the threads that run Python run on any core again. For all else there is `tidy`."""
        with self._lock:
            if self._held is None:
                return
            held, self._held = self._held, None
            with contextlib.suppress(OSError):  # the cores of before are not for this process any more
                for thread in _python() - held.own:
                    _change(thread, {held.core}, held.before)
            self._left.append(held)
            held.lock.close()

    def tidy(self) -> None:
        """Have programs and threads of libraries that were started while a core was kept to run on any core, and when none is kept to any
        more, threads that run Python as well.

        It may take a second where threads compute: it is not for who is in a hurry.
        """
        with self._lock:
            held = self._held
            left, self._left = self._left, []
        own = frozenset(thread for one in left for thread in one.own)
        if held is not None:
            left, own = [*left, held], own | held.own | _python()
        for one in left:
            with contextlib.suppress(OSError):  # the cores of before are not for this process any more
                _tidy(one, own)
        with self._lock, contextlib.suppress(OSError):
            if held is not None and self._held is held:
                # A thread that was not yet known to run Python belongs there, too.
                _put(held.before, held.core)


def _python() -> set[int]:
    """Threads that run Python."""
    return {t.native_id for t in threading.enumerate() if t.native_id is not None}


def _put(before: frozenset[int], core: int) -> frozenset[int]:
    """Have the threads that run Python run on that core, if they run on just those. Which have others.

    What is asked here of the system keeps the interpreter. Who gives it away beside threads that compute gets it back after a switch
    interval, and listing threads from /proc gives it away for each of them: that took 50 to 100 ms, in which half of the threads ran on
    the core and half did not.

    Raises:
        OSError: This core is not for this process.
    """
    put: set[int] = set()
    own: set[int] = set()
    for _ in range(_PASSES):
        new = _python() - put - own
        if not new:
            break
        for thread in new:
            (put if _change(thread, before, {core}) else own).add(thread)
    return frozenset(own)


def _change(thread: int, present: Set[int], wanted: Set[int]) -> bool:
    """Have a thread run on those cores, if it runs on just the present ones. Whether it does.

    Raises:
        OSError: These cores are not for this process.
    """
    # It may have just ended, or be another user's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.sched_getaffinity(thread) == present:
            os.sched_setaffinity(thread, wanted)
            return True
    return False


def _tidy(held: _Held, own: frozenset[int]) -> None:
    for _ in range(_PASSES):
        changed = False
        threads = _threads("self")
        threads += [t for thread in threads for child in _children(thread) for t in _threads(child)]
        for thread in threads:
            if _cores_of(thread) == {held.core} and int(thread) not in own and _began(thread) >= held.since:
                changed |= _change(int(thread), {held.core}, held.before)
        if not changed:
            return


def _began(thread: str) -> int:
    """When a thread was started, in clock ticks from the start of the system; 0: it has ended."""
    try:
        return int(Path(f"/proc/{thread}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _cores_of(thread: str) -> set[int]:
    try:
        return os.sched_getaffinity(int(thread))
    except OSError:
        return set()


def _threads(process: str) -> list[str]:
    try:
        return [t.name for t in Path(f"/proc/{process}/task").iterdir()]
    except OSError:
        return []


def _children(thread: str) -> list[str]:
    try:
        return Path(f"/proc/self/task/{thread}/children").read_text().split()
    except OSError:
        return []
