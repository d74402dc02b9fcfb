"""The port: versioned values by key; appended, durable, the latest version wins; readers never wait for the writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and the version it was written as; versions of a key grow by one from 1."""

    version: int
    data: bytes


class NodeStoreReader(Protocol):
    def latest(self, key: str) -> Entry | None:
        """The newest value of that key, or None when nothing was ever written."""

    def history(self, key: str, limit: int = 20) -> tuple[Entry, ...]:
        """The newest versions that are still kept, newest first."""

    def keys(self) -> tuple[str, ...]:
        """All keys that have a value, sorted."""

    def close(self) -> None: ...


class NodeStore(NodeStoreReader, Protocol):
    def append(self, key: str, data: bytes) -> int:
        """Write the next version of that key; durable when it returns. Returns the version.

        Raises:
            Refused: Another process has the store open for writing.
        """

    def forget(self, key: str) -> None:
        """Remove all versions of a key."""
