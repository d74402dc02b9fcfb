"""A local service that says of patterns whether they are to be watched: what the detector of `frequent_patterns.py` asks with --ask.

    python examples/pattern_service.py --delay 0.005 --ignore the,of

It listens on the loopback interface, prints its address, and ends when its standard input does. A question is a line with a pattern; the
answer, which takes --delay seconds, is `0` when one of its items is among those to be ignored, otherwise `1`. Each connection has one
question at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import Sequence


class Service:
    """Asks `pattern_service.py`; connects when it is first asked.

    Args:
        address: host:port.
    """

    PATIENCE = 10.0

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket: socket.socket | None = None

    def watched(self, pattern: str) -> bool:
        """Whether the pattern is to be watched; waits for the answer.

        Raises:
            OSError: There is no answer.
        """
        try:
            if self._socket is None:
                host, _, port = self.address.rpartition(":")
                self._socket = socket.create_connection((host, int(port)), self.PATIENCE)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(pattern.encode() + b"\n")
            answer = self._socket.recv(2)
            if not answer:
                raise ConnectionError(f"the service at {self.address} has ended the connection")
            return answer[:1] == b"1"
        except OSError:
            self.close()  # an answer that comes late is not that to the next question
            raise

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Answers(asyncio.Protocol):
    """One connection.

    Args:
        delay: Seconds that an answer takes.
        ignore: Items whose patterns are not watched.
    """

    def __init__(self, delay: float, ignore: frozenset[str]) -> None:
        self.delay, self.ignore = delay, ignore
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *questions, self.rest = (self.rest + data).split(b"\n")
        for question in questions:
            asyncio.get_running_loop().call_later(self.delay, self._answer, question)

    def _answer(self, question: bytes) -> None:
        if not self.transport.is_closing():  # otherwise whoever asked has gone
            items = question.decode("utf-8", "replace").split()
            self.transport.write(b"0\n" if self.ignore.intersection(items) else b"1\n")


async def serve(delay: float, ignore: frozenset[str], port: int) -> None:
    """Answer until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answers(delay, ignore), "127.0.0.1", port)
    host, found = server.sockets[0].getsockname()
    print(f"{host}:{found}", flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4096) else ended.set())
    await ended.wait()
    loop.remove_reader(sys.stdin.fileno())
    server.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--delay", type=float, default=0.005, help="seconds that an answer takes (default: 0.005)"
    )
    parser.add_argument(
        "--ignore", default="", help="items whose patterns are not watched, with commas between"
    )
    parser.add_argument("--port", type=int, default=0, help="where it listens (default: a free port)")
    options = parser.parse_args(argv)
    asyncio.run(serve(options.delay, frozenset(filter(None, options.ignore.split(","))), options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
