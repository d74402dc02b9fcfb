"""A cluster and the command line to it, each command as its own process, as a user has them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from families import family, listens

from elastic.control import present
from elastic.control.cli.settings import Settings

LIMIT = 90.0


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True)
class Cluster:
    """A running cluster and the command line to it."""

    home: Path
    work: Path

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "elastic.control.cli", "--home", str(self.home), *words]

    def __call__(self, *words: str, limit: float = LIMIT) -> Done:
        done = subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            timeout=limit,
            cwd=self.work,
            env=environment(),
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.work,
            env=environment(),
        )

    def data(self, *words: str) -> Any:
        return self("-o", "json", *words).data

    def described(self, name: str) -> Any:
        """The data of `elastic describe`, without a process of its own: it is asked for again and again."""
        with Settings(self.home).connect() as client:
            return json.loads(json.dumps(present.description(client.describe(name))))

    def launcher(self) -> psutil.Process:
        return psutil.Process(json.loads((self.home / "default" / "cluster.json").read_text())["pid"])

    def leading_nimbus(self) -> psutil.Process:
        """The process of the Nimbus that leads."""
        port = int(self.data("info")["leader"].rpartition(":")[2])
        (found,) = [p for p in family(self.launcher().pid) if port in {at for _, at in listens(p)}]
        return found


@contextlib.contextmanager
def with_job(directories: pytest.TempPathFactory, job: str, *up: str) -> Iterator[Cluster]:
    """A cluster on which a topology runs, with its working directory as argument; ended at the end.

    Args:
        job: The program.
        up: Options of `elastic up`.
    """
    made = Cluster(directories.mktemp("h"), directories.mktemp("work"))
    (made.work / "job.py").write_text(job)
    try:
        for words in (("up", *up), ("submit", "job.py", str(made.work))):
            done = made(*words)
            assert done.code == 0, done.err
        yield made
    finally:
        made("down", "--purge")


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("ELASTIC_")}


def wait_until(what: str, true: Any) -> None:
    """For what no command waits for; bounded."""
    deadline = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)
