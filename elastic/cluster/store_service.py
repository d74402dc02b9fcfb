"""A node's state store as a process of its own, with the embedded back end."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from elastic import procs
from elastic.model.ids import NodeId
from statestore import lifetime
from statestore.address import StoreAddress, boot_id
from statestore.errors import Unavailable
from statestore.process import StoreProcess

DIRECTORY = "states"
"""In the node's directory."""
LOG = "store.log"
_LONGEST = 99
"""Bytes of a Unix socket's path."""
_LEAVE = 5.0


class StoreService:
    """`python -m statestore.server`; see `Service`. Started again, it has the same address.

    Args:
        arguments: Of the server: the back end and its options.
        log: File for what it says.
        host: Where it listens.
        unix: Path of a Unix socket for processes of this machine.
        group: See `StoreAddress`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        log: Path,
        host: str = "127.0.0.1",
        unix: Path | None = None,
        group: str = "",
    ) -> None:
        self.arguments = list(arguments)
        """For the next start."""
        self._log = log
        self._host = host
        self._unix = unix
        self._lock = threading.Lock()
        self._closed = False
        self._group = group
        self.exit_code: int | None = None
        """Of the last one that did not come to serve."""
        self._process = self._make(f"{host}:0")

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The one that runs or ran last."""
        return self._process.process

    @property
    def pid(self) -> int | None:
        """Of the process that runs or ran last."""
        process = self._process.process
        return None if process is None else process.pid

    def start(self, timeout: float) -> str:
        with self._lock:
            if self._closed:
                raise Unavailable("the state store is being ended")
            self.exit_code = None
            near = ("--near", str(self._unix)) if self._unix is not None else ()
            self._process.arguments = [*self.arguments, *near]
            self._process.launch()
        try:
            address = self._process.wait_ready(timeout)
        except BaseException:  # whatever it is: it runs, and nobody would know of it
            self._process.stop(0.0)
            process = self._process.process
            self.exit_code = None if process is None else process.returncode
            with self._lock:
                self._process = self._make(f"{self._host}:0")  # somebody else may have its port now
            raise
        if self._unix is None:
            return str(StoreAddress(address, group=self._group))
        return str(StoreAddress(address, str(self._unix), boot_id(), self._group))

    def wait(self) -> str:
        process = self._process.process
        assert process is not None
        code = process.wait()
        self._process.stop()
        return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"

    def end(self) -> None:
        """End it, to start it again."""
        self._process.stop(_LEAVE)

    def terminate(self) -> None:
        with self._lock:
            self._closed = True
            process = self._process.process
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()

    def kill(self) -> None:
        self.terminate()
        process = self._process.process
        if process is not None:
            lifetime.end(process, 0.0 if process.poll() is not None else _LEAVE)

    def _make(self, listen: str) -> StoreProcess:
        return StoreProcess(self.arguments, self._log, spawn=procs.spawn, listen=listen)


def socket_path(run_dir: Path, node: NodeId, directory: Path) -> Path | None:
    """Where the Unix socket of a node's store lies; None when the path would be too long for one."""
    name = hashlib.blake2b(f"{node} {directory}".encode(), digest_size=8).hexdigest()
    path = run_dir.absolute() / f"s-{name}.sock"
    return path if len(bytes(path)) <= _LONGEST else None
