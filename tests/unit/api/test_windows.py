"""Windows: what is in which, when they close, what is late, and that nothing of it changes when the task moves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic import (
    Batches,
    Fields,
    LocalCluster,
    Sessions,
    Sliding,
    Spout,
    TopologyBuilder,
    Tumbling,
    Window,
    WindowedBolt,
)
from elastic.api import windowed as module
from elastic.api.context import Source, TopologyContext
from elastic.errors import TopologyError
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import ComponentId, StreamId, TopologyName
from elastic.model.topology import ComponentSpec, InputSpec, TopologySpec
from elastic.testing import BoltTester, collect

Results = list[tuple[str | None, float, float, list[int]]]


class Gathered(WindowedBolt):
    """Which tuples were in which window."""

    outputs = Fields(key=object, start=float, end=float, numbers=list)

    def begin(self) -> list[int]:
        return []

    def add(self, held: list[int], tup: Any) -> list[int]:
        held.append(tup.n)
        return held

    def merge(self, earlier: list[int], later: list[int]) -> list[int]:
        return earlier + later

    def close(self, window: Window, key: object, held: list[int]) -> None:
        self.emit(key, window.start, window.end, sorted(held))


class Clocked(Gathered):
    """By a clock that a test sets."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.now = 0.0

    def clock(self) -> float:
        return self.now


def run(
    bolt: WindowedBolt, events: Sequence[tuple[float, str]], move: Callable[[int], bool] = lambda n: False
) -> Results:
    """What comes out for events (time, key), which have their places as numbers."""
    tester = BoltTester(bolt)
    found: Results = []
    for n, (at, key) in enumerate(events):
        if move(n):
            found += tester.move()
        found += tester.execute(at=at, key=key, n=n)
    return found + tester.finish()


def reference(windows: Any, events: Sequence[tuple[float, str]]) -> dict[tuple[str, float, float], list[int]]:
    """The same over all events at once."""
    found: dict[tuple[str, float, float], list[int]] = defaultdict(list)
    if isinstance(windows, Sessions):
        for key in {k for _, k in events}:
            mine = sorted((at, n) for n, (at, k) in enumerate(events) if k == key)
            groups: list[list[tuple[float, int]]] = []
            for at, n in mine:
                if groups and at < groups[-1][-1][0] + windows.gap:
                    groups[-1].append((at, n))
                else:
                    groups.append([(at, n)])
            for group in groups:
                found[key, group[0][0], group[-1][0] + windows.gap] = sorted(n for _, n in group)
        return found
    slide = windows.slide if isinstance(windows, Sliding) else windows.size
    for n, (at, key) in enumerate(events):
        number = math.floor((at - windows.offset) / slide)
        while (start := windows.offset + number * slide) + windows.size > at:
            if start <= at:
                found[key, start, start + windows.size].append(n)
            number -= 1
    return found


KINDS = st.one_of(
    st.builds(Tumbling, st.integers(1, 20), st.integers(-5, 5)),
    st.builds(Sliding, st.integers(1, 20), st.integers(1, 12), st.integers(-5, 5)),
    st.builds(Sessions, st.integers(1, 20)),
)


@settings(max_examples=150)
@given(
    KINDS,
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 7)), max_size=60),
    st.sets(st.integers(0, 60), max_size=4),
)
def test_each_event_is_in_its_windows_however_the_task_moves(
    windows: Any, steps: list[tuple[int, str, int]], moves: set[int]
) -> None:
    """Events come by up to seven seconds later than later ones, and none is late for that."""
    events, now = [], 0
    for forward, key, back in steps:
        now += forward
        events.append((float(now - back), key))
    found = run(Gathered(windows, by="key", time="at", lateness=7), events, moves.__contains__)
    by_window = {(key, start, end): numbers for key, start, end, numbers in found}
    assert len(by_window) == len(found), "no window closes twice"
    assert by_window == reference(windows, events)


@given(
    st.one_of(
        st.builds(Tumbling, st.integers(1, 9)), st.builds(Sliding, st.integers(1, 9), st.integers(1, 9))
    ),
    st.lists(st.integers(0, 100), max_size=40),
)
def test_no_window_closes_twice_and_the_earliest_first_whatever_is_late(
    windows: Any, times: list[int]
) -> None:
    tester = BoltTester(Gathered(windows, by="key", time="at"))
    found: Results = []
    for n, at in enumerate(times):
        found += tester.execute(at=float(at), key="a", n=n)
    closed = [(start, end) for _, start, end, _ in found]
    assert closed == sorted(set(closed))
    taken = {n for _, _, _, numbers in found + tester.finish() for n in numbers}
    in_none = {n for n, at in enumerate(times) if not reference(windows, [(float(at), "a")])}
    assert len(taken) + len(in_none) + tester.metrics["late"] == len(times)


