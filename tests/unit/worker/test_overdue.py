"""What is emitted within a call that does not return is handed on all the same: once, and in order."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout, TaskHook, TopologyBuilder, TopologyContext
from elastic.worker.executing import overdue
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.overdue import Overdue
from tests.unit.worker.harness import InProcess, Numbers

LIMIT = 20.0
BURST = 5
came = threading.Event()
"""The first `BURST` numbers have come to the sink."""
told: list[int] = []
order: dict[int, list[int]] = defaultdict(list)


def waits() -> bool:
    """As who waits for a socket. Returns whether what was emitted before has arrived meanwhile."""
    return came.wait(LIMIT)


class Generator(Spout):
    outputs = Fields(number=int)

    def tuples(self) -> Any:
        yield from range(BURST)
        yield BURST if waits() else -1


class Calls(Spout):
    outputs = Fields(number=int)

    def next_tuple(self) -> None:
        for number in range(BURST):
            self.emit(number)
        self.emit(BURST if waits() else -1)
        self.exhausted()


class Streams(Spout):
    """On two of them in turns, for one target."""

    outputs = {"default": Fields(number=int), "odd": Fields(number=int)}  # noqa: RUF012

    def next_tuple(self) -> None:
        for number in range(BURST):
            self.emit_to("odd" if number % 2 else "default", number)
        self.emit(BURST if waits() else -1)
        self.exhausted()


class Once(Spout):
    outputs = Fields(number=int)

    def tuples(self) -> Any:
        yield 0


class Executes(Bolt):
    outputs = Fields(number=int)

    def execute(self, tup: Any) -> None:
        for number in range(BURST):
            self.emit(number)
        self.emit(BURST if waits() else -1)


class Finishes(Bolt):
    outputs = Fields(number=int)

    def execute(self, tup: Any) -> None:
        pass

    def finish(self) -> None:
        for number in range(BURST):
            self.emit(number)
        self.emit(BURST if waits() else -1)


class Sink(Bolt):
    def execute(self, tup: Any) -> None:
        order[0].append(tup.number)
        if len(order[0]) == BURST:
            came.set()


class Told(TaskHook):
    def on_emit(self, context: TopologyContext, stream: str, count: int) -> None:
        assert threading.current_thread().name.startswith("executor"), "user code runs on its executor"
        told.append(count)


def run(what: Spout | Bolt, workers: int, hook: bool = False) -> list[int]:
    came.clear()
    order.clear()
    told.clear()
    b = TopologyBuilder("t")
    if hook:
        b.hook(Told())
    last = "spout"
    if isinstance(what, Bolt):
        b.spout("spout", Once())
        b.bolt("bolt", what).all_to_one("spout")
        last = "bolt"
    else:
        b.spout("spout", what)
    sink = b.bolt("sink", Sink()).all_to_one(last)
    if isinstance(what, Streams):
        sink.all_to_one(last, stream="odd")
    with InProcess(b.build(), workers, place=lambda component, _: (component == "sink") % workers) as world:
        world.wait_finished(2 * LIMIT)
    return list(order[0])


ALL = [Generator, Calls, Streams, Executes, Finishes]


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ALL)
def test_what_was_emitted_before_a_wait_does_not_wait_along(
    kind: type[Spout] | type[Bolt], workers: int, hook: bool
) -> None:
    assert run(kind(), workers, hook) == [*range(BURST + 1)]
    if hook:
        assert sum(told) == BURST + 1 + issubclass(kind, Bolt), "each is told of once"


@pytest.mark.parametrize("kind", ALL)
def test_that_it_is_nobodys_business_is_found(
    kind: type[Spout] | type[Bolt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: it waits for the next thing that happens."""
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 0.3)
    monkeypatch.setattr(Overdue, "watch", lambda *_: None)
    assert run(kind(), 1)[-1] == -1


def test_nobody_looks_when_the_last_executor_has_ended() -> None:
    run(Generator(), 2)
    for thread in [t for t in threading.enumerate() if t.name == "overdue"]:
        thread.join(LIMIT)
        assert not thread.is_alive()


class PerKey(Bolt):
    """Notes the numbers of each key, and passes them on."""

    outputs = Fields(source=int, key=int, number=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.source, tup.key, tup.number)


class Last(Bolt):
    def execute(self, tup: Any) -> None:
        order[tup.source * 1000 + tup.key].append(tup.number)


@contextlib.contextmanager
def in_each_others_way() -> Iterator[None]:
    """Threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def flood() -> list[str]:
    """What is wrong after many tuples, all of whose emitters have them handed on by somebody else as well, all the time."""
    order.clear()
    count, keys = 6000, 7
    b = TopologyBuilder("t", batch_rows=8)
    b.spout("spout", Numbers(count, keys), tasks=2)
    b.bolt("pass", PerKey(), tasks=4, executors=2).fields("spout", "key")
    b.bolt("last", Last(), tasks=3).fields("pass", "key")
    with in_each_others_way(), InProcess(b.build(), 2) as world:
        world.wait_finished(2 * LIMIT)
    wrong = []
    for key, numbers in order.items():
        if numbers != [*range(len(numbers))]:
            wrong.append(f"key {key} is out of order")
    if sum(map(len, order.values())) != 2 * count:
        wrong.append(f"{sum(map(len, order.values()))} of {2 * count}")
    return wrong


def test_two_that_hand_on_lose_and_double_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overdue, "LOOK", 0.0)
    assert flood() == []


class Nobodys:
    """A lock that keeps nobody out."""

    def acquire(self, blocking: bool = True) -> bool:
        return True

    def release(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_two_at_a_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: nobody waits for a turn."""
    monkeypatch.setattr(overdue, "LOOK", 0.0)
    begin = Executor.start

    def start(self: Executor) -> None:
        self.turn = Nobodys()  # type: ignore[assignment]
        begin(self)

    monkeypatch.setattr(Executor, "start", start)
    with pytest.raises(AssertionError):  # something is wrong with what came, or never comes
        assert flood() == []
