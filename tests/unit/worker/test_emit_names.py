"""Fields are variables of the generated functions: whatever they are called, those do the same."""

from __future__ import annotations

import builtins
import itertools
import types
from collections.abc import Iterable
from typing import Any, cast

import pytest

from elastic import Bolt, CustomGrouping, Fields, Spout, TopologyBuilder
from elastic.errors import TopologyError
from elastic.local import run
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import ComponentId, StreamId
from elastic.model.topology import ComponentSpec, InputSpec, StreamSpec
from elastic.testing import collect
from elastic.worker.emitting.crossing import Subscription
from elastic.worker.emitting.emits import Emits
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.emitting.routes import Routes
from elastic.worker.tuples.batch import Stream

TARGETS = (1, 2, 3)
TUPLES = 50
LIMIT = 8


class Everybody(CustomGrouping):
    def prepare(self, tasks: tuple[int, ...]) -> None:
        self.tasks = tasks

    def choose(self, values: tuple[Any, ...]) -> tuple[int, ...]:
        return self.tasks


class Buffers:
    """What the generated functions know of a task's outputs."""

    task = 0
    unrouted = 0
    limit = LIMIT

    def __init__(self) -> None:
        self.component = types.SimpleNamespace(id="names")
        place = types.SimpleNamespace(local=None)
        self.outs = {t: types.SimpleNamespace(rows=[], destination=place) for t in TARGETS}
        self.local_first: list[Any] = []
        self.taken: list[tuple[Any, ...]] = []

    def on_another_stream(self, values: Any, stream: str) -> None:
        raise AssertionError(stream)

    def full(self, rows: list[Any]) -> None:
        assert len(rows) >= LIMIT
        self.taken += [r.values for r in rows]
        rows.clear()

    def all(self) -> list[tuple[Any, ...]]:
        return sorted(self.taken + [r.values for o in self.outs.values() for r in o.rows], key=repr)


def made(
    names: tuple[str, ...], *kinds: GroupingKind, targets: tuple[int, ...] = TARGETS
) -> tuple[Emits, Buffers]:
    spec = StreamSpec(StreamId("default"), Fields(*names).specs)
    consumer = ComponentSpec(ComponentId("consumer"), "bolt", len(targets), 1)
    keyed = (GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY)
    consumers = [
        Subscription(
            consumer,
            n,
            InputSpec(ComponentId("names"), spec.id, Grouping(kind, names[:2] if kind in keyed else ())),
            targets,
            Everybody() if kind == GroupingKind.CUSTOM else None,
        )
        for n, kind in enumerate(kinds)
    ]
    buffers = Buffers()
    routes = Routes(cast(Outputs, buffers), buffers.on_another_stream)
    return routes.make(Stream(0, ComponentId("names"), spec), consumers), buffers


def in_the_code() -> set[str]:
    """Every name in the generated code, of whatever grouping."""
    found = set(dir(builtins))
    for names in (("only",), ("first", "second")):
        for kind in GroupingKind:
            for targets in (TARGETS, TARGETS[:1]):
                for function in made(names, kind, targets=targets)[0]:
                    code = function.__code__
                    found.update(function.__globals__, code.co_names, code.co_varnames)
    return found


def can_be(name: str) -> bool:
    try:
        Fields(name)
    except TopologyError:
        return False
    return True


NAMES = tuple(sorted(filter(can_be, in_the_code() | {"self", "stream"})))


def emitted(
    names: tuple[str, ...], *kinds: GroupingKind, targets: tuple[int, ...] = TARGETS
) -> tuple[list[tuple[Any, ...]], int, list[Any]]:
    """Everything that comes of each way to emit: the tuples, how many went to nobody, and what was said to be wrong."""
    emits, buffers = made(names, *kinds, targets=targets)
    rows = [tuple(range(n, n + len(names))) for n in range(TUPLES)]
    values = [r[0] for r in rows] if len(names) == 1 else rows
    wrong: list[Any] = []
    for row in rows:
        emits.emit(*row)
    emits.emit_all(values)
    emits.emit_all(iter(values), stream="default")
    assert emits.emit_each(values) == TUPLES
    given = [*values, (*rows[0], 0), *rows, *map(Sub, rows), 1, [1]]
    assert emits.emit_each(given, lambda error, value: wrong.append((type(error), value))) == len(given)
    return buffers.all(), buffers.unrouted, wrong


class Sub(tuple[Any, ...]):
    """Not exactly a tuple."""

    __slots__ = ()


def harmless(count: int) -> tuple[str, ...]:
    return tuple(f"field{n}" for n in range(count))


def test_there_are_names_to_be_tried() -> None:
    assert {
        "len",
        "next",
        "map",
        "list",
        "tuple",
        "isinstance",
        "KeyError",
        "emit",
        "stream",
        "append",
    } <= set(NAMES)


# emit() has no part in direct groupings.
@pytest.mark.parametrize("kind", [k for k in GroupingKind if k != GroupingKind.DIRECT])
def test_a_field_is_called_as_whatever_the_code_uses(kind: GroupingKind) -> None:
    for targets in (TARGETS, TARGETS[:1]):
        for count, each in ((1, [(n,) for n in NAMES]), (2, list(itertools.pairwise(NAMES)))):
            expected = emitted(harmless(count), kind, targets=targets)
            assert expected[0] or expected[1]
            for names in each:
                assert emitted(names, kind, targets=targets) == expected, names


def test_all_of_them_at_once_for_all_groupings() -> None:
    assert emitted(NAMES, *GroupingKind) == emitted(harmless(len(NAMES)), *GroupingKind)


class Lines(Spout):
    outputs = Fields(next=str)

    def tuples(self) -> Iterable[str]:
        return iter(("a", "bb", "ccc"))


class Lengths(Bolt):
    outputs = Fields(list=str, len=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.next, len(tup.next))


def test_in_a_topology_each_tuple_is_emitted_and_none_failed() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("lines", Lines())
    b.bolt("lengths", Lengths(), tasks=2).local_or_shuffle("lines")
    b.bolt("out", out, tasks=2).fields("lengths", "len")
    assert run(b.build(), timeout=30).failed_tuples == 0
    assert sorted(out.rows) == [("a", 1), ("bb", 2), ("ccc", 3)]
