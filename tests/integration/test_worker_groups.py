"""What user code has started ends with its worker, also when the supervisor is killed and can end nothing itself."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest
from leaks import held, left_since

from elastic.errors import EnvironmentProblem
from elastic.model.ids import Incarnation, TopologyName, WorkerId
from elastic.supervisor.groups import Groups
from elastic.supervisor.ports import WorkerLaunch, WorkerListener
from elastic.supervisor.worker_process import ProcessLauncher

SUPERVISOR = """
import sys, threading
from pathlib import Path
from elastic.supervisor.ports import WorkerLaunch
from elastic.supervisor.worker_process import ProcessLauncher

class Listener:
    def on_stacks(self, incarnation, text):
        print(text, flush=True)
    on_event = on_report = on_malformed = on_exit = lambda *told: None

here = Path(sys.argv[1])
launcher = ProcessLauncher(zookeeper="none", store=here, run_dir=here, program=(str(here / "worker.py"),))
launcher.start(WorkerLaunch("t", "t@n/0", "t@n/0#1", here, here / "worker.log"), Listener())
threading.Event().wait()
"""
WORKER = """
import os, subprocess, sys, threading
from elastic import procs
from elastic.supervisor.messages import Stacks, encode
procs.die_with_parent()
child = subprocess.Popen(["sleep", "1000"])
said = encode(Stacks(f"{os.getpid()} {child.pid}"))
os.write(int(sys.argv[sys.argv.index("--report-fd") + 1]), said)
threading.Event().wait()
"""


def test_a_killed_supervisor_leaves_nothing_of_its_workers(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as supervisor:
        assert supervisor.stdout is not None
        handles = [os.pidfd_open(int(pid)) for pid in supervisor.stdout.readline().split()]
        os.killpg(supervisor.pid, signal.SIGKILL)
        assert supervisor.wait() == -signal.SIGKILL
    try:
        assert [bool(select.select([handle], [], [], 30.0)[0]) for handle in handles] == [True, True]
    finally:
        for handle in handles:
            if not select.select([handle], [], [], 0.0)[0]:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)


def test_groups_that_are_over_are_nobodys_business() -> None:
    others = [subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(3)]
    try:
        groups = Groups()
        for other in others:
            groups.add(other.pid)
        groups.discard(others[1].pid)
        groups.close()
        groups.close()
        groups.add(others[1].pid)
        assert others[0].wait(30) == others[2].wait(30) == -signal.SIGKILL
        assert others[1].poll() is None
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("missing", ["pipe2", "pidfd_open"])
def test_a_worker_for_which_there_are_no_more_files_is_not_started_and_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    launcher = ProcessLauncher(zookeeper="none", store=tmp_path, run_dir=tmp_path, program=("-V",))
    launch = WorkerLaunch(
        TopologyName("t"), WorkerId("t@n/0"), Incarnation("t@n/0#1"), tmp_path, tmp_path / "worker.log"
    )
    listener = cast(WorkerListener, None)  # nothing is told of one that has not been started

    def none_left(*_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    before = held()
    with monkeypatch.context() as patched:
        patched.setattr(os, missing, none_left)
        with pytest.raises(EnvironmentProblem, match="Too many open files"):
            launcher.start(launch, listener)
    assert not [left for left in left_since(before) if "elastic-spawn" not in left]
    launcher.close()
