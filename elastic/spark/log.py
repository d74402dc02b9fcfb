"""What Spark has handed over, in order: one entry for each batch that it has committed, written by whoever drives the query.

An entry is the point at which a batch exists. Files that no entry names are of attempts that failed: nobody reads them. An entry also says
which batch of each query was committed last, so that one that Spark commits again, as it had died before it knew, is not handed over twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from elastic.spark.pipe import Pipe, number_of, numbered

if TYPE_CHECKING:
    import pyarrow as pa

DATA, LOG, TAKEN = "data", "log", "taken"
_END, _ROWS = ".json", ".arrow"
_ABANDONED = 86_400.0
"""Seconds after which a file that no entry names is of nobody any more."""


class Part(msgspec.Struct, frozen=True):
    """What one task of Spark has written.

    Attributes:
        name: The file, in `data`.
        partition: The number of the partition of the DataFrame.
        rows, bytes: Of the file.
    """

    name: str
    partition: int
    rows: int
    bytes: int


class Entry(msgspec.Struct, frozen=True):
    """One committed batch.

    Attributes:
        number: From 0, without gaps.
        batches: Of each query the number of its newest batch.
        last: Nothing will come after it.
    """

    number: int
    parts: tuple[Part, ...] = ()
    batches: Mapping[str, int] = {}
    last: bool = False

    def of(self, index: int, tasks: int) -> list[Part]:
        """The parts for one of so many tasks: partitions in turn, always the same ones, so that rows which Spark has partitioned by a
        key stay in their order.
        """
        return [p for p in self.parts if p.partition % tasks == index]


class Taken(msgspec.Struct, frozen=True):
    """How far one task has come: it has emitted all that it was to emit of that entry and those before."""

    index: int
    tasks: int
    entry: int

    @property
    def name(self) -> str:
        return f"{TAKEN}/{self.index}-of-{self.tasks}{_END}"


class Log:
    """The entries of a pipe.

    Args:
        pipe: Where they are.
    """

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def numbers(self) -> list[int]:
        """Of the entries that are there, ascending."""
        return [number_of(n) for n in self.pipe.files(LOG) if n.endswith(_END)]

    def entry(self, number: int) -> Entry | None:
        """That entry; None if it has not come, or has gone."""
        found: Entry | None = _decoded(self.pipe.read(_name(number)), Entry)
        return found

    def newest(self) -> Entry | None:
        """The last one; None before the first."""
        while numbers := self.numbers():
            if (found := self.entry(numbers[-1])) is not None:
                return found  # else there is a newer one by now, and that one was swept
        return None

    # --- Spark's side

    def write(self, partition: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Part:
        """Write a part, which is nobody's until it is handed over.

        Args:
            schema: Of the record batches.
        """
        import pyarrow as pa

        name, rows = f"{int(time.time()):012}-{partition}-{uuid.uuid4().hex}{_ROWS}", 0
        with self.pipe.writing(f"{DATA}/{name}") as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    rows += batch.num_rows
            size = file.tell()
        return Part(name, partition, rows, size)

    def commit(self, parts: Sequence[Part], query: str = "", batch: int = -1, *, last: bool = False) -> bool:
        """Hand over a batch.

        Args:
            query: What the query is known by, if it may commit a batch again; "": it cannot.
            batch: Its number in that query.

        Returns:
            False: that batch was handed over before, and these files are not needed.

        Raises:
            Ended: An entry has said that it is the last.
        """
        while True:
            before = self.newest() or Entry(-1)
            if query and batch <= before.batches.get(query, -1):
                self.discard(parts)
                return False
            if before.last:
                raise Ended(self.pipe.where)
            batches = {**before.batches, query: batch} if query else before.batches
            entry = Entry(before.number + 1, tuple(parts), batches, last)
            if self.pipe.create(_name(entry.number), msgspec.json.encode(entry)):
                return True  # else somebody else's entry came in between, and stands before this one

    def discard(self, parts: Iterable[Part]) -> None:
        """Remove what is not handed over."""
        for part in parts:
            self.pipe.delete(f"{DATA}/{part.name}")

    def waiting(self) -> int:
        """Bytes that were handed over and are not taken yet."""
        return sum(p.bytes for p in self._parts_after(self.done(), self.numbers()))

    def _parts_after(self, done: int, numbers: Iterable[int]) -> Iterator[Part]:
        """Those of the later ones of some entries."""
        for entry in (self.entry(n) for n in numbers if n > done):
            if entry is not None:
                yield from entry.parts

    def sweep(self) -> None:
        """Remove entries that everybody has taken, but the newest, and files that have been nobody's for a day."""
        done, numbers = self.done(), self.numbers()
        for number in numbers[:-1]:
            if number <= done:
                self.pipe.delete(_name(number))
        named = {p.name for p in self._parts_after(done, numbers)}
        for name in {*self.pipe.files(DATA), *self.pipe.unfinished(DATA)} - named:
            if abandoned(name, time.time()):
                self.pipe.delete(f"{DATA}/{name}")

    # --- the topology's side

    def taken(self) -> list[Taken]:
        """How far tasks have come, also those of topologies before."""
        found = (_decoded(self.pipe.read(f"{TAKEN}/{n}"), Taken) for n in self.pipe.files(TAKEN))
        return [t for t in found if t is not None]

    def done(self) -> int:
        """Up to which entry everything was taken; -1: nothing."""
        groups: dict[int, list[int]] = {}
        for t in self.taken():
            groups.setdefault(t.tasks, []).append(t.entry)
        whole = [min(entries) for tasks, entries in groups.items() if len(entries) == tasks]
        return max(whole, default=-1)

    def took(self, taken: Taken, parts: Iterable[Part]) -> None:
        """Note how far a task has come, and remove what it has read."""
        self.pipe.write(taken.name, msgspec.json.encode(taken))
        self.discard(parts)

    def begin(self, index: int, tasks: int) -> int:
        """The entry with which a task begins that knows nothing of itself.

        Raises:
            Divided: Another number of tasks has read the pipe, and not all of them equally far.
        """
        found = self.taken()
        mine = max((t.entry for t in found if (t.index, t.tasks) == (index, tasks)), default=-1)
        others = [t for t in found if t.tasks != tasks and t.entry > mine]
        if others:
            count = max(others, key=lambda t: t.entry).tasks
            entries = {t.entry for t in found if t.tasks == count}
            if len(entries) > 1 or sum(t.tasks == count for t in found) < count:
                raise Divided(self.pipe.where, count, tasks)
            mine = entries.pop()
        numbers = self.numbers()
        return max(mine + 1, numbers[0] if numbers else 0)


class Ended(Exception):
    """A batch came after the last one. Its argument is the pipe."""


class Divided(Exception):
    """Arguments: the pipe, how many tasks have read it, and how many are to."""


def abandoned(name: str, now: float) -> bool:
    """Whether a data file that no entry names is so old that none will.

    Args:
        now: Seconds since 1970.
    """
    when = name.partition("-")[0]
    return when.isdecimal() and now - int(when) > _ABANDONED


def _name(number: int) -> str:
    return f"{LOG}/{numbered(number, _END)}"


def _decoded(content: bytes | None, kind: Any) -> Any:
    return None if content is None else msgspec.json.decode(content, type=kind)
