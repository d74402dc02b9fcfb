"""Calls into user code on threads that are no executor's, or may be none: for the watchdog, which looks at executors otherwise."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from elastic.model.ids import ComponentId


class UserCall(NamedTuple):
    """One that is under way.

    Attributes:
        what: What for: "make task 3 of 'count'".
        since: Monotonic seconds.
        thread: Its number.
    """

    what: str
    task: int
    component: ComponentId
    since: float
    thread: int


class UserCalls:
    """Those of a worker."""

    def __init__(self) -> None:
        self._under_way: set[UserCall] = set()

    @contextlib.contextmanager
    def to(self, what: str, task: int, component: ComponentId) -> Iterator[None]:
        """Inside, user code of a task is called.

        Args:
            what: What for, said before the task: "make".
        """
        named = f"{what} task {task} of {str(component)!r}"
        call = UserCall(named, task, component, time.monotonic(), threading.get_ident())
        self._under_way.add(call)
        try:
            yield
        finally:
            self._under_way.discard(call)

    def now(self) -> set[UserCall]:
        """Those that are under way."""
        return self._under_way.copy()  # in one step: others change it meanwhile
