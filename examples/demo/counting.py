"""The first act of the demonstration: tasks move between nodes, with what they have counted, while they count; and the counts are right."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import Counter
from pathlib import Path

from elastic import Topology
from elastic.api.bundle import build_bundle
from elastic.cluster.launcher import ClusterInfo
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import Refused
from elastic.model.views import WorkerView

from .moving import Moving
from .stage import Story
from .text import Text
from .watch import Watch, placement

EXAMPLES = Path(__file__).resolve().parents[1]
WORKERS = 3
PATIENCE = 60.0
"""Seconds that any one step may take."""


class Counting:
    """One run.

    Args:
        input: A text file or a folder.
        seconds: How long it reads at least.
        rate: Lines per second.
        home: A directory of its own, for everything.
    """

    def __init__(self, input: str, seconds: float, rate: float, home: Path, story: Story) -> None:
        self.input, self.seconds, self.rate = input, seconds, rate
        self.home = home
        self.text = home / "text.txt"
        self.counts = home / "counts.tsv"
        self.say = story.say
        self._story = story

    def prepare(self) -> None:
        """Make the text that is read: the input's lines, from the beginning again until there are enough for the time."""
        made = self._text = Text(self.text, self.input, self.rate)
        made.write(self.seconds)
        self.say(
            f"The text: {self.input}, {made.distinct:,} lines, read {made.lines / made.distinct:.1f} times: {made.lines:,} lines"
            f" at {self.rate:g} lines/s, which takes {self.seconds:g} s; more of it should the show take longer."
        )

    def run(self, info: ClusterInfo) -> bool:
        """Everything, on a cluster; returns whether the counts are equal."""
        topology = self._submit(info)
        began = time.monotonic()
        watch = Watch(info.nimbus, topology.name, self._story)
        with watch.following():
            watch.wait("all workers running", lambda: _running(watch), PATIENCE)
            assert watch.detail is not None
            self.say(f"All workers run. {placement(watch.detail)}")
            with self._text.lasting():
                self._show(info, watch, began)
            ended = watch.wait_event("topology-finished", 0.0, 2 * self.seconds + PATIENCE)
        self.say()
        self.say(f"{ended.message}")
        return self.compare()

    def _show(self, info: ClusterInfo, watch: Watch, began: float) -> None:
        seconds = self.seconds
        _rest(watch, began + 0.08 * seconds)
        self._regroup(info, watch, {"split": 2, "count": 2})
        _rest(watch, began + 0.15 * seconds)
        self._kill(info, watch)
        _rest(watch, began + 0.3 * seconds)
        moving = Moving(info, watch, self.say, PATIENCE)
        node = moving.move("count")
        _rest(watch, began + 0.4 * seconds)
        moving.replace(node)
        self.say("That was all: it counts to the end of the text.")

    def _submit(self, info: ClusterInfo) -> Topology:
        given = ["--input", str(self.text), "--output", str(self.counts), "--rate", str(self.rate)]
        given += ["--workers", str(WORKERS)]
        loaded = load(str(EXAMPLES / "word_count.py"), given)
        topology = loaded.topology
        bundle = build_bundle(topology, loaded.entry, self.home / "bundle.zip")
        with Client(info.nimbus) as client:
            client.submit(topology.spec, bundle.path, requires=bundle.requires)
        self.say(f"Submitted examples/word_count.py {' '.join(given)}")
        return topology

    def _regroup(self, info: ClusterInfo, watch: Watch, executors: dict[str, int]) -> None:
        since = time.time()
        wanted = ", ".join(f"{n} for {c}" for c, n in executors.items())
        self.say()
        self.say(f"Regrouping within the processes while it runs: executors {wanted}.")
        with Client(info.nimbus) as client:
            before = {e.id for e in client.describe(watch.name).executors}
            client.rebalance(watch.name, executors=executors, wait=PATIENCE)
            after = {e.id: set(range(e.first, e.last + 1)) for e in client.describe(watch.name).executors}
        moved = sum(len(tasks) for id, tasks in after.items() if id not in before)

        def said() -> bool:
            return len(watch.since("task-regrouped", since)) >= moved

        watch.wait(f"the regrouping of {moved} tasks", said, PATIENCE)
        pauses = [float(e.details.get("pause_ms", 0.0)) for e in watch.since("task-regrouped", since)]
        self.say(
            f"{len(pauses)} tasks changed their executor; each paused for {statistics.median(pauses):.2f} ms (median),"
            f" {max(pauses):.2f} ms at most. The others were not touched."
        )
        self.say(f"  {' '.join(sorted(after))}")

    def _kill(self, info: ClusterInfo, watch: Watch) -> None:
        """Kill a worker without state at a moment when it holds no tuple."""
        victim = _stateless(watch)
        self.say()
        self.say(
            f"Worker {victim.worker} (pid {victim.pid}) has tasks without state only. It will be killed."
        )
        with Client(info.nimbus) as client:
            if not client.deactivate(watch.name, wait=PATIENCE):
                raise Refused(
                    "What had been emitted was not worked off in time, so a kill would cost tuples."
                )
            self.say(
                "The spout rests, and all that it had emitted has been worked off: nothing is under way."
            )
            # Frames whose receipt it could not confirm any more can only be the marks themselves: all before them was worked off.
            watch.expect("worker-lost", "frames-lost")
            killed = time.time()
            os.kill(victim.pid, signal.SIGKILL)
            lost = watch.wait_event("worker-lost", killed, PATIENCE, victim.worker)
            self.say(
                f"kill -9 {victim.pid}. Its supervisor noticed after {1e3 * (lost.time - killed):.0f} ms: {lost.message}."
            )
            again = watch.wait_event("worker-restarted", killed, PATIENCE, victim.worker)
            there = watch.wait_event("peer-renewed", killed, PATIENCE, victim.worker)
            self.say(
                f"A new process was started after {1e3 * (again.time - killed):.0f} ms,"
                f" and is connected to the others after {1e3 * (there.time - killed):.0f} ms."
            )
            client.activate(watch.name)
            self.say(f"The spout goes on after {time.time() - killed:.1f} s.")

    def compare(self) -> bool:
        """Whether the topology's counts are those of a plain loop over the text."""
        self.say("Counting the same text in a plain loop, to compare.")
        expected: Counter[str] = Counter()
        with self.text.open("rb") as file:
            for line in file:
                expected.update(line.decode("utf-8", "replace").split())
        with self.counts.open(encoding="utf-8", newline="\n") as result:
            rows = [line.rstrip("\n").rpartition("\t") for line in result]
        got = {word: int(count) for word, _, count in rows}
        words = f"{len(expected):,} different words, {expected.total():,} in all"
        if got == expected:
            self.say(f"Equal: {words}.")
            return True
        differing = sorted(w for w in expected.keys() | got.keys() if expected[w] != got.get(w, 0))
        self.say(f"NOT EQUAL: {words}; the topology counted {sum(got.values()):,}.")
        for word in differing[:10]:
            self.say(f"  {word!r}: {got.get(word, 0):,} instead of {expected[word]:,}")
        self.say(f"  {len(differing):,} words differ.")
        return False


def _running(watch: Watch) -> bool:
    """All workers live and have carried out the assignment, and words arrive."""
    watch.not_over()
    detail = watch.detail
    if detail is None or len(detail.workers) < WORKERS:
        return False
    counting = any(c.id == "count" and c.executed for c in detail.components)
    return counting and all(w.alive and w.epoch >= detail.assignment.epoch for w in detail.workers)


def _rest(watch: Watch, until: float) -> None:
    """Let it run until a monotonic time.

    Raises:
        ConfigError: It has finished too early for what is still to be shown.
        ExecutionError: It has failed.
    """

    def over() -> bool:
        watch.not_over()
        return time.monotonic() >= until

    watch.wait("the next step", over, max(0.0, until - time.monotonic()) + PATIENCE, until)


def _stateless(watch: Watch) -> WorkerView:
    """A worker all of whose tasks are without state.

    Raises:
        Refused: There is none.
    """
    detail = watch.detail
    assert detail is not None
    stateful = {c.id for c in detail.components if c.stateful}
    for worker in detail.workers:
        inside = {e.component for e in detail.executors if e.worker == worker.worker}
        if inside and not inside & stateful and worker.alive:
            return worker
    raise Refused(f"No worker holds tasks without state only: {placement(detail)}")
