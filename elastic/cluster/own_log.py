"""What the launcher, a Nimbus and a supervisor log: to standard error, which is a file of the cluster's, and does not grow without bounds.

The file is not renamed, as the handlers of Python's library would: what a process says beside its log (tracebacks, libraries, a JVM that it
started) goes to the same one, and names of older ones have a meaning already (`launcher.log.1` is an earlier cluster's).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from elastic.machine import limit_reached

MAX_BYTES = 20 << 20
"""Size at which the older half of a log is cut off."""


def log_to_stderr(level: str, files: Iterable[Path] = (), limit: int = MAX_BYTES) -> None:
    """Set up logging.

    Args:
        level: From which on something is logged.
        files: Those that may be this process's log. When standard error is one of them it is bounded; anything else is somebody else's.
        limit: Its size.
    """
    handler = _Bounded(limit) if any(map(_is_stderr, files)) else logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class LineFormatter(logging.Formatter):
    """A line of a log, and after an error of a limit that it does not name, which one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        errors = [
            *(record.args if isinstance(record.args, tuple) else ()),
            (record.exc_info or (None, None))[1],
        ]
        limits = [limit_reached(e) for e in errors if isinstance(e, BaseException)]
        return "\n".join([text, *filter(None, limits)])


def _is_stderr(path: Path) -> bool:
    try:
        handle = sys.stderr.fileno()
        # Where its writers do not append, they would go on behind a hole.
        return os.path.samestat(os.fstat(handle), path.stat()) and bool(
            fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_APPEND
        )
    except (OSError, ValueError):  # there is no such file, or standard error is none
        return False


class _Bounded(logging.StreamHandler):  # type: ignore[type-arg]  # it is generic for type checkers alone
    """To standard error; of a log that has become too large the newer half stays. What others write to it at that moment is lost."""

    def __init__(self, limit: int) -> None:
        super().__init__(sys.stderr)
        self._limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        with contextlib.suppress(OSError, ValueError):  # the next line tries again
            self._cut(self.stream.fileno())

    def _cut(self, handle: int) -> None:
        size = os.fstat(handle).st_size
        if size <= self._limit:
            return
        with open(f"/proc/self/fd/{handle}", "rb") as file:  # noqa: PTH123 - this file, also when its name is another's by now
            file.seek(size - self._limit // 2)
            file.readline()  # begins in the middle
            rest = file.read()
        os.truncate(handle, 0)
        left = memoryview(b"... what was before has been cut off\n" + rest)
        while left:
            left = left[os.write(handle, left) :]