@given(
    st.integers(1, 7), st.lists(st.sampled_from("ab"), max_size=40), st.sets(st.integers(0, 40), max_size=3)
)
def test_batches_are_of_so_many_tuples_of_a_key(size: int, keys: list[str], moves: set[int]) -> None:
    found = run(Gathered(Batches(size), by="key"), [(0.0, k) for k in keys], moves.__contains__)
    for key in set(keys):
        mine = [n for n, k in enumerate(keys) if k == key]
        expected = [(float(i), mine[i : i + size]) for i in range(0, len(mine), size)]
        assert [(start, numbers) for k, start, _, numbers in found if k == key] == expected


def test_a_window_closes_when_nothing_can_come_for_it_any_more() -> None:
    tester = BoltTester(Gathered(Tumbling(10), time="at", lateness=2))
    assert [tester.execute(at=at, n=n) for n, at in enumerate((1.0, 9.0, 11.9, 8.0))] == [[], [], [], []]
    assert tester.execute(at=12.0, n=4) == [(None, 0.0, 10.0, [0, 1, 3])]
    assert tester.execute(at=9.5, n=5) == [] and tester.metrics["late"] == 1
    assert tester.finish() == [(None, 10.0, 20.0, [2, 4])]


def test_what_has_closed_stays_closed_where_the_task_comes_to() -> None:
    tester = BoltTester(Gathered(Tumbling(10), time="at"))
    tester.execute(at=5.0, n=0)
    tester.execute(at=12.0, n=1)
    tester.move()
    assert tester.execute(at=9.0, n=2) == [] and tester.metrics["late"] == 1


def test_a_session_that_would_have_ended_is_late() -> None:
    tester = BoltTester(Gathered(Sessions(5), by="key", time="at"))
    tester.execute(at=20.0, key="a", n=0)
    tester.tick()
    tester.execute(at=15.0, key="a", n=1)
    assert tester.metrics["late"] == 1
    tester.execute(at=15.5, key="a", n=2)
    assert tester.metrics["late"] == 1 and tester.finish() == [("a", 15.5, 25.0, [0, 2])]


def test_an_add_that_raises_leaves_no_window_behind() -> None:
    class Picky(Gathered):
        def add(self, held: list[int], tup: Any) -> list[int]:
            if tup.n < 0:
                raise ValueError("negative")
            return super().add(held, tup)

    tester = BoltTester(Picky(Tumbling(10), time="at"))
    with pytest.raises(ValueError, match="negative"):
        tester.execute(at=1.0, n=-1)
    assert tester.execute(at=10.0, n=0) == []
    assert tester.finish() == [(None, 10.0, 20.0, [0])]


def test_what_is_late_can_be_emitted() -> None:
    class Late(Gathered):
        outputs = {"default": Gathered.outputs, "late": Fields(n=int)}  # noqa: RUF012

        def late(self, tup: Any) -> None:
            self.emit_to("late", tup.n)

    tester = BoltTester(Late(Tumbling(10), time="at"))
    tester.execute(at=5.0, n=0)
    tester.execute(at=10.0, n=1)
    assert tester.execute(at=9.0, n=2).streams == {"late": [(2,)]}


def test_what_is_between_two_windows_is_in_none_and_not_late() -> None:
    tester = BoltTester(Gathered(Sliding(2, 10), time="at"))
    tester.execute(at=5.0, n=0)
    assert tester.finish() == [] and tester.metrics["late"] == 0


def test_a_window_that_is_late_for_some_is_taken_by_the_others() -> None:
    tester = BoltTester(Gathered(Sliding(10, 5), time="at"))
    tester.execute(at=12.0, n=0)
    tester.execute(at=15.0, n=1)  # [5, 15) is closed
    assert tester.execute(at=13.0, n=2) == [] and tester.metrics["late"] == 0
    assert tester.finish() == [(None, 10.0, 20.0, [0, 1, 2]), (None, 15.0, 25.0, [1])]


def test_a_tuple_between_two_sessions_makes_them_one() -> None:
    tester = BoltTester(Gathered(Sessions(5), by="key", time="at", lateness=20))
    for n, at in enumerate((10.0, 18.0, 14.0)):
        assert tester.execute(at=at, key="a", n=n) == []
    assert tester.finish() == [("a", 10.0, 23.0, [0, 1, 2])]


def test_a_session_that_goes_on_does_not_close() -> None:
    tester = BoltTester(Gathered(Sessions(4), by="key", time="at"))
    for n in range(10):
        assert tester.execute(at=3.0 * n, key="a", n=n) == []
    assert tester.execute(at=31.4, key="b", n=10) == [("a", 0.0, 31.0, list(range(10)))]


