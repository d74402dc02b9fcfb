"""What the files of a process that has ended say, put together: which writes are open, which versions are whole."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from statestore.base import Head, Piece
from statestore.decisions import Record
from statestore.journal import Held
from statestore.parcel import Slice
from statestore.records import NO_FENCE, Contents, Fence, own

Handed = dict[tuple[str, int], dict[str, list[tuple[Piece, int]]]]
"""Of each write: files that were handed over, by their names, and where pieces begin in them."""


def take_over(
    found: Contents,
    keys: dict[str, Held],
    fences: Mapping[str, Fence],
    directory: Path,
    handed: Handed,
    *,
    partly: bool = False,
) -> bool:
    """Take what a file says of a write over into what is known of its key.

    Args:
        found: The file, or the part of a common one, that is about that write; has an owner.
        keys: What is known; changed.
        fences: By keys.
        directory: Where files that were handed over lie.
        handed: Those that are there; changed.
        partly: Of a common file: the write has a file of its own as well, and what it committed is told there.

    Returns:
        Whether it is wanted: a process may have been killed between a fence and the removal, and a common file keeps what
        was removed from it as long as anything else in it is wanted.
    """
    assert found.owner is not None
    key, epoch, writer = found.owner
    fence = fences.get(key, NO_FENCE)
    if epoch <= fence.deleted:
        return False
    if epoch <= fence.ended:
        if found.head is None and not found.damage and not partly:
            return False
        writer = ""
    held = keys.setdefault(key, Held(Record(0, "", None)))
    record = held.record
    head = record.head
    if found.head is not None and (head is None or _newer(found.head, head)):
        head = found.head
    if epoch > record.epoch or (epoch == record.epoch and writer):
        held.record = Record(epoch, writer, head)
    else:
        held.record = Record(record.epoch, record.writer, head)
    if found.head is not None:  # what was in a common file before
        named = own(found.head)
        held.pieces = {i: v for i, v in held.pieces.items() if i[0] != epoch or i[1] in named}
    sizes: dict[str, int] = {}
    for name, pieces in found.files.items():
        with contextlib.suppress(OSError):
            sizes[name] = (directory / name).stat().st_size
            handed.setdefault((key, epoch), {})[name] = pieces
    for number, (piece, place) in found.pieces.items():
        if isinstance(place, bytes):
            held.pieces[epoch, number] = (piece, place)
        elif place[1] + piece.size <= sizes.get(place[0], -1):
            held.pieces[epoch, number] = (piece, Slice(directory / place[0], place[1], piece.size))
    if found.damage and not held.damage:
        held.damage = found.damage
    return True


def settle(held: Held, had: set[int]) -> list[int]:
    """See whether the committed version of a key is whole, and let go of what nothing refers to.

    Args:
        held: What is known of the key; changed.
        had: Epochs that there are files of.

    Returns:
        Those of which nothing is wanted: what a killed process was about to remove.
    """
    head, record = held.record.head, held.record
    named = {(p.epoch, p.number): p for p in head.pieces} if head is not None else {}
    missing = [i for i, p in named.items() if i not in held.pieces or held.pieces[i][0] != p]
    if missing and not held.damage:
        held.damage = f"{len(missing)} of the {len(named)} pieces of its committed version are damaged"
    if held.damage:
        return []
    writing = record.epoch if record.writer else 0
    held.pieces = {i: v for i, v in held.pieces.items() if i in named or i[0] == writing}
    needed = {epoch for epoch, _ in held.pieces} | {writing} | ({head.epoch} if head is not None else set())
    return sorted(had - needed)


def _newer(one: Head, other: Head) -> bool:
    return (one.epoch, one.sequence) > (other.epoch, other.sequence)
