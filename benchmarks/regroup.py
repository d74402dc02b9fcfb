"""How long tasks pause while the tasks of a worker are regrouped among its threads, and whether others notice.

Two bolts get the same tuples at a steady rate. The tasks of one are regrouped, from two threads to four and back, again and
again; each task notes the gaps between its tuples. The pause of a move is the longest gap of a moved task that
overlaps it; beside it stand the longest gap of the other bolt's tasks in the same moments, and that of the same tasks in moments
of the same length without a move: what the machine, the rate and the batches make anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import Goal, Session
from elastic import Bolt, Fields, Spout, Topology, TopologyBuilder, TopologyContext
from elastic.local import LocalCluster, LocalRun

NAME = "regroup"
SUMMARY = "the pause of tasks that are regrouped among the threads of a worker, and of those that are not"

RATE = 20_000
TASKS = 8
SETTLE = 0.25
Gap = tuple[float, float]

# Tasks are copies made by pickling, in this process: they find each other here.
GAPS: dict[str, dict[int, list[Gap]]] = {}
STOP = threading.Event()


class Numbers(Spout):
    """Numbers, at a steady rate, until told to end."""

    outputs = Fields(number=int)

    def tuples(self) -> Iterator[int]:
        number = 0
        while not STOP.is_set():
            yield number
            number += 1


class Watched(Bolt):
    """Notes the gaps between its tuples."""

    def prepare(self, context: TopologyContext) -> None:
        self.gaps: list[Gap] = GAPS.setdefault(context.component, {}).setdefault(context.task, [])
        self.last = time.monotonic()

    def execute(self, tup: Any) -> None:
        now = time.monotonic()
        if now - self.last > 0.0002:
            self.gaps.append((self.last, now))
        self.last = now


def build() -> Topology:
    """The topology."""
    b = TopologyBuilder("regroup")
    b.spout("numbers", Numbers(), rate=RATE)
    b.bolt("moved", Watched(), tasks=TASKS, executors=2).fields("numbers", "number")
    b.bolt("others", Watched(), tasks=TASKS, executors=2).fields("numbers", "number")
    return b.build()


def longest(component: str, window: Gap) -> float:
    """The longest gap of a component's tasks that overlaps a window, in ms; 0 when there is none."""
    start, end = window
    gaps = (g for task in GAPS[component].values() for g in list(task) if g[0] < end and g[1] > start)
    return max((g[1] - g[0] for g in gaps), default=0.0) * 1000


def moves(run: LocalRun, count: int) -> list[Gap]:
    """Regroup so many times; returns when each happened."""
    windows = []
    for number in range(count):
        time.sleep(SETTLE)
        began = time.monotonic()
        run.rebalance(moved=2 if number % 2 else 4)
        windows.append((began, time.monotonic()))
    time.sleep(SETTLE)
    return windows


def run(session: Session) -> None:
    """Measure and report."""
    count = 10 if session.quick else 40
    found: dict[str, list[list[float]]] = {
        "regrouped tasks": [],
        "other tasks meanwhile": [],
        "without a move": [],
    }
    for number in range(session.runs):
        GAPS.clear()
        STOP.clear()
        with LocalCluster() as local:
            running = local.submit(build())
            time.sleep(1)
            windows = moves(running, count)
            STOP.set()
            running.wait(30)
        # Until 5 ms after: a move is seen when the next tuple comes.
        windows = [(start, end + 0.005) for start, end in windows]
        found["regrouped tasks"].append([longest("moved", window) for window in windows])
        found["other tasks meanwhile"].append([longest("others", window) for window in windows])
        shift = SETTLE / 2
        found["without a move"].append(
            [longest("moved", (start - shift, end - shift)) for start, end in windows]
        )
        pause = max(found["regrouped tasks"][-1])
        session.progress(f"  round {number + 1}/{session.runs}: {count} moves, longest pause {pause:.2f} ms")
    for what, rounds in found.items():
        session.record(f"{what}: pause", [pause for one in rounds for pause in one], "ms")
        goal = Goal(5, at_least=False) if what == "regrouped tasks" else None
        session.record(f"{what}: longest of {count}", [max(one) for one in rounds], "ms", goal=goal)
