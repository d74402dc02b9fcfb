"""What the sending end of every link has, whatever carries its bytes: the session's state, its lock, and who is told what.

Any thread offers and asks; the loop's thread takes in what the peer reports and calls back. Nothing is called under the lock.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from elastic.model.ids import Incarnation
from elastic.transport.base import Buffer, Receiver, Share, TransportOptions
from elastic.transport.framing import Report
from elastic.transport.loop import Loop, Timer
from elastic.transport.session import Outbound

logger = logging.getLogger(__name__)

_TURN_TIME = 0.1
"""Seconds that room is kept for a large frame that was refused."""


class BaseLink(ABC):
    """A `Link` without its connections.

    Args:
        loop: Calls back, and serves the connections.
        peer: Whom it leads to.
        options: The bounds.
        receiver: Is told of room and of losses, on the loop's thread.
        moved: Called on the loop's thread when fewer frames are unconfirmed, or the connection came or went.
    """

    def __init__(
        self,
        loop: Loop,
        peer: Incarnation,
        options: TransportOptions,
        receiver: Receiver,
        moved: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._peer = peer
        self._options = options
        self._receiver = receiver
        self._moved = moved
        self._lock = threading.Lock()  # guards _outbound and _closed
        self._outbound = Outbound(options, peer)
        self._closed = False
        self._ended = False  # for the loop's thread alone
        self._turn: Timer | None = None

    @property
    def peer(self) -> Incarnation:
        """Whom this link leads to."""
        return self._peer

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether there is a connection at this moment."""

    @property
    def ended(self) -> bool:
        """Whether the link is closed or lost: nothing can be offered any more."""
        return self._closed

    @property
    def unconfirmed(self) -> int:
        """How many frames were offered and not confirmed by the peer."""
        return self._outbound.unconfirmed[0]

    def outstanding(self, target: int) -> tuple[int, int]:
        """See `Link.outstanding`."""
        with self._lock:
            return self._outbound.outstanding(target)

    def offer(self, target: int, payload: Sequence[Buffer], *, urgent: bool = False, rows: int = 0) -> bool:
        """See `Link.offer`. False for ever once the link has ended. A refusal flushes."""
        with self._lock:
            if self._closed:
                return False
            taken = self._outbound.offer(target, payload, urgent, rows)
        if not taken:
            self.flush()
        return taken

    def offer_together(self, shares: Sequence[Share], payload: Sequence[bytes]) -> bool:
        """See `Link.offer_together`."""
        with self._lock:
            return not self._closed and self._outbound.offer_together(shares, payload)

    @abstractmethod
    def flush(self) -> None:
        """See `Link.flush`."""

    def when_received(self, callback: Callable[[], None]) -> None:
        """See `Link.when_received`."""
        with self._lock:
            later = not self._closed and self._outbound.when_received(callback)
        if later:
            self.flush()
        else:
            callback()

    def close(self) -> None:
        """See `Link.close`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._loop.post(self._say_goodbye)

    # The rest is for the loop's thread.

    @abstractmethod
    def _say_goodbye(self) -> None:
        """Tell the peer, if it can be told, that the link is closed, and `_end`."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Let the connection go, at the link's end."""

    def _take_reports(self, entries: Iterable[Report]) -> None:
        """The peer has confirmed frames, or its tasks have taken some. Raises ProtocolError."""
        room: list[int] = []
        try:
            with self._lock:
                outbound = self._outbound
                for target, total, rows in entries:
                    room += outbound.reported(target, total, rows)
        finally:
            self._announce(room)
            self._moved()

    def _announce(self, room: Iterable[int]) -> None:
        """Tell who has waited. After everything that may have moved the session's state."""
        with self._lock:
            outbound = self._outbound
            asks, due = outbound.asks, outbound.due()
        if asks:
            self.flush()
        if outbound.turn and self._turn is None:
            self._turn = self._loop.later(_TURN_TIME, self._expire)
        try:
            for target in dict.fromkeys(room):
                self._receiver.on_room(self._peer, target)
        finally:
            _call(due)

    def _expire(self) -> None:
        self._turn = None
        if not self._ended:
            with self._lock:
                room = self._outbound.expire()
            self._announce(room)

    def _end(self, *, quiet: bool = False) -> None:
        """The peer is gone, or the link given up: say what is lost; not even that nothing is, when `quiet`."""
        if self._ended:
            return
        self._ended = True
        with self._lock:
            self._closed = True
            frames, size = self._outbound.unconfirmed
        self._disconnect()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        with self._lock:
            calls = self._outbound.abandon()
            self._outbound = Outbound(self._options, self._peer)  # lets the frames go
        self._moved()
        try:
            if frames or not quiet:
                self._receiver.on_lost(self._peer, frames, size)
        finally:
            _call(calls)


def _call(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        try:
            call()
        except Exception:
            logger.exception("a callback of a link has failed; the others are called all the same")
