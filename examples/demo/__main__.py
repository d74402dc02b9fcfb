"""The demonstration: tasks move between nodes, with what they have counted, while they count; and the counts are right.

    python -m examples.demo [--host spark|process] [--store embedded|hazelcast] [--seconds 45] [--rate 2000] [--input FILE] [--keep]

It starts a cluster of two nodes in a directory of its own, submits `examples/word_count.py` with three workers, and reads a text at a
steady rate. While it runs:

- the executors of `split` and `count` are regrouped within their processes; the pauses are those that the tasks themselves have measured;
- one worker is killed with SIGKILL. What is under way in a killed process is lost: nothing acknowledges tuples yet. So the demonstration
  kills where nothing can be: first the spout is told to rest, and a mark that follows the last tuple through every task says when all of
  them have been worked off; then the worker dies that holds tasks without state only. It is started again, and the spout goes on;
- an executor of `count` moves to another node, with what it has counted so far;
- a node is added, and the one that has just got the executor is drained: all that runs there moves on, and the node ends.

Of each task that moves it says how long the tuples for it were held. At the end the counts are compared with those of a plain loop over
the same text. The exit code is 0 only if they are equal. Whatever was started is ended, after Ctrl-C as well (exit code 130).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pydoc_data.topics
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from elastic import Topology
from elastic.api.bundle import build_bundle
from elastic.cluster.launcher import ClusterInfo, UpOptions, start_background, stop
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import ElasticError, NotFound, Refused
from elastic.model.views import WorkerView

from .moving import Moving
from .text import Text
from .watch import Story, Watch, placement

EXAMPLES = Path(__file__).resolve().parents[1]
NODES, SLOTS, WORKERS = 2, 2, 3
PATIENCE = 60.0
"""Seconds that any one step may take."""


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt once, and not any more when what was started is being ended."""

    def __init__(self, story: Story) -> None:
        self.caught = False
        self.ending = False
        self._story = story
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self.caught = not self.caught, True
        if first and not self.ending:
            raise KeyboardInterrupt


class Demo:
    """One run.

    Args:
        home: A directory of its own, for everything.
    """

    def __init__(self, options: argparse.Namespace, home: Path, story: Story) -> None:
        self.options = options
        self.home = home
        self.text = home / "text.txt"
        self.counts = home / "counts.tsv"
        self.say = story.say
        self._story = story

    def run(self) -> bool:
        """Everything; returns whether the counts are equal."""
        text = self._prepare()
        info = self._up()
        topology = self._submit(info)
        began = time.monotonic()
        watch = Watch(info.nimbus, topology.name, self._story)
        seconds = self.options.seconds
        with watch.following():
            watch.wait("all workers running", lambda: _running(watch), PATIENCE)
            assert watch.detail is not None
            self.say(f"All workers run. {placement(watch.detail)}")
            with text.lasting():
                self._show(info, watch, began)
            ended = watch.wait_event("topology-finished", 0.0, 2 * seconds + PATIENCE)
        self.say()
        self.say(f"{ended.message}")
        return self.compare()

    def _show(self, info: ClusterInfo, watch: Watch, began: float) -> None:
        seconds = self.options.seconds
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

    def _prepare(self) -> Text:
        """The text that is read: the input's lines, from the beginning again until there are enough for the time."""
        o = self.options
        made = Text(self.text, o.input, o.rate)
        made.write(o.seconds)
        self.say(
            f"The text: {o.input}, {made.distinct:,} lines, read {made.lines / made.distinct:.1f} times: {made.lines:,} lines"
            f" at {o.rate:,g} lines/s, which takes {o.seconds:g} s; more of it should the show take longer."
        )
        return made

    def _up(self) -> ClusterInfo:
        began = time.monotonic()
        host = self.options.host
        self.say(f"Starting a cluster: ZooKeeper, Nimbus, {NODES} nodes ({host}).")
        store = self.options.store
        options = UpOptions(home=str(self.home), host=host, nodes=NODES, slots=SLOTS, store=store)
        info = start_background(options, lambda text: self.say(f"  {text}"))
        self.say(f"The cluster is ready after {time.monotonic() - began:.1f} s.")
        return info

    def _submit(self, info: ClusterInfo) -> Topology:
        given = ["--input", str(self.text), "--output", str(self.counts), "--rate", str(self.options.rate)]
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns the exit code."""
    options = _options(argv)
    story = Story()
    signals = Signals(story)
    home = Path(tempfile.mkdtemp(prefix="elastic-demo-"))
    began = time.monotonic()
    code = 1
    try:
        code = 0 if Demo(options, home, story).run() else 1
    except KeyboardInterrupt:
        story.say("\nInterrupted.")
        code = 130
    except ElasticError as error:
        story.say(f"\nerror: {error}")
        code = error.exit_code
    finally:
        signals.ending = True
        keep = options.keep and code != 130
        if keep:
            story.say(f"The cluster goes on. Look at it: ELASTIC_HOME={home} elastic list")
            story.say(f"End it: ELASTIC_HOME={home} elastic down --purge")
        elif not _tear_down(home, story):
            code = code or 1
    if signals.caught:
        code = 130
    story.say(
        f"Done after {time.monotonic() - began:.0f} s." if code == 0 else f"Ended with exit code {code}."
    )
    return code


def _tear_down(home: Path, story: Story) -> bool:
    """End the cluster and remove its files; returns whether it could be done."""
    try:
        with contextlib.suppress(NotFound):
            stop(home, "default", purge=True, on_progress=lambda text: story.say(text.capitalize() + "."))
    except ElasticError as error:
        story.say(f"error: {error}\nIts files are in {home}.")
        return False
    shutil.rmtree(home, ignore_errors=True)
    return True


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--host", choices=("spark", "process"), default="spark", help="what provides the nodes"
    )
    parser.add_argument(
        "--store",
        choices=("embedded", "hazelcast"),
        default="embedded",
        help="where states are kept in moves",
    )
    parser.add_argument("--seconds", type=_positive, default=45.0, help="how long it reads (default: 45)")
    parser.add_argument("--rate", type=_positive, default=2000.0, help="lines per second (default: 2000)")
    usual = pydoc_data.topics.__file__
    parser.add_argument("--input", default=usual, help=f"a text file or a folder (default: {usual})")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end")
    return parser.parse_args(argv)


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
