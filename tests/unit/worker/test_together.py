"""What is to be done for many tasks is done for all that wait at once, and for each once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from elastic.errors import Unavailable
from elastic.worker.together import Together


def test_what_comes_while_a_lot_is_worked_off_waits_for_the_next() -> None:
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
    assert len(queue) == 2, "one thread is at each kind"
    for call, kind in queue:
        call(kind)
    assert lots == [("a", [1]), ("a", [2, 3, 4]), ("a", [5, 6]), ("b", [10, 11])]
    together.add("a", 7)  # nobody is at it any more
    assert len(queue) == 3


def test_when_nothing_can_be_done_any_more_that_is_said() -> None:
    def closed(call: object, kind: str) -> None:
        raise Unavailable("it is about to end")

    together: Together[str, int] = Together(closed, lambda kind, lot: None, most=3)
    for _ in range(2):
        with pytest.raises(Unavailable):
            together.add("a", 1)


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
