"""What a worker writes to its report pipe: a 4-byte big-endian length, and that many bytes of JSON."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

from elastic.model import codec
from elastic.model.events import Event
from elastic.model.load import WorkerReport

MAX_MESSAGE = 4 << 20
"""Bytes of the largest message; a length beyond it means that the pipe no longer says what it should."""

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something that is no message.

    Attributes:
        what: What is wrong with it.
        fatal: Nothing that follows in this pipe can be understood.
    """

    what: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Stacks:
    """What every thread of the worker is doing: the answer to SIGUSR1."""

    text: str


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    event: Event | None = None
    report: WorkerReport | None = None
    stacks: str | None = None


Message = Event | WorkerReport | Stacks


class Messages:
    """Cuts the bytes of one pipe into messages, whatever pieces they come in. Keeps at most one message's
    bytes."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._broken = False

    def feed(self, data: bytes) -> list[Message | Malformed]:
        """The messages that are complete now, in order."""
        found: list[Message | Malformed] = []
        if self._broken:
            return found
        self._rest += data
        at = 0
        while len(self._rest) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._rest, at)
            if length > self._limit:
                self._broken = True
                self._rest.clear()
                found.append(Malformed(f"a message of {length} bytes; {self._limit} is the most", fatal=True))
                return found
            end = at + _LENGTH.size + length
            if len(self._rest) < end:
                break
            found.append(_decode(bytes(self._rest[at + _LENGTH.size : end])))
            at = end
        del self._rest[:at]
        return found


def encode(message: Message) -> bytes:
    """The bytes of a message, as a worker writes them in one piece."""
    if isinstance(message, Stacks):
        body = codec.encode({"stacks": message.text})
    else:
        body = codec.encode({"event" if isinstance(message, Event) else "report": message})
    return _LENGTH.pack(len(body)) + body


def _decode(body: bytes) -> Message | Malformed:
    try:
        message = codec.decode(body, _Message)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Malformed(f"{error} (it begins with {body[:60]!r})")
    if message.stacks is not None:
        return Stacks(message.stacks)
    return message.event or message.report or Malformed("a message without event, report or stacks")
