"""What a worker has had it keeps, and what a state will need is there before it is needed: counted in pages, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from elastic.worker import memory

_GROW = """
import resource, sys
from elastic.worker import memory

kept = "keep" in sys.argv and memory.keep({})
sizes = [n << 20 for n in (5, 10, 20)]  # as tables of a dictionary: each twice as large as the one before
if "old" in sys.argv:
    memory._POPULATE_WRITE = 999  # a system that does not know it
rests = []
memory.time.sleep = rests.append
if "ready" in sys.argv:
    memory.make_ready(sum(sizes) - (6 << 20))
    made = len(rests)
    memory.make_ready(sum(sizes) - (9 << 20))  # small blocks may have taken some of it
    assert "keep" not in sys.argv or len(rests) - made <= made / 10, "what is there is not made again"
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
for size in sizes * ("again" in sys.argv) + sizes:
    table = b"\\1" * size
    del table
print(kept, faults() - before)
"""
PAGES = (35 << 20) // 4096


def _said(script: str, *how: str) -> list[str]:
    """What it prints in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-c", script, *how], capture_output=True, text=True, timeout=60, check=True
    )
    return found.stdout.split()


def _grown(*how: str) -> tuple[bool, int]:
    kept, faults = _said(_GROW, *how)
    return kept == "True", int(faults)


def test_what_a_process_has_had_or_has_had_made_need_not_be_made_again() -> None:
    kept, ready = _grown("keep", "ready")
    if not kept:
        pytest.skip("this C library gives free memory back, whatever it is told")
    usual = _grown()[1]
    assert usual > PAGES * 0.9
    assert _grown("ready")[1] > PAGES * 0.9  # nothing is kept: nothing was made
    assert ready < PAGES * 0.1
    assert _grown("keep", "ready", "old")[1] < PAGES * 0.1
    assert _grown("keep", "again")[1] < PAGES * 0.9 < _grown("again")[1]


_TABLE = """
import resource, sys
from elastic.worker import memory

kept = memory.keep({})
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
entries = {n: n for n in range(2048)}
size = memory.table_size(sys.getsizeof(entries), memory.slots_for(2048), memory.slots_for(2_000_000))
rooms = [memory.TableMemory(size) for _ in range(1 + ("beside" in sys.argv))]
if "early" in sys.argv:
    rooms[0].let_go()
if "ready" in sys.argv:
    for room in rooms:
        room.make_ready()
small = [bytes(600) for _ in range(50)]
before = faults()
if "beside" in sys.argv:  # another one is done with meanwhile, of which nothing was used
    rooms.pop().let_go()
made = memory.make_table(entries, 2_000_000)
pages = faults() - before
for room in rooms:
    room.let_go()
before = faults()
for _ in range(3):
    block = b"\1" * (40 << 20)  # and others as ever: it goes back to the system
    del block
print(kept and made, size // 4096, pages, (faults() - before) // 3 >= (40 << 20) // 4096)
"""


@pytest.mark.parametrize("how", ["ready", "ready beside", "ready early", ""])
def test_a_table_that_is_larger_than_what_is_kept_has_its_memory_too(how: str) -> None:
    """Without that, all of it is made in the one call in which nobody else runs. Others come and go meanwhile, and what is given up before
    its memory is made has none made."""
    ready = how in ("ready", "ready beside")
    made, wanted, pages, as_ever = _said(_TABLE, *how.split())
    if made != "True":
        pytest.skip("this C library, or this interpreter, does as it likes")
    assert int(wanted) * 4096 > memory.LARGEST
    assert (int(pages) < int(wanted) * 0.1) == ready
    assert as_ever == "True"


_NEXT_TO_LARGER = """
import resource, sys
from elastic.worker import memory

kept = memory.keep({}) and memory.makes_tables()
size = memory.LARGEST - 4096
room = memory.TableMemory(size)
room.make_ready()
small = [bytes(600) for _ in range(50)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = b"\1" * size
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_small_blocks_may_come_before_one_that_is_almost_as_large_as_what_is_kept() -> None:
    kept, pages = _said(_NEXT_TO_LARGER)
    if kept != "True":
        pytest.skip("this C library, or this interpreter, does as it likes")
    assert int(pages) < memory.LARGEST // 4096 * 0.1


def test_who_has_set_up_the_c_library_is_left_alone() -> None:
    assert not memory.keep({"MALLOC_ARENA_MAX": "4"})
    assert not memory.keep({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"})


class _State(dict[Any, Any]):
    pass


@pytest.mark.parametrize("key", [lambda n: f"k{n:09d}", int, lambda n: (n, n)], ids=["text", "int", "tuple"])
@pytest.mark.parametrize("few", [1, 2048])
def test_a_table_for_all_entries_is_made_while_few_are_there(key: Callable[[int], Any], few: int) -> None:
    grown: list[_State] = []
    for first in (few, 300_000):
        state = _State((key(n), n) for n in range(first))
        if not memory.make_table(state, 300_000):
            pytest.skip("this interpreter makes its tables as it likes")
        assert len(state) == first
        sizes = set()
        for start in range(first, 300_000, 10_000):
            sizes.add(sys.getsizeof(state))
            dict.update(state, {key(n): n for n in range(start, min(start + 10_000, 300_000))})
        assert sizes <= {sys.getsizeof(state)}  # it did not grow on the way
        grown.append(state)
    assert grown[0] == grown[1] == {key(n): n for n in range(300_000)}
    assert sys.getsizeof(grown[0]) == sys.getsizeof(grown[1])


def test_where_nobody_knows_what_an_interpreter_does_a_table_grows_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = _State(a=1)
    monkeypatch.setattr(memory, "_SIZED", ((3, 0), (3, 1)))
    before = sys.getsizeof(state)
    assert not memory.make_table(state, 300_000)
    assert sys.getsizeof(state) == before
    assert not memory.make_table(_State(), 300_000)  # there is no entry to be seen in it


@pytest.mark.parametrize("key", [lambda n: f"k{n:09d}", int], ids=["text", "int"])
def test_the_size_of_a_table_is_known_before_it_is_made(key: Callable[[int], Any]) -> None:
    small = {key(n): n for n in range(2000)}
    for count in (5000, 50_000, 200_000):
        large = {key(n): n for n in range(count)}
        told = memory.table_size(sys.getsizeof(small), memory.slots_for(len(small)), memory.slots_for(count))
        assert sys.getsizeof(large) <= told < 1.1 * sys.getsizeof(large)
