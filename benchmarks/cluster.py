"""A cluster on this machine for as long as a benchmark needs it, by the command line that users have."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

COMMAND = (sys.executable, "-m", "elastic.control.cli")
TIMEOUT = 300.0


class Cluster:
    """A running cluster.

    Args:
        home: The directory that it lives in.
    """

    def __init__(self, home: str) -> None:
        self.env = {**os.environ, "ELASTIC_HOME": home}

    def call(self, *arguments: str, timeout: float = TIMEOUT) -> str:
        """Run a command of `elastic` and return what it printed.

        Raises:
            RuntimeError: It failed.
        """
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode != 0:
            raise RuntimeError(f"elastic {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    def ask(self, *arguments: str) -> Any:
        """Run a command of `elastic` and return its data."""
        return json.loads(self.call(*arguments, "-o", "json"))

    @contextlib.contextmanager
    def began(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Begin a command of `elastic`; what it says goes to standard error.

        Raises:
            RuntimeError: It ended with an error. It is ended when the body was left early.
        """
        child = subprocess.Popen(
            [*COMMAND, *arguments], env=self.env, stdin=subprocess.DEVNULL, stdout=sys.stderr, text=True
        )
        try:
            yield child
            if child.poll():
                raise RuntimeError(f"elastic {arguments[0]} ended with {child.returncode}")
        finally:
            if child.poll() is None:
                child.terminate()
            child.wait()


@contextlib.contextmanager
def cluster(nodes: int = 2, slots: int = 1) -> Iterator[Cluster]:
    """Bring up a cluster of process nodes, and take it down at the end, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="eb-") as home:
        made = Cluster(home)
        try:
            made.call("up", "--nodes", str(nodes), "--slots", str(slots))
            yield made
        finally:
            with contextlib.suppress(RuntimeError):  # it may never have come up
                made.call("down", "--purge")
