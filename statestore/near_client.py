"""A store of this machine, reached by its Unix socket; see `statestore.near`."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from statestore import near
from statestore.base import RESERVED_FOR, Fetched, Head, Piece, State, digest, first_of, pack, unpack
from statestore.bulk import manifest
from statestore.errors import Damaged, Invalid, StateStoreError, Unavailable
from statestore.memory import checked
from statestore.near import Message
from statestore.parcel import read_at

_CONNECTIONS = 8
_IDLE = 2
_PAUSE = (0.0, 0.02, 0.05, 0.1, 0.2)
_REFUSED = (errno.EACCES, errno.EPERM)


class Call:
    """A call that is under way; `result` waits for its answer, and asks again where the connection broke."""

    def __init__(
        self, store: NearStore, body: Sequence[object], payload: Sequence[bytes], files: Sequence[int]
    ) -> None:
        self._store = store
        self._request = (body, payload, files)
        self._until = time.monotonic() + store.patience
        self._failures = 0
        self._sock: socket.socket | None = None
        self._done = False
        self.attempts = 0
        """How often it was asked: after another time, all of the answer comes again."""
        store.enter(self._until)
        self._send()

    def result(self) -> Message:
        """Its answer; the caller closes it.

        Raises:
            StateStoreError: What it was refused with, or that the store cannot be reached.
        """
        while True:
            try:
                if self._sock is None:
                    self._send()
                    continue
                self._sock.settimeout(max(0.01, self._until - time.monotonic()))
                answer = near.receive(self._sock)
            except OSError as error:
                self._broken(error)
                continue
            except Invalid as error:  # where its next message begins cannot be told any more
                self._broken(OSError(error.message))
                continue
            except BaseException:
                self.end()
                raise
            if answer.body and answer.body[0] == "error":
                answer.close()
                found = near.error_in(answer.body)
                if not isinstance(found, Unavailable):
                    raise found
                self._broken(OSError(found.message))
                continue
            return answer

    def progress(self) -> None:
        """A part of the answer has come: the time begins anew."""
        self._until = time.monotonic() + self._store.patience

    def again(self, *body: object) -> None:
        """Ask for what has not come yet, should it have to be asked again."""
        self._request = (body, (), ())

    def end(self, *, well: bool = False) -> None:
        """Give the connection back; with `well`, all of the answer has been read. Safe to call twice."""
        if self._done:
            return
        self._done = True
        sock, self._sock = self._sock, None
        self._store.leave(sock, well)

    def _send(self) -> None:
        try:
            self.attempts += 1
            self._sock = self._store.connection(self._until)
            self._sock.settimeout(max(0.01, self._until - time.monotonic()))
            near.send(self._sock, *self._request)
        except OSError as error:
            self._broken(error)
        except BaseException:
            self.end()
            raise

    def _broken(self, error: OSError) -> None:
        """Returns when another attempt is worth it. Raises: Unavailable."""
        sock, self._sock = self._sock, None
        if sock is not None:
            self._store.drop(sock)
        try:
            pause = _PAUSE[min(self._failures, len(_PAUSE) - 1)]
            self._failures += 1
            if time.monotonic() + pause >= self._until or error.errno in _REFUSED:
                raise Unavailable(
                    f"the state store at {self._store.path} does not answer: {error}"
                ) from error
            self._store.pause(pause)
        except BaseException:
            self.end()
            raise


class NearStore:
    """The calls of a move to a store of this machine. Any thread may call; nothing is connected before the first call.

    Args:
        path: Of the store's socket.
        patience: Seconds that a call may take, with all its attempts, or that a transfer may stand still.
    """

    def __init__(self, path: str, *, patience: float = 15.0) -> None:
        self.path = path
        self.patience = patience
        self._room = threading.BoundedSemaphore(_CONNECTIONS)
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._used: set[socket.socket] = set()
        self._closed = threading.Event()

    def submit(
        self, body: Sequence[object], payload: Sequence[bytes] = (), files: Sequence[int] = ()
    ) -> Call:
        """Begin a call. Its `end` must be called, wherever it ends."""
        return Call(self, body, payload, files)

    def call(
        self, body: Sequence[object], payload: Sequence[bytes] = (), files: Sequence[int] = ()
    ) -> list[Any]:
        """Make a call. Returns its answer without the "ok".

        Raises:
            StateStoreError: What it was refused with, or that the store cannot be reached.
        """
        return finish(self.submit(body, payload, files))

    def reserve(self, epoch: int, sizes: Mapping[str, int], seconds: float = RESERVED_FOR) -> None:
        """See `StateStore.reserve`."""
        self.call(["reserve", epoch, dict(sizes), seconds])

    def release(self, epoch: int, keys: Sequence[str]) -> None:
        """See `StateStore.release`."""
        self.call(["release", epoch, list(keys)])

    def delete(self, wanted: Sequence[tuple[str, int]]) -> list[StateStoreError | None]:
        """See `StateStore.delete`; many at once, each succeeds or fails for itself."""
        (outcomes,) = self.call(["delete", [list(w) for w in wanted]])
        return [None if outcome is None else near.error_in(outcome) for outcome in outcomes]

    def begin_save(self, states: Sequence[State]) -> Call:
        """See `StateStore.save`: one message, for `end_many` to finish."""
        described = [
            [*_ticket(s), pack(manifest(s.ticket, s.pieces)), s.meta]
            for s in states
        ]  # fmt: skip
        return self.submit(["save", described], [data for s in states for data in s.pieces])

    def end_many(self, call: Call) -> list[StateStoreError | None]:
        """The answer to a call about many states: for each None, or why it is not stored."""
        (outcomes,) = finish(call)
        return [near.error_in(outcome) if isinstance(outcome, list) else None for outcome in outcomes]

    def fetch(
        self,
        wanted: Sequence[tuple[str, int]],
        have: Mapping[Piece, bytes] | None = None,
        most: int | None = None,
    ) -> Iterator[Fetched | StateStoreError]:
        """See `StateStore.fetch`.

        Args:
            have: If only one is wanted: pieces of it that are here already. They do not come again.
            most: If only one is wanted: about so many bytes of the others come, or are read from files, the first ones; what it gives then
                ends with these.
        """
        done = 0
        if not wanted:
            return
        known = pack(have) if have and len(wanted) == 1 else b""
        most = most if len(wanted) == 1 else None
        call = self.submit(["fetch", [list(w) for w in wanted], known, most])
        batch: deque[tuple[list[Any], memoryview]] = deque()
        try:
            while done < len(wanted):
                try:
                    found: Fetched | StateStoreError = (
                        _of_batch(batch) if batch else _state(call, batch, have or {}, most)
                    )
                except Unavailable:
                    raise
                except StateStoreError as error:
                    found = error
                done += 1
                call.progress()
                if done < len(wanted) and not batch:
                    call.again("fetch", [list(w) for w in wanted[done:]], b"", None)
                yield found
            call.end(well=True)
        finally:
            call.end()

    def close(self) -> None:
        """Let go of it; calls that are under way end with `Unavailable`. Safe to call twice."""
        self._closed.set()
        with self._lock:
            idle, self._idle = self._idle, []
            used = list(self._used)
        for sock in used:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for sock in idle:
            sock.close()

    # -- for calls

    def enter(self, until: float) -> None:
        """Wait for one of few places. Raises: Unavailable."""
        if not self._room.acquire(timeout=max(0.0, until - time.monotonic())):
            raise Unavailable(f"too many calls to the state store at {self.path} are under way")

    def leave(self, sock: socket.socket | None, well: bool) -> None:
        """Give a place back, and a connection."""
        if sock is not None:
            with self._lock:
                keep = well and len(self._idle) < _IDLE and not self._closed.is_set()
                self._used.discard(sock)
                if keep:
                    self._idle.append(sock)
            if not keep:
                sock.close()
        self._room.release()

    def connection(self, until: float) -> socket.socket:
        """An idle connection, or a new one. Raises: OSError, Unavailable."""
        self.pause(0.0)
        with self._lock:
            if self._idle:
                sock = self._idle.pop()
                self._used.add(sock)
                return sock
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            near.tune(sock)
            sock.settimeout(max(0.01, until - time.monotonic()))
            sock.connect(self.path)
        except BaseException:
            sock.close()
            raise
        with self._lock:
            self._used.add(sock)
        if self._closed.is_set():  # after `close` looked which ones are used, as far as anybody knows
            self.drop(sock)
            self.pause(0.0)
        return sock

    def drop(self, sock: socket.socket) -> None:
        """A connection is broken, and those that were made before are most likely, too."""
        with self._lock:
            self._used.discard(sock)
            idle, self._idle = self._idle, []
        for each in (sock, *idle):
            each.close()

    def pause(self, seconds: float) -> None:
        """Wait before another attempt. Raises: Unavailable: it is closed."""
        if self._closed.wait(seconds) if seconds else self._closed.is_set():
            raise Unavailable(f"the connection to the state store at {self.path} is closed")


def finish(call: Call) -> list[Any]:
    """The answer of a call without its "ok"; raises what it was refused with."""
    well = False
    try:
        answer = call.result()
        answer.close()
        well = True
        return answer.body[1:]
    except Unavailable:
        raise
    except StateStoreError:
        well = True
        raise
    finally:
        call.end(well=well)


def _ticket(state: State) -> tuple[str, int, str]:
    state.ticket.check()
    return state.ticket.key, state.ticket.epoch, state.ticket.writer


def _state(
    call: Call,
    batch: deque[tuple[list[Any], memoryview]],
    have: Mapping[Piece, bytes],
    most: int | None,
) -> Fetched:
    """One state, out of one message or several; small ones that come together with it are put into `batch`."""
    got: list[tuple[Message, list[Any]]] = []
    try:
        attempts = call.attempts
        while True:
            answer = call.result()
            if call.attempts != attempts:  # all of it comes again
                attempts = call.attempts
                for message, _ in got:
                    message.close()
                got.clear()
            if answer.body[0] == "batch":
                _spread(answer, batch)
                return _of_batch(batch)
            got.append((answer, answer.body[-1]))
            if answer.body[0] == "ok":
                return _fetched(answer.body, [(m, places) for m, places in got], have, most)
            call.progress()
    finally:
        for message, _ in got:
            message.close()


def _spread(answer: Message, batch: deque[tuple[list[Any], memoryview]]) -> None:
    """Each body in a batch with its own bytes."""
    at = 0
    for body in answer.body[1]:
        size = 0 if body[0] == "error" else sum(piece.size for piece in unpack(body[5]))
        batch.append((body, answer.payload[at : at + size]))
        at += size


def _of_batch(batch: deque[tuple[list[Any], memoryview]]) -> Fetched:
    body, payload = batch.popleft()
    if body[0] == "error":
        raise near.error_in(body)
    return _fetched(body, [(Message(body, payload), body[-1])], {}, None)


def _fetched(
    body: list[Any],
    places: Sequence[tuple[Message, list[Any]]],
    have: Mapping[Piece, bytes],
    most: int | None,
) -> Fetched:
    key, epoch, sequence, writer, named, meta = body[1:7]
    pieces = unpack(named)
    came, wanted = sum(len(where) for _, where in places), first_of(pieces, have, most)
    if came not in (len(pieces), wanted):
        raise Damaged(f"{key}: another number of pieces came than it has")
    # What has come along as bytes is here; of what is read out of files the rest can wait.
    bytes_came = any(place is None for _, where in places for place in where)
    rest = iter(pieces[: came if bytes_came else wanted])
    data: list[bytes] = []
    files = [file for message, _ in places for file in message.files]
    for message, where in places:
        data += _contents(key, message, files, where, rest, have)
    head = Head(key, epoch, sequence, writer, pieces, meta, sum(p.size for p in pieces), digest(pieces, meta))
    return Fetched(head, tuple(data))


def _contents(
    key: str,
    message: Message,
    files: Sequence[int],
    where: Sequence[Any],
    pieces: Iterator[Piece],
    have: Mapping[Piece, bytes],
) -> Iterator[bytes]:
    at = 0
    for place in where:
        piece = next(pieces, None)
        if piece is None:
            return
        if place is False or (place is not None and piece in have):
            if piece not in have:
                raise Damaged(f"{key}: piece {piece.number} has not come, and is not here")
            yield have[piece]
        elif place is None:
            yield checked(key, piece, bytes(message.payload[at : at + piece.size]))
            at += piece.size
        else:
            number, offset = place
            yield checked(key, piece, read_at(files[number], offset, piece.size))
