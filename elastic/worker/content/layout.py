"""How the bytes of a state are arranged, and the note (`Meta`) that says which piece is what.

A state is one or more *layers* of the same grid, then *whole* pieces, then the keys that are gone. What comes later holds.

*Grid*: the places of keys (`bins.place`) are divided into `2**bits` buckets by their upper bits, of about eight entries each; a piece
holds `2**(bits - split)` neighbouring buckets (`grid`). So the entry of a key is found without reading any other but its few neighbours.

*Whole* pieces hold entries in any order, and are read at once. They are cheaper to make: for what changed last, for small states, and for
keys without a place.
"""

from __future__ import annotations

import msgspec

from elastic.errors import ExecutionError

VERSION = 4
NO_COPY = -1
"""Nothing was copied ahead."""
BUCKET = 8
"""Entries that are read together, about. More of them read fewer at a time in vain; fewer are found with less work each."""


class StateMeta(msgspec.Struct, array_like=True):
    """One keyed state. Numbers of pieces are places in the order in which they are given to `install`; -1: no piece.

    Attributes:
        layers: Oldest first; in each the pieces of the grid, `2**split` of them.
        whole: In the order in which they are to be read.
        gone: Pieces with keys that were removed.
        copy: The number of the copy that its pieces belong to. Those of another one say nothing of this one.
        count: Entries of the state when the note was made; -1: not known.
        alike: Its keys may be equal to others of another type: what comes later takes the place of such a one.
    """

    name: str
    bits: int
    split: int
    layers: list[list[int]]
    whole: list[int]
    gone: list[int]
    copy: int = NO_COPY
    count: int = -1
    alike: bool = False


class Meta(msgspec.Struct, array_like=True):
    """Everything of a component.

    Attributes:
        custom: Pieces of what `get_state` gave, pickled; None: it has none of its own.
        buffers: Pieces of each buffer that was kept out of that pickle.
        last: The task has stopped, and that is all; else some of it was copied ahead.
        caught_up: All of it was copied once, and what has changed since is little, or does not become less.
    """

    version: int
    states: list[StateMeta]
    custom: list[int] | None
    buffers: list[list[int]]
    last: bool = False
    caught_up: bool = False


_to_bytes = msgspec.msgpack.Encoder().encode
_to_meta = msgspec.msgpack.Decoder(Meta)


def write_meta(meta: Meta) -> bytes:
    return _to_bytes(meta)


def is_last(data: bytes) -> bool:
    """Whether that note is of a task that has stopped: of all there is, not of what was copied ahead.

    Raises:
        ExecutionError: It is none, or of another version.
    """
    return not data or read_meta(data).last


def has_caught_up(data: bytes) -> bool:
    """Whether next to nothing is missing in what that note is of, or what is missing does not become less.

    Raises:
        ExecutionError: It is none, or of another version.
    """
    if not data:
        return True
    meta = read_meta(data)
    return meta.last or meta.caught_up


def comes_in_parts(data: bytes) -> bool:
    """Whether the first pieces can be put in before the others have come.

    Raises:
        ExecutionError: It is none, or of another version.
    """
    return not data or not any(state.layers for state in read_meta(data).states)


def read_meta(data: bytes) -> Meta:
    """The note in these bytes.

    Raises:
        ExecutionError: It is none, or of another version.
    """
    try:
        meta = _to_meta.decode(data)
    except msgspec.MsgspecError as e:
        raise ExecutionError(f"The note on a saved state cannot be read: {e}") from e
    if meta.version != VERSION:
        raise ExecutionError(
            f"A saved state has the form {meta.version}; this version of elastic reads {VERSION}.",
            remedy="Run the same version of elastic on all nodes.",
        )
    return meta
