"""The executors of one worker: those that its allocation names, those that it does not (`Guests`), and those that are to end."""

from __future__ import annotations

import threading
from collections.abc import Collection, Set

from elastic.api.settings import setting
from elastic.errors import Unavailable
from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId
from elastic.model.topology import TopologySpec
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.guests import Guests, Home
from elastic.worker.executing.hands import Hands
from elastic.worker.executing.haste import Haste
from elastic.worker.executing.making import config_of
from elastic.worker.executing.overdue import Overdue

LEAST = 0.5
"""Seconds that executors have to end at least, however few are given: for their slice and a call that returns."""
OWN = 1.0
"""Seconds that they have beyond those if no call into user code is under way: nobody is to be blamed for one then."""


class Executors:
    """See the module.

    Args:
        lock: The worker's. It is held where something is called that takes executors on or lets go of them.

    Attributes:
        named: Those that the allocation names.
        hands: Which of them holds each task.
    """

    def __init__(self, spec: TopologySpec, haste: Haste, lock: threading.RLock) -> None:
        self.named: dict[ExecutorId, Executor] = {}
        self._spec = spec
        self._haste = haste
        self.hands = Hands()
        self._guests = Guests(self._new)
        self._ended = threading.Condition(lock)
        self._ending: set[Executor] = set()
        self._stopped = False
        self._overdue = Overdue()

    def follow(self, wanted: Set[ExecutorId]) -> None:
        """Have those that an allocation names. The others end when their last task has gone; see `retire`. With the lock."""
        for id in sorted(wanted - self.named.keys()):
            self.named[id] = self._new(id)
        for old in sorted(self.named.keys() - wanted):
            self._guests.add(self.named.pop(old))

    def retire(self, busy: Collection[int]) -> None:
        """Have those end, with their last task, that nothing more comes to.

        Args:
            busy: See `Guests.idle`.
        """
        with self._ended:
            for executor in self._guests.idle(busy):
                if not executor.ended:
                    self._ending.add(executor)
                executor.retire()

    def guest(self, component: ComponentId, epoch: int) -> Home:
        """The executors of tasks that come here with that move, until the assignment says where they are to run.

        Raises:
            Unavailable: The worker is about to end: nobody would stop them.
        """
        with self._ended:
            if self._stopped:
                raise Unavailable("the worker is about to end")
            return self._guests.of(component, epoch)

    def living(self) -> list[Executor]:
        """All that have not ended. Without the lock: whoever makes a task has it, and may be stuck in user code."""
        found = {*list(self.named.values()), *self._guests.all(), *list(self._ending)}
        return [e for e in found if not e.ended]

    def ending(self) -> list[Executor]:
        """Those that were told to end, and have not."""
        with self._ended:
            return list(self._ending)

    def stop(self) -> None:
        """Stop all, also out of a wait for room once that looks again; there will be no others. With the lock."""
        self._stopped = True
        self._overdue.close()
        for executor in {*self.named.values(), *self._guests.all(), *self._ending}:
            if not executor.ended:
                self._ending.add(executor)
            executor.stop(abandon=True)
        self.named.clear()

    def wait(self, seconds: float) -> bool:
        """Whether all have ended that were told to, at the latest then; False: a call into user code does not return. With the lock, which
        others get meanwhile."""
        if self._ended.wait_for(self._have_ended, max(seconds, LEAST)):
            return True
        within = any(e.busy_since for e in self._ending)
        return not within and self._ended.wait_for(self._have_ended, OWN)

    def _have_ended(self) -> bool:
        return not self._ending

    def _new(self, id: ExecutorId) -> Executor:
        linger = setting("linger", config_of(self._spec, id.component))
        executor = Executor(id, linger, self._on_ended, self.hands, self._haste)
        executor.start()
        self._overdue.watch(executor)
        return executor

    def _on_ended(self, executor: Executor) -> None:
        with self._ended:
            executor.ended = True
            self._ending.discard(executor)
            self._ended.notify_all()
