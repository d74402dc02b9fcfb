"""How a bolt works off what waits for its task: batch by batch, and of a batch as many tuples at a time as take about a slice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from elastic.api.components import Bolt, TaskHook
from elastic.api.context import Source
from elastic.worker.executing.looks import FIRST, LATE, MOST
from elastic.worker.executing.part import Part
from elastic.worker.executing.wiring import observed
from elastic.worker.tuples import wire
from elastic.worker.tuples.batch import Batch

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task

SLICE = 0.002
"""Seconds of work after which an executor looks whether something else wants to be done."""


class BoltDriver(Part):
    """Of one task. On its executor's thread.

    Args:
        hooks: Told of each tuple that is executed.
    """

    def __init__(self, task: Task, bolt: Bolt, hooks: Sequence[TaskHook]) -> None:
        super().__init__(task)
        self._bolt = bolt
        self._vector = task.spec.vector
        self._execute: Callable[[Any], None] = bolt.execute
        if hooks:
            self._execute = observed(bolt.execute, hooks, task.context, task.failures)
        self._current: tuple[Batch, Iterator[Any], int] | None = None
        self._chunk = 1
        self._sources: dict[tuple[int, int], Source] = {}  # by stream and task

    def run(self, until: float) -> bool:
        """Work for a slice of time; returns whether there is something left to do."""
        task = self._task
        failures, context, sources, clock = task.failures, task.context, self._sources, time.monotonic
        while not failures.broken:
            if self._current is None:
                item = task.next()
                if item is None:
                    return False
                if isinstance(item, Batch):
                    context.source = sources.get((item.stream.index, item.source)) or self._source(item)
                    if self._vector:
                        self._work_vector(item)
                    else:
                        self._begin(item)
                else:
                    task.marks.receive(item)
                    if task.executor is not None and task.executor.abreast.ticket:
                        return True  # it may have to wait for others of its executor
            now = clock() if self._current is None else self._work(task, self._current)
            if task.stopping is not None or now >= until:
                return True
        task.discard()
        return False

    def rest(self) -> Batch | None:
        """What is left of the batch in execution. While the task stands still; from any thread."""
        if self._current is None:
            return None
        batch, rows, left = self._current
        rest = list(rows)
        self._current = (batch, iter(rest), left)
        return Batch(batch.stream, batch.source, len(rest), rest)

    def give_up(self) -> Batch | None:
        """The batch in execution: nothing more of it is executed."""
        current, self._current = self._current, None
        return current[0] if current is not None else None

    def _source(self, batch: Batch) -> Source:
        stream = batch.stream
        made = Source(str(stream.component), str(stream.spec.id), batch.source)
        self._sources[stream.index, batch.source] = made
        return made

    def _begin(self, batch: Batch) -> None:
        try:
            rows = wire.rows_of(batch)
        except Exception as e:
            self._task.failures.unreadable(batch, e)
            self._task.done(batch)
            return
        self._current = (batch, iter(rows), batch.count)

    def _work(self, task: Task, current: tuple[Batch, Iterator[Any], int]) -> float:
        """Execute some tuples of the present batch: as many as take about a slice. Returns when that was done, monotonic seconds."""
        batch, rows, left = current
        execute = self._execute
        chunk = self._chunk if self._chunk < left else left
        began = time.monotonic()
        tup: Any = None
        try:
            if chunk == left and chunk <= FIRST:
                for tup in rows:
                    execute(tup)
            else:
                done, part = 0, FIRST
                while done < chunk:
                    for tup in islice(rows, min(part, chunk - done)):
                        execute(tup)
                    done += part
                    if done < chunk and time.monotonic() - began > LATE:
                        chunk = done
                    part = min(2 * part, MOST)
        except Exception as e:
            # What was executed before it counts; where the iterator stands is where to go on.
            remaining = rows.__length_hint__() if hasattr(rows, "__length_hint__") else 0
            chunk = left - remaining
            task.executed += chunk - 1
            task.failures.failed(e, tup)
        else:
            task.executed += chunk
        now = time.monotonic()
        took = now - began
        if took < SLICE / 4 and chunk == self._chunk and self._chunk < 1 << 16:
            self._chunk *= 2
        elif took > SLICE and chunk > 1:
            self._chunk = max(1, int(chunk * SLICE / took))
        left -= chunk
        if left > 0 and not task.failures.broken:
            self._current = (batch, rows, left)
            return now
        self._current = None
        task.done(batch)
        return now

    def _work_vector(self, batch: Batch) -> None:
        task = self._task
        try:
            record = wire.record_of(batch)
        except Exception as e:
            record = wire.fitting(batch, e, task.failures.failed)
        if record is not None and not task.failures.broken:
            self._current = (batch, iter(()), batch.count)  # should the task be taken away within the call
            try:
                self._bolt.execute_batch(record)
                task.executed += record.num_rows
            except Exception as e:
                task.failures.failed(e, None, record.num_rows)
            self._current = None
        task.done(batch)
