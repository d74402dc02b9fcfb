"""Runs of the topology of `pauses` on a cluster of this machine: started, moved about, ended, and what its sink has noted."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks._pauses_notes import Notes, Window
from elastic.api.bundle import build_bundle
from elastic.cluster.launcher import ClusterInfo, UpOptions, start_background, stop
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import ElasticError, NotFound
from elastic.model.views import MoveView, TopologyDetail

PATIENCE = 90.0
LOOK = 0.2
BEHIND = 0.05
HEAP = 5 << 30
"""Bytes of a Hazelcast member's heap. A quarter of it is used; room for twice the 256 MB of a state is kept while it is copied ahead,
beside what the move before has not removed yet."""
EVENTS = 40
"""Of the cluster's last, so many are shown when something is missing."""
AFTER = 0.5
"""Seconds after the last step of a move that belong to it."""


@contextlib.contextmanager
def cluster(
    host: str, store: str, slots: int = 1, *, nodes: int = 2, cores: float = 0.0
) -> Iterator[ClusterInfo]:
    """Some nodes; ended at the end, whatever happens.

    Args:
        cores: What a node may use; 0: the machine's, shared by all.
    """
    with tempfile.TemporaryDirectory(prefix="eb-") as home:
        memory = HEAP if store == "hazelcast" else 0
        options = UpOptions(
            home=home, host=host, nodes=nodes, slots=slots, store=store, store_memory=memory, cores=cores
        )
        try:
            yield start_background(options, lambda _: None)
        finally:
            with contextlib.suppress(NotFound):
                stop(home, "default", purge=True)


@dataclass
class Job:
    """One run.

    Attributes:
        tasks: Each component's.
        notes: What the sink noted, once it has ended.
        moves: All of them, as Nimbus tells them.
        quiet: Times without a move.
    """

    info: ClusterInfo
    name: str
    arguments: tuple[str, ...]
    client: Client
    directory: Path
    tasks: dict[str, list[int]] = field(default_factory=dict)
    notes: Notes | None = None
    moves: list[MoveView] = field(default_factory=list)
    quiet: list[Window] = field(default_factory=list)

    def wait(self, what: str, until: Callable[[TopologyDetail], bool]) -> TopologyDetail:
        """Look until something is so.

        Raises:
            RuntimeError: It is not so in time.
        """
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            detail = self.client.describe(self.name)
            if detail.summary.status.value not in ("active", "inactive"):
                raise RuntimeError(f"{self.name} has ended: {detail.summary.reason}")
            if until(detail):
                return detail
            time.sleep(LOOK)
        counts = {c.id: (c.executed, c.emitted, c.queued) for c in detail.components}
        workers = {w.worker: (w.alive, w.epoch) for w in detail.workers}
        raise RuntimeError(
            f"{self.name}: waited {PATIENCE:g} s in vain for: {what}\n{counts}\n{workers}\n{detail.waits}\n"
            + "\n".join(e.message for e in detail.errors)
            + "\n".join(s.text for s in self.client.stacks(self.name))
        )

    def place(self, components: str, node: str) -> None:
        """Have components run on a node."""
        self.client.move(self.name, components, node, wait=PATIENCE)

    def steady(self) -> None:
        """Wait until the stream is at its rate again: while tasks are placed it falls behind, and then runs as fast as it goes."""
        self.wait(
            f"the spout and the sink to be less than {BEHIND:g} s behind",
            lambda d: _custom(d, "behind") + _custom(d, "late") < BEHIND,
        )

    def move(self, what: str, node: str, share: float | None = None) -> MoveView:
        """Move, and wait until the move has ended."""
        before = self.newest()
        self.client.move(self.name, what, node, wait=PATIENCE, share=share)
        return self.followed(before)

    def newest(self) -> int:
        """The number of the newest move; 0: there was none yet."""
        return max((m.epoch for m in self.client.moves(self.name, tasks=False)), default=0)

    def followed(self, before: int) -> MoveView:
        """The newest move after that of a number, when it has ended.

        Raises:
            RuntimeError: There is none: all that was to move was there already.
        """
        if self.newest() <= before:
            raise RuntimeError(f"{self.name}: no move has begun after move {before}")
        newest: dict[int, MoveView] = {}
        with contextlib.closing(self.client.follow_moves(self.name)) as stream:  # type: ignore[type-var]
            for views in stream:
                newest.update((v.epoch, v) for v in views if v.epoch > before)
                if newest and all(v.state == "ended" for v in newest.values()):
                    break
        made = [newest[e] for e in sorted(newest)]
        self.moves += made
        return made[-1]

    def rest(self, seconds: float, windows: int = 1) -> None:
        """Let it run without a move, and remember when that was."""
        start = time.monotonic_ns()
        time.sleep(seconds)
        step = (time.monotonic_ns() - start) // windows
        self.quiet += [Window(start + n * step, start + (n + 1) * step) for n in range(windows)]

    def end(self) -> Notes:
        """End it; what the sink has noted.

        Raises:
            RuntimeError: Not all of it was written: a sink of which nothing is known has no gaps.
        """
        self.stop()
        self.notes = Notes.read(self.directory)
        last = max((w.end for w in (*map(window_of, self.moves), *self.quiet)), default=0)
        if not self.notes.came or self.notes.came[-1] < last - AFTER * 1e9:
            known = (last - self.notes.came[-1]) / 1e9 if self.notes.came else float("inf")
            files = sorted(f.name for f in self.directory.iterdir())
            raise RuntimeError(
                f"{self.name}: the sink's notes end {known:.1f} s before what was to be measured; there are {files}\n"
                + "\n".join(f"{e.time:.3f} {e.kind}: {e.message}" for _, e in self.client.events(tail=EVENTS))
            )
        return self.notes

    def stop(self) -> None:
        """End it, and wait until its workers have."""
        self.client.kill(self.name, wait=PATIENCE)
        with contextlib.suppress(NotFound):
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and self.client.describe(self.name).workers:
                time.sleep(LOOK)


@contextlib.contextmanager
def job(info: ClusterInfo, name: str, *arguments: str) -> Iterator[Job]:
    """Submit it, and wait until every entry of its state is there."""
    with tempfile.TemporaryDirectory(prefix="eb-") as directory, Client(info.nimbus) as client:
        given = ("--name", name, "--directory", directory, *arguments)
        loaded = load("benchmarks._pauses_job", given)
        bundle = build_bundle(loaded.topology, loaded.entry, Path(directory) / "bundle.zip")
        client.submit(loaded.topology.spec, bundle.path, requires=bundle.requires)
        made = Job(info, name, given, client, Path(directory))
        from benchmarks._pauses_job import parser

        keys = parser().parse_args(given).keys
        try:
            detail = made.wait("all entries", lambda d: _entries(d) >= keys)
            for e in detail.executors:
                made.tasks.setdefault(e.component, []).extend(range(e.first, e.last + 1))
            yield made
        finally:
            with contextlib.suppress(ElasticError):
                client.kill(name, wait=0.0)


def _entries(detail: TopologyDetail) -> float:
    return _custom(detail, "entries")


def _custom(detail: TopologyDetail, name: str) -> float:
    return sum(c.custom.get(name, 0.0) for c in detail.components)


def window_of(move: MoveView) -> Window:
    """From its beginning until a little after its last step, by the monotonic clock."""
    shift = time.time() - time.monotonic()
    last = max((t.times[s] for t in move.tasks for s in t.times), default=move.ended)
    return Window(round((move.began - shift) * 1e9), round((last + AFTER - shift) * 1e9))
