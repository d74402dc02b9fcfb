"""What the builder refuses, and that it says where."""

from __future__ import annotations

import enum
import json
import sys
import threading
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic import (
    Bolt,
    CustomGrouping,
    Fields,
    KeyedState,
    Spout,
    StatefulBolt,
    StatefulSpout,
    TaskHook,
    TopologyBuilder,
)
from elastic.api.bundle import build_bundle
from elastic.api.settings import SETTINGS, check_settings
from elastic.api.validate import validate
from elastic.control.codec import SPEC
from elastic.errors import (
    ConfigError,
    CyclicTopology,
    ElasticError,
    InvalidParallelism,
    NotShippable,
    TopologyError,
    UnknownComponent,
    UnknownField,
    UnknownStream,
)
from elastic.model import codec
from elastic.model.topology import TopologySpec
from elastic.testing import BoltTester


class Source(Spout):
    outputs = Fields(line=str)

    def tuples(self) -> Any:
        return iter(())


class Same(Bolt):
    outputs = Fields(line=str)

    def execute(self, tup: Any) -> None:
        self.emit(tup.line)


class Neither(Bolt):
    pass


class NoState(StatefulBolt):
    def execute(self, tup: Any) -> None:
        pass


class HalfState(NoState):
    def get_state(self) -> object:
        return 1


class StateOnPlainBolt(Same):
    counts = KeyedState[str, int](int)


class Declares(NoState):
    counts = KeyedState[str, int](int)


class HidesItsState(Declares):
    @property
    def counts(self) -> dict[str, int]:  # type: ignore[override]
        return {}


class Both(StatefulSpout, StatefulBolt):
    counts = KeyedState[str, int](int)

    def tuples(self) -> Any:
        return iter(())

    def execute(self, tup: Any) -> None:
        pass


def builder() -> TopologyBuilder:
    b = TopologyBuilder("t")
    b.spout("source", Source())
    return b


def given_its_handle(b: TopologyBuilder) -> None:
    source = b.spout("other", Source())
    b.bolt("a", Same()).shuffle(source)  # type: ignore[arg-type]


def cyclic(b: TopologyBuilder) -> None:
    b.bolt("a", Same()).shuffle("source").shuffle("b")
    b.bolt("b", Same()).shuffle("a")


