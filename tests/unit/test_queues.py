"""Waiting at a queue has a bound, also where the time is over before the wait begins."""

from __future__ import annotations

import queue
import random
import sys
import threading
import time
from collections.abc import Callable

import pytest

from elastic.queues import take

LONG = 2e-6
ROUNDS = 20_000
PATIENCE = 5.0


def test_what_is_there_comes_at_once_and_in_order() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting.put(1)
    waiting.put(2)
    assert [take(waiting, 0.0), take(waiting, None)] == [1, 2]
    with pytest.raises(queue.Empty):
        take(waiting, 0.0)


def test_what_comes_meanwhile_is_waited_for() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    timer = threading.Timer(0.05, waiting.put, (1,))
    timer.start()
    assert take(waiting, 60.0) == 1


def waits_for_ever(get: Callable[[queue.SimpleQueue[int], float], int]) -> bool:
    """Whether one of many short waits does not end. The thread is let go of then."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    lengths = random.Random(1)
    rounds = [0]

    def wait() -> None:
        while rounds[0] < ROUNDS:
            waiting.put(1)
            waiting.get_nowait()
            try:
                if get(waiting, lengths.random() * LONG) == 2:
                    return
            except queue.Empty:
                rounds[0] += 1

    thread = threading.Thread(target=wait)
    thread.start()
    seen, since = 0, time.monotonic()
    while thread.is_alive():
        thread.join(0.2)
        if rounds[0] != seen:
            seen, since = rounds[0], time.monotonic()
        elif time.monotonic() - since > PATIENCE and thread.is_alive():
            waiting.put(2)
            thread.join()
            return True
    return False


def test_no_wait_lasts_for_ever() -> None:
    assert not waits_for_ever(take)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="mended in Python 3.13")
def test_a_wait_that_lasts_for_ever_is_found() -> None:
    """Planted fault: the queue's own."""
    assert any(waits_for_ever(lambda waiting, timeout: waiting.get(timeout=timeout)) for _ in range(10))
