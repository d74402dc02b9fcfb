"""The cluster under test: started as `elastic up` does, with what the run has to know of its processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from chaos.shape import Shape
from elastic.api.bundle import build_bundle
from elastic.cluster.launcher import ClusterInfo, UpOptions, start_background, stop
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import ElasticError

JOB = Path(__file__).with_name("job.py")
SLOTS = 3
LIMIT = 90.0


class Stuck(Exception):
    """Something that has to happen did not, in a time that is long for it."""


class NotNow(Exception):
    """A round cannot be done with what runs where."""


@dataclass(frozen=True)
class Process:
    """A process of the cluster, and what tells it from a later one with its number."""

    pid: int
    born: float
    what: str

    @classmethod
    def of(cls, process: psutil.Process, what: str) -> Process:
        return cls(process.pid, process.create_time(), what)

    def alive(self) -> bool:
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(self.pid)
            return found.create_time() == self.born and found.status() != psutil.STATUS_ZOMBIE
        return False

    def kill(self) -> bool:
        """SIGKILL; whether it was there."""
        return self._signal(signal.SIGKILL)

    def freeze(self) -> bool:
        """No processor for it any more; whether it was there."""
        return self._signal(signal.SIGSTOP)

    def thaw(self) -> bool:
        """It goes on where it was; whether it was there."""
        return self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> bool:
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


class Cluster:
    """A cluster of this run, in a directory of this run.

    Args:
        directory: Where everything is kept.
        say: Told what happens.
        start: Starts it.
        end: Ends it; None: as `elastic down` does.
    """

    def __init__(
        self,
        directory: Path,
        options: UpOptions,
        say: Callable[[str], None],
        start: Callable[[UpOptions, Callable[[str], None]], ClusterInfo] = start_background,
        end: Callable[[], object] | None = None,
    ) -> None:
        self.directory = directory
        self.options = options
        self._say = say
        self._end = end or (lambda: stop(options.home, options.cluster))
        self.info = start(options, say)
        self.client = Client(self.info.nimbus, timeout=15.0)
        self._launcher = psutil.Process(self.info.pid)

    def close(self) -> None:
        """End it; what it wrote stays."""
        self.client.close()
        with contextlib.suppress(ElasticError):
            self._end()

    # ------------------------------------------------------------------ topologies

    def submit(self, name: str, place: Path, *, workers: int, shape: Shape) -> None:
        arguments = [
            *("--place", str(place), "--name", name),
            *("--workers", str(workers), "--counts", str(shape.counts), "--keys", str(shape.keys)),
        ]
        loaded = load(str(JOB), arguments)
        bundle = build_bundle(loaded.topology, loaded.entry, self.directory / f"{name}.zip")
        self.client.submit(loaded.topology.spec, bundle.path, requires=bundle.requires)

    # ------------------------------------------------------------------ processes

    def _children(self, words: str, of: psutil.Process | None = None) -> list[psutil.Process]:
        found = []
        for p in (of or self._launcher).children():
            with contextlib.suppress(psutil.Error):
                if words in " ".join(p.cmdline()):
                    found.append(p)
        return found

    def zookeeper(self) -> Process:
        return Process.of(self._one(self._children("ZooKeeperServerMain"), "ZooKeeper"), "zookeeper")

    def nimbus(self, leading: bool) -> Process:
        """The Nimbus that leads, or one that stands by."""
        leader = self.client.info().leader
        found = [
            p for p in self._children("elastic.control.nimbus_main") if (leader in p.cmdline()) == leading
        ]
        return Process.of(self._one(found, "Nimbus"), "nimbus" if leading else "standby")

    def supervisor(self, node: str) -> Process:
        found = [p for p in self._children("supervisor_main") if _argument(p, "--node") == node]
        return Process.of(self._one(found, f"supervisor of {node}"), "supervisor")

    def node(self, node: str) -> list[Process]:
        """Every process of a node: supervisor first."""
        supervisor = psutil.Process(self.supervisor(node).pid)
        found = [Process.of(supervisor, "node")]
        for p in supervisor.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found.append(Process.of(p, "node"))
        return found

    def store(self, node: str) -> Process:
        supervisor = psutil.Process(self.supervisor(node).pid)
        return Process.of(
            self._one(self._children("statestore.server", supervisor), f"store of {node}"), "store"
        )

    def member(self, node: str) -> Process:
        supervisor = psutil.Process(self.supervisor(node).pid)
        found = [p for p in self._children("hazelcast", supervisor) if "java" in p.name()]
        return Process.of(self._one(found, f"member of {node}"), "member")

    def worker(self, pid: int) -> Process:
        return Process.of(psutil.Process(pid), "worker")

    @staticmethod
    def _one(found: Sequence[psutil.Process], what: str) -> psutil.Process:
        if not found:
            raise Stuck(f"there is no process: {what}")
        return found[0]

    def processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [self._launcher, *self._launcher.children(recursive=True)]
        return []

    # ------------------------------------------------------------------ what was said

    def events(self) -> Iterator[dict[str, Any]]:
        """Everything that was said, as the events' files have it, oldest first."""
        base = Path(self.options.home) / self.options.cluster / "nimbus"
        seen: set[int] = set()
        for name in ("events.jsonl.1", "events.jsonl"):
            with contextlib.suppress(FileNotFoundError):
                for line in (base / name).read_text().splitlines():
                    with contextlib.suppress(json.JSONDecodeError):
                        found = json.loads(line)
                        if found["seq"] not in seen:
                            seen.add(found["seq"])
                            yield found["event"]

    def until(self, what: str, true: Callable[[], Any], limit: float = LIMIT) -> Any:
        """For what nobody tells; an error of the cluster while it recovers is asked again."""
        deadline = time.monotonic() + limit
        found: Any = None
        while True:
            try:
                if found := true():
                    return found
            except (ElasticError, psutil.Error, Stuck) as e:
                found = e
            if time.monotonic() > deadline:
                raise Stuck(f"not within {limit:g} s: {what} ({found})")
            time.sleep(0.1)


def _argument(process: psutil.Process, name: str) -> str:
    with contextlib.suppress(psutil.Error, ValueError, IndexError):
        words = process.cmdline()
        return words[words.index(name) + 1]
    return ""
