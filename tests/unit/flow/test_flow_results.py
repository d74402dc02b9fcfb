"""What the steps of a flow come to, against the same in a few plain lines, wherever their tasks move meanwhile."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic import Batches, LocalCluster, Sessions, Sliding, Tumbling
from elastic.flow import Flow, Items, KeyedStream, Stream, WindowResult
from elastic.testing import BoltTester, Emitted, SpoutTester, collect

Elements = list[tuple[str, int]]
PAIRS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), max_size=50)
MOVES = st.sets(st.integers(0, 50), max_size=4)


def by_hand(make: Callable[[KeyedStream[str, Any]], object]) -> BoltTester:
    """The component that is made of one step behind the key `key`, by hand."""
    flow = Flow("tested")
    make(flow.source("elements", []).key_by("key"))
    topology = flow.build()
    (name,) = (str(c.id) for c in topology.spec.components if c.stateful and c.kind == "bolt")
    return BoltTester(topology.components[name])  # type: ignore[arg-type]


def through(one: BoltTester, elements: Sequence[tuple[str, Any]], moves: set[int]) -> list[Any]:
    """What comes of elements (key, value), while the task moves before some of them."""
    found: list[Any] = []
    for n, (key, value) in enumerate(elements):
        if n in moves:
            found += one.move()
        found += one.execute(key=key, value=value)
    return [value for (value,) in found + one.finish()]


# ---------------------------------------------------------------------- without state

STEPS: dict[str, tuple[Callable[[Stream[Any]], Stream[Any]], Callable[[list[Any]], list[Any]]]] = {
    "map": (lambda s: s.map(lambda n: n + 1), lambda ns: [n + 1 for n in ns]),
    "filter": (lambda s: s.filter(lambda n: n % 3), lambda ns: [n for n in ns if n % 3]),
    "flat_map": (
        lambda s: s.flat_map(lambda n: range(n % 4)),
        lambda ns: [m for n in ns for m in range(n % 4)],
    ),
    "yielding": (lambda s: s.flat_map(twice), lambda ns: [m for n in ns for m in (n, n)]),
}


def twice(n: int) -> Any:
    yield n
    yield n


Tree = tuple[list[str], list[Any]]
CHAINS = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4)
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.tuples(CHAINS, st.just([])), lambda t: st.tuples(CHAINS, st.lists(t, max_size=3)), max_leaves=4
)


@settings(max_examples=60, deadline=None)
@given(TREES, st.lists(st.integers(0, 30), max_size=10), st.booleans())
def test_chains_and_branches_give_what_lists_would(tree: Tree, values: list[int], keyed: bool) -> None:
    """All branches are one component; of each the end is a stream of its own."""
    flow, expected = Flow("chained"), {}

    def grow(stream: Stream[Any], values: list[Any], tree: Tree) -> None:
        chain, branches = tree
        for step in chain:
            stream, values = STEPS[step][0](stream), STEPS[step][1](values)
        for branch in branches:
            grow(stream, values, branch)
        if not branches or len(chain) > 2:  # also in the midst of a tree
            name = f"end-{len(expected)}"
            expected[name] = [(str(v), v) if keyed else (v,) for v in values]
            if keyed:
                stream.key_by(str).count(name=name)
            else:
                stream.sink(print, name=name)

    grow(flow.source("n", []).union(flow.source("m", [])), values, tree)
    topology = flow.build()
    one = BoltTester(topology.components["union"])  # type: ignore[arg-type]
    streams = {
        str(c.id): str(c.inputs[0].stream) for c in topology.spec.components if str(c.id).startswith("end")
    }
    found: dict[str, list[Any]] = defaultdict(list)
    for value in values:
        for stream, emitted in one.execute(value=value).streams.items():
            found[stream] += emitted
    assert {name: found[stream] for name, stream in streams.items()} == expected
    assert len(set(streams.values())) == len(streams)


# ---------------------------------------------------------------------- by key


def running(elements: Elements, begin: Any, add: Callable[[Any, Any], Any]) -> list[Any]:
    """With each element what there is of its key then."""
    held: dict[str, Any] = {}
    found = []
    for key, value in elements:
        held[key] = value if begin is None and key not in held else add(held.get(key, begin), value)
        found.append((key, held[key]))
    return found


def last(pairs: list[Any]) -> dict[str, Any]:
    return dict(pairs)


FOLDS: dict[str, tuple[Callable[..., object], Any, Callable[[Any, Any], Any]]] = {
    "count": (lambda s, **o: s.count(**o), 0, lambda n, v: n + 1),
    "reduce": (lambda s, **o: s.reduce(lambda a, b: 2 * a - b, **o), None, lambda a, b: 2 * a - b),
    "fold": (lambda s, **o: s.fold(list, appended, **o), [], lambda a, b: [*a, b]),
}


def appended(held: list[Any], value: Any) -> list[Any]:
    held.append(value)
    return held


@pytest.mark.parametrize("kind", FOLDS)
@settings(max_examples=40, deadline=None)
@given(PAIRS, MOVES)
def test_elements_are_folded_by_key_however_the_task_moves(
    kind: str, elements: Elements, moves: set[int]
) -> None:
    make, begin, add = FOLDS[kind]
    expected = running(elements, begin, add)
    assert through(by_hand(make), elements, moves) == expected, (
        "and what was given is not changed by what comes later"
    )
    final = through(by_hand(lambda s: make(s, final=True)), elements, moves)
    assert last(final) == last(expected) and len(final) == len(last(expected))


@settings(max_examples=40, deadline=None)
@given(PAIRS, MOVES)
def test_a_function_keeps_what_it_likes_however_the_task_moves(elements: Elements, moves: set[int]) -> None:
    """Gives the sum of each three elements of a key, and forgets it then."""

    def by_three(
        key: str, kept: list[int] | None, value: int
    ) -> tuple[list[int] | None, list[tuple[str, int]]]:
        kept = [*(kept or ()), value]
        return (None, [(key, sum(kept))]) if len(kept) == 3 else (kept, [])

    one = by_hand(lambda s: s.process(by_three))
    found = through(one, elements, moves)
    by_key: dict[str, list[int]] = defaultdict(list)
    expected = []
    for key, value in elements:
        by_key[key].append(value)
        if len(by_key[key]) % 3 == 0:
            expected.append((key, sum(by_key[key][-3:])))
    assert found == expected
    left = {key for key, values in by_key.items() if len(values) % 3}
    assert set(one.state["held"]) == left, "what is forgotten is not in the state"  # type: ignore[index]


def test_a_function_that_gives_no_pair_is_told() -> None:
    one = by_hand(lambda s: s.process(lambda key, kept, value: [value]))  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"returns a pair.*not \[3\]"):
        one.execute(key="a", value=3)


def test_what_raises_leaves_what_was_there() -> None:
    one = by_hand(lambda s: s.reduce(lambda a, b: a // b))
    one.execute(key="a", value=8)
    with pytest.raises(ZeroDivisionError):
        one.execute(key="a", value=0)
    assert one.execute(key="a", value=2) == [(("a", 4),)]


# ---------------------------------------------------------------------- windows

EVENTS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 7)), max_size=50)
KINDS = st.one_of(
    st.builds(Tumbling, st.integers(1, 20), st.integers(-5, 5)),
    st.builds(Sliding, st.integers(1, 20), st.integers(1, 12)),
    st.builds(Sessions, st.integers(1, 20)),
)


def events_of(steps: list[tuple[int, str, int]]) -> list[tuple[str, tuple[float, int]]]:
    """Elements (key, (time, number)), each by up to seven seconds later than later ones."""
    now, found = 0, []
    for n, (forward, key, back) in enumerate(steps):
        now += forward
        found.append((key, (float(now - back), n)))
    return found


@settings(max_examples=40, deadline=None)
@given(KINDS, EVENTS, MOVES)
def test_windows_come_to_the_same_by_whatever_function(
    windows: Any, steps: list[Any], moves: set[int]
) -> None:
    """What is in which is what `collect` gives, which is tested with `WindowedBolt`: here, that each folding is of these."""
    elements = events_of(steps)

    def found(make: Callable[[Any], object]) -> dict[tuple[str, Any], Any]:
        results = through(
            by_hand(lambda s: make(s.window(windows, time=lambda e: e[0], lateness=7))), elements, moves
        )
        assert all(isinstance(r, WindowResult) for r in results)
        assert len({(r.key, r.window) for r in results}) == len(results)
        return {(r.key, r.window): r.value for r in results}

    collected = {of: sorted(values) for of, values in found(lambda w: w.collect()).items()}
    for (key, window), values in collected.items():
        assert all(window.start <= at < window.end and elements[n][0] == key for at, n in values)
    if not isinstance(windows, Sliding):
        assert sum(map(len, collected.values())) == len(elements)
    assert found(lambda w: w.count()) == {of: len(v) for of, v in collected.items()}
    assert found(lambda w: w.reduce(max)) == {of: max(v) for of, v in collected.items()}
    summed = found(lambda w: w.fold(int, lambda n, e: n + e[1], lambda a, b: a + b))
    assert summed == {of: sum(n for _, n in v) for of, v in collected.items()}


def test_batches_and_windows_by_an_attribute() -> None:
    batches = through(by_hand(lambda s: s.window(Batches(2)).collect()), [("a", 1), ("b", 2), ("a", 3)], {1})
    assert sorted((r.key, r.value) for r in batches) == [("a", [1, 3]), ("b", [2])]
    complex_numbers = [("a", 3 + 0j), ("a", 5 + 1j), ("a", 12 + 0j)]
    by_real = through(by_hand(lambda s: s.window(Tumbling(10), time="real").count()), complex_numbers, set())
    assert [(r.window.start, r.value) for r in by_real] == [(0.0, 2), (10.0, 1)]


# ---------------------------------------------------------------------- joins

WITHIN = st.one_of(st.integers(0, 12), st.tuples(st.integers(0, 12), st.integers(0, 12)), st.floats(0, 3))
SIDED = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("ab"), st.integers(0, 7), st.booleans()), max_size=50
)


def joiner(within: Any, **times: Any) -> BoltTester:
    flow = Flow("joined")
    left, right = (
        flow.source(name, []).map(abs, name=f"of-{name}").key_by("key") for name in ("left", "right")
    )
    left.join(right, within=within, **times)
    return BoltTester(flow.build().components["join"])  # type: ignore[arg-type]


def come(one: BoltTester, key: str, value: Any, right: bool) -> Emitted:
    return one.execute(key=key, value=value, source="of-right" if right else "of-left")


def at(element: tuple[float, int]) -> float:
    return element[0]


@settings(max_examples=150, deadline=None)
@given(WITHIN, SIDED, MOVES, st.sampled_from((1.0, 0.1, 1e9)))
def test_each_pair_within_the_interval_is_given_once_however_the_task_moves(
    within: Any, steps: list[tuple[int, str, int, bool]], moves: set[int], scale: float
) -> None:
    """Elements come by up to seven seconds later than later ones, in any order of the sides. What can have no partner any more is
    forgotten."""
    scaled = tuple(w * scale for w in within) if isinstance(within, tuple) else within * scale
    earlier, later = scaled if isinstance(scaled, tuple) else (scaled, scaled)
    one = joiner(scaled, time=at, lateness=7 * scale)
    now, found, elements = 0, [], []
    for n, (forward, key, back, right) in enumerate(steps):
        now += forward
        element = ((now - back) * scale, n)
        elements.append((key, element, right))
        if n in moves:
            found += one.move()
        found += come(one, key, element, right)
    expected = Counter(
        (key, left, right)
        for key, left, is_right in elements
        for other, right, other_right in elements
        if key == other and other_right and not is_right and -earlier <= right[0] - left[0] <= later
    )
    assert Counter(tuple(pair) for (pair,) in found) == expected
    assert one.metrics["late"] == 0
    for key, right in (("y", False), ("z", True)):
        come(one, key, ((now + 1000) * scale, -1), right)
    one.move()
    one.tick()
    state: Any = one.state
    assert {key for _, key in state["_open"]} == {"y", "z"}, "what can have no partner any more is forgotten"
    assert one.finish() == [] and not one.state["_open"]  # type: ignore[index]


@pytest.mark.parametrize("right_first", [True, False])
@pytest.mark.parametrize(
    ("left", "right"), [(2.2449999999999997, 6.735), (6.735, 2.2449999999999997), (2.2449, 6.735)]
)
def test_a_pair_at_the_end_of_the_interval_does_not_depend_on_rounding(
    left: float, right: float, right_first: bool
) -> None:
    """Where the one less the other is what it may be, and the one and that, added up, are not the other."""
    one, sides = joiner(4.49, time=at, lateness=9), [((left, 0), False), ((right, 1), True)]
    found = [
        pair
        for element, side in sorted(sides, key=lambda s: s[1] != right_first)
        for pair in come(one, "a", element, side)
    ]
    assert len(found) == (abs(right - left) <= 4.49)


def test_the_other_may_come_later_and_not_earlier() -> None:
    one = joiner((0, 5), time=at, other_time=lambda e: e[0] / 1000)
    assert come(one, "a", (10.0, 0), False) == []
    assert come(one, "a", (9_999, 1), True) == [] and come(one, "b", (10_000, 2), True) == []
    assert come(one, "a", (15_000, 3), True) == [(("a", (10.0, 0), (15_000, 3)),)]
    assert come(one, "a", (15_001, 4), True) == []


def test_what_is_too_late_to_have_met_all_is_counted_and_given_to_nobody() -> None:
    one = joiner(4, time=at)
    for t in (10.0, 30.0):
        come(one, "a", (t, 0), False)
    assert come(one, "a", (11.0, 1), True) == [] and one.metrics["late"] == 1
    assert come(one, "a", (27.0, 2), True) == [(("a", (30.0, 0), (27.0, 2)),)]


def test_by_the_clock_the_time_is_that_at_which_an_element_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    one = joiner(5)
    now = [100.0]
    monkeypatch.setattr(type(one.component), "clock", lambda self: now[0])
    come(one, "a", 1, False)
    now[0] = 105.0
    assert come(one, "a", 2, True) == [(("a", 1, 2),)]
    now[0] = 106.0
    assert come(one, "a", 3, True) == []
    one.tick()
    one.move()
    now[0] = 3.0  # set back, or of the machine where it has come to
    come(one, "a", 4, False)
    assert one.metrics["late"] == 0


def test_a_time_that_is_none_is_said() -> None:
    one = joiner(5, time=lambda element: "noon")
    with pytest.raises(TypeError, match="time of an event is a number of seconds, not 'noon'"):
        come(one, "a", 1, True)


def test_a_stream_is_joined_with_itself() -> None:
    flow, out = Flow("selves"), collect()
    numbers = flow.source("n", range(30)).map(float, name="numbers").key_by(lambda n: n % 2)
    numbers.join(numbers, within=(0, 4), time=lambda n: n, idle=math.inf).sink(out)
    topology = flow.build()
    assert [str(i.stream) for i in topology.spec.component("join").inputs] == ["join", "join-2"]  # type: ignore[arg-type]
    with LocalCluster() as cluster:
        cluster.submit(topology).wait(60)
    expected = [(a % 2, a, b) for a in range(30) for b in range(30) if a % 2 == b % 2 and 0 <= b - a <= 4]
    assert sorted(tuple(pair) for (pair,) in out.rows) == sorted(expected)


# ---------------------------------------------------------------------- sources, and all together


@given(st.integers(1, 4), st.lists(st.integers() | st.tuples(st.integers()), max_size=20), MOVES)
def test_values_are_shared_by_tasks_and_go_on_where_they_were(
    tasks: int, values: list[Any], moves: set[int]
) -> None:
    found = []
    for index in range(tasks):
        one = SpoutTester(Items(values), index=index, parallelism=tasks)
        mine: list[Any] = []
        while not one.exhausted:
            mine += one.run(1)
            if len(mine) in moves:
                mine += one.move()
        assert [v for (v,) in mine] == values[index::tasks]
        found += mine
    assert len(found) == len(values)


@settings(max_examples=5, deadline=None)
@given(st.lists(st.text("ab c", max_size=12), max_size=40))
def test_in_a_topology_the_result_is_that_of_one_thread(lines: list[str]) -> None:
    """Words by windows of ten lines, joined with how many words each window has."""
    flow, out = Flow("words"), collect()
    words = flow.source("lines", list(enumerate(lines))).flat_map(
        lambda line: [(line[0], word) for word in line[1].split()], name="words", tasks=3, executors=2
    )
    ten, when = Tumbling(10), (lambda word: word[0])
    counts = words.key_by(lambda word: word[1]).window(ten, time=when, idle=math.inf).count(executors=2)
    totals = words.key_by(lambda word: None).window(ten, time=when, idle=math.inf).count(name="totals")
    shares = counts.key_by(lambda c: c.window).join(
        totals.key_by(lambda t: t.window), within=0, time=lambda c: c.window.start, idle=math.inf
    )
    shares.map(lambda s: (s.key.start, s.left.key, s.left.value, s.right.value)).sink(out)
    with LocalCluster() as cluster:
        cluster.submit(flow).wait(60)
    counted = Counter((n // 10 * 10.0, word) for n, line in enumerate(lines) for word in line.split())
    in_all: Counter[float] = Counter()
    for (start, _), count in counted.items():
        in_all[start] += count
    expected = sorted((start, word, count, in_all[start]) for (start, word), count in counted.items())
    assert sorted(value for (value,) in out.rows) == expected
