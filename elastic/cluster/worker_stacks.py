"""Where every thread of this process is, told when a signal asks for it.

`faulthandler` walks other threads' frames while they run, and now and then brings the process down by that. So a thread of its own does
it, with the interpreter to itself. The signal's number comes through a pipe, which the interpreter writes to wherever its main thread is.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

MOST = 1 << 20
"""Characters of all stacks together; there may be any number of threads."""

FIRST = 1.0
"""Seconds that what is told before them may take."""


def tell_on_signal(number: int, tell: Callable[[str], None], first: Callable[[], str] = str) -> None:
    """Have all stacks told whenever that signal comes, on a thread of its own. From the main thread, once.

    Args:
        first: What is told before them; a call that fails, or does not return, costs no more than itself.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(number, lambda *_: None)  # what counts is that it is written to the pipe
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_serve, args=(read, number, tell, first), name="stacks", daemon=True).start()


def stacks() -> str:
    """Of all threads, the innermost call last."""
    names = {t.ident: t.name for t in threading.enumerate()}
    parts = [
        f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sorted(sys._current_frames().items())
    ]
    return "\n".join(parts)[:MOST]


def _serve(read: int, number: int, tell: Callable[[str], None], first: Callable[[], str]) -> None:
    while signals := os.read(read, 1 << 10):
        if number in signals:
            tell(f"{_within(first)}{stacks()}"[:MOST])


def _within(first: Callable[[], str]) -> str:
    """What it says, if it does: whoever asks for stacks has reason to think that something hangs."""
    said: list[str] = []

    def ask() -> None:
        try:
            text = first()
        except Exception as e:  # noqa: BLE001 - the stacks are told all the same
            text = f"(what stands still cannot be said: {e})"
        said.append(f"{text}\n" if text else "")

    thread = threading.Thread(target=ask, name="stacks-first", daemon=True)
    thread.start()
    thread.join(FIRST)
    return said[0] if said else "(who is at the moves does not return: see below)\n\n"
