"""When a worker keeps to a core by itself.

As long as the system's own counts show that it loses nothing by it: it computes, on one core, and nobody else wants that core while another
one has room. While something moves it is done anyway, for a while: its processor's time is what everybody waits for then. Programs, and
threads of libraries, that are started meanwhile run anywhere soon.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from elastic.cluster.cores import Core
from elastic.machine import busy_by_core

LONGEST = 30.0
"""Seconds that a worker keeps to a core because of moves: a move that waits may last, and others may use that core."""
ONE = 1.25
"""Cores that a worker uses at most while its threads wait for each other. One that uses more computes without the interpreter."""
COMPUTES = 0.1
IDLE = 0.05
"""Cores that a worker uses at least to keep to one, and to go on to: cores are for those that compute."""
SHARED = 0.25
"""Of a core: as much by others, while another core has more room by as much, and it is left."""
AGAIN, LATEST = 10.0, 300.0
"""Seconds until it is tried again then; twice as many each time, at most so many."""
FULL = 0.9
LOOK, LOOK_LATEST = 4.0, 64.0
"""A worker that has used so much of the core that it keeps to for so many seconds is let go, to see whether it would use more than one. If
not, it is let go again after twice as many, at most so many."""
SPAN = 0.5
"""Seconds that what is used is counted over, at least: the system counts in hundredths."""
TIDY = 10.0
"""Seconds after which it is looked for programs and threads that were started meanwhile, at the latest."""


class _Sample(NamedTuple):
    """What was counted at a time.

    Attributes:
        time: Monotonic seconds.
        used: Seconds of processor time of this process.
        busy: As `machine.busy_by_core` tells.
    """

    time: float
    used: float
    busy: dict[int, float]


class Keeping:
    """Has a worker keep to a core while that is better for it. Thread-safe.

    Args:
        core: None: it does not.
        clock: Monotonic seconds.
        used: Seconds of processor time that this process has used.
        busy: Seconds that each core has computed.
    """

    def __init__(
        self,
        core: Core | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
        busy: Callable[[], dict[int, float]] = busy_by_core,
    ) -> None:
        self._core, self._clock, self._used, self._busy = core, clock, used, busy
        self._lock = threading.Lock()
        self._moving = 0.0  # since when something moves; 0: nothing does
        self._sample = self._count()
        self._cores = 0.0  # how many this process used when it kept to none
        self._since = 0.0  # since when it keeps to one
        self._full = 0.0  # since when it has all of it
        self._look = LOOK
        self._again = -math.inf  # when that may be tried next
        self._hold = AGAIN
        self._tidied = clock()

    def measure(self) -> None:
        """To be called about once a second: looks at what this process and others use."""
        if self._core is None:
            return
        with self._lock:
            before, now = self._sample, self._count()
            span = now.time - before.time
            if span < SPAN:
                return
            self._sample = now
            cores = (now.used - before.used) / span
            used = {c: (seconds - before.busy.get(c, 0.0)) / span for c, seconds in now.busy.items()}
            kept = self._core.kept
            if kept is None:
                self._cores = cores
                if COMPUTES <= cores <= ONE and now.busy and now.time >= self._again:
                    self._keep(now.time, used)
            elif not self._moves(now.time) and not self._is_better(kept, cores, used, now.time):
                self._core.leave()
            tidy = self._core.kept is None or now.time - self._tidied >= TIDY
            if tidy:
                self._tidied = now.time
        if tidy:
            self._core.tidy()

    def moving(self, moving: bool) -> None:
        """Whether something moves."""
        with self._lock:
            if self._core is None:
                return
            now = self._clock()
            if not moving:
                self._moving = 0.0
                if not self._sample.busy:  # nobody knows whether others want it
                    self._core.leave()
            elif not self._moving:
                self._moving = now
                if self._cores <= ONE and self._core.kept is None:
                    self._keep(now)

    def _keep(self, now: float, used: Mapping[int, float] | None = None) -> None:
        assert self._core is not None
        if self._core.keep(used) is not None:
            self._since = self._full = now

    def _moves(self, now: float) -> bool:
        return bool(self._moving) and now - self._moving <= LONGEST

    def _is_better(self, core: int, cores: float, used: Mapping[int, float], now: float) -> bool:
        """Whether it goes on keeping to that core."""
        if not used or cores < IDLE:
            return False
        assert self._core is not None
        rest = [used[other] for other in self._core.others if other in used]
        mine = used.get(core, 0.0)
        if mine - cores > SHARED and min(rest, default=mine) < mine - SHARED:
            self._again = now + self._hold
            self._hold = min(2 * self._hold, LATEST)
            return False
        if now - self._since > AGAIN:
            self._hold = AGAIN
        if cores < FULL:
            self._full, self._look = now, LOOK
            return True
        if now - self._full < self._look:
            return True
        self._look = min(2 * self._look, LOOK_LATEST)
        return False

    def _count(self) -> _Sample:
        return _Sample(self._clock(), self._used(), self._busy())
