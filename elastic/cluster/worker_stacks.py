"""Where every thread of this process is, told when a signal asks for it.

`faulthandler` walks other threads' frames while they run, and now and then brings the process down by that. So a thread does it, with
the interpreter to itself: that which signals come to, wherever the main thread is (`elastic.signals`).
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

MOST = 1 << 20
"""Characters of all stacks together; there may be any number of threads."""

FIRST = 1.0
"""Seconds that what is told before them may take."""


def asked(first: Callable[[], str] = str) -> str:
    """All stacks, and what is told before them.

    Args:
        first: A call that fails, or does not return, costs no more than itself.
    """
    return f"{_within(first)}{stacks()}"[:MOST]


def stacks() -> str:
    """Of all threads, the innermost call last."""
    names = {t.ident: t.name for t in threading.enumerate()}
    parts = [
        f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sorted(sys._current_frames().items())
    ]
    return "\n".join(parts)[:MOST]


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
