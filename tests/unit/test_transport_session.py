"""The two ends of a session over a pipe that breaks anywhere: once, in order, within bounds, and nobody waits for ever.

The machine knows what was accepted and what arrived, and compares. Each planted bug must make it fail.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from elastic.errors import TupleTooLarge
from elastic.transport.base import SEVERAL, Buffer, Share, TransportOptions
from elastic.transport.framing import (
    ALL_TARGETS,
    HEADER_SIZE,
    TOTALS,
    UNBOUNDED,
    ProtocolError,
    Report,
    Request,
    Splitter,
    request,
)
from elastic.transport.inbound import Inbound
from elastic.transport.session import Outbound

WINDOW, IN_FLIGHT, LARGEST, ROWS = 100, 160, 400, 30
OPTIONS = TransportOptions(window=WINDOW, in_flight=IN_FLIGHT, max_frame=LARGEST, window_rows=ROWS)
TASKS = (1, 2)
targets = st.sampled_from(TASKS)
sizes = st.one_of(st.integers(0, 30), st.integers(0, 120), st.integers(WINDOW // 2, LARGEST))
rows_of = st.one_of(st.just(0), st.integers(0, 8), st.integers(ROWS // 2, 2 * ROWS))


class SessionMachine(RuleBasedStateMachine):
    outbound_type: type[Outbound] = Outbound
    inbound_type: type[Inbound] = Inbound

    def __init__(self) -> None:
        super().__init__()
        self.out = self.outbound_type(OPTIONS, "peer")
        self.into = self.inbound_type(WINDOW, IN_FLIGHT, ROWS)
        self.accepted: list[tuple[int, bytes]] = []
        self.arrived: list[tuple[int, bytes]] = []
        self.queued: dict[int, deque[tuple[int, int]]] = {t: deque() for t in TASKS}
        # (number, size) of what arrived and was not consumed
        self.shares: list[dict[int, tuple[int, int]]] = []  # of every accepted frame, bytes and rows by task
        self.wants: dict[int, int] = {}  # refused, and not told of room: target -> size
        self.up = False
        self.wire = b""
        self.back: list[Report] = []
        self.splitter = Splitter(LARGEST)
        self.serial = 0
        self.urgent: set[int] = set()  # numbers of the urgent frames
        self.asked: list[int] = []  # how many frames had been accepted at each `when_received`
        self.called: list[int] = []  # which of those were called

    # the sender

    @rule(task=targets, size=sizes, rows=rows_of)
    def offer(self, task: int, size: int, rows: int) -> None:
        self.serial += 1
        content = self.serial.to_bytes(4, "big") * (size // 4 + 1)
        payload: Sequence[Buffer] = [content[: size // 2], memoryview(content)[size // 2 : size]]
        held, held_rows = self.held(task)
        if self.out.offer(task, payload, rows=rows):
            assert not held or held + size <= WINDOW
            assert not rows or not held_rows or held_rows + rows <= ROWS
            self.accepted.append((task, content[:size]))
            self.shares.append({task: (size, rows)})
            self.wants.pop(task, None)
        else:
            self.wants[task] = size

    @rule(task=targets, size=st.integers(0, 40))
    def offer_urgent(self, task: int, size: int) -> None:
        self.serial += 1
        content = self.serial.to_bytes(4, "big") * 10
        assert self.out.offer(task, [content[:size]], urgent=True)
        self.accepted.append((task, content[:size]))
        self.shares.append({task: (size, 0)})
        self.urgent.add(len(self.accepted))

    @rule(parts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=2, max_size=2))
    def offer_together(self, parts: list[tuple[int, int]]) -> None:
        """One frame for both tasks; it is refused where one of them has no room, and then nothing has happened."""
        self.serial += 1
        content = self.serial.to_bytes(4, "big") * 25
        size = sum(part for part, _ in parts)
        shares = dict(zip(TASKS, parts, strict=True))
        held = {task: self.held(task) for task in TASKS}
        before = self.out.last, {task: self.out.outstanding(task) for task in TASKS}
        given: list[Share] = [(task, *share) for task, share in shares.items()]
        if self.out.offer_together(given, [content[:size]]):
            for task, (part, rows) in shares.items():
                assert held[task][0] + part <= WINDOW and held[task][1] + rows <= ROWS
                assert task not in self.wants, "somebody waits there for room"
            self.accepted.append((SEVERAL, content[:size]))
            self.shares.append(shares)
        else:
            assert before == (self.out.last, {task: self.out.outstanding(task) for task in TASKS})

    @rule()
    def ask_when_received(self) -> None:
        mark = len(self.asked)
        self.asked.append(len(self.accepted))
        if not self.out.when_received(partial(self.called.append, mark)):
            self.called.append(mark)

    @rule(task=targets, size=st.integers(10, 50), rows=rows_of)
    def fill(self, task: int, size: int, rows: int) -> None:
        while task not in self.wants:
            self.offer(task, size, rows)

    @rule(task=targets, rows=st.integers(1, 20))
    def fill_with_rows(self, task: int, rows: int) -> None:
        while task not in self.wants:
            self.offer(task, 1, rows)

    @rule()
    def write(self) -> None:
        data = b"".join(self.out.take())
        if self.up:
            self.wire += data
        else:
            assert not data
        self.told([])

    @precondition(lambda self: self.back)
    @rule(count=st.integers(1, 5))
    def hear(self, count: int) -> None:
        for report in self.back[:count]:
            self.told(self.out.reported(*report))
        del self.back[:count]

    def told(self, room: list[int]) -> None:
        for target in room:
            self.wants.pop(target, None)
        for call in self.out.due():
            call()

    @precondition(lambda self: self.out.turn)
    @rule()
    def expire(self) -> None:
        self.told(self.out.expire())

    # the pipe

    @precondition(lambda self: self.up)
    @rule()
    def break_it(self) -> None:
        self.up = False
        self.wire, self.back = b"", []
        self.out.broken()

    @precondition(lambda self: not self.up)
    @rule()
    def make_it(self) -> None:
        self.up = True
        self.splitter = Splitter(LARGEST)
        self.told(self.out.resumed(self.into.received))
        self.back = self.into.resumed()

    # the receiver

    @precondition(lambda self: self.wire)
    @rule(size=st.integers(1, 300))
    def read(self, size: int) -> None:
        part, self.wire = self.wire[:size], self.wire[size:]
        frames = self.splitter.feed(part)
        for target, payload in frames:
            self.arrived.append((target, bytes(payload)))
            number = len(self.arrived)
            known = number <= len(self.shares)
            for task, (charged, _) in (
                self.shares[number - 1] if known else {target: (len(payload), 0)}
            ).items():
                self.queued[task].append((number, charged))
        due = self.into.arrived(len(frames), len(part))
        for _, target, body in self.splitter.requests:
            due = self.into.asked(target, *TOTALS.unpack(body)) or due
        self.splitter.requests.clear()
        if due:
            self.report()

    @precondition(lambda self: self.up)
    @rule()
    def write_and_read(self) -> None:
        self.write()
        while self.wire:
            self.read(1000)

    @precondition(lambda self: any(self.queued.values()))
    @rule(task=targets)
    def consume_all(self, task: int) -> None:
        while self.queued[task]:
            self.consume(task)

    @precondition(lambda self: any(self.queued.values()))
    @rule(task=targets)
    def consume(self, task: int) -> None:
        if not self.queued[task]:
            return
        number, size = self.queued[task].popleft()
        assert number <= len(self.shares), "more came than was sent"
        if self.into.consumed(task, size, self.shares[number - 1][task][1]):
            self.report()

    def report(self) -> None:
        if self.up:
            self.back += self.into.report()

    @precondition(lambda self: self.into.owes)
    @rule()
    def confirm_after_a_while(self) -> None:
        self.report()

    def held(self, task: int) -> tuple[int, int]:
        """Bytes and rows for a task that were accepted and not consumed, urgent ones too."""
        there = {number for number, _ in self.queued[task]}
        there.update(range(len(self.arrived) + 1, len(self.accepted) + 1))
        shares = [self.shares[number - 1].get(task, (0, 0)) for number in there]
        return sum(size for size, _ in shares), sum(rows for _, rows in shares)

    # what must hold

    @invariant()
    def once_and_in_order(self) -> None:
        assert self.arrived == self.accepted[: len(self.arrived)]
        assert self.into.received == len(self.arrived)

    @invariant()
    def within_bounds(self) -> None:
        """Urgent frames may exceed the bounds; nothing else does."""
        here = len(self.arrived)
        missing = [
            (n, t, b) for n, (t, b) in enumerate(self.accepted[here:], here + 1) if n not in self.urgent
        ]
        assert sum(len(b) + HEADER_SIZE for _, _, b in missing) <= IN_FLIGHT or len(missing) == 1
        for target, queued in self.queued.items():
            held = [size for number, size in queued if number not in self.urgent]
            held += [self.shares[n - 1][target][0] for n, _, _ in missing if target in self.shares[n - 1]]
            assert sum(held) <= WINDOW or sum(1 for size in held if size) == 1

    @invariant()
    def called_once_and_in_time(self) -> None:
        assert self.called == list(range(len(self.called)))
        assert all(self.asked[mark] <= len(self.arrived) for mark in self.called)

    def teardown(self) -> None:
        """When everything is read, consumed and reported, whoever was refused has been told, and all room is there."""
        if not self.up:
            self.make_it()
        for _ in range(10):
            self.write()
            while self.wire:
                self.read(1000)
                self.write()
            if self.into.owes:
                self.confirm_after_a_while()
            for target in self.queued:
                while self.queued[target]:
                    self.consume(target)
            while self.back:
                self.hear(5)
            if self.out.turn:
                self.expire()
        assert self.arrived == self.accepted
        assert not self.wants, f"still waiting: {self.wants}"
        assert self.out.unconfirmed == (0, 0)
        assert len(self.called) == len(self.asked)
        for target in TASKS:
            if not self.out.offer(target, [bytes(WINDOW)], rows=ROWS):  # the sender may have to ask first
                self.wire += b"".join(self.out.take())
                while self.wire:
                    self.read(1000)
                self.report()
                while self.back:
                    self.hear(5)
                assert self.out.offer(target, [bytes(WINDOW)], rows=ROWS), f"a window of {target} has shrunk"
            self.wire += b"".join(self.out.take())
            while self.wire:
                self.read(1000)
            self.report()
            while self.back:
                self.hear(5)


SETTINGS = settings(max_examples=100, stateful_step_count=40, suppress_health_check=list(HealthCheck))


def test_session() -> None:
    run_state_machine_as_test(SessionMachine, settings=SETTINGS)


class ResendsOneTooFew(Outbound):
    def resumed(self, number: int) -> list[int]:
        return super().resumed(min(number + 1, self.last))


class ResendsOneTooMany(Outbound):
    def resumed(self, number: int) -> list[int]:
        return super().resumed(max(number - 1, self._first - 1))


class KeepsUnsentOverABreak(Outbound):
    def broken(self) -> None:
        unsent = self.unsent
        super().broken()
        self._kept = unsent

    def resumed(self, number: int) -> list[int]:
        room = super().resumed(number)
        self.unsent = [*getattr(self, "_kept", []), *self.unsent]
        return room


class LetsLargeFramesIn(Outbound):
    def offer(self, target: int, payload: Sequence[Buffer], urgent: bool = False, rows: int = 0) -> bool:
        window = self._windows.get(target)
        if window is not None and sum(map(len, payload)) > WINDOW:
            window.consumed = window.sent  # not only when it is empty
        return super().offer(target, payload, urgent, rows)


class ChargesOneOfSeveral(Outbound):
    def offer_together(self, shares: Sequence[Share], payload: Sequence[bytes]) -> bool:
        (first, _, _), *others = shares
        return super().offer_together([(first, sum(map(len, payload)), 0), *others], payload)


class ChargesWhatItRefuses(Outbound):
    def offer_together(self, shares: Sequence[Share], payload: Sequence[bytes]) -> bool:
        taken = super().offer_together(shares, payload)
        target, size, _ = shares[0]
        if not taken and target in self._windows:
            self._windows[target].sent += size
        return taken


class PassesWhoWaits(Outbound):
    def offer_together(self, shares: Sequence[Share], payload: Sequence[bytes]) -> bool:
        waiting = {w: w.waiting for w in self._waiting.values()}
        for window in waiting:
            window.waiting = -1
        taken = super().offer_together(shares, payload)
        for window, size in waiting.items():
            window.waiting = size
        return taken


class LetsUrgentFramesOvertake(Outbound):
    def offer(self, target: int, payload: Sequence[Buffer], urgent: bool = False, rows: int = 0) -> bool:
        taken = super().offer(target, payload, urgent, rows)
        if urgent and len(self._frames) > 1:
            last, before = self._frames.pop(), self._frames.pop()
            self._frames += [last, before]
            self.unsent = [b for _, frame in self._frames for b in frame] if self.unsent else self.unsent
        return taken


class DoesNotCountUrgentFrames(Outbound):
    def offer(self, target: int, payload: Sequence[Buffer], urgent: bool = False, rows: int = 0) -> bool:
        taken = super().offer(target, payload, urgent, rows)
        if urgent:
            self._windows[target].sent -= sum(map(len, payload))
        return taken


class CallsWhenItIsWritten(Outbound):
    def due(self) -> list[Callable[[], None]]:
        return self.abandon() if not self.unsent else super().due()


class ForgetsCallsInABreak(Outbound):
    def broken(self) -> None:
        super().broken()
        self._watchers.clear()


class CallsTwice(Outbound):
    def due(self) -> list[Callable[[], None]]:
        calls = super().due()
        return calls * 2


class AsksOnceAndRelies(Outbound):
    """As if whoever was refused always fitted as soon as what it asked for has come."""

    def _announce(self, target: int, window: Any) -> bool:
        asked, asks, unsent = window.asked, self.asks, list(self.unsent)
        told = super()._announce(target, window)
        window.asked, self.asks, self.unsent = asked, asks, unsent
        return told


class ForgetsWhoWaits(Outbound):
    def confirmed(self, number: int) -> list[int]:
        super().confirmed(number)
        return []


class NeverAsks(Outbound):
    def _ask_for_window(self, target: int, window: Any) -> None:
        pass


class IgnoresRows(Outbound):
    def __init__(self, options: TransportOptions, peer: str) -> None:
        super().__init__(options, peer)
        self._window_rows = UNBOUNDED


class AsksForBytesAlone(Outbound):
    def _ask_for_window(self, target: int, window: Any) -> None:
        asked, count = window.asked, len(self.unsent)
        super()._ask_for_window(target, window)
        if len(self.unsent) > count:
            self.unsent[-1:] = (
                [request(Request.ASK, target, TOTALS.pack(window.asked, 0))] if window.asked > asked else []
            )


class KeepsReservationsForEver(Outbound):
    def expire(self) -> list[int]:
        self.turn = False
        return self._room()


class ConfirmsBeforeItHasIt(Inbound):
    def arrived(self, frames: int, size: int) -> bool:
        return super().arrived(frames + (1 if size and not frames else 0), size)


class ForgetsWhatWasAsked(Inbound):
    def report(self) -> list[Report]:
        for taken in self._targets.values():
            taken.asked = taken.rows_asked = 0
        return super().report()


class AnswersHalfOfWhatIsAsked(Inbound):
    """When the bytes have been consumed, as if it had been asked for them alone."""

    def asked(self, target: int, total: int, rows: int) -> bool:
        return super().asked(target, total, 0)


@pytest.mark.parametrize(
    "bug",
    [
        ResendsOneTooFew,
        ResendsOneTooMany,
        KeepsUnsentOverABreak,
        LetsLargeFramesIn,
        ChargesOneOfSeveral,
        ChargesWhatItRefuses,
        PassesWhoWaits,
        LetsUrgentFramesOvertake,
        DoesNotCountUrgentFrames,
        CallsWhenItIsWritten,
        ForgetsCallsInABreak,
        CallsTwice,
        AsksOnceAndRelies,
        ForgetsWhoWaits,
        NeverAsks,
        KeepsReservationsForEver,
        ConfirmsBeforeItHasIt,
        ForgetsWhatWasAsked,
        AnswersHalfOfWhatIsAsked,
        IgnoresRows,
        AsksForBytesAlone,
    ],
)
def test_a_planted_bug_is_found(bug: type[Outbound] | type[Inbound]) -> None:
    class Machine(SessionMachine):
        outbound_type = bug if issubclass(bug, Outbound) else Outbound
        inbound_type = bug if issubclass(bug, Inbound) else Inbound

    with pytest.raises((AssertionError, ProtocolError)):
        for seed in range(20_000):
            run_at_random(Machine(), random.Random(seed))


def run_at_random(machine: SessionMachine, chance: random.Random) -> None:
    """One run without Hypothesis: it finds as much, much sooner, and makes nothing smaller."""

    def task() -> int:
        return chance.choice(TASKS)

    def rows() -> int:
        return chance.choice((0, chance.randrange(9), chance.randrange(ROWS // 2, 2 * ROWS)))

    def size() -> int:
        return chance.choice((chance.randrange(30), chance.randrange(120), chance.randrange(50, LARGEST)))

    def part() -> int:
        return chance.choice((0, chance.randrange(40)))

    def few() -> int:
        return chance.randrange(12)

    steps: list[tuple[Callable[[], bool], Callable[[], None]]] = [
        (lambda: True, lambda: machine.offer(task(), size(), rows())),
        (lambda: True, lambda: machine.offer_urgent(task(), chance.randrange(40))),
        (lambda: True, lambda: machine.offer_together([(part(), few()), (part(), few())])),
        (lambda: True, machine.ask_when_received),
        (lambda: True, lambda: machine.fill(task(), chance.randrange(10, 50), rows())),
        (lambda: True, lambda: machine.fill_with_rows(task(), chance.randrange(1, 20))),
        (lambda: True, machine.write),
        (lambda: bool(machine.back), lambda: machine.hear(chance.randrange(1, 5))),
        (lambda: machine.out.turn, machine.expire),
        (lambda: machine.up, machine.break_it),
        (lambda: not machine.up, machine.make_it),
        (lambda: bool(machine.wire), lambda: machine.read(chance.randrange(1, 300))),
        (lambda: machine.up, machine.write_and_read),
        (lambda: True, lambda: machine.consume_all(task())),
        (lambda: True, lambda: machine.consume(task())),
        (lambda: machine.into.owes, machine.confirm_after_a_while),
    ]
    for _ in range(chance.randrange(1, 40)):
        may, step = chance.choice(steps)
        if may():
            step()
            machine.once_and_in_order()
            machine.within_bounds()
            machine.called_once_and_in_time()
    machine.teardown()


def test_session_at_random() -> None:
    for seed in range(1000):
        run_at_random(SessionMachine(), random.Random(f"a {seed}"))


def test_a_frame_that_is_too_large_names_the_task_and_takes_nothing() -> None:
    out = Outbound(OPTIONS, "words@n/1#4")
    with pytest.raises(TupleTooLarge, match=r"401 bytes for task 7 at words@n/1#4"):
        out.offer(7, [bytes(401)])
    assert out.unconfirmed == (0, 0)


def test_buffers_of_any_item_size_are_counted_in_bytes() -> None:
    out = Outbound(OPTIONS, "peer")
    numbers: Any = memoryview(bytes(80)).cast("d")
    assert out.offer(1, [numbers, b"x"])
    assert out.unconfirmed == (1, 81)


def test_a_large_frame_is_not_overtaken_for_ever() -> None:
    """Small frames to other tasks keep the link busy; the large one reserves its turn."""
    out = Outbound(OPTIONS, "peer")
    out.resumed(0)
    assert out.offer(1, [bytes(90)])
    assert not out.offer(2, [bytes(300)])
    assert not out.offer(3, [bytes(5)])  # would fit, but may not overtake
    assert out.confirmed(1) == [2]
    assert not out.offer(3, [bytes(5)])
    assert out.offer(2, [bytes(300)])
    assert out.confirmed(2) == [3]


def test_a_reservation_that_is_not_used_expires() -> None:
    out = Outbound(OPTIONS, "peer")
    out.resumed(0)
    assert out.offer(1, [bytes(90)])
    assert not out.offer(2, [bytes(300)])
    assert not out.offer(3, [bytes(5)])
    assert out.confirmed(1) == [2]
    assert out.turn
    assert out.expire() == [3]
    assert out.offer(3, [bytes(5)])


def test_a_reservation_keeps_nobody_out_once_an_urgent_frame_takes_its_room() -> None:
    out = Outbound(OPTIONS, "peer")
    out.resumed(0)
    assert out.offer(1, [b""])
    assert not out.offer(1, [bytes(IN_FLIGHT - HEADER_SIZE - 1)])
    assert out.confirmed(1) == [1]
    assert not out.offer(2, [b"x"])
    assert out.offer(1, [b"fence"], urgent=True)
    assert out.offer(2, [b"x"])
    assert out.turn
    assert out.expire() == [2]


def test_a_smaller_frame_does_not_hide_for_what_a_large_one_waits() -> None:
    """Both are for one target; what the receiver was asked for on behalf of the large one got lost with the pipe."""
    out = Outbound(OPTIONS, "peer")
    out.resumed(0)
    assert out.offer(1, [bytes(100)])
    assert not out.offer(2, [bytes(78)])  # too much in flight
    assert out.offer(2, [bytes(29)], urgent=True)
    assert out.confirmed(2) == []  # and now its window is too full
    out.broken()
    assert not out.offer(2, [bytes(10)])  # would fit, but may not overtake
    assert out.resumed(2) == []
    assert out.take() == [request(Request.ASK, 2, TOTALS.pack(7, 0))]
    assert out.reported(2, 29, 0) == [2]
    assert out.offer(2, [bytes(78)])


def test_a_question_is_asked_again_over_the_next_pipe() -> None:
    out = Outbound(OPTIONS, "peer")
    assert not out.when_received(lambda: None)
    out.resumed(0)
    assert out.offer(1, [b"x"])
    for _ in range(3):
        assert out.when_received(lambda: None)
    question = request(Request.ASK, ALL_TARGETS, TOTALS.pack(1, 0))
    assert out.take()[-1:] == [question]  # once
    out.broken()
    out.resumed(0)
    assert out.take()[-1:] == [question]
    out.broken()
    out.resumed(1)
    assert out.take() == []
    assert len(out.due()) == 3
    assert out.due() == []
