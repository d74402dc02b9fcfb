"""What stands in a task's queue, and the registry of a topology's streams."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec

from elastic.api.fields import Tuple, misfits_of, tuple_class
from elastic.model.ids import ComponentId, Incarnation, StreamId
from elastic.model.topology import StreamSpec, TopologySpec

if TYPE_CHECKING:
    import pyarrow as pa


class Stream:
    """One declared stream of a topology, as a process needs it.

    Attributes:
        index: Its number: the same in all processes, because it follows from the specification.
        kind: The class of its tuples.
        misfits: Finds the tuples for whose sake a batch is pickled; None when all are. Others travel as msgpack.
        decoder: Reads those.
    """

    __slots__ = ("component", "decoder", "index", "kind", "misfits", "spec")

    def __init__(self, index: int, component: ComponentId, spec: StreamSpec) -> None:
        self.index = index
        self.component = component
        self.spec = spec
        self.kind: type[Tuple] = tuple_class(component, spec)
        self.misfits = misfits_of(spec)
        self.decoder: Any = None
        if self.misfits is not None:
            try:
                self.decoder = msgspec.msgpack.Decoder(list[self.kind])  # type: ignore[name-defined]
            except TypeError:  # alternatives that msgpack cannot tell from one another: str | bytes
                self.misfits = None


class Streams:
    """All streams of a topology, by number and by name."""

    def __init__(self, spec: TopologySpec) -> None:
        self.all: list[Stream] = []
        self._named: dict[tuple[str, str], Stream] = {}
        self.by_kind: dict[type, Stream] = {}
        for component in spec.components:
            for output in component.outputs:
                stream = Stream(len(self.all), component.id, output)
                self.all.append(stream)
                self._named[component.id, output.id] = stream
                self.by_kind[stream.kind] = stream

    def __getitem__(self, index: int) -> Stream:
        return self.all[index]

    def named(self, component: ComponentId, stream: StreamId) -> Stream:
        """The stream of that name."""
        return self._named[component, stream]


class Batch:
    """Tuples of one stream, from one task to one task, in the order of emission. Not changed once it was handed on.

    Attributes:
        rows: The tuples (`Tuple` objects), or None where `record` or `raw` holds them.
        record: The same as an Arrow record batch.
        raw: The same as received bytes, decoded only when they are executed.
        count: How many.
        source: The emitting task.
        weight: How many positions of its link it takes: as many.
        origin: The worker process it came from, or "" for this one.
        size: Bytes of the frame it came in.
        credit: Tuples that its sender has counted against the window of this task.
    """

    __slots__ = ("count", "credit", "origin", "raw", "record", "rows", "size", "source", "stream", "weight")

    def __init__(
        self,
        stream: Stream,
        source: int,
        count: int,
        rows: list[Any] | None = None,
        record: pa.RecordBatch | None = None,
        raw: tuple[int, memoryview] | None = None,
        origin: Incarnation | str = "",
        size: int = 0,
        credit: int = 0,
    ) -> None:
        self.credit = credit
        self.stream = stream
        self.source = source
        self.count = self.weight = count
        self.rows = rows
        self.record = record
        self.raw = raw
        self.origin = origin
        self.size = size


class MarkKind(IntEnum):
    """In-band control marks: they stand in the same order as the batches around them."""

    END = 1
    """The source task has emitted its last tuple."""
    DRAIN = 2
    """Everything that the source task emitted before deactivation `number` stands before this mark."""
    CHECKPOINT = 3
    """Everything that the source task emitted before its snapshot for the checkpoint with the ticket `number` stands before this mark."""


class Mark:
    """A control mark from one task to one task."""

    __slots__ = ("kind", "number", "origin", "size", "source")
    count = credit = 0
    weight = 1

    def __init__(
        self, kind: MarkKind, source: int, number: int = 0, origin: Incarnation | str = "", size: int = 0
    ) -> None:
        self.kind = kind
        self.source = source
        self.number = number
        self.origin = origin
        self.size = size


Item = Batch | Mark
"""What stands in a queue or on a link."""
