"""A link's two ends as pure state: numbers, retained frames, windows, confirmations. No sockets, threads or clock.

`Outbound` is the sender's end, `Inbound` (`inbound.py`) the receiver's. Between them goes any ordered pipe that may break and be made
again.

    Outbound                                      Inbound
      offer -> retained, in the order of offer
      take  -> bytes to write      ---------->      arrived(frames)      counts them; due: report
      confirmed(number)            <----------      report: number       so many have arrived: no longer retained
      consumed(target, totals)     <----------      report: target       the task has taken so much: room again
      broken ... resumed(number)   <----------      received             retained frames after it are written again

A frame is refused when its target's window, of bytes or of rows, or the link's in-flight bound has no room for it. One
that is larger than a bound passes when nothing else is in it. So that a stream of small frames can't keep a large one
out, a refused frame of more than half of a bound reserves it: smaller ones (by their share of the bound that they fill
most) are refused too, until it was taken, or until `expire` says that it didn't come back in time. An urgent frame is
never refused; it counts like any other.

The receiver reports a target when half of its window, of bytes or of rows, has been consumed since its last report, and
confirms at every quarter of the in-flight bound; the sender *asks* for one as soon as there is room again, once somebody waits for it. So
no report is needed for every frame, none can be missing for ever, and nobody waits until half of a window is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from elastic.errors import TupleTooLarge
from elastic.transport.base import LARGEST_URGENT, SEVERAL, Buffer, Share, TransportOptions
from elastic.transport.framing import (
    ALL_TARGETS,
    HEADER,
    HEADER_SIZE,
    TOTALS,
    UNBOUNDED,
    ProtocolError,
    Request,
    request,
)

PART = 16
"""Part of a window that is to be free, at least, before whoever waits for room is told: a few batches, so that it is not told of each."""
_pack = HEADER.pack


class _Window:
    """A target's window, at the sender."""

    __slots__ = (
        "asked",
        "consumed",
        "reserved",
        "reserved_rows",
        "reserved_size",
        "rows_asked",
        "rows_consumed",
        "rows_sent",
        "sent",
        "told",
        "waiting",
        "waiting_rows",
    )

    def __init__(self) -> None:
        self.sent = 0  # bytes offered since the session began
        self.consumed = 0  # of those, consumed as far as the receiver has said
        self.rows_sent = 0
        self.rows_consumed = 0
        self.reserved = 0.0  # the weight of the largest refused frame that may not be overtaken
        self.reserved_size = 0  # its bytes
        self.reserved_rows = 0
        self.told = False  # whether that one was told of room and has not come back since
        self.waiting = -1  # bytes of the smallest refused frame, -1: none
        self.waiting_rows = 0  # and rows of the one with the fewest
        self.asked = 0  # the totals that the receiver was asked to report
        self.rows_asked = 0


