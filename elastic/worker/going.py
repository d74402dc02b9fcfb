"""A task of which the state is being saved, or is about to be: how far that is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastic.api.components import Spout, StatefulSpout, overrides
from elastic.worker.content import Copier
from elastic.worker.stores import StateWrite

if TYPE_CHECKING:
    from elastic.worker.task import Task


@dataclass
class Going:
    """One of them."""

    task: Task
    epoch: int
    copier: Copier | None = None
    write: StateWrite | None = None
    numbers: dict[int, int] = field(default_factory=dict)  # the copier's pieces -> the store's
    ahead: bool = False
    told: bool = False  # that something lies there ahead
    gave: float = 0.0  # when copying gave the executor back
    ended: bool = False
    pausing: bool = False
    encoding: bool = False
    over: bool = False  # saved, or failed: whichever came first is said, and nothing after it
    writing: threading.Lock = field(default_factory=threading.Lock)  # held at the copier and the write
    then: Callable[[], None] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ends_now(self) -> bool:
        """It is saved, or has failed. False: something was said of that before, and this comes too late."""
        with self.lock:
            before, self.over = self.over, True
            return not before


def why_unmovable(task: Task) -> str:
    """Why a task cannot be moved without its work being done twice, for people; "" when it can."""
    component = task.component
    if (
        isinstance(component, Spout)
        and not isinstance(component, StatefulSpout)
        and overrides(component, "tuples", Spout)
        and not task.finished
    ):
        return (
            f"spout {str(task.spec.id)!r} yields its tuples from a generator and has no state: at another place it would begin anew. "
            f"Make it a StatefulSpout that knows how far it is."
        )
    return ""
