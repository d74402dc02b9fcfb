"""The way between a store and processes of its machine: messages on a Unix socket, and descriptors instead of bytes.

The same promises as the gRPC service (`statestore/base.py`), for the calls that a move waits for: a round trip costs a tenth, and large
states are handed over as files. A message is a header (size of the body, of the payload), a body of msgpack, and the payload: bytes of
pieces, one after another. Descriptors travel with the first byte.

Requests are lists: the name of the call and its arguments; each may be repeated. Answers are ["ok", ...] or ["error", kind,
message, remedy, details].
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from statestore.base import MAX_META, MAX_PIECE, Piece
from statestore.errors import Damaged, Invalid, StateStoreError, rebuild

_HEADER = struct.Struct("<IQ")
_BODY = (8 << 20) + MAX_META
_VECTOR = 512
BUFFER = 1 << 20
FILES = 64
"""Descriptors in one message, and of one state."""
PAYLOAD = 8 << 20
"""Bytes of pieces in one message; one larger piece may make it larger."""


@dataclass(slots=True)
class Message:
    """What has come.

    Attributes:
        body: The name of a call, or "ok" or "error", and what belongs to it.
        payload: Bytes of pieces.
        files: Descriptors; whoever has the message closes them.
    """

    body: list[Any]
    payload: memoryview = field(default_factory=lambda: memoryview(b""))
    files: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Close the files. Safe to call twice."""
        files, self.files = self.files, []
        for file in files:
            os.close(file)


class Closed(ConnectionError):
    """The other end has gone."""


def send(
    sock: socket.socket, body: Sequence[object], payload: Sequence[bytes] = (), files: Sequence[int] = ()
) -> None:
    """Send a message. Raises: OSError."""
    data = msgspec.msgpack.encode(body)
    header = _HEADER.pack(len(data), sum(map(len, payload))) + data
    views = [memoryview(header), *(memoryview(part) for part in payload if part)]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(files)}i", *files))] if files else []
    while views:
        done = sock.sendmsg(views[:_VECTOR], rights)
        rights = []
        while views and done >= len(views[0]):
            done -= len(views.pop(0))
        if done:
            views[0] = views[0][done:]


def receive(sock: socket.socket) -> Message:
    """Wait for a message.

    Raises:
        Closed: There is none any more.
        OSError: The connection is broken, or the socket's time is over.
        Invalid: What came is no message.
    """
    data, files, flags, _ = socket.recv_fds(sock, _HEADER.size, FILES)
    try:
        if flags & socket.MSG_CTRUNC:
            # The system has dropped those that are one too many.
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if not data:
            raise Closed("the connection has been closed")
        if len(data) < _HEADER.size:
            data += bytes(_exactly(sock, _HEADER.size - len(data)))
        length, payload = _HEADER.unpack(data)
        if length > _BODY or payload > PAYLOAD + MAX_PIECE + (1 << 20):
            raise Invalid("what came is no message of a state store")
        everything = _exactly(sock, length + payload)
        try:
            body = msgspec.msgpack.decode(everything[:length], type=list)
        except msgspec.MsgspecError as error:
            raise Invalid(f"what came is no message of a state store: {error}") from error
        return Message(body, everything[length:], files)
    except BaseException:
        for file in files:
            os.close(file)
        raise


def _exactly(sock: socket.socket, size: int) -> memoryview:
    buffer = bytearray(size)
    view = memoryview(buffer)
    done = 0
    while done < size:
        count = sock.recv_into(view[done:])
        if not count:
            raise Closed("the connection was closed within a message")
        done += count
    return view


def cut(payload: memoryview, pieces: Iterable[Piece]) -> list[bytes]:
    """The bytes of pieces that lie one after another. Raises: Damaged: there are more or fewer."""
    found = []
    at = 0
    for piece in pieces:
        found.append(bytes(payload[at : at + piece.size]))
        at += piece.size
    if at != len(payload):
        raise Damaged(f"{len(payload)} bytes came for pieces of {at}")
    return found


def error_out(error: StateStoreError) -> list[object]:
    """An error as an answer."""
    return ["error", type(error).__name__, error.message, error.remedy, dict(error.details())]


def error_in(body: Sequence[Any]) -> StateStoreError:
    """The error in an answer."""
    _, kind, message, remedy, details = body
    return rebuild(kind, message, remedy, details)


def tune(sock: socket.socket) -> None:
    """Set a socket's buffers."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER)
