"""One open connection: written by whoever has something, read by the loop.

Writing: whoever calls `flush` pulls what is unsent and writes it, unless somebody else is writing: that one takes it
along. What the socket doesn't take is kept, and written by the loop when it can be.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from elastic.transport.base import Buffer
from elastic.transport.loop import READ, WRITE, Loop

_MOST = 1024  # buffers in one system call (IOV_MAX)
_SMALL = 512  # bytes; buffers that are smaller on average are cheaper to join than to list


class Channel:
    """A connected, non-blocking socket.

    Args:
        loop: Serves it.
        sock: The socket; the channel owns it from now on.
        pending: Whether there is something to write; called without any lock.
        pull: Gives what is to be written next; called by one thread at a time, never after `close`.
        readable: Called by the loop when there is input.
        failed: Called by the loop, at most once, when writing has failed.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        *,
        pending: Callable[[], bool],
        pull: Callable[[], list[Buffer]],
        readable: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self.sock = sock
        self._loop = loop
        self._pending = pending
        self._pull = pull
        self._readable = readable
        self._failed = failed
        self._writing = threading.Lock()
        self._rest: list[Buffer] = []  # pulled and not written yet
        self._choked = False  # the socket is full: only the loop writes
        self._closed = False
        loop.watch(sock, READ, self._ready)

    def flush(self) -> None:
        """Write what is pending, as far as the socket takes it. Any thread; never blocks."""
        # After letting the lock go, look again: somebody may have come meanwhile and left, relying on this thread.
        while not self._choked and not self._closed and self._pending():
            if not self._writing.acquire(blocking=False):
                return
            try:
                self._write()
            finally:
                self._writing.release()

    def close(self) -> None:
        """Close the socket. Only on the loop's thread, or after it has ended."""
        if self._closed:
            return
        self._loop.forget(self.sock)
        # A writer is inside a system call that doesn't block; the descriptor must not be reused under it.
        with self._writing:
            self._closed = True
            self._rest = []
            self.sock.close()

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._unchoke()
        if events & READ and not self._closed:
            self._readable()

    def _unchoke(self) -> None:
        with self._writing:
            self._choked = False
            self._write()
        self.flush()
        if not self._choked and not self._closed:
            self._loop.watch(self.sock, READ, self._ready)

    def _write(self) -> None:
        """Write the rest, or what is pulled. Holds the writing lock."""
        if self._closed or self._choked:
            return
        buffers = self._rest or self._pull()
        try:
            self._rest = self._send(buffers)
        except OSError as e:
            self._rest = []
            self._choked = True  # nobody else need try
            error = e
            self._loop.post(lambda: None if self._closed else self._failed(error))
            return
        if self._rest:
            self._choked = True
            self._loop.post(self._listen_for_room)

    def _listen_for_room(self) -> None:
        if self._choked and not self._closed:
            self._loop.watch(self.sock, READ | WRITE, self._ready)

    def _send(self, buffers: list[Buffer]) -> list[Buffer]:
        """Returns what the socket didn't take."""
        count = len(buffers)
        sizes = list(map(len, buffers))
        if count > 16 and sum(sizes) < count * _SMALL:
            buffers = [b"".join(buffers)]
            sizes = [len(buffers[0])]
            count = 1
        at = 0
        while at < count:
            end = min(count, at + _MOST)
            wanted = sum(sizes[at:end])
            try:
                sent = self.sock.sendmsg(buffers[at:end] if count > _MOST else buffers)
            except BlockingIOError:
                return buffers[at:]
            if sent < wanted:
                while sent >= sizes[at]:
                    sent -= sizes[at]
                    at += 1
                return [memoryview(buffers[at])[sent:], *buffers[at + 1 :]]
            at = end
        return []
