"""A state store's process, seen from whoever keeps it running."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from statestore import lifetime
from statestore.errors import Missing
from statestore.lifetime import Spawn

_READ = 4096
_ERROR = re.compile(r" ERROR statestore[\w.]*: ")
"""What the server's own errors look like in its log; those of libraries only lead to them."""


class StoreProcess:
    """`python -m statestore.server`. `start` may be called again after it has ended: the address stays.

    Args:
        arguments: Of the server, without --listen and --parent.
        log: File for what it says, appended to.
        spawn: Starts a program that ends with this process.
        listen: Where it listens; port 0 for a free one, which it then keeps.
        python: The interpreter.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        spawn: Spawn = lifetime.spawn,
        listen: str = "127.0.0.1:0",
        python: str = sys.executable,
    ) -> None:
        self.log = log
        self.arguments = list(arguments)
        """For the next start."""
        self._spawn = spawn
        self._listen = listen
        self._python = python
        self.process: subprocess.Popen[bytes] | None = None
        self._said = 0
        """Bytes in the log when it was started last."""

    @property
    def address(self) -> str:
        """host:port; known once it was started."""
        return self._listen

    def launch(self) -> None:
        """Start it; it is not ready yet.

        Raises:
            Missing: It cannot be started.
        """
        argv = [self._python, "-P", "-m", "statestore.server", *self.arguments]
        argv += ["--listen", self._listen, "--parent", str(os.getpid())]
        with contextlib.suppress(OSError):
            self._said = self.log.stat().st_size
        try:
            self.process = self._spawn(argv, log=self.log, stdout=subprocess.PIPE)
        except OSError as error:
            raise Missing(f"the state store cannot be started: {error}") from error

    def wait_ready(self, timeout: float = 30.0) -> str:
        """Wait until it serves. Returns its address.

        Raises:
            Missing: It ended, or is not ready within `timeout` seconds.
        """
        process = self.process
        assert process is not None and process.stdout is not None
        deadline = time.monotonic() + timeout
        said = b""
        poll = select.poll()  # `select` does not take descriptors from 1024 on
        poll.register(process.stdout, select.POLLIN)
        while b"\n" not in said:
            left = max(0.0, deadline - time.monotonic())
            if not poll.poll(left * 1000):
                self.kill()
                raise Missing(
                    f"the state store is not ready within {timeout:g} s", remedy=f"Its log: {self.log}"
                )
            data = os.read(process.stdout.fileno(), 4096)
            if not data:
                code = process.wait()
                raise Missing(
                    f"the state store ended with exit code {code}: {_reason(self.log, self._said)}",
                    remedy=f"Its log: {self.log}",
                )
            said += data
        try:
            self._listen = str(json.loads(said)["address"])
        except (ValueError, KeyError, TypeError) as e:
            self.kill()
            raise Missing(
                f"the state store said {said[:80]!r} in place of its address",
                remedy=f"See what else writes to its standard output when Python starts; its log: {self.log}",
            ) from e
        return self._listen

    def start(self, timeout: float = 30.0) -> str:
        """Start it and wait until it serves; see `launch` and `wait_ready`."""
        self.launch()
        return self.wait_ready(timeout)

    def stop(self, grace: float = 5.0) -> None:
        """End it. Safe to call twice."""
        if self.process is not None:
            lifetime.end(self.process, grace)
            self._forget()

    def kill(self) -> None:
        """End it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._forget()

    def _forget(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            with contextlib.suppress(OSError):
                self.process.stdout.close()

    def __enter__(self) -> StoreProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _reason(log: Path, since: int, lines: int = 3) -> str:
    """Why it ended: its own last word of an error, else the last lines of what it has said since."""
    try:
        with log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(since if since <= size else 0, size - _READ))
            said = file.read().decode(errors="replace").rstrip().splitlines()
    except OSError:
        return "no log"
    last = next((n for n in range(len(said) - 1, -1, -1) if _ERROR.search(said[n])), None)
    if last is not None:
        return "\n".join([_ERROR.split(said[last], maxsplit=1)[1], *said[last + 1 :]])
    return "\n".join(said[-lines:]) or "its log is empty"
