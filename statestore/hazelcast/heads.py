"""What stands in the entry of a key: the record, and where its pieces are."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from statestore.base import Head, Piece
from statestore.decisions import Record
from statestore.errors import Damaged
from statestore.hazelcast.grid import Placed

INLINE = 32 << 10
"""Bytes of a manifest that stands in the entry itself: it is stored and read with it. A state of 256 MB has less."""

_UNNAMED = "w"
"""Places that begin with it are in use before an entry names them."""


class _Head(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    sequence: int
    writer: str
    size: int
    digest: str
    manifest: str
    places: dict[int, str]
    inline: bytes


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    nonce: str
    epoch: int
    writer: str
    place: str
    head: _Head | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Entry)


@dataclass(frozen=True, slots=True)
class Stored:
    """The entry of a key.

    Attributes:
        record: Its head is without pieces and meta: those are in the manifest.
        place: Where the owner's pieces lie: "ID.SALT,SALT,...".
        manifest: The manifest's own name below the place of its epoch; "" where it is `inline`, and without a head.
        places: Of the committed version: epoch -> place.
        inline: The manifest, when it is small.
        raw: As it was read; b"" for one that is to be written.
    """

    record: Record
    place: str
    manifest: str = ""
    places: dict[int, str] = field(default_factory=dict)
    inline: bytes = field(default=b"", repr=False)
    raw: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        """As a value; each time another one."""
        head = self.record.head
        return _encoder.encode(
            _Entry(
                secrets.token_hex(8),
                self.record.epoch,
                self.record.writer,
                self.place,
                None
                if head is None
                else _Head(
                    *(head.epoch, head.sequence, head.writer, head.size, head.digest),
                    self.manifest,
                    self.places,
                    self.inline,
                ),
            )
        )

    def with_record(self, record: Record, place: str) -> Stored:
        """After a decision that leaves the committed version, or removes it."""
        if record.head is None:
            return replace(self, record=record, place=place, manifest="", places={}, inline=b"")
        return replace(self, record=record, place=place)


def decode(key: str, raw: bytes) -> Stored:
    """What `encode` gave. Raises: Damaged."""
    try:
        entry = _decoder.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Damaged(f"{key}: what the cluster holds for it is no record: {error}") from error
    head = entry.head
    record = Record(
        entry.epoch,
        entry.writer,
        None
        if head is None
        else Head(key, head.epoch, head.sequence, head.writer, (), b"", head.size, head.digest),
    )
    if head is None:
        return Stored(record, entry.place, raw=raw)
    return Stored(record, entry.place, head.manifest, dict(head.places), head.inline, raw)


def new_place(salts: Sequence[str], *, unnamed: bool = False) -> str:
    """A place that nobody else uses.

    Args:
        salts: Of its partitions.
        unnamed: Something lies there before an entry names it.
    """
    return f"{_UNNAMED if unnamed else ''}{secrets.token_hex(8)}.{','.join(salts)}"


def place_id(place: str) -> str:
    """The part of a place that is in every key."""
    return place.partition(".")[0]


def place_of(key: str) -> str:
    """That part of a key."""
    return key.partition("|")[0]


def may_be_unnamed(place: str) -> bool:
    """Whether something may lie there before an entry names it.

    Args:
        place: Its `place_id`.
    """
    return place.startswith(_UNNAMED)


def piece_key(place: str, number: int) -> Placed:
    """The key of a piece."""
    name, _, salts = place.partition(".")
    each = salts.split(",")
    return placed(f"{name}|{number}|{each[number % len(each)]}")


def manifest_key(place: str, name: str) -> Placed:
    """The key of a manifest."""
    at, _, salts = place.partition(".")
    return placed(f"{at}|{name}|{salts.partition(',')[0]}")


def placed(text: str) -> Placed:
    """The key that reads like that: its last part is its salt."""
    return Placed(text, text.rpartition("|")[2])


def keys_of(stored: Stored, pieces: tuple[Piece, ...]) -> set[Placed]:
    """The keys of everything that a committed version consists of."""
    head = stored.record.head
    if head is None:
        return set()
    # It may have been replaced since the pieces were read: those of a later version are not its own.
    found = {piece_key(stored.places[p.epoch], p.number) for p in pieces if p.epoch in stored.places}
    if stored.manifest:
        found.add(manifest_key(stored.places[head.epoch], stored.manifest))
    return found
