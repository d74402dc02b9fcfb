"""What `get_state` gives and `set_state` takes: pickled as a whole, in pieces."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from elastic.api.components import Component, StatefulBolt, StatefulSpout, overrides
from elastic.errors import ExecutionError
from elastic.worker.shown import described

_SAMPLE = 32
_DEPTH = 4
_SMALLEST = 64 << 10
"""Bytes of a buffer (an array's) from which on it is kept out of the pickle."""


def has_own(component: Component) -> bool:
    """Whether the component says itself what its state is."""
    for base in (StatefulBolt, StatefulSpout):
        if isinstance(component, base):
            return overrides(component, "get_state", base)
    return False


def size(component: Component, owner: str) -> int:
    """Bytes that its state takes, about."""
    return _estimate(_get(component, owner), _DEPTH)


def _get(component: Component, owner: str) -> Any:
    try:
        return component.get_state()  # type: ignore[attr-defined]
    except Exception as e:
        raise ExecutionError(f"get_state() of {owner} raised {described(e)}") from e


def _estimate(thing: Any, depth: int) -> int:
    try:
        return _look_at(thing, depth)
    except Exception:  # of what there may be some cannot say how large it is, as a sparse tensor of Torch: it can be pickled all the same
        return 64


def _look_at(thing: Any, depth: int) -> int:
    if isinstance(thing, str | bytes | bytearray):
        return len(thing) + 4
    nbytes = getattr(thing, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes + 64
    if depth == 0 or isinstance(thing, int | float | type(None)):
        return 8
    parts: Iterable[Any]
    if isinstance(thing, dict):
        count, parts = len(thing), list(islice(thing.items(), _SAMPLE))
    elif isinstance(thing, list | tuple | set | frozenset) or (
        hasattr(thing, "__len__") and hasattr(thing, "__iter__")
    ):
        count, parts = len(thing), list(islice(thing, _SAMPLE))
    else:
        inner = getattr(thing, "__dict__", None)
        return 64 + (_estimate(inner, depth - 1) if isinstance(inner, dict) else 0)
    if not parts:
        return 8
    return 8 + sum(_estimate(p, depth - 1) for p in parts) * count // len(parts)


class _Pieces:
    """A file that cuts what is written to it into pieces."""

    def __init__(self, number: Callable[[], int], piece: int, give_way: Callable[[], None]) -> None:
        self.made: list[tuple[int, bytes]] = []
        self._number = number
        self._piece = piece
        self._give_way = give_way
        self._waiting: list[bytes] = []
        self._bytes = 0

    def write(self, data: Any) -> int:
        size = len(data)
        for begin in range(0, size, self._piece) if size > self._piece else (0,):
            part = bytes(data[begin : begin + self._piece])
            self._waiting.append(part)
            self._bytes += len(part)
            if self._bytes >= self._piece:
                self.flush()
            self._give_way()
        return size

    def flush(self) -> None:
        if self._waiting:
            self.made.append((self._number(), b"".join(self._waiting)))
            self._waiting, self._bytes = [], 0


def take(
    component: Component, owner: str, number: Callable[[], int], piece: int, give_way: Callable[[], None]
) -> tuple[list[tuple[int, bytes]], list[int], list[list[int]]]:
    """(New pieces, the numbers of those with the pickle, those of each buffer kept out of it).

    Raises:
        ExecutionError: `get_state` raised, or gave what cannot be pickled.
    """
    state = _get(component, owner)
    kept: list[pickle.PickleBuffer] = []

    def keep_out(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as raw:
            if raw.nbytes < _SMALLEST:
                return True
        kept.append(buffer)
        return False

    file = _Pieces(number, piece, give_way)
    try:
        pickle.Pickler(file, 5, buffer_callback=keep_out).dump(state)
    except Exception as e:
        raise ExecutionError(
            f"The state of {owner} cannot be pickled{_where(state)}: {described(e)}",
            remedy="What get_state() returns must be made of what can be pickled.",
        ) from e
    file.flush()
    made = list(file.made)
    pickled = [n for n, _ in made]
    buffers = []
    for buffer in kept:
        out = _Pieces(number, piece, give_way)
        with buffer.raw() as raw:
            out.write(raw)
        out.flush()
        made += out.made
        buffers.append([n for n, _ in out.made])
    return made, pickled, buffers


def _where(state: Any) -> str:
    """Which part of it cannot be pickled, as the middle of a sentence; "" when none can be named."""
    if isinstance(state, dict):
        parts: Iterable[tuple[Any, Any]] = state.items()
    elif isinstance(state, list | tuple):
        parts = enumerate(state)
    else:
        parts = vars(state).items() if hasattr(state, "__dict__") else ()
    for name, part in parts:
        try:
            pickle.dumps(part, 5)
        except Exception:
            return f" (part {name!r} is a {type(part).__name__})"
    return f" (it is a {type(state).__name__})"


class _Reader(io.RawIOBase):
    """Pieces as one file."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self._number = self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while self._number < len(self._pieces):
            piece = self._pieces[self._number]
            part = memoryview(piece)[self._at : self._at + len(into)]
            if part:
                into[: len(part)] = part
                self._at += len(part)
                return len(part)
            self._number, self._at = self._number + 1, 0
        return 0


def put(
    component: Component, owner: str, pieces: Sequence[bytes], buffers: Sequence[Sequence[bytes]]
) -> None:
    """Have `set_state` take what was taken.

    Raises:
        ExecutionError: It cannot be read, or `set_state` raised.
    """
    try:
        # Arrays that could be written to can be again: their memory is new.
        memory = [bytearray().join(b) for b in buffers]
        file = io.BufferedReader(_Reader(pieces), 64 << 10)
        state = pickle.Unpickler(file, buffers=memory).load()
    except Exception as e:
        raise ExecutionError(f"The saved state of {owner} cannot be read: {described(e)}") from e
    try:
        component.set_state(state)  # type: ignore[attr-defined]
    except Exception as e:
        raise ExecutionError(f"set_state() of {owner} raised {described(e)}") from e
