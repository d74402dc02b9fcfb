"""A store whose cluster is another one than it was, or out of reach for good, is of no use any more: its process ends, and says why by
its exit code."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest

from statestore import server
from statestore.base import StateStore
from statestore.memory import MemoryStore


@pytest.mark.parametrize("why", [server.EXIT_LOST, server.EXIT_CUT_OFF, 0])
def test_its_process_ends_when_its_cluster_is_of_no_use_any_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: int
) -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    timers: list[threading.Timer] = []

    def store(options: argparse.Namespace, on_end: Callable[[int], None]) -> StateStore:
        told = partial(on_end, why) if why else lambda: signal.raise_signal(signal.SIGTERM)
        timers.append(threading.Timer(0.0, told))
        timers[0].start()
        return MemoryStore(1 << 20)

    monkeypatch.setattr(server, "_store", store)
    try:
        code = server._run(server._parser().parse_args(["--backend", "memory"]))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    timers[0].join()
    assert code == why
    assert "address" in capsys.readouterr().out
