"""What a worker says to its supervisor, over the report pipe: events at once, measurements once a period.

Measuring calls user code, what gauges read: it is done on a thread of its own, and holds up no event.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import queue
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

from elastic.model import codec
from elastic.model.events import Event, Severity
from elastic.supervisor.messages import MAX_MESSAGE, Stacks
from elastic.worker.report import Measurer

log = logging.getLogger("elastic.worker")

_LENGTH = struct.Struct(">I")
_MOST = 1000
_MANY = _MOST // 2
"""Steps that don't wait for more."""
_CLOSING = 2.0
STEPS = 0.05
STEPS_AGAIN = 0.5
"""Seconds that the steps of moves wait for others to be told with: there are six for each task, and one from each worker that sends to it
(`resumed`) or is behind it (`received`, `unheard`), in the midst of its pause, and on their way to Nimbus they keep four processes busy. At
first little; twice as long each time, up to the longer one, while they go on coming."""
SHARE = 0.005
"""Of a core, that measuring may take: where a report takes long (many pairs of tasks), they become rarer."""

_NUDGE = Event(0.0, "", "")
"""Steps have come."""


class Voice:
    """Writes to the pipe on threads of its own: a supervisor that is slow to read holds up nobody.

    Args:
        interval: Seconds between two measurements; more where that would cost more than `SHARE`.
        also: Called at each of them.
    """

    def __init__(
        self, fd: int, measurer: Measurer, interval: float, also: Callable[[], None] = lambda: None
    ) -> None:
        self._also = also
        self._fd = fd
        self._measurer = measurer
        self._interval = interval
        self._waiting: queue.Queue[Event | Stacks | None] = queue.Queue(_MOST)
        self._lock = threading.Lock()
        self._steps: deque[Event] = deque(maxlen=_MOST)
        self._steps_due = math.inf
        self._steps_told = 0.0
        self._steps_wait = STEPS
        self._dropped = 0
        self._pairs = True  # until there are too many; then for good: who saw none for a while would take all that is counted for new
        self._took = 0.0
        """CPU seconds of the last report. The smaller of two counts: the first ones load and compile something."""
        self._writing = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._measures = threading.Thread(target=self._measure, name="measurements", daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()
        self._measures.start()

    def say(self, event: Event) -> None:
        """Pass on an event. Never blocks; when too many wait, it is counted instead."""
        if event.kind == "move-step":
            with self._lock:
                if len(self._steps) == _MOST:
                    self._dropped += 1
                self._steps.append(event)
                if len(self._steps) not in (1, _MANY):
                    return  # it was put there before: whoever takes the one before takes this one too
            event = _NUDGE
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._dropped += 1

    def tell_stacks(self, text: str) -> None:
        """Answer whoever asked what the threads are doing. Never blocks; when too much waits, there is no answer."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(Stacks(text))

    def close(self) -> None:
        """Say what is left, and a last measurement, within two seconds."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=_CLOSING)
        end = time.monotonic() + _CLOSING
        self._thread.join(_CLOSING)
        self._end.set()
        self._measures.join(max(0.0, end - time.monotonic()))

    def _measure(self) -> None:
        wait = self._interval
        with contextlib.suppress(OSError):  # as in `_run`
            while not self._end.wait(wait):
                wait = self._report()
            self._report()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the supervisor has closed the pipe: nobody listens any more
            while True:
                if self._steps and self._steps_due == math.inf:  # also when there was no room for a nudge
                    self._steps_due = self._steps_at() if len(self._steps) < _MANY else 0.0
                now = time.monotonic()
                if now >= self._steps_due:
                    self._tell_steps()
                left = None if self._steps_due == math.inf else max(0.0, self._steps_due - now)
                try:
                    event = self._waiting.get(timeout=left)
                except queue.Empty:
                    continue
                if event is None:
                    self._tell_steps()
                    return
                if isinstance(event, Stacks):
                    self._send(codec.encode({"stacks": event.text}))
                    continue
                if event is _NUDGE:
                    if len(self._steps) >= _MANY:
                        self._steps_due = 0.0
                    continue
                self._event(event)
                if self._dropped and self._waiting.empty():
                    count, self._dropped = self._dropped, 0
                    lost = Event(
                        time.time(),
                        "events-dropped",
                        f"{count} events came too fast to be passed on.",
                        Severity.WARNING,
                        event.topology,
                        worker=event.worker,
                        details={"count": count},
                    )
                    self._event(lost)

    def _report(self) -> float:
        """Measure and say so. Returns the seconds until the next time."""
        began = time.thread_time()
        self._also()
        try:
            body = self._measured()
        except Exception:  # a report that cannot be made must not silence the events
            log.exception("no measurements")
            return self._interval
        self._send(body)
        before, self._took = self._took, time.thread_time() - began
        return max(self._interval, min(before, self._took) / SHARE)

    def _measured(self) -> bytes:
        report = self._measurer.report()
        if self._pairs:
            body = b'{"report":' + codec.encode(report) + b"}"
            if len(body) <= MAX_MESSAGE:
                return body
            self._pairs = False
            log.warning(
                "what tasks send each other is not reported any more: %s pairs are too many",
                len(report.pairs),
            )
        return b'{"report":' + codec.encode(dataclasses.replace(report, pairs=())) + b"}"

    def _steps_at(self) -> float:
        """When the steps that begin to wait are told."""
        now = time.monotonic()
        again = now - self._steps_told < 2 * STEPS_AGAIN
        self._steps_wait = min(STEPS_AGAIN, 2 * self._steps_wait) if again else STEPS
        return max(now + STEPS, self._steps_told + self._steps_wait)

    def _tell_steps(self) -> None:
        """All that wait, with one write. One that comes meanwhile is told now, or nudges anew."""
        self._steps_due, self._steps_told = math.inf, time.monotonic()
        steps = []
        with contextlib.suppress(IndexError):
            while True:
                steps.append(self._steps.popleft())
        self._send(*filter(None, map(_encoded, steps)))

    def _event(self, event: Event) -> None:
        self._send(*filter(None, [_encoded(event)]))

    def _send(self, *bodies: bytes) -> None:
        parts = []
        for body in bodies:
            if len(body) > MAX_MESSAGE:
                log.error(
                    "a message of %s bytes is too large for the supervisor: %r...", len(body), body[:200]
                )
            else:
                parts += [_LENGTH.pack(len(body)), body]
        data = memoryview(b"".join(parts))
        with self._writing:
            while data:
                data = data[os.write(self._fd, data) :]


def _encoded(event: Event) -> bytes:
    """As a message; nothing when it cannot be one."""
    try:
        return b'{"event":' + codec.encode(event) + b"}"
    except Exception:  # what users put into their warnings may be anything
        log.exception("an event cannot be told: %r", event)
        return b""
