"""How often a worker measures itself: as it was told, and more rarely where that would cost too much."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterator

import pytest

from elastic.cluster import worker_voice
from elastic.cluster.worker_voice import SHARE, Voice
from elastic.model import codec
from elastic.model.events import Event
from elastic.model.load import PairLoad, WorkerReport
from elastic.supervisor.messages import Messages, Stacks


class Costly:
    """A measurer that takes so many CPU seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def report(self) -> WorkerReport:
        until = time.thread_time() + self.seconds
        while time.thread_time() < until:
            pass
        return WorkerReport("t", "t@n/0", "t@n/0#1", 1.0, 1, pairs=(PairLoad(1, 2, 3),))


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def test_a_report_that_costs_much_makes_reports_rarer(pipe: tuple[int, int]) -> None:
    costly = Costly(0.01)
    voice = Voice(pipe[1], costly, 1.0)  # type: ignore[arg-type]
    assert voice._report() == 1.0, "once is no habit: what is loaded for the first report is not measuring"
    assert voice._report() >= 0.01 / SHARE
    costly.seconds = 0.0
    assert voice._report() == 1.0
    (found, *_) = Messages().feed(os.read(pipe[0], 1 << 16))
    assert found == WorkerReport("t", "t@n/0", "t@n/0#1", 1.0, 1, pairs=(PairLoad(1, 2, 3),))


def test_a_worker_without_that_bound_would_be_found(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_voice, "SHARE", 1e9)
    with pytest.raises(AssertionError):
        test_a_report_that_costs_much_makes_reports_rarer(pipe)


def test_measurements_that_are_too_many_come_without_the_pairs_of_tasks(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    measurer = Costly(0.0)
    bare = WorkerReport("t", "t@n/0", "t@n/0#1", 1.0, 1)
    size = len(codec.encode({"report": bare}))
    monkeypatch.setattr(worker_voice, "MAX_MESSAGE", size)
    voice = Voice(pipe[1], measurer, 1.0)  # type: ignore[arg-type]
    messages = Messages()
    os.set_blocking(pipe[0], False)
    voice._report()
    assert messages.feed(os.read(pipe[0], 1 << 16)) == [bare]
    monkeypatch.undo()
    voice._report()
    assert messages.feed(os.read(pipe[0], 1 << 16)) == [bare], "else all that was sent so far would look new"


def test_measuring_that_does_not_return_holds_up_no_event(pipe: tuple[int, int]) -> None:
    """A gauge's function may wait for a service: what is stuck, and stacks, are to be told all the more."""
    measuring, release = threading.Event(), threading.Event()

    class Waits(Costly):
        def report(self) -> WorkerReport:
            measuring.set()
            release.wait(60)
            return super().report()

    voice = Voice(pipe[1], Waits(0.0), 0.001)  # type: ignore[arg-type]
    voice.start()
    try:
        assert measuring.wait(60)
        voice.say(Event(1.0, "executor-stuck", ""))
        voice.tell_stacks("here")
        got: list[object] = []
        messages = Messages()
        while len(got) < 2:
            assert select.select([pipe[0]], [], [], 60)[0]
            got += messages.feed(os.read(pipe[0], 1 << 16))
        assert got == [Event(1.0, "executor-stuck", ""), Stacks("here")]
    finally:
        release.set()
        voice.close()


def test_the_last_that_is_told_is_a_measurement(pipe: tuple[int, int]) -> None:
    voice = Voice(pipe[1], Costly(0.0), 1000.0)  # type: ignore[arg-type]
    voice.start()
    voice.say(Event(1.0, "executor-failed", ""))
    voice.close()
    found = Messages().feed(os.read(pipe[0], 1 << 16))
    assert [type(f) for f in found] == [Event, WorkerReport]


def test_the_steps_of_a_move_are_told_together_and_none_is_left(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = os.write

    def counted(fd: int, data: memoryview) -> int:
        writes.append(fd)
        return write(fd, data)

    monkeypatch.setattr(worker_voice.os, "write", counted)
    voice = Voice(pipe[1], Costly(0.0), 1000.0)  # type: ignore[arg-type]
    voice.start()
    for n in range(100):
        voice.say(Event(float(n), "move-step", "Task 1 is paused."))
    got: list[object] = []
    messages = Messages()
    while len(got) < 100:  # they come without another word
        got += messages.feed(os.read(pipe[0], 1 << 16))
    voice.say(Event(100.0, "move-step", "Task 1 is stopped."))
    voice.close()
    got += messages.feed(os.read(pipe[0], 1 << 16))
    assert [m.time for m in got if isinstance(m, Event)] == [float(n) for n in range(101)]
    assert len(writes) < 20


def test_many_steps_do_not_wait_for_more(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_voice, "STEPS", 1000.0)
    monkeypatch.setattr(worker_voice, "STEPS_AGAIN", 1000.0)
    voice = Voice(pipe[1], Costly(0.0), 1000.0)  # type: ignore[arg-type]
    voice.start()
    for n in range(worker_voice._MANY):
        voice.say(Event(float(n), "move-step", "Task 1 is paused."))
    got: list[object] = []
    messages = Messages()
    while len(got) < worker_voice._MANY:
        got += messages.feed(os.read(pipe[0], 1 << 16))
    voice.close()


def told_without_more(voice: Voice, pipe: tuple[int, int], number: int) -> None:
    """So many steps come by themselves."""
    got: list[object] = []
    messages = Messages()
    while len(got) < number:
        got += [m for m in messages.feed(os.read(pipe[0], 1 << 16)) if getattr(m, "kind", "") == "move-step"]
    voice.close()


def test_two_first_steps_at_the_same_moment_are_told(pipe: tuple[int, int]) -> None:
    """Each of both threads sees that there are two by then: somebody has to say that there are any."""
    voice = Voice(pipe[1], Costly(0.0), 1000.0)  # type: ignore[arg-type]
    voice.start()
    both = threading.Barrier(2)

    class Steps(deque[Event]):
        def append(self, event: Event) -> None:
            super().append(event)
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.5)

    voice._steps = Steps(maxlen=worker_voice._MOST)
    saying = [
        threading.Thread(target=voice.say, args=(Event(float(n), "move-step", "Task 1 is saved."),))
        for n in range(2)
    ]
    for thread in saying:
        thread.start()
    told_without_more(voice, pipe, 2)
    for thread in saying:
        thread.join(30)


def test_steps_are_told_that_came_when_there_was_no_room_for_a_word(pipe: tuple[int, int]) -> None:
    voice = Voice(pipe[1], Costly(0.0), 1000.0)  # type: ignore[arg-type]
    for n in range(worker_voice._MOST):
        voice.say(Event(float(n), "other", ""))
    for n in range(2):
        voice.say(Event(float(n), "move-step", "Task 1 is saved."))
    voice.start()
    told_without_more(voice, pipe, 2)
