"""The checker of `chaos`: it finds each fault that is planted, and imports nothing of elastic."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.check import Report, check

ROOT = Path(__file__).parents[2]
SECOND = 1_000_000_000


def arrivals(key: str, numbers: list[int], *, at: int = 0, task: int = 4, counted: int = 0) -> list[str]:
    """Lines of arrivals, a second apart; the state counts on from `counted`."""
    return [f"A {(at + i) * SECOND} {key} {n} {task} {counted + i}" for i, n in enumerate(numbers)]


def write(place: Path, **files: list[str]) -> Report:
    for name, lines in files.items():
        (place / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return check(place.glob("*.txt"))


def good(place: Path) -> dict[str, list[str]]:
    """Two keys by two sinks; one sink has moved, and goes on with its count in another file."""
    return {
        "first": ["S 16 100 0", *arrivals("1.a.0", [0, 1, 2])],
        "second": ["S 16 200 3", *arrivals("1.a.0", [3, 4], at=10, counted=3)],
        "third": ["S 17 100 0", *arrivals("2.b.0", [0, 1, 2, 3], task=5)],
        "ends": ["E 1.a.0 5", "E 2.b.0 4"],
    }


def test_what_is_as_it_should_be_is_good(tmp_path: Path) -> None:
    report = write(tmp_path, **good(tmp_path))
    assert report.good and report.arrived == 9 and report.lives == 3
    assert report.keys["1.a.0"].path == [4, 16] and report.keys["1.a.0"].gap == 8 * SECOND


Change = Callable[[dict[str, list[str]]], object]
FAULTS: dict[str, tuple[Change, dict[str, int]]] = {
    "a number is missing in the middle": (
        lambda f: f.update(third=["S 17 100 0", *arrivals("2.b.0", [0, 1, 3], task=5)]),
        {"lost": 1},
    ),
    "the first is missing": (
        lambda f: f.update(third=["S 17 100 0", *arrivals("2.b.0", [1, 2, 3], task=5)]),
        {"lost": 1},
    ),
    "the end is missing": (lambda f: f["third"].pop(), {"lost": 1}),
    "a key is missing altogether": (lambda f: f.pop("third"), {"lost": 4}),
    "one came twice": (
        lambda f: f.update(third=["S 17 100 0", *arrivals("2.b.0", [0, 1, 1, 2, 3], task=5)]),
        {"doubled": 1},
    ),
    "two changed places": (
        lambda f: f.update(third=["S 17 100 0", *arrivals("2.b.0", [0, 2, 1, 3], task=5)]),
        {"reordered": 1},
    ),
    "what was sent again came out of order too": (
        lambda f: f.update(third=["S 17 100 0", *arrivals("2.b.0", [0, 1, 2, 0, 1, 2, 3], task=5)]),
        {"doubled": 3},
    ),
    "a state began anew": (
        lambda f: f.update(second=["S 16 200 3", *arrivals("1.a.0", [3, 4], at=10)]),
        {"forgotten": 1},
    ),
    "two lives wrote at once": (
        lambda f: f.update(second=["S 16 200 3", *arrivals("1.a.0", [3, 4], at=2, counted=3)]),
        {"overlaps": 1},
    ),
    "the sink's own state is older": (
        lambda f: f.update(second=["S 16 200 2", *f["second"][1:]]),
        {"recounts": 1},
    ),
    "a spout wrote no end": (lambda f: f["ends"].pop(), {"open": 1}),
    "a line says nothing": (lambda f: f["third"].append("B 1 2"), {"unknown": 1}),
    "an arrival before any life": (lambda f: f["third"].pop(0), {"unknown": 4}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    files = good(tmp_path)
    change, expected = FAULTS[name]
    change(files)
    report = write(tmp_path, **files)
    assert not report.good
    summary = report.summary()
    assert {k: summary[k] for k in expected} == expected, summary
    if "lost" not in expected and "unknown" not in expected:
        assert report.lost == 0, "nothing else is said than what is"


def test_a_line_without_an_end_was_not_written(tmp_path: Path) -> None:
    write(tmp_path, **good(tmp_path))
    with (tmp_path / "third.txt").open("a") as file:
        file.write("A 99")
    report = check(tmp_path.glob("*.txt"))
    assert report.torn == 1 and report.good


def test_nothing_at_all_is_not_good(tmp_path: Path) -> None:
    assert not check([]).good


def test_the_program_reads_the_record_alone(tmp_path: Path) -> None:
    write(tmp_path, **good(tmp_path))
    probe = (
        "import sys, runpy; sys.argv = ['check', sys.argv[1]]\n"
        "try: runpy.run_module('chaos.check', run_name='__main__')\n"
        "except SystemExit as e: code = e.code\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('elastic', 'statestore')]; sys.exit(code)"
    )

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", probe, str(tmp_path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert run().returncode == 0
    (tmp_path / "third.txt").unlink()
    failed = run()
    assert failed.returncode == 1 and "lost: 2.b.0 0-3" in failed.stdout, failed
