"""What a worker's code prints goes to its log, and a full disk must not end what the log is about: there it is lost, and raises nothing."""

from __future__ import annotations

import io
import sys
from typing import Any, TextIO

from statestore.errors import NO_SPACE


class _Log(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return memoryview(data).nbytes


def forgive() -> None:
    """Have standard output and standard error written so; at once, as before."""
    sys.stdout, sys.stderr = _forgiving(sys.stdout), _forgiving(sys.stderr)


def _forgiving(stream: TextIO) -> TextIO:
    log = _Log(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(log, encoding=stream.encoding, errors=stream.errors, write_through=True)
