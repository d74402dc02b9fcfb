"""The state stores of nodes, as a worker and Nimbus reach them: what is done there. Whom to ask is in `store_ways`.

Everything here blocks, with a bound: `patience` seconds without anything moving. No thread is left behind.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from elastic.cluster.state_write import StateWrite
from elastic.cluster.store_ends import Begun, Way, ask_all, groups, to_the_end, translated
from elastic.cluster.store_ways import StoreWays
from elastic.errors import ElasticError, NotFound, ProtocolViolation, Superseded, Unavailable
from elastic.migration.record import state_key
from elastic.model.ids import NodeId, TopologyName
from statestore import errors as store_errors
from statestore.base import Piece, State, Ticket
from statestore.errors import StateStoreError

T = TypeVar("T")
PATIENCE = 10.0
MANY_SIZE = 1 << 20
"""Bytes of a state that goes together with others."""


class Gone(NotFound):
    """No node has the state, and every one of them has said so or is gone."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state as it was committed.

    Attributes:
        meta: The writer's own bytes.
        pieces: In the order of the commit.
        node: Whose store gave it.
        named: What tells each piece from all others.
        more: Bytes of those that are not among these, where these are only the first pieces.
    """

    meta: bytes = field(repr=False)
    pieces: list[bytes] = field(repr=False)
    node: NodeId
    named: tuple[Piece, ...] = field(default=(), repr=False)
    more: int = 0


class NodeStores:
    """See the top of this module. Any thread may call.

    Args:
        own: The node that this process runs on; its store is asked first.
        address_of: `NodeInfo.store` of a node as known now, "" while there is none; None: the node is gone for good.
        patience: Seconds that a call may stand still, and that the store of a node is waited for.
    """

    def __init__(
        self,
        own: NodeId | None,
        address_of: Callable[[NodeId], str | None],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._ways = StoreWays(own, address_of, patience)

    def nodes_changed(self) -> None:
        """See `StoreWays.nodes_changed`."""
        self._ways.nodes_changed()

    def node_said(self, node: NodeId, address: str) -> None:
        """See `StoreWays.node_said`."""
        self._ways.node_said(node, address)

    def close(self) -> None:
        """Let go of everything; calls that are under way end with `Unavailable`. Safe to call twice."""
        self._ways.close()

    def _by_ways(self, nodes: Sequence[NodeId], do: Callable[[dict[NodeId, Way]], T]) -> T:
        """Do something by the ways to some nodes' stores; again when one of these has ended meanwhile and another serves in its place.

        Raises:
            NotFound, Unavailable: There is no way; or what `do` raises.
        """
        for _ in range(len(nodes)):
            ways = self._ways.to_all(nodes)
            try:
                return do(ways)
            except Unavailable:
                if not any(self._ways.instead(n, w) for n, w in ways.items()):
                    raise
        return do(self._ways.to_all(nodes))

    def begin(self, key: str, epoch: int, writer: str, nodes: Sequence[NodeId], size: int) -> StateWrite:
        """Take a key over in the stores of some nodes, and keep room there.

        Args:
            key: See `state_key`.
            epoch: Of the move. Grows for as long as stores remember the key: also over topologies of the same name.
            writer: The old side's incarnation. The same one may begin again, and goes on where it was.
            nodes: Each once.
            size: Bytes that are expected; more may be put while there is room.

        Raises:
            NoRoom: A store has no room; nothing is reserved anywhere, and nothing was written.
            Superseded: A newer epoch, or another writer, owns the key.
            Unavailable: A store cannot be reached, or a node is gone.
        """
        ticket = Ticket(key, epoch, writer)
        if not nodes:
            raise ProtocolViolation(f"{key}: a state has to be stored somewhere")
        try:
            return self._by_ways(nodes, lambda ways: self._begin(ticket, ways, size))
        except NotFound as error:
            raise Unavailable(f"{key} cannot be stored: {error.message}") from error

    def _begin(self, ticket: Ticket, ways: dict[NodeId, Way], size: int) -> StateWrite:
        key, begun = ticket.key, dict[NodeId, Begun]()
        self._reserve(ticket.epoch, {key: size}, ways, f"keep room for {key}")
        try:
            ask_all(
                [
                    (n, lambda n=n, w=w: w.start_begin(ticket, partial(begun.__setitem__, n)))  # type: ignore[misc]
                    for n, w in ways.items()
                ],
                f"begin {key}",
            )
        except Superseded:
            raise  # the room may be another's
        except BaseException:
            _release(ticket.epoch, [key], ways)
            raise
        return StateWrite(ticket, ways, begun, size, self._ways.instead)

    def reserve(self, epoch: int, sizes: Mapping[str, int], nodes: Sequence[NodeId]) -> None:
        """Keep room for states that `save_many` is to bring, in the stores of some nodes.

        Args:
            sizes: Bytes that are expected, by key.

        Raises:
            NoRoom: A store has no room for all of them; nothing is reserved anywhere.
            Unavailable: A store cannot be reached, or a node is gone.
        """
        doing = f"keep room for {len(sizes)} states"
        try:
            self._by_ways(nodes, lambda ways: self._reserve(epoch, dict(sizes), ways, doing))
        except NotFound as error:
            raise Unavailable(f"{len(sizes)} states cannot be stored: {error.message}") from error

    def _reserve(self, epoch: int, sizes: dict[str, int], ways: Mapping[NodeId, Way], doing: str) -> None:
        try:
            ask_all([(n, lambda w=w: w.start_reserve(epoch, sizes)) for n, w in ways.items()], doing)  # type: ignore[misc]
        except Superseded:
            raise  # the room may be another's
        except BaseException:
            _release(epoch, list(sizes), ways)
            raise

    def save_many(self, states: Sequence[State], nodes: Sequence[NodeId]) -> list[ElasticError | None]:
        """Begin, put and commit many small states: several messages of many states in place of three for each.

        Args:
            states: Each at most `MANY_SIZE` bytes; larger ones go by `begin`. All of them for the same nodes.
            nodes: Each once.

        Returns:
            For each state in order: None when every node has confirmed it, else why not. Doing it again is harmless.
        """
        outcomes: list[ElasticError | None] = []
        for begin, end in groups([sum(map(len, s.pieces)) + len(s.meta) for s in states]):
            part = states[begin:end]
            try:
                outcomes += self._by_ways(nodes, lambda ways: self._save(part, ways))  # noqa: B023
            except NotFound as error:
                outcomes += [Unavailable(f"states cannot be stored: {error.message}")] * len(part)
            except ElasticError as error:
                outcomes += [error] * len(part)
        return outcomes

    def _save(self, states: Sequence[State], ways: dict[NodeId, Way]) -> list[ElasticError | None]:
        """As many as go with one message."""
        outcomes: list[ElasticError | None] = [None] * len(states)

        def took(node: NodeId, found: list[StateStoreError | None]) -> None:
            for at, error in enumerate(found):
                if error is not None and outcomes[at] is None:
                    doing = f"save {states[at].ticket.key}"
                    outcomes[at] = translated(error, node, doing)

        ask_all(
            [(n, lambda n=n, w=w: w.start_save(states, partial(took, n))) for n, w in ways.items()],  # type: ignore[misc]
            f"save {len(states)} states from {states[0].ticket.key} on",
        )
        unreached = next((o for o in outcomes if isinstance(o, Unavailable)), None)
        if unreached is not None and any(self._ways.instead(n, w) for n, w in ways.items()):
            raise unreached  # all of it is done again elsewhere, which does no harm
        return outcomes

    def fetch_many(
        self,
        wanted: Sequence[tuple[str, int]],
        nodes: Sequence[NodeId],
        ahead: Mapping[Piece, bytes] | None = None,
        most: int | None = None,
    ) -> list[StoredState | Gone | Unavailable]:
        """Many states that the same nodes may have: see `fetch`.

        Args:
            wanted: (key, epoch).
            nodes: Whose stores.
            ahead: If only one is wanted: pieces of it that are here already.
            most: If only one is wanted: see `fetch`.

        Returns:
            For each in order: it, or why not.
        """
        found: dict[int, StoredState | Gone | Unavailable] = {}
        missing = list(range(len(wanted)))
        reasons: dict[int, list[str]] = {n: [] for n in missing}
        unknown: set[int] = set()
        order = deque(self._ways.order(nodes))
        asked: set[NodeId] = set()
        while order and missing:
            node = order.popleft()
            asked.add(node)
            left = missing
            missing = []
            try:
                if node not in nodes and not self._ways.shared(node):
                    missing = left
                    continue
                way = self._ways.to(node)
                answers = to_the_end(way.fetch([wanted[n] for n in left], ahead or {}, most), len(left))
                for n, answer in zip(left, answers, strict=True):
                    if isinstance(answer, StateStoreError):
                        missing.append(n)
                        reasons[n].append(f"{node}: {answer.message}")
                        if not isinstance(answer, store_errors.NotFound | store_errors.Lost):
                            unknown.add(n)
                    else:
                        head, came = answer.head, len(answer.pieces)
                        more = sum(p.size for p in head.pieces[came:] if p not in (ahead or ()))
                        found[n] = StoredState(head.meta, list(answer.pieces), node, head.pieces[:came], more)
                other = self._ways.instead(node, way) if missing else None
                if other is not None and other[0] not in asked and other[0] not in order:
                    order.append(other[0])
            except (NotFound, Unavailable) as error:
                missing = left
                for n in left:
                    reasons[n].append(error.message)
                if isinstance(error, Unavailable):
                    unknown.update(left)
        for n in missing:
            key, epoch = wanted[n]
            text = f"state {key} of epoch {epoch}: {'; '.join(reasons[n])}"
            if n in unknown:
                found[n] = Unavailable(text, remedy="It is tried again as long as a node may have it.")
            else:
                found[n] = Gone(text)
        return [found[n] for n in range(len(wanted))]

    def fetch(
        self,
        key: str,
        epoch: int,
        nodes: Sequence[NodeId],
        ahead: Mapping[Piece, bytes] | None = None,
        most: int | None = None,
    ) -> StoredState:
        """Get a state from the first of these nodes that has it whole; the own node is asked first. While it is still being written that
        is what was committed last: what this has in common with the next version need not come again then.

        Args:
            ahead: Pieces that are here already, by name: what stands for each of them in the answer.
            most: About so many bytes of the others at a time, where more need not be read to have these; what comes first in the state
                first.

        Raises:
            Gone: Every node has answered that it doesn't have it, or is gone.
            Unavailable: It cannot be had now.
        """
        (found,) = self.fetch_many([(key, epoch)], nodes, ahead, most)
        if isinstance(found, StoredState):
            return found
        raise found

    def clean(
        self, topology: TopologyName, epoch: int, tasks: Iterable[int], nodes: Iterable[NodeId]
    ) -> list[NodeId]:
        """Delete what a move has left, and refuse what may still come of it.

        Returns:
            Nodes that were out of reach: their supervisors collect it when the record has gone, or their stores serve again.
        """
        wanted = [(state_key(topology, task), epoch) for task in tasks]
        missed = []
        for node in dict.fromkeys(nodes):
            try:
                outcomes = self._ways.to(node).delete(wanted)
                # A later move has what was superseded; whatever else there is, is collected later on.
                if any(o is not None and not isinstance(o, store_errors.Superseded) for o in outcomes):
                    missed.append(node)
            except NotFound:
                continue
            except (Unavailable, StateStoreError):
                missed.append(node)
        return missed


def _release(epoch: int, keys: Sequence[str], ways: Mapping[NodeId, Way]) -> None:
    for way in ways.values():
        with contextlib.suppress(StateStoreError):
            way.release(epoch, keys)
