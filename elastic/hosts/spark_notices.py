"""Where tasks on the launcher's own machine say which process their supervisor is, so that it can be asked to end.

A Unix socket in a directory of its own: a task connects, writes one line, and closes. Tasks elsewhere don't.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from elastic.hosts.spark_task import Process

log = logging.getLogger(__name__)

_LINE = 4096
_SECONDS = 5.0


class Notices:
    """Listens for tasks.

    Args:
        told: Called with a job's tag and its supervisor, for each attempt of it, on the listening thread.
    """

    def __init__(self, told: Callable[[str, Process], None]) -> None:
        self._told = told
        self._folder = tempfile.mkdtemp(prefix="elastic-spark-")
        self._path = str(Path(self._folder) / "supervisors")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._listen, name="elastic-spark-notices", daemon=True)
        self._thread.start()

    @property
    def path(self) -> str:
        return self._path

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which close alone does not
        self._listener.close()
        self._thread.join(_SECONDS + 1.0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                with connection, connection.makefile("rb") as stream:
                    connection.settimeout(_SECONDS)
                    tag, supervisor = json.loads(stream.readline(_LINE))
                    self._told(tag, Process(**supervisor))
            except (OSError, ValueError, TypeError) as error:
                log.warning("a task said something that is no notice: %s", error)
