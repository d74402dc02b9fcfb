"""What is left of a state that stands still, sent from process to process while the stores are taking it.

The stores are what counts: nothing is restored before they have confirmed all of it, and what they then have is what came along, piece by
piece, because a task saves once in a move. It spares the new side to ask them. What does not come, or is not enough, is fetched.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from elastic.worker.moving.stores import Name, SmallState

log = logging.getLogger("elastic.worker")
MOST = 64 << 10
"""Bytes of pieces that are sent along, at most: what the last looks may have missed. More takes longer to take in than to fetch, in a
process that has a stream to work off, and is in the way of other tasks' tuples."""
ALONE = 256 << 10
"""The same of all small states that are saved together: while one task moves at a time nothing else is on its way, and to ask the store
takes a third of its pause. Of many tasks only those go along that are small enough by themselves."""
ROOM = 4 << 20
"""Bytes that are kept at a time for all tasks that are about to come to a process. What has no room is fetched."""


class _Along(msgspec.Struct, array_like=True):
    """Names are of all pieces, in their order; none: these are all. The pieces that come along are told by their places in that order."""

    meta: bytes
    names: list[Name]
    places: list[int]
    pieces: list[bytes]


_to_bytes = msgspec.msgpack.Encoder().encode
_to_along = msgspec.msgpack.Decoder(_Along).decode


@dataclass(frozen=True, slots=True)
class _State:
    meta: bytes
    named: Sequence[Hashable]
    pieces: Sequence[bytes]
    more: int = 0


def small(state: SmallState, together: int) -> bytes:
    """All of a small state. b"": it is too large for that.

    Args:
        together: Bytes of all that are saved with it.
    """
    if state.size > MOST and together > ALONE:
        return b""
    return _to_bytes(_Along(state.meta, [], [], list(state.pieces)))


class Recent:
    """The pieces of one state that were written last: the new side may not have seen them yet. Not thread-safe."""

    def __init__(self) -> None:
        self._new = 0  # pieces at the end that it cannot have seen
        self._missed: set[int] = set()  # more of these
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._size = 0

    def add(self, number: int, data: bytes) -> None:
        """It has been put into the stores under that number."""
        self._pieces.append((number, data))
        self._size += len(data)
        self._new += 1
        while self._size > MOST:
            if self._new == len(self._pieces):
                self._new -= 1
                self._missed.add(self._pieces[0][0])
            self._size -= len(self._pieces.popleft()[1])

    def committed(self) -> None:
        """The new side can fetch all that was added."""
        self._new = 0
        self._missed.clear()

    def along(self, order: Sequence[int], names: Sequence[Name], meta: bytes) -> bytes:
        """What is to be sent when all pieces are put; b"": it would not be enough.

        Args:
            order: All that the state consists of.
            names: Theirs.
        """
        place = {n: at for at, n in enumerate(order)}
        if not self._missed.isdisjoint(place):
            return b""
        some = [(place[n], data) for n, data in self._pieces if n in place]
        if not any(at == 0 for at, _ in some):
            return b""  # the engine's part, which was written first of what is new: there is more of that than goes along
        return _to_bytes(_Along(meta, list(names), [p for p, _ in some], [d for _, d in some]))


@dataclass
class CameAlong:
    """What has come along for tasks that are about to come here, until it is needed. Thread-safe.

    Args:
        comes: Whether a task is about to come here with that move.
    """

    comes: Callable[[int, int], bool]
    _bodies: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    _size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, task: int, epoch: int, body: memoryview) -> None:
        """It has come."""
        with self._lock:
            if not self.comes(task, epoch):
                return  # too late, and something newer may be here
            self._drop(task)
            if self._size + len(body) <= ROOM:
                self._bodies[task] = epoch, bytes(body)  # a copy: it may be a part of something far larger
                self._size += len(body)

    def forget(self, task: int) -> None:
        """It is here, or does not come; `comes` says so by now."""
        with self._lock:
            self._drop(task)

    def _drop(self, task: int) -> tuple[int, bytes] | None:
        found = self._bodies.pop(task, None)
        if found is not None:
            self._size -= len(found[1])
        return found

    def take(self, task: int, epoch: int, here: Mapping[Hashable, bytes]) -> _State | None:
        """The whole state, as the stores have it when they have confirmed it; None: not all of it is here.

        Args:
            here: Pieces that are here already, by name: what stands for each of them.
        """
        with self._lock:
            kept = self._bodies.get(task)
            found = self._drop(task) if kept is not None and kept[0] == epoch else None
        if found is None:
            return None
        try:
            along = _to_along(found[1])
        except msgspec.MsgspecError as error:
            log.warning("what came along for task %d cannot be read: %s", task, error)
            return None
        if not along.names:
            return _State(along.meta, range(len(along.pieces)), along.pieces)
        came = dict(zip(along.places, along.pieces, strict=True))
        pieces = [came[n] if n in came else here.get(name) for n, name in enumerate(along.names)]
        whole = [p for p in pieces if p is not None]
        return _State(along.meta, along.names, whole) if len(whole) == len(pieces) else None
