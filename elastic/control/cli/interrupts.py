"""Ctrl-C that isn't lost, and SIGTERM as the same: whoever ends a command wants what it began to be ended, too."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from elastic.interrupts import forget

_AGAIN = 0.05
"""Seconds after which an interrupt that was put off comes again."""
_MOST = 3
"""So often at most is one put off for the sake of gRPC, or of a wait."""
_INTERRUPTED = 130


def hasten() -> None:
    """Have Ctrl-C and SIGTERM end the process, with its exit code, while a command's code is loaded and after its end has been told."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:
            signal.signal(number, _end)
            atexit.register(_ignore, number)


def _ignore(number: int) -> None:
    """At the very end: Python puts back what the system does with a signal before it lets its modules go, but not where it is ignored."""
    if signal.getsignal(number) is _end:
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)


class _Hearing:
    """What becomes of Ctrl-C: KeyboardInterrupt, at once, or a moment later where that would be lost or do harm."""

    def __init__(self) -> None:
        self._again: threading.Timer | None = None
        self._put_off = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler. On the main thread, wherever that is."""
        if _finalises(frame):
            self._later(number)
        elif self._put_off < _MOST and (_within_call(frame) or _within_wait(frame)):
            self._put_off += 1
            self._later(number)
        else:
            self.forget()
            raise KeyboardInterrupt

    def _later(self, number: int) -> None:
        main = threading.main_thread().ident
        assert main is not None
        self.forget()
        self._again = threading.Timer(_AGAIN, signal.pthread_kill, (main, number))
        self._again.daemon = True
        self._again.start()

    def forget(self) -> bool:
        """Have nothing follow of what was put off; returns whether something would have."""
        again, self._again = self._again, None
        if again is None:
            return False
        again.cancel()
        return True


def _finalises(frame: FrameType | None) -> bool:
    """Whether a finaliser is under way: Python prints what is raised there, and goes on."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _within_call(frame: FrameType | None) -> bool:
    """Whether gRPC's own code is under way and does not just wait.

    What interrupts it there leaves a call that never ends in its books, and the thread that looks after them prints a traceback
    when the channel is closed. A call that is waited for in its own code looks the same, hence `_MOST`.
    """
    file: str | None = getattr(sys.modules.get("grpc"), "__file__", None)  # it is loaded late, or not at all
    if file is None:
        return False
    here = file.removesuffix("__init__.py")
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(here):
            return name != here + "_common.py"  # where it waits for its own threads
        frame = frame.f_back
    return False


def _within_wait(frame: FrameType | None) -> bool:
    """Whether somebody is about to wait for a condition, or about to have waited.

    The condition's lock has been let go of then, or not been taken again, and whoever is interrupted there lets go of it once more: that
    is an error, which takes the place of the interrupt. While one waits it does no harm.
    """
    while frame is not None:
        if frame.f_code is threading.Condition.wait.__code__:
            return frame.f_lineno not in _waits()
        frame = frame.f_back
    return False


@functools.cache
def _waits() -> frozenset[int]:
    """The lines of `Condition.wait` in which it waits."""
    import inspect  # takes a command longer to load than all of this, and is seldom needed

    try:
        lines, first = inspect.getsourcelines(threading.Condition.wait)
    except OSError:  # without its source they look like the others, hence `_MOST`
        return frozenset()
    return frozenset(first + n for n, line in enumerate(lines) if ".acquire(" in line)


@contextmanager
def heard() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM raise KeyboardInterrupt on the main thread. Leaves handlers that somebody else has put in place.

    Raises:
        KeyboardInterrupt: At the latest at the end of what is inside.
    """
    hearing, ours = _Hearing(), dict[signal.Signals, Any]()
    if threading.current_thread() is threading.main_thread():
        ours = {
            number: before
            for number in (signal.SIGINT, signal.SIGTERM)
            if (before := signal.getsignal(number)) in (signal.default_int_handler, signal.SIG_DFL, _end)
        }
    for number in ours:
        signal.signal(number, hearing)
    try:
        yield
        if hearing.forget():
            raise KeyboardInterrupt
    finally:
        hearing.forget()
        forget()
        for number, before in ours.items():
            signal.signal(number, before)
