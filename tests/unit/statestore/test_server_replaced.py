"""A store whose cluster is another one than it was is of no use any more: its process ends, and says why by its exit code."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable

import pytest

from statestore import server
from statestore.base import StateStore
from statestore.memory import MemoryStore


@pytest.mark.parametrize("replaced", [True, False])
def test_its_process_ends_when_its_cluster_is_another_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], replaced: bool
) -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    timers: list[threading.Timer] = []

    def store(options: argparse.Namespace, on_replaced: Callable[[], None]) -> StateStore:
        told = on_replaced if replaced else lambda: signal.raise_signal(signal.SIGTERM)
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
    assert code == (server.EXIT_LOST if replaced else 0)
    assert "address" in capsys.readouterr().out
