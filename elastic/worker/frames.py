"""What comes to one worker over the links from other processes, frame by frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic.migration import events as ev
from elastic.model.events import Severity
from elastic.model.ids import Incarnation, worker_of
from elastic.model.words import counted
from elastic.transport.base import SEVERAL, Transport
from elastic.worker.shown import described
from elastic.worker.tuples import wire
from elastic.worker.tuples.batch import Item

if TYPE_CHECKING:
    from elastic.worker.worker import Worker


LONG = 8192
"""Where more tuples wait for a task, what comes for it in parcels waits as bytes: a window may be four times as many, of each emitter."""


class Frames:
    """The port `elastic.transport.base.Receiver` of a worker: called on the transport's threads. And what gives room back.

    Args:
        transport: None: nothing comes.
    """

    def __init__(self, worker: Worker, transport: Transport | None) -> None:
        self._worker = worker
        self._transport = transport

    def on_frame(self, source: Incarnation, target: int, payload: memoryview) -> None:
        """See the port."""
        if target == SEVERAL:
            self._on_parcel(source, payload)
            return
        worker = self._worker
        try:
            item, life, first = wire.decode(payload, worker.streams, source)
        except Exception as e:
            self._unreadable(source, target, e)
            self._consumed(source, target, len(payload), 0)
            return
        if isinstance(item, wire.Told):
            self._consumed(source, target, len(payload), 0)
            if item.kind == wire.RESTORED:
                worker.moves.feed(ev.RestoreHeard(item.epoch, tuple(wire.told_in(payload))))
                return
            if item.kind == wire.BEHIND:
                for number, milliseconds in wire.told_in(payload):
                    worker.saving.let_catch_up(number, item.epoch, milliseconds / 1e3)
                return
            if item.kind >= wire.STORED:
                worker.saving.fetching.told(item, payload)
                return
            worker.moves.told(target, item, life, first, source)
            return
        task = worker.tasks.get(target)
        if task is None or not task.take_in(item, life, first):
            worker.moves.arrived(target, life, first, item)
            worker.moves.work()

    def _on_parcel(self, source: Incarnation, payload: memoryview) -> None:
        worker, late = self._worker, False
        try:
            parts = list(wire.parcel_in(payload, worker.streams, source))
        except Exception as e:
            self._unreadable(source, 0, e)
            return
        tasks = worker.tasks
        for target, batch, life, first in parts:
            task = tasks.get(target)
            if task is not None and task.queued > LONG:
                batch = wire.as_bytes(batch)
            if task is None or not task.take_in(batch, life, first):
                worker.moves.arrived(target, life, first, wire.as_bytes(batch))
                late = True
        if late:
            worker.moves.work()

    def _unreadable(self, source: Incarnation, target: int, error: Exception) -> None:
        self._worker.event(
            "frame-unreadable",
            f"A frame from {source} for {f'task {target}' if target else 'several tasks'} could not be read: {described(error)}",
            Severity.ERROR,
            task=target,
        )

    def on_room(self, peer: Incarnation, target: int) -> None:
        """See the port."""
        self._worker.ways.signal(target)
        self._worker.moves.room(target)

    def on_lost(self, peer: Incarnation, frames: int, size: int) -> None:
        """See the port."""
        if frames:
            self._worker.event(
                "frames-lost",
                f"{counted(frames, 'frame')} ({size:,} bytes) for worker {worker_of(peer)}: not confirmed before its process ended.",
                Severity.WARNING, worker=worker_of(peer), details={"frames": frames, "bytes": size},
            )  # fmt: skip

    def give_back(self, item: Item, target: int, *, soon: bool = False) -> None:
        """That has been taken, or is dropped: its room goes back to the sender. From any thread.

        Args:
            soon: As `Transport.consumed`.
        """
        if item.origin:
            self._consumed(item.origin, target, item.size, item.credit, soon=soon)

    def _consumed(
        self, source: Incarnation | str, target: int, size: int, rows: int, *, soon: bool = False
    ) -> None:
        if self._transport is not None and source:
            self._transport.consumed(Incarnation(source), target, size, rows, soon=soon)
