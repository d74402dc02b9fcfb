"""The checker of `chaos`: it finds each fault that is planted, and imports nothing of elastic."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from chaos import job, keys
from chaos.check import ARRIVAL, HEADER, KEPT, Checker, check, read_whole
from chaos.cluster import Stuck
from chaos.findings import MOST, Report
from chaos.flow import Flow
from chaos.job import AHEAD, SEGMENT, Count, Notes
from chaos.job import ARRIVAL as WRITTEN
from chaos.job import HEADER as HEAD
from chaos.keys import EACH, Follow, held_by
from elastic.testing import BoltTester

ROOT = Path(__file__).parents[2]
SECOND = 1_000_000_000
Arrival = tuple[int, int, int, int, int, int]  # key, n, count, task, held, time
Life = tuple[int, int, int, int, list[Arrival]]  # sink, started, process, already, arrivals


def key(spout: int, life: int, k: int) -> int:
    return spout << 52 | life << 12 | k


ONE, TWO = key(1, 0xA, 0), key(2, 0xB, 0)


def arrivals(key: int, numbers: list[int], *, at: int = 1, task: int = 4, counted: int = 0) -> list[Arrival]:
    """A second apart; the state counts on from `counted`."""
    counts = range(counted, counted + len(numbers))
    held = [0 if c % EACH else held_by(key, c) for c in counts]
    return [
        (key, n, c, task, held[i], (at + i) * SECOND)
        for i, (n, c) in enumerate(zip(numbers, counts, strict=True))
    ]


def noted(n: int) -> tuple[int, int, int, int, int]:
    """Number n of a key, as a sink notes it down."""
    return ONE, n, 4, n, 0 if n % EACH else held_by(ONE, n)


def put(place: Path, life: Life, *, segment: int = 0, before: int = 0, rest: bytes = bytes(64)) -> Path:
    """A file of a life, with some of it still empty."""
    sink, started, process, already, came = life
    head = HEADER.pack(b"SINK", sink, process, segment, already + before, started)
    body = b"".join(ARRIVAL.pack(*arrival) for arrival in came)
    path = place / f"record-{sink}-{started}-{process}-{segment:06}.bin"
    path.write_bytes(head + body + rest)
    return path


def write(place: Path, files: dict[str, Life], ends: list[str]) -> Report:
    for life in files.values():
        put(place, life)
    (place / "ends-1.txt").write_text("".join(f"{line}\n" for line in ends))
    return check(place.iterdir())


Record = tuple[dict[str, Life], list[str]]


def good(first: int = 100, second: int = 200) -> Record:
    """Two keys by two sinks; one sink has moved, and goes on with its count in another life, of another process."""
    return {
        "first": (16, 1, first, 0, arrivals(ONE, [0, 1, 2])),
        "second": (16, 9 * SECOND, second, 3, arrivals(ONE, [3, 4], at=10, counted=3)),
        "third": (17, 1, first, 0, arrivals(TWO, [0, 1, 2, 3], task=5)),
    }, [f"E {ONE} 5", f"E {TWO} 4"]


def test_what_is_as_it_should_be_is_good(tmp_path: Path) -> None:
    report = write(tmp_path, *good())
    assert report.good and report.arrived == 9 and report.lives == 3
    found = report.keys["1.a.0"]
    assert found.tasks == [4] and found.sinks == [16] and found.gap == 7 * SECOND


def third(numbers: list[int], *, held: int | None = None) -> Callable[[Record], object]:
    """The third life has noted these; `held`: what came along with the first."""
    came = arrivals(TWO, numbers, task=5)
    if held is not None:
        came[0] = (*came[0][:4], held, came[0][5])
    return lambda r: r[0].update(third=(17, 1, 100, 0, came))


def second(already: int, came: list[Arrival], started: int = 9 * SECOND) -> Callable[[Record], object]:
    return lambda r: r[0].update(second=(16, started, 200, already, came))


def another(record: Record, emitted: int) -> None:
    """So many of the first key were emitted."""
    record[1][0] = f"E {ONE} {emitted}"


FAULTS: dict[str, tuple[Callable[[Record], object], dict[str, int]]] = {
    "a number is missing in the middle": (third([0, 1, 3]), {"lost": 1}),
    "the first is missing": (third([1, 2, 3]), {"lost": 1}),
    "the end is missing": (third([0, 1, 2]), {"lost": 1}),
    "a key is missing altogether": (lambda r: r[0].pop("third"), {"lost": 4}),
    "one came twice": (third([0, 1, 1, 2, 3]), {"doubled": 1}),
    "two changed places": (third([0, 2, 1, 3]), {"reordered": 1}),
    "two of three came late, the third never": (third([0, 5, 3, 1]), {"reordered": 2, "lost": 2}),
    "what was sent again came out of order too": (third([0, 1, 2, 0, 1, 2, 3]), {"doubled": 3}),
    "what the state holds is of another time": (third([0, 1, 2, 3], held=7), {"mixed": 1, "forgotten": 0}),
    "a state began anew": (second(3, arrivals(ONE, [3, 4], at=10)), {"forgotten": 1}),
    "two lives wrote at once": (
        second(3, arrivals(ONE, [3, 4], at=3, counted=3), 2 * SECOND),
        {"overlaps": 1},
    ),
    "the sink's own state is older": (second(2, arrivals(ONE, [3, 4], at=10, counted=3)), {"recounts": 1}),
    "more came than was emitted": (third(list(range(9))), {"invented": 1}),
    "a key goes to another sink": (
        lambda r: r[0].update(fourth=(18, 2, 100, 0, arrivals(ONE, [5], at=20, counted=5))) or another(r, 6),
        {"strayed": 1, "invented": 0},
    ),
    "a key goes to another task before the sink": (
        second(3, arrivals(ONE, [3, 4], at=10, counted=3, task=6)),
        {"strayed": 1, "forgotten": 0},
    ),
    "a spout wrote no end": (lambda r: r[1].pop(), {"open": 1}),
    "a line says nothing": (lambda r: r[1].append("B 1 2"), {"unknown": 1}),
    "an end that is another": (lambda r: r[1].append(f"E {ONE} 6"), {"unknown": 1}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    record = good()
    change, expected = FAULTS[name]
    change(record)
    report = write(tmp_path, *record)
    assert not report.good
    summary = report.summary()
    assert {k: summary[k] for k in expected} == expected, summary
    if "lost" not in expected and "unknown" not in expected:
        assert report.number("lost") == 0, "nothing else is said than what is"


def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    files, ends = good()
    write(tmp_path, files, ends)
    (tmp_path / "record-1-2.bin").write_bytes(b"")
    path = put(tmp_path, (18, 5, 100, 0, []))
    path.rename(path.with_name("record-18-6-100-000000.bin"))
    assert len(check(tmp_path.iterdir()).unknown) == 2


def test_an_arrival_that_was_not_written_whole_is_not_there(tmp_path: Path) -> None:
    files, ends = good()
    write(tmp_path, files, ends)
    put(tmp_path, files["third"], rest=ARRIVAL.pack(TWO, 4, 4, 5, 0, 0) + bytes(64))
    report = check(tmp_path.iterdir())
    assert report.torn == 1 and report.good


def test_nothing_at_all_is_not_good() -> None:
    assert not check([]).good


def test_faults_without_number_are_counted_and_not_all_told(tmp_path: Path) -> None:
    report = write(tmp_path, {"a": (17, 1, 1, 0, arrivals(TWO, [0] * (MOST + 6)))}, [])
    assert report.number("doubled") == MOST + 5 and len(report.keys["2.b.0"].doubled) == MOST


# ------------------------------------------------------------------ a large state


class Counts:
    """The job's bolt on a task, and what it sends along with the tuples of some keys."""

    def __init__(self, tmp_path: Path) -> None:
        self.tester = BoltTester(Count(str(tmp_path)))
        self.bolt: Any = self.tester.component
        self.came: dict[int, list[Arrival]] = {}

    def take(self, key: int, n: int) -> None:
        for _ in range(n):
            came = self.came.setdefault(key, [])
            ((k, number, task, count, held),) = self.tester.execute(key=key, n=len(came))
            came.append((k, number, count, task, held, (len(came) + 1) * SECOND))

    def mixed(self) -> int:
        """In how many arrivals the checker finds something of another time."""
        found = 0
        for key, came in self.came.items():
            follow = Follow(key)
            for k, n, count, task, held, at in came:
                assert k == key
                follow.arrival(at, n, task, count, held, 16)
            assert follow.now().number("forgotten") == 0
            found += follow.now().number("mixed")
        return found


