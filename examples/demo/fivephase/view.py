"""What is shown while a run goes on: a live view on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import time

from ..stage import Story
from .figure import blocks
from .recording import PROPORTIONS, Recording, Sample, p95

LINE = 4.0
"""Seconds between two lines where there is no terminal."""
_SHOWN = 6


class View:
    """Shows a run on the live view of a story, or tells of it every few seconds. For one thread."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._told = 0.0
        self.say = story.say

    def live(self) -> contextlib.AbstractContextManager[None]:
        """Show the run as long as the body lasts."""
        return self._story.showing(transient=True)

    def show(self, run: Recording, backlog: float) -> None:
        """The newest look.

        Args:
            backlog: Seconds that the input is late.
        """
        if not run.samples:
            return
        last = run.samples[-1]
        live = self._story.live
        if live is None:
            if time.monotonic() - self._told >= LINE:
                self._told = time.monotonic()
                self.say("  " + line(run, last, backlog))
            return
        from rich.console import Group
        from rich.text import Text

        width = max(20, live.console.width - 40)
        total = len(PROPORTIONS) * run.phase
        begin = run.began or run.samples[0].time
        most = max(s.total for s in run.samples)
        executors = [(s.time - begin, float(s.total)) for s in run.samples]
        offered = [(s.time - begin, s.offered) for s in run.samples]
        latency = [(p.due - begin, p95([p], run.bounds)) for p in run.panes if p.latencies]
        slowest = max((v for _, v in latency), default=0.001)
        seconds = max(total, last.time - begin)
        rows = [
            f"{run.name}: {line(run, last, backlog)}",
            f"  offered   |{blocks(offered, seconds, width, 0, max(1.0, max(s.offered for s in run.samples)))}| {last.offered:,.0f}/s",
            f"  executors |{blocks(executors, seconds, width, 0, most)}| {last.total}",
            f"  latency   |{blocks(latency, seconds, width, 0.001, max(0.01, slowest), log=True)}| to {slowest:.3g} s",
            "  " + ", ".join(f"{name} {n}" for name, n in last.executors.items()),
            *(f"  {e.message}" for e in run.decisions[-_SHOWN:]),
        ]
        live.update(Group(*(Text(row, no_wrap=True, overflow="ellipsis") for row in rows)), refresh=True)


def line(run: Recording, last: Sample, backlog: float) -> str:
    """One look in a line."""
    begin = run.began or run.samples[0].time
    at = last.time - begin
    phase = min(len(PROPORTIONS), int(at / run.phase) + 1)
    newest = p95(run.panes[-2:], run.bounds)
    late = f", input {backlog:.1f} s late" if backlog > 0.5 else ""
    return (
        f"{at:4.0f} s, phase {phase}  offered {last.offered:,.0f}/s, taken {last.taken:,.0f}/s, p95 {1e3 * newest:,.0f} ms{late};"
        f" {last.total} executors ({last.executors.get('detector', 0)} detectors) in {last.workers} workers,"
        f" {last.busy:.0%} busy; {last.moved} tasks moved"
    )
