"""The bytes on a connection, and how a stream of them is split into frames. Pure: no sockets, no clock.

The process that has something to send dials (`docs/transport.md` has the whole story). All numbers are big-endian.

    dialler -> listener     Hello, then frames and requests
    listener -> dialler     Welcome, then reports

    frame     u32 length (at most max_frame)   u32 target   payload
    request   u32 1 | kind (15 bits) | length (16 bits)   u32 target   body
                kind 1, ASK: u64 bytes   u64 rows. "Report as soon as that many of this target have been consumed."
                             Target 0xFFFFFFFF: "confirm now what you have received."
                kind 2, BYE: the link was closed for good; forget its session.
    report    u32 target   u64 bytes   u64 rows
                What has been consumed of that target since the session began.
                Target 0xFFFFFFFF: the number of the last frame that was received, and 0; frames are counted from 1.

A frame of target 0xFFFFFFFE (`elastic.transport.base.SEVERAL`) is one for several targets: which ones, and what of it each is charged
with, is in its payload.

Frames carry no number: a connection keeps their order, and the Welcome says where to go on. Reports say totals, never
differences, so that one which got lost with its connection is made good by the next.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

HEADER = struct.Struct(">II")
HEADER_SIZE = HEADER.size
REPORT = struct.Struct(">IQQ")
TOTALS = struct.Struct(">QQ")

Report = tuple[int, int, int]
"""Target, bytes, rows."""

LARGEST_FRAME = (1 << 31) - 1
"""What the length field can say; `TransportOptions.max_frame` is usually far less."""

ALL_TARGETS = 0xFFFFFFFF
"""In an ASK or a report: not a target's bytes, but the frames of the whole link."""

DIRECT = 256 << 10
"""A frame of which at least so many bytes are still to come is received straight into its own buffer."""

UNBOUNDED = 1 << 62
"""The bound of rows where there is none."""

_REQUEST = 1 << 31


class Request(IntEnum):
    """What a dialler may ask for between its frames."""

    ASK = 1
    BYE = 2


class ProtocolError(Exception):
    """The other side sent what the protocol does not allow: its connection is closed, nothing else happens."""


def request(kind: Request, target: int = 0, body: bytes = b"") -> bytes:
    """A request as bytes."""
    return HEADER.pack(_REQUEST | kind << 16 | len(body), target) + body


def reports(entries: Iterable[Report]) -> bytes:
    """Reports as bytes."""
    pack = REPORT.pack
    return b"".join([pack(*entry) for entry in entries])


class ReportReader:
    """Splits what a listener sends after its Welcome."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Report]:
        """The reports that are complete with `data`."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return REPORT.iter_unpack(data[:whole])


class Splitter:
    """Splits what a dialler sends after its Hello.

    The payloads are views into what was fed, so nothing that was fed may be written to afterwards.

    Args:
        max_frame: Bytes of the largest payload that the dialler may send.

    Attributes:
        requests: (kind, target, body) of the requests that have come, oldest first; the caller clears it.
    """

    __slots__ = ("_body", "_filled", "_head", "_limit", "_target", "_word", "requests")

    def __init__(self, max_frame: int) -> None:
        self._limit = min(max_frame, LARGEST_FRAME)
        self._head = b""  # the beginning of a header
        self._body: bytearray | None = None  # the payload of an unfinished frame, in its final place
        self._filled = 0
        self._word = 0
        self._target = 0
        self.requests: list[tuple[Request, int, bytes]] = []

    def feed(self, data: bytes | memoryview) -> list[tuple[int, memoryview]]:
        """The (target, payload) of every frame that is complete with `data`, in order.

        Raises:
            ProtocolError: No frame or request begins where one should.
        """
        frames: list[tuple[int, memoryview]] = []
        end = len(data)
        view = memoryview(data)
        at = 0
        if self._body is not None or self._head:
            at = self._complete(view, frames)
            if at == end:
                return frames
        unpack = HEADER.unpack_from
        limit = self._limit
        append = frames.append
        while end - at >= HEADER_SIZE:
            word, target = unpack(data, at)
            start = at + HEADER_SIZE
            if word <= limit:
                at = start + word
                if at <= end:
                    append((target, view[start:at]))
                    continue
            else:
                at = start + self._request_length(word)
                if at <= end:
                    self._take_request(word, target, bytes(view[start:at]))
                    continue
            self._begin(word, target, at - start)
            self._fill(view[start:])
            return frames
        self._head = bytes(view[at:])
        return frames

    @property
    def space(self) -> memoryview | None:
        """Where the rest of an unfinished large frame belongs: receive into it, then call `filled`. None: `feed`."""
        if self._body is None or len(self._body) - self._filled < DIRECT:
            return None
        return memoryview(self._body)[self._filled :]

    def filled(self, size: int) -> list[tuple[int, memoryview]]:
        """So many bytes were received into `space`. Returns the frame if that completed it."""
        frames: list[tuple[int, memoryview]] = []
        self._filled += size
        self._finish(frames)
        return frames

    def _request_length(self, word: int) -> int:
        if not word & _REQUEST:
            raise ProtocolError(f"a frame of {word} bytes, where at most {self._limit} are allowed")
        kind = word >> 16 & 0x7FFF
        length = word & 0xFFFF
        if kind not in (Request.ASK, Request.BYE) or length != (TOTALS.size if kind == Request.ASK else 0):
            raise ProtocolError(f"an unknown request 0x{word:08x}")
        return length

    def _take_request(self, word: int, target: int, body: bytes) -> None:
        self.requests.append((Request(word >> 16 & 0x7FFF), target, body))

    def _begin(self, word: int, target: int, length: int) -> None:
        self._word, self._target = word, target
        self._body = bytearray(length)
        self._filled = 0

    def _fill(self, part: memoryview) -> None:
        assert self._body is not None
        until = self._filled + len(part)
        self._body[self._filled : until] = part
        self._filled = until

    def _finish(self, frames: list[tuple[int, memoryview]]) -> None:
        body = self._body
        if body is None or self._filled < len(body):
            return
        self._body = None
        if self._word & _REQUEST:
            self._take_request(self._word, self._target, bytes(body))
        else:
            frames.append((self._target, memoryview(body).toreadonly()))

    def _complete(self, view: memoryview, frames: list[tuple[int, memoryview]]) -> int:
        """Use the beginning of `view` for what an earlier one left unfinished. Returns how much of it was used."""
        at = 0
        if self._body is None:
            at = min(HEADER_SIZE - len(self._head), len(view))
            self._head += bytes(view[:at])
            if len(self._head) < HEADER_SIZE:
                return at
            word, target = HEADER.unpack(self._head)
            self._head = b""
            self._begin(word, target, word if word <= self._limit else self._request_length(word))
        assert self._body is not None
        take = min(len(self._body) - self._filled, len(view) - at)
        self._fill(view[at : at + take])
        self._finish(frames)
        return at + take
