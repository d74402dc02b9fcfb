"""What is said at the end of the experiment."""

from __future__ import annotations

from .recording import PROPORTIONS, TIMES, Recording

MOST = 0.01
"""Share of the time that may be degraded."""
PERIODS = 2.0
"""Of the policy, from more load to more executors."""


def table(run: Recording, rate: float) -> list[str]:
    """The settled part of each phase, and the run as a whole.

    Args:
        rate: Transactions per second in the first phase.
    """
    lines = [
        f"{run.name}, second half of each phase:",
        "  PHASE  OFFERED/S  P95 LATENCY  EXECUTORS  WORKERS  BUSY  DECISIONS  RESIZED AFTER  SETTLED AFTER",
    ]
    for number, (proportion, s) in enumerate(zip(PROPORTIONS, run.settled(), strict=True), 1):
        offered = rate * proportion / PROPORTIONS[0]
        lines.append(
            f"  {number:5} {offered:10,.0f} {1e3 * s.latency:9,.0f} ms"
            f" {s.executors:10.1f} {s.workers:8.1f} {s.busy:5.0%} {s.decisions:10} {_seconds(s.after)} {_seconds(s.late)}"
        )
    last, decided = run.samples[-1], len({e.time for e in run.decisions})
    return [
        *lines,
        f"  The highest is {highest(run):.1f} times that of the first phase;"
        f" degraded by 60 % or more for {run.degraded():.1%} of the time.",
        f"  {decided} decisions, {last.moved} tasks moved, longest pause {1e3 * last.pause:.0f} ms.",
        f"  The patterns are {'equal to' if run.equal else 'NOT EQUAL to'} those of the reference.",
    ]


def highest(run: Recording) -> float:
    """The highest latency of a settled phase, as so many times that of the first."""
    settled = run.settled()
    return max(s.latency for s in settled) / max(settled[0].latency, 1e-9)


def goals(fixed: Recording, elastic: Recording, period: float) -> list[str]:
    """What it is to reach, and whether it did, in this run.

    Args:
        period: Of the policy, seconds.
    """
    settled, before = elastic.settled(), fixed.settled()
    decisions = sum(s.decisions for s in settled)
    slow, degraded = highest(elastic), elastic.degraded()
    # A period of measuring that lies across the change of the load sees half of it: what is decided then is made good by the next one.
    more = [(s.first, s.after) for s in settled[1:3] if s.first]
    took = (
        f"{', '.join(_from_to(*x) for x in more)} after the load went up; {PERIODS * period:g} s"
        if more
        else "not needed"
    )
    low = [(settled[n], before[n]) for n in (0, len(PROPORTIONS) - 1)]
    saved = all(e.executors < f.executors and e.each > f.each for e, f in low)
    use = ", ".join(
        f"{e.executors:.0f} with {e.each:.0f} patterns/s each, not {f.executors:.0f} with {f.each:.0f}"
        for e, f in low
    )
    return [
        "What the elastic run is to reach:",
        _goal(
            slow < TIMES,
            f"p95 latency of all settled phases below {TIMES:g} times that of the first",
            f"{slow:.1f} times; not elastic {highest(fixed):.0f}",
        ),
        _goal(not decisions, "nothing is decided in a settled phase", f"{decisions}"),
        _goal(
            degraded <= MOST,
            f"degraded by 60 % or more for at most {MOST:.0%} of the time",
            f"{degraded:.1%}",
        ),
        _goal(
            all(first <= PERIODS * period for first, _ in more),
            "more executors run within two periods of the policy",
            took,
        ),
        _goal(saved, "fewer executors, each with more to do, at low load", use),
    ]


def _goal(met: bool, what: str, found: str) -> str:
    return f"  {'met    ' if met else 'NOT MET'}  {what} ({found})"


def _from_to(first: float, last: float) -> str:
    return f"{first:.1f} s" if first == last else f"{first:.1f} s and the last of them {last:.1f} s"


def _seconds(after: float) -> str:
    return f"{after:12.1f} s" if after else f"{'-':>14}"
