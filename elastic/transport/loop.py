"""The one I/O thread of a transport: sockets, timers and posted calls, in one selector loop.

The thread shares the interpreter with busy executors, so it makes few and large system calls, and sleeps until there is
something to do.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

logger = logging.getLogger(__name__)

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

Handler = Callable[[int], None]


class Timer:
    """A call in the future. `cancel` is for the loop's thread."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Don't call."""
        self._call = None

    def fire(self) -> None:
        """Call, unless cancelled. For the loop."""
        if self._call is not None:
            self._call()


class Loop:
    """A thread that serves sockets. Only `post`, `start`, `stop` and `inside` may be called on other threads.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._posted: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._woken = False
        self._stopping = False
        self._ears, self._mouth = socket.socketpair()
        self._ears.setblocking(False)
        self._mouth.setblocking(False)
        self._selector.register(self._ears, READ, self._hear)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after what was posted before, and wait for it (not when called on it)."""
        if self._thread.ident is None:
            self._release()
            return
        self.post(self._stop)
        if not self.inside:
            self._thread.join()

    @property
    def inside(self) -> bool:
        """Whether this is the loop's thread."""
        return threading.get_ident() == self._thread.ident

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` called on the loop's thread, in the order of posting. Dropped after `stop`."""
        if self._stopping:
            return
        self._posted.append(call)
        if not self._woken:
            self._woken = True
            with suppress(OSError):  # full: it is awake; closed: the loop has ended
                self._mouth.send(b"\0")

    def later(self, delay: float, call: Callable[[], None]) -> Timer:
        """Have `call` called after `delay` seconds."""
        timer = Timer(call)
        heapq.heappush(self._timers, (time.monotonic() + delay, next(self._order), timer))
        return timer

    def watch(self, sock: socket.socket, events: int, handler: Handler) -> None:
        """Call `handler` with the events that are ready, from now on; replaces what was said for that socket before."""
        try:
            self._selector.modify(sock, events, handler)
        except KeyError:
            self._selector.register(sock, events, handler)

    def forget(self, sock: socket.socket) -> None:
        """No longer watch a socket; call it before the socket is closed."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(sock)

    def _hear(self, _events: int) -> None:
        with suppress(BlockingIOError):
            self._ears.recv(4096)
        self._woken = False  # before the posted calls are taken: who posts after that wakes again

    def _stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        try:
            while not self._stopping:
                for key, events in self._selector.select(self._pause()):
                    self._call(partial(key.data, events))
                while self._posted:
                    self._call(self._posted.popleft())
                self._fire()
        finally:
            self._release()

    def _pause(self) -> float | None:
        if self._posted:
            return 0.0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _fire(self) -> None:
        if not self._timers:
            return
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._call(heapq.heappop(self._timers)[2].fire)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            logger.exception("the transport's thread goes on after an unexpected error")

    def _release(self) -> None:
        self._stopping = True
        self._selector.close()
        self._ears.close()
        self._mouth.close()
