"""How a connection begins: the dialler's Hello and the listener's Welcome. Pure.

    Hello     "ELTR"   u16 version   u16 length   u64 session   u32 attempt   u8 resuming
              u64 window   u64 in_flight   u32 max_frame   u64 window_rows   text sender   text receiver
    Welcome   "ELTR"   u16 version   u16 length   u8 verdict   u64 received   text incarnation

`text` is a u16 length and UTF-8. The first eight bytes keep their meaning in every version.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from elastic.model.ids import Incarnation
from elastic.transport.framing import LARGEST_FRAME, ProtocolError

MAGIC = b"ELTR"
VERSION = 3
LONGEST = 4096
"""Bytes of the longest Hello or Welcome."""

_PREFIX = struct.Struct(">4sHH")
_HELLO = struct.Struct(">QIBQQIQ")
_WELCOME = struct.Struct(">BQ")
_LENGTH = struct.Struct(">H")


class Verdict(IntEnum):
    """A listener's answer."""

    OK = 0
    WRONG_INCARNATION = 1
    """The process that the dialler wants is not here (any more)."""
    UNKNOWN_SESSION = 2
    """The dialler wants to go on with a session that the listener does not have (any more)."""
    STALE = 3
    """A later attempt of the same link is here already."""
    WRONG_VERSION = 4


class WrongVersion(ProtocolError):
    """A well-formed greeting in another version of the protocol."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The dialler introduces itself.

    Attributes:
        session: A random number that is the same for every connection of one link.
        attempt: Grows with each connection of the link: the greatest is the newest.
        resuming: Whether the dialler was welcomed before: the listener must know the session then.
        window, in_flight, max_frame: The dialler's bounds, in bytes.
        window_rows: The dialler's bound of rows per target, 0 for none.
        sender, receiver: Who dials, and whom it wants.
    """

    session: int
    attempt: int
    resuming: bool
    window: int
    in_flight: int
    max_frame: int
    window_rows: int
    sender: Incarnation
    receiver: Incarnation

    def encode(self) -> bytes:
        """As bytes. Raises ValueError when the names are too long."""
        body = _HELLO.pack(
            self.session,
            self.attempt,
            self.resuming,
            self.window,
            self.in_flight,
            self.max_frame,
            self.window_rows,
        )
        return _greeting(body + _text(self.sender) + _text(self.receiver))


@dataclass(frozen=True, slots=True)
class Welcome:
    """The listener's answer.

    Attributes:
        verdict: Whether the connection goes on.
        received: The number of the last frame of this session that was received.
        incarnation: Who the listener is.
    """

    verdict: Verdict
    received: int
    incarnation: Incarnation

    def encode(self) -> bytes:
        """As bytes."""
        return _greeting(_WELCOME.pack(self.verdict, self.received) + _text(self.incarnation))


class Body(NamedTuple):
    """The body of a greeting, and what came after it."""

    body: bytes
    rest: bytes


def split(data: bytes) -> Body | None:
    """Take one greeting off the beginning of `data`; None when it is not complete.

    Raises:
        WrongVersion: Another version of the protocol.
        ProtocolError: Not a greeting at all. Noticed at the first wrong byte.
    """
    if not MAGIC.startswith(data[:4]):
        raise ProtocolError(f"it began with {data[:16]!r}, which no worker says")
    if len(data) < _PREFIX.size:
        return None
    _, version, length = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise WrongVersion(f"it speaks version {version} of the protocol; this is version {VERSION}")
    if length > LONGEST:
        raise ProtocolError(f"a greeting of {length} bytes, where at most {LONGEST} are allowed")
    end = _PREFIX.size + length
    if len(data) < end:
        return None
    return Body(data[_PREFIX.size : end], data[end:])


def parse_hello(body: bytes) -> Hello:
    """The Hello in a body from `split`. Raises ProtocolError."""
    try:
        session, attempt, resuming, window, in_flight, max_frame, window_rows = _HELLO.unpack_from(body)
    except struct.error as e:
        raise ProtocolError("a Hello that is too short") from e
    sender, at = _read_text(body, _HELLO.size)
    receiver, at = _read_text(body, at)
    if at != len(body) or resuming > 1 or not window or not in_flight or not 0 < max_frame <= LARGEST_FRAME:
        raise ProtocolError("a Hello with impossible values")
    return Hello(
        session,
        attempt,
        bool(resuming),
        window,
        in_flight,
        max_frame,
        window_rows,
        Incarnation(sender),
        Incarnation(receiver),
    )


def parse_welcome(body: bytes) -> Welcome:
    """The Welcome in a body from `split`. Raises ProtocolError."""
    try:
        verdict, received = _WELCOME.unpack_from(body)
        known = Verdict(verdict)
    except (struct.error, ValueError) as e:
        raise ProtocolError("a Welcome that cannot be read") from e
    name, at = _read_text(body, _WELCOME.size)
    if at != len(body):
        raise ProtocolError("a Welcome with something behind it")
    return Welcome(known, received, Incarnation(name))


def _greeting(body: bytes) -> bytes:
    if len(body) > LONGEST:
        raise ValueError(f"a greeting of {len(body)} bytes; at most {LONGEST}: the names are too long")
    return _PREFIX.pack(MAGIC, VERSION, len(body)) + body


def _text(value: str) -> bytes:
    data = value.encode()
    return _LENGTH.pack(len(data)) + data


def _read_text(body: bytes, at: int) -> tuple[str, int]:
    try:
        (length,) = _LENGTH.unpack_from(body, at)
    except struct.error as e:
        raise ProtocolError("a greeting that ends too early") from e
    start = at + _LENGTH.size
    if start + length > len(body):
        raise ProtocolError("a greeting that ends too early")
    try:
        return body[start : start + length].decode(), start + length
    except UnicodeDecodeError as e:
        raise ProtocolError("a name that is not UTF-8") from e