def test_what_the_job_holds_is_what_the_checker_expects(tmp_path: Path) -> None:
    assert (job.HEAVY, job.PIECES, job.PIECE, job.EACH) == (keys.HEAVY, keys.PIECES, keys.PIECE, keys.EACH)
    counts, light = Counts(tmp_path), key(1, 0xA, job.HEAVY)
    for name in (ONE, TWO, light):
        counts.take(name, (job.PIECES + job.NUMBERED) * EACH)
    assert counts.mixed() == 0
    pieces = counts.bolt.pieces
    assert len(pieces) == 2 * job.PIECES and set(map(len, pieces.values())) == {job.PIECE}
    counts.take(key(1, 0xC, 0), 1)
    assert len(pieces) == 2 * job.PIECES and {k for k, _ in pieces} == {TWO, key(1, 0xC, 0)}, (
        "the life before is no more"
    )
    counts.take(TWO, job.NUMBERED * EACH)
    assert counts.mixed() == 0


FALSE: dict[str, Callable[[Count], object]] = {
    "a piece got lost": lambda c: c.pieces.pop((ONE, 0)),
    "a piece is that of another key": lambda c: c.pieces.update({(ONE, 0): c.pieces[TWO, 0]}),
    "a piece is as it was before": lambda c: c.pieces.update({(ONE, 0): job.piece(ONE, -job.PIECES)}),
    "some bytes of a piece are others": lambda c: c.pieces.update({(ONE, 0): c.pieces[ONE, 0][:-1] + b"!"}),
    "what was taken out came back": lambda c: c.pieces.update({(ONE, -job.PIECES): b""}),
    "nothing but the counts came along": lambda c: c.pieces.clear(),
}


