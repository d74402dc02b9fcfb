"""The process groups of a node's workers, which nothing of them survives: not even the supervisor's being killed.

A worker dies with its supervisor by the kernel (`elastic.procs`), but what user code has started in its process group does not: the
supervisor is who ends that. So another process knows the groups, of which nothing more can go wrong than of a shell that reads a pipe. At
the end of the pipe, which is that of the supervisor, it ends them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import threading

from elastic.errors import EnvironmentProblem

log = logging.getLogger(__name__)

_KEEPER = (
    'while read -r line; do groups=$line; done; for group in $groups; do kill -s KILL -- "-$group"; done'
)
_END = 5.0


class Groups:
    """Thread-safe.

    Raises:
        EnvironmentProblem: The process that is to know them cannot be started.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        try:
            # Not by `elastic.procs`: it must not die with this process, but just after it.
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise EnvironmentProblem(f"/bin/sh cannot be started: {error}") from error
        assert self._keeper.stdin is not None
        self._stdin = self._keeper.stdin
        os.set_blocking(self._stdin.fileno(), False)

    def add(self, group: int) -> None:
        """That of a process that was started: end it with this process."""
        with self._lock:
            self._groups.add(group)
            self._tell()

    def discard(self, group: int) -> None:
        """It has been ended, and its number may soon be another's: to be called before the process that leads it is waited for."""
        with self._lock:
            self._groups.discard(group)
            self._tell()

    def close(self) -> None:
        """Whatever is left is ended. Safe to call twice."""
        with self._lock, contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self._keeper.wait(_END)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()

    def _tell(self) -> None:
        """All of them each time, in one write: what is read last is what is so."""
        try:
            os.write(self._stdin.fileno(), " ".join(map(str, sorted(self._groups))).encode() + b"\n")
        except (OSError, ValueError) as error:  # it was killed, or this is closed
            log.warning("what workers have started may outlive this process, should it be killed: %s", error)
