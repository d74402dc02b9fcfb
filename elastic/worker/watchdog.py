"""Notices calls into user code that do not return, and says where they are."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elastic.migration import events as ev
from elastic.model.events import Severity
from elastic.model.ids import ComponentId, TaskId
from elastic.worker import standing

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor
    from elastic.worker.executing.user_calls import UserCall
    from elastic.worker.worker import Worker

STANDS = 5.0
"""Seconds that a task waits within a move before that is said: a pause takes a hundredth of that."""
AGAIN = 30.0
"""Seconds after which it is said again."""
LOOK = 2.0
"""Seconds between two looks at most."""
Key = tuple[int, int, str]
"""Task, move, and how far it is there."""
PATIENCE = 1.0
"""Seconds that a look at the moves waits for whoever is at them: what hangs there is to be said, and must not keep that from being said."""


class Watchdog:
    """Reports an executor whose call into user code has not returned for `limit` seconds: once, with its stack, and again when
    it did return. So, too, a task that is being made, and one whose metrics are being read.

    And the tasks that have a part in a move and have come no further for `STANDS` seconds: with what they wait for, by name; and, of what
    was said so, when that is over. What they wait for may change its name all the while: that is no progress.

    That other tasks of such a move are ready is said from then on although these are not (`ReadyLate`).

    There is no event for "nothing has happened": this is a timer, four times per limit, and every one to `LOOK` seconds.
    """

    def __init__(self, worker: Worker, limit: float) -> None:
        self._worker = worker
        self._limit = limit
        self._stop = threading.Event()
        self._said: dict[Executor, float] = {}
        self._called: set[UserCall] = set()  # those that have been said
        self._standing: dict[Key, float] = {}  # since when
        self._told: dict[Key, tuple[float, str]] = {}  # when it was said, and of what; "" when that is over
        self._asking: threading.Thread | None = None  # looks at the moves, and waits for whoever is at them
        self._answer: list[standing.Wait] | None = None
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching. Safe to call twice."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(5)

    def stacks(self) -> str:
        """Where each executor that is in user code is now, and whoever else is."""
        frames = sys._current_frames()
        parts = []
        for executor in sorted(self._worker.executors.living(), key=lambda e: e.id):
            frame = frames.get(executor.thread.ident or 0)
            if executor.busy_since and frame is not None:
                parts.append(f"{executor.id}:\n{''.join(traceback.format_stack(frame))}")
        for call in sorted(self._worker.calls.now()):
            if (frame := frames.get(call.thread)) is not None:
                parts.append(f"to {call.what}:\n{''.join(traceback.format_stack(frame))}")
        return "\n".join(parts)

    def _run(self) -> None:
        while not self._stop.wait(
            max(1.0, min(LOOK, self._limit / 4)) if self._limit >= 4 else self._limit / 4
        ):
            self.check(time.monotonic())

    def check(self, now: float) -> None:
        """Look once."""
        living = self._worker.executors.living()
        for executor in {*living, *self._said}:
            blocked = executor.blocked_on  # first: see `Executor.end_blocked`
            since = 0.0 if executor.ended else executor.busy_since
            before = self._said.get(executor)
            if before is not None and since != before:
                del self._said[executor]
                self._worker.event(
                    "executor-moves-again",
                    f"Executor {executor.id} returned from the call that had been reported.",
                )
            if since and now - since > self._limit and not blocked and executor not in self._said:
                self._said[executor] = since
                task = executor.emitting
                self._say_stuck(
                    f"by executor {executor.id}",
                    now - since,
                    executor.thread.ident or 0,
                    executor.id.component,
                    task.id if task is not None else 0,
                )
        self._look_at_calls(now)
        self._look_at_moves(now)

    def _look_at_calls(self, now: float) -> None:
        """While a task is being made others may wait for it; while what a gauge reads does not return, nothing is measured here."""
        calls = self._worker.calls.now()
        for call in self._called - calls:
            self._called.discard(call)
            self._worker.event(
                "executor-moves-again",
                f"The call into user code to {call.what} returned after all.",
                component=str(call.component),
                task=call.task,
            )
        for call in calls - self._called:
            if now - call.since > self._limit:
                self._called.add(call)
                self._say_stuck(f"to {call.what}", now - call.since, call.thread, call.component, call.task)

    def _say_stuck(self, what: str, seconds: float, thread: int, component: ComponentId, task: int) -> None:
        frame = sys._current_frames().get(thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        self._worker.event(
            "executor-stuck",
            f"A call into user code {what} has not returned for {seconds:.1f} s.",
            Severity.WARNING,
            component=str(component),
            task=task,
            details={"traceback": stack, "seconds": round(seconds, 1)},
        )

    def _waits(self) -> list[standing.Wait] | None:
        """What the tasks that move wait for; None: who is at the moves does not return."""
        participant = self._worker.moves.participant
        if not (participant.old or participant.new):
            return []
        if self._asking is None:
            self._asking = threading.Thread(target=self._ask, name="watchdog-moves", daemon=True)
            self._asking.start()
        self._asking.join(PATIENCE)
        if self._asking.is_alive():
            return None  # the same one is asked again next time: there is never more than one
        self._asking = None
        return self._answer

    def _ask(self) -> None:
        self._answer = None
        self._answer = standing.waits(self._worker)

    def _look_at_moves(self, now: float) -> None:
        found = self._waits()
        if found is None:
            return  # what was known of them may still be true
        waits = {(w.task, w.epoch, w.state): w for w in found}
        self._standing = {k: self._standing.get(k, now) for k in waits}
        over: dict[tuple[int, str], list[int]] = {}
        for key, (at, what) in list(self._told.items()):
            wait = waits.get(key)
            if what and (wait is None or wait.what != what):
                over.setdefault((key[1], what), []).append(key[0])
                self._told[key] = at, ""
            if wait is None:
                del self._told[key]
        new: dict[tuple[int, str], list[Key]] = {}
        for epoch in {k[1] for k, since in self._standing.items() if now - since >= STANDS}:
            self._worker.moves.feed(ev.ReadyLate(epoch))
        for key, wait in waits.items():
            at, what = self._told.get(key, (-AGAIN, ""))
            if now - self._standing[key] >= STANDS and now - at >= (AGAIN if what else STANDS):
                self._told[key] = now, wait.what
                new.setdefault((wait.epoch, wait.what), []).append(key)
        for (epoch, what), tasks in sorted(over.items()):
            tasks.sort()
            self._worker.event(
                "move-goes-on",
                f"{_named(tasks, 'waits', 'wait')} no more in move {epoch} for {what}.",
                component=self._component(tasks[0]),
                task=tasks[0],
                details={"epoch": epoch, "tasks": ",".join(map(str, tasks)), "for": what},
            )
        for (epoch, _), keys in new.items():
            seconds = now - min(self._standing[k] for k in keys)
            tasks, what = [k[0] for k in keys], str(waits[keys[0]])
            self._worker.event(
                "move-stands",
                f"{_named(tasks, 'has', 'have')} waited for {seconds:.0f} s in move {epoch}: for {what}.",
                Severity.WARNING,
                component=self._component(tasks[0]),
                task=tasks[0],
                details={
                    "epoch": epoch,
                    "tasks": ",".join(map(str, tasks)),
                    "for": what,
                    "seconds": round(seconds, 1),
                },
            )

    def _component(self, task: int) -> str:
        return str(self._worker.spec.component_of(TaskId(task)).id)


def _named(tasks: Sequence[int], one: str, more: str) -> str:
    if len(tasks) == 1:
        return f"Task {tasks[0]} {one}"
    return f"{len(tasks)} tasks ({tasks[0]} to {tasks[-1]}) {more}"
