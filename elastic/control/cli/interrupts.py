"""Ctrl-C that isn't lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN = 0.05
_INTERRUPTED = 130


def hasten() -> None:
    """Have Ctrl-C end the process, without a traceback, while the code of a command is loaded and after its end has been told."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; a moment later when a finaliser runs: Python prints what is raised there, and goes on."""
    at = frame
    while at is not None:
        if at.f_code.co_name == "__del__":
            main = threading.main_thread().ident
            assert main is not None
            again = threading.Timer(_AGAIN, signal.pthread_kill, (main, signal.SIGINT))
            again.daemon = True
            again.start()
            return
        at = at.f_back
    raise KeyboardInterrupt


@contextmanager
def heard() -> Iterator[None]:
    """Inside, Ctrl-C always raises KeyboardInterrupt on the main thread. Leaves a handler that somebody else has put in place."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before not in (
        signal.default_int_handler,
        _end,
    ):
        yield
        return
    signal.signal(signal.SIGINT, _on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