@pytest.mark.parametrize("name", FALSE)
def test_each_fault_that_is_planted_in_a_large_state_is_found(tmp_path: Path, name: str) -> None:
    counts = Counts(tmp_path)
    for k in (ONE, TWO):
        counts.take(k, 3 * EACH)
    FALSE[name](counts.bolt)
    for k in (ONE, TWO):
        counts.take(k, job.PIECES * EACH)
    assert counts.mixed()


# ------------------------------------------------------------------ while it is being written


def test_the_record_that_the_job_writes_is_read(tmp_path: Path) -> None:
    assert (HEAD.format, WRITTEN.format) == (HEADER.format, ARRIVAL.format)
    many = 2 * SEGMENT // WRITTEN.size
    notes = Notes(str(tmp_path), 16, 0)
    for n in range(many):
        notes.note(*noted(n))
    checker = Checker(clear=True)
    checker.look(tmp_path.iterdir())
    notes.note(*noted(many))
    checker.look(tmp_path.iterdir())
    report = checker.report()
    assert report.arrived == many + 1 and not (
        report.number("lost") or report.unknown or report.recounts or report.torn
    )
    assert [p.name.rpartition("-")[2] for p in tmp_path.iterdir()] == ["000002.bin"], "what was read is gone"
    notes.note(*noted(many + 1))
    notes.close()
    checker.look(tmp_path.iterdir())
    assert checker.report().arrived == many + 2 and not checker.report().unknown
    assert not list(tmp_path.iterdir()), "so is the last file of a life that is over"


