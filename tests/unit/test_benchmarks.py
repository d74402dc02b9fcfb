"""The harness of the benchmarks: what it computes, in which order it runs, what it prints."""

from __future__ import annotations

import contextlib
import io
import json
from array import array
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import _pauses_job, machine, pauses
from benchmarks.__main__ import find, main
from benchmarks._pauses_notes import Notes, Window, alike, quantile
from benchmarks.harness import Figure, Goal, Session, Skip, Spread, Wrong, number, ratio_of, to_json, to_table


def quiet(**more: object) -> Session:
    return Session(narration=io.StringIO(), **more)  # type: ignore[arg-type]


def test_spread_is_what_was_measured() -> None:
    assert Spread.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(1, 2, 3, 4, 5)
    assert Spread.of([7.0]) == Spread(7, 7, 7, 7, 7)
    with pytest.raises(ValueError, match="nothing"):
        Spread.of([])


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    # The machine was twice as slow in the second round: medians of each would say 1.5, the rounds say 2.
    assert ratio_of([200, 100, 210], [100, 50, 140]) == 2
    assert ratio_of([1, 2], [1]) is None
    assert ratio_of([1], [0]) is None
    assert ratio_of([], []) is None


def test_contenders_are_interleaved_and_each_round_begins_with_another() -> None:
    order: list[str] = []

    def contender(name: str) -> float:
        order.append(name)
        return float(len(order))

    session = quiet(runs=3)
    values = session.interleave({n: lambda n=n: contender(n) for n in "abc"}, unit="x")  # type: ignore[misc]
    assert "".join(order) == "abcbcacab"
    assert values == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


def test_who_cannot_run_is_left_out_with_the_reason() -> None:
    def absent() -> float:
        raise Skip("it is not installed")

    session = quiet(runs=2)
    values = session.interleave({"absent": absent, "there": lambda: 1.0}, unit="x")
    session.report(values, unit="x", compare={"there": "absent"})
    assert values == {"there": [1.0, 1.0]}
    assert session.skipped == {"absent": "it is not installed"}
    assert session.figures[0].compared_with is None
    assert "skipped: absent: it is not installed" in to_table(session)


def test_a_wrong_result_stops_everything_and_names_the_contender() -> None:
    def liar() -> float:
        raise Wrong("3 words instead of 4")

    with pytest.raises(Wrong, match="liar: 3 words instead of 4"):
        quiet().interleave({"liar": liar}, unit="x")


def test_who_names_a_contender_in_full_asks_for_no_other() -> None:
    names = ["256 MB", "256 MB in 128 tasks", "1 MB"]
    for only, found in ((("256 MB",), names[:1]), (("256",), names[:2]), (("MB",), names), ((), names)):
        session = quiet(runs=1, only=only)
        assert [name for name in names if session.wants(name, names)] == found
    session = quiet(runs=1, only=("256 MB",))
    assert [name for name in names if session.wants(name)] == names[:2]


def test_only_the_wanted_contenders_run() -> None:
    session = quiet(runs=1, only=("rows",))
    assert set(session.interleave({"rows 1": lambda: 1.0, "arrow 1": lambda: 1.0}, unit="x")) == {"rows 1"}


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(0.6, of="ratio"), True),
        (Goal(0.7, of="ratio"), False),
        (Goal(10, at_least=False), True),
        (Goal(9, at_least=False), False),
    ],
)
def test_a_goal_is_met_or_not(goal: Goal, met: bool) -> None:
    figure = Figure("a", 10, "ms", Spread.of([10]), 1, "b", 0.65, goal)
    assert goal.met(figure) is met


def test_a_goal_without_anything_to_compare_with_is_open() -> None:
    assert Goal(1, of="ratio").met(Figure("a", 10, "ms", Spread.of([10]), 1)) is None


def test_one_json_object_a_line_with_everything_in_it() -> None:
    session = quiet(runs=2)
    rising = count(1)
    values = session.interleave({"a": lambda: float(next(rising)), "b": lambda: 2.0}, unit="words/s")
    goals = {("a", "b"): Goal(0.5, of="ratio")}
    session.report(values, unit="words/s", compare={"a": ("b",)}, goals=goals)
    session.skipped["c"] = "no Java"
    first, second, third = (json.loads(line) for line in to_json("wordcount", session))
    assert (first["name"], first["figure"], first["unit"]) == ("a", 1.5, "words/s")
    assert (first["compared_with"], first["ratio"], first["goal"], first["met"]) == (
        "b",
        0.75,
        ">= 0.5x",
        True,
    )
    assert set(first["machine"]) == {"cores", "cpu", "memory_gib", "python", "os"}
    assert first["spread"]["maximum"] == 2.0
    assert (second["name"], second["ratio"]) == ("b", None)
    assert third["skipped"] == "no Java"


