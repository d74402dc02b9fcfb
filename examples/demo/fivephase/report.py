"""What is said at the end of the experiment."""

from __future__ import annotations

from .recording import PROPORTIONS, Recording


def table(run: Recording, rate: float) -> list[str]:
    """The settled part of each phase, and the run as a whole.

    Args:
        rate: Transactions per second in the first phase.
    """
    lines = [
        f"{run.name}, second half of each phase:",
        "  PHASE  OFFERED/S  P95 LATENCY  EXECUTORS  WORKERS  BUSY  DECISIONS  RESIZED AFTER",
    ]
    settled = run.settled()
    for number, (proportion, s) in enumerate(zip(PROPORTIONS, settled, strict=True), 1):
        offered = rate * proportion / PROPORTIONS[0]
        lines.append(
            f"  {number:5} {offered:10,.0f} {1e3 * s.latency:9,.0f} ms"
            f" {s.executors:10.1f} {s.workers:8.1f} {s.busy:5.0%} {s.decisions:10} {_seconds(s.after)}"
        )
    highest = max(s.latency for s in settled) / max(settled[0].latency, 1e-9)
    last, decided = run.samples[-1], len({e.time for e in run.decisions})
    return [
        *lines,
        f"  The highest is {highest:.1f} times that of the first phase; degraded by 60 % or more for {run.degraded():.1%} of the time.",
        f"  {decided} decisions, {last.moved} tasks moved, longest pause {1e3 * last.pause:.0f} ms.",
        f"  The patterns are {'equal to' if run.equal else 'NOT EQUAL to'} those of the reference.",
    ]


def _seconds(after: float) -> str:
    return f"{after:12.1f} s" if after else f"{'-':>14}"
