"""What an executor hands on over many links that lead to the same worker: one frame for all of them.

A component of a hundred tasks gets from each emitter a few tuples for each of them at a time. With a frame for each link most of the
work, at either end, is done for frames. What is said of a link stays said of it: its position, and the room that its target has.

Only what flows goes along, and only where it has room at once. All else is left where it is, for `Outputs.flush`, which knows what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from elastic.migration.emitter import Emitter as LinkEnd
from elastic.model.ids import Incarnation
from elastic.transport.base import Share
from elastic.worker.emitting.crossing import Out
from elastic.worker.emitting.destination import Emitter, TaskReleased
from elastic.worker.emitting.outputs import FLOWING, Outputs
from elastic.worker.tuples import wire
from elastic.worker.tuples.batch import Stream

FEWEST = 4
"""Links that are worth a parcel."""
MOST = 1024
"""Tuples in one: what is read in one go, at the other end, keeps the transport's thread for a third of a millisecond."""
MORE = 16
"""Of whose tuples so few fit one frame that it is no parcel, as they are large or have to be pickled: each time so many more are tried."""

REFUSED = 8
"""Times that none is made for a worker that had no room for one: it would be encoded in vain, at a time when there is too much to do."""

Part = tuple[Outputs, Out, LinkEnd, list[Any]]
"""Who emits, its buffer for a target, the link there, and what was in the buffer: it is emptied when the task is taken away."""

Gone = tuple[Outputs, Out, Stream, int, int]
"""What has been handed on of somebody's buffer: its stream, so many tuples, and bytes."""


class Parcels:
    """Of one executor, on its thread.

    Args:
        emitter: It.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._most: dict[Stream, int] = {}  # of whose tuples as many are too large for one frame
        self._refused: dict[Incarnation, int] = {}  # by whom, and how often none is to be made
        self._gone: list[Gone] = []  # what is to be counted

    def hand_on(self, all_outputs: Sequence[Outputs]) -> bool:
        """Hand on what can go in parcels of what waits in these. Returns whether something has."""
        if len(all_outputs) < FEWEST and all(len(outputs.outs) < FEWEST for outputs in all_outputs):
            return False  # mostly: then it is not looked for links
        groups: dict[tuple[Incarnation, type], list[Part]] = {}
        for outputs in all_outputs:
            me = outputs.me
            for out in outputs.outs.values():
                link = out.link
                if link is None or link.state is not FLOWING or out.mixed or out.handing:
                    continue
                where = link.where  # once: it may lead elsewhere in between
                if where != me and (rows := out.rows[:]):
                    groups.setdefault((where, rows[0].__class__), []).append((outputs, out, link, rows))
        try:
            return self._hand_on(groups)
        finally:
            # Not before: a hook that is told of one part may emit, which may have another one handed on.
            gone, self._gone = self._gone, []
            for outputs, out, stream, count, size in gone:
                try:
                    outputs.count(out, stream, count, size)
                except TaskReleased:
                    continue  # what it emitted is for nobody

    def _hand_on(self, groups: Mapping[tuple[Incarnation, type], list[Part]]) -> bool:
        gone = False
        for (where, kind), parts in groups.items():
            stream = parts[0][0].stream_of(kind)
            if len(parts) < FEWEST or stream.misfits is None:
                continue
            if refused := self._refused.pop(where, 0):
                if refused > 1:
                    self._refused[where] = refused - 1
                continue
            gone = self._in_lots(where, stream, parts) or gone
        return gone

    def _in_lots(self, where: Incarnation, stream: Stream, parts: list[Part]) -> bool:
        most, gone = self._most.get(stream, MOST), False
        lot: list[Part] = []
        count = 0
        for part in parts:
            more = len(part[3])
            if lot and count + more > most:
                gone = self._hand_on_one(where, stream, lot) or gone
                lot, count = [], 0
            lot.append(part)
            count += more
        return self._hand_on_one(where, stream, lot) or gone

    def _hand_on_one(self, where: Incarnation, stream: Stream, lot: Sequence[Part]) -> bool:
        most = self._most.get(stream)
        if len(lot) < FEWEST:
            if most is not None:
                self._most[stream] = most + MORE
            return False
        rows = list(chain.from_iterable(part[3] for part in lot))
        body = wire.packed(stream, rows)
        if body is None:
            self._most[stream] = len(rows) // 2
            return False
        size, total = len(body), len(rows)
        if most is not None:
            self._most[stream] = min(MOST, total * wire.SPLIT // (2 * size))
        sizes = [wire.share(size, len(part[3]), total) for part in lot]
        if not self._offer(where, stream, lot, sizes, body):
            return False
        for (outputs, out, _, some), charged in zip(lot, sizes, strict=True):
            self._gone.append((outputs, out, stream, len(some), charged))
        return True

    def _offer(
        self, where: Incarnation, stream: Stream, lot: Sequence[Part], sizes: Sequence[int], body: bytes
    ) -> bool:
        """Put it on its links, if they still lead there and have room."""
        entries: list[wire.Entry] = []
        shares: dict[int, Share] = {}
        held: list[Outputs] = []
        try:
            for (outputs, out, link, some), charged in zip(lot, sizes, strict=True):
                if not held or outputs is not held[-1]:
                    # Who asks a link of something has its gate, and a lock that is before all gates: nobody waits for one here.
                    if not outputs.gate.acquire(blocking=False):
                        return False
                    held.append(outputs)
                if out.link is not link or link.state is not FLOWING or link.where != where:
                    return False
                target, count = out.destination.task, len(some)
                entries.append((target, link.source, count, link.life, link.sent + 1))
                _, size, rows = shares.get(target, (target, 0, 0))
                shares[target] = (target, size + charged, rows + count)
            way = lot[0][0].way(where)
            if way is None:
                return False
            if not way.offer_together(list(shares.values()), (wire.parcel(stream, entries), body)):
                self._refused[where] = REFUSED
                return False
            for _, out, link, some in lot:
                link.left(len(some))
                del out.rows[: len(some)]
        finally:
            for outputs in held:
                outputs.gate.release()
        self._emitter.written(way)
        return True