def test_the_table_says_whether_a_goal_was_missed() -> None:
    session = quiet(runs=1)
    session.record("start", [0.7], "s", goal=Goal(0.5, at_least=False))
    lines = to_table(session).splitlines()
    assert lines[2].startswith("start")
    assert lines[2].endswith("<= 0.5 NO")


def test_numbers_are_short() -> None:
    assert [number(v) for v in (1234567.8, 12.345, 0.01234)] == ["1,234,568", "12.3", "0.0123"]


def test_the_command_lists_benchmarks_and_refuses_unknown_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed for name in find())
    assert main(["no-such"]) == 2
    assert "no-such" in capsys.readouterr().err


MS = 1_000_000


def test_gaps_and_latencies_are_those_within_the_window_and_of_these_tasks() -> None:
    # Task 1 comes every 10 ms, but for 50 ms of silence after 30; task 2 every 10 ms without a break.
    first = [10, 20, 30, 80, 81, 90]
    second = list(range(5, 100, 10))
    rows = sorted([(t, 1) for t in first] + [(t, 2) for t in second])
    came = array("q", [t * MS for t, _ in rows])
    due = array("q", [(40 if (t, task) == (80, 1) else t - 1) * MS for t, task in rows])
    notes = Notes(array("q", [task for _, task in rows]), due, came)
    whole, before = Window(0, 100 * MS), Window(0, 25 * MS)
    assert (notes.seen([1], whole).gap, notes.seen([1], whole).latency) == (50, 40)
    assert (notes.seen([2], whole).gap, notes.seen([2], whole).latency) == (10, 1)
    assert notes.seen([1], before).gap == 10
    assert notes.seen([1], Window(0, 40 * MS)).gap == 50, "a gap that has begun counts in full"
    assert notes.overall_gap([1, 2], whole) == 10
    assert notes.overall_gap([1], whole) == 50
    assert notes.rate(Window(0, 100 * MS)) == 160


@pytest.mark.parametrize("keys", [100, 5_000])
def test_the_spout_emits_what_is_due_key_by_key(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """Also from a place that came with it from elsewhere, and where what is due at a time is more than there are keys."""
    rate, groups = 1000.0, 16
    clock, out = SimpleNamespace(now=10**9), {"default": list[Any](), "others": list[Any]()}
    monkeypatch.setattr(_pauses_job, "time", SimpleNamespace(monotonic_ns=lambda: clock.now))

    def spout(state: object = None) -> _pauses_job.Keys:
        made = _pauses_job.Keys(keys, groups, rate)
        made.prepare(SimpleNamespace(gauge=lambda name: SimpleNamespace(set=lambda value: None)))
        made.emit_all = lambda rows, stream="default": out[stream].extend(rows)  # type: ignore[method-assign]
        if state is not None:
            made.set_state(state)
        return made

    one = spout()
    one.next_tuple()
    for elapsed in (1, 7, 900, 13, 600, 3000, 5, 8, 64, 2, 700):
        clock.now += elapsed * 10**6
        one = spout(one.get_state())
        while one.next_tuple() is None:
            pass
    due = (clock.now - 10**9) // 10**6
    stamps = [10**9 + n * 10**6 for n in range(due)]
    assert [stamp for _, stamp in out["others"]] == stamps[:: _pauses_job.OTHERS]
    assert [stamp for *_, stamp in out["default"]] == [
        s for n, s in enumerate(stamps) if n % _pauses_job.OTHERS
    ]
    names = [name for _, name, _ in out["default"]]
    assert len(set(names[:keys])) == min(keys, len(names)), "each key once before any comes again"
    assert all(a == b for a, b in zip(names, names[keys:], strict=False)), "and then in the same order"
    assert all(name == _pauses_job.key_of(int(name[1:])) for name in names)
    assert all(group == int(name[1:]) % groups for group, name, _ in out["default"])


def test_quantiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 31)]
    assert [quantile(values, part) for part in (0.5, 0.95, 1.0)] == [15, 29, 30]
    assert quantile([7.0], 0.95) == 7


