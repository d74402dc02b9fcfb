"""Ctrl-C that isn't lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN = 0.05


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
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, _on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
