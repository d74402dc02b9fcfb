"""Frames between two processes of this machine: rates and latency, over a Unix socket and over TCP.

A second process is started for each figure; both ends of a figure are real `SocketTransport`s. The receiver takes each
frame as it arrives and gives its room back, as a task does.
"""

from __future__ import annotations

import json
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from elastic.model.ids import Incarnation
from elastic.transport.base import Address, Link
from elastic.transport.sockets import SocketTransport

NAME = "transport"
SUMMARY = "frames between two worker processes: rate and latency, Unix socket and TCP"

NEAR = Incarnation("bench@near/0#1")
FAR = Incarnation("bench@far/0#1")
_STAMP = struct.Struct("=d")
_LIMIT = 60.0
_BURST = 16
"""Frames between two flushes at full speed, as an executor that empties its output buffers."""


class Counter:
    """A receiver that counts, gives room back at once, and notes the age of stamped frames."""

    def __init__(self, stamped: bool = False) -> None:
        self.frames = 0
        self.expected = -1
        self.done = threading.Event()
        self.room = threading.Event()
        self.ages: list[float] = []
        self.stamped = stamped
        self.transport: SocketTransport | None = None

    def on_frame(self, source: Incarnation, target: int, payload: memoryview) -> None:
        if self.stamped:
            self.ages.append(time.monotonic() - _STAMP.unpack_from(payload)[0])
        self.frames += 1
        assert self.transport is not None
        self.transport.consumed(source, target, len(payload))
        if self.frames == self.expected:
            self.done.set()

    def on_room(self, peer: Incarnation, target: int) -> None:
        self.room.set()

    def on_lost(self, peer: Incarnation, frames: int, size: int) -> None:
        self.room.set()


def send(link: Link, counter: Counter, frames: int, size: int, targets: int = 8) -> None:
    """Send so many frames as fast as they are taken, to several tasks in turn."""
    payload = (bytes(size),)
    for number in range(frames):
        while not link.offer(number % targets, payload):
            if not counter.room.wait(_LIMIT):
                raise TimeoutError("the peer takes nothing any more")
            counter.room.clear()
        if number % _BURST == _BURST - 1:
            link.flush()
    link.flush()


def send_steadily(link: Link, counter: Counter, frames: int, size: int, rate: float) -> None:
    """Send stamped frames at a steady rate, each flushed at once."""
    rest = bytes(size - _STAMP.size)
    begin = time.monotonic()
    for number in range(frames):
        pause = begin + number / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        while not link.offer(1, (_STAMP.pack(time.monotonic()), rest)):
            counter.room.wait(_LIMIT)
            counter.room.clear()
        link.flush()


class Far:
    """The second process: answers one JSON line on its standard input with one on its standard output."""

    def __init__(self, transport: SocketTransport) -> None:
        command = [sys.executable, "-m", "benchmarks.transport", "far"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.address = msgspec.convert(
            self.ask({"address": msgspec.to_builtins(transport.address)})["address"], Address
        )

    def ask(self, question: dict[str, object]) -> dict[str, float]:
        self.tell(question)
        return self.answer()

    def tell(self, question: dict[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the second process has ended")
        answer: dict[str, float] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=_LIMIT)


def far(lines: Sequence[str] | None = None) -> None:
    """What the second process does until its input ends."""
    with tempfile.TemporaryDirectory(prefix="elastic-") as directory:
        counter = Counter()
        transport = SocketTransport(FAR, run_dir=Path(directory))
        counter.transport = transport
        transport.start(counter)
        link: Link | None = None
        for line in sys.stdin if lines is None else lines:
            question = json.loads(line)
            answer: dict[str, object] = {}
            if "address" in question:
                link = transport.link(NEAR, msgspec.convert(question["address"], Address))
                answer = {"address": msgspec.to_builtins(transport.address)}
            elif "expect" in question:
                counter.frames, counter.expected, counter.ages = 0, question["expect"], []
                counter.stamped = question["stamped"]
                counter.done.clear()
            elif "send" in question:
                assert link is not None
                send(link, counter, question["send"], question["size"])
                continue
            else:
                if not counter.done.wait(_LIMIT):
                    raise TimeoutError(f"{counter.frames} of {counter.expected} frames have come")
                answer = {"now": time.monotonic(), "cpu": time.process_time()}
                if counter.ages:
                    ages = sorted(counter.ages)
                    answer |= {
                        "median": statistics.median(ages),
                        "p99": ages[len(ages) * 99 // 100],
                        "worst": ages[-1],
                    }
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        transport.close()


class Pair:
    """This process and a second one, connected."""

    def __init__(self, *, unix: bool) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="elastic-")
        self.counter = Counter()
        self.transport = SocketTransport(NEAR, run_dir=Path(self._directory.name) if unix else None)
        self.counter.transport = self.transport
        self.transport.start(self.counter)
        self.far = Far(self.transport)
        address = self.far.address if unix else Address(tcp=self.far.address.tcp)
        self.link = self.transport.link(FAR, address)

    def close(self) -> None:
        self.far.close()
        self.transport.close()
        self._directory.cleanup()


def throughput(*, size: int, frames: int, unix: bool, both_ways: bool = False) -> tuple[float, float]:
    """Frames per second (of each direction), and bytes per second, at full speed."""
    pair = Pair(unix=unix)
    try:
        for count in (frames // 10, frames):  # the first to warm up
            pair.far.ask({"expect": count, "stamped": False})
            pair.counter.frames, pair.counter.expected = 0, count
            pair.counter.done.clear()
            begin = time.monotonic()
            if both_ways:
                pair.far.tell({"send": count, "size": size})
            send(pair.link, pair.counter, count, size)
            end = pair.far.ask({})["now"]
            if both_ways:
                if not pair.counter.done.wait(_LIMIT):
                    raise TimeoutError("not all frames have come back")
                end = max(end, time.monotonic())
        rate = frames / (end - begin)
        return rate, rate * size
    finally:
        pair.close()


def latency(*, size: int, frames: int, rate: float, unix: bool) -> dict[str, float]:
    """Seconds one way at a steady rate: median, 99th percentile, worst."""
    pair = Pair(unix=unix)
    try:
        for count in (frames // 10, frames):
            pair.far.ask({"expect": count, "stamped": True})
            send_steadily(pair.link, pair.counter, count, size, rate)
            answer = pair.far.ask({})
        return {name: answer[name] for name in ("median", "p99", "worst")}
    finally:
        pair.close()


def figures(scale: float = 1.0) -> dict[str, float]:
    """Every figure once, by name.

    Args:
        scale: How long to measure, 1.0 being about ten seconds in all.
    """
    found: dict[str, float] = {}
    for kind, unix in (("unix", True), ("tcp", False)):
        rate, _ = throughput(size=4096, frames=int(200_000 * scale), unix=unix)
        found[f"{kind}_4k_frames_per_second"] = rate
        rate, _ = throughput(size=4096, frames=int(100_000 * scale), unix=unix, both_ways=True)
        found[f"{kind}_4k_frames_per_second_each_way"] = rate
        _, size = throughput(size=65536, frames=int(30_000 * scale), unix=unix)
        found[f"{kind}_64k_bytes_per_second"] = size
        ages = latency(size=100, frames=int(10_000 * scale), rate=10_000, unix=unix)
        for name, value in ages.items():
            found[f"{kind}_latency_{name}_seconds"] = value
    return found


def main(arguments: Sequence[str]) -> None:
    """`far`: be the second process. Otherwise print every figure."""
    if list(arguments) == ["far"]:
        far()
        return
    for name, value in figures().items():
        sys.stdout.write(f"{name}\t{value:.6g}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
