"""Who coordinates stands behind streams where processors are short; what it starts does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic import procs
from elastic.priority import A_LITTLE, BEHIND, TRIES, _session_behind, a_little_behind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
AUTOGROUP = Path("/proc/self/autogroup")
PROGRAM = """
import os, subprocess, sys, threading
from elastic import procs
from elastic.priority import behind_streams
if len(sys.argv) > 1:  # the fault: the thread that starts programs begins behind
    procs.begin = lambda: None
behind_streams()
for thread in threading.enumerate():
    if thread.name == "session-priority":
        thread.join(10.0)
later = []
thread = threading.Thread(target=lambda: later.append(os.getpriority(os.PRIO_PROCESS, 0)))
thread.start()
thread.join()
say = "import os; print(os.getpriority(os.PRIO_PROCESS, 0), flush=True)"
child = procs.spawn([sys.executable, "-c", say], stdout=subprocess.PIPE)
inner = child.communicate()[0].decode().strip()
path = "/proc/self/autogroup"  # empty where the process is in none: nobody has begun a session since the system started
group = (open(path).read().split() if os.path.exists(path) else []) or ["none"]
print(os.getpriority(os.PRIO_PROCESS, 0), later[0], inner, group[-1], flush=True)
"""


def run(*faults: str, leads: bool = True) -> list[str]:
    """The nice values of a process that stands behind, of a thread and a program that it has started, and of its session."""
    argv = [sys.executable, "-c", PROGRAM, *faults]
    process = procs.spawn(argv, stdout=subprocess.PIPE, new_session=leads)
    return process.communicate()[0].decode().split()


def test_a_process_stands_behind_and_what_it_starts_does_not() -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    if usual >= BEHIND:
        pytest.skip(f"these tests run with a nice value of {usual} themselves")
    mine, thread, child, session = run()
    assert int(mine) == int(thread) == BEHIND and int(child) == usual
    assert session in ("none", str(BEHIND))


def test_the_session_of_others_stays_as_it_is() -> None:
    before = (AUTOGROUP.read_text().split() if AUTOGROUP.exists() else []) or ["none"]
    assert run(leads=False)[3] == before[-1]


def test_programs_that_would_stand_behind_are_found() -> None:
    _, _, child, _ = run("fault")
    assert int(child) == BEHIND


@pytest.mark.parametrize("refused", [0, 2, 100])
def test_a_session_s_priority_is_set_again_where_it_came_too_early(
    monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """The kernel refuses it as such to all but root, for a tenth of a second after anybody has."""
    written: list[str] = []
    tried = 0

    class Group(type(Path())):  # type: ignore[misc]
        def write_text(self, text: str) -> int:
            nonlocal tried
            tried += 1
            if tried <= refused:
                raise BlockingIOError
            written.append(text)
            return len(text)

    monkeypatch.setattr("elastic.priority.AGAIN", 0.0)
    thread = _session_behind(Group())
    assert (thread is None) == (refused == 0)
    if thread is not None:
        thread.join(30.0)
        assert not thread.is_alive()
    assert written == ([str(BEHIND)] if refused < TRIES else [])
    assert tried == min(refused + 1, TRIES)


def test_a_program_stands_a_little_behind_with_no_shell_in_between() -> None:
    say = (
        "import os; p = '/proc/self/autogroup'; group = open(p).read() if os.path.exists(p) else '';"
        "print(os.getpriority(os.PRIO_PROCESS, 0), os.getpid(), group)"
    )
    process = procs.spawn(a_little_behind([sys.executable, "-c", say]), stdout=subprocess.PIPE)
    nice, pid, *group = process.communicate()[0].decode().split()
    assert int(nice) == os.getpriority(os.PRIO_PROCESS, 0) + A_LITTLE
    assert int(pid) == process.pid, "no shell stays between them"
    if group and os.geteuid() == 0:  # others may have come too early
        assert group[-1] == str(A_LITTLE)


def test_a_program_that_is_not_there_is_told_as_ever() -> None:
    with pytest.raises(FileNotFoundError):
        procs.spawn(a_little_behind(["/nowhere/java"]))
