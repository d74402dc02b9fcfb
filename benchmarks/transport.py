"""Frames between two processes of this machine: rates and latency, over a Unix socket and over TCP.

A second process is started for each figure; both ends of a figure are real `SocketTransport`s. The receiver takes each
frame as it arrives and gives its room back, as a task does.
"""

from __future__ import annotations

import json
import socket
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

from benchmarks.harness import Goal, Session
from elastic.model.ids import Incarnation
from elastic.transport.base import Address, Link
from elastic.transport.sockets import SocketTransport

NAME = "transport"
SUMMARY = "frames between two worker processes: rate and latency, Unix socket and TCP"

NEAR = Incarnation("bench@near/0#1")
FAR = Incarnation("bench@far/0#1")
_STAMP = struct.Struct("=d")
_LENGTH = struct.Struct(">I")
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
        stop = threading.Event()
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
            elif "busy" in question:
                threading.Thread(target=compute, args=(stop,), daemon=True).start()
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
        stop.set()
        transport.close()


def compute(stop: threading.Event) -> None:
    """Keep the interpreter busy."""
    number = 0
    while not stop.is_set():
        for _ in range(10_000):
            number = (number * 31 + 7) & 0xFFFF


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


def latency(*, size: int, frames: int, rate: float, unix: bool, busy: bool = False) -> dict[str, float]:
    """Seconds one way at a steady rate: median, 99th percentile, worst.

    Args:
        busy: A thread of the receiving process computes all the time, as a busy bolt's executor does.
    """
    pair = Pair(unix=unix)
    try:
        if busy:
            pair.far.ask({"busy": True})
        for count in (frames // 10, frames):
            pair.far.ask({"expect": count, "stamped": True})
            send_steadily(pair.link, pair.counter, count, size, rate)
            answer = pair.far.ask({})
        return {name: answer[name] for name in ("median", "p99", "worst")}
    finally:
        pair.close()


def raw_throughput(*, size: int, frames: int) -> float:
    """Frames per second through a bare Unix socket, length-prefixed and coalesced, without any promise: the ceiling."""
    near, distant = socket.socketpair()
    for sock in (near, distant):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    with near, distant:
        command = [sys.executable, "-m", "benchmarks.transport", "raw", str(distant.fileno()), str(frames)]
        process = subprocess.Popen(command, pass_fds=[distant.fileno()])
        distant.close()
        near.recv(1)  # it is ready
        payload = bytes(size)
        begin = time.monotonic()
        for _ in range(frames // _BURST):
            burst = b"".join([part for _ in range(_BURST) for part in (_LENGTH.pack(size), payload)])
            near.sendall(burst)
        end = float(_STAMP.unpack(near.recv(_STAMP.size))[0])
        process.wait(_LIMIT)
    return frames // _BURST * _BURST / (end - begin)


def raw_far(descriptor: int, frames: int) -> None:
    """The other end of `raw_throughput`."""
    with socket.socket(fileno=descriptor) as sock:
        sock.send(b"!")
        count, rest = 0, b""
        while count < frames // _BURST * _BURST:
            data = rest + sock.recv(1 << 20)
            at, end = 0, len(data)
            view = memoryview(data)
            while end - at >= 4:
                (length,) = _LENGTH.unpack_from(data, at)
                if at + 4 + length > end:
                    break
                view[at + 4 : at + 4 + length]
                at += 4 + length
                count += 1
            rest = data[at:]
        sock.send(_STAMP.pack(time.monotonic()))


def run(session: Session) -> None:
    """Rates and latencies, interleaved."""
    scale = 0.2 if session.quick else 1.0
    frames, large = int(200_000 * scale), int(30_000 * scale)
    rates = session.interleave(
        {
            "bare socket, 4 KiB": lambda: raw_throughput(size=4096, frames=frames),
            "Unix, 4 KiB": lambda: throughput(size=4096, frames=frames, unix=True)[0],
            "TCP, 4 KiB": lambda: throughput(size=4096, frames=frames, unix=False)[0],
            "Unix, 4 KiB, each way": lambda: throughput(
                size=4096, frames=frames // 2, unix=True, both_ways=True
            )[0],
            "TCP, 4 KiB, each way": lambda: throughput(
                size=4096, frames=frames // 2, unix=False, both_ways=True
            )[0],
        },
        unit="frames/s",
    )
    session.report(
        rates,
        unit="frames/s",
        compare={"Unix, 4 KiB": "bare socket, 4 KiB"},
        goals={
            ("Unix, 4 KiB, each way", ""): Goal(100_000),
            ("Unix, 4 KiB", "bare socket, 4 KiB"): Goal(0.5, of="ratio"),
        },
    )
    volumes = session.interleave(
        {
            "bare socket, 64 KiB": lambda: raw_throughput(size=65536, frames=large) * 65536 / 1e6,
            "Unix, 64 KiB": lambda: throughput(size=65536, frames=large, unix=True)[1] / 1e6,
            "TCP, 64 KiB": lambda: throughput(size=65536, frames=large, unix=False)[1] / 1e6,
        },
        unit="MB/s",
    )
    session.report(
        volumes,
        unit="MB/s",
        compare={"Unix, 64 KiB": "bare socket, 64 KiB"},
        goals={("Unix, 64 KiB", "bare socket, 64 KiB"): Goal(600)},
    )
    paced = int(10_000 * scale)
    ages: dict[str, list[float]] = {}

    def aged(name: str, *, unix: bool, busy: bool = False) -> float:
        found = latency(size=100, frames=paced, rate=10_000, unix=unix, busy=busy)
        ages.setdefault(f"{name}, p99", []).append(found["p99"] * 1000)
        return found["median"] * 1000

    medians = session.interleave(
        {
            "Unix, 10,000/s, median": lambda: aged("Unix, 10,000/s", unix=True),
            "TCP, 10,000/s, median": lambda: aged("TCP, 10,000/s", unix=False),
            "Unix, 10,000/s, busy receiver, median": lambda: aged(
                "Unix, 10,000/s, busy receiver", unix=True, busy=True
            ),
        },
        unit="ms",
    )
    limit = Goal(0.3, at_least=False)
    session.report(
        medians | ages,
        unit="ms",
        goals={("Unix, 10,000/s, median", ""): limit, ("TCP, 10,000/s, median", ""): limit},
    )


def main(arguments: Sequence[str]) -> None:
    """Be the second process, of the kind that the first argument names."""
    if arguments[0] == "far":
        far()
    else:
        raw_far(int(arguments[1]), int(arguments[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
