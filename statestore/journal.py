"""What a store in memory tells to whatever keeps it beyond the life of its process."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from statestore.base import Head, Piece, Ticket
from statestore.decisions import Record
from statestore.parcel import Content, Placed, Slice


@dataclass(slots=True)
class Held:
    """What there is of a key: its record, and pieces by (epoch, number).

    Attributes:
        damage: Why the committed version cannot be read; "" when it can.
    """

    record: Record
    pieces: dict[tuple[int, int], tuple[Piece, Content]] = field(default_factory=dict)
    damage: str = ""


class Journal(Protocol):
    """Told of every change, before it is applied and before anybody is told that it happened. Calls about one key come
    one at a time. What a method does not raise it has made durable, as far as it promises to."""

    def load(self) -> dict[str, Held]:
        """What an earlier process left."""

    def begun(self, ticket: Ticket) -> None: ...

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None: ...

    def adopted(self, ticket: Ticket, file: int, pieces: Placed) -> list[Slice] | None:
        """Pieces that are in a file of the writer's. None: they are to be `put`, as this cannot keep the file."""

    def committed(self, head: Head, kept: dict[tuple[int, int], tuple[Piece, Content]]) -> None: ...

    def ended(self, key: str, epoch: int, *, deleted: bool) -> None:
        """The write of an epoch is given up; with `deleted`, everything up to that epoch is gone."""

    def drop(self, key: str, epochs: Iterable[int]) -> None:
        """Nothing refers any more to what was put with these epochs."""

    def let_go(self, key: str) -> None:
        """Nothing is left of that key, and its fence is too old to be kept."""

    def forget(self, keys: Collection[str]) -> None:
        """Remove the fences of those keys that were let go, and have not ended again since. Not one of the calls about one key."""

    def close(self) -> None: ...


class NoJournal:
    """Keeps nothing."""

    def load(self) -> dict[str, Held]:
        return {}

    def begun(self, ticket: Ticket) -> None:
        pass

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        pass

    def adopted(self, ticket: Ticket, file: int, pieces: Placed) -> list[Slice] | None:
        return None

    def committed(self, head: Head, kept: dict[tuple[int, int], tuple[Piece, Content]]) -> None:
        pass

    def ended(self, key: str, epoch: int, *, deleted: bool) -> None:
        pass

    def drop(self, key: str, epochs: Iterable[int]) -> None:
        pass

    def let_go(self, key: str) -> None:
        pass

    def forget(self, keys: Collection[str]) -> None:
        pass

    def close(self) -> None:
        pass
