"""Where every thread of this process is, in the log when a signal asks for it.

`faulthandler` walks other threads' frames while they run, and now and then brings the process down by that. So a thread of its own does
it, with the interpreter to itself. The signal's number comes through a pipe, which the interpreter writes to wherever its main thread is.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback


def write_on_signal(number: int) -> None:
    """Have all stacks written to standard error whenever that signal comes. From the main thread, once."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(number, lambda *_: None)  # what counts is that it is written to the pipe
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_serve, args=(read, number), name="stacks", daemon=True).start()


def stacks() -> str:
    """Of all threads, the innermost call last."""
    names = {t.ident: t.name for t in threading.enumerate()}
    parts = [
        f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sorted(sys._current_frames().items())
    ]
    return "\n".join(parts)


def _serve(read: int, number: int) -> None:
    while signals := os.read(read, 1 << 10):
        if number in signals:
            sys.stderr.write(stacks())
            sys.stderr.flush()
