"""What the hand-written two-process loops share: a second process, a byte pipe between the two, the common start."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

HEAD = struct.Struct("!I")
BUFFER = 1 << 20
INHERITED = "BENCHMARK_SOCKETS"


def send(pipe: socket.socket, payload: bytes | memoryview) -> None:
    """One length-prefixed message; an empty one says that nothing more comes."""
    if len(payload) < 4096:
        pipe.sendall(HEAD.pack(len(payload)) + bytes(payload))
    else:
        pipe.sendall(HEAD.pack(len(payload)))
        pipe.sendall(payload)


def receive(pipe: socket.socket) -> Iterator[memoryview]:
    """The other side's messages, until it says that nothing more comes.

    Raises:
        ConnectionError: The other side is gone.
    """
    reader: Any = pipe.makefile("rb", buffering=BUFFER)
    while True:
        head = reader.read(HEAD.size)
        if len(head) < HEAD.size:
            raise ConnectionError("the other process is gone")
        (size,) = HEAD.unpack(head)
        if size == 0:
            return
        payload = bytearray(size)
        if reader.readinto(payload) < size:
            raise ConnectionError("the other process is gone")
        yield memoryview(payload)


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected Unix sockets with large buffers."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    return ends


def in_two_processes(
    half: Callable[[int, socket.socket], Callable[[], dict[str, int]]],
) -> tuple[dict[str, int], float] | None:
    """Run both halves of a computation, in this process and in a second one, connected by a socket.

    The second process is this program once more (not a fork: Arrow and others have threads), which finds its ends of
    the sockets in its environment.

    Args:
        half: Called in each process with 0 or 1 and its end of the socket, before the time is taken; what it returns is
            called when both are ready, does the work, and returns the counts of its share of the words.

    Returns:
        All counts, and the seconds from the common start until the later half had finished; None in the second process.
    """
    inherited = os.environ.get(INHERITED)
    if inherited is not None:
        data, gate = (socket.socket(fileno=int(fd)) for fd in inherited.split(","))
        work = half(1, data)
        send(gate, b"ready")
        gate.recv(1)
        counts = work()
        send(gate, json.dumps([time.monotonic(), counts]).encode())
        return None
    ends, gates = pair(), pair()
    theirs = [ends[1].fileno(), gates[1].fileno()]
    child = subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        env={**os.environ, INHERITED: ",".join(map(str, theirs))},
        pass_fds=theirs,
    )
    ends[1].close()
    gates[1].close()
    try:
        work = half(0, ends[0])
        messages = receive(gates[0])
        next(messages)
        started = time.monotonic()
        gates[0].sendall(b"!")
        counts = work()
        ended = time.monotonic()
        other_ended, others = json.loads(bytes(next(messages)))
    finally:
        ends[0].close()
        gates[0].close()
        child.wait()
    counts.update(others)
    return counts, max(ended, other_ended) - started
