"""Failed tuples: which are told, and what does not end a task."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from elastic import Bolt, Fields, LocalCluster, Spout, TopologyBuilder
from elastic.errors import ExecutionError
from elastic.local import run
from elastic.worker.executing import failures as failures_module
from elastic.worker.executing.failures import Failures
from elastic.worker.shown import user_traceback
from elastic.worker.tuples import wire


class Played:
    id, context, spec = 2, None, SimpleNamespace(id="sink")


def test_a_flood_of_batches_that_cannot_be_read_drowns_nothing_and_hooks_hear_of_it() -> None:
    """Most likely one tuple of each is to blame: they count, and are no reason to give up."""
    events: list[tuple[str, int]] = []
    heard: list[Exception] = []
    task: Any = Played()
    hook: Any = SimpleNamespace(on_error=lambda context, tup, error: heard.append(error))
    listener: Any = SimpleNamespace(
        on_task_event=lambda task, kind, message, severity, details: events.append((kind, details["failed"]))
    )
    failures = Failures(task, (hook,), 100, listener)
    batch: Any = SimpleNamespace(count=512, source=1)
    for _ in range(50):
        failures.unreadable(batch, TypeError("its __init__ takes two arguments"))
    assert failures.count == 50 * 512 and not failures.broken
    assert events == [("batch-unreadable", 512 * n) for n in (1, 2, 4, 8, 16, 32)]
    assert len(heard) == 50


def test_of_a_flood_of_failures_tracebacks_are_made_of_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback takes longer than most tuples."""
    made: list[BaseException] = []
    monkeypatch.setattr(failures_module, "user_traceback", lambda error: made.append(error) or "")
    told: list[str] = []
    gave_up: list[str] = []
    task: Any = Played()
    listener: Any = SimpleNamespace(
        on_task_event=lambda task, kind, message, severity, details: told.append(kind),
        on_failure=lambda task, reason, trace: gave_up.append(reason),
    )
    failures = Failures(task, (), 1000, listener)
    for n in range(1001):
        failures.failed(ValueError(n), n)
    assert len(made) == len(told) + len(gave_up) == 10 + 6 + 1


class Whole(Bolt):
    """Its first batch fails as a whole."""

    def __init__(self, times: int) -> None:
        self.times = times

    def execute_batch(self, batch: Any) -> None:
        if self.times:
            self.times -= 1
            raise ValueError("one hiccup")


class Batches(Spout):
    outputs = Fields(n=int)

    def __init__(self) -> None:
        self.left = 6

    def next_batch(self) -> None:
        self.left -= 1
        self.emit_batch(pa.record_batch([pa.array(range(200))], names=["n"]))
        if not self.left:
            self.exhausted()


def test_a_batch_that_fails_is_one_error_and_all_its_rows() -> None:
    for times, ends in ((2, True), (3, False)):
        b = TopologyBuilder("hiccups")
        b.spout("batches", Batches())
        b.bolt("whole", Whole(times), max_errors=2).shuffle("batches")
        if ends:
            done = run(b, timeout=30)
            assert done.failed_tuples == 400
            assert [e.details["rows"] for e in done.events if e.kind == "tuple-failed"] == [200, 200]
        else:
            with pytest.raises(
                ExecutionError, match=r"gave up after 600 failed tuples in 3 executions \(max_errors=2\)"
            ):
                run(b, timeout=30)


class Unfit(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Any:
        yield from ["text"] * 1000


def test_of_a_batch_in_which_a_task_gives_up_nothing_more_is_told() -> None:
    b = TopologyBuilder("unfit")
    b.spout("texts", Unfit())
    b.bolt("whole", Whole(0), max_errors=2).shuffle("texts")
    with LocalCluster() as cluster:
        unfit = cluster.submit(b.build())
        with pytest.raises(ExecutionError, match=r"gave up after 3 failed tuples \(max_errors=2\)"):
            unfit.wait(30)
    assert [e.kind for e in unfit.events] == ["tuple-failed"] * 2 + ["executor-failed"]


class ToOne(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Any:
        yield from range(3)


class Takes(Bolt):
    def execute(self, tup: Any) -> None: ...


def test_what_would_go_to_nobody_since_nobody_is_named_is_an_error() -> None:
    b = TopologyBuilder("direct")
    b.spout("to", ToOne())
    b.bolt("takes", Takes()).direct("to")
    done = run(b, timeout=30)
    assert done.failed_tuples == 3
    assert "subscribed to by direct grouping alone" in done.events[0].message


def test_what_cannot_be_sent_shows_that_and_not_what_led_there() -> None:
    stream = SimpleNamespace(
        component="s", spec=SimpleNamespace(id="default", fields=(SimpleNamespace(name="v"),))
    )
    row = SimpleNamespace(v=threading.Lock(), __struct_fields__=("v",))
    try:
        raise LookupError("something else")
    except LookupError:
        with pytest.raises(ExecutionError, match="holds a lock that cannot be sent") as raised:
            wire._pickle(SimpleNamespace(stream=stream), [row])  # type: ignore[arg-type]
    assert "something else" not in user_traceback(raised.value) and "PicklingError" not in user_traceback(
        raised.value
    )


class Breaks(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Any:
        yield 1
        raise RuntimeError("no more")


def test_the_traceback_of_a_generator_begins_with_the_users_frame() -> None:
    b = TopologyBuilder("breaks")
    b.spout("breaks", Breaks())
    b.bolt("whole", Whole(0)).shuffle("breaks")
    with LocalCluster() as cluster, pytest.raises(ExecutionError):
        (started := cluster.submit(b.build())).wait(timeout=30)
    [told] = [str(e.details["traceback"]) for e in started.events if e.kind == "executor-failed"]
    assert told.splitlines()[1].startswith(f'  File "{__file__}"') and "RuntimeError: no more" in told


class Three(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Any:
        yield from ((n,) for n in range(3))


class OddCause(Exception):
    @property
    def __cause__(self) -> BaseException | None:  # type: ignore[override]
        raise ValueError("no cause")


class OddSyntax(SyntaxError):
    def __init__(self) -> None:
        self.lineno, self.text, self.filename, self.msg, self.offset = "x", 5, object(), None, "a"  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [OddCause, OddSyntax])
def test_an_error_that_cannot_be_shown_fails_the_topology_all_the_same(kind: type[Exception]) -> None:
    class Raises(Bolt):
        def execute(self, tup: Any) -> None:
            raise kind()

    b = TopologyBuilder("odd")
    b.spout("numbers", Three())
    b.bolt("raises", Raises(), max_errors=0).shuffle("numbers")
    with pytest.raises(ExecutionError, match=kind.__name__), LocalCluster() as cluster:
        cluster.submit(b).wait(timeout=30)


class Keys(Spout):
    outputs = Fields("key")

    def tuples(self) -> Any:
        yield object
        yield [1]


class Nothing(Bolt):
    def execute(self, tup: Any) -> None: ...


def test_a_key_without_a_stable_hash_is_told_as_that_alone() -> None:
    """Not as a KeyError or a TypeError of elastic's own memo, which stood before it in the traceback."""
    b = TopologyBuilder("keys")
    b.spout("keys", Keys())
    b.bolt("out", Nothing(), tasks=2).fields("keys", "key")
    events = run(b.build(), timeout=60).events
    assert len(events) == 2
    for event in events:
        trace = str(event.details["traceback"])
        assert "has no stable hash" in trace
        assert "During handling" not in trace and "KeyError" not in trace and "TypeError" not in trace
