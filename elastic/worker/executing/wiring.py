"""What a task is connected with: its component's copy with the functions made for its streams, its hooks, and whom it tells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from elastic.api.components import Component, TaskHook
from elastic.api.context import TopologyContext
from elastic.errors import ElasticError
from elastic.model.events import Severity
from elastic.model.topology import ComponentSpec
from elastic.model.words import counted
from elastic.worker.emitting.calls import Calls
from elastic.worker.executing.failures import Failures
from elastic.worker.tuples.batch import Item

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task


class TaskListener(Protocol):
    """What a task tells its worker. Called on executor threads."""

    def on_finished(self, task: Task) -> None: ...

    def on_drained(self, task: Task, number: int) -> None: ...

    def checkpoint_wanted(self) -> tuple[int, int]:
        """The tickets of the checkpoint that is being taken, and of the newest that was given up; 0: there is none."""

    def on_checkpoint(self, task: Task, ticket: int) -> None:
        """The task is between all that is before that checkpoint and all that is after it: now is when its state is read."""

    def on_consumed(self, batch: Item, task: Task) -> None: ...

    def on_no_checkpoint(self, task: Task, ticket: int, reason: str) -> None:
        """That checkpoint cannot be taken; the reason is said of the task, for people."""

    def on_task_event(
        self,
        task: Task,
        kind: str,
        message: str,
        severity: Severity,
        details: Mapping[str, str | int | float],
    ) -> None: ...

    def on_failure(self, task: Task, reason: str, trace: str) -> None: ...


def wire_up(component: Component, context: TopologyContext, calls: Calls, spec: ComponentSpec) -> None:
    """Put the functions made for a task's streams on its component's copy.

    It gets a dictionary of its own: what reads the attributes of an object whose dictionary still shares its keys with others of
    the class is not specialised by the interpreter, and takes several times as long (`self.counts` in each execute).
    """
    own = {
        **component.__dict__,
        "emit": calls.emits.get("default", _no_default(spec)),
        "emit_all": calls.emits_all.get("default", calls.emit_all),
        "emit_to": calls.emit_to,
        "emit_direct": calls.emit_direct,
        "emit_batch": calls.emit_batch,
        "context": context,
    }
    if "default" in calls.emits_each:
        own["_emit_each"] = calls.emits_each["default"]
    # Not by assignment, which frozen dataclasses refuse.
    object.__setattr__(component, "__dict__", own)


class Unheard:
    """Takes what a component emits in `cleanup`, and counts it: whoever would get it takes nothing from this task any more."""

    def __init__(self, component: Component) -> None:
        self._count = 0
        one, every = self._one, self._every
        component.__dict__.update(
            emit=one, emit_to=one, emit_direct=one, emit_all=every, emit_batch=self._batch
        )

    def complaint(self, component: str, task: int) -> str | None:
        """What is to be said of it; None: nothing was emitted."""
        if not self._count:
            return None
        return (
            f"cleanup() of {component!r} (task {task}) emitted {counted(self._count, 'tuple')}, which nobody takes any more: emit in "
            "finish(), and keep in the state what is unfinished when a task moves."
        )

    def _one(self, *values: Any, **named: Any) -> None:
        self._count += 1

    def _every(self, values: Iterable[Any], stream: str = "default") -> None:
        self._count += sum(1 for _ in values)

    def _batch(self, batch: Any, stream: str = "default") -> None:
        self._count += len(batch)


def observed(
    execute: Callable[[Any], None], hooks: Sequence[TaskHook], context: TopologyContext, failures: Failures
) -> Callable[[Any], None]:
    """`execute`, with the hooks told of each tuple."""
    clock = time.perf_counter

    def timed(tup: Any) -> None:
        began = clock()
        execute(tup)
        took = clock() - began
        for hook in hooks:
            try:
                hook.on_execute(context, tup, took)
            except Exception as e:
                failures.hook_failed("on_execute", e)

    return timed


def _no_default(spec: ComponentSpec) -> Callable[..., None]:
    def emit(*values: Any) -> None:
        raise ElasticError(
            f"Component {str(spec.id)!r} emits, but declares no default stream.",
            remedy="Declare it on the class, for instance outputs = Fields(word=str), or use emit_to.",
        )

    return emit