def test_what_a_process_that_is_no_more_has_written_is_put_aside(tmp_path: Path) -> None:
    """Also when it is not full: with each kill there would be one more to look at five times a second."""
    with subprocess.Popen(["true"]) as ended:
        pass
    put(tmp_path, (16, 1, ended.pid, 0, arrivals(ONE, [0, 1])))
    lives = put(tmp_path, (16, 9 * SECOND, os.getpid(), 2, arrivals(ONE, [2], at=10, counted=2)))
    checker = Checker(clear=True)
    checker.look(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == [lives]
    report = checker.report()
    assert report.arrived == 3 and not (report.number("lost") or report.unknown or report.recounts)


class Moving(io.BytesIO):
    """A file in which somebody writes between two readings."""

    def __init__(self, first: bytes, then: bytes) -> None:
        super().__init__(first)
        self._then = then

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.seek(0)
        self.write(self._then)
        return data


def test_what_is_being_written_while_it_is_read_is_read_as_it_is() -> None:
    """Of the last arrival the key was read before it was written, and the time afterwards: the number seemed to be lost."""
    one, two, three = (ARRIVAL.pack(ONE, n, n, 4, 0, 5 + n) for n in range(3))
    half = ARRIVAL.pack(0, 0, 0, 4, 0, 6)
    file = Moving(one + half + bytes(64), one + two + three + bytes(32))
    assert read_whole(file, 0) == (one + two, 4 * ARRIVAL.size, False), "the third comes with the next look"
    assert read_whole(io.BytesIO(one + ARRIVAL.pack(ONE, 1, 1, 4, 0, 0)), 0) == (one, 2 * ARRIVAL.size, True)
    assert read_whole(io.BytesIO(one + two), 32) == (two, ARRIVAL.size, False)
    assert read_whole(io.BytesIO(b""), 0) == (b"", 0, False)


def test_a_file_between_two_that_is_missing_is_found(tmp_path: Path) -> None:
    life = (16, 1, 100, 0, arrivals(ONE, [0, 1, 2]))
    put(tmp_path, life, rest=b"")
    put(tmp_path, (*life[:4], arrivals(ONE, [3], at=9, counted=3)), segment=1, before=4)
    (unknown,) = check(tmp_path.iterdir()).unknown
    assert "begins with 4 instead of 3" in unknown


def test_what_follows_a_file_that_is_missing_is_read_and_the_missing_one_is_named(tmp_path: Path) -> None:
    first = (16, 1, os.getpid(), 0, arrivals(ONE, [0]))
    put(tmp_path, first, rest=b"")
    second = (*first[:4], arrivals(ONE, [1], at=2, counted=1))
    path = put(tmp_path, second, segment=1, before=1, rest=b"")
    put(tmp_path, (*first[:4], arrivals(ONE, [2], at=3, counted=2)), segment=2, before=2)
    names = [p for p in tmp_path.iterdir() if p != path]
    checker = Checker()
    checker.look(names)
    assert not checker.report().unknown, "it has come while the names were read"
    checker.look(tmp_path.iterdir())
    assert checker.report().arrived == 3 and not checker.report().unknown
    path.unlink()
    missing, more = (report := check(tmp_path.iterdir())).unknown
    assert path.name in missing and "begins with 2 instead of 1" in more
    assert report.arrived == 2 and report.number("lost") == 1


def test_a_count_that_is_false_is_told_with_what_is_missing_before_it(tmp_path: Path) -> None:
    """By that, and by when a sink began anew, it is told what a kill accounts for."""
    record = good()
    second(0, arrivals(ONE, [4], at=10, counted=0))(record)
    report = write(tmp_path, *record)
    (found,) = report.keys["1.a.0"].forgotten
    assert (found.count, found.expected, found.hole, found.task, found.sink) == (0, 3, 1, 4, 16)
    (began,) = report.recounts
    assert (began.sink, began.already, began.expected) == (16, 0, 3)
    assert (began.after, began.first) == (3 * SECOND, 10 * SECOND)


def test_what_a_life_writes_after_the_next_one_has_begun_overlaps(tmp_path: Path) -> None:
    """Also when both were read before."""
    files, _ = good()
    checker = Checker()
    for life in files.values():
        put(tmp_path, life)
    checker.look(tmp_path.iterdir())
    assert not checker.report().overlaps
    late = (*files["first"][:4], [*files["first"][4], *arrivals(ONE, [5], at=12, counted=5)])
    put(tmp_path, late)
    checker.look(tmp_path.iterdir())
    assert len(checker.report().overlaps) == 1


def test_where_something_was_wrong_the_files_stay_but_not_without_bound(tmp_path: Path) -> None:
    checker = Checker(clear=True)
    for n in range(KEPT + 3):
        put(tmp_path, (16, 1, 100, 0, arrivals(ONE, [0], at=1 + n)), segment=n, before=n, rest=b"")
        checker.look(tmp_path.iterdir())
    left = sorted(p.name for p in tmp_path.iterdir())
    assert len(left) == KEPT and all(name.endswith(".seen") for name in left)
    report = check(tmp_path.iterdir())
    assert report.number("doubled"), "they can be read again"


@pytest.mark.parametrize("keep", [False, True])
def test_who_writes_waits_for_who_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    monkeypatch.setattr("chaos.job.SEGMENT", HEAD.size + WRITTEN.size)  # a file holds one arrival
    monkeypatch.setattr("chaos.job.PATIENCE", 0.0)
    for n in range(AHEAD + 1):
        (tmp_path / f"record-16-1-1-{n:06}.bin").touch()  # those of another life are not waited for
    notes, checker = Notes(str(tmp_path), 16, 0), Checker(clear=True, keep=keep)
    numbers = iter(range(3 * AHEAD))
    for n in islice(numbers, AHEAD + 1):
        notes.note(*noted(n))
    with pytest.raises(TimeoutError, match="sink 16"):
        notes.note(*noted(AHEAD + 1))
    checker.look(tmp_path.glob(f"*-{os.getpid()}-*"))
    for n in islice(numbers, AHEAD):
        notes.note(*noted(n))
    notes.close()
    checker.look(tmp_path.glob(f"*-{os.getpid()}-*"))
    left = [p.suffix for p in tmp_path.glob(f"*-{os.getpid()}-*")]
    assert left == (2 * AHEAD + 1) * [".seen"] * keep
    for report in (checker.report(), check(tmp_path.glob("*.seen"))) if keep else (checker.report(),):
        assert report.arrived == 2 * AHEAD + 1 and not (report.number("lost") or report.unknown)


def test_the_process_that_follows_says_what_stands_and_what_is_wrong(tmp_path: Path) -> None:
    me = os.getpid()  # it looks whether who writes is there
    files, ends = good(me, me)
    flow = Flow(tmp_path, 2, 1, keep=True)
    try:
        assert flow.standing(0) == ["1 keys of spout task 1", "1 keys of spout task 2"]
        write(tmp_path, files, ends)
        assert flow.standing(0) == [] and flow.arrived == 9
        assert flow.standing(5 * SECOND) == ["2.b.0 by 5 and 17"]
        put(tmp_path, (17, 8 * SECOND, me, 4, arrivals(key(2, 0xC, 0), [0], at=9)))
        assert flow.standing(5 * SECOND) == [], "of a spout's task the newest life counts"
        assert flow.report()["summary"]["open"] == 1
    finally:
        flow.close()


def test_an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *good(os.getpid(), os.getpid()))
    flow = Flow(tmp_path, 2, 1)
    try:
        os.kill(flow._process.pid, signal.SIGSTOP)
        with monkeypatch.context() as hasty:
            hasty.setattr("chaos.flow.ANSWER", 0.0)
            for _ in range(2):
                with pytest.raises(Stuck, match="does not answer"):
                    flow.standing(0)
        os.kill(flow._process.pid, signal.SIGCONT)
        assert flow.report()["summary"]["arrived"] == 9
        assert flow.standing(0) == []
    finally:
        flow.close()


