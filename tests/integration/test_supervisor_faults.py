"""A supervisor whose workers go wrong: what it says of it, and that it costs no more than it must."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervisor_harness import Bench, T, W

from elastic.coordination import paths


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
