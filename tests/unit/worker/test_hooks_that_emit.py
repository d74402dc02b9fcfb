"""A hook that is told of what has been handed on may have its component emit: nothing is doubled or lost by that."""

from __future__ import annotations

import collections
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout, TaskHook, TopologyBuilder
from elastic.worker.emitting import outputs
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.tuples import wire
from tests.unit.worker.harness import InProcess
from tests.unit.worker.test_parcels import ELSEWHERE, THERE, Sender

COUNT, EACH = 200, 8
SOON = 20.0


class Source(Spout):
    """Emits to one that is slow, and to one that hears of it besides."""

    outputs = {"slow": Fields(n=int), "audit": Fields(n=int)}  # noqa: RUF012
    here: Source

    def prepare(self, context: Any) -> None:
        self.n = self.audit = 0
        Source.here = self

    def tell(self, count: int) -> None:
        for _ in range(count):
            self.audit += 1  # first: to emit may have a hook called that comes here
            self.emit_to("audit", self.audit)

    def next_tuple(self) -> float | None:
        if self.n >= COUNT:
            self.exhausted()
            return None
        if not self.audit:
            self.tell(1)
        if not Audit.began.is_set():
            return 0.001
        if not self.n:
            self.tell(EACH - 3)  # waits in the buffer when there is no room for what is for the slow one
        self.emit_to("slow", self.n)
        self.n += 1
        if self.n > COUNT // 2:
            self.tell(3)
        return None


class Hook(TaskHook):
    """Has more emitted as it hears of what is handed on beside the wait."""

    def __init__(self) -> None:
        self.told = False

    def on_emit(self, context: Any, stream: str, count: int) -> None:
        if stream == "audit" and Source.here.n and not self.told:
            self.told = True
            Source.here.tell(EACH)


class Slow(Bolt):
    goes_on = threading.Event()

    def execute(self, tup: Any) -> None:
        Slow.goes_on.wait(SOON)


class Audit(Bolt):
    """Is at work when more comes."""

    got: collections.Counter[int] = collections.Counter()  # noqa: RUF012

    began = threading.Event()

    def execute(self, tup: Any) -> None:
        Audit.began.set()
        Slow.goes_on.wait(SOON)
        Audit.got[tup.n] += 1


