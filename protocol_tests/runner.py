"""Random runs from a seed, as many as fit in the time; and one of them again, told step by step."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from protocol_tests.world import COSTLY, FREE, Op, World


@dataclass
class Report:
    """What a number of runs did."""

    runs: int = 0
    moves: int = 0
    steps: int = 0
    tuples: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    states: set[tuple[str, str]] = field(default_factory=set)
    failures: list[tuple[int, str]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def add(self, world: World) -> None:
        self.runs += 1
        self.moves += world.moves
        self.steps += world.clock.steps
        self.tuples += world.truth.applied
        self.faults.update(world.counts)
        self.met.update(world.met)
        self.outcomes.update({o.value: n for o, n in world.outcomes.items()})
        self.states |= world.states

    def __str__(self) -> str:
        rate = self.moves / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.runs:,} runs, {self.moves:,} moves, {self.tuples:,} tuples, {self.steps:,} steps "
            f"in {self.seconds:.1f} s: {rate:.0f} moves/s, {self.moves / self.cpu if self.cpu else 0:.0f} per second of processor time",
            f"faults: {sum(self.faults.values()):,}",
            *(f"  {kind:<22} {count:>8,}" for kind, count in sorted(self.faults.items())),
            "met:",
            *(f"  {kind:<22} {count:>8,}" for kind, count in sorted(self.met.items())),
            f"outcomes of tasks: {', '.join(f'{o} {n:,}' for o, n in sorted(self.outcomes.items()))}",
            "states reached:",
        ]
        for role in sorted({r for r, _ in self.states}):
            lines.append(f"  {role:<22} {', '.join(sorted(s for r, s in self.states if r == role))}")
        lines.append(f"failures: {len(self.failures)}")
        lines += [f"  seed {seed}: {what}" for seed, what in self.failures[:10]]
        return "\n".join(lines)


def random_ops(rnd: Random, *, moves: int, costly: bool) -> list[Op]:
    """Operations of one run. `costly`: also faults that may cost what was in a process's memory."""
    ops: list[Op] = []
    kinds = (*FREE, *COSTLY, "crash worker") if costly else FREE
    calm = rnd.random() < 0.2
    for _ in range(moves):
        ops.append(("emit", rnd.randrange(8), rnd.randint(1, 4)))
        ops.append(
            (
                "move",
                rnd.randrange(16),
                rnd.choice((1, 1, 2, 3, 5)),
                rnd.randrange(8),
                rnd.choice((1.0, 1.0, 0.5)),
            )
        )
        for _ in range(rnd.choice((1, 1, 2, 3))):
            ops.append(("run", rnd.choice((3, 10, 30, 60, 100))))
            if rnd.random() < 0.4:
                ops.append(("emit", rnd.randrange(8), rnd.randint(1, 3)))
            if not calm and rnd.random() < 0.45:
                ops.append((rnd.choice(kinds), rnd.randrange(64), rnd.choice((2.0, 10.0, 40.0, 150.0))))
    return ops


def plan(seed: int) -> list[Op]:
    """The operations that belong to a seed."""
    rnd = Random(seed * 7919 + 1)
    return random_ops(rnd, moves=rnd.choice((4, 12, 30)), costly=seed % 3 != 0)


def run_ops(seed: int, ops: list[Op], *, trace: list[str] | None = None) -> World:
    """A world, these operations, and the end."""
    world = World(seed, trace=trace)
    for op in ops:
        world.apply(op)
    world.finish()
    return world


def run_many(seconds: float, first: int, *, runs: int = 0, stop_at_failure: bool = False) -> Report:
    """Run seeds from `first` on for so many seconds (or so many runs)."""
    report = Report()
    began, cpu = time.perf_counter(), time.process_time()
    seed = first
    while (report.runs < runs) if runs else (time.perf_counter() - began < seconds):
        try:
            report.add(run_ops(seed, plan(seed)))
        except Exception as error:
            report.runs += 1
            report.failures.append((seed, f"{type(error).__name__}: {error}"))
            report.errors.append(error)
            if stop_at_failure:
                break
        seed += 1
    report.seconds, report.cpu = time.perf_counter() - began, time.process_time() - cpu
    return report


def replay(what: str) -> tuple[list[str], str]:
    """One run again: a seed, or a file with `{"seed": ..., "ops": [...]}`. Returns its lines, and how it ended."""
    if what.isdigit():
        seed, ops = int(what), plan(int(what))
    else:
        found = json.loads(Path(what).read_text())
        seed, ops = found["seed"], [tuple(op) for op in found["ops"]]
    trace: list[str] = []
    try:
        run_ops(seed, ops, trace=trace)
    except Exception as error:
        return trace, f"{type(error).__name__}: {error}"
    return trace, "every promise was kept"
