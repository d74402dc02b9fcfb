"""Signals that are heard when they come.

Python calls its handlers on the main thread, between two steps of it. One that comes just before the main thread begins to wait, as it
gives the interpreter away, is noted, and heard when that wait ends: a process that waits to be told to end would not. What is written
to a pipe meanwhile (`signal.set_wakeup_fd`) another thread reads at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping

from elastic.queues import take

log = logging.getLogger(__name__)

POKE = signal.SIGURG
"""Ends a wait of the main thread: nobody else uses it, and by default it does nothing."""
AGAIN = 0.02
"""Seconds after which it is sent again, until the main thread has gone on: it may come a moment too early as well."""
_NOBODY = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None)


def insist(told: Mapping[int, Callable[[], None]] | None = None) -> Callable[[], None]:
    """From now on signals are heard when they come, whatever the main thread is about to do. From the main thread.

    Handlers that are there are called on the main thread, as ever. A process that is forked from this one has none of this: what is sent
    to it concerns nobody else.

    Args:
        told: By number, what is called when a signal comes, on a thread of its own, wherever the main thread is.

    Returns:
        What undoes it; from the main thread.
    """
    calls = dict(told or {})
    read, write = os.pipe()
    os.set_blocking(write, False)
    gone_on: queue.SimpleQueue[None] = queue.SimpleQueue()  # its `put` may be called within itself
    handlers = {n: signal.signal(n, lambda *_: None) for n in calls if signal.getsignal(n) in _NOBODY}
    silent = {POKE, *handlers}
    handlers[POKE] = signal.signal(POKE, lambda *_: poked(gone_on.put))
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    main = threading.get_ident()
    ended = threading.Event()

    def listen() -> None:
        while numbers := os.read(read, 1 << 10):
            for number in calls.keys() & numbers:
                try:
                    calls[number]()
                except Exception:  # the next one is to be heard all the same
                    log.exception("signal %d", number)
            if not silent.issuperset(numbers):
                _have_gone_on(main, gone_on, ended)
        os.close(read)

    masks = threading.local()

    def fork() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, calls)

    def forked() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def begun() -> None:
        if not ended.is_set():
            signal.set_wakeup_fd(-1)  # it would write to the same pipe
            put_back()
        forked()

    def put_back() -> None:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    threading.Thread(target=listen, name="signals", daemon=True).start()
    os.register_at_fork(before=fork, after_in_parent=forked, after_in_child=begun)

    def undo() -> None:
        ended.set()
        signal.set_wakeup_fd(before)
        put_back()
        os.close(write)

    return undo


def poked(go_on: Callable[[None], None]) -> None:
    """What `POKE` does on the main thread: say that it has gone on.

    Seldom (once in some 700 signals to a busy CPython 3.11.2) it is called while what the handler before it has raised is on its way. The
    interpreter then takes that for a fault of whatever is called here, which has done what it should: it goes on its way.

    Args:
        go_on: Says so.
    """
    try:
        go_on(None)
    except SystemError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None


def _have_gone_on(main: int, gone_on: queue.SimpleQueue[None], ended: threading.Event) -> None:
    """Have the main thread take a step, and with it call what handlers there are to call."""
    with contextlib.suppress(queue.Empty):
        while True:
            gone_on.get_nowait()
    while not ended.is_set():
        signal.pthread_kill(main, POKE)
        with contextlib.suppress(queue.Empty):
            take(gone_on, AGAIN)
            return
