"""What a move costs the stream, measured where the stream ends: gaps and latencies at a sink, at half of the sustainable rate.

One task that holds everything; the same in 128 tasks, half of which move; a word count that goes from one worker to two; a move of
1,000 tasks; and what the machinery costs while nothing moves. What each part measures is in docs/benchmarks.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from typing import Any

import psutil

from benchmarks._pauses_machinery import measure as measure_machinery
from benchmarks._pauses_notes import Notes, Seen, Window, alike, quantile
from benchmarks._pauses_run import Job, cluster, job, window_of
from benchmarks.harness import Goal, Session
from benchmarks.machine import run as measure_machine
from elastic.cluster.launcher import ClusterInfo
from elastic.model.views import MoveView

NAME = "pauses"
SUMMARY = "moves of tasks with 1 to 256 MB as the sink sees them, rescaling, 1,000 tasks at once, the machinery's own cost"

SMALL = 20
"""Bytes of an entry, with its key, that is a count."""
LARGE = 1000
ONE: tuple[tuple[str, int, int, float], ...] = (
    # name, keys, bytes of a value (0: a count), ms that are wanted
    ("1 MB", 50_000, 0, 50),
    ("16 MB", 800_000, 0, 100),
    ("256 MB", 262_144, LARGE, 250),
)
MANY: tuple[tuple[str, int, int, float], ...] = (
    ("16 MB in 128 tasks", 800_000, 0, 30),
    ("256 MB in 128 tasks", 262_144, LARGE, 100),
)
HAZELCAST = 200.0
"""What is wanted for 16 MB where the states go to a Hazelcast cluster with one backup, ms."""
TASKS = 128
WAYS = (("at once", 1.0), ("8 at a time", 8 / TASKS), ("one by one", 1 / TASKS))
RESCALED: tuple[tuple[int, float], ...] = ((10_000, 50.0), (100_000, 50.0), (1_000_000, 250.0))
STEPS = ("paused", "stopped", "saved", "restored", "begun", "resumed")
SETTLE = 1.0
"""Seconds between two moves."""
FLAT_OUT = 6.0
"""Seconds for which more is due than it can do, to know what that is."""
OVERLOAD = 1e8
"""Tuples per second, more than any machine works off. A spout without a rate has less to do than the one that is measured: it gives its
tuples one time for each burst."""


def stolen(before: Any, after: Any) -> float:
    """Part of the processor time that was wanted between two times, and was taken by the host of a virtual machine (`psutil.cpu_times`).

    A pause of 20 ms is 5 ms longer where that is a fifth.
    """
    taken = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    used = sum(getattr(after, kind) - getattr(before, kind) for kind in ("user", "system"))
    return float(taken / (used + taken)) if used + taken > 0 else 0.0


class Pauses:
    """One run of the benchmark."""

    info: ClusterInfo

    def __init__(self, session: Session) -> None:
        self.session = session
        self.quick = session.quick
        self._number = 0
        self._loads: list[float] = []
        self._stolen: list[float] = []

    def run(self) -> None:
        """All parts that are wanted, on one cluster."""
        host, store = (
            self.session.options.get("host") or "process",
            self.session.options.get("store") or "embedded",
        )
        parts = list(self._parts())
        names = [name for name, _ in parts]
        parts = [(name, part) for name, part in parts if self.session.wants(name, names)]
        if not parts:
            return
        kept = "; a core for each worker" if self.session.options.get("keep_core") else ""
        measure_machine(self.session)
        self.session.progress(f"nodes: {host}; store: {store}{kept}")
        while parts:
            first = parts[0][0]
            try:
                with cluster(host, store) as self.info:
                    self._measure(parts)
            except Exception as error:  # noqa: BLE001 - as in `_measure`
                self.session.fail(f"cluster for {first}", error)
                if parts and parts[0][0] == first:  # it did not even begin: neither would the next
                    break
        if self._loads:
            self.session.record("load average of the machine meanwhile", self._loads, "")
            self.session.record("wanted from the cores and given to other machines", self._stolen, "%")

    def _measure(self, parts: list[tuple[str, Callable[[], None]]]) -> None:
        """Those parts, which it takes from the list, until one fails: what follows gets a cluster that nothing has happened to."""
        while parts:
            name, part = parts.pop(0)
            self.session.progress(f"{name}: load of the machine {os.getloadavg()[0]:.1f}")
            before = psutil.cpu_times()
            try:
                part()
            except Exception as error:  # noqa: BLE001 - of whatever kind: the other parts say what they can
                self.session.fail(name, error)
                return
            self._loads.append(os.getloadavg()[0])
            self._stolen.append(stolen(before, psutil.cpu_times()) * 100)

    def _parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        few = slice(2 if self.quick and not self.session.only else None)  # what is named is measured
        for name, keys, size, wanted in ONE[few]:
            yield name, partial(self.one, name, keys, size, wanted)
        for name, keys, size, wanted in MANY[: 1 if few.stop else None]:
            yield name, partial(self.many, name, keys, size, wanted)
        for keys, wanted in RESCALED[few]:
            yield f"rescaling {keys:,} keys", partial(self.rescale, keys, wanted)
        yield "1,000 tasks", self.thousand

    def _name(self) -> str:
        self._number += 1
        return f"pauses-{self._number}"

    def _job(self, *arguments: object) -> AbstractContextManager[Job]:
        kept = self.session.options.get("keep_core")
        given = (*arguments, "--keep-core", 1) if kept else arguments
        return job(self.info, self._name(), *map(str, given))

    # ------------------------------------------------------------------ the rate

    def half(self, label: str, arguments: Sequence[object], *placements: Callable[[Job], None]) -> float:
        """Half of what it can do wherever its tasks are in the course of the part, in tuples per second."""
        given = self.session.options.get("rate")
        if given:
            return float(given)
        most = self._sustained(arguments, *placements)
        self.session.record(f"{label}: sustainable rate", [most], "tuples/s")
        return most / 2

    def _sustained(self, arguments: Sequence[object], *placements: Callable[[Job], None]) -> float:
        with self._job(*arguments, "--rate", OVERLOAD) as flat:
            for place in placements:
                place(flat)
                time.sleep(SETTLE)
                flat.rest(FLAT_OUT)
            notes = flat.end()
        return min(notes.rate(window) for window in flat.quiet)

    def _apart(self, one: Job) -> None:
        one.place("keys,stays,sink", "node-1")
        one.place("hold", "node-2")

    def _joined(self, one: Job) -> None:
        one.place("hold", "node-1")

    def _halved(self, one: Job) -> None:
        one.place(_first_half(one), "node-1")

    def _together(self, one: Job) -> None:
        """As it was submitted."""

    def _rescaled(self, one: Job) -> None:
        one.client.rebalance(one.name, workers=2, wait=120.0)

    # ------------------------------------------------------------------ parts

    def one(self, name: str, keys: int, size: int, wanted: float) -> None:
        """One task that holds everything goes back and forth."""
        arguments = ("--keys", keys, "--size", size)
        rate = self.half(name, arguments, self._apart, self._joined)
        count = 6 if self.quick else 30
        with self._job(*arguments, "--rate", rate) as running:
            self._apart(running)
            running.steady()
            time.sleep(SETTLE)
            # At both places: beside it those that stay have less of an interpreter than without it, also when nothing moves.
            running.rest(count / 2, count // 2)
            self._joined(running)
            self._settle(running)
            running.rest(count / 2, count // 2)
            for number in range(count):
                running.move("hold", f"node-{2 - number % 2}")
                self._settle(running)
            notes = running.end()
        moved = [notes.seen(_tasks(m), window_of(m)) for m in running.moves]
        goals: dict[str, float | None] = {"median": wanted / 2 if wanted == 50 else None, "p95": wanted}
        if str(self.session.options.get("store") or "").startswith("hazelcast"):
            goals = {"p95": HAZELCAST} if name == "16 MB" else {}
        self._spread(f"{name}: longest gap", [s.gap for s in moved], goals)
        self._spread(f"{name}: latency", [s.latency for s in moved], {})
        self._others(name, running, notes)
        self._steps(name, running.moves)

    def many(self, name: str, keys: int, size: int, wanted: float) -> None:
        """The same in many tasks, half of which move."""
        arguments = ("--keys", keys, "--size", size, "--tasks", TASKS, "--executors", 2, "--groups", 4096)
        rate = self.half(name, arguments, self._apart, self._halved)
        best: dict[str, float] = {}
        count = 2 if self.quick else 4
        with self._job(*arguments, "--rate", rate) as running:
            self._apart(running)
            running.steady()
            time.sleep(SETTLE)
            running.rest(8.0, 8)
            tasks, what = running.tasks["hold"], _first_half(running)
            made = {way: [] for way, _ in WAYS}  # type: dict[str, list[MoveView]]
            for number in range(count):
                for way, share in WAYS:
                    made[way].append(running.move(what, f"node-{1 + number % 2}", share))
                    self._settle(running)
                    if way != WAYS[-1][0]:  # back, so that each way begins at the same place
                        running.move(what, f"node-{2 - number % 2}", 1.0)
                        self._settle(running)
            notes = running.end()
        for way, moves in made.items():
            peaks = [notes.seen(tasks, window_of(m)).latency for m in moves]
            best[way] = quantile(peaks, 0.5)
            self.session.record(f"{name}, {way}: peak latency", peaks, "ms")
            took = [(_last(m) - m.began) * 1e3 for m in moves]
            self.session.record(f"{name}, {way}: the whole move", took, "ms")
        goal = Goal(wanted, at_least=False)
        least = min(best, key=best.__getitem__)
        self.session.record(f"{name}: peak latency, best of three", [best[least]], "ms", goal=goal)
        # The longer one looks, the later is the latest tuple: as long as in the moves that it is held against.
        nothing = alike(running.quiet, [window_of(m) for m in made[least]])
        quiet = [notes.seen(tasks, w).latency for w in nothing]
        self.session.record(f"{name}: peak latency without a move, as long", quiet, "ms")

    def _settle(self, running: Job) -> None:
        """What one move has held up must not count for the next."""
        time.sleep(SETTLE)
        running.steady()

    def rescale(self, keys: int, wanted: float) -> None:
        """A word count goes from one worker to two."""
        name = f"rescaling {keys:,} keys"
        tasks = 32
        arguments = ("--keys", keys, "--tasks", tasks, "--executors", 2, "--groups", 1024, "--workers", 1)
        given = self.session.options.get("rate")
        count = 2 if self.quick else 5
        sustained: list[float] = []
        apart: list[Seen] = []
        overall: list[float] = []
        quiet: list[float] = []
        for _ in range(count):
            # Anew each time: half of what a machine did a minute ago may be all that it does now.
            if not given:
                sustained.append(self._sustained(arguments, self._together, self._rescaled))
            with self._job(*arguments, "--rate", given or sustained[-1] / 2) as running:
                running.steady()
                time.sleep(SETTLE)
                running.rest(3.0, 3)
                before = running.newest()
                self._rescaled(running)
                running.followed(before)
                time.sleep(SETTLE)
                notes = running.end()
            holds = running.tasks["hold"]
            window = Window(window_of(running.moves[0]).start, window_of(running.moves[-1]).end)
            apart += [notes.seen([t], window) for t in holds]
            overall.append(notes.overall_gap(holds, window))
            quiet += [notes.overall_gap(holds, w) for w in running.quiet]
        if sustained:
            self.session.record(f"{name}: sustainable rate", sustained, "tuples/s")
        self._spread(f"{name}: gap of a key group", [s.gap for s in apart], {"max": wanted})
        goal = Goal(wanted, at_least=False)
        self.session.record(f"{name}: longest gap of all output", overall, "ms", goal=goal)
        self.session.record(f"{name}: longest gap without a move", quiet, "ms")

    def thousand(self) -> None:
        """A move of 1,000 tasks with next to no state."""
        count = 200 if self.quick else 1000
        name = f"{count:,} tasks"
        given = (
            "--keys",
            4 * count,
            "--groups",
            4 * count,
            "--tasks",
            count,
            "--executors",
            4,
            "--rate",
            2000,
        )
        with self._job(*given) as running:
            self._apart(running)
            running.steady()
            time.sleep(SETTLE)
            for number in range(2 if self.quick else 4):
                running.move("hold", f"node-{1 + number % 2}", 1.0)
                time.sleep(SETTLE)
            running.end()
        rows: dict[str, list[float]] = {}
        for move in running.moves:
            edges = [move.began]
            for step in ("prepared", *STEPS):
                edges.append(max(t.times.get(step, edges[-1]) for t in move.tasks))
            edges.append(move.ended)
            labels = ("prepare", "pause", "stop", "save", "restore", "begin", "resume", "close")
            for label, (a, b) in zip(labels, pairwise(edges), strict=True):
                rows.setdefault(label, []).append(max(0.0, b - a) * 1e3)
            rows.setdefault("all", []).append((move.ended - move.began) * 1e3)
            coordination = [rows[label][-1] for label in ("pause", "begin", "resume", "close")]
            rows.setdefault("coordination", []).append(sum(coordination))
        for label, values in rows.items():
            goal = Goal(1000, at_least=False) if label == "coordination" else None
            self.session.record(f"{name}: {label}", values, "ms", goal=goal)

    # ------------------------------------------------------------------ figures

    def _spread(self, name: str, values: Sequence[float], goals: dict[str, float | None]) -> None:
        """Median, p95 and longest of all values, each a figure."""
        for part, value in (("median", 0.5), ("p95", 0.95), ("max", 1.0)):
            wanted = goals.get(part)
            goal = Goal(wanted, at_least=False) if wanted else None
            self.session.record(
                f"{name}, {part} of {len(values)}", [quantile(values, value)], "ms", goal=goal
            )

    def _others(self, name: str, running: Job, notes: Notes) -> None:
        """Keys that stay, with and without a move meanwhile; keys that move, without one."""
        stays, held = running.tasks["stays"], running.tasks["hold"]
        windows = [window_of(m) for m in running.moves]
        nothing = alike(running.quiet, windows)
        meanwhile = [notes.seen(stays, w).gap for w in windows]
        without = [notes.seen(stays, w).gap for w in nothing]
        cut = sum(a.length < b.length for a, b in zip(nothing, windows, strict=True))
        less = f" ({cut} windows shorter than their moves)" if cut else ""
        both = {f"{name}: keys that stay, gap": meanwhile, f"{name}: the same without a move{less}": without}
        self.session.report(both, unit="ms")
        goal = Goal(max(without), at_least=False)  # no gap that a run without moves does not show
        longest = f"{name}: keys that stay, longest gap beside that without a move"
        self.session.record(longest, [max(meanwhile)], "ms", goal=goal)
        quiet = [notes.seen(held, w).gap for w in nothing]
        self.session.record(f"{name}: keys that move, without a move{less}", quiet, "ms")

    def _steps(self, name: str, moves: Iterable[MoveView]) -> None:
        """How the pause is made up, as the workers tell."""
        tasks = [t for m in moves for t in m.tasks]
        for a, b in pairwise(STEPS):
            times = [(t.times[b] - t.times[a]) * 1e3 for t in tasks if a in t.times and b in t.times]
            if times:
                self.session.record(f"{name}: {a} to {b}", times, "ms")
        self.session.record(f"{name}: pause of the emitters", [t.pause * 1e3 for t in tasks], "ms")
        gaps = [t.gap * 1e3 for t in tasks if t.gap]
        if gaps:
            self.session.record(f"{name}: gap at the receivers", gaps, "ms")
        self.session.record(f"{name}: state", [t.size / 1e6 for t in tasks], "MB")


def _first_half(one: Job) -> str:
    tasks = one.tasks["hold"]
    return f"{tasks[0]}-{tasks[len(tasks) // 2 - 1]}"


def _tasks(move: MoveView) -> list[int]:
    return [t.task for t in move.tasks]


def _last(move: MoveView) -> float:
    return max((t.times[s] for t in move.tasks for s in t.times), default=move.ended)


def run(session: Session) -> None:
    """Measure and report."""
    if session.wants("machinery"):
        measure_machinery(session)
    Pauses(session).run()
