"""The emitter's end of one link (the seed's upstream task): from one emitting task to one target.

    HOLDING -> (Resume) FLUSHING -> (buffer empty) FLOWING -> (Pause: fence) HOLDING

Promises: tuples leave in the order of emission; each position is given to one tuple, when it leaves; a fence says exactly what has
left; nothing leaves between a fence and the Resume that ends it; the buffer is bounded, and nothing is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from elastic.errors import ProtocolViolation
from elastic.migration import events as ev
from elastic.migration.actions import AskRoom, Block, Open, Send, SendFence, Unblock
from elastic.migration.role import Actions, Role
from elastic.migration.snapshot import OutLink, Unsent
from elastic.migration.table import EMITTER, EmitterState
from elastic.migration.view import NOBODY
from elastic.model.ids import Incarnation

MOST_HELD = 16 << 20
"""Bytes in an output buffer at which the task is blocked, however few tuples they are: 32,768 of 512 bytes. What makes it more goes in."""
_EMPTY: deque[Unsent] = deque()
"""The buffer of all that hold nothing: a worker may have a million links, and an empty deque takes 600 bytes. Never appended to."""


class Emitter(Role):
    """See the module. Made holding: the first Resume says where the target is.

    Args:
        life: Of the source task.
        limit: Tuples in the output buffer at which the task is blocked; `MOST_HELD` is the other bound.
        link: How far it had come elsewhere, when its task was moved here.

    Attributes:
        sent: Tuples that have left in this life of the source.
        epoch: Of the newest fence, whichever process sent it.
        fenced: Whether this process has sent it.
        where: The worker life that the link leads to.
        base: What had left before that: where it begins there. Repeated when the link is opened to it anew, because the
            first word may come later than the second.
    """

    table = EMITTER
    __slots__ = (
        "base",
        "buffer",
        "epoch",
        "fenced",
        "full",
        "life",
        "limit",
        "rows",
        "sent",
        "size",
        "source",
        "target",
        "where",
    )

    def __init__(self, source: int, target: int, life: int, limit: int, link: OutLink | None = None) -> None:
        super().__init__()
        self.source, self.target = source, target
        self.life, self.limit = life, limit
        self.sent = link.sent if link is not None else 0
        self.epoch = link.epoch if link is not None else 0
        self.buffer: deque[Unsent] = deque(link.buffer) if link is not None and link.buffer else _EMPTY
        self.rows, self.size = sum(u.count for u in self.buffer), sum(u.size for u in self.buffer)
        self.full = self._is_full()
        self.fenced = False
        self.where = NOBODY
        self.base = self.sent

    def __str__(self) -> str:
        return f"emitter {self.source}->{self.target}"

    @property
    def flowing(self) -> bool:
        """Whether what is emitted may go straight to the link. The data path then says how many have left by `left`."""
        return self.state is EmitterState.FLOWING

    def left(self, count: int) -> int:
        """Some tuples have left while it was flowing: the shortcut for `Emitted`. Returns the position of the first."""
        first = self.sent + 1
        self.sent += count
        return first

    def kept(
        self,
        item: object,
        count: int,
        join: Callable[[Any, Any], object | None] | None = None,
        size: int = 0,
    ) -> bool:
        """Keep some tuples while it is not flowing: the shortcut for `Emitted`. False: there is no room, or it flows.

        Args:
            join: Makes one item of the last that is kept and this one; None: they stay two.
            size: Of the item, in bytes.
        """
        if self.full or self.state is EmitterState.FLOWING:
            return False
        if self.buffer is _EMPTY:
            self.buffer = deque()
        one = join(self.buffer[-1].item, item) if join is not None and self.buffer else None
        if one is not None:
            last = self.buffer[-1]
            self.buffer[-1] = Unsent(one, last.count + count, last.size + size)
        else:
            self.buffer.append(Unsent(item, count, size))
        self.rows += count
        self.size += size
        self.full = self._is_full()
        return True

    def _is_full(self) -> bool:
        return self.rows >= self.limit or self.size >= MOST_HELD

    def export(self) -> OutLink:
        """What has to travel with the task."""
        return OutLink(self.target, self.sent, self.epoch, tuple(self.buffer))

    def _emitted(self, event: ev.Emitted) -> Actions:
        if self.state is EmitterState.FLOWING:
            return (self._send(Unsent(event.item, event.count)),)
        if self.full:
            raise ProtocolViolation(
                f"{self}: emitted although its output buffer of {self.limit} tuples is full"
            )
        self.kept(event.item, event.count)
        return (Block(self.source, self.target),) if self.full else ()

    def _send(self, unsent: Unsent) -> Send:
        return Send(self.source, self.target, self.life, self.left(unsent.count), unsent.count, unsent.item)

    def _room(self, event: ev.Room) -> Actions:
        if self.state is not EmitterState.FLUSHING:
            return ()
        actions: list[object] = []
        if self.buffer:
            unsent = self.buffer.popleft()
            self.rows -= unsent.count
            self.size -= unsent.size
            actions.append(self._send(unsent))
        if self.full and not self._is_full():
            self.full = False
            actions.append(Unblock(self.source, self.target))
        if self.buffer:
            actions.append(AskRoom(self.source, self.target))
        else:
            self.buffer = _EMPTY
            self.state = EmitterState.FLOWING
        return tuple(actions)

    def _pause(self, event: ev.Pause) -> Actions:
        self.state = EmitterState.HOLDING
        self.epoch, self.fenced = event.epoch, True
        fence = SendFence(self.source, self.target, event.epoch, self.life, self.sent)
        return (*self._open(event.at, event.epoch), fence)

    def _detach(self, event: ev.Detach) -> Actions:
        # Whoever runs the target next is another incarnation of it, wherever that is.
        self.state, self.where = EmitterState.HOLDING, NOBODY
        return ()

    def _resume(self, event: ev.Resume) -> Actions:
        # A task that held may be another incarnation now, although it is in the same process as before: begin anew with it.
        opened = self._open(event.where, 0, again=self.state is EmitterState.HOLDING)
        if self.buffer:
            self.state = EmitterState.FLUSHING
            return (*opened, AskRoom(self.source, self.target))
        self.state = EmitterState.FLOWING
        return opened

    def _open(self, where: Incarnation, epoch: int, *, again: bool = False) -> Actions:
        if where == self.where and not again:
            return ()
        if where != self.where:
            self.where, self.base = where, self.sent
        return (Open(self.source, self.target, where, self.life, self.base, epoch),)

    doors = {  # noqa: RUF012
        ev.Emitted: "_emitted",
        ev.Room: "_room",
        ev.Pause: "_pause",
        ev.Detach: "_detach",
        ev.Resume: "_resume",
    }
