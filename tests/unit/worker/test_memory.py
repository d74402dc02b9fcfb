"""What a worker has had it keeps, and what a state will need is there before it is needed: counted in pages, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elastic.worker import memory

_GROW = """
import resource, sys
from elastic.worker import memory

kept = "keep" in sys.argv and memory.keep({})
sizes = [n << 20 for n in (5, 10, 20)]  # as tables of a dictionary: each twice as large as the one before
if "ready" in sys.argv:
    memory.make_ready(sum(sizes) - (6 << 20))
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
for size in sizes * ("again" in sys.argv) + sizes:
    table = b"\\1" * size
    del table
print(kept, faults() - before)
"""
PAGES = (35 << 20) // 4096


def _grown(*how: str) -> tuple[bool, int]:
    found = subprocess.run(
        [sys.executable, "-c", _GROW, *how], capture_output=True, text=True, timeout=60, check=True
    )
    kept, faults = found.stdout.split()
    return kept == "True", int(faults)


def test_what_a_process_has_had_or_has_had_made_need_not_be_made_again() -> None:
    kept, ready = _grown("keep", "ready")
    if not kept:
        pytest.skip("this C library gives free memory back, whatever it is told")
    usual = _grown()[1]
    assert usual > PAGES * 0.9
    assert _grown("ready")[1] > PAGES * 0.9  # nothing is kept: nothing was made
    assert ready < PAGES * 0.1
    assert _grown("keep", "again")[1] < PAGES * 0.9 < _grown("again")[1]


def test_who_has_set_up_the_c_library_is_left_alone() -> None:
    assert not memory.keep({"MALLOC_ARENA_MAX": "4"})
    assert not memory.keep({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"})
