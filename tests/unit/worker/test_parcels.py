"""Parcels: what goes over many links in one frame arrives as if each link had sent its own, and what cannot go along is left as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.migration import events as ev
from elastic.migration.emitter import Emitter
from elastic.model.ids import Incarnation
from elastic.transport.link import BaseLink
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.emitting.parcels import FEWEST, MOST, REFUSED, Parcels
from elastic.worker.tuples import wire
from tests.unit.worker.harness import InProcess
from tests.unit.worker.test_wire_exact import stream_of

ME, THERE, ELSEWHERE = Incarnation("w#1"), Incarnation("v#1"), Incarnation("u#1")
LIFE = 5
BOUND = 30.0


class _Way:
    """To another worker."""

    def __init__(self) -> None:
        self.room = True
        self.taken: list[tuple[dict[int, tuple[int, int]], bytes]] = []

    def offer_together(self, shares: Any, payload: Any) -> bool:
        if self.room:
            self.taken.append(({t: (size, rows) for t, size, rows in shares}, b"".join(payload)))
        return self.room


class _Streams:
    """One stream, whatever its number."""

    def __init__(self, stream: Any) -> None:
        self.by_kind = {stream.kind: stream}
        self._stream = stream

    def __getitem__(self, index: int) -> Any:
        assert index == self._stream.index
        return self._stream


class Sender:
    """Tasks of one executor, each with its links, and what has come of what they handed on."""

    def __init__(self, *fields: Any) -> None:
        self.stream = stream_of(*(fields or (int, str)))
        self.streams = _Streams(self.stream)
        self.ways = {THERE: _Way(), ELSEWHERE: _Way()}
        self.written: list[Any] = []
        self.outputs: list[Any] = []
        self.parcels = Parcels(SimpleNamespace(written=self.written.append))  # type: ignore[arg-type]

    def task(self, source: int, targets: dict[int, int], where: Incarnation = THERE) -> Any:
        """A task that has emitted so many tuples to each target."""
        one: Any = Outputs.__new__(Outputs)
        one.task, one.emitted, one.gate, one.me = source, 0, threading.RLock(), ME
        one._on_emit, one._beside, one._streams = None, False, self.streams
        one._crossing = SimpleNamespace(link=self.ways.get)
        one.outs = {}
        for target, count in targets.items():
            link = Emitter(source, target, LIFE, 100)
            link.handle(ev.Resume(source, target, where))
            link.left(source)  # each has come as far as it has
            rows = [self.stream.kind(n, f"{source} to {target}") for n in range(count)]
            one.outs[target] = SimpleNamespace(
                link=link, rows=rows, mixed=False, handing=0, tuples=0, bytes=0,
                destination=SimpleNamespace(task=target),
            )  # fmt: skip
        one.list = list(one.outs.values())
        self.outputs.append(one)
        return one

    def hand_on(self) -> bool:
        return self.parcels.hand_on(self.outputs)

    def left(self) -> dict[tuple[int, int], int]:
        """How many tuples still wait, by link."""
        return {
            (o.task, out.destination.task): len(out.rows) for o in self.outputs for out in o.list if out.rows
        }

    def come(self) -> Iterator[tuple[Incarnation, int, Any, int, int]]:
        """What has come where: target, batch, life and first position, as it is read there."""
        for where, way in self.ways.items():
            for shares, payload in way.taken:
                charged: dict[int, tuple[int, int]] = {}
                for target, batch, life, first in wire.parcel_in(memoryview(payload), self.streams, ME):  # type: ignore[arg-type]
                    size, rows = charged.get(target, (0, 0))
                    charged[target] = (size + batch.size, rows + batch.credit)
                    yield where, target, batch, life, first
                assert charged == shares, "what comes back is what was charged"


def check(sender: Sender, emitted: dict[tuple[int, int], list[Any]]) -> None:
    """All of it is either there, in order and behind what had left before, or still waits; and what is counted is what has left."""
    come: dict[tuple[int, int], list[Any]] = {}
    positions = {link: link[0] for link in emitted}
    for _, target, batch, life, first in sender.come():
        link = (batch.source, target)
        assert (life, first) == (LIFE, positions[link] + 1)
        positions[link] += batch.count
        rows = wire.rows_of(batch)
        assert len(rows) == batch.count == batch.weight
        come.setdefault(link, []).extend(rows)
    for one in sender.outputs:
        for out in one.list:
            link = (one.task, out.destination.task)
            assert come.get(link, []) + out.rows == emitted[link]
            assert out.link.sent == positions[link]
            assert out.tuples == len(come.get(link, []))
        assert one.emitted == sum(out.tuples for out in one.list)


def emitted_by(sender: Sender) -> dict[tuple[int, int], list[Any]]:
    return {(o.task, out.destination.task): list(out.rows) for o in sender.outputs for out in o.list}


TASKS = st.dictionaries(
    st.integers(1, 8),
    st.dictionaries(st.integers(20, 30), st.integers(0, 40), max_size=8),
    min_size=1,
    max_size=8,
)


@given(
    TASKS,
    st.sets(st.integers(1, 8)),
    st.sets(st.integers(20, 30)),
    st.sampled_from(["all", "few rows in one", "no room"]),
)
def test_it_arrives_as_if_each_link_had_sent_its_own(
    tasks: dict[int, dict[int, int]], elsewhere: set[int], holding: set[int], case: str
) -> None:
    sender = Sender()
    for source, targets in tasks.items():
        one = sender.task(source, targets, ELSEWHERE if source in elsewhere else THERE)
        for out in one.list:
            if out.destination.task in holding:
                out.link.handle(ev.Detach(source, out.destination.task))
    if case == "few rows in one":
        sender.parcels._most[sender.stream] = 50
    sender.ways[THERE].room = case != "no room"
    emitted = emitted_by(sender)
    sender.hand_on()
    check(sender, emitted)


def some(count: int = FEWEST, rows: int = 2) -> tuple[Sender, Any]:
    """A task that has emitted to so many others."""
    sender = Sender()
    return sender, sender.task(3, {10 + n: rows for n in range(count)})


def test_one_frame_for_all_targets_of_a_task_and_one_for_all_sources_of_a_target() -> None:
    sender, _ = some(100)
    assert sender.hand_on()
    assert (len(sender.ways[THERE].taken), sender.left(), len(sender.written)) == (1, {}, 1)
    sender = Sender()
    for source in range(1, 65):
        sender.task(source, {99: 6})
    assert sender.hand_on()
    ((shares, _),) = sender.ways[THERE].taken
    assert list(shares) == [99] and shares[99][1] == 64 * 6


def test_what_is_more_than_a_parcel_goes_in_several() -> None:
    sender, _ = some(100, 30)
    emitted = emitted_by(sender)
    sender.hand_on()
    assert len(sender.ways[THERE].taken) == -(-100 * 30 // (MOST // 30 * 30))
    check(sender, emitted)
    assert not sender.left()


def test_for_who_has_no_room_none_is_made_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, one = some(8)
    sender.ways[THERE].room = False
    encoded = 0
    packed = wire.packed

    def counted_too(stream: Any, rows: list[Any]) -> bytes | None:
        nonlocal encoded
        encoded += 1
        return packed(stream, rows)

    monkeypatch.setattr(wire, "packed", counted_too)
    for _ in range(2 * (1 + REFUSED)):
        assert not sender.hand_on()
    assert encoded == 2
    sender.ways[THERE].room = True
    sender.hand_on()
    elsewhere = sender.task(4, dict.fromkeys(range(10, 20), 1), ELSEWHERE)
    for out in one.list:
        out.rows.append(sender.stream.kind(0, "more"))
    sender.ways[THERE].room = False
    sender.hand_on()
    assert not any(out.rows for out in elsewhere.list), "others are not meant"
    sender.ways[THERE].room = True
    for _ in range(REFUSED):
        assert not sender.hand_on()
    assert sender.hand_on() and not sender.left()


@pytest.mark.parametrize(
    "case", ["few", "here", "holds", "mixed", "within it", "asked of", "misfit", "unknown"]
)
def test_all_else_is_left_for_who_knows_what_to_do(case: str) -> None:
    sender, one = some(FEWEST - 1 if case == "few" else FEWEST)
    for out in one.list:
        if case == "here":
            out.link.where = ME
        elif case == "holds":
            out.link.handle(ev.Detach(3, out.destination.task))
        out.mixed, out.handing = case == "mixed", int(case == "within it")
    if case == "misfit":
        one.list[0].rows[0] = sender.stream.kind(True, "not an int")
    elif case == "unknown":
        sender.ways.clear()
    before = sender.left()
    free = threading.Event()
    if case == "asked of":  # somebody asks its links of something at this moment
        held = threading.Event()
        asks = threading.Thread(target=_hold, args=(one.gate, held, free), daemon=True)
        asks.start()
        assert held.wait(BOUND)
    gone = sender.hand_on()
    free.set()
    assert not gone
    assert sender.left() == before and one.emitted == 0 and not sender.written
    assert [out.link.sent for out in one.list] == [3] * len(one.list)
    if case == "asked of":
        asks.join(BOUND)
        assert one.gate.acquire(blocking=False), "its gate is free"


def _hold(gate: threading.RLock, held: threading.Event, free: threading.Event) -> None:
    with gate:
        held.set()
        free.wait(BOUND)


def test_a_link_that_is_stopped_just_before_takes_nobody_along(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, one = some(8)
    packed = wire.packed

    def stopped_meanwhile(stream: Any, rows: list[Any]) -> bytes | None:
        one.list[5].link.handle(ev.Detach(3, 15))
        return packed(stream, rows)

    monkeypatch.setattr(wire, "packed", stopped_meanwhile)
    emitted = emitted_by(sender)
    assert not sender.hand_on()
    check(sender, emitted)
    assert one.gate.acquire(blocking=False)


class _Emptied(list[Any]):
    """A buffer that is emptied, as its task is taken away, when it has been looked at so many times."""

    def __init__(self, rows: list[Any], looks: int, then: Callable[[], None]) -> None:
        super().__init__(rows)
        self._looks, self._then = looks, then

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self._looked()
        return found

    def __len__(self) -> int:
        found = super().__len__()
        self._looked()
        return found

    def _looked(self) -> None:
        self._looks -= 1
        if not self._looks:
            self._then()
            self.clear()


@pytest.mark.parametrize("looks", range(1, 4))
def test_a_task_that_is_taken_away_meanwhile_takes_what_it_has_emitted_along(looks: int) -> None:
    sender, one = some(8)
    gone = one.list[5]

    def taken_away() -> None:
        gone.link = None

    gone.rows = _Emptied(gone.rows, looks, taken_away)
    sender.hand_on()
    if gone.link is None:
        assert not any(target == 15 for _, target, *_ in sender.come())
        assert gone.tuples == 0 and not gone.rows
    else:
        assert gone.tuples == 2


def test_large_tuples_are_tried_in_fewer_and_fewer_and_more_again_when_they_fit() -> None:
    sender = Sender()
    one = sender.task(3, dict.fromkeys(range(10, 74), 1))
    for out in one.list:
        out.rows[0] = sender.stream.kind(1, "x" * (wire.SPLIT // 16))
    while not sender.hand_on():
        assert len(sender.left()) == 64
    assert not sender.left()
    few = sender.parcels._most[sender.stream]
    assert FEWEST <= few < 16
    for out in one.list:
        out.rows[:] = [sender.stream.kind(1, "small")]
    sender.hand_on()
    assert sender.parcels._most[sender.stream] > few


def test_of_a_stream_of_which_too_few_fit_it_is_tried_again() -> None:
    sender, _ = some(8)
    sender.parcels._most[sender.stream] = 1
    tried = 0
    while not sender.hand_on():
        tried += 1
        assert tried < 10
    assert not sender.left()


class Bursts(Spout):
    """Rests after each hundred: what waits is handed on in between."""

    outputs = Fields(key=int, number=int)

    def __init__(self, count: int, keys: int) -> None:
        self.count, self.keys, self.number = count, keys, 0

    def next_tuple(self) -> float | None:
        if self.number == self.count:
            self.exhausted()
            return None
        for n in range(self.number, self.number + 100):
            self.emit(n % self.keys, n)
        self.number += 100
        return 0.002


class Pass(Bolt):
    outputs = Fields(key=int, number=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.key, tup.number)


class Collect(Bolt):
    seen: list[tuple[int, int]]

    def execute(self, tup: Any) -> None:
        self.seen.append((tup.key, tup.number))


def counted(monkeypatch: pytest.MonkeyPatch) -> int:
    """A topology of many tasks in two workers runs to its end; how many parcels went."""
    parcels = 0
    offer = BaseLink.offer_together

    def together(self: BaseLink, shares: Any, payload: Any) -> bool:
        nonlocal parcels
        taken = offer(self, shares, payload)
        parcels += taken
        return taken

    monkeypatch.setattr(BaseLink, "offer_together", together)
    Collect.seen = []
    b = TopologyBuilder("many", workers=2)
    b.spout("numbers", Bursts(3000, keys=500))
    b.bolt("pass", Pass(), tasks=40, executors=2).fields("numbers", "key")
    b.bolt("collect", Collect()).all_to_one("pass")
    with InProcess(b.build(), 2, lambda component, index: int(component == "pass")) as run:
        run.wait_finished()
    return parcels


def test_many_tasks_of_another_worker_get_theirs_in_parcels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(monkeypatch) > 1
    assert sorted(n for _, n in Collect.seen) == list(range(3000))
    for key in range(500):
        numbers = [n for k, n in Collect.seen if k == key]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("fault", ["positions", "shares", "order", "twice"])
def test_a_parcel_that_is_wrong_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted faults."""
    if fault == "positions":
        parcel = wire.parcel
        monkeypatch.setattr(
            wire, "parcel", lambda s, entries: parcel(s, [(*e[:4], e[4] + (e[0] == 20)) for e in entries])
        )
    elif fault == "shares":
        offer = Parcels._offer
        monkeypatch.setattr(
            Parcels,
            "_offer",
            lambda p, w, s, lot, sizes, body: offer(p, w, s, lot, [n + 1 for n in sizes], body),
        )
    elif fault == "order":
        packed = wire.packed
        monkeypatch.setattr(wire, "packed", lambda s, rows: packed(s, rows[::-1]))
    else:
        monkeypatch.setattr(Emitter, "left", lambda self, count: self.sent + 1)
    sender = Sender()
    for source in (1, 2, 3, 4):
        sender.task(source, {20: 3, 21: 5, 22: 1})
    emitted = emitted_by(sender)
    with pytest.raises(AssertionError):
        for _ in range(2):
            sender.hand_on()
            check(sender, emitted)
            for one in sender.outputs:
                for out in one.list:
                    out.rows.append(sender.stream.kind(0, "more"))
                    emitted[one.task, out.destination.task].append(out.rows[-1])
