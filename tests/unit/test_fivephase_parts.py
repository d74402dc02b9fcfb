"""The five-phase experiment: what it makes of what it sees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from elastic.model.events import Event
from examples.demo.fivephase import figure
from examples.demo.fivephase.experiment import Shape, rate
from examples.demo.fivephase.recording import PROPORTIONS, Pane, Panes, Recording, Sample, p95
from examples.demo.fivephase.report import goals, table
from examples.demo.fivephase.run import Plan, _compare
from examples.demo.fivephase.view import View, line
from examples.demo.stage import Story

BOUNDS = [0.001 * 2**n for n in range(16)]
BEGAN = 1000.0


def recording(slow: tuple[int, ...] = ()) -> Recording:
    """Phases of 4 s with four panes a second; in those of `slow` latency is high and nothing is worked off until the end."""
    run = Recording("A <run>", 4.0, 0.25, BOUNDS, equal=True)
    for number in range(80):
        phase = number // 16
        due = BEGAN + (number + 1) * 0.25
        late = phase + 1 in slow
        run.panes.append(
            Pane(number, due, 30.0 if late else 0.01, 3, {12 if late else 3: int(PROPORTIONS[phase])})
        )
    for second in range(20):
        detectors = 20 if 8 <= second < 12 else 5
        run.samples.append(
            Sample(
                BEGAN + second + 0.5,
                100.0,
                99.0,
                700.0,
                {"detector": detectors, "input": 1},
                2,
                0.4,
                0.5,
                second,
                0.2,
            )
        )
    run.decisions.append(Event(BEGAN + 8.5, "scale-out", "from 5 to 20, as 0.9 > 0.7"))
    return run


def test_latencies_of_panes_are_taken_together() -> None:
    assert p95([], BOUNDS) == 0.0
    panes = [Pane(0, 0, 0, 0, {0: 90, 5: 4}), Pane(1, 0, 0, 0, {7: 6, 99: 0})]
    assert p95(panes, BOUNDS) == BOUNDS[7]
    assert p95([Pane(0, 0, 0, 0, {16: 1})], BOUNDS) == BOUNDS[15], "beyond the last bound"


def test_the_second_half_of_each_phase() -> None:
    settled = recording(slow=(3,)).settled()
    assert [s.latency for s in settled] == [BOUNDS[3], BOUNDS[3], BOUNDS[12], BOUNDS[3], BOUNDS[3]]
    assert [s.executors for s in settled] == [6, 6, 21, 6, 6]
    assert [s.decisions for s in settled] == [0] * 5, "it was in the first half"
    assert recording().began == pytest.approx(BEGAN) and recording().end == pytest.approx(20.01)


def test_reasons_of_one_decision_are_counted_once_and_what_it_took_is_measured_from_the_phase_s_beginning() -> (
    None
):
    run = recording()
    late = BEGAN + 4 + 3.25  # in the second half of the second phase
    run.decisions += [Event(late, "scale-in", "a"), Event(late, "fewer-workers", "b")]
    run.resized += [Event(late + 0.25, "topology-resized", "c"), Event(BEGAN + 9.0, "topology-resized", "d")]
    settled = run.settled()
    assert [s.decisions for s in settled] == [0, 1, 0, 0, 0]
    assert [s.after for s in settled] == pytest.approx([0.0, 3.5, 1.0, 0.0, 0.0])
    row = table(run, 120.0)[3]
    assert row.split()[-4:] == ["1", "3.5", "s", "-"]


def test_when_a_phase_had_settled() -> None:
    run = recording()
    number = next(n for n, p in enumerate(run.panes) if p.due == BEGAN + 8 + 1.75)  # in the third phase
    run.panes[number] = replace(run.panes[number], latencies={12: 900})
    assert [s.late for s in run.settled()] == pytest.approx([0, 0, 2.0, 0, 0]), "parts of half a second"
    assert recording(slow=(3,)).settled()[2].late == pytest.approx(4.0), "never"


def verdicts(fixed: Recording, elastic: Recording, period: float = 1.0) -> list[bool]:
    """Which goals are met, in their order."""
    return [not line.startswith("  NOT MET") for line in goals(fixed, elastic, period)[1:]]


def few(run: Recording) -> Recording:
    """With fewer executors in the first and the last phase."""
    for n, s in enumerate(run.samples):
        if n < 4 or n >= 16:
            run.samples[n] = replace(s, executors={"detector": 2, "input": 1})
    return run


def test_every_goal_is_said_to_be_met_or_not() -> None:
    """Planted faults: each alone is found, and nothing else is said to be missed."""
    fixed = recording(slow=(3,))
    good = few(recording())
    good.resized.append(Event(BEGAN + 9.9, "topology-resized", "after 1.9 s"))
    assert verdicts(fixed, good) == [True] * 5
    said = goals(fixed, good, 1.0)
    assert "(1.0 times; not elastic 512)" in said[1] and "1.9 s after the load went up; 2 s" in said[4]
    assert verdicts(fixed, few(recording(slow=(3,)))) == [False, True, False, True, True]
    restless = few(recording())
    restless.decisions.append(Event(BEGAN + 7.0, "scale-in", "in a settled phase"))
    assert verdicts(fixed, restless) == [True, False, True, True, True]
    good.resized.append(Event(BEGAN + 6.1, "topology-resized", "after 2.1 s"))
    assert verdicts(fixed, good) == [True, True, True, False, True]
    assert verdicts(fixed, good, 1.5) == [True] * 5
    twice = few(recording())
    twice.resized += [
        Event(BEGAN + 8 + x, "topology-resized", "after a part of a period, and a whole one")
        for x in (0.5, 2.5)
    ]
    assert verdicts(fixed, twice) == [True] * 5
    assert "0.5 s and the last of them 2.5 s after the load went up; 2 s" in goals(fixed, twice, 1.0)[4]
    assert verdicts(fixed, recording()) == [True, True, True, True, False]
    assert few(recording()).settled()[0].each == pytest.approx(2 * recording().settled()[0].each)
    lost = few(recording())
    lost.panes = [replace(p, latencies={k: v // 3 for k, v in p.latencies.items()}) for p in lost.panes]
    assert not verdicts(fixed, lost)[4], "fewer that do less"


def test_all_that_was_seen_is_told_as_plain_values() -> None:
    told = json.loads(json.dumps(recording().told()))
    assert told["panes"][3]["latencies"] == {"3": 120} and told["decisions"][0]["kind"] == "scale-out"


def test_the_rate_is_such_that_the_third_phase_has_the_load_s_work(tmp_path: Path) -> None:
    """Two items: three patterns of each line. In the third phase there are more, and that counts."""
    text = tmp_path / "text"
    text.write_text("a b\n" * 100 + "a b c\n" * 5000)
    shape = Shape(("--items", "5", "--length", "3"), 0.01, 7.0, 2)
    assert rate(str(text), shape, 8.0) == pytest.approx(7.0 / (7 * 0.01) * 120 / 900, abs=0.1)


def test_what_was_degraded_is_judged_by_when_patterns_came_and_were_counted() -> None:
    """A pane's result waits for its slowest task; its patterns were counted before."""
    run = recording()
    run.panes = [Pane(p.number, p.due, 20.0, p.frequent, p.latencies) for p in run.panes]
    assert run.degraded() <= 0.05