def test_the_program_reads_the_record_alone(tmp_path: Path) -> None:
    write(tmp_path, *good())
    probe = (
        "import sys, runpy; sys.argv = ['check', '--json', sys.argv[1]]\n"
        "try: runpy.run_module('chaos.check', run_name='__main__')\n"
        "except SystemExit as e: code = e.code\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('elastic', 'statestore')]; sys.exit(code)"
    )

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", probe, str(tmp_path)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert run().returncode == 0
    (tmp_path / "record-17-1-100-000000.bin").unlink()
    failed = run()
    assert failed.returncode == 1, failed
    lost = json.loads(failed.stdout)["keys"]["2.b.0"]["lost"]
    assert [(h["first"], h["last"]) for h in lost] == [(0, 3)]


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("later_first", [False, True])
def test_two_lives_that_write_at_once_are_found_whatever_lies_between(
    tmp_path: Path, between: bool, later_first: bool
) -> None:
    """One that came to no arrival."""
    first = (16, 1, 100, 0, arrivals(ONE, list(range(10))))
    second = (16, 3, 300, 10, arrivals(ONE, list(range(10, 20)), at=5, counted=10))
    checker = Checker()
    if between:
        put(tmp_path, (16, 2, 200, 0, []))
    for life in (second, first) if later_first else (first, second):
        put(tmp_path, life)
        checker.look(tmp_path.iterdir())
    assert len(checker.report().overlaps) == 1
