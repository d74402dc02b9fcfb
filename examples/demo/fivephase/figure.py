"""The figure at the end: rate, executors and latency over time, without elasticity and with it, side by side. SVG, written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise

from .recording import PROPORTIONS, Recording, p95

WIDTH, HEIGHT, GAP = 430, 150, 34
LEFT, TOP = 64, 56
Points = Sequence[tuple[float, float]]
Axis = tuple[Callable[[float], float], list[float]]
BLOCKS = " ▁▂▃▄▅▆▇█"


def svg(runs: Sequence[Recording], rate: float) -> str:
    """The figure.

    Args:
        runs: A column each.
        rate: Transactions per second in the first phase.
    """
    seconds = max(r.end for r in runs)
    lowest, highest = _latencies(runs)
    most = max((s.total for r in runs for s in r.samples), default=1)
    top = 1.15 * rate * max(PROPORTIONS) / PROPORTIONS[0]
    width = LEFT + len(runs) * (WIDTH + LEFT)
    height = TOP + 3 * (HEIGHT + GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, run in enumerate(runs):
        left = LEFT + number * (WIDTH + LEFT)
        parts.append(f'<text x="{left}" y="24" font-size="15" font-weight="bold">{escape(run.name)}</text>')
        panels: list[tuple[str, Axis, list[tuple[str, str, Points]]]] = [
            (
                "transactions/s",
                _linear(0, top),
                [
                    ("offered", "#999999", _schedule(run, rate)),
                    ("worked off", "#1f77b4", _worked(run, rate)),
                ],
            ),
            (
                "executors",
                _linear(0, 1.15 * most),
                [("executors", "#2ca02c", [(s.time - run.began, float(s.total)) for s in run.samples])],
            ),
            ("latency, p95, s", _logarithmic(lowest, highest), [("latency", "#d62728", _latency(run))]),
        ]
        for row, (title, (scale, marks), lines) in enumerate(panels):
            y = TOP + row * (HEIGHT + GAP)
            parts += _panel(left, y, title, run, seconds, scale, marks, steps=row < 2, lines=lines)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    left: float,
    top: float,
    title: str,
    run: Recording,
    seconds: float,
    scale: Callable[[float], float],
    marks: Sequence[float],
    *,
    steps: bool,
    lines: Sequence[tuple[str, str, Points]],
) -> list[str]:
    def x(time: float) -> float:
        return left + WIDTH * min(1.0, max(0.0, time / seconds))

    def y(value: float) -> float:
        return top + HEIGHT * (1 - min(1.0, max(0.0, scale(value))))

    parts = [
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#cccccc"/>',
        f'<text x="{left}" y="{top - 5}" fill="#555555">{escape(title)}</text>',
    ]
    for mark in marks:
        parts.append(
            f'<line x1="{left - 4}" x2="{left + WIDTH}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#eeeeee"/>'
        )
        parts.append(f'<text x="{left - 8}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:g}</text>')
    for number in range(len(PROPORTIONS) + 1):
        at = x(number * run.phase)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + HEIGHT}" stroke="#bbbbbb" stroke-dasharray="2 3"/>'
        )
        parts.append(
            f'<text x="{at:.1f}" y="{top + HEIGHT + 13}" text-anchor="middle">{number * run.phase:g}</text>'
        )
    for event in run.decisions:
        at = x(event.time - run.began)
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + HEIGHT}" stroke="#9467bd" stroke-dasharray="5 3">'
            f"<title>{escape(event.message)}</title></line>"
        )
    for place, (label, colour, points) in enumerate(lines):
        drawn = _stairs(points) if steps else list(points)
        path = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in drawn)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if len(lines) > 1:
            parts.append(
                f'<text x="{left + WIDTH - 6}" y="{top + 14 + 13 * place}" fill="{colour}" text-anchor="end">{escape(label)}</text>'
            )
    return parts


def _stairs(points: Points) -> list[tuple[float, float]]:
    """Each value holds until the next one."""
    result = [p for (t, v), (later, _) in pairwise(points) for p in ((t, v), (later, v))]
    return [*result, *points[-1:]]


def _schedule(run: Recording, rate: float) -> Points:
    rates = [rate * p / PROPORTIONS[0] for p in PROPORTIONS]
    return [*((n * run.phase, r) for n, r in enumerate(rates)), (len(rates) * run.phase, 0.0)]


def _worked(run: Recording, rate: float) -> Points:
    """Transactions per second, from the patterns that were counted in each second."""
    patterns = sum(sum(p.latencies.values()) for p in run.panes)
    per = patterns / max(1e-9, sum(PROPORTIONS) * rate / PROPORTIONS[0] * run.phase)
    seconds = [0.0] * (int(run.end) + 2)
    for time, count in run.worked():
        seconds[min(len(seconds) - 1, max(0, int(time)))] += count
    return [(float(t), n / max(per, 1e-9)) for t, n in enumerate(seconds[:-1])]


def _latency(run: Recording) -> Points:
    return [(p.due - run.began, p95([p], run.bounds)) for p in run.panes if p.latencies]


def _latencies(runs: Sequence[Recording]) -> tuple[float, float]:
    values = [v for r in runs for _, v in _latency(r)] or [0.001]
    return 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)) + 1e-9)


def _linear(low: float, high: float) -> Axis:
    step = 10 ** math.floor(math.log10(max(high - low, 1e-9) / 2))
    while (high - low) / step > 5:
        step *= 2
    marks = [low + n * step for n in range(int((high - low) / step) + 1)]
    return (lambda value: (value - low) / (high - low)), marks


def _logarithmic(low: float, high: float) -> Axis:
    bottom, decades = math.log10(low), max(1.0, math.log10(high / low))
    marks = [low * 10**n for n in range(round(decades) + 1)]
    return (lambda value: (math.log10(max(value, low)) - bottom) / decades), marks


def blocks(points: Points, seconds: float, width: int, low: float, high: float, *, log: bool = False) -> str:
    """A line of text: the highest value in each part of the time, as blocks of different height."""
    scale = (_logarithmic if log else _linear)(low, high)[0]
    cells = [0.0] * width
    for time, value in points:
        cell = min(width - 1, max(0, int(width * time / seconds)))
        cells[cell] = max(cells[cell], value)
    result, last = "", 0.0
    for value in cells:
        last = value or last  # a part in which nothing was seen is as the one before
        share = min(1.0, max(0.0, scale(last))) if last else 0.0
        result += BLOCKS[max(1, math.ceil(share * (len(BLOCKS) - 1))) if last else 0]
    return result


def text(runs: Sequence[Recording], width: int = 60) -> list[str]:
    """The figure as lines of text."""
    seconds = max(r.end for r in runs)
    lowest, highest = _latencies(runs)
    most = max((s.total for r in runs for s in r.samples), default=1)
    lines = []
    for run in runs:
        executors = [(s.time - run.began, float(s.total)) for s in run.samples]
        lines += [
            f"{run.name}",
            f"  executors  |{blocks(executors, seconds, width, 0, most)}| to {most}",
            f"  latency    |{blocks(_latency(run), seconds, width, lowest, highest, log=True)}| {lowest:g} to {highest:g} s, logarithmic",
        ]
    phases = [" "] * width
    for number in range(len(PROPORTIONS)):
        phases[int(width * number * runs[0].phase / seconds)] = str(number + 1)
    return [*lines, f"  phases      {''.join(phases)}"]
