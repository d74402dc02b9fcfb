"""The benchmark of the waiting load: what it makes of what it sees, and that its requests go on where they are moved to."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks import wave
from benchmarks._wave_job import BOUNDS, Requests
from benchmarks.harness import Session, Wrong
from elastic.model.events import Event


class Noted(Requests):
    """Says what it emits."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.out: list[tuple[int, int, float]] = []
        self.ended = False

    def emit(self, *values: Any) -> None:  # type: ignore[override]
        self.out.append(values)

    def exhausted(self) -> None:
        self.ended = True


def gone_through(spout: Noted, monkeypatch: pytest.MonkeyPatch, until: float) -> None:
    """As if that were the time."""
    monkeypatch.setattr("benchmarks._wave_job.time.time", lambda: 1000.0 + until)
    for _ in range(1000):
        if spout.next_tuple() is not None or spout.ended:
            return
    raise AssertionError("it never waits")


def test_requests_follow_their_rates_and_go_on_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = (str(tmp_path), (100.0, 400.0), 5.0)
    stayed, left = Noted(*given), Noted(*given)
    for spout in (stayed, left):
        gone_through(spout, monkeypatch, 0.0)
        gone_through(spout, monkeypatch, 3.0)
    moved = Noted(*given)
    moved.set_state(left.get_state())
    moved.out = left.out
    for spout in (stayed, moved):
        gone_through(spout, monkeypatch, 20.0)
        assert spout.ended
    assert moved.out == stayed.out
    assert [n for n, _, _ in stayed.out] == list(range(len(stayed.out)))
    assert all(a[2] <= b[2] for a, b in pairwise(stayed.out))
    phases = Counter(phase for _, phase, _ in stayed.out)
    assert phases[0] == pytest.approx(500, rel=0.2) and phases[1] == pytest.approx(2000, rel=0.1)
    assert int((tmp_path / "emitted").read_text()) == len(stayed.out)
    assert float((tmp_path / "began").read_text()) == 1000.0


def test_a_planted_fault_whoever_begins_anew_emits_everything_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the count of the answers finds."""
    first, second = (Noted(str(tmp_path), (100.0,), 5.0) for _ in range(2))
    for spout in (first, second):
        gone_through(spout, monkeypatch, 0.0)
    gone_through(first, monkeypatch, 3.0)
    gone_through(second, monkeypatch, 20.0)
    assert len(first.out) + len(second.out) > int((tmp_path / "emitted").read_text())


def test_latencies_and_how_soon_executors_follow() -> None:
    run = wave.Run(began=100.0)
    run.latencies = {(0, 0): Counter({50: 100}), (0, 1): Counter({10: 95, 20: 5})}
    assert run.p95(0) == BOUNDS[10] and run.p95(0, (0, 1)) == BOUNDS[50]
    with pytest.raises(Wrong, match="phase 2"):
        run.p95(1)
    for number in range(1, 5):
        at = 100.0 + number * 10
        run.decided += [Event(at + 1, "scale-out", "a"), Event(at + 1, "more-workers", "b")]
        run.resized.append(Event(at + (2.5 if number == 3 else 1.5), "topology-resized", "c"))
    found, session = wave.Found(), Session()
    wave.follows(found, "ds2", "ds2 --period 1", run, 10.0)
    found.report(session)
    met = {f.name: f.goal.met(f) for f in session.figures if f.goal is not None}
    assert list(met.values()) == [True, True, False, True], met
    assert [f.figure for f in session.figures if f.name.endswith("decisions")] == [1.0] * 4
