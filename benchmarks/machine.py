"""The machine itself: how quick it is, and how long its cores stand still while all of them compute.

A virtual machine whose host is busy does nothing for milliseconds, which no counter of its own shows, and is slower by half from one
minute to the next. Nothing that is measured beside a stream is better than that.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from array import array
from pathlib import Path

from benchmarks.harness import Session

NAME = "machine"
SUMMARY = (
    "how quick this machine is, and how long its cores stand still: what to hold all other figures against"
)

SECONDS, QUICK = 10.0, 3.0
"""For which cores are watched."""
TURNS = 1_000_000
PLACES = 8 << 20
"""Numbers of eight bytes: more than fit into a processor's cache."""
PATIENCE = 60.0


def turns() -> float:
    """Milliseconds that a million turns of an empty loop take: the interpreter's speed."""
    began = time.perf_counter()
    left = TURNS
    while left:
        left -= 1
    return (time.perf_counter() - began) * 1e3


def touches() -> float:
    """Milliseconds that a million numbers take that lie anywhere in 64 MB: the memory's speed, with the interpreter's."""
    numbers = array("q", bytes(8 * PLACES))
    chosen = random.Random(1)
    places = [chosen.randrange(PLACES) for _ in range(TURNS)]
    began = time.perf_counter()
    for place in places:
        numbers[place] += 1
    return (time.perf_counter() - began) * 1e3


def longest_still(seconds: float) -> float:
    """Milliseconds of the longest time in which this process, which computes for so many seconds, did not get on."""
    longest = 0
    last = time.monotonic_ns()
    end = last + int(seconds * 1e9)
    while last < end:
        now = time.monotonic_ns()
        if now - last > longest:
            longest = now - last
        last = now
    return longest / 1e6


def still_together(seconds: float) -> list[float]:
    """The same for a process on each core, all at once.

    Raises:
        subprocess.TimeoutExpired, subprocess.CalledProcessError: One did not end, or not well.
    """
    cores = (
        sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    command = [sys.executable, "-m", __name__, str(seconds)]
    running = [
        subprocess.Popen(
            [*command, str(core)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
        )
        for core in cores
    ]
    try:
        found = []
        for one in running:
            said, _ = one.communicate(timeout=seconds + PATIENCE)
            if one.returncode:
                raise subprocess.CalledProcessError(one.returncode, command)
            found.append(float(said))
        return found
    finally:
        for one in running:
            one.kill()
            one.wait()


def run(session: Session) -> None:
    """Measure and report."""
    seconds = QUICK if session.quick else SECONDS
    session.progress(f"the machine: {seconds:g} s with a process on one core, then on each")
    session.record("machine: a million turns of a loop", [turns() for _ in range(5)], "ms")
    session.record("machine: a million places in 64 MB", [touches() for _ in range(3)], "ms")
    session.record("machine: one core computes, longest time still", [longest_still(seconds)], "ms")
    session.record("machine: all cores compute, longest time still", still_together(seconds), "ms")


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(sys.argv[2])})
    print(longest_still(float(sys.argv[1])))
