"""The store's end of the way for processes of its machine; see `statestore.near`."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from statestore import near
from statestore.base import BackEnd, Head, Piece, Ticket, first_of, pack, unpack
from statestore.bulk import of_epoch
from statestore.errors import Invalid, Missing, NotFound, StateStoreError
from statestore.memory import MemoryStore, checked
from statestore.near import Message
from statestore.parcel import Content, Slice, content_bytes, read_at

log = logging.getLogger(__name__)

_Answers = Generator[tuple[Sequence[object], list[bytes], list[int]], None, None]
"""Messages: a body, bytes, and files. Whoever takes a message closes its files."""

_CONNECTIONS = 512
_ENDING = 5.0
_SMALL = 64 << 10
_BATCH = 256 << 10
_BODIES = 256
_PAUSE = 0.5


class NearServer:
    """Serves a store on a Unix socket, a thread for each connection. Only this machine's user can reach it.

    Args:
        store: The back end; the caller closes it after this.
        path: Of the socket, shorter than 100 bytes. What a dead process left there is replaced.
        directory: Where writers make the files that they hand over; "" when the store keeps no files.

    Raises:
        Missing: There can be no socket.
    """

    def __init__(self, store: BackEnd, path: Path, directory: str = "") -> None:
        self._store = store
        self._directory = directory
        self._path = path
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self._closing = threading.Event()
        self._calls: dict[str, Callable[[Message], list[object]]] = {
            "begin": self._begin,
            "commit": self._commit,
            "commits": self._commits,
            "abort": self._abort,
            "reserve": self._reserve,
            "release": self._release,
            "delete": self._delete,
            "save": self._save,
        }
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            near.tune(self._listening)
            self._listening.bind(str(path))
            path.chmod(0o600)
            self._listening.listen(128)
        except OSError as error:
            self._listening.close()
            raise Missing(
                f"the state store cannot listen at {path}: {error}", remedy="Give a shorter path."
            ) from error
        self._thread = threading.Thread(target=self._accept, name="statestore-near", daemon=True)

    def start(self) -> None:
        """Begin to answer; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Refuse new calls and end those under way. Safe to call twice."""
        with self._lock:
            self._closed = True
            self._closing.set()
            connections = dict(self._connections)
        for sock in (self._listening, *connections):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in (self._thread, *connections.values()):
            if thread.ident is not None:
                thread.join(_ENDING)
        self._listening.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        told = False
        while not self._closed:
            try:
                sock, _ = self._listening.accept()
                self._begin_to_serve(sock)
                told = False
            except (OSError, RuntimeError):  # there is no descriptor, or no thread
                if self._closed:
                    return
                if not told:
                    log.exception("no connection can be accepted; it is tried again and again")
                    told = True
                self._closing.wait(_PAUSE)  # nothing tells when there is one again

    def _begin_to_serve(self, sock: socket.socket) -> None:
        thread = threading.Thread(target=self._serve, args=(sock,), name="statestore-near", daemon=True)
        with self._lock:
            if self._closed or len(self._connections) >= _CONNECTIONS:
                sock.close()  # whoever it was tries again
                return
            self._connections[sock] = thread
            try:
                thread.start()
            except RuntimeError:
                del self._connections[sock]
                sock.close()
                raise

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock:
                near.tune(sock)
                while not self._closed:
                    message = near.receive(sock)
                    try:
                        self._answer(sock, message)
                    finally:
                        message.close()
        except near.Closed:
            pass
        except (OSError, StateStoreError) as error:
            if not self._closed:
                log.info("a connection is given up: %s", error)
        finally:
            with self._lock:
                self._connections.pop(sock, None)

    def _answer(self, sock: socket.socket, message: Message) -> None:
        name = message.body[0] if message.body else ""
        try:
            if name == "fetch":
                answers = self._fetch(message)
                # What a client has of a state does not come along: it is told from the bytes of others by having a message of its own.
                alone = message.body[2] or message.body[3] is not None
                with closing(answers), closing(answers if alone else _batched(answers)) as messages:
                    for body, payload, files in messages:
                        try:
                            near.send(sock, body, payload, files)
                        finally:
                            _close(files)
                return
            call = self._calls.get(name)
            if call is None:
                raise Invalid(f"there is no call {name!r}")
            answer = call(message)
        except StateStoreError as error:
            answer = near.error_out(error)
        except OSError:
            raise
        except Exception as error:
            log.exception("%s failed", name)
            answer = near.error_out(
                StateStoreError(f"{name} failed in the state store: {type(error).__name__}: {error}")
            )
        near.send(sock, answer)

    def _begin(self, message: Message) -> list[object]:
        opened = self._store.begin(_ticket(*message.body[1:]))
        return ["ok", opened.next_number, opened.sequence, self._directory]

    def _commit(self, message: Message) -> list[object]:
        key, epoch, writer, sequence, packed, meta, inline, handed, offsets = message.body[1:]
        ticket = _ticket(key, epoch, writer)
        mine = unpack(inline)
        for piece, data in zip(mine, near.cut(message.payload, mine), strict=True):
            self._store.put(ticket, piece, data)
        if handed:
            if not message.files:
                raise Invalid(f"{key}: pieces in a file, and no file")
            self._adopt(ticket, message.files[0], list(zip(unpack(handed), offsets, strict=True)))
        head = self._store.commit(ticket, sequence, unpack(packed), meta)
        return ["ok", head.sequence]

    def _commits(self, message: Message) -> list[object]:
        """Many at once, of pieces that come along: for each, its sequence or its error."""
        described = [
            (_ticket(key, epoch, writer), sequence, unpack(packed), meta, unpack(inline))
            for key, epoch, writer, sequence, packed, meta, inline in message.body[1]
        ]
        data = iter(near.cut(message.payload, [piece for one in described for piece in one[-1]]))

        def one(
            commit: tuple[Ticket, int, tuple[Piece, ...], bytes, list[tuple[Piece, bytes]]],
        ) -> object:
            ticket, sequence, pieces, meta, inline = commit
            try:
                for piece, content in inline:
                    self._store.put(ticket, piece, content)
                return self._store.commit(ticket, sequence, pieces, meta).sequence
            except StateStoreError as error:
                return near.error_out(error)

        commits = [(*rest, [(piece, next(data)) for piece in mine]) for *rest, mine in described]
        return ["ok", list(self._store.each(one, commits))]

    def _adopt(self, ticket: Ticket, file: int, pieces: list[tuple[Piece, int]]) -> None:
        if isinstance(self._store, MemoryStore):
            self._store.adopt(ticket, file, pieces)
            return
        for piece, offset in pieces:
            self._store.put(ticket, piece, checked(ticket.key, piece, read_at(file, offset, piece.size)))

    def _abort(self, message: Message) -> list[object]:
        self._store.abort(_ticket(*message.body[1:]))
        return ["ok"]

    def _reserve(self, message: Message) -> list[object]:
        epoch, sizes, seconds = message.body[1:]
        self._store.reserve(epoch, sizes, seconds)
        return ["ok"]

    def _release(self, message: Message) -> list[object]:
        epoch, keys = message.body[1:]
        self._store.release(epoch, keys)
        return ["ok"]

    def _delete(self, message: Message) -> list[object]:
        """Many at once: for each, None or its error."""

        def one(wanted: Sequence[Any]) -> object:
            try:
                self._store.delete(*wanted)
            except StateStoreError as error:
                return near.error_out(error)
            return None

        return ["ok", list(self._store.each(one, message.body[1]))]

    def _save(self, message: Message) -> list[object]:
        """Many at once: for each, its sequence or its error."""
        described = [
            (_ticket(key, epoch, writer), unpack(packed), meta)
            for key, epoch, writer, packed, meta in message.body[1]
        ]
        data = iter(near.cut(message.payload, [p for _, pieces, _ in described for p in pieces]))

        def one(state: tuple[Ticket, tuple[Piece, ...], bytes, list[bytes]]) -> object:
            ticket, pieces, meta, contents = state
            try:
                return self._store.save_whole(ticket, pieces, contents, meta).sequence
            except StateStoreError as error:
                return near.error_out(error)

        states = [(*state, [next(data) for _ in state[1]]) for state in described]
        return ["ok", list(self._store.each(one, states))]

    def _fetch(self, message: Message) -> _Answers:
        """A message for each state; several when it is large."""

        known, most = frozenset(unpack(message.body[2])), message.body[3]

        def one(wanted: Sequence[Any]) -> tuple[Head, Iterator[Content | None]] | StateStoreError:
            try:
                key, epoch = wanted
                head, contents = self._open(key, epoch, known, most)
                # What is read only when it is asked for is asked for one after the other.
                return head, iter(list(contents)) if head.size <= _SMALL else contents
            except StateStoreError as error:
                return error

        for found in self._store.each(one, message.body[1]):
            if isinstance(found, StateStoreError):
                yield near.error_out(found), [], []
                continue
            head, contents = found
            about = [head.key, head.epoch, head.sequence, head.writer, pack(head.pieces), head.meta]
            yield from _parts(["ok", *about], contents)

    def _open(
        self, key: str, epoch: int, known: Collection[Piece], most: int | None
    ) -> tuple[Head, Iterator[Content | None]]:
        """See `BackEnd.open`. All of what lies in files, unless these are too many to be handed over: nobody has to read it."""
        if not isinstance(self._store, MemoryStore):
            return self._store.open(key, epoch, known, most)
        head = of_epoch(self._store.head(key), key, epoch)
        found = [None if piece in known else content for piece, content in self._store.contents(head)]
        if len({content.path for content in found if isinstance(content, Slice)}) <= near.FILES:
            return head, iter(found)
        # Each commit may have brought one. What lies in small ones is read here, and no more of it than is wanted.
        found = found[: first_of(head.pieces, known, most)]
        sizes = Counter[Path]()
        for content in found:
            if isinstance(content, Slice):
                sizes[content.path] += content.size
        handed = {path for path, _ in sizes.most_common(near.FILES)}
        return head, (c.read() if isinstance(c, Slice) and c.path not in handed else c for c in found)


def _batched(answers: _Answers) -> _Answers:
    """Small answers in common messages: the bodies of several, and the bytes of all."""
    bodies: list[object] = []
    together: list[bytes] = []
    size = 0
    within = False  # a state that comes in several messages: the last one may be small, and belongs to those before it
    for body, payload, files in answers:
        mine = sum(map(len, payload))
        small = not files and body[0] != "part" and not within and mine <= _SMALL
        within = body[0] == "part"
        if bodies and (not small or size + mine > _BATCH or len(bodies) >= _BODIES):
            try:
                yield ["batch", bodies], together, []
            except BaseException:
                _close(files)  # of a message that nobody takes any more
                raise
            bodies, together, size = [], [], 0
        if small:
            bodies.append(body)
            together += payload
            size += mine
        else:
            yield body, payload, files
    if bodies:
        yield ["batch", bodies], together, []


def _parts(about: list[object], contents: Iterator[Content | None]) -> _Answers:
    """A state in messages that are not too large. Each says, for its pieces, where they are: [file, offset], nothing for
    bytes that come along, False for what the client has; the last one says that it is. Files are counted over all of them, and each
    comes once: the client has all of them open until it has the last message."""
    places: list[object] = []
    payload: list[bytes] = []
    numbers: dict[Path, int] = {}
    files: list[int] = []
    size = 0
    failed: StateStoreError | None = None
    try:
        for content in contents:
            if size >= near.PAYLOAD:
                taken, files = files, []
                yield ["part", places], payload, taken
                places, payload, size = [], [], 0
            if content is None:
                places.append(False)
            elif isinstance(content, Slice):
                if content.path not in numbers:
                    files.append(_open(content.path))
                    numbers[content.path] = len(numbers)
                places.append([numbers[content.path], content.offset])
            else:
                places.append(None)
                payload.append(content_bytes(content))
                size += len(content)
        taken, files = files, []
        yield [*about, places], payload, taken
    except StateStoreError as error:
        failed = error
    finally:
        _close(files)
    if failed is not None:
        yield near.error_out(failed), [], []


def _close(files: Iterable[int]) -> None:
    for file in files:
        os.close(file)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(f"{path} is not there any more") from error
    except OSError as error:
        raise Missing(f"the state store cannot read {path}: {error.strerror}") from error


def _ticket(key: str, epoch: int, writer: str) -> Ticket:
    ticket = Ticket(key, epoch, writer)
    ticket.check()
    return ticket
