"""State stores for tests: each kind can be ended as by kill -9, and come back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from hazelcast_here import hazelcast_java

from statestore.base import StateStore
from statestore.client import GrpcStore
from statestore.embedded import EmbeddedStore
from statestore.hazelcast.member import HazelcastMember, MemberOptions
from statestore.hazelcast.options import HazelcastOptions
from statestore.hazelcast.store import HazelcastStore
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


class Hazelcast:
    """Two real members, and a store for each."""

    durable = True

    def __init__(self, directory: Path, *, backups: int = 1, limit: int = LIMIT) -> None:
        java = hazelcast_java()
        self.cluster = directory.name
        self.directory = directory
        self.limit = limit
        options = MemberOptions(self.cluster, backups=backups, heap=384 << 20)
        self.members = [HazelcastMember(options, directory / f"member{n}", java=java) for n in range(2)]
        self._stores: list[HazelcastStore] = []
        self._opened: list[HazelcastStore] = []
        self._next = itertools.count()
        self._oldest = 0
        self.members[0].start()
        self.members[1].start([self.members[0].address])

    def open(
        self, local: int = 0, directory: Path | None = None, on_replaced: Callable[[], None] = lambda: None
    ) -> HazelcastStore:
        """A connection of its own; whoever opens it closes it, and else `disconnect`."""
        store = HazelcastStore(
            HazelcastOptions(
                members=tuple(m.address for m in self.members),
                cluster=self.cluster,
                local=self.members[local].address,
                limit=self.limit,
                directory=directory,
            ),
            on_replaced,
        )
        self._opened.append(store)
        return store

    def disconnect(self) -> None:
        """Close every connection: a test that was cut off leaves none behind, which would go on trying to reach its members."""
        opened, self._opened = self._opened, []
        self._stores.clear()
        self._next = itertools.count()
        for store in opened:
            store.close()

    def store(self) -> HazelcastStore:
        index = next(self._next) % 2
        while len(self._stores) <= index:
            self._stores.append(self.open(len(self._stores)))
        return self._stores[index]

    def crash(self) -> None:
        """The stores' process and the oldest member die; the member comes back, empty."""
        self.disconnect()
        self.kill_member()
        self.restart_member()

    def kill_member(self) -> None:
        """The oldest member dies."""
        self.members[self._oldest].kill()

    def restart_member(self) -> None:
        """It comes back, and everything has a backup again."""
        killed, left = self.members[self._oldest], self.members[1 - self._oldest]
        before = left.migrations
        killed.start([left.address])
        assert left.wait_migrated(before)
        self._oldest = 1 - self._oldest

    def close(self) -> None:
        self.disconnect()
        for member in self.members:
            member.kill()
