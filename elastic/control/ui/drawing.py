"""Where things go in the page's pictures: a topology as a graph, its rates over time, the steps of a move. Numbers only, no markup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from elastic.control.ui.watching import Sample
from elastic.model.topology import TopologySpec
from elastic.model.views import MoveView, TaskMoveView

BOX_WIDTH, BOX_HEIGHT = 168, 58
_ACROSS, _DOWN = 92, 26
"""Between two layers, and between two boxes of one."""
_EDGE = 8


@dataclass(frozen=True, slots=True)
class Box:
    """A component; pixels of its upper left corner."""

    component: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream from one component to another.

    Attributes:
        path: As SVG draws it.
        grouping: How tuples are distributed.
    """

    source: str
    target: str
    stream: str
    grouping: str
    path: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A topology; pixels."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]


def graph(spec: TopologySpec) -> Graph:
    """Lay a topology out: sources to the left, and whoever gets a stream right of all that it gets one from."""
    inputs = {str(c.id): [str(i.source) for i in c.inputs] for c in spec.components}
    layer: dict[str, int] = {}
    columns: dict[int, list[str]] = {}
    for component in TopologicalSorter(inputs).static_order():
        layer[component] = 1 + max((layer[s] for s in inputs[component]), default=-1)
        columns.setdefault(layer[component], []).append(component)
    tallest = max(map(len, columns.values()))
    height = tallest * BOX_HEIGHT + (tallest - 1) * _DOWN + 2 * _EDGE
    places: dict[str, tuple[float, float]] = {}
    for number in sorted(columns):
        # By where their sources are, so that few streams cross.
        column = sorted(columns[number], key=lambda c: _mean([places[s][1] for s in inputs[c]]))
        top = (height - len(column) * BOX_HEIGHT - (len(column) - 1) * _DOWN) / 2
        for row, component in enumerate(column):
            places[component] = (_EDGE + number * (BOX_WIDTH + _ACROSS), top + row * (BOX_HEIGHT + _DOWN))
    edges = [
        Edge(str(i.source), str(c.id), str(i.stream), str(i.grouping), _curve(places[str(i.source)], places[str(c.id)]))
        for c in spec.components
        for i in c.inputs
    ]  # fmt: skip
    width = len(columns) * BOX_WIDTH + (len(columns) - 1) * _ACROSS + 2 * _EDGE
    return Graph(width, height, tuple(Box(c, *places[c]) for c in inputs), tuple(edges))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _curve(source: tuple[float, float], target: tuple[float, float]) -> str:
    """From the right side of one box to the left side of another."""
    x1, y1 = source[0] + BOX_WIDTH, source[1] + BOX_HEIGHT / 2
    x2, y2 = target[0], target[1] + BOX_HEIGHT / 2
    bend = (x2 - x1) / 2
    return f"M{x1:.0f},{y1:.1f} C{x1 + bend:.0f},{y1:.1f} {x2 - bend:.0f},{y2:.1f} {x2:.0f},{y2:.1f}"


CHART_WIDTH, CHART_HEIGHT = 900, 160
_LEAST_SPAN = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """One component's rate over time.

    Attributes:
        points: As SVG draws them.
        newest: Tuples per second.
    """

    component: str
    points: str
    newest: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A move, where it began; pixels from the left."""

    epoch: int
    x: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Rates over time.

    Attributes:
        top: The rate at the upper edge, tuples per second.
        seconds: From the left edge to the right one.
    """

    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    top: float
    seconds: float


def chart(history: Sequence[Sample], moves: Sequence[MoveView]) -> Chart:
    """Draw rates over time, and where moves began.

    Args:
        history: Oldest first.
        moves: Of the same topology.
    """
    if not history:
        return Chart((), (), 1.0, _LEAST_SPAN)
    end = history[-1].at
    span = max(_LEAST_SPAN, end - history[0].at)
    top = _round_up(max(max(s.rates.values(), default=0.0) for s in history))

    def x(at: float) -> float:
        return CHART_WIDTH * (1 - (end - at) / span)

    def y(rate: float) -> float:
        return CHART_HEIGHT * (1 - rate / top)

    lines = []
    for component in history[-1].rates:
        known = [s for s in history if component in s.rates]
        points = " ".join(f"{x(s.at):.1f},{y(s.rates[component]):.1f}" for s in known)
        lines.append(Line(component, points, history[-1].rates[component]))
    marks = tuple(Mark(m.epoch, round(x(m.began), 1)) for m in moves if end - span <= m.began <= end)
    return Chart(tuple(lines), marks, top, span)


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 with zeros behind it."""
    if value <= 1:
        return 1.0
    ten = 10.0 ** math.floor(math.log10(value))
    return next(n * ten for n in (1, 2, 5, 10) if n * ten >= value)


PARTS = (
    ("ready", "prepared", "paused"),
    ("still", "paused", "saved"),
    ("between", "saved", "restored"),
    ("again", "restored", "resumed"),
)
"""What a task does between two steps: it is ready to move, it stands still and is saved, it is brought back, it is sent what was held."""
_BEFORE = 0.1


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a task's move: of which kind (see `PARTS`), and from where to where, in per cent of the width."""

    kind: str
    left: float
    width: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Track:
    """The parts of one task's move."""

    task: TaskMoveView
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Steps of all tasks of a move beside each other.

    Attributes:
        seconds: What the width stands for. It begins a little before the first pause: getting ready takes as long as it takes.
    """

    tracks: tuple[Track, ...]
    seconds: float


def timeline(move: MoveView) -> Timeline:
    """Draw the steps of a move's tasks, from shortly before the first stands still until the last goes on."""
    tasks = sorted(move.tasks, key=lambda t: (t.times.get("paused", math.inf), t.task))
    still = [t.times["paused"] for t in tasks if "paused" in t.times]
    last = [at for t in tasks for step, at in t.times.items() if step != "received"]
    if not still or max(last) <= min(still):
        return Timeline(tuple(Track(t, ()) for t in tasks), 0.0)
    begin = min(still) - _BEFORE * (max(last) - min(still))
    span = max(last) - begin
    return Timeline(tuple(Track(t, _parts(t.times, begin, span)) for t in tasks), span)


def _parts(times: Mapping[str, float], begin: float, span: float) -> tuple[Part, ...]:
    found = []
    for kind, first, last in PARTS:
        if first in times and last in times:
            # Clocks of several machines: one may say that an end was before its beginning.
            left, right = max(begin, times[first]), max(begin, times[last])
            if right > left:
                found.append(
                    Part(kind, 100 * (left - begin) / span, 100 * (right - left) / span, right - left)
                )
    return tuple(found)
