"""A worker's code prints on where its log has no room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PRINTS = """
import logging, sys
from elastic.cluster import worker_main
def run(options):
    print("one", flush=True)
    sys.stdout.buffer.write(b"two\\n")
    sys.stderr.write("three\\n")
    logging.getLogger("x").error("four")
    return 7
worker_main._run = run
if sys.argv[1] == "planted":
    worker_main.forgive = lambda: None
worker_main.main("--topology t --worker w --incarnation i --store s --zookeeper z --bundle b --report-fd 9".split())
"""


def prints(where: Path, kind: str = "") -> int:
    with where.open("ab") as log:
        argv = [sys.executable, "-u", "-c", PRINTS, kind]
        return subprocess.run(argv, stdout=log, stderr=log, timeout=120, check=False).returncode


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_without_room_what_is_printed_is_lost_and_raises_nothing() -> None:
    assert prints(Path("/dev/full")) == 7
    assert prints(Path("/dev/full"), "planted") == 1, "it does, if nothing is done about it"


def test_what_is_printed_is_in_the_log_in_its_order(tmp_path: Path) -> None:
    assert prints(tmp_path / "log") == 7
    *lines, logged = (tmp_path / "log").read_text().splitlines()
    assert lines == ["one", "two", "three"] and logged.endswith("ERROR x: four")
