"""The socket on which the job says that it is at a point of a move, and waits to be let on: see `chaos/job.py`."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reached:
    """A task is at a point: "prepare", "get_state" or "set_state"."""

    point: str
    component: str
    task: int
    pid: int


class Gate:
    """Lets everybody on, except at the points that are held.

    Args:
        place: The directory of the record; the socket is `steps` in it.
    """

    def __init__(self, place: Path) -> None:
        self._path = place / "steps"
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(self._path))
        self._server.listen(128)
        self._lock = threading.Lock()
        self._points: frozenset[str] = frozenset()
        self._tasks: frozenset[int] = frozenset()
        self._wanted: Callable[[Reached], bool] = lambda _: False
        self._told: Callable[[Reached], None] = lambda _: None
        self._held: list[socket.socket] = []
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="gate", daemon=True)
        self._thread.start()

    def hold(
        self,
        points: Collection[str],
        tasks: Collection[int],
        wanted: Callable[[Reached], bool],
        told: Callable[[Reached], None],
    ) -> None:
        """Hold these tasks there from now on, until `release`.

        Args:
            wanted: Whether that one is to be held: a point is passed at other times, too.
            told: Called for each that is held. Both on the gate's thread.
        """
        with self._lock:
            self._points, self._tasks = frozenset(points), frozenset(tasks)
            self._wanted, self._told = wanted, told

    def release(self) -> int:
        """Let everybody on; how many were held."""
        with self._lock:
            held, self._held = self._held, []
            self._points, self._tasks = frozenset(), frozenset()
        for s in held:
            _answer(s)
        return len(held)

    def close(self) -> None:
        self._closed = True
        self.release()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(5.0)
        self._server.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        # Whoever is frozen before it has said anything keeps nobody else waiting.
        silent: list[socket.socket] = []
        while not self._closed:
            ready, _, _ = select.select([self._server, *silent], [], [])
            for s in ready:
                if s is self._server:
                    with contextlib.suppress(OSError):  # it is being closed
                        silent.append(self._server.accept()[0])
                else:
                    silent.remove(s)
                    self._hear(s)
        for s in silent:
            s.close()

    def _hear(self, s: socket.socket) -> None:
        """Hold who says where it is, or let it on."""
        try:
            point, component, task, pid = s.recv(200).decode().split()
            reached = Reached(point, component, int(task), int(pid))
        except (OSError, ValueError):
            s.close()
            return
        with self._lock:
            held = reached.point in self._points and reached.task in self._tasks
            wanted, told = self._wanted, self._told
        held = held and wanted(reached)
        with self._lock:
            held = held and reached.point in self._points  # it may have been released meanwhile
            if held:
                self._held.append(s)
        if held:
            told(reached)
        else:
            _answer(s)


def _answer(s: socket.socket) -> None:
    with contextlib.suppress(OSError):
        s.sendall(b"g")
    s.close()
