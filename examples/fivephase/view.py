"""What is shown while a run goes on: a live view on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .figure import blocks
from .recording import PROPORTIONS, Recording, Sample, p95

if TYPE_CHECKING:
    from rich.live import Live

LINE = 4.0
"""Seconds between two lines where there is no terminal."""
_SHOWN = 6


class View:
    """Says lines, and shows a run above which they are said. For one thread."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._told = 0.0

    def say(self, text: str = "") -> None:
        """A line. Where nobody reads any more it is dropped: there are still things to put away."""
        with contextlib.suppress(BrokenPipeError):
            if self._live is not None:
                self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                print(text, flush=True)

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Show the run as long as the body lasts."""
        if not sys.stdout.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(), auto_refresh=False, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def show(self, run: Recording, backlog: float) -> None:
        """The newest look.

        Args:
            backlog: Seconds that the input is late.
        """
        if not run.samples:
            return
        last = run.samples[-1]
        if self._live is None:
            if time.monotonic() - self._told >= LINE:
                self._told = time.monotonic()
                self.say("  " + line(run, last, backlog))
            return
        from rich.console import Group
        from rich.text import Text

        width = max(20, self._live.console.width - 40)
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
        self._live.update(
            Group(*(Text(row, no_wrap=True, overflow="ellipsis") for row in rows)), refresh=True
        )


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
