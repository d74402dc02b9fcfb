"""What the moves of a topology that have ended came to, added up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from elastic.model.views import MoveTotals, MoveView

_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Of pauses and gaps in the totals, seconds."""


def added(totals: MoveTotals, view: MoveView) -> MoveTotals:
    """The totals with one move more, which has ended."""
    done = [t for t in view.tasks if t.moved]
    gaps = [t.gap for t in done if t.gap]
    return MoveTotals(
        totals.moves + 1,
        totals.committed + len(done),
        totals.rolled_back + sum(1 for t in view.tasks if t.went_back or t.came_back),
        totals.lost + sum(1 for t in view.tasks if t.phase == "lost"),
        totals.size + sum(t.size for t in done),
        _counted(totals.pauses, [t.pause for t in done]),
        totals.pause_sum + sum(t.pause for t in done),
        max([totals.pause_max, *(t.pause for t in done)]),
        _counted(totals.gaps, gaps),
        totals.gap_sum + sum(gaps),
        max([totals.gap_max, *gaps]),
    )


def _counted(before: Mapping[str, int], seconds: Sequence[float]) -> dict[str, int]:
    """A histogram with those more."""
    bounds = (*((f"{b:g}", b) for b in _BOUNDS), ("+Inf", math.inf))
    return {name: before.get(name, 0) + sum(s <= bound for s in seconds) for name, bound in bounds}
