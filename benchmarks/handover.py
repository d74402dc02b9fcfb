"""What the state stores cost a move: saved to the stores of two nodes, and fetched by the target from its own.

Two store processes, as on two nodes, and the clients that a worker has. "one machine" is the way by files and Unix socket; "gRPC" is the
one between machines, here over the loopback interface. What is reserved and begun ahead of the pause is not counted; everything
else is: pieces put, committed at both nodes, fetched, compared with their checksums.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness import Goal, Session, Wrong
from elastic.cluster.node_stores import NodeStores, StoredState
from elastic.cluster.store_service import StoreService
from elastic.model.ids import NodeId, TopologyName
from statestore.base import State, Ticket

NAME = "handover"
SUMMARY = "a state saved to two nodes' stores and fetched from one: 1 KB to 64 MB, and 1,000 of 1 KB"

_SOURCE, _TARGET = NodeId("source"), NodeId("target")
_NODES = (_SOURCE, _TARGET)
_PIECE = 512 << 10
_SIZES = (("1 KB", 1 << 10), ("1 MB", 1 << 20), ("16 MB", 16 << 20), ("64 MB", 64 << 20))
_MANY = 1000
_epochs = itertools.count(1)


def run(session: Session) -> None:
    """Measure both ways side by side within each size."""
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="handover-") as directory:
        pairs = {
            "one machine": _Pair(Path(directory) / "near", stack, near=True),
            "gRPC": _Pair(Path(directory) / "far", stack, near=False),
        }
        for pair in pairs.values():
            for _ in range(5):
                pair.one(_PIECE * 2)
        for label, size in _SIZES[:3] if session.quick else _SIZES:
            contenders = {f"{label}, {way}": _several(pair, size) for way, pair in pairs.items()}
            goals = {("1 KB, one machine", ""): Goal(2, at_least=False)}
            goals["16 MB, one machine", ""] = Goal(60, at_least=False)
            session.report(session.interleave(contenders, unit="ms"), unit="ms", goals=goals)
        many = {f"{_MANY} of 1 KB, {way}": pair.many for way, pair in pairs.items()}
        session.report(session.interleave(many, unit="ms"), unit="ms")


class _Pair:
    """The stores of two nodes, seen from the worker of each."""

    def __init__(self, directory: Path, stack: ExitStack, *, near: bool) -> None:
        directory.mkdir()
        addresses: dict[NodeId, str | None] = {}
        for node in _NODES:
            arguments = ["--backend", "embedded", "--directory", str(directory / node), "--limit", "1G"]
            service = StoreService(
                arguments, log=directory / f"{node}.log", unix=directory / f"{node}.sock" if near else None
            )
            stack.callback(service.kill)
            addresses[node] = service.start(60.0)
        self._source = NodeStores(_SOURCE, addresses.get)
        self._target = NodeStores(_TARGET, addresses.get)
        stack.callback(self._source.close)
        stack.callback(self._target.close)

    def one(self, size: int) -> float:
        """Milliseconds of the pause that are the stores'."""
        data = random.Random(size).randbytes(size)
        pieces = [data[at : at + _PIECE] for at in range(0, size, _PIECE)]
        epoch = next(_epochs)
        write = self._source.begin("t/1", epoch, "source#1", _NODES, size)
        started = time.perf_counter()
        write.commit([write.put(piece) for piece in pieces], b"meta")
        found = self._target.fetch("t/1", epoch, _NODES)
        took = time.perf_counter() - started
        if found.pieces != pieces or found.node != _TARGET:
            raise Wrong("what came back is something else")
        del found
        self._source.clean(TopologyName("t"), epoch, [1], _NODES)
        return took * 1000

    def many(self) -> float:
        """Milliseconds for many small states."""
        epoch = next(_epochs)
        data = random.Random(epoch).randbytes(_MANY << 10)
        states = [
            State(Ticket(f"t/{n}", epoch, "source#1"), (data[n << 10 : (n + 1) << 10],), b"meta")
            for n in range(_MANY)
        ]
        started = time.perf_counter()
        outcomes = self._source.save_many(states, _NODES)
        found = self._target.fetch_many([(s.ticket.key, epoch) for s in states], _NODES)
        took = time.perf_counter() - started
        if any(outcomes):
            raise Wrong(f"not saved: {next(filter(None, outcomes))}")
        for state, got in zip(states, found, strict=True):
            if not isinstance(got, StoredState) or got.pieces != list(state.pieces):
                raise Wrong("what came back is something else")
        self._source.clean(TopologyName("t"), epoch, range(_MANY), _NODES)
        return took * 1000


def _several(pair: _Pair, size: int) -> Callable[[], float]:
    """The median of some: one alone is short."""
    times = 21 if size <= 1 << 20 else 5

    def measure() -> float:
        return sorted(pair.one(size) for _ in range(times))[times // 2]

    return measure