def test_by_the_clock_windows_close_with_a_tick_and_nothing_is_late() -> None:
    tester = BoltTester(Clocked(Tumbling(10), by="key"))
    tester.component.now = 12.0  # type: ignore[attr-defined]
    tester.execute(key="a", n=0)
    tester.component.now = 19.9  # type: ignore[attr-defined]
    assert tester.tick() == []
    tester.component.now = 20.0  # type: ignore[attr-defined]
    assert tester.tick() == [("a", 10.0, 20.0, [0])]
    tester.component.now = 3.0  # type: ignore[attr-defined]  # set back, or of the machine where it has come to
    assert tester.execute(key="a", n=1) == [] and tester.metrics["late"] == 0
    assert tester.finish() == [("a", 20.0, 30.0, [1])]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock by which somebody is silent, in seconds."""
    at = [100.0]
    monkeypatch.setattr(module.clocks, "monotonic", lambda: at[0])
    return at


def between() -> tuple[Gathered, list[Any]]:
    """A bolt that two tasks send to, as in a topology, and what it emits."""
    bolt = Gathered(Tumbling(10), time="at", idle=60)
    shuffle = InputSpec(ComponentId("s"), StreamId("default"), Grouping(GroupingKind.SHUFFLE))
    spec = TopologySpec(
        TopologyName("t"),
        (
            ComponentSpec(ComponentId("s"), "spout", 2, 1),
            ComponentSpec(ComponentId("b"), "bolt", 1, 1, inputs=(shuffle,)),
        ),
    )
    bolt.context = TopologyContext(spec, "b", 3, "w", {})
    emitted: list[Any] = []
    bolt.emit = lambda *values: emitted.append(values)  # type: ignore[method-assign]
    bolt.prepare(bolt.context)
    return bolt, emitted


class Event:
    def __init__(self, at: float, n: int = 0) -> None:
        self.at, self.n = at, n


def test_the_task_that_is_furthest_behind_holds_windows_open() -> None:
    bolt, emitted = between()
    assert bolt.context.sources == (Source("s", "default", 1), Source("s", "default", 2))
    bolt.context.source = Source("s", "default", 1)
    bolt.execute(Event(50.0))
    assert emitted == [], "the other one has not said anything yet"
    bolt.context.source = Source("s", "default", 2)
    bolt.execute(Event(5.0))
    bolt.execute(Event(9.0))
    assert emitted == []
    bolt.execute(Event(10.0))
    assert [values[1:3] for values in emitted] == [(0.0, 10.0)]


def test_a_task_that_is_silent_holds_up_nobody_for_longer_than_that(now: list[float]) -> None:
    bolt, emitted = between()
    bolt.context.source = Source("s", "default", 1)
    bolt.execute(Event(50.0))
    bolt.execute(Event(65.0))
    now[0] += 59
    bolt.tick()
    assert emitted == []
    bolt.execute(Event(66.0))
    now[0] += 2
    bolt.tick()
    assert [values[1:3] for values in emitted] == [(50.0, 60.0)]


def test_who_goes_on_sending_is_not_silent(now: list[float]) -> None:
    bolt, emitted = between()
    bolt.context.source = Source("s", "default", 2)
    bolt.execute(Event(100.0))
    bolt.context.source = Source("s", "default", 1)
    for n in range(10):
        bolt.execute(Event(66.0, n))
        bolt.tick()
        now[0] += 30
    assert emitted == []
    bolt.execute(Event(70.0))
    assert [values[1:3] for values in emitted] == [(60.0, 70.0)]


def test_where_everybody_is_silent_it_goes_as_far_as_what_has_come(now: list[float]) -> None:
    bolt, emitted = between()
    bolt.context.source = Source("s", "default", 1)
    bolt.execute(Event(50.0))
    bolt.execute(Event(65.0))
    bolt.tick()
    now[0] += 1000
    bolt.tick()
    assert [values[1:3] for values in emitted] == [(50.0, 60.0)]


def test_an_earlier_event_takes_nobody_back() -> None:
    bolt, emitted = between()
    for task, at in ((2, 3.0), (1, 16.0), (1, 8.0), (2, 16.0)):
        bolt.context.source = Source("s", "default", task)
        bolt.execute(Event(at))
    assert [values[1:3] for values in emitted] == [(0.0, 10.0)]


def test_a_close_that_raises_costs_that_one_and_no_other() -> None:
    class Picky(Gathered):
        def close(self, window: Window, key: object, held: list[int]) -> None:
            if key == "b":
                raise ValueError("no b")
            super().close(window, key, held)

    tester = BoltTester(Picky(Tumbling(10), by="key", time="at"))
    for n, key in enumerate("abc"):
        tester.execute(at=1.0, key=key, n=n)
    with pytest.raises(ValueError, match="no b"):
        tester.execute(at=10.0, key="a", n=3)
    assert [v[0] for v in tester.take()] == ["a"]
    assert tester.tick() == [("c", 0.0, 10.0, [2])]
    assert tester.finish() == [("a", 10.0, 20.0, [3])]


def test_many_keys_are_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry of the state holds all keys of a window."""
    tester = BoltTester(Gathered(Tumbling(10), by="key", time="at"))
    for n in range(1000):
        tester.execute(at=1.0, key=str(n), n=n)
    due = tester.state["_due"]  # type: ignore[index]
    assert sum(map(len, due.values())) == 1000 and max(map(len, due.values())) <= 256
    found = tester.move() + tester.execute(at=10.0, key="x", n=0)
    assert [key for key, *_ in found] == [str(n) for n in range(1000)]
    left = {name: len(tester.state[name]) for name in ("_open", "_due", "_steps")}  # type: ignore[index]
    assert left == {"_open": 1, "_due": 1, "_steps": 1}, "nothing is kept of what has closed"


