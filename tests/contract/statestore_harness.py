"""State stores for tests: each kind can be ended as by kill -9, and come back."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from statestore.base import StateStore
from statestore.client import GrpcStore
from statestore.embedded import EmbeddedStore
from statestore.memory import MemoryStore
from statestore.process import StoreProcess

LIMIT = 128 << 20


class Service(Protocol):
    """A kind of store."""

    durable: bool
    """Whether what it holds survives `crash`."""

    def store(self) -> StateStore:
        """Another way to the same contents, or the same one; open until the end of the test."""

    def crash(self) -> None:
        """The process that serves it dies, and is started again."""

    def close(self) -> None: ...


class Memory:
    durable = False

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        self._store = MemoryStore(limit)

    def store(self) -> StateStore:
        return self._store

    def crash(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._store.close()


class Embedded:
    durable = True

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        self.directory = directory
        self._limit = limit
        self._store = EmbeddedStore(directory, limit)

    def store(self) -> StateStore:
        return self._store

    def crash(self) -> None:
        """As good as one: nothing is written when it closes."""
        self._store.close()
        self._store = EmbeddedStore(self.directory, self._limit)

    def close(self) -> None:
        self._store.close()


class Grpc:
    """A real process; killed by SIGKILL."""

    durable = True

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        self.process = StoreProcess(
            ["--backend", "embedded", "--directory", str(directory / "store"), "--limit", str(limit)],
            directory / "server.log",
        )
        self.process.start()
        self._stores: list[GrpcStore] = []

    def store(self) -> GrpcStore:
        store = GrpcStore(self.process.address)
        self._stores.append(store)
        return store

    def crash(self) -> None:
        self.process.kill()
        self.process.start()

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self.process.stop()
