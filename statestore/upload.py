"""A stream of pieces to a store elsewhere: a bounded number of bytes under way, and resumed when it breaks."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from statestore import wire
from statestore.base import Opened, Piece, Ticket, cost
from statestore.errors import StateStoreError, Unavailable
from statestore.patience import Patience
from statestore.v1 import statestore_pb2 as pb
from statestore.v1.statestore_pb2_grpc import StateStoreServiceStub

WINDOW = 8 << 20
"""Bytes that are under way at most: beyond that, `put` waits for an answer."""


class Upload:
    """The stream of one ticket; used by one thread at a time, but for `close`. What was not confirmed is kept, and sent again.

    Args:
        stub: To call.
        ticket: Who puts.
        seconds: How long a stream may stay open; then it is taken for broken, and another one takes over.
        begin: Tells the store of the ticket again.
        patience: Makes a `Patience` for what its argument says.
    """

    def __init__(
        self,
        stub: StateStoreServiceStub,
        ticket: Ticket,
        seconds: float,
        begin: Callable[[Ticket], Opened],
        patience: Callable[[str], Patience],
    ) -> None:
        self._stub = stub
        self._ticket = ticket
        self._seconds = seconds
        self._begin = begin
        self._make_patience = patience
        self._kept: deque[tuple[Piece, bytes]] = deque()  # put, and not confirmed
        self._kept_size = 0
        self._unsent: list[tuple[Piece, bytes]] = []
        self._unsent_size = 0
        self._requests: queue.SimpleQueue[pb.PutRequest | None] | None = None
        self._answers: Any = None
        self._confirmed = 0  # of this stream
        self._unanswered = 0  # bytes that were sent after the last request for an answer
        self._patience: Patience | None = None
        self._refused: StateStoreError | None = None
        self._broken = False
        self._closed = False

    def put(self, piece: Piece, data: bytes) -> None:
        """See `StateStore.put`."""
        if self._refused is not None:
            raise self._refused
        self._kept.append((piece, data))
        self._kept_size += cost(len(data))
        self._unsent.append((piece, data))
        self._unsent_size += cost(len(data))
        if self._unsent_size >= wire.CHUNK:
            self._send(confirm=False)
        while self._kept_size > WINDOW:
            self._confirm()

    def flush(self) -> None:
        """See `StateStore.flush`."""
        self._send()
        while self._kept:
            self._confirm()

    def close(self) -> None:
        """End the stream. Any thread may call: whoever is using it finds that it is closed, and what it keeps is left to it."""
        self._closed = True
        requests, answers = self._requests, self._answers
        if requests is not None:
            requests.put(None)
        if answers is not None and self._kept:
            answers.cancel()

    def _send(self, *, confirm: bool = True) -> None:
        """Send what was not sent. An answer is asked for when somebody waits for it, and after every half window."""
        if self._closed:
            raise Unavailable(f"the stream of {self._ticket.key} is closed")
        if self._requests is None and self._kept:
            if self._broken:
                self._begin(self._ticket)  # the store may have been started again meanwhile
            self._unsent = list(self._kept)
            self._open()
        if self._requests is None or not (self._unsent or (confirm and self._unanswered)):
            return
        pieces = self._unsent
        self._unsent, self._unsent_size = [], 0
        begin = held = 0
        for at, (_, data) in enumerate(pieces):  # more than one message only after a break
            held += cost(len(data))
            if held >= wire.CHUNK or at == len(pieces) - 1:
                part = pieces[begin : at + 1]
                self._unanswered += held
                ask = self._unanswered >= WINDOW // 2 or (confirm and at == len(pieces) - 1)
                self._unanswered = 0 if ask else self._unanswered
                self._requests.put(
                    pb.PutRequest(
                        ticket=wire.ticket_out(self._ticket),
                        pieces=[wire.piece_out(p) for p, _ in part],
                        data=[d for _, d in part],
                        confirm=ask,
                    )
                )
                begin, held = at + 1, 0
        if confirm and self._unanswered:
            self._requests.put(pb.PutRequest(confirm=True))
            self._unanswered = 0

    def _open(self) -> None:
        requests: queue.SimpleQueue[pb.PutRequest | None] = queue.SimpleQueue()
        self._requests = requests
        self._confirmed = self._unanswered = 0

        def feed() -> Iterator[pb.PutRequest]:
            while (request := requests.get()) is not None:
                yield request

        self._answers = self._stub.Put(feed(), timeout=self._seconds, wait_for_ready=True)

    @property
    def refused(self) -> bool:
        """Whether something of it has been: nothing more is put then."""
        return self._refused is not None

    def _confirm(self) -> None:
        """Wait for one answer."""
        if self._patience is None:
            self._patience = self._make_patience(f"put pieces of {self._ticket.key}")
        if self._refused is not None:
            raise self._refused
        try:
            if self._answers is None:
                self._send()
            if self._closed:
                raise Unavailable(f"the stream of {self._ticket.key} is closed")
            answer = next(self._answers)
        except StopIteration:  # it ended in order, with something open: as good as broken
            self._drop()
            self._patience.broken(Unavailable(f"the stream of {self._ticket.key} ended too early"))
            return
        except grpc.RpcError as error:
            self._drop()
            try:
                self._patience.failed(error)
            except Unavailable:
                self._patience = None  # whoever asks again may be luckier
                raise
            except StateStoreError as refused:
                self._refused = refused
                raise
            return
        for _ in range(answer.stored - self._confirmed):
            _, data = self._kept.popleft()
            self._kept_size -= cost(len(data))
        self._confirmed = answer.stored
        self._patience = None  # something moved: the time begins anew

    def _drop(self) -> None:
        self._broken = True
        if self._requests is not None:
            self._requests.put(None)  # its thread is waiting there
        if self._answers is not None:
            self._answers.cancel()
        self._requests = self._answers = None
