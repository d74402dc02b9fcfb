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


def columnar(name: str) -> bool:
    """Whether a contender works on columns: it gets more text, since it is done so soon."""
    return name in ("hand-written Arrow", "elastic, batches")


def _once(name: str, processes: int, job: contender.Job) -> float:
    """Words per second of one run of one contender."""
    more = ["--processes", str(processes)]
    if name == "elastic, batches":
        more.append("--batches")
    return contender.run(CONTENDERS[name], job, *more)


def full(name: str, processes: int) -> str:
    """The name with the number of processes."""
    return f"{name}, {'1 process' if processes == 1 else f'{processes} processes'}"


def _measure(session: Session, rows: contender.Job, columns: contender.Job) -> dict[str, list[float]]:
    """Words per second, by full name, in each round."""
    contenders: dict[str, Callable[[], float]] = {}
    # What is compared runs side by side.
    for processes in (1, 2):
        for name in CONTENDERS:
            if name != "PySpark RDD" or processes == 2:  # Spark without parallelism is nobody's choice
                job = columns if columnar(name) else rows
                contenders[full(name, processes)] = partial(_once, name, processes, job)
    return session.interleave(contenders, unit="words/s")


def run(session: Session) -> None:
    """Measure and report."""
    text = session.options.get("input")
    scale = 10 if session.quick else 1
    rows, columns = contender.Job.of(text, 6_000_000 // scale), contender.Job.of(text, 40_000_000 // scale)
    session.progress(f"{rows.words:,} words for those that work on rows, {columns.words:,} for columns")
    values = _measure(session, rows, columns)
    compare: dict[str, tuple[str, ...]] = {}
    goals: dict[tuple[str, str], Goal] = {}
    for processes in (1, 2):
        for (name, other), ratio in AT_LEAST.items():
            compare[full(name, processes)] = (*compare.get(full(name, processes), ()), full(other, processes))
            goals[full(name, processes), full(other, processes)] = Goal(ratio, of="ratio")
    two, one = full("elastic, per tuple", 2), full("elastic, per tuple", 1)
    compare[two] = (*compare[two], one)
    goals[two, one] = Goal(TWO_TO_ONE, of="ratio")
    for name in ("hand-written rows", "bytewax", "hand-written Arrow", "elastic, batches"):
        compare[full(name, 2)] = (*compare.get(full(name, 2), ()), full(name, 1))
    session.report(values, unit="words/s", compare=compare, goals=goals)
