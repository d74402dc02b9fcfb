"""What is to be done for many tasks is done for all that wait at once, and for each once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from elastic.errors import Unavailable
from elastic.worker.moving.together import BESIDE, Together


def test_what_comes_while_lots_are_worked_off_waits_for_the_next() -> None:
    lots: list[tuple[str, list[int]]] = []
    queue: list[tuple[Callable[[str], None], str]] = []

    def work(kind: str, lot: list[int]) -> None:
        lots.append((kind, lot))
        if lot == [1]:
            for n in range(2, 7):
                together.add("a", n)

    together: Together[str, int] = Together(lambda call, kind: queue.append((call, kind)), work, most=3)
    together.add("a", 1)
    together.add("b", 10)
    together.add("b", 11)
    assert len(queue) == 2, "one thread is about to come to each kind"
    for call, kind in queue[:2]:
        call(kind)
    assert lots == [("a", [1]), ("a", [2, 3, 4]), ("a", [5, 6]), ("b", [10, 11])]
    assert [kind for _, kind in queue[2:]] == ["a"], "one more, for what came meanwhile"
    call, kind = queue[2]
    call(kind)  # the first one was there before it
    assert len(lots) == 4
    together.add("a", 7)  # nobody is at it any more
    assert len(queue) == 4


def test_the_others_do_not_wait_for_the_first_one() -> None:
    first, others = threading.Event(), threading.Event()

    def work(kind: str, lot: list[int]) -> None:
        if lot == [1]:
            first.set()
            assert others.wait(30.0), "they wait for the first one"
        else:
            others.set()

    with ThreadPoolExecutor(4) as pool:
        together: Together[str, int] = Together(
            lambda call, kind: pool.submit(call, kind) and None, work, most=50
        )
        together.add("a", 1)
        assert first.wait(30.0)
        together.add("a", 2)
        assert others.wait(30.0)


def test_when_nothing_can_be_done_any_more_that_is_said() -> None:
    def closed(call: object, kind: str) -> None:
        raise Unavailable("it is about to end")

    together: Together[str, int] = Together(closed, lambda kind, lot: None, most=3)
    for _ in range(BESIDE + 1):
        with pytest.raises(Unavailable):
            together.add("a", 1)


def test_what_could_not_be_taken_is_not_done_by_who_is_at_it_already() -> None:
    """Whoever wanted it was told that it is not."""
    lots: list[list[int]] = []
    queue: list[Callable[[], None]] = []

    def submit(call: Callable[[str], None], kind: str) -> None:
        if queue:
            raise Unavailable("it is about to end")
        queue.append(lambda: call(kind))

    def work(kind: str, lot: list[int]) -> None:
        lots.append(lot)
        if lot == [1]:
            with pytest.raises(Unavailable):
                together.add("a", 2)

    together: Together[str, int] = Together(submit, work, most=3)
    together.add("a", 1)
    queue[0]()
    assert lots == [[1]]


def test_many_threads_lose_nothing() -> None:
    done: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        together: Together[int, int] = Together(
            lambda call, kind: pool.submit(call, kind) and None, lambda kind, lot: done.extend(lot), most=50
        )

        def add(first: int) -> None:
            for n in range(first, first + 500):
                together.add(n % 3, n)

        threads = [threading.Thread(target=add, args=(n * 500,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(done) == list(range(2000))


def test_a_defect_costs_its_lot_and_not_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def work(kind: str, lot: list[int]) -> None:
        if lot[0] < 0:
            raise ValueError("too large")
        done.extend(lot)

    together: Together[str, int] = Together(lambda call, kind: call(kind), work, most=3)
    for n in (-1, -2, -3, 4):
        together.add("a", n)
    assert done == [4] and len(caplog.records) == 3


def test_more_than_one_lot_that_was_gathered_is_worked_off_beside_each_other() -> None:
    """Nothing is added any more that would have a second thread come."""
    queue: list[tuple[Callable[[str], None], str]] = []
    lots: list[list[int]] = []

    def work(kind: str, lot: list[int]) -> None:
        lots.append(lot)
        if len(lots) == 1:
            call, other = queue.pop()
            call(other)  # the second one comes while the first is at it

    def gather() -> None:
        for n in range(2, 8):
            together.add("a", n)

    together: Together[str, int] = Together(lambda call, kind: queue.append((call, kind)), work, 3, gather)
    together.add("a", 1)
    call, kind = queue.pop()
    call(kind)
    assert lots == [[1, 2, 3], [4, 5, 6], [7]] and not queue
    together.add("b", 1)
    assert len(queue) == 1


@pytest.mark.parametrize(
    "error", [Unavailable("the worker is about to end"), RuntimeError("it is shut down")]
)
def test_nobody_comes_beside_when_nothing_is_done_any_more(error: Exception) -> None:
    calls: list[tuple[Callable[[str], None], str]] = []
    lots: list[list[int]] = []

    def submit(call: Callable[[str], None], kind: str) -> None:
        if calls:
            raise error
        calls.append((call, kind))

    def gather() -> None:
        for n in range(2, 6):
            together.add("a", n)

    together: Together[str, int] = Together(submit, lambda kind, lot: lots.append(lot), 2, gather)
    together.add("a", 1)
    call, kind = calls[0]
    call(kind)
    assert lots == [[1, 2], [3, 4], [5]]
