"""A supervisor whose workers go wrong: what it says of it, and that it costs no more than it must."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervisor_harness import Bench, T, W, until

from elastic.coordination import paths
from elastic.model import codec
from elastic.model.records import Progress


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


def test_code_that_has_been_loaded_here_is_tried_again_before_the_topology_fails(bench: Bench) -> None:
    bench.start(restart_pauses=(0.0,), load_tries=3)
    bench.run_topology()
    tail = "Traceback\n  ...\nConnectionError: the registry is down\n"
    first = bench.launcher.wait_for(W)
    bench.world.register(first.launch.incarnation)
    driver = bench.supervisors[0]._driver
    bench.wait(lambda: driver._lives[W].registered)
    first.end(-9)
    bench.launcher.wait_for(W, 2).end(3, tail)
    bench.launcher.wait_for(W, 3).end(3, tail)
    fourth = bench.launcher.wait_for(W, 4)
    assert "bundle-failed" not in bench.reporter.kinds()
    assert "ConnectionError" in str(bench.reporter.wait_for("worker-lost", 3).details["tail"])
    bench.world.register(fourth.launch.incarnation)  # it has been loaded: what was before does not count
    bench.wait(lambda: driver._lives[W].registered)
    fourth.end(3, tail)
    bench.launcher.wait_for(W, 5).end(3, tail)
    bench.launcher.wait_for(W, 6).end(3, tail)
    path = paths.worker_progress(T, W)
    until(bench.world.coordination, path, lambda v: bool(v and codec.decode(v, Progress).failed))
    assert "ConnectionError" in bench.reporter.wait_for("bundle-failed").message
    assert len(bench.launcher.started) == 6