def test_a_part_of_pauses_that_breaks_down_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters: list[str] = []

    @contextlib.contextmanager
    def fake_cluster(host: str, store: str) -> Iterator[object]:
        clusters.append(host)
        yield object()

    def one(self: pauses.Pauses, name: str, keys: int, size: int, wanted: float) -> None:
        if name == "1 MB":
            raise RuntimeError("waited in vain\nfor a while")
        self.session.record(f"{name}: figure", [1.0], "ms")

    monkeypatch.setattr(pauses, "cluster", fake_cluster)
    monkeypatch.setattr(pauses.Pauses, "one", one)
    monkeypatch.setattr(pauses.Pauses, "many", lambda *_: None)
    monkeypatch.setattr(pauses.Pauses, "rescale", lambda *_: None)
    monkeypatch.setattr(pauses.Pauses, "thousand", lambda *_: None)
    monkeypatch.setattr(pauses, "measure_machinery", lambda _: None)
    monkeypatch.setattr(pauses, "measure_machine", lambda session: session.record("machine", [1.0], "ms"))
    assert main(["pauses"]) == 1
    shown = capsys.readouterr()
    assert "16 MB: figure" in shown.out and "256 MB: figure" in shown.out and "machine" in shown.out
    assert "FAILED: 1 MB: RuntimeError: waited in vain\n" in shown.out
    assert "in one\n" in shown.err  # the traceback
    assert len(clusters) == 2  # what follows does not run where something has broken down
    clusters.clear()
    monkeypatch.setattr(pauses.Pauses, "one", lambda *_: None)
    assert main(["pauses"]) == 0
    assert len(clusters) == 1


def test_a_cluster_that_does_not_start_ends_pauses_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(host: str, store: str) -> object:
        raise RuntimeError("no Java")

    monkeypatch.setattr(pauses, "cluster", refuse)
    monkeypatch.setattr(pauses, "measure_machine", lambda _: None)
    assert main(["pauses", "--only", " MB", "--store", "hazelcast"]) == 1
    assert "FAILED: cluster for 1 MB: RuntimeError: no Java" in capsys.readouterr().out


def test_windows_without_a_move_are_as_long_as_those_with_one() -> None:
    quiet = [Window(1000 + 100 * n, 1100 + 100 * n) for n in range(10)]
    moves = [Window(5000, 5300), Window(7000, 7010), Window(8000, 9500)]
    found = alike(quiet, moves)
    assert [w.length for w in found] == [300, 10, 1000], "as long, or all that there is"
    assert all(1000 <= w.start <= w.end <= 2000 for w in found)
    assert alike(quiet, moves[:1]) == [Window(1000, 1300)]


def test_windows_without_a_move_are_at_both_places_and_not_between() -> None:
    quiet = [Window(1000, 1100), Window(1100, 1200), Window(3000, 3100), Window(3100, 3200)]
    assert alike(quiet, [Window(5000 + n, 5050 + n) for n in range(4)]) == [
        Window(1000, 1050),
        Window(1150, 1200),
        Window(3000, 3050),
        Window(3150, 3200),
    ]


def test_what_the_host_takes_is_a_part_of_what_was_wanted() -> None:
    def times(user: float, system: float, **more: float) -> SimpleNamespace:
        return SimpleNamespace(user=user, system=system, **more)

    assert pauses.stolen(times(1.0, 1.0, steal=1.0), times(4.0, 4.0, steal=3.0)) == 0.25
    assert pauses.stolen(times(1.0, 1.0), times(2.0, 2.0)) == 0.0, "not a virtual machine"
    assert pauses.stolen(times(1.0, 1.0), times(1.0, 1.0)) == 0.0


def test_a_core_stands_still_for_as_long_as_nobody_looked_at_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter(ms * 1_000_000 for ms in (100, 101, 131, 132, 1099, 1101))
    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic_ns=lambda: next(looks)))
    assert machine.longest_still(1.0) == 967


def test_each_core_tells_how_long_it_stood_still() -> None:
    found = machine.still_together(0.05)
    assert found and all(0 < ms < 60_000 for ms in found)
