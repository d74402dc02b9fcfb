"""A benchmark that is told to end takes its cluster along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="relies on PR_SET_PDEATHSIG")
@pytest.mark.timeout(240)
def test_a_benchmark_that_gets_sigterm_ends_its_cluster(tmp_path: Path) -> None:
    began = "load of the machine"  # said once the cluster is up
    command = [sys.executable, "-m", "benchmarks", "pauses", "--quick", "--only", "1,000 tasks"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        said = ""
        while began not in said:
            line = child.stderr.readline()
            assert line, said
            said += line
        started = _of(tmp_path)
        child.send_signal(signal.SIGTERM)
        said += child.stderr.read()
    assert child.returncode == 130, said
    assert started, said
    psutil.wait_procs(started, timeout=30)
    assert not _of(tmp_path)
    assert list(tmp_path.iterdir()) == []


def _of(directory: Path) -> list[psutil.Process]:
    """Processes that have to do with a directory, by their command lines."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(directory) in word for word in process.info["cmdline"] or ()):
            found.append(process)
    return found
