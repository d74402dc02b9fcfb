"""A benchmark that is told to end takes its cluster along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from families import concerned_with, left_of

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="relies on PR_SET_PDEATHSIG")
@pytest.mark.timeout(240)
def test_a_benchmark_that_gets_sigterm_ends_its_cluster(tmp_path: Path) -> None:
    began = "load of the machine"  # said once the cluster is up
    command = [sys.executable, "-m", "benchmarks", "pauses", "--quick", "--only", "1,000 tasks"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            said = ""
            while began not in said:
                line = child.stderr.readline()
                assert line, said
                said += line
            started = concerned_with(tmp_path)
            child.send_signal(signal.SIGTERM)
            said += child.communicate(timeout=60.0)[1]
        finally:
            child.kill()  # nothing, if it has ended
    assert child.returncode == 130, said
    assert started, said
    assert not left_of({*started, *concerned_with(tmp_path)})
    assert not concerned_with(tmp_path)
    assert list(tmp_path.iterdir()) == []
