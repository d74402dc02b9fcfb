"""Which executor of a worker holds each task, and which is to get it.

A task has a holder, whose thread runs it, and possibly a claimant, who is to have it. The holder's own thread lets go of it between two
slices of work. Claims may change before that has happened: the last one wins.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor
    from elastic.worker.executing.guests import Home
    from elastic.worker.executing.task import Task


class Hands:
    """See the module. One for all executors of a worker; its lock is held for a few assignments."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def adopt(self, executor: Executor, tasks: Iterable[Task]) -> None:
        """Have an executor run these tasks, which nobody runs yet."""
        adopted = list(tasks)
        with self._lock:
            for task in adopted:
                task.holder = task.wanted_by = executor
                executor.coming.add(task.id)

        def begin() -> None:
            for task in adopted:
                with self._lock:
                    executor.coming.discard(task.id)
                    executor.tasks[task.id] = task
                executor.begin(task)

        executor.call(begin)

    def take(self, executor: Executor, task: Task) -> None:
        """Get a task for an executor from the one that holds it: handed over between two slices of work.

        May be called again for another executor before the first hand-over has happened: the last call wins.
        """
        with self._lock:
            before, holder = task.wanted_by, task.holder
            if before is not None:
                before.coming.discard(task.id)
            task.wanted_by = executor
            executor.coming.add(task.id)
        if before is not None and before is not holder and before is not executor:
            before.look()  # it may have waited for that task alone to end
        if holder is not None:
            holder.call(functools.partial(self._hand_over, holder, task))

    def _hand_over(self, asked: Executor, task: Task) -> None:
        """On the thread of who was asked to: give the task to whoever is to have it."""
        with self._lock:
            holder, to = task.holder, task.wanted_by
        if holder is not asked:
            if holder is not None:  # it went on before this call came
                holder.call(functools.partial(self._hand_over, holder, task))
            return
        if to is asked or to is None or task.closed:
            return
        asked.empty(task)
        with self._lock:
            to = task.wanted_by
            if to is None or to is asked or task.closed:
                return
            task.handed_over = time.monotonic()
            _give(task, asked, to)

    def prepare_guest(self, task: Task, home: Home) -> None:
        """Prepare a task that is not to run before its state has come, and give it to the executor that runs it then.

        On the thread of who prepares; raises what user code raises, and leaves the task there in that case.
        """
        prepares, runs = home
        with self._lock:
            task.holder = task.wanted_by = prepares
            prepares.tasks[task.id] = task
        prepares.seat(task)
        if not task.marks.finished:
            prepares.prepare(task)
        with self._lock:
            task.wanted_by = runs
            _give(task, prepares, runs)

    def drop(self, executor: Executor, task: Task, then: Callable[[], None]) -> None:
        """Close a task that an executor has, or had just now, and that runs elsewhere by now, or nowhere: it emits nothing any more.

        Args:
            then: Called when that is done.
        """

        def close() -> None:
            with self._lock:
                holder, to = task.holder, task.wanted_by  # not that one, if it has changed hands since
                if holder is not None and holder.tasks.get(task.id) is task:
                    del holder.tasks[task.id]
                if to is not None and to is not holder:
                    to.coming.discard(task.id)  # it does not come any more: nobody waits for it to end
            if to is not None and to is not holder:
                to.look()
            runs = task.executor or executor  # on the thread of that one
            runs.forget(task)
            runs.watched(task.close)
            then()

        executor.on_task(task, close)

    def close(self, executor: Executor) -> list[Task]:
        """Have nobody give it a task any more, as it ends; those that it has, to be cleaned up."""
        with self._lock:
            executor.closed = True
            return list(executor.tasks.values())

    def may_end(self, executor: Executor) -> bool:
        """Whether it has no task and none is coming."""
        with self._lock:
            return not (executor.tasks or executor.coming)


def _give(task: Task, holder: Executor, to: Executor) -> None:
    """On the holder's thread, under the lock of all hands."""
    to.coming.discard(task.id)
    if to.closed:
        return  # the worker ends: who holds the task cleans it up
    holder.tasks.pop(task.id, None)
    to.tasks[task.id] = task
    task.holder = to
    task.give_to(to)
    to.abreast.joined(task)
