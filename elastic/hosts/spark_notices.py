"""Where tasks on the launcher's own machine say which process their supervisor is, so that it can be asked to end.

A Unix socket without a file (Linux's abstract ones: nothing is left of it when the launcher is killed): a task connects,
writes one line, and closes. Tasks elsewhere don't, and other users' processes are not listened to.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import sys
import threading
import uuid
from collections.abc import Callable

from elastic.hosts.spark_task import Process

log = logging.getLogger(__name__)

_LINE = 4096
_SECONDS = 5.0
_PAUSE = 0.5


class Notices:
    """Listens for tasks.

    Args:
        told: Called with a job's tag and its supervisor, for each attempt of it, on the listening thread.
    """

    def __init__(self, told: Callable[[str, Process], None]) -> None:
        self._told = told
        self._address = ""
        self._closing = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        if sys.platform == "linux":  # elsewhere no task finds that it is on the launcher's machine
            self._address = f"\0elastic-spark-{uuid.uuid4().hex}"
            self._listener.bind(self._address)
            self._listener.listen(64)
        self._thread = threading.Thread(target=self._listen, name="elastic-spark-notices", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where a task connects to; "" when there is none."""
        return self._address

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which close alone does not
        self._listener.close()
        self._thread.join(_SECONDS + 1.0)

    def _listen(self) -> None:
        told = False
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
                told = False
            except OSError as error:  # it is closed, or there is no descriptor
                if not told and not self._closing.is_set():
                    log.warning("no notice of a task can be taken: %s; it is tried again and again", error)
                    told = True
                self._closing.wait(_PAUSE)  # nothing tells when there is one again
                continue
            try:
                with connection, connection.makefile("rb") as stream:
                    connection.settimeout(_SECONDS)
                    if _user(connection) != os.getuid():
                        continue
                    tag, supervisor = json.loads(stream.readline(_LINE))
                    self._told(tag, Process(**supervisor))
            except (OSError, ValueError, TypeError) as error:
                log.warning("a task said something that is no notice: %s", error)


def _user(connection: socket.socket) -> int:
    """Whose process is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])
