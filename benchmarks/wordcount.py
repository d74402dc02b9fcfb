"""Word count over the same text: hand-written loops, this engine, bytewax, PySpark; one process and two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.harness import Goal, Session
from benchmarks.words import contender

NAME = "wordcount"
SUMMARY = "words per second: this engine against hand-written loops, bytewax and PySpark, one process and two"

CONTENDERS = {
    "hand-written rows": "benchmarks.words.rows",
    "elastic, per tuple": "benchmarks.words.engine",
    "bytewax": "benchmarks.words.bytewax_flow",
    "PySpark RDD": "benchmarks.words.spark_rdd",
    "hand-written Arrow": "benchmarks.words.arrow",
    "elastic, batches": "benchmarks.words.engine",
}
AT_LEAST = {
    ("elastic, per tuple", "hand-written rows"): 0.6,
    ("elastic, per tuple", "bytewax"): 1.5,
    ("elastic, batches", "hand-written Arrow"): 0.8,
}
TWO_TO_ONE = 1.4
LAYOUTS: dict[str, tuple[str, ...]] = {"1 process": ("--processes", "1"), "2 processes": ("--processes", "2")}
HASHED: dict[str, tuple[str, ...]] = {"2 processes hashed": ("--processes", "2", "--hashed")}


def columnar(name: str) -> bool:
    """Whether a contender works on columns: it gets more text, since it is done so soon."""
    return name in ("hand-written Arrow", "elastic, batches")


def layouts(name: str) -> dict[str, tuple[str, ...]]:
    """How a contender is spread: its name for that, and the options."""
    if name == "PySpark RDD":  # without parallelism it is nobody's choice
        return {"2 processes": LAYOUTS["2 processes"]}
    # Every process of bytewax reads, splits and counts: it is hashed always.
    return LAYOUTS if name == "bytewax" else {**LAYOUTS, **HASHED}


def full(name: str, layout: str) -> str:
    """A contender's whole name."""
    return f"{name}, {layout}"


def run(session: Session) -> None:
    """Measure and report."""
    text = session.options.get("input")
    scale = 10 if session.quick else 1
    rows, columns = contender.Job.of(text, 6_000_000 // scale), contender.Job.of(text, 40_000_000 // scale)
    session.progress(f"{rows.words:,} words for those that work on rows, {columns.words:,} for columns")
    contenders: dict[str, Callable[[], float]] = {}
    # What is compared runs side by side.
    for layout in (*LAYOUTS, *HASHED):
        for name, module in CONTENDERS.items():
            if layout in layouts(name):
                more = (*layouts(name)[layout], *(("--batches",) if name == "elastic, batches" else ()))
                job = columns if columnar(name) else rows
                contenders[full(name, layout)] = partial(contender.run, module, job, *more)
    values = session.interleave(contenders, unit="words/s")
    compare: dict[str, tuple[str, ...]] = {}
    goals: dict[tuple[str, str], Goal] = {}

    def against(one: str, other: str, at_least: float | None = None) -> None:
        compare[one] = (*compare.get(one, ()), other)
        if at_least is not None:
            goals[one, other] = Goal(at_least, of="ratio")

    for (name, other), ratio in AT_LEAST.items():
        for layout in layouts(name):
            there = layout if layout in layouts(other) else "2 processes"
            against(full(name, layout), full(other, there), ratio)
    for name in CONTENDERS:
        for layout in layouts(name):
            if layout != "1 process":
                goal = TWO_TO_ONE if name == "elastic, per tuple" else None
                against(full(name, layout), full(name, "1 process"), goal)
    session.report(values, unit="words/s", compare=compare, goals=goals)
