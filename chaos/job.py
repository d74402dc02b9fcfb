"""The topology that is hurt: numbered tuples per key, from spouts through a bolt with state by key to sinks that write down every arrival.

It is shipped as one file, so it imports nothing of `chaos`. What it writes is described in `chaos/check.py`.

At the points where a move calls into it (`prepare`, `get_state`, `set_state`) each task says so on a Unix socket, if anybody listens
there, and waits for the answer: that is how a process is killed exactly there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any

from elastic import Fields, KeyedState, StatefulBolt, StatefulSpout, TopologyBuilder

HOLD = 20.0
"""Seconds that a task waits at most for its answer."""


def tell(place: str, point: str, component: str, task: int) -> None:
    """Say on the socket that this process is at that point, and wait until it may go on."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(HOLD)
        s.connect(str(Path(place, "steps")))
        s.sendall(f"{point} {component} {task} {os.getpid()}\n".encode())
        s.recv(1)


def append(path: Path, text: str) -> None:
    """One write: whole in the file when it returns, whatever becomes of the process."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


class Numbers(StatefulSpout):
    """0, 1, 2, ... for each of its keys. A life that starts without state has keys of its own, so that it cannot be taken for another."""

    outputs = Fields(key=str, n=int)

    def __init__(self, place: str, keys: int) -> None:
        self.place = place
        self.keys = keys
        self.life = ""
        self.next = 0

    def prepare(self, context: Any) -> None:
        self.task = int(context.task)
        tell(self.place, "prepare", "numbers", self.task)

    def next_tuple(self) -> None:
        if not self.life:
            self.life = f"{self.task}.{time.time_ns():x}"
        if self.next % 16 == 0 and Path(self.place, "stop").exists():
            self.end()
            return
        self.emit(f"{self.life}.{self.next % self.keys}", self.next // self.keys)
        self.next += 1

    def end(self) -> None:
        """Write down how many of each key there were, and be exhausted."""
        lines = (
            f"E {self.life}.{k} {(self.next - k + self.keys - 1) // self.keys}\n" for k in range(self.keys)
        )
        append(Path(self.place, f"ends-{self.life}.txt"), "".join(lines))
        self.exhausted()

    def get_state(self) -> object:
        tell(self.place, "get_state", "numbers", self.task)
        return self.life, self.next

    def set_state(self, state: Any) -> None:
        tell(self.place, "set_state", "numbers", self.task)
        self.life, self.next = state


class Count(StatefulBolt):
    """Counts each key, and passes on with each tuple what it had counted before."""

    outputs = Fields(key=str, n=int, task=int, count=int)
    counts: KeyedState[str, int] = KeyedState(int)

    def __init__(self, place: str) -> None:
        self.place = place

    def prepare(self, context: Any) -> None:
        self.task = int(context.task)
        tell(self.place, "prepare", "count", self.task)

    def execute(self, tup: Any) -> None:
        count = self.counts[tup.key]
        self.counts[tup.key] = count + 1
        self.emit(tup.key, tup.n, self.task, count)


class Sink(StatefulBolt):
    """Writes down each arrival before it counts: a file for each life of each task."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.arrived = 0
        self.file = -1

    def prepare(self, context: Any) -> None:
        self.task = int(context.task)
        tell(self.place, "prepare", "sink", self.task)

    def execute(self, tup: Any) -> None:
        now = time.monotonic_ns()
        text = f"A {now} {tup.key} {tup.n} {tup.task} {tup.count}\n"
        if self.file < 0:
            name = f"record-{self.task}-{now}-{os.getpid()}.txt"
            self.file = os.open(Path(self.place, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            text = f"S {self.task} {os.getpid()} {self.arrived}\n{text}"
        os.write(self.file, text.encode())
        self.arrived += 1

    def cleanup(self) -> None:
        if self.file >= 0:
            os.close(self.file)

    def get_state(self) -> object:
        tell(self.place, "get_state", "sink", self.task)
        return self.arrived

    def set_state(self, state: Any) -> None:
        tell(self.place, "set_state", "sink", self.task)
        self.arrived = state


def topology(args: list[str]) -> TopologyBuilder:
    parser = argparse.ArgumentParser(prog="chaos/job.py")
    parser.add_argument("--place", required=True, help="the directory of the record")
    parser.add_argument("--name", default="chaos")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--keys", type=int, default=16, help="keys of each task of the spout")
    parser.add_argument("--rate", type=float, default=1500.0, help="tuples per second")
    options = parser.parse_args(args)
    b = TopologyBuilder(options.name, workers=options.workers, report_interval=0.5)
    b.spout("numbers", Numbers(options.place, options.keys), tasks=3, executors=3, rate=options.rate)
    b.bolt("count", Count(options.place), tasks=12, executors=4).fields("numbers", "key")
    b.bolt("sink", Sink(options.place), tasks=6, executors=4).fields("count", "key")
    return b
