"""The file format of the embedded store: records with checksums, one file for each key and epoch.

A record is a header of 24 bytes and its payload. The header has a checksum of its own, so that a damaged payload can be
told from a damaged length. Numbers are little-endian:

    magic "ssr1" (4)  kind (1)  zero (3)  number (4)  size of the payload (4)  its CRC-32 (4)  CRC-32 of the above (4)

Kinds: `B` the write began: [key, epoch, writer]. `P` piece `number`. `F` pieces in a file beside this one: [its name, pieces,
where each begins]. `C` a commit: the manifest. `S` one of these within a pack (`statestore.pack`). In the file of fences also
`D` a key was deleted up to an epoch, `A` a write was given up: [key, epoch].

What a killed process leaves is a file that ends within a record: a torn tail, which is cut off. A record that is wrong while a
commit follows it is damage, and is told.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from statestore.base import Head, Piece, digest, pack, unpack
from statestore.checksum import crc32
from statestore.parcel import Placed

BEGIN, PIECE, FILE, COMMIT, DELETED, ABORTED, WRAPPED = b"B", b"P", b"F", b"C", b"D", b"A", b"S"

_MAGIC = b"ssr1"
_HEADER = struct.Struct("<4sc3xIII")
_CRC = struct.Struct("<I")
HEADER = _HEADER.size + _CRC.size


def record(kind: bytes, payload: bytes, *, number: int = 0, crc: int | None = None) -> list[bytes]:
    """A record as two parts, so that the payload is not copied."""
    header = _HEADER.pack(_MAGIC, kind, number, len(payload), crc32(payload) if crc is None else crc)
    return [header + _CRC.pack(crc32(header)), payload]


def encode_head(head: Head) -> bytes:
    """A manifest as the payload of a commit."""
    return msgspec.msgpack.encode(
        [head.key, head.epoch, head.sequence, head.writer, pack(head.pieces), head.meta]
    )


def encode_file(name: str, pieces: Placed) -> bytes:
    """Pieces in another file as the payload of a record."""
    return msgspec.msgpack.encode([name, pack(p for p, _ in pieces), [offset for _, offset in pieces]])


def decode_head(payload: bytes) -> Head:
    """What `encode_head` was given."""
    key, epoch, sequence, writer, packed, meta = msgspec.msgpack.decode(
        payload, type=tuple[str, int, int, str, bytes, bytes]
    )
    pieces = unpack(packed)
    return Head(key, epoch, sequence, writer, pieces, meta, sum(p.size for p in pieces), digest(pieces, meta))


class Fence(NamedTuple):
    """What must not come back of a key.

    Attributes:
        ended: Up to this epoch no write goes on.
        deleted: Up to this epoch, `ended` or an older one, nothing is left. 0 when nothing was deleted.
    """

    ended: int
    deleted: int

    def joined(self, epoch: int, *, deleted: bool) -> Fence:
        """With one more end: what was deleted stays so when a newer write is given up."""
        return Fence(max(self.ended, epoch), max(self.deleted, epoch) if deleted else self.deleted)


NO_FENCE = Fence(0, 0)


@dataclass(slots=True)
class Contents:
    """What a file says.

    Attributes:
        owner: (key, epoch, writer); None when not even that is whole.
        pieces: By their numbers, with their bytes, or the file that they are in and where they begin. Of two with one number the later.
        files: Pieces in other files, by their names, and where they begin.
        head: The last commit.
        length: Bytes up to the end of the last whole record.
        damage: What is wrong before a commit; "" when nothing is.
        fences: (key, epoch, deleted), in a file of fences.
    """

    owner: tuple[str, int, str] | None = None
    pieces: dict[int, tuple[Piece, bytes | tuple[str, int]]] = field(default_factory=dict)
    files: dict[str, list[tuple[Piece, int]]] = field(default_factory=dict)
    head: Head | None = None
    length: int = 0
    damage: str = ""
    fences: list[tuple[str, int, bool]] = field(default_factory=list)


def wrap(kind: bytes, key: str, epoch: int, payload: bytes, *, number: int, crc: int) -> list[bytes]:
    """A record of one write, for a file that many share."""
    return record(WRAPPED, msgspec.msgpack.encode([kind, key, epoch, number, crc, payload]))


Wrapped = tuple[bytes, str, int, int, int, bytes]
"""Kind, key, epoch, number, CRC-32, payload."""


def scan_wrapped(data: bytes) -> tuple[list[Wrapped], int, str]:
    """The records that `wrap` made; up to where they are whole; and what is wrong before others that are whole."""
    found: list[Wrapped] = []
    at = 0
    while at + HEADER <= len(data):
        header = data[at : at + _HEADER.size]
        (check,) = _CRC.unpack_from(data, at + _HEADER.size)
        magic, kind, _, size, crc = _HEADER.unpack(header)
        begin = at + HEADER
        if magic != _MAGIC or crc32(header) != check or begin + size > len(data):
            break
        payload = data[begin : begin + size]
        if crc32(payload) != crc or kind != WRAPPED:
            break
        try:
            found.append(msgspec.msgpack.decode(payload, type=Wrapped))
        except (msgspec.DecodeError, msgspec.ValidationError):
            break
        at = begin + size
    damaged = at < len(data) and _commit_after(data, at + 1)
    return found, at, f"it is damaged at byte {at}, before a commit" if damaged else ""


def scan(data: bytes) -> Contents:
    """Read a file. Never raises: what cannot be read is said in the result."""
    found = Contents()
    at = 0
    view = memoryview(data)
    while at + HEADER <= len(data):
        header = data[at : at + _HEADER.size]
        (check,) = _CRC.unpack_from(data, at + _HEADER.size)
        magic, kind, number, size, crc = _HEADER.unpack(header)
        if magic != _MAGIC or crc32(header) != check:
            break
        begin = at + HEADER
        if begin + size > len(data):
            break
        payload = bytes(view[begin : begin + size])
        if crc32(payload) != crc:
            if kind != PIECE:
                break
            # Without its piece: whether that matters depends on what is committed.
        elif not take(found, kind, number, payload, crc):
            break
        at = begin + size
        found.length = at
    if at < len(data) and _commit_after(data, at + 1):
        found.damage = f"its file is damaged at byte {at}, before a commit"
    return found


def take(found: Contents, kind: bytes, number: int, payload: bytes, crc: int) -> bool:
    """Take one whole record over; False when it makes no sense."""
    try:
        if kind == BEGIN:
            found.owner = msgspec.msgpack.decode(payload, type=tuple[str, int, str])
        elif kind == FILE:
            name, packed, offsets = msgspec.msgpack.decode(payload, type=tuple[str, bytes, list[int]])
            placed = list(zip(unpack(packed), offsets, strict=True))
            for piece, offset in placed:
                found.pieces[piece.number] = (piece, (name, offset))
            found.files[name] = placed
        elif kind == COMMIT:
            found.head = decode_head(payload)
            named = own(found.head)  # others were dropped
            found.pieces = {n: piece for n, piece in found.pieces.items() if n in named}
        elif kind in (DELETED, ABORTED):
            key, epoch = msgspec.msgpack.decode(payload, type=tuple[str, int])
            found.fences.append((key, epoch, kind == DELETED))
        elif kind == PIECE and found.owner is not None:
            found.pieces[number] = (Piece(found.owner[1], number, len(payload), crc), payload)
        else:
            return False
    except (msgspec.DecodeError, msgspec.ValidationError, struct.error, ValueError):
        return False
    return True


def own(head: Head) -> set[int]:
    """The numbers of those pieces of a version that its own epoch has put."""
    return {piece.number for piece in head.pieces if piece.epoch == head.epoch}


def _commit_after(data: bytes, at: int) -> bool:
    """Whether a whole commit or fence stands somewhere behind: then this is no torn tail."""
    while (at := data.find(_MAGIC, at)) >= 0 and at + HEADER <= len(data):
        header = data[at : at + _HEADER.size]
        _, kind, _, size, crc = _HEADER.unpack(header)
        whole = _CRC.unpack_from(data, at + _HEADER.size)[0] == crc32(header)
        if whole and kind in (COMMIT, DELETED, ABORTED, WRAPPED):
            payload = data[at + HEADER : at + HEADER + size]
            if len(payload) == size and crc32(payload) == crc and (kind != WRAPPED or _is_commit(payload)):
                return True
        at += 1
    return False


def _is_commit(payload: bytes) -> bool:
    try:
        return bool(msgspec.msgpack.decode(payload, type=Wrapped)[0] == COMMIT)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return False
