"""The nouns and errors of the port as messages, and back; the options that both ends share."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from statestore.base import Head, Piece, Ticket, digest
from statestore.errors import (
    Conflict,
    Damaged,
    Full,
    Incomplete,
    Invalid,
    Lost,
    NotFound,
    StateStoreError,
    Superseded,
    Unavailable,
    rebuild,
)
from statestore.v1 import statestore_pb2 as pb

CHUNK = 512 << 10
"""Bytes after which a message is full; one large piece may make it larger."""

MAX_MESSAGE = 16 << 20

DETAIL = "statestore-error-bin"

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

_CODES: dict[type[StateStoreError], grpc.StatusCode] = {
    NotFound: grpc.StatusCode.NOT_FOUND,
    Superseded: grpc.StatusCode.ABORTED,
    Conflict: grpc.StatusCode.ALREADY_EXISTS,
    Full: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Incomplete: grpc.StatusCode.FAILED_PRECONDITION,
    Damaged: grpc.StatusCode.DATA_LOSS,
    Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    Lost: grpc.StatusCode.DATA_LOSS,
}
_AGAIN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,  # too many calls at once; a full store says so in its detail
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)


def ticket_out(ticket: Ticket) -> pb.Ticket:
    return pb.Ticket(key=ticket.key, epoch=ticket.epoch, writer=ticket.writer)


def ticket_in(message: pb.Ticket) -> Ticket:
    ticket = Ticket(message.key, message.epoch, message.writer)
    ticket.check()
    return ticket


def piece_out(piece: Piece) -> pb.Piece:
    return pb.Piece(epoch=piece.epoch, number=piece.number, size=piece.size, crc=piece.crc)


def piece_in(message: pb.Piece) -> Piece:
    return Piece(message.epoch, message.number, message.size, message.crc)


def pieces_in(messages: Iterable[pb.Piece]) -> tuple[Piece, ...]:
    return tuple([Piece(m.epoch, m.number, m.size, m.crc) for m in messages])


def head_out(head: Head) -> pb.Version:
    return pb.Version(
        key=head.key,
        epoch=head.epoch,
        sequence=head.sequence,
        writer=head.writer,
        pieces=[piece_out(p) for p in head.pieces],
        meta=head.meta,
    )


def head_in(message: pb.Version) -> Head:
    pieces = pieces_in(message.pieces)
    size = sum(p.size for p in pieces)
    return Head(
        message.key,
        message.epoch,
        message.sequence,
        message.writer,
        pieces,
        message.meta,
        size,
        digest(pieces, message.meta),
    )


def detail_out(error: StateStoreError) -> pb.ErrorDetail:
    # Trailers have a bounded size, and a message may hold a traceback.
    return pb.ErrorDetail(
        kind=type(error).__name__,
        message=error.message[:2000],
        remedy=error.remedy[:500],
        details=error.details(),
    )


def detail_in(detail: pb.ErrorDetail) -> StateStoreError:
    return rebuild(detail.kind, detail.message, detail.remedy, detail.details)


def error_out(error: StateStoreError) -> tuple[grpc.StatusCode, str, bytes]:
    """Status, short text, and the detail for the trailing metadata."""
    code = next((_CODES[k] for k in type(error).__mro__ if k in _CODES), grpc.StatusCode.UNKNOWN)
    return code, error.message[:200], detail_out(error).SerializeToString()


def error_in(error: grpc.RpcError, *, doing: str, address: str) -> tuple[StateStoreError, bool]:
    """The error that was raised at the other end, and whether to try again makes sense."""
    assert isinstance(error, grpc.Call)
    for name, value in error.trailing_metadata() or ():
        if name == DETAIL:
            detail = pb.ErrorDetail.FromString(value if isinstance(value, bytes) else value.encode())
            found = detail_in(detail)
            return found, isinstance(found, Unavailable)
    code = error.code()
    text = f"cannot {doing}: the state store at {address} answered {code.name}: {error.details()}"
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        text = f"cannot {doing}: the state store at {address} did not answer in time"
    return (Unavailable(text), True) if code in _AGAIN else (StateStoreError(text), False)
