"""How a spout task is driven: asked for tuples in slices, at a rate or flat out, paused and resumed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from elastic.api.components import Component, Spout, overrides
from elastic.api.settings import setting
from elastic.errors import ExecutionError
from elastic.worker.executing.looks import FIRST, LATE, MOST
from elastic.worker.executing.part import Part
from elastic.worker.shown import described, shown, user_traceback

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task

_SLICE = 0.002
LOOKS = 16
"""So often it is looked at the clock in the course of a chunk."""
_SHORTEST = 0.0005
"""Seconds between two wake-ups of a paced spout at least."""
_LONGEST = 86_400.0
"""A spout is asked again after a day, whatever it says."""


class SpoutDriver(Part):
    """The spout's side of a task. All methods but `set_active` run on the executor's thread."""

    def __init__(self, task: Task, component: Component, config: Mapping[str, Any]) -> None:
        assert isinstance(component, Spout)
        super().__init__(task)
        self._spout = component
        self._chunk = 1
        self._idle_wait: float = setting("idle_wait", config)
        rate: float | None = setting("rate", config)
        self._rate = rate / task.context.parallelism if rate else None
        self._began = 0.0
        self._asked = 0
        self._generator: Iterator[Any] | None = None
        self._from_generator = overrides(component, "tuples", Spout)
        self._timer = 0.0  # when it is woken (monotonic seconds), 0: it is not
        self.active = True
        self.wanted = True  # what Nimbus wants; `active` follows between two slices
        self.drain = 0

    def set_active(self, active: bool, drain: int) -> None:
        """What is wanted of the topology has changed. Called from any thread."""
        if drain < self.drain:
            return  # it comes from a process that knew more: this one will read that, too
        self.wanted, self.drain = active, drain
        self._task.wake()

    def restore(self, drain: int) -> None:
        """It was in another process, which knew of that deactivation. Before it runs."""
        if drain > self.drain:
            # It may have been said downstream that nothing comes any more: nothing does before this process knows as much.
            self.wanted, self.drain = False, drain

    def taken_over(self) -> None:
        """Another executor runs the task now; the timer stayed with the old one."""
        self._timer = 0.0

    def run(self, until: float) -> bool:
        """Ask for tuples for a slice of time; returns whether to ask again at once."""
        task, marks = self._task, self._task.marks
        if self._timer <= time.monotonic():
            self._timer = 0.0
        while True:
            if not self.wanted:
                self._pause()
            elif not self.active and not marks.finished:
                self.active = True
                self._began = 0.0  # pace from now on, without catching up on the time in between
                task.failures.guarded(self._spout.activate)
            if not self.active or marks.finished or task.failures.broken:
                return self._rest(None)
            # It may say so elsewhere as well: in `prepare`, `activate`, `tick`, or where it was before.
            wait = None if self._exhausted() else self._ask(until)
            if self._exhausted():
                marks.end()
                return self._rest(None)
            if wait:
                return self._rest(wait)
            if task.stopping is not None or time.monotonic() >= until:
                return True

    def _exhausted(self) -> bool:
        return bool(self._spout.__dict__.get("_exhausted"))

    def _pause(self) -> None:
        task = self._task
        if self.active:
            self.active = False
            if not task.marks.finished:
                task.failures.guarded(self._spout.deactivate)
        if self.drain > task.marks.drained and not task.marks.finished:
            task.outputs.flush()
            task.marks.pass_drain(self.drain)

    def _rest(self, seconds: float | None) -> bool:
        """Nothing to do for some seconds (None: until woken)."""
        task = self._task
        with task._lock:
            task.scheduled = task.stopped
        # What is wanted may have changed between looking and resting, when nobody woke a task that was at work.
        changed = self.wanted != self.active or (not self.wanted and self.drain > task.marks.drained)
        if changed and not task.marks.finished and not task.failures.broken:
            task.wake()
        if seconds is not None and task.executor is not None:
            at = time.monotonic() + seconds
            # Who was woken in between has one still, and needs no other.
            if not self._timer or at < self._timer:
                self._timer = at
                task.executor.wake_later(at, task)
        return False

    def _ask(self, until: float) -> float | None:
        """Ask for a chunk; returns the seconds to wait before the next one, or None."""
        chunk = self._chunk
        if self._rate is not None:
            now = time.monotonic()
            if not self._began:
                self._began, self._asked = now, 0
            due = int((now - self._began) * self._rate) - self._asked
            if due <= 0:
                return max(_SHORTEST, (self._asked + 1) / self._rate - (now - self._began))
            chunk = min(chunk, due)
            # A second behind (blocked, or too slow): go on from here instead of in a burst.
            if due > self._rate:
                self._began, self._asked = now - chunk / self._rate, 0
        outputs = self._task.outputs
        before = outputs.emitted + outputs.waiting() + outputs.unrouted
        began = time.monotonic()
        hint, asked = self._chunk_of(chunk, until)
        self._asked += asked
        took = time.monotonic() - began
        if took < _SLICE / 4 and asked == self._chunk and self._chunk < 1 << 14:
            self._chunk *= 2
        elif took > _SLICE and self._chunk > 1:
            self._chunk = max(1, int(asked * _SLICE / took))
        emitted = outputs.emitted + outputs.waiting() + outputs.unrouted - before
        self._task.executed += asked
        if hint:
            return hint
        if not emitted and not self._exhausted():
            self._chunk = 1
            return self._idle_wait
        return None

    def _chunk_of(self, chunk: int, until: float) -> tuple[float | None, int]:
        """Up to `chunk` tuples; returns (the spout's hint, how many times it was asked)."""
        spout, task = self._spout, self._task
        if self._from_generator:
            if self._generator is None:
                self._generator = values_of(spout)
            return None, self._take(self._generator, chunk)
        call = spout.next_batch if task.spec.vector else spout.next_tuple
        hint: float | None = None
        asked = 0
        state = spout.__dict__
        try:
            while asked < chunk:
                # What a call emits is handed on at the end of the slice: many calls that take long would keep it from its receivers.
                for _ in range(min(max(1, chunk // LOOKS), MOST, chunk - asked)):
                    asked += 1
                    hint = call()
                    if hint or "_exhausted" in state:
                        return _seconds(hint), asked
                if time.monotonic() >= until:
                    break
        except Exception as e:
            task.failures.failed(e, None)
        return None, asked

    def _take(self, generator: Iterator[Any], chunk: int) -> int:
        """Emit up to `chunk` of its values; returns how many. It is exhausted if there were no more."""
        spout, asked, part = self._spout, 0, FIRST
        late = time.monotonic() + LATE
        while True:
            wanted = min(part, chunk - asked)
            got = spout._emit_each(islice(generator, wanted), self._failed, self._generator_failed)
            asked += got
            if got < wanted:
                if not self._task.failures.broken:
                    spout.exhausted()
                return asked
            if asked == chunk or self._task.failures.broken or time.monotonic() >= late:
                return asked
            part = min(2 * part, MOST)

    def _failed(self, error: Exception, value: Any) -> bool:
        """A value cannot be emitted; the generator knows of nothing. Returns whether to stop."""
        self._task.failures.failed(error, value)
        return self._task.failures.broken

    def _generator_failed(self, error: Exception) -> None:
        """A generator that raised has ended; there is nothing to go on with."""
        task = self._task
        task.failures.give_up(
            f"tuples() of {str(task.spec.id)!r} (task {task.id}) raised {described(error)}",
            user_traceback(error),
        )


def values_of(spout: Spout) -> Iterator[Any]:
    """What a spout's `tuples` gives, one after the other.

    Raises:
        ExecutionError: That cannot be gone through.
    """
    given: object = spout.tuples()
    if isinstance(given, Iterable):
        return iter(given)
    raise ExecutionError(
        f"tuples() of {type(spout).__name__} returned {shown(given)}, which cannot be iterated.",
        remedy="Yield the values, or return a list or an iterator of them.",
    )


def _seconds(hint: object) -> float | None:
    """What a spout returned, as seconds.

    Raises:
        ExecutionError: It is no number of seconds.
    """
    if hint is None:
        return None
    if not isinstance(hint, int | float) or hint != hint:
        raise ExecutionError(
            f"A spout returned {shown(hint)} where None or a number of seconds is expected.",
            remedy="Emit with self.emit(...); return how long there will be nothing.",
        )
    return float(min(max(hint, 0.0), _LONGEST))
