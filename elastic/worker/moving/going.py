"""A task of which the state is being saved, or is about to be: how far that is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from elastic.api.components import Spout, StatefulSpout, overrides
from elastic.errors import Unavailable
from elastic.worker.content import Copier
from elastic.worker.executing.brake import Brake
from elastic.worker.moving.along import Recent
from elastic.worker.moving.stores import StateWrite
from elastic.worker.shown import described

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task

log = logging.getLogger("elastic.worker")
T = TypeVar("T")
LONGEST = 300.0
"""Seconds that a step on an executor is waited for: a call into user code may last long, and the move's own time ends it before."""


@dataclass
class Going:
    """One of them."""

    task: Task
    epoch: int
    copier: Copier | None = None
    write: StateWrite | None = None
    numbers: dict[int, int] = field(default_factory=dict)  # the copier's pieces -> the store's
    recent: Recent = field(default_factory=Recent)
    told: bool = False  # that something lies there ahead
    kept_up: bool = False  # all is copied, but for what changes
    behind: bool = False  # and the last time there was more of that than was copied
    began: float = 0.0  # when copying did
    gave: float = 0.0  # when copying gave the executor back
    brake: Brake = field(default_factory=Brake)
    ended: bool = False
    pausing: bool = False
    encoding: bool = False
    users: int = 0  # threads that may use the write
    gone_on: bool = False  # of one that was given back while its state was being read
    over: bool = False  # saved, or failed: whichever came first is said, and nothing after it
    asked: Future[Any] | None = None  # of its executor, and not answered yet
    away: float = 0.0  # until when it is not asked: it has not come to it in time
    writing: threading.Lock = field(default_factory=threading.Lock)  # held at the copier and the write
    then: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def hurries(self) -> bool:
        """Whether copying goes before the stream: the state changes as fast as it is copied. What is left of a small one is little all the
        same."""
        return self.copier is not None and self.copier.outrun and self.brake.large

    def put(self, write: StateWrite, data: bytes) -> int:
        """Put a piece into its write."""
        number = write.put(data)
        self.recent.add(number, data)
        return number

    def ends_now(self) -> bool:
        """It is saved, or has failed. False: something was said of that before, and this comes too late."""
        with self.lock:
            before, self.over = self.over, True
            return not before

    def use(self, what: Callable[..., None] | None = None, *arguments: Any) -> None:
        """Do something with its write: call `what` with this and those. See `used`."""
        with self.used():
            if what is not None:
                what(self, *arguments)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Its write is being used. It is closed by whoever is the last when all is over."""
        with self.lock:
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                over = self.ended and not self.users
            if over and self.write is not None:
                try:
                    self.write.close()
                except Exception as e:  # nobody's work ends for that
                    log.info("what was copied of task %d was not let go of: %s", self.task.id, described(e))

    def on_task(self, what: Callable[[], T], patience: float = LONGEST) -> T:
        """Have something done on the task's executor, between two tuples of it.

        Args:
            patience: Seconds until it is given up, unless it has begun.

        Raises:
            CancelledError: It is over, or was given up.
            Unavailable: It is not done within `LONGEST`.
        """
        done: Future[T] = Future()
        with self.lock:
            self.asked = done
            if self.ended:
                raise CancelledError

        def call() -> None:
            if self.ended:
                done.cancel()
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(what())
            except BaseException as e:
                done.set_exception(e)

        self.task.call(call)
        try:
            return done.result(patience)
        except TimeoutError:
            if done.cancel() and patience < LONGEST:
                raise CancelledError from None
            if patience >= LONGEST:
                raise Unavailable(
                    f"task {self.task.id} has been within one tuple for {LONGEST:g} s"
                ) from None
        return done.result(LONGEST)  # it has begun, and takes some milliseconds

    def stop(self) -> None:
        """Its worker ends: nobody waits for what its executor does not do any more."""
        with self.lock:
            self.ended = True
            if self.asked is not None:
                self.asked.cancel()

    def end(self, then: Callable[[], None] | None, reading: dict[int, Going]) -> bool:
        """It is over. False: its state is being read just now, and `encoded` is to call `then`.

        Args:
            reading: Of what was given back: those that have not gone on yet, by task. It is among them until it has.
        """
        self.brake.release()
        with self.lock:
            self.ended = True
            if self.task.brake is self.brake:
                self.task.brake = None
            if self.asked is not None:
                self.asked.cancel()  # whoever waits for that need not: the task may be within a tuple for long
            if self.encoding:
                self.then = then
                if then is not None:
                    reading[self.task.id] = self
            return not self.encoding

    def follow(self, what: Callable[[], None]) -> bool:
        """Have something done when `then` was called, in place of what was to be done so far. False: it was called."""
        with self.lock:
            if not self.gone_on:
                self.after = what
            return not self.gone_on

    def encoded(self, reading: dict[int, Going]) -> None:
        """Nobody reads its state any more; see `end`."""
        with self.lock:
            self.encoding = False
            then, self.then = self.then, None
        if then is None:
            return
        if self.copier is not None:
            self.copier.cancel()
        try:
            then()
        finally:
            with self.lock:
                reading.pop(self.task.id, None)
                self.gone_on = True
                after, self.after = self.after, None
            if after is not None:
                after()


def begins_anew(task: Task) -> bool:
    """Whether it is a spout that knows nothing at another place of how far it has come: it has no state."""
    component = task.component
    return (
        isinstance(component, Spout) and not isinstance(component, StatefulSpout) and not task.marks.finished
    )


def why_unmovable(task: Task) -> str:
    """Why a task cannot be moved without its work being done twice, for people; "" when it can."""
    if begins_anew(task) and overrides(task.component, "tuples", Spout):
        return (
            f"spout {str(task.spec.id)!r} yields its tuples from a generator and has no state: at another place it would begin anew. "
            f"Make it a StatefulSpout that knows how far it is."
        )
    return ""
