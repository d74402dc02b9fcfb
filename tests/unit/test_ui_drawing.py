"""Where things go in the page's pictures."""

from __future__ import annotations

from dataclasses import replace

from cli_fake import move, task_move, under_way
from hypothesis import given
from hypothesis import strategies as st

from elastic.control.ui.drawing import (
    BOX_HEIGHT,
    BOX_WIDTH,
    CHART_HEIGHT,
    CHART_WIDTH,
    chart,
    graph,
    timeline,
)
from elastic.control.ui.watching import Sample
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import ComponentId, StreamId, TopologyName
from elastic.model.topology import ComponentSpec, InputSpec, TopologySpec


def spec(inputs: list[set[int]]) -> TopologySpec:
    """A topology: the component of each place gets a stream from those that it names."""
    return TopologySpec(
        TopologyName("t"),
        tuple(
            ComponentSpec(
                ComponentId(f"c{n}"),
                "bolt" if sources else "spout",
                1,
                1,
                inputs=tuple(
                    InputSpec(ComponentId(f"c{s}"), StreamId("default"), Grouping(GroupingKind.SHUFFLE))
                    for s in sorted(sources)
                ),
            )
            for n, sources in enumerate(inputs)
        ),
    )


@st.composite
def topologies(draw: st.DrawFn) -> TopologySpec:
    count = draw(st.integers(1, 12))
    made = spec([draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else set() for n in range(count)])
    return replace(made, components=tuple(draw(st.permutations(made.components))))


@given(topologies())
def test_streams_go_to_the_right_and_boxes_do_not_overlap(topology: TopologySpec) -> None:
    drawn = graph(topology)
    at = {b.component: b for b in drawn.boxes}
    assert at.keys() == {str(c.id) for c in topology.components}
    for edge in drawn.edges:
        assert at[edge.source].x + BOX_WIDTH < at[edge.target].x
    for b in drawn.boxes:
        assert 0 <= b.x <= drawn.width - BOX_WIDTH and 0 <= b.y <= drawn.height - BOX_HEIGHT
        for other in drawn.boxes:
            apart = abs(b.x - other.x) >= BOX_WIDTH or abs(b.y - other.y) >= BOX_HEIGHT
            assert apart or other is b


def test_a_long_chain_can_be_drawn() -> None:
    drawn = graph(spec([{n - 1} if n else set() for n in range(3000)]))
    assert len(drawn.boxes) == 3000


RATES = st.floats(0, 1e9)


@given(st.lists(st.tuples(st.floats(0.01, 5), RATES, RATES), min_size=1, max_size=50))
def test_a_chart_keeps_to_its_frame(steps: list[tuple[float, float, float]]) -> None:
    history, at = [], 1_700_000_000.0
    for seconds, a, b in steps:
        at += seconds
        history.append(Sample(at, {"a": a, "b": b}))
    drawn = chart(history, [move(1, began=at), move(2, began=at - 1e6)])
    assert [m.epoch for m in drawn.marks] == [1], "what began before the left edge is not drawn"
    for line in drawn.lines:
        points = [tuple(map(float, p.split(","))) for p in line.points.split()]
        assert len(points) == len(history)
        assert all(-0.1 <= x <= CHART_WIDTH and -0.1 <= y <= CHART_HEIGHT + 0.1 for x, y in points)
        assert points == sorted(points, key=lambda p: p[0])
    assert drawn.top >= max(max(a, b) for _, a, b in steps)


def test_a_component_that_came_later_begins_later() -> None:
    drawn = chart([Sample(0.0, {"a": 1.0}), Sample(1.0, {"a": 1.0, "b": 2.0})], [])
    assert {line.component: len(line.points.split()) for line in drawn.lines} == {"a": 2, "b": 1}
    assert not chart([], []).lines


def test_steps_are_drawn_from_the_first_pause_on() -> None:
    first = task_move(2)
    later = task_move(3, times={s: t + 0.1 for s, t in first.times.items()})
    drawn = timeline(move(tasks=(later, first)))
    assert [t.task.task for t in drawn.tracks] == [2, 3], "by when they stand still"
    kinds = [[p.kind for p in t.parts] for t in drawn.tracks]
    assert kinds == [["ready", "still", "between", "again"]] * 2
    for track in drawn.tracks:
        assert all(p.left >= 0 and p.left + p.width <= 100.001 for p in track.parts)
    still = drawn.tracks[0].parts[1]
    assert abs(still.seconds - (first.times["saved"] - first.times["paused"])) < 1e-6


@given(
    st.dictionaries(
        st.sampled_from(("prepared", "paused", "saved", "restored", "resumed", "received")), RATES
    )
)
def test_clocks_that_disagree_and_steps_that_are_missing_can_be_drawn(times: dict[str, float]) -> None:
    drawn = timeline(move(tasks=(task_move(1, times=times), task_move(2))))
    for track in drawn.tracks:
        assert all(-1e-6 <= p.left <= 100.001 and p.width >= 0 for p in track.parts)


def test_what_has_not_paused_yet_has_no_parts() -> None:
    tasks = tuple(task_move(t.task, "preparing", times={"prepared": 1.0}) for t in under_way().tasks)
    drawn = timeline(move(tasks=tasks))
    assert drawn.seconds == 0 and not any(t.parts for t in drawn.tracks)