def test_many_windows_close_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 10)
    tester = BoltTester(Gathered(Tumbling(10), by="key", time="at"))
    for n in range(25):
        tester.execute(at=1.0, key=str(n), n=n)
    found = [len(tester.execute(at=10.0, key="x", n=25)), len(tester.tick())]
    assert found == [10, 10] and tester.execute(at=9.0, key="0", n=26) == []
    assert tester.metrics["late"] == 1, "a window of which a part has closed takes nothing more"
    rest = tester.move() + tester.tick() + tester.tick()
    assert sum(found) + len(rest) == 25 and len({v[0] for v in rest}) == len(rest)
    assert len(tester.finish()) == 1


@pytest.mark.parametrize("wrong", [None, "noon", float("nan"), math.inf])
def test_a_time_that_is_none_is_said(wrong: object) -> None:
    tester = BoltTester(Gathered(Tumbling(10), time="at"))
    with pytest.raises(TypeError, match="time of an event is a number of seconds"):
        tester.execute(at=wrong, n=0)


class NoMerge(WindowedBolt):
    def add(self, held: Any, tup: Any) -> Any:
        return held


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Gathered(60), "takes windows"),  # type: ignore[arg-type]
        (lambda: Gathered(Tumbling(0)), "above 0"),
        (lambda: Gathered(Tumbling(1, math.nan)), "offset"),
        (lambda: Gathered(Sliding(10, -1)), "slide"),
        (lambda: Gathered(Sliding(1e6, 1)), "1,000,000 windows"),
        (lambda: Gathered(Sessions(math.inf)), "gap"),
        (lambda: Gathered(Batches(0)), "at least 1"),
        (lambda: Gathered(Batches(2.0)), "at least 1"),  # type: ignore[arg-type]
        (lambda: Gathered(Batches(2), time="at"), "take no time"),
        (lambda: Gathered(Tumbling(1), lateness=1), "none is late"),
        (lambda: Gathered(Tumbling(1), time="at", lateness=-1), "lateness"),
        (lambda: Gathered(Tumbling(1), time="at", idle=0), "idle"),
        (lambda: NoMerge(Sessions(1)), r"no merge\(\)"),
    ],
)
def test_what_does_not_go_together_is_said(make: Callable[[], object], says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        make()


def test_several_fields_are_a_tuple_and_a_function_can_say_the_time() -> None:
    tester = BoltTester(Gathered(Tumbling(10), by=("a", "b"), time=lambda tup: tup.ms / 1000))
    tester.execute(a="x", b=1, ms=1500, n=0)
    assert tester.finish() == [(("x", 1), 0.0, 10.0, [0])]


class Events(Spout):
    outputs = Fields(at=float, key=str, n=int)

    def __init__(self, events: list[tuple[float, str]]) -> None:
        self.events = events

    def tuples(self) -> Any:
        for n, (at, key) in enumerate(self.events):
            if n % self.context.parallelism == self.context.index:
                yield at, key, n


def test_in_a_topology_the_result_is_that_of_one_thread() -> None:
    events = [(float(n // 3), "abcd"[n % 4]) for n in range(600)]
    out = collect()
    b = TopologyBuilder("windows")
    b.spout("events", Events(events), tasks=2, executors=2)
    b.bolt("windows", Gathered(Sliding(20, 10), by="key", time="at"), tasks=3, executors=2).fields(
        "events", "key"
    )
    b.bolt("out", out).all_to_one("windows")
    with LocalCluster() as cluster:
        cluster.submit(b.build()).wait(60)
    found = {(key, start, end): numbers for key, start, end, numbers in out.rows}
    assert found == reference(Sliding(20, 10), events) and len(out.rows) == len(found)