def test_how_long_it_was_degraded() -> None:
    assert recording().degraded() <= 0.05
    assert 0.15 <= recording(slow=(3,)).degraded() <= 0.3, "one phase of five"
    assert Recording("nothing", 4.0, 0.25, BOUNDS).degraded() == 1.0


def test_the_file_of_panes_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "latency"
    panes = Panes(path)
    assert panes.more() == []
    told = [
        json.dumps({"pane": n, "due": 1.0, "age": 0.5, "frequent": 2, "latencies": [[3, 4]]})
        for n in range(3)
    ]
    path.write_text(told[0] + "\n" + told[1][:9])
    assert [p.number for p in panes.more()] == [0]
    assert panes.more() == []
    with path.open("a") as file:
        file.write(told[1][9:] + "\n" + told[2] + "\n")
    assert panes.more() == [Pane(1, 1.0, 0.5, 2, {3: 4}), Pane(2, 1.0, 0.5, 2, {3: 4})]


def test_the_figure_has_both_runs_side_by_side() -> None:
    root = ElementTree.fromstring(figure.svg([recording(), recording(slow=(2, 3))], 100.0))
    space = "{http://www.w3.org/2000/svg}"
    lines = root.findall(f"{space}polyline")
    assert len(lines) == 2 * 4, "offered and worked off, executors, latency"
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for drawn in lines:
        points = [tuple(map(float, p.split(","))) for p in drawn.get("points", "").split()]
        assert len(points) > 5 and all(0 <= x <= width and 0 <= y <= height for x, y in points)
    titles = [t.text for t in root.iter(f"{space}title")]
    assert titles == ["from 5 to 20, as 0.9 > 0.7"] * 6, "each panel shows the decision"
    low, high = (max(y for _, y in _points(lines[n])) for n in (3, 7))
    assert min(y for _, y in _points(lines[7])) < min(y for _, y in _points(lines[3])), (
        "the slow one goes higher"
    )
    assert low == pytest.approx(high)


def _points(drawn: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = (p.split(",") for p in drawn.get("points", "").split())
    return [(float(x), float(y)) for x, y in pairs]


def test_the_figure_as_text() -> None:
    lines = figure.text([recording(), recording(slow=(3,))], width=40)
    assert lines[0] == "A <run>" and "to 21" in lines[1] and "▃" in lines[1] and "█" in lines[1]
    assert lines[-1].split() == ["phases", "1", "2", "3", "4", "5"]


def test_what_is_said() -> None:
    said = "\n".join(table(recording(slow=(3,)), 120.0))
    assert "512.0 times that of the first phase" in said
    assert "1 decisions, 19 tasks moved, longest pause 200 ms" in said
    assert "equal to those of the reference" in said and "NOT" not in said
    run = recording()
    run.equal = False
    assert "NOT EQUAL" in "\n".join(table(run, 120.0))
    assert (
        "phase 5  offered 100/s, taken 99/s, p95 8 ms, input 2.0 s late; 6 executors (5 detectors)"
        in line(run, run.samples[-1], 2.0)
    )


def test_patterns_that_differ_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A planted fault: a pattern that nobody has found."""
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text("a b\n")
    out.write_text("planted\t1\t2\t33\t44\n")
    plan = Plan(("--input", str(text), "--phase", "0.1", "--rate", "1"), (), 0.1)
    assert not _compare(plan, out, View(Story()))
    assert "found, not expected: planted" in capsys.readouterr().out
    out.write_text("")
    assert _compare(plan, out, View(Story())), "nothing is frequent in so short a time"
