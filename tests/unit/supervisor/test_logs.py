"""Logs of workers: where each run of a topology has a name of its own, those of the oldest go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elastic.model.ids import TopologyName, WorkerId
from elastic.supervisor import logs


def log_of(directory: Path, name: str, slot: int = 0) -> Path:
    return logs.file_of(directory, TopologyName(name), WorkerId(f"{name}@node-1/{slot}"))


def run(directory: Path, name: str, written: int, *running: str) -> None:
    """A topology that has written its last line at that time, with a worker in each of two slots."""
    for slot in (0, 1):
        log = log_of(directory, name, slot)
        logs.make_room(log, {TopologyName(n) for n in running}, kept=3)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(name)
        os.utime(log, (written - slot, written - slot))


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "workers").iterdir())


def test_those_of_what_has_written_last_longest_ago_go(tmp_path: Path) -> None:
    for number, name in enumerate(("d", "c", "b", "a")):
        run(tmp_path, name, 1000 + number)
    assert left(tmp_path) == ["a", "b", "c"]
    run(tmp_path, "c", 2000)  # once more: nothing has to go for that
    assert left(tmp_path) == ["a", "b", "c"]
    run(tmp_path, "e", 3000)
    assert left(tmp_path) == ["a", "c", "e"]


def test_those_of_what_runs_stay(tmp_path: Path) -> None:
    run(tmp_path, "old", 1)
    for number in range(5):
        run(tmp_path, f"run-{number}", 1000 + number, "old")
    assert left(tmp_path) == ["old", "run-2", "run-3", "run-4"]


def test_what_cannot_be_removed_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path) -> object:
        raise PermissionError(self)

    for number in range(4):
        run(tmp_path, f"run-{number}", number)
    monkeypatch.setattr(Path, "iterdir", refuse)
    logs.make_room(log_of(tmp_path, "another"), (), kept=1)
