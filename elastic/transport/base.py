"""The port: ordered frames from one worker process to another, each meant for one task there.

Promises, for two living processes:

1. Frames from one process to another arrive once and in the order of `offer`, whatever happens to the connection
   between them: a broken one is made again and goes on after the last frame that the receiver confirmed.
2. A target (a task) whose frames are not consumed stops only the senders to that target: each target has its own window
   of bytes, and one of rows (tuples), that were sent and not yet consumed.
3. At most `in_flight` bytes are on their way to one peer (offered, not yet received there): in-band marks wait behind
   them. A larger frame passes alone.
4. A frame larger than a window (of bytes or of rows) passes when nothing else is in that window; one larger than `max_frame` raises
   `TupleTooLarge`.
5. Urgent frames are taken whatever is full. They are small and few, count in the bounds (which they may exceed), and
   overtake nothing that was taken before them.
6. When the peer's process is gone (another incarnation answers at its address, or the link is closed), what was not yet
   received is counted and reported by `on_lost`; it is never sent to anybody else.

No method blocks on the peer (but `Transport.close`, for a moment). Whoever gets False from `offer` waits for `on_room`.

A link ends once: it is closed, or its peer's process turns out to be gone. From then on `offer` says False, and no
`on_room` follows; `on_lost` was the notice (also with 0 frames). Whoever waits for room looks for the next incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from elastic.model.ids import Incarnation

Buffer = bytes | bytearray | memoryview

Share = tuple[int, int, int]
"""A target, and the bytes and rows of a frame for several that it is charged with."""

SEVERAL = 0xFFFFFFFE
"""In place of the target of a frame that was offered for several (`Link.offer_together`)."""

LARGEST_URGENT = 1024
"""Payload bytes of the largest urgent frame: what no bound stops has to be small."""


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """Bounds of the transport.

    Attributes:
        window: Bytes per target that are sent and not consumed.
        window_rows: Rows per target that are sent and not consumed, 0 for any number.
        in_flight: Bytes per peer that are offered and not received there.
        max_frame: Bytes of the largest frame.
        reconnect_min, reconnect_max: Seconds between attempts to connect again, growing from one to the other.
    """

    window: int = 1 << 20
    in_flight: int = 1 << 20
    max_frame: int = 256 << 20
    window_rows: int = 0
    reconnect_min: float = 0.02
    reconnect_max: float = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a worker listens.

    Attributes:
        tcp: `host:port`.
        unix: Path of a Unix socket, or "".
        boot: Identifies the machine; the Unix socket is used between workers with the same one.
    """

    tcp: str
    unix: str = ""
    boot: str = ""


class Receiver(Protocol):
    """What the worker gives to its transport. Called on the transport's threads; must not block."""

    def on_frame(self, source: Incarnation, target: int, payload: memoryview) -> None:
        """A frame has arrived; its payload stays valid. `Transport.consumed` is called when the task has taken it.

        Args:
            target: The task; `SEVERAL` for a frame that was offered for several: of each of them it is then said what that has taken.
        """

    def on_room(self, peer: Incarnation, target: int) -> None:
        """`offer` to that target said False before, and is worth another try."""

    def on_lost(self, peer: Incarnation, frames: int, size: int) -> None:
        """The peer's process is gone, with so many frames (bytes) that it had not received."""


class Link(Protocol):
    """The way to one incarnation of a peer. Thread-safe."""

    @property
    def peer(self) -> Incarnation: ...

    @property
    def connected(self) -> bool: ...

    def offer(self, target: int, payload: Sequence[Buffer], *, urgent: bool = False, rows: int = 0) -> bool:
        """Take a frame for `target`, to be sent at the next `flush`. The buffers must not change afterwards.

        Args:
            target: The task.
            payload: Its content, in parts.
            urgent: Take it whatever is full: for fences and openings of links, and for what tells a new side that the
                stores have something for it (`elastic.worker.tuples.wire`: STORED, SAVED), of at most `LARGEST_URGENT` bytes. In
                all else it is a frame like any other; `Transport.consumed` gives its room back.
            rows: How many tuples are in it; the peer says the same number to `Transport.consumed`. A frame without rows
                is not stopped by the window of rows.

        Returns:
            False when the target's window or the peer's in-flight bound is full: nothing was taken, what was offered
            before is flushed, and `on_room` will be called. An urgent frame: only when the link has ended.

        Raises:
            TupleTooLarge: Larger than `max_frame`.
            ValueError: Urgent, and larger than `LARGEST_URGENT`.
        """

    def offer_together(self, shares: Sequence[Share], payload: Sequence[bytes]) -> bool:
        """Take one frame for several targets, to be sent at the next `flush`.

        With a hundred targets that get a few tuples each, a frame of its own for each of them is most of the work, at either end.

        Args:
            shares: Each target once, with what it is charged with: the peer says the same numbers to `Transport.consumed`, for each target.
            payload: Its content, in parts; it says by itself what is for whom.

        Returns:
            False when one of them, or the peer's in-flight bound, has no room for it: nothing was taken, nobody will be told of room, and
            nothing is reserved. What is offered to each target by itself then is refused or taken as always.
        """

    def outstanding(self, target: int) -> tuple[int, int]:
        """Payload bytes and rows for that target that were offered and not consumed, as far as the peer has said."""

    def flush(self) -> None:
        """Write what was offered, as far as the socket takes it at once; the transport's thread writes the rest."""

    def when_received(self, callback: Callable[[], None]) -> None:
        """Call back, once, when the peer's process has received every frame that was offered so far, or the link has ended.

        It flushes, and asks the peer to confirm without delay; over a connection that breaks it asks again.

        Args:
            callback: Called on the transport's thread, or at once on this one if nothing is outstanding or the link is
                closed already; never under a lock of the link. Must not block. When the link ended with a loss,
                `Receiver.on_lost` was called before.
        """

    def close(self) -> None:
        """Give up the link; what was not received is reported by `on_lost`. Safe to call twice."""


class Transport(Protocol):
    """All links of one worker."""

    @property
    def address(self) -> Address: ...

    def start(self, receiver: Receiver) -> None:
        """Begin to listen. Raises `EnvironmentProblem` when the address is taken."""

    def link(self, peer: Incarnation, address: Address) -> Link:
        """The link to that incarnation, always the same object, also when it has ended. Connecting happens behind.

        A link to an earlier incarnation of the same worker is closed: one place has one process.
        """

    def consumed(
        self, source: Incarnation, target: int, size: int, rows: int = 0, *, soon: bool = False
    ) -> None:
        """The task has taken frames of `size` payload bytes with so many rows from that source: gives their room back to it.

        Args:
            soon: It is told at once, also of a little: a task that takes little at a time is waited for by all that its sources emit to.
        """

    def close(self) -> None:
        """Close everything; threads have ended when it returns. Safe to call twice.

        What was offered and living peers have not confirmed is waited for, but not long.
        """
