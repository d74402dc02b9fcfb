"""An error of a limit that it does not name is told with the limit and its remedy, wherever people read it."""

from __future__ import annotations

import errno
import logging
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic import Fields, LocalCluster, Spout, TopologyBuilder
from elastic.cluster.own_log import LineFormatter
from elastic.control.cli.failures import report
from elastic.errors import EnvironmentProblem, ExecutionError
from elastic.hosts.base import NodeCommand
from elastic.hosts.process import ProcessHost
from elastic.machine import limit_reached
from elastic.model.ids import Incarnation, NodeId, TopologyName, WorkerId
from elastic.supervisor.ports import WorkerLaunch
from elastic.supervisor.worker_process import ProcessLauncher
from elastic.testing import collect

FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
THREADS = RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (FILES, f"may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} files and sockets open"),
        (FILES, "`ulimit -n`"),
        (OSError(errno.ENFILE, "x"), "fs.file-max"),
        (THREADS, "no more threads and processes: of this user (`ulimit -u` says "),
        (THREADS, "pids.max"),
        (BlockingIOError(errno.EAGAIN, "x"), ""),
        (OSError(errno.ENOENT, "x"), ""),
        (RuntimeError("x"), ""),
        (None, ""),
    ],
)
def test_a_limit_is_named_with_its_remedy(error: BaseException | None, says: str) -> None:
    said = limit_reached(error)
    assert says in said if says else not said


class Opens(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> float:
        raise OSError(errno.EMFILE, "Too many open files")


def test_it_is_told_where_user_code_meets_it() -> None:
    b = TopologyBuilder("t", max_errors=0)
    b.spout("opens", Opens())
    b.bolt("out", collect()).shuffle("opens")
    with LocalCluster() as cluster, pytest.raises(ExecutionError, match=r"open files \(this process may"):
        cluster.submit(b).wait(30)


@pytest.fixture
def none_left() -> Iterator[None]:
    """No file can be opened any more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    here = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    full: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (here + 10, before[1]))
        while True:
            try:
                full.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for one in full:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_it_is_told_of_a_node_and_of_a_worker_that_cannot_be_started(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    launcher = ProcessLauncher(zookeeper="z:1", store=tmp_path, run_dir=tmp_path)
    host = ProcessHost()
    where = WorkerId("t@n/0"), Incarnation("t@n/0#1"), tmp_path, tmp_path / "worker.log"
    request.getfixturevalue("none_left")
    try:
        with pytest.raises(EnvironmentProblem, match="ulimit -n"):
            launcher.start(WorkerLaunch(TopologyName("t"), *where), None)  # type: ignore[arg-type]
        with pytest.raises(EnvironmentProblem, match="ulimit -n"):
            host.start(NodeCommand(NodeId("n"), ("-c", "")), lambda *_: None)
    finally:
        host.close()
        launcher.close()


def test_it_is_told_by_commands_and_in_logs(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(THREADS) == EnvironmentProblem.exit_code
    said = capsys.readouterr().err
    assert "error: RuntimeError: can't start new thread\n  there may be no more threads" in said
    assert "fault of elastic" not in said
    line = LineFormatter().format
    made = logging.LogRecord("x", logging.ERROR, "", 0, "it failed: %s", (FILES,), None)
    assert line(made).splitlines()[1].startswith("this process may have")
    made = logging.LogRecord("x", logging.ERROR, "", 0, "it failed", (), (RuntimeError, THREADS, None))
    assert line(made).splitlines()[-1].startswith("there may be no more threads")
    assert len(line(logging.LogRecord("x", logging.INFO, "", 0, "all is well", (), None)).splitlines()) == 1