class Outbound:
    """The sender's end. Not thread-safe.

    Args:
        options: The bounds.
        peer: For messages: who the frames are for.

    Attributes:
        unsent: What is to be written next; `take` empties it. Empty while the pipe is broken.
        asks: Whether a request was put into `unsent` that should not wait for more; whoever writes it clears this.
        turn: Whether a reservation was announced as free and not used yet: call `expire` after a while.
    """

    __slots__ = (
        "_asked",
        "_bytes",
        "_first",
        "_flight",
        "_frames",
        "_in_flight",
        "_max_frame",
        "_peer",
        "_reserved",
        "_reserved_for",
        "_reserved_rows",
        "_told",
        "_waiting",
        "_watchers",
        "_window",
        "_window_rows",
        "_windows",
        "_writable",
        "asks",
        "turn",
        "unsent",
    )

    def __init__(self, options: TransportOptions, peer: str) -> None:
        self._window = options.window
        self._window_rows = options.window_rows or UNBOUNDED
        self._in_flight = options.in_flight
        self._max_frame = options.max_frame
        self._peer = peer
        self._windows: dict[int, _Window] = {}
        self._waiting: dict[int, _Window] = {}
        self._frames: deque[tuple[int, Sequence[Buffer]]] = deque()  # (payload bytes, buffers), not confirmed
        self._first = 1  # number of the first of them
        self._flight = 0  # bytes of all of them, with headers
        self._bytes = 0  # and without
        self._reserved = 0  # bytes, with header: as in _Window, for the in-flight bound
        self._reserved_for = -1  # the target of that frame
        self._reserved_rows = 0
        self._told = False  # as in _Window
        self._asked = 0  # up to which number a confirmation was asked for
        self._watchers: deque[tuple[int, Callable[[], None]]] = deque()  # (number, call when confirmed)
        self._writable = False
        self.unsent: list[Buffer] = []
        self.asks = False
        self.turn = False

    @property
    def unconfirmed(self) -> tuple[int, int]:
        """How many frames were offered and not confirmed, and their payload bytes."""
        return len(self._frames), self._bytes

    @property
    def last(self) -> int:
        """The number of the last frame that was offered."""
        return self._first + len(self._frames) - 1

    def outstanding(self, target: int) -> tuple[int, int]:
        """As `Link.outstanding`."""
        window = self._windows.get(target)
        if window is None:
            return 0, 0
        return window.sent - window.consumed, window.rows_sent - window.rows_consumed

    def offer(self, target: int, payload: Sequence[Buffer], urgent: bool = False, rows: int = 0) -> bool:
        """As `Link.offer`."""
        size = 0
        for buffer in payload:
            if type(buffer) is memoryview:
                if buffer.itemsize != 1 or buffer.ndim != 1:
                    return self.offer(target, [memoryview(b).cast("B") for b in payload], urgent, rows)
                size += buffer.nbytes
            else:
                size += len(buffer)
        if size > self._max_frame:
            raise TupleTooLarge(
                f"a frame of {size} bytes for task {target} at {self._peer} is larger than the largest frame"
                f" ({self._max_frame} bytes)",
                remedy="emit smaller tuples, or raise the transport's max_frame",
            )
        window = self._windows.get(target) or self._opened(target)
        cost = size + HEADER_SIZE
        if urgent:
            if size > LARGEST_URGENT:
                raise ValueError(f"an urgent frame of {size} bytes; at most {LARGEST_URGENT}")
        else:
            used = window.sent - window.consumed
            if (
                (used and used + size > self._window)
                or (
                    rows
                    and (held := window.rows_sent - window.rows_consumed)
                    and held + rows > self._window_rows
                )
                or (window.reserved and self._weight(size, rows) < window.reserved)
            ):
                self._refuse_window(target, window, size, rows)
                return False
            if (self._flight and self._flight + cost > self._in_flight) or (
                cost < self._reserved and self._holds_room(target)
            ):
                self._refuse_flight(target, window, size, rows, cost)
                return False
            window.reserved = 0.0
            self._reserved = 0
        window.sent += size
        window.rows_sent += rows
        self._keep(target, size, payload)
        return True

    def offer_together(self, shares: Sequence[Share], payload: Sequence[bytes]) -> bool:
        """As `Link.offer_together`."""
        size = sum(map(len, payload))
        if self._reserved or self._flight + size + HEADER_SIZE > self._in_flight or size > self._max_frame:
            return False
        windows = []
        for target, part, rows in shares:
            window = self._windows.get(target) or self._opened(target)
            if (
                window.reserved
                or window.waiting >= 0
                or window.sent - window.consumed + part > self._window
                or window.rows_sent - window.rows_consumed + rows > self._window_rows
            ):
                return False
            windows.append(window)
        for window, (_, part, rows) in zip(windows, shares, strict=True):
            window.sent += part
            window.rows_sent += rows
        self._keep(SEVERAL, size, payload)
        return True

    def _opened(self, target: int) -> _Window:
        if not 0 <= target < SEVERAL:
            raise ValueError(f"{target} is not a task's number")
        window = self._windows[target] = _Window()
        return window

    def _keep(self, target: int, size: int, payload: Sequence[Buffer]) -> None:
        """Take a frame: it is written, and kept until it is confirmed."""
        self._flight += size + HEADER_SIZE
        self._bytes += size
        frame = (_pack(size, target), *payload)
        self._frames.append((size, frame))
        if self._writable:
            self.unsent += frame

    def take(self) -> list[Buffer]:
        """What is to be written next, in order."""
        unsent = self.unsent
        self.unsent = []
        self.asks = False
        return unsent

    def when_received(self, call: Callable[[], None]) -> bool:
        """Have `call` come out of `due` when everything that was offered so far is confirmed. False: it is already."""
        if not self._frames:
            return False
        self._watchers.append((self.last, call))
        self.ask()
        return True

    def due(self) -> list[Callable[[], None]]:
        """What is to be called now, each once. Ask after `reported` and `resumed`."""
        calls = []
        while self._watchers and self._watchers[0][0] < self._first:
            calls.append(self._watchers.popleft()[1])
        return calls

    def abandon(self) -> list[Callable[[], None]]:
        """The link has ended: what was still to be called."""
        calls = [call for _, call in self._watchers]
        self._watchers.clear()
        return calls

    def reported(self, target: int, total: int, rows: int) -> list[int]:
        """A report has come: `confirmed` or `consumed`."""
        return self.confirmed(total) if target == ALL_TARGETS else self.consumed(target, total, rows)

    def confirmed(self, number: int) -> list[int]:
        """The receiver has all frames up to `number`. Returns the targets that have room again.

        Raises:
            ProtocolError: There is no frame of that number.
        """
        if number > self.last:
            raise ProtocolError(f"{self._peer} confirms frame {number}, but only {self.last} were offered")
        frames = self._frames
        count = number - self._first + 1
        if count <= 0:
            return []
        size = 0
        for _ in range(count):
            size += frames.popleft()[0]
        self._first = number + 1
        self._bytes -= size
        self._flight -= size + count * HEADER_SIZE
        return self._room()

    def consumed(self, target: int, total: int, rows: int) -> list[int]:
        """The target has taken so many bytes and rows since the session began. Returns the targets that have room again."""
        window = self._windows.get(target)
        if window is None:
            return []
        window.consumed = max(window.consumed, min(total, window.sent))
        window.rows_consumed = max(window.rows_consumed, min(rows, window.rows_sent))
        return [target] if window.waiting >= 0 and self._announce(target, window) else []

    def broken(self) -> None:
        """The pipe is broken: there is nothing to write until it is made again."""
        self._writable = False
        self.unsent = []
        self.asks = False

    def resumed(self, number: int) -> list[int]:
        """The pipe is new, and the receiver has all frames up to `number`: the others are to be written (again).

        Returns:
            The targets that have room again.

        Raises:
            ProtocolError: That cannot be.
        """
        if number < self._first - 1:
            raise ProtocolError(f"{self._peer} has frame {number}, but had confirmed {self._first - 1}")
        room = self.confirmed(number)
        self._writable = True
        unsent: list[Buffer] = []
        for _, frame in self._frames:
            unsent += frame
        self.unsent = unsent
        self._asked = 0
        if self._frames and (self._reserved or self._watchers):
            self.ask()
        for window in self._waiting.values():
            window.asked = window.rows_asked = 0
        return room + self._room()

    def ask(self) -> None:
        """Ask for the confirmation of everything that was offered so far, unless that was asked for already."""
        if self._writable and self._asked < self.last:
            self._asked = self.last
            self.asks = True
            self.unsent.append(request(Request.ASK, ALL_TARGETS, TOTALS.pack(self.last, 0)))

    def expire(self) -> list[int]:
        """Give up the reservations of those who were told and have not come back. Returns the targets that have room again."""
        self.turn = False
        if self._told:
            self._told = False
            self._reserved = 0
        for window in self._windows.values():
            if window.told:
                window.told = False
                window.reserved = 0.0
        return self._room()

    def _weight(self, size: int, rows: int) -> float:
        return max(size / self._window, rows / self._window_rows)

    def _refuse_window(self, target: int, window: _Window, size: int, rows: int) -> None:
        if size > self._window // 2 or rows > self._window_rows // 2:
            weight = self._weight(size, rows)
            if weight >= window.reserved:
                window.told = False
                window.reserved, window.reserved_size, window.reserved_rows = weight, size, rows
        self._wait(target, window, size, rows)
        self._ask_for_window(target, window)

    def _refuse_flight(self, target: int, window: _Window, size: int, rows: int, cost: int) -> None:
        if cost > self._in_flight // 2 and cost >= self._reserved:
            self._told = False
            self._reserved, self._reserved_for, self._reserved_rows = cost, target, rows
        self._wait(target, window, size, rows)
        if max(cost, self._reserved) > self._in_flight - self._in_flight // 4:
            self.ask()

    def _wait(self, target: int, window: _Window, size: int, rows: int) -> None:
        # Of each the least: where one of those who wait fits, this does too.
        if window.waiting < 0:
            window.waiting, window.waiting_rows = size, rows
        else:
            window.waiting = min(window.waiting, size)
            window.waiting_rows = min(window.waiting_rows, rows)
        self._waiting[target] = window

    def _wanted(self, target: int, window: _Window) -> tuple[int, int]:
        """The bytes and rows that there must be room for before anybody is told."""
        if window.reserved:
            return window.reserved_size, window.reserved_rows
        if target == self._reserved_for:
            return max(window.waiting, self._reserved - HEADER_SIZE), window.waiting_rows
        return window.waiting, window.waiting_rows

    def _ask_for_window(self, target: int, window: _Window) -> None:
        """Ask for a report as soon as there is room for whoever waits, and a little more.

        What the receiver says of its own accord comes after half of a window: up to then whoever waits, and all that it emits to others,
        would stand still, or for ever behind a large frame.
        """
        if not self._writable:
            return
        size, rows = self._wanted(target, window)
        limit, limit_rows = self._window, self._window_rows
        need = window.sent + min(0, max(size, limit // PART) - limit)
        need_rows = window.rows_sent + min(0, max(rows, limit_rows // PART) - limit_rows) if rows else 0
        if need > window.asked or need_rows > window.rows_asked:
            window.asked = max(window.asked, need)
            window.rows_asked = max(window.rows_asked, need_rows)
            self.asks = True
            self.unsent.append(request(Request.ASK, target, TOTALS.pack(window.asked, window.rows_asked)))

    def _fits_window(self, window: _Window, size: int, rows: int) -> bool:
        used = window.sent - window.consumed
        held = window.rows_sent - window.rows_consumed
        return (not used or used + size <= self._window) and (
            not rows or not held or held + rows <= self._window_rows
        )

    def _fits_flight(self, cost: int) -> bool:
        return not self._flight or self._flight + cost <= self._in_flight

    def _holds_room(self, target: int) -> bool:
        """Whether a smaller frame of that target has to wait, as room is kept for a large one. Those of others need not while what stands
        in its way is its own task's window: a task that stands still would stop all others."""
        if target == self._reserved_for:
            return True
        window, size, rows = (
            self._windows[self._reserved_for],
            self._reserved - HEADER_SIZE,
            self._reserved_rows,
        )
        return self._fits_window(window, size, rows) and self._weight(size, rows) >= window.reserved

    def _announce(self, target: int, window: _Window) -> bool:
        """Whether a waiting target has room now; then it waits no longer."""
        size, rows = self._wanted(target, window)
        if not self._fits_window(window, size, rows):
            # It may have been refused when something else stood in the way, or urgent frames have come since.
            self._ask_for_window(target, window)
            return False
        cost = size + HEADER_SIZE
        if target == self._reserved_for:
            cost = max(cost, self._reserved)
        if (cost < self._reserved and self._holds_room(target)) or not self._fits_flight(cost):
            return False
        if window.reserved:
            self.turn = window.told = True
        if self._reserved and target == self._reserved_for:
            self.turn = self._told = True
        window.waiting = -1
        del self._waiting[target]
        return True

    def _room(self) -> list[int]:
        if not self._waiting:
            return []
        return [target for target, window in list(self._waiting.items()) if self._announce(target, window)]