WRONG: dict[str, tuple[Callable[[TopologyBuilder], Any], type[ElasticError], str]] = {
    "unknown component": (lambda b: b.bolt("a", Same()).shuffle("sourc"), UnknownComponent, "'source'"),
    "unknown stream": (
        lambda b: b.bolt("a", Same()).shuffle("source", stream="errors"),
        UnknownStream,
        "'errors'",
    ),
    "unknown field": (lambda b: b.bolt("a", Same()).fields("source", "lin"), UnknownField, "'line'"),
    "no field": (lambda b: b.bolt("a", Same()).fields("source"), UnknownField, "line"),
    "a circle": (cyclic, CyclicTopology, "a <- b <- a"),
    "a circle of one": (
        lambda b: b.bolt("a", Same()).shuffle("source").shuffle("a"),
        CyclicTopology,
        "a <- a",
    ),
    "more executors than tasks": (
        lambda b: b.bolt("a", Same(), tasks=2, executors=3).shuffle("source"),
        InvalidParallelism,
        "3 executors for 2",
    ),
    "no executor": (lambda b: b.bolt("a", Same(), executors=0).shuffle("source"), InvalidParallelism, "'a'"),
    "too many tasks": (
        lambda b: b.bolt("a", Same(), tasks=200_000, executors=1).shuffle("source"),
        InvalidParallelism,
        "100000",
    ),
    "not subscribed": (lambda b: b.bolt("a", Same()), TopologyError, "'a'"),
    "twice the same name": (lambda b: b.spout("source", Source()), TopologyError, "'source'"),
    "a bad name": (lambda b: b.bolt("a/b", Same()).shuffle("source"), TopologyError, "a/b"),
    "nothing to execute": (lambda b: b.bolt("a", Neither()).shuffle("source"), TopologyError, "execute"),
    "stateful without state": (
        lambda b: b.bolt("a", NoState()).shuffle("source"),
        TopologyError,
        "KeyedState",
    ),
    "half a state": (lambda b: b.bolt("a", HalfState()).shuffle("source"), TopologyError, "set_state"),
    "state on a plain bolt": (
        lambda b: b.bolt("a", StateOnPlainBolt()).shuffle("source"),
        TopologyError,
        "StatefulBolt",
    ),
    "a property in the place of a state": (
        lambda b: b.bolt("a", HidesItsState()).shuffle("source"),
        TopologyError,
        "property in the place of its state 'counts'",
    ),
    "a class for an instance": (lambda b: b.bolt("a", Same).shuffle("source"), TopologyError, "Same(...)"),
    "an argument that nearly is one": (
        lambda b: b.bolt("a", Same(), task=3).shuffle("source"),
        ConfigError,
        "Did you mean 'tasks'",
    ),
    "a bolt as a spout": (lambda b: b.spout("a", Same()), TopologyError, "Spout"),
    "a spout that is a bolt": (
        lambda b: b.bolt("a", Both()).shuffle("source"),
        TopologyError,
        "Both is both a spout and a bolt",
    ),
    "a handle for a name": (given_its_handle, TopologyError, "not a SpoutHandle.\n  Give its name: 'other'."),
    "a list of fields": (
        lambda b: b.bolt("a", Same()).fields("source", ["line"]),
        TopologyError,
        "Bolt 'a': a field of 'source' must be a name, not ['line'].\n  Give 'line' without brackets.",
    ),
    "a number for a field": (
        lambda b: b.bolt("a", Same()).fields("source", 0),
        TopologyError,
        "'a': a field of 'source' must be a name, not 0",
    ),
    "no stream": (
        lambda b: b.bolt("a", Same()).shuffle("source", stream=None),
        TopologyError,
        "'a': the stream of 'source' must be a name, not None",
    ),
    "a function for a grouping": (
        lambda b: b.bolt("a", Same()).custom("source", len),
        TopologyError,
        "'a', grouping of 'source': <built-in function len> is not an instance of a subclass of elastic.CustomGrouping",
    ),
    "a function for a hook of a component": (
        lambda b: b.bolt("a", Same()).shuffle("source").hook(print),
        TopologyError,
        "component 'a': <built-in function print> is not an instance of a subclass of elastic.TaskHook",
    ),
    "a class for a hook": (lambda b: b.hook(TaskHook), TopologyError, "topology 't'"),
    "a word for a number": (
        lambda b: b.bolt("a", Same(), tasks="4").shuffle("source"),
        InvalidParallelism,
        "'a' has '4' tasks; it needs a whole number",
    ),
    "a number for a name": (lambda b: b.spout(5, Source()), TopologyError, "5 cannot be the name of a comp"),
    "a list for a name": (lambda b: b.spout(["a"], Source()), TopologyError, "['a'] cannot be the name"),
    "unknown setting": (
        lambda b: b.bolt("a", Same(), max_error=3).shuffle("source"),
        ConfigError,
        "max_errors",
    ),
    "impossible setting": (
        lambda b: b.bolt("a", Same(), queue_rows=0).shuffle("source"),
        ConfigError,
        "queue_rows",
    ),
    "setting of a wrong type": (
        lambda b: b.bolt("a", Same(), rate="fast").shuffle("source"),
        ConfigError,
        "rate",
    ),
    "a rate for a bolt": (
        lambda b: b.bolt("a", Same(), rate=5).shuffle("source"),
        ConfigError,
        "'rate' cannot be set for component 'a': it is a bolt",
    ),
    "bounds that cross": (
        lambda b: b.bolt("a", Same(), tasks=4, min_executors=3, max_executors=2).shuffle("source"),
        ConfigError,
        "'min_executors' of component 'a' is 3, above its 'max_executors', 2",
    ),
    "more executors at least than tasks": (
        lambda b: b.bolt("a", Same(), tasks=2, min_executors=3).shuffle("source"),
        ConfigError,
        "'min_executors' of component 'a' is 3, and it has 2 tasks",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused_and_named(what: str) -> None:
    make, error, words = WRONG[what]
    with pytest.raises(error) as caught:
        b = builder()
        make(b)
        b.build()
    assert words in str(caught.value)
    assert type(caught.value) is error


@pytest.mark.parametrize("name", [None, 5, "", "a b", "x" * 101])
def test_a_topology_has_a_name_that_can_be_one_from_the_start_and_later(name: Any) -> None:
    b = TopologyBuilder(name)
    b.spout("source", Source())
    with pytest.raises(TopologyError, match="cannot be the name of a topology"):
        b.build()
    with pytest.raises(TopologyError, match="cannot be the name of a topology"):
        builder().build().renamed(name)
    assert builder().build().renamed("other").name == "other"


@pytest.mark.parametrize("workers", [0, -1, True, "2", 1.5])
def test_workers_are_a_whole_number_from_the_start_and_later(workers: Any) -> None:
    b = TopologyBuilder("t", workers=workers)
    b.spout("source", Source())
    with pytest.raises(InvalidParallelism, match=r"'t' wants .* workers; it needs a whole number"):
        b.build()
    with pytest.raises(InvalidParallelism, match=r"'t' wants .* workers; it needs a whole number"):
        builder().build().with_workers(workers)
    assert builder().build().with_workers(3).spec.workers == 3


def test_a_topology_without_a_spout_is_refused() -> None:
    with pytest.raises(TopologyError, match="no spout"):
        TopologyBuilder("t").build()


def test_workers_do_not_end_for_longer_than_a_node_that_stops_waits_for_them() -> None:
    for grace in (60, 60.5):
        b = TopologyBuilder("t", stop_grace=grace)
        b.spout("source", Source())
        if grace > 60:
            with pytest.raises(ConfigError, match="must be at most 60"):
                b.build()
        else:
            b.build()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", [n for n, s in SETTINGS.items() if float in s.kinds])
def test_numbers_are_finite(name: str, value: float) -> None:
    b = TopologyBuilder("t", **{name: value})
    b.spout("source", Source())
    with pytest.raises(ConfigError, match=f"{name!r} of .* must be a finite number"):
        b.build()


class Colour(enum.StrEnum):
    RED = "red"


ODD = [
    *(float("inf"), [1, float("nan")], {"a": [float("-inf")]}),
    *(
        (1, 2),
        {3},
        {"a": {1: 2}},
        b"x",
        object(),
        Decimal("1.5"),
        date(2024, 2, 29),
        Colour.RED,
        10**30,
        "\ud800",
    ),
]
"""What would be something else in a worker, or would not get there."""
_plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_a_setting_of_ones_own_that_would_not_reach_a_worker_as_it_is_is_refused(value: object) -> None:
    with pytest.raises(
        ConfigError, match=r"'my\.limit' of topology 't' is or holds .* would not reach a worker as it is"
    ):
        TopologyBuilder("t", **{"my.limit": value}).build()
    b = TopologyBuilder("t")
    b.spout("source", Source(), **{"my.limit": value})
    with pytest.raises(ConfigError, match=r"'my\.limit' of component 'source' is or holds"):
        b.build()


@given(_plain)
def test_all_others_reach_it_as_they_are(value: object) -> None:
    b = TopologyBuilder("t", **{"my.own": value})
    b.spout("source", Source())
    spec = b.build().spec
    told = [codec.decode(codec.encode(spec), TopologySpec), SPEC.decode(SPEC.encode(spec))]
    # But for the order of keys; 1, 1.0 and True are different things.
    assert [json.dumps(s.config, sort_keys=True) for s in told] == 2 * [
        json.dumps({"my.own": value}, sort_keys=True)
    ]


@pytest.mark.parametrize("name", [n for n, s in SETTINGS.items() if int in s.kinds])
def test_numbers_are_such_as_can_be_computed_with(name: str) -> None:
    values: list[int | float] = [10**400, 10**5000]
    if float in SETTINGS[name].kinds:
        values += [2**40, 1e300]
    elif SETTINGS[name].maximum is None:
        check_settings({name: sys.maxsize}, where="topology 't'")
        values.append(sys.maxsize + 1)
    for value in values:
        b = TopologyBuilder("t", **{name: value})
        b.spout("source", Source())
        with pytest.raises(ConfigError, match=f"{name!r} of .* must be at most"):
            b.build()


@pytest.mark.parametrize("name", [n for n, s in SETTINGS.items() if str not in s.kinds])
def test_settings_have_bounds(name: str) -> None:
    known = SETTINGS[name]
    assert known.minimum is not None
    check_settings({name: known.minimum}, where="topology 't'")
    with pytest.raises(
        ConfigError, match=f"{name!r} of topology 't' must be at least {known.minimum:g}, not"
    ):
        check_settings({name: known.minimum - (1 if known.kinds == (int,) else 1e-6)}, where="topology 't'")
    if known.maximum is not None:
        check_settings({name: known.maximum}, where="topology 't'")
        with pytest.raises(
            ConfigError, match=f"{name!r} of topology 't' must be at most {known.maximum:g}, not"
        ):
            check_settings({name: known.maximum + 1}, where="topology 't'")
    for value in (True, "1", *([1.5] if float not in known.kinds else [])):
        with pytest.raises(ConfigError, match=f"{name!r} of topology 't' must be {known.kinds[0].__name__}"):
            check_settings({name: value}, where="topology 't'")


@pytest.mark.parametrize("name", [n for n, s in SETTINGS.items() if s.whole])
def test_a_setting_of_the_whole_topology_is_refused_for_a_component(name: str) -> None:
    b = TopologyBuilder("t")
    b.spout("source", Source(), **{name: SETTINGS[name].default})
    with pytest.raises(ConfigError, match=f"{name!r} cannot be set for component 'source' alone"):
        b.build()


def test_settings_of_the_users_own_have_a_dot() -> None:
    b = TopologyBuilder("t", **{"my.setting": ["EUR"]})
    b.spout("source", Source())
    assert b.build().spec.config == {"my.setting": ["EUR"]}


@pytest.mark.parametrize(
    "fields", [("a", "a"), ("1a",), ("class",), ("_a",), ("values",), ("\uff3fa",), ("\ufb01",)]
)
def test_fields_that_cannot_be(fields: tuple[str, ...]) -> None:
    with pytest.raises(TopologyError):
        Fields(*fields)


def test_a_stream_without_fields_is_refused_and_named() -> None:
    class Signals(Source):
        outputs: ClassVar = {"default": Fields(line=str), "done": Fields()}

    b = TopologyBuilder("t")
    b.spout("source", Signals())
    with pytest.raises(TopologyError, match="Stream 'done' of component 'source' has no fields"):
        b.build()


def test_a_long_chain_can_be_declared_from_its_end() -> None:
    b = builder()
    for n in range(1_200, 0, -1):
        b.bolt(f"a{n}", Same()).shuffle(f"a{n - 1}" if n > 1 else "source")
    assert len(b.build().spec.components) == 1_201


def test_a_description_survives_its_codec_and_is_checked_again() -> None:
    b = builder()
    b.bolt("a", Same(), tasks=4, executors=2, tick_interval=0.5).fields("source", "line")
    spec = b.build().spec
    again = codec.decode(codec.encode(spec), TopologySpec)
    assert again == spec
    validate(again)


class HasLock(Same):
    def __init__(self) -> None:
        self.ok = 1
        self.inner = Holder()


class Holder:
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_a_component_that_cannot_be_pickled_is_refused_and_the_attribute_named(tmp_path: Path) -> None:
    b = builder()
    b.bolt("guarded", HasLock()).shuffle("source")
    with pytest.raises(NotShippable) as caught:
        build_bundle(b.build(), None, tmp_path / "b.zip")
    assert "'guarded'" in str(caught.value)
    assert "'inner.lock'" in str(caught.value)
    assert "prepare()" in str(caught.value)


async def _coroutine(*_: Any) -> None:
    pass


async def _async_generator(*_: Any) -> Any:
    yield 1


def _generator(*_: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("name", "made", "base"),
    [
        ("execute", _coroutine, Bolt),
        ("execute", _generator, Bolt),
        ("finish", _coroutine, Same),
        ("set_state", _generator, NoState),
        ("next_tuple", _generator, Spout),
        ("next_tuple", _coroutine, Spout),
        ("tuples", _async_generator, Spout),
        ("choose", _coroutine, CustomGrouping),
        ("prepare", _generator, CustomGrouping),
        ("on_execute", _coroutine, TaskHook),
    ],
)
def test_a_call_that_would_do_nothing_is_refused(name: str, made: Callable[..., Any], base: type) -> None:
    given = type("Given", (base,), {name: made})()
    b = TopologyBuilder("t")
    with pytest.raises(TopologyError, match=f"Given.{name} is .*: calling it would do nothing"):
        if isinstance(given, Spout):
            b.spout("given", given)
        elif isinstance(given, Bolt):
            b.bolt("given", given)
        elif isinstance(given, CustomGrouping):
            b.bolt("same", Same()).custom("given", given)
        else:
            b.hook(given)
        b.build()
    if isinstance(given, Bolt):
        with pytest.raises(TopologyError, match=f"Given.{name} is"):
            BoltTester(given)


def test_tuples_and_choose_may_be_generators() -> None:
    b = TopologyBuilder("t")
    b.spout("source", type("Given", (Source,), {"tuples": _generator})())
    b.bolt("same", Same()).custom("source", type("Chosen", (CustomGrouping,), {"choose": _generator})())
    b.build()
