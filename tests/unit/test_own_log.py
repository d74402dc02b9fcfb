"""The logs of the launcher, a Nimbus and a supervisor have bounds, and lose nothing that is new."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WRITES = """
import logging, os, sys
from pathlib import Path
from elastic.cluster.own_log import log_to_stderr
log_to_stderr("info", map(Path, sys.argv[1:]), 10_000)
for n in range(1000):
    if n % 10 == 0:
        os.write(2, f"beside {n}\\n".encode())
    logging.getLogger("x").info("line %d", n)
"""
MAINS = """
import importlib, os, sys
from pathlib import Path
name, *argv = sys.argv[1:]
from elastic.cluster import own_log
own_log.log_to_stderr = lambda level, files: print([str(f) for f in files], flush=True) or sys.exit()
importlib.import_module(name).main(argv)
"""


def written(log: Path, *ours: Path, mode: str = "ab") -> list[str]:
    with log.open(mode) as file:
        argv = [sys.executable, "-c", WRITES, *map(str, ours)]
        subprocess.run(argv, stderr=file, timeout=120, check=True)
    return log.read_text().splitlines()


def test_the_newer_half_stays_with_what_is_said_beside_it(tmp_path: Path) -> None:
    log, elsewhere = tmp_path / "launcher.log", tmp_path / "launcher.log.1"
    elsewhere.write_text("an earlier one")
    cut, *lines = written(log, elsewhere, log)
    assert cut == "... what was before has been cut off" and log.stat().st_size <= 10_000
    last = [int(line.rpartition(" ")[2]) for line in lines if "beside" not in line]
    assert last == list(range(last[0], 1000)) and len(last) > 50, "no line is lost or torn"
    assert sum("beside" in line for line in lines) >= len(last) // 10
    assert elsewhere.read_text() == "an earlier one"


@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_what_is_no_log_of_the_clusters_or_not_appended_to_is_left_alone(tmp_path: Path, mode: str) -> None:
    log = tmp_path / "mine"
    ours = log if mode == "wb" else tmp_path / "launcher.log"
    assert len(written(log, ours, mode=mode)) == 1100


@pytest.mark.parametrize(
    ("name", "argv", "log"),
    [
        ("elastic.control.nimbus_main", ["--zookeeper", "z:1", "--listen", "h:1"], "nimbus-2.log"),
        (
            "elastic.cluster.supervisor_main",
            ["--zookeeper", "z:1", "--node", "n", "--generation", "1", "--slots", "1"],
            "d/supervisor.log",
        ),
    ],
)
def test_each_process_knows_its_own(tmp_path: Path, name: str, argv: list[str], log: str) -> None:
    (tmp_path / "nimbus-2.log").touch()
    command = [sys.executable, "-c", MAINS, name, "--directory", str(tmp_path / "d"), *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == f"{[str(tmp_path / log)]}\n"
