"""A supervisor whose workers go wrong: what it says of it, and that it costs no more than it must."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from supervisor_harness import NODE, Bench, T, W, until

from elastic.coordination import paths
from elastic.coordination.base import SessionState
from elastic.errors import EnvironmentProblem, Unavailable
from elastic.model import codec
from elastic.model.ids import Incarnation, TopologyName, WorkerId
from elastic.model.records import Progress
from elastic.supervisor.memory import MemoryLauncher
from elastic.supervisor.ports import CANNOT_LOAD


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_worker_that_loses_its_session_and_does_not_end_is_killed_for_that(bench: Bench) -> None:
    bench.start(start_timeout=3600.0, grace=0.0)
    bench.run_topology()
    first = bench.launcher.wait_for(W)
    bench.world.register(first.launch.incarnation)
    driver = bench.supervisors[0]._driver
    bench.wait(lambda: driver._lives[W].registered)
    bench.world.coordination.delete(paths.worker(T, W))
    bench.launcher.wait_for(W, 2)
    assert first.signals == [signal.SIGKILL]
    assert "it has lost its session" in bench.reporter.wait_for("worker-killed").message


@pytest.mark.parametrize("apart", [1000.0, 100.0])
def test_a_worker_need_not_register_while_its_supervisor_is_cut_off_itself(
    bench: Bench, apart: float
) -> None:
    bench.start(start_timeout=3600.0)
    bench.run_topology()
    first = bench.launcher.wait_for(W)
    driver = bench.supervisors[0]._driver
    driver.note_session(SessionState.SUSPENDED)
    driver._apart_since -= apart
    driver._lives[W] = replace(driver._lives[W], since=time.monotonic() - 4000.0)
    driver.note_session(SessionState.CONNECTED)
    if apart < 400.0:
        bench.launcher.wait_for(W, 2)
        assert first.signals == [signal.SIGKILL]
        return
    for _ in range(2):  # between two of them it has looked at everything
        looked = threading.Event()
        driver.call(looked.set)
        assert looked.wait(30)
    assert not first.signals


def test_code_that_has_run_here_is_tried_again_before_the_topology_fails(bench: Bench) -> None:
    bench.start(start_timeout=7200.0, restart_pauses=(0.0,), load_tries=3)
    driver = bench.supervisors[0]._driver
    tail = "Traceback\n  ...\nConnectionError: the registry is down\n"

    def end_after_an_hour(life: int, code: int = -9) -> None:
        worker, done = bench.launcher.wait_for(W, life), threading.Event()

        def age() -> None:
            driver._change(W, since=time.monotonic() - 3600.0)
            done.set()

        driver.call(age)
        assert done.wait(30)
        worker.end(code, tail)

    bench.run_topology()
    end_after_an_hour(1)
    bench.launcher.wait_for(W, 2).end(CANNOT_LOAD, tail)
    bench.launcher.wait_for(W, 3).end(CANNOT_LOAD, tail)
    end_after_an_hour(4)  # it has been loaded again: what was before does not count
    assert "bundle-failed" not in bench.reporter.kinds()
    bench.launcher.wait_for(W, 5).end(CANNOT_LOAD, tail)
    end_after_an_hour(6, CANNOT_LOAD)  # slow to import: that it took long does not say that it was loaded
    bench.launcher.wait_for(W, 7).end(CANNOT_LOAD, tail)
    path = paths.worker_progress(T, W)
    until(bench.world.coordination, path, lambda v: bool(v and codec.decode(v, Progress).failed))
    assert "ConnectionError" in bench.reporter.wait_for("bundle-failed").message
    assert len(bench.launcher.started) == 7


def test_what_a_full_disk_keeps_from_being_done_is_logged_once_until_it_is_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("elastic.supervisor.repeated._FIRST", 3600.0)
    append, tries = bench.store.append, threading.Semaphore(0)
    full = [EnvironmentProblem("no space left")]

    def refuse(key: str, data: bytes) -> int:
        tries.release()
        if full:
            raise full[0]
        return append(key, data)

    def logged() -> list[str]:
        return [r.message for r in caplog.records if "not done" in r.message]

    def tried() -> None:
        while tries.acquire(blocking=False):
            pass
        for _ in range(3):
            bench.supervisors[0]._driver.note_changed()
            assert tries.acquire(timeout=30)

    monkeypatch.setattr(bench.store, "append", refuse)
    bench.start()
    bench.run_topology()
    tried()
    first, *more = logged()
    assert first.endswith(": not done: no space left") and first not in more
    full[0] = EnvironmentProblem("read-only file system")
    tried()
    assert sum("read-only" in line for line in logged()) == 1
    full.clear()
    bench.launcher.wait_for(W)


U = TopologyName("u")
THERE = WorkerId(f"{U}@{NODE}/0")


class Undying(MemoryLauncher):
    def end_stray(self, pid: int, incarnation: Incarnation, timeout: float) -> bool:
        super().end_stray(pid, incarnation, timeout)
        return False


def test_a_stray_that_does_not_end_keeps_nobody_else_from_starting(bench: Bench) -> None:
    old = bench.start()
    bench.run_topology()
    bench.world.register(bench.launcher.wait_for(W).launch.incarnation)
    launcher = Undying()
    bench.start(2, bench.server.connect(), launcher)
    assert old.wait(30) == 9
    bench.world.submit(bench.sha, "u-1", U)
    bench.world.assign((1, 4), worker=THERE, name=U)
    launcher.wait_for(THERE)
    assert launcher.strays and {w.launch.worker for w in launcher.started} == {THERE}


def test_what_nobody_can_read_keeps_no_worker_from_starting_again(bench: Bench) -> None:
    bench.start()
    bench.run_topology()
    first = bench.launcher.wait_for(W)
    bench.world.coordination.create(paths.worker(T, W), b"of another version")
    first.end(-9)
    bench.world.coordination.put(paths.worker_progress(T, W), b"of another version")
    bench.launcher.wait_for(W, 2).end(CANNOT_LOAD, "ImportError")
    path = paths.worker_progress(T, W)
    until(bench.world.coordination, path, lambda v: bool(v and b"ImportError" in v))


def test_what_could_not_be_done_without_a_connection_is_done_in_its_order(bench: Bench) -> None:
    started = bench.start()
    said: list[str] = []
    away, done = [Unavailable("no connection")], threading.Event()

    def first() -> None:
        if away:
            raise away.pop()
        said.append("it serves")

    for job in (first, lambda: said.append("it has ended"), done.set):
        started._driver.call(job)
    assert done.wait(30)
    assert said == ["it serves", "it has ended"]
