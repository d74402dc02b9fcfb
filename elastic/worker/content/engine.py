"""The engine's part of a task that travels: counts, marks, timers, what waits in its queue, and how far its links have come.

A batch that is larger than a frame travels as several; what has come from another process travels as the bytes that it came in.
It is one piece, or as many as its size needs: output that could not be sent yet may be far more than a piece has room for.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from elastic.api.context import Counter, Gauge, TopologyContext
from elastic.errors import ExecutionError
from elastic.migration.snapshot import Early, InLink, OutLink, TaskLinks, Unsent
from elastic.model.ids import Incarnation
from elastic.worker.tuples import wire
from elastic.worker.tuples.batch import Batch, Mark, Streams

VERSION = 3
PIECE = 1 << 20
"""Bytes of a piece, at most."""
_COUNT = 4
"""Bytes at the beginning of the first piece that say how many there are."""
_NOBODY = Incarnation("")


@dataclass(frozen=True, slots=True)
class SpoutState:
    """What the engine knows of a spout.

    Attributes:
        exhausted: It has said that it will never emit again.
        drain: The newest deactivation that it was told of.
    """

    exhausted: bool = False
    drain: int = 0


@dataclass(frozen=True, slots=True)
class EngineState:
    """What the engine knows of a task, at the moment when it stopped.

    Attributes:
        executed, emitted, failed: Tuples, for metrics.
        drained: The newest deactivation that it has passed on.
        marks: (source task, newest drain that has come from it), of the sources that have not ended.
        tick_left: Seconds until the next tick; None: it has none.
        counters, gauges: The component's own metrics (`metrics_of`).
        queue: What was taken over its links and has not been executed, in order; of a batch in execution what is left.
        checkpoint: The ticket of the newest checkpoint that it has passed.
        checkpoints: (source task, newest ticket that has come from it), of the sources that have not ended.
        generation: `Checkpoints.generation` of the process that has written it.
    """

    executed: int = 0
    emitted: int = 0
    failed: int = 0
    finished: bool = False
    drained: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    tick_left: float | None = None
    spout: SpoutState | None = None
    counters: Mapping[str, int | float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    queue: tuple[Batch | Mark, ...] = ()
    checkpoint: int = 0
    checkpoints: tuple[tuple[int, int], ...] = ()
    generation: int = 0


class _Early(msgspec.Struct, array_like=True):
    life: int
    first: int
    count: int
    frame: bytes


class _Unsent(msgspec.Struct, array_like=True):
    count: int
    frame: bytes


class _In(msgspec.Struct, array_like=True):
    source: int
    life: int
    seen: int
    early: list[_Early]


class _Out(msgspec.Struct, array_like=True):
    target: int
    sent: int
    epoch: int
    buffer: list[_Unsent]


class _Written(msgspec.Struct, array_like=True):
    version: int
    executed: int
    emitted: int
    failed: int
    finished: bool
    drained: int
    marks: list[tuple[int, int]]
    tick_left: float | None
    spout: tuple[bool, int] | None
    counters: dict[str, int | float]
    gauges: dict[str, float]
    queue: list[bytes]
    life: int
    inputs: list[_In]
    outputs: list[_Out]
    checkpoint: int = 0
    checkpoints: list[tuple[int, int]] = []
    generation: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Written)


def encode_engine(state: EngineState, links: TaskLinks, generation: int = 0) -> list[bytes]:
    """Both as pieces of bytes. Nothing of them is changed.

    Args:
        generation: Of this process.

    Raises:
        ExecutionError: A value of a tuple cannot be encoded.
        TupleTooLarge: One tuple makes a larger frame than can be sent.
    """
    s = state
    written = _encode(
        _Written(
            VERSION,
            s.executed,
            s.emitted,
            s.failed,
            s.finished,
            s.drained,
            list(s.marks),
            s.tick_left,
            None if s.spout is None else (s.spout.exhausted, s.spout.drain),
            dict(s.counters),
            dict(s.gauges),
            [data for item in s.queue for data, _ in _frames(item)],
            links.life,
            [_In(i.source, i.life, i.seen, _early(i.early)) for i in links.inputs],
            [_Out(o.target, o.sent, o.epoch, _unsent(o.buffer)) for o in links.outputs],
            s.checkpoint,
            list(s.checkpoints),
            generation,
        )
    )
    first = PIECE - _COUNT
    rest = [written[at : at + PIECE] for at in range(first, len(written), PIECE)]
    return [(1 + len(rest)).to_bytes(_COUNT) + written[:first], *rest]


def decode_engine(
    pieces: Sequence[bytes | memoryview], streams: Streams
) -> tuple[EngineState, TaskLinks, int]:
    """What `encode_engine` was given, from the first of these pieces; batches stay bytes until they are executed.

    Returns:
        The engine's part, its links, and how many of the pieces that were.

    Raises:
        ExecutionError: These bytes are something else, or of another version.
    """
    count = engine_pieces(pieces)
    data = memoryview(pieces[0])[_COUNT:]
    if count > 1:
        data = memoryview(b"".join((data, *pieces[1:count])))
    try:
        w = _decoder.decode(data)
    except msgspec.MsgspecError as e:
        raise ExecutionError(f"A saved task cannot be read: {e}") from e
    if w.version != VERSION:
        raise ExecutionError(
            f"A saved task has the form {w.version}; this version of elastic reads {VERSION}.",
            remedy="Run the same version of elastic on all nodes.",
        )

    def item(frame: bytes) -> Any:
        return wire.decode(memoryview(frame), streams, _NOBODY)[0]

    state = EngineState(
        w.executed,
        w.emitted,
        w.failed,
        w.finished,
        w.drained,
        tuple(w.marks),
        w.tick_left,
        None if w.spout is None else SpoutState(*w.spout),
        w.counters,
        w.gauges,
        tuple(item(q) for q in w.queue),
        w.checkpoint,
        tuple(w.checkpoints),
        w.generation,
    )
    inputs = tuple(
        InLink(
            i.source, i.life, i.seen, tuple(Early(e.life, e.first, e.count, item(e.frame)) for e in i.early)
        )
        for i in w.inputs
    )
    outputs = tuple(
        OutLink(
            o.target, o.sent, o.epoch, tuple(Unsent(item(u.frame), u.count, len(u.frame)) for u in o.buffer)
        )
        for o in w.outputs
    )
    return state, TaskLinks(w.life, inputs, outputs), count


def engine_pieces(pieces: Sequence[bytes | memoryview]) -> int:
    """How many of the first of these pieces are what `encode_engine` made.

    Raises:
        ExecutionError: These bytes are something else.
    """
    count = int.from_bytes(pieces[0][:_COUNT]) if pieces else 0
    if not 0 < count <= len(pieces):
        raise ExecutionError(
            f"A saved task cannot be read: it has {count} pieces, and {len(pieces)} are there."
        )
    return count


def _frames(item: Batch | Mark) -> list[tuple[bytes, int]]:
    """(Frame, how many positions of its link it takes) of an item."""
    return [(b"".join(f.at(0, 0)), f.weight) for f in wire.encode(item)]


def _early(items: Iterable[Early]) -> list[_Early]:
    made = []
    for early in items:
        first, frames = early.first, _frames(early.item)
        for data, weight in frames:
            made.append(_Early(early.life, first, weight if len(frames) > 1 else early.count, data))
            first += weight
    return made


def _unsent(items: Iterable[Unsent]) -> list[_Unsent]:
    made = []
    for unsent in items:
        frames = _frames(unsent.item)
        made += [_Unsent(weight if len(frames) > 1 else unsent.count, data) for data, weight in frames]
    return made


def metrics_of(context: TopologyContext) -> tuple[dict[str, int | float], dict[str, float]]:
    """The component's own (counters, gauges that were set), as they travel."""
    counters: dict[str, int | float] = {}
    gauges: dict[str, float] = {}
    for name, metric in context.metrics.items():
        # What is told of a metric travels as well: `TopologyContext.metric_values`.
        with contextlib.suppress(Exception):
            if isinstance(metric, Counter):
                counters[str(name)] = _number(metric.value)
            elif metric._read is None:
                gauges[str(name)] = _finite(metric.value)
    return counters, gauges


def _number(value: Any) -> int | float:
    """A count as it travels: it may be of a type of another library, as NumPy's are."""
    try:
        whole = operator.index(value)
    except TypeError:
        return _finite(value)
    return whole if -(1 << 63) <= whole < 1 << 63 else _finite(whole)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not told")
    return number


def put_metrics(
    context: TopologyContext, counters: Mapping[str, int | float], gauges: Mapping[str, float]
) -> None:
    """Have the component's metrics go on from there. After `prepare`, which registers them anew."""
    for name, count in counters.items():
        metric = context.metrics.setdefault(name, Counter())
        if isinstance(metric, Counter):
            metric.value += count  # type: ignore[assignment]
    for name, value in gauges.items():
        gauge = context.metrics.setdefault(name, Gauge())
        if isinstance(gauge, Gauge):
            gauge.set(value)
