"""What a machine and a node measure of themselves."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path

import pytest

from elastic import machine
from elastic.model.ids import Incarnation, NodeId
from elastic.model.load import NodeReport, WorkerReport
from elastic.supervisor.metering import NodeMeter

LIFE = Incarnation("t@n/0#1")


def worker(cpu: float, rss: int) -> WorkerReport:
    return WorkerReport("t", "t@n/0", LIFE, 1.0, 1, rss=rss, cpu=cpu)


def test_a_machine_has_cores_and_uses_some() -> None:
    assert machine.cores() > 0
    before = machine.busy_seconds()
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    assert machine.busy_seconds() > before
    assert machine.MachineMeter().read() >= 0.0


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not say")
def test_a_thread_that_could_run_waits_for_a_core() -> None:
    mine = threading.get_native_id()
    before = machine.ready_seconds(mine)
    assert machine.ready_seconds(mine) >= before > 0
    assert machine.ready_seconds(None) == 0.0 == machine.ready_seconds(2**30)


def test_where_the_system_says_nothing_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert machine.ready_seconds(threading.get_native_id()) == 0.0
    assert machine.busy_by_core() == {}
    assert machine.busy_seconds() == 0.0 and machine.boot() == "" and machine.cores() > 0


def test_a_quota_counts_when_it_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_: "50000 100000\n")
    assert machine.cores() == 0.5
    monkeypatch.setattr(Path, "read_text", lambda *_: "max 100000\n")
    assert machine.cores() >= 1


def test_a_node_of_a_machine_says_what_all_of_it_uses() -> None:
    meter = NodeMeter(NodeId("n"), 1.0, 0.0, lambda _: None)
    meter.saw(LIFE, worker(0.5, 100))
    found = meter.measure()
    assert (found.node, found.cores, found.memory) == ("n", machine.cores(), 100)
    assert found.machine == machine.boot() != ""


def test_a_node_with_cores_of_its_own_says_what_its_workers_use() -> None:
    meter = NodeMeter(NodeId("n"), 1.0, 1.5, lambda _: None)
    meter.saw(LIFE, worker(0.5, 100))
    meter.saw(Incarnation("t@n/1#1"), worker(0.25, 50))
    found = meter.measure()
    assert (found.cores, found.cpu, found.memory, found.machine) == (1.5, 0.75, 150, "")
    meter.gone(LIFE)
    meter.gone(LIFE)
    assert meter.measure().cpu == 0.25


def test_it_measures_until_it_is_closed() -> None:
    sent: queue.Queue[NodeReport] = queue.Queue()
    meter = NodeMeter(NodeId("n"), 0.01, 0.0, sent.put)
    meter.start()
    first, second = sent.get(timeout=30), sent.get(timeout=30)
    assert second.time > first.time
    meter.close()
    meter.close()
    while not sent.empty():
        sent.get()
    assert sent.empty()
