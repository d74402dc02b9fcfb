"""A state store's process, seen from whoever keeps it running."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from statestore import lifetime
from statestore.errors import Missing
from statestore.lifetime import Spawn


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

    @property
    def address(self) -> str:
        """host:port; known once it was started."""
        return self._listen

    def launch(self) -> None:
        """Start it; it is not ready yet.

        Raises:
            Missing: It cannot be started.
        """
        argv = [self._python, "-m", "statestore.server", *self.arguments]
        argv += ["--listen", self._listen, "--parent", str(os.getpid())]
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
        while b"\n" not in said:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([process.stdout], [], [], left)[0]:
                self.kill()
                raise Missing(
                    f"the state store is not ready within {timeout:g} s", remedy=f"Its log: {self.log}"
                )
            data = os.read(process.stdout.fileno(), 4096)
            if not data:
                code = process.wait()
                raise Missing(
                    f"the state store ended with exit code {code}: {_tail(self.log)}",
                    remedy=f"Its log: {self.log}",
                )
            said += data
        self._listen = json.loads(said)["address"]
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


def _tail(log: Path, lines: int = 3) -> str:
    try:
        text = log.read_bytes()[-4096:].decode(errors="replace")
    except OSError:
        return "no log"
    return "\n".join(text.rstrip().splitlines()[-lines:]) or "its log is empty"
