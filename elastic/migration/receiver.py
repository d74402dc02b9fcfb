"""The receiver's end of one link (the seed's downstream task): from one emitting task to one target that runs here.

    UNKNOWN -> (Opened) OPEN <-> EARLY

Promises: what it accepts has consecutive positions, each once, whatever way it came: from the source's old place or its new one, over
a connection that broke and was made again. What comes early waits. A fence is reached when everything before it was accepted.
What is early is bounded by the senders' windows. A source that starts without its state has a new life, whose positions count anew.
"""

from __future__ import annotations

from elastic.errors import ProtocolViolation
from elastic.migration import events as ev
from elastic.migration.actions import Accept, Drop, FenceReached
from elastic.migration.role import Actions, Role
from elastic.migration.snapshot import Early, InLink
from elastic.migration.table import RECEIVER, ReceiverState


class Receiver(Role):
    """See the module.

    Args:
        link: How far it had come elsewhere, when its task was moved here.

    Attributes:
        life: Of the source, as far as known; -1: nothing is known.
        seen: The position up to which everything was accepted.
    """

    table = RECEIVER
    __slots__ = ("_early", "_fence", "life", "seen", "source", "target")

    def __init__(self, source: int, target: int, link: InLink | None = None) -> None:
        super().__init__()
        self.source, self.target = source, target
        self.life, self.seen = (link.life, link.seen) if link is not None else (-1, 0)
        self._early: list[Early] = list(link.early) if link is not None else []
        self._fence: ev.FenceArrived | None = None
        if self.life >= 0:
            self.state = ReceiverState.EARLY if self._early else ReceiverState.OPEN

    def __str__(self) -> str:
        return f"receiver {self.source}->{self.target}"

    def takes(self, life: int, first: int, count: int) -> bool:
        """The data path's shortcut for `Arrived` in the usual case: it is next. False: ask `handle`."""
        if (
            self.state is not ReceiverState.OPEN
            or life != self.life
            or first != self.seen + 1
            or self._fence is not None
        ):
            return False
        self.seen += count
        return True

    @property
    def waiting(self) -> bool:
        """Whether something has come that is not next."""
        return bool(self._early)

    def reached(self, epoch: int) -> bool:
        """Whether everything up to the source's fence of that move was accepted."""
        fence = self._fence
        return fence is not None and fence.epoch == epoch and self._is_reached(fence)

    def export(self) -> InLink:
        """What has to travel with the task."""
        return InLink(self.source, self.life, self.seen, tuple(self._early))

    def close(self) -> Actions:
        """The task is not here any more: what was early gives its room back. Where it counts, it has gone along with `export`."""
        early, self._early = self._early, []
        return tuple(Drop(self.source, self.target, e.count, e.item, "gone with its task") for e in early)

    def _is_reached(self, fence: ev.FenceArrived) -> bool:
        return fence.life < self.life or (fence.life == self.life and fence.position <= self.seen)

    def _opened(self, event: ev.Opened) -> Actions:
        # In a life that is known the position says nothing new: what is in front of it may still be on its way.
        if event.life <= self.life:
            return ()
        self.life, self.seen = event.life, event.position
        dropped = [e for e in self._early if e.life < event.life]
        self._early = [e for e in self._early if e.life >= event.life]
        drops = (Drop(self.source, self.target, e.count, e.item, "of a life that has ended") for e in dropped)
        return (*drops, *self._take_early(), *self._fence_reached())

    def _arrived(self, event: ev.Arrived) -> Actions:
        if event.life == self.life and event.first == self.seen + 1:
            self.seen += event.count
            accept = Accept(self.source, self.target, event.count, event.item)
            if not self._early and self._fence is None:
                return (accept,)
            return (accept, *self._take_early(), *self._fence_reached())
        if event.life < self.life:
            return (Drop(self.source, self.target, event.count, event.item, "of a life that has ended"),)
        last = event.first + event.count - 1
        if event.life == self.life and last <= self.seen:
            return (Drop(self.source, self.target, event.count, event.item, "taken before"),)
        if event.life == self.life and event.first <= self.seen:
            raise ProtocolViolation(
                f"{self}: tuples {event.first}-{last} came in one piece after {self.seen} of them were taken"
            )
        if any(
            e.life == event.life and e.first == event.first and e.count == event.count for e in self._early
        ):
            return (Drop(self.source, self.target, event.count, event.item, "taken before"),)
        self._early.append(Early(event.life, event.first, event.count, event.item))
        self._early.sort(key=lambda e: (e.life, e.first))
        if self.life >= 0:
            self.state = ReceiverState.EARLY
        return ()

    def _take_early(self) -> Actions:
        """Accept what is next by now."""
        accepted: list[object] = []
        while self._early:
            e = self._early[0]
            if e.life == self.life and e.first + e.count - 1 <= self.seen:
                accepted.append(Drop(self.source, self.target, e.count, e.item, "taken before"))
            elif e.life == self.life and e.first == self.seen + 1:
                self.seen += e.count
                accepted.append(Accept(self.source, self.target, e.count, e.item))
            else:
                break
            self._early.pop(0)
        self.state = ReceiverState.EARLY if self._early else ReceiverState.OPEN
        return tuple(accepted)

    def _fence_arrived(self, event: ev.FenceArrived) -> Actions:
        if self._fence is None or (event.epoch, event.life) >= (self._fence.epoch, self._fence.life):
            self._fence = event
        return self._fence_reached()

    def _fence_reached(self) -> Actions:
        fence = self._fence
        if fence is None or not self._is_reached(fence):
            return ()
        return (FenceReached(self.source, self.target, fence.epoch),)

    def forget_fence(self, epoch: int) -> None:
        """That move is over: its fence says nothing any more."""
        if self._fence is not None and self._fence.epoch <= epoch:
            self._fence = None

    doors = {  # noqa: RUF012
        ev.Opened: "_opened",
        ev.Arrived: "_arrived",
        ev.FenceArrived: "_fence_arrived",
    }
