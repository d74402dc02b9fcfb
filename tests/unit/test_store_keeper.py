"""Who keeps a node's store running: starts it again, says so, and ends it."""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic.cluster.store_keeper import StoreKeeper
from elastic.cluster.store_service import StoreService
from elastic.model.events import Event, Severity
from elastic.model.ids import NodeId
from elastic.supervisor.happenings import Happenings
from statestore.errors import Missing


class FakeService:
    """Starts when the test lets it, and ends when the test says so."""

    def __init__(self) -> None:
        self.starts: queue.Queue[str | Missing] = queue.Queue()
        self.ends: queue.Queue[str] = queue.Queue()
        self.calls: list[str] = []

    def start(self, timeout: float) -> str:
        self.calls.append("start")
        answer = self.starts.get(timeout=30)
        if isinstance(answer, Missing):
            raise answer
        return answer

    def wait(self) -> str:
        return self.ends.get(timeout=30)

    def terminate(self) -> None:
        self.calls.append("terminate")
        self.ends.put("asked to")
        self.starts.put(Missing("it is being ended"))

    def kill(self) -> None:
        self.calls.append("kill")


class Bench:
    def __init__(self) -> None:
        self.service = FakeService()
        self.serving: queue.Queue[str] = queue.Queue()
        self.events: queue.Queue[Event] = queue.Queue()
        self.keeper = StoreKeeper(
            self.service,
            Happenings(NodeId("n")),
            self.serving.put,
            self.events.put,
            pauses=(0.0, 0.01, 1000.0),
        )


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.keeper.close()
    assert not [t for t in threading.enumerate() if t.name == "elastic-store"]


def test_it_is_started_again_at_once_then_with_growing_pauses_and_each_time_it_is_said(bench: Bench) -> None:
    bench.keeper.start()
    bench.service.starts.put("a:1")
    assert bench.serving.get(timeout=30) == "a:1"
    bench.service.ends.put("it was ended by signal 9")
    event = bench.events.get(timeout=30)
    assert bench.serving.get(timeout=30) == "", "that it is away is said as well"
    assert (event.kind, event.severity, event.node) == ("store-lost", Severity.WARNING, "n")
    assert "it was ended by signal 9" in event.message and "at once" in event.message
    bench.service.starts.put(Missing("no room", remedy="Make room."))
    event = bench.events.get(timeout=30)
    assert event.details == {"reason": "no room\n  Make room.", "failures": 2, "retry_in": 0.01}
    assert "Make room" not in event.message
    bench.service.starts.put("a:2")
    assert bench.serving.get(timeout=30) == "a:2"
    bench.service.ends.put("gone")
    assert bench.events.get(timeout=30).details["retry_in"] == 1000.0
    bench.keeper.close()  # does not wait for the pause
    assert bench.service.calls.count("start") == 3 and bench.service.calls[-1] == "kill"


def test_who_is_told_cannot_end_it(bench: Bench) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("in whoever is told")

    bench.keeper._serving = broken
    bench.keeper.start()
    bench.service.starts.put("a:1")
    assert "in whoever is told" in bench.events.get(timeout=30).message


def test_it_ends_while_it_starts_and_without_having_begun(bench: Bench) -> None:
    bench.keeper.close()
    assert bench.service.calls == []
    other = Bench()
    other.keeper.start()
    other.keeper.close()
    other.keeper.close()
    assert other.serving.empty() and other.events.empty()


def test_a_store_of_which_the_address_cannot_be_read_does_not_run_on(tmp_path: Path) -> None:
    """Something else has written to its standard output first."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho hello from a library\nexec sleep 1000\n")
    python.chmod(0o700)
    service = StoreService([], log=tmp_path / "store.log")
    service._process._python = str(python)
    with pytest.raises(Missing, match="hello from a library"):
        service.start(30.0)
    assert service.exit_code is not None, "it has ended"


def test_whatever_its_start_meets_it_does_not_run_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = StoreService([], log=tmp_path / "store.log")
    begun = service._process

    def meets(timeout: float) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(begun, "wait_ready", meets)
    with pytest.raises(KeyboardInterrupt):
        service.start(30.0)
    assert service.exit_code is not None


def test_a_limit_that_keeps_it_from_starting_is_named(bench: Bench) -> None:
    bench.keeper.start()
    reached = Missing("the state store cannot be started: [Errno 24] Too many open files")
    reached.__cause__ = OSError(errno.EMFILE, "Too many open files")
    bench.service.starts.put(reached)
    assert "`ulimit -n`" in bench.events.get(timeout=30).message