def audited(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Of what was emitted beside a task that had no room: how many tuples, how many of them came, and how many came twice."""
    real = Outputs._offer

    def offers(self: Outputs, out: Any) -> None:
        some = bool(out.rows)
        real(self, out)
        if some:
            Slow.goes_on.set()

    monkeypatch.setattr(Outputs, "_offer", offers)
    Slow.goes_on, Audit.began, Audit.got = threading.Event(), threading.Event(), collections.Counter()
    b = TopologyBuilder("hooked", batch_rows=EACH, linger=5.0)
    b.spout("src", Source()).hook(Hook())
    b.bolt("slow", Slow(), queue_rows=4).shuffle("src", stream="slow")
    b.bolt("audit", Audit()).shuffle("src", stream="audit")
    with InProcess(b.build(), 1) as run:
        assert Slow.goes_on.wait(SOON), "something was handed on beside the wait"
        run.wait_finished()
    got = Audit.got
    return Source.here.audit, len(got), sum(n > 1 for n in got.values())


def test_what_is_handed_on_beside_a_wait_is_handed_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted, came, twice = audited(monkeypatch)
    assert emitted > COUNT and (came, twice) == (emitted, 0)


def _offers_before_it_takes_out(self: Any, out: Any) -> None:
    rows = out.rows[:]
    if rows:
        stream = self._streams.by_kind[type(rows[0])]
        if self._here_at_once(out, stream, rows) or self._at_once(out, stream, rows):
            del out.rows[: len(rows)]


def test_that_it_is_in_its_buffer_meanwhile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Outputs, "_offer", _offers_before_it_takes_out)
    emitted, came, twice = audited(monkeypatch)
    assert came < emitted and twice


def parcelled(sender: Sender) -> list[int]:
    """What a task gets of which something goes in the second parcel, when a hook that is told of the first has more emitted for it."""
    sent: list[tuple[int, bytes]] = []

    def offer(target: int, payload: Any, *, rows: int = 0) -> bool:
        sent.append((target, b"".join(payload)))
        return True

    first = sender.task(1, {20 + n: 3 for n in range(4)}, THERE)
    second = sender.task(2, {30 + n: 3 for n in range(4)}, ELSEWHERE)
    for way in sender.ways.values():
        way.offer = offer  # type: ignore[attr-defined]
    for one in (first, second):
        one.limit, one._by_rows = 4, {id(out.rows): out for out in one.list}
        one.emitter = SimpleNamespace(written=sender.written.append, thread=threading.current_thread())
        one._turn, one._untold = threading.RLock(), {}
        for out in one.list:
            out.destination.local = None
    told: list[int] = []

    def on_emit(stream: str, count: int) -> None:
        told.append(count)
        if len(told) == 1:
            rows = second.outs[30].rows
            rows.append(sender.stream.kind(3, "more"))
            if len(rows) >= second.limit:
                second.full(rows)

    first._on_emit = on_emit
    assert sender.hand_on() and len(told) == 4
    by_itself = [wire.decode(memoryview(p), sender.streams, ELSEWHERE)[0] for t, p in sent if t == 30]  # type: ignore[arg-type]
    batches = [batch for _, target, batch, _, _ in sender.come() if target == 30]
    come: list[int] = [row.f0 for batch in [*batches, *by_itself] for row in wire.rows_of(batch)]  # type: ignore[arg-type]
    return come + [row.f0 for row in second.outs[30].rows]


def test_what_goes_in_parcels_goes_once() -> None:
    assert parcelled(Sender()) == [0, 1, 2, 3]


def test_a_hook_that_is_told_between_two_parcels_is_found() -> None:
    """Planted fault."""

    class AtOnce(list[Any]):
        def append(self, gone: Any) -> None:
            outputs, *of = gone
            outputs.count(*of)

    sender = Sender()
    sender.parcels._gone = AtOnce()
    assert parcelled(sender) != [0, 1, 2, 3]


class Answers(TaskHook):
    """Has something emitted to who comes first among the targets as it hears of what is for who comes last."""

    here: Any

    def on_emit(self, context: Any, stream: str, count: int) -> None:
        if stream == "main":
            Answers.here.emit_to("audit", count)


class Ends(Spout):
    """Emits three tuples, and that is all."""

    outputs = {"main": Fields(n=int), "audit": Fields(n=int)}  # noqa: RUF012

    def prepare(self, context: Any) -> None:
        Answers.here = self

    def next_tuple(self) -> float | None:
        for n in range(3):
            self.emit_to("main", n)
        self.exhausted()
        return None


class Sums(Bolt):
    got: collections.Counter[int] = collections.Counter()  # noqa: RUF012

    def execute(self, tup: Any) -> None:
        Sums.got[tup.n] += 1


class Nothing(Bolt):
    def execute(self, tup: Any) -> None: ...


def hooked(name: str, spout: Spout, hook: TaskHook, **config: Any) -> Any:
    """Who is told of what is emitted to `main`, the last of the targets, has something emitted to `audit`, the first."""
    b = TopologyBuilder(name, **config)
    b.spout("src", spout).hook(hook)
    b.bolt("audit", Sums()).shuffle("src", stream="audit")
    b.bolt("main", Nothing()).shuffle("src", stream="main")
    return b.build()


def answered(workers: int) -> int:
    """How much came of what was emitted as the last of all was handed on."""
    Sums.got = collections.Counter()
    topology = hooked("answered", Ends(), Answers(), linger=5.0)
    with InProcess(topology, workers) as run:
        run.wait_finished()
    return sum(Sums.got.values())


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_emitted_as_the_last_is_handed_on_comes_before_the_end(workers: int) -> None:
    assert answered(workers) == 1


def left_behind() -> bool:
    """Whether something waits still when all was handed on: a task that stood still then would leave it where it was."""
    topology = hooked("left", Rests(), Answers())
    with InProcess(topology, 1) as run:
        task = run.workers[0].tasks[1]
        run.wait(lambda: task.prepared and task.executor is not None)
        done, waits = threading.Event(), list[bool]()

        def act() -> None:
            task.component.emit_to("main", 1)  # type: ignore[attr-defined]
            task.executor.hand_on(task, task.outputs.flush_all)  # type: ignore[union-attr]
            waits.append(task.outputs.pending())
            done.set()

        task.call(act)
        assert done.wait(SOON)
    return waits[0]


class Rests(Ends):
    def next_tuple(self) -> float | None:
        return 3600.0


def test_nothing_is_left_when_all_is_handed_on() -> None:
    assert not left_behind()


def test_what_a_hook_leaves_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: all is handed on once."""
    monkeypatch.setattr(outputs, "ANSWERS", 1)
    assert left_behind()


class AnswersAll(TaskHook):
    """Has something emitted whatever it hears of."""

    times = 0

    def on_emit(self, context: Any, stream: str, count: int) -> None:
        AnswersAll.times += 1
        Answers.here.emit_to("audit", count)


def test_a_task_whose_hook_answers_itself_stands_still_all_the_same() -> None:
    """It is said that something is left: what comes of that is for nobody else to know."""
    AnswersAll.times = 0
    topology = hooked("answers-all", Rests(), AnswersAll(), linger=5.0)
    with InProcess(topology, 1) as run:
        task = run.workers[0].tasks[1]
        run.wait(lambda: task.prepared and task.executor is not None)
        stands = threading.Event()
        task.call(lambda: task.component.emit_to("main", 1))  # type: ignore[attr-defined]
        task.executor.stop_task(task, stands.set)  # type: ignore[union-attr]
        assert stands.wait(SOON) and task.stopped
        assert 0 < AnswersAll.times <= 2 * outputs.ANSWERS
        assert "hook-answers-itself" in [e.kind for e in run.events]
        task.go_on()
