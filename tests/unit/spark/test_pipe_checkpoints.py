"""Pipes of topologies with checkpoints: each row once, wherever processes end and to which checkpoint their tasks go back."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from pipe_parts import Reading, Written, log_of, pairs, part

from elastic.spark import DataFrameSink, DataFrameSpout, segments
from elastic.spark.pipe import Pipe


class Saved:
    """A component's checkpoints, as its process and those after it make them."""

    def __init__(self, made: Any) -> None:
        self.made = made  # gives another copy, as in a new process
        self.component = made()
        self.number = 0
        self.complete: tuple[int, bytes] | None = None
        self.begun: tuple[int, bytes] | None = None

    def begin(self) -> None:
        self.number += 1
        self.component.checkpoint_begins(self.number)
        self.begun = self.number, pickle.dumps(self.component.get_state())

    def end(self, *, told: bool) -> None:
        """It is complete; the process may end before its tasks hear of that."""
        self.complete = self.begun
        if told and self.complete is not None:
            self.component.checkpoint_complete(self.complete[0])

    def move(self) -> None:
        state = pickle.dumps(self.component.get_state())
        self.component.cleanup()
        self.component = self.made()
        self.component.set_state(pickle.loads(state))
        if self.complete is not None:
            self.component.checkpoint_complete(self.complete[0])

    def go_back(self) -> None:
        self.begun = None
        self.component = self.made()
        if self.complete is not None:
            self.component.set_state(pickle.loads(self.complete[1]))
            self.component.checkpoint_complete(self.complete[0])


def run_in(directory: Path, seed: int) -> None:
    chosen, log = random.Random(seed), log_of(str(directory))
    reading = Reading(str(directory))
    emitted: list[Any] = []

    def made() -> DataFrameSpout:
        spout = reading._made()
        spout.context.checkpoints = True
        spout.__dict__["emit_batch"] = emitted.append
        return spout

    saved, at, wanted, was_begun = Saved(made), 0, [], 0
    for _ in range(40):
        if chosen.random() < 0.6:
            found = [(0, len(wanted) + n) for n in range(chosen.randint(1, 6))]
            wanted += found
            log.commit([part(log, 0, *found)])
        for _ in range(chosen.randint(0, 6)):
            saved.component.next_batch()
        match chosen.choice(["begin", "end", "end", "back", "move", "nothing"]):
            case "begin":
                saved.begin()
                was_begun = len(pairs(emitted))
            case "end" if saved.begun is not None:
                saved.end(told=chosen.random() < 0.7)
                at = was_begun
                saved.begun = None
            case "move":
                saved.move()
            case "back":
                saved.go_back()
                del emitted[:]
                emitted += _cut(wanted, at)
    while saved.component.next_batch() == 0.0:
        pass
    assert pairs(emitted) == wanted, "lost, doubled or reordered"
    saved.component.cleanup()
    assert log.waiting() == 0, "all is known to have been read"


def _cut(wanted: list[tuple[int, int]], count: int) -> list[Any]:
    """What had been emitted by then, as one record batch."""
    from pipe_parts import rows

    return [rows(*wanted[:count])] if count else []


def run_out(directory: Path, seed: int) -> None:
    chosen, pipe = random.Random(seed), Pipe(str(directory))
    written = Written(str(directory))

    def made() -> DataFrameSink:
        sink = written._made()
        sink.context.checkpoints = True
        return sink

    saved, given, at, was_begun = Saved(made), 0, 0, 0
    got: list[tuple[int, int]] = []
    start = segments.begins(pipe)

    def query() -> None:
        nonlocal start
        stop = segments.ends(pipe)
        for folder, first, last in segments.between(start, stop):
            for number in range(first, last):
                got.extend(pairs(list(segments.read(pipe, folder, number))))
        if chosen.random() < 0.5:
            segments.remove(pipe, stop)
        start = stop

    for _ in range(60):
        for _ in range(chosen.randint(0, 3)):
            written.sink = saved.component
            written.give((0, given))
            given += 1
        saved.component.tick()
        match chosen.choice(["begin", "end", "end", "back", "move", "query", "nothing"]):
            case "begin":
                saved.begin()
                was_begun = given
            case "end" if saved.begun is not None:
                saved.end(told=chosen.random() < 0.7)
                at, saved.begun = was_begun, None
            case "move":
                saved.move()
            case "back":
                saved.go_back()
                given = at
            case "query":
                query()
                assert len(got) <= at, "of what may be taken back nothing is to be seen"
    saved.component.finish()
    query()
    assert got == [(0, n) for n in range(given)], "lost, doubled or reordered"


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("run", [run_in, run_out])
def test_each_row_once(run: Any, seed: int, tmp_path: Path) -> None:
    run(tmp_path, seed)


def said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataFrameSpout, "checkpoint_begins", lambda self, number: self._say(self.unsaid))


def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataFrameSink, "tick", lambda self: self._write())


def not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    true = DataFrameSink.set_state
    monkeypatch.setattr(DataFrameSink, "set_state", lambda self, state: true(self, {**state, "sealed": []}))


@pytest.mark.parametrize(
    ("run", "plant"), [(run_in, said_at_once), (run_out, written_at_once), (run_out, not_written_again)]
)
def test_what_is_known_outside_too_soon_or_not_at_all_is_found(
    run: Any, plant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found = 0
    for seed in range(25):
        (tmp_path / str(seed)).mkdir()
        try:
            run(tmp_path / str(seed), seed)
        except Exception:  # noqa: BLE001 - lost, doubled, or removed
            found += 1
    assert found
