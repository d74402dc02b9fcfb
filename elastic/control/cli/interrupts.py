"""Ctrl-C that isn't lost, and SIGTERM as the same: whoever ends a command wants what it began to be ended, too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from elastic.interrupts import forget

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
    """Inside, Ctrl-C and SIGTERM raise KeyboardInterrupt on the main thread. Leaves handlers that somebody else has put in place."""
    ours: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        ours = {
            number: before
            for number in (signal.SIGINT, signal.SIGTERM)
            if (before := signal.getsignal(number)) in (signal.default_int_handler, signal.SIG_DFL, _end)
        }
    for number in ours:
        signal.signal(number, _on_interrupt)
    try:
        yield
    finally:
        forget()
        for number, before in ours.items():
            signal.signal(number, before)
