"""The state stores of nodes, as a worker and Nimbus reach them.

Everything here blocks, with a bound: `patience` seconds without anything moving. No thread is left behind: clients are kept
for each address, and closed when the address is not a node's any more, or by `close`.

Which node is *gone* is for `address_of` to say, by None: a state that only nodes hold that are gone is lost. A node that is wanted and
just not there (it is being started again, with its files) is "": `store_address` knows the difference.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from elastic.cluster.state_write import StateWrite
from elastic.cluster.store_ends import Begun, FarWay, NearWay, Way, ask_all, translated
from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.errors import ElasticError, NotFound, ProtocolViolation, Superseded, Unavailable
from elastic.migration.record import state_key
from elastic.model import codec
from elastic.model.assignment import NodeInfo
from elastic.model.ids import NodeId, TopologyName
from statestore import errors as store_errors
from statestore.address import StoreAddress
from statestore.base import Fetched, Piece, State, Ticket
from statestore.errors import Full, StateStoreError

PATIENCE = 10.0
MANY_SIZE = 1 << 20
"""Bytes of a state that goes together with others."""
_MESSAGE = 2 << 20
_MANY = 2000
_LOOK = 1.0
"""Seconds until `address_of` is asked again by somebody who was not told of a change."""


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
    """

    meta: bytes = field(repr=False)
    pieces: list[bytes] = field(repr=False)
    node: NodeId
    named: tuple[Piece, ...] = field(default=(), repr=False)


def store_address(coordination: Coordination, node: NodeId) -> str | None:
    """Where a node's store answers, for `NodeStores`: "" while it has none, None when the node is not even wanted any more.

    Raises:
        NotConnected, SessionExpired: Nothing is known.
    """
    entry = coordination.get(paths.node(node))
    if entry is not None:
        return codec.decode(entry.data, NodeInfo).store
    return "" if coordination.get(paths.wanted(node)) is not None else None


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
        self._own = own
        self._address_of = address_of
        self._patience = patience
        self._changed = threading.Condition()
        self._ways: dict[str, Way] = {}
        self._addresses: dict[NodeId, str] = {}
        self._changes = 0
        self._closed = False

    def nodes_changed(self) -> None:
        """What `address_of` says has changed: whoever waits for a node's store looks again. May be left out."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def begin(self, key: str, epoch: int, writer: str, nodes: Sequence[NodeId], size: int) -> StateWrite:
        """Take a key over in the stores of some nodes, and keep room there.

        Args:
            key: See `state_key`.
            epoch: Of the move. Grows for as long as stores remember the key: also over topologies of the same name.
            writer: The old side's incarnation. The same one may begin again, and goes on where it was.
            nodes: Each once.
            size: Bytes that are expected; more may be put while there is room.

        Raises:
            statestore.errors.Full: A store has no room; nothing is reserved anywhere, and nothing was written.
            Superseded: A newer epoch, or another writer, owns the key.
            Unavailable: A store cannot be reached, or a node is gone.
        """
        ticket = Ticket(key, epoch, writer)
        doing = f"keep room for {key}"
        if not nodes:
            raise ProtocolViolation(f"{key}: a state has to be stored somewhere")
        try:
            ways = self._ways_to(nodes)
        except NotFound as error:
            raise Unavailable(f"{key} cannot be stored: {error.message}") from error
        begun: dict[NodeId, Begun] = {}
        self._reserve(epoch, {key: size}, ways, doing)
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
            _release(epoch, [key], ways)
            raise
        return StateWrite(ticket, ways, begun, size)

    def reserve(self, epoch: int, sizes: Mapping[str, int], nodes: Sequence[NodeId]) -> None:
        """Keep room for states that `save_many` is to bring, in the stores of some nodes.

        Args:
            sizes: Bytes that are expected, by key.

        Raises:
            statestore.errors.Full: A store has no room for all of them; nothing is reserved anywhere.
            Unavailable: A store cannot be reached, or a node is gone.
        """
        doing = f"keep room for {len(sizes)} states"
        try:
            ways = self._ways_to(nodes)
        except NotFound as error:
            raise Unavailable(f"{len(sizes)} states cannot be stored: {error.message}") from error
        self._reserve(epoch, dict(sizes), ways, doing)

    def _reserve(self, epoch: int, sizes: dict[str, int], ways: Mapping[NodeId, Way], doing: str) -> None:
        try:
            ask_all([(n, lambda w=w: w.start_reserve(epoch, sizes)) for n, w in ways.items()], doing)  # type: ignore[misc]
        except Superseded:
            raise  # the room may be another's
        except BaseException:
            _release(epoch, list(sizes), ways)
            raise

    def save_many(self, states: Sequence[State], nodes: Sequence[NodeId]) -> list[ElasticError | Full | None]:
        """Begin, put and commit many small states: several messages of many states in place of three for each.

        Args:
            states: Each at most `MANY_SIZE` bytes; larger ones go by `begin`. All of them for the same nodes.
            nodes: Each once.

        Returns:
            For each state in order: None when every node has confirmed it, else why not. Doing it again is harmless.
        """
        outcomes: list[ElasticError | Full | None] = [None] * len(states)
        try:
            ways = self._ways_to(nodes)
        except (NotFound, Unavailable) as error:
            return [Unavailable(f"states cannot be stored: {error.message}")] * len(states)

        def took(node: NodeId, begin: int, found: list[StateStoreError | None]) -> None:
            for at, error in enumerate(found, begin):
                if error is not None and outcomes[at] is None:
                    doing = f"save {states[at].ticket.key}"
                    outcomes[at] = error if isinstance(error, Full) else translated(error, node, doing)

        for begin, end in _groups(states):
            part = states[begin:end]
            try:
                ask_all(
                    [
                        (n, lambda n=n, w=w: w.start_save(part, partial(took, n, begin)))  # type: ignore[misc]  # noqa: B023
                        for n, w in ways.items()
                    ],
                    f"save {len(part)} states from {part[0].ticket.key} on",
                )
            except (ElasticError, Full) as error:
                outcomes[begin:end] = [outcome or error for outcome in outcomes[begin:end]]
        return outcomes

    def fetch_many(
        self,
        wanted: Sequence[tuple[str, int]],
        nodes: Sequence[NodeId],
        ahead: Mapping[Piece, bytes] | None = None,
    ) -> list[StoredState | Gone | Unavailable]:
        """Many states that the same nodes may have: see `fetch`.

        Args:
            wanted: (key, epoch).
            nodes: Whose stores.
            ahead: If only one is wanted: pieces of it that are here already.

        Returns:
            For each in order: it, or why not.
        """
        found: dict[int, StoredState | Gone | Unavailable] = {}
        missing = list(range(len(wanted)))
        reasons: dict[int, list[str]] = {n: [] for n in missing}
        unknown: set[int] = set()
        for node in self._order(nodes):
            if not missing:
                break
            if node not in nodes and not self._shared(node):
                continue
            left = missing
            missing = []
            try:
                answers: Iterator[Fetched | StateStoreError] = self._way(node).fetch(
                    [wanted[n] for n in left], ahead or {}
                )
                for n, answer in zip(left, _to_the_end(answers, len(left)), strict=True):
                    if isinstance(answer, StateStoreError):
                        missing.append(n)
                        reasons[n].append(f"{node}: {answer.message}")
                        if not isinstance(answer, store_errors.NotFound | store_errors.Lost):
                            unknown.add(n)
                    else:
                        found[n] = StoredState(
                            answer.head.meta, list(answer.pieces), node, answer.head.pieces
                        )
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

    def _order(self, nodes: Sequence[NodeId]) -> list[NodeId]:
        """Whose stores are asked for a state, one after the other."""
        others = [n for n in dict.fromkeys(nodes) if n != self._own]
        if self._own is None:
            return others
        # When its store stands before a cluster it holds what others have stored; one that is being started again is waited for last.
        serves = True
        with contextlib.suppress(Unavailable):  # who asks it is told
            serves = not others or self._address_of(self._own) != ""
        return [self._own, *others] if self._own in nodes and serves else [*others, self._own]

    def fetch_ahead(self, key: str, epoch: int, nodes: Sequence[NodeId]) -> dict[Piece, bytes]:
        """Get what is committed now of a state that is still being written: what it has in common with what will be committed last
        does not have to be fetched then. Raises as `fetch`."""
        found = self.fetch(key, epoch, nodes)
        return dict(zip(found.named, found.pieces, strict=True))

    def fetch(
        self,
        key: str,
        epoch: int,
        nodes: Sequence[NodeId],
        ahead: Mapping[Piece, bytes] | None = None,
    ) -> StoredState:
        """Get a state from the first of these nodes that has it whole; the own node is asked first.

        Args:
            ahead: What `fetch_ahead` gave.

        Raises:
            Gone: Every node has answered that it doesn't have it, or is gone.
            Unavailable: It cannot be had now.
        """
        (found,) = self.fetch_many([(key, epoch)], nodes, ahead)
        if isinstance(found, StoredState):
            return found
        raise found

    def clean(
        self, topology: TopologyName, epoch: int, tasks: Iterable[int], nodes: Iterable[NodeId]
    ) -> list[NodeId]:
        """Delete what a move has left, and refuse what may still come of it.

        Returns:
            Nodes that were out of reach: their supervisors collect it when their stores serve again.
        """
        wanted = [(state_key(topology, task), epoch) for task in tasks]
        missed = []
        for node in dict.fromkeys(nodes):
            try:
                outcomes = self._way(node).delete(wanted)
                # A later move has what was superseded; whatever else there is, is collected later on.
                if any(o is not None and not isinstance(o, store_errors.Superseded) for o in outcomes):
                    missed.append(node)
            except NotFound:
                continue
            except (Unavailable, StateStoreError):
                missed.append(node)
        return missed

    def close(self) -> None:
        """Let go of everything; calls that are under way end with `Unavailable`. Safe to call twice."""
        with self._changed:
            self._closed = True
            ways = list(self._ways.values())
            self._ways.clear()
            self._changed.notify_all()
        for way in ways:
            way.close()

    def _ways_to(self, nodes: Sequence[NodeId]) -> dict[NodeId, Way]:
        """The ways to several nodes' stores. Of those before the same cluster one is enough, that of the own node if it is among
        them: what is stored lies with its member."""
        ways: dict[NodeId, Way] = {}
        groups: set[str] = set()
        for node in self._needed(sorted(dict.fromkeys(nodes), key=lambda n: n != self._own)):
            way = self._way(node)
            group = self._group(node)
            if not group or group not in groups:
                ways[node] = way
                groups.add(group)
        return ways

    def _needed(self, nodes: list[NodeId]) -> list[NodeId]:
        """Without those whose store is being started again, where another one before the same cluster serves."""
        with self._changed:
            known = {n: self._addresses[n] for n in nodes if n in self._addresses}
        groups = {n: group for n, text in known.items() if (group := StoreAddress.parse(text).group)}
        away = [n for n in groups if self._address_of(n) == ""]
        serving = {groups[n] for n in groups if n not in away} if away else set()
        return [n for n in nodes if n not in away or groups[n] not in serving]

    def _group(self, node: NodeId) -> str:
        """Of a node that there is a way to."""
        return StoreAddress.parse(self._addresses[node]).group

    def _shared(self, node: NodeId) -> bool:
        address = self._address_of(node)
        return bool(address and StoreAddress.parse(address).group)

    def _way(self, node: NodeId) -> Way:
        """The way to a node's store, which is waited for a little.

        Raises:
            NotFound: The node is gone.
            Unavailable: It has no store.
        """
        until = time.monotonic() + self._patience
        while True:
            with self._changed:
                seen = self._changes
            address = self._address_of(node)  # it may ask coordination: not with the lock
            if address is None:
                raise NotFound(f"node {node} is gone")
            with self._changed:
                if not self._closed and address:
                    return self._way_by(node, address)
                left = until - time.monotonic()
                if self._closed:
                    raise Unavailable("the connections to state stores are closed")
                if left <= 0:
                    raise Unavailable(f"node {node} has no state store that answers")
                self._changed.wait_for(lambda: self._closed or self._changes != seen, min(left, _LOOK))  # noqa: B023

    def _way_by(self, node: NodeId, text: str) -> Way:
        former = self._addresses.get(node)
        self._addresses[node] = text
        if former is not None and former != text and former not in self._addresses.values():
            old = self._ways.pop(former, None)
            if old is not None:
                old.close()
        way = self._ways.get(text)
        if way is None:
            address = StoreAddress.parse(text)
            near = address.near
            way = NearWay(address.unix, self._patience) if near else FarWay(address.tcp, self._patience)
            self._ways[text] = way
        return way


def _release(epoch: int, keys: Sequence[str], ways: Mapping[NodeId, Way]) -> None:
    for way in ways.values():
        with contextlib.suppress(StateStoreError):
            way.release(epoch, keys)


def _to_the_end(
    answers: Iterator[Fetched | StateStoreError], count: int
) -> Iterator[Fetched | StateStoreError]:
    """All answers; where they end too early, why they do is the answer to the rest."""
    done = 0
    try:
        for answer in answers:
            done += 1
            yield answer
        wrong: StateStoreError = store_errors.Unavailable("the store ended its answer too early")
    except StateStoreError as error:
        wrong = error
    yield from [wrong] * (count - done)


def _groups(states: Sequence[State]) -> Iterator[tuple[int, int]]:
    """Where the messages of many states begin and end."""
    begin = size = 0
    for at, state in enumerate(states):
        mine = sum(map(len, state.pieces)) + len(state.meta)
        if at > begin and (size + mine > _MESSAGE or at - begin >= _MANY):
            yield begin, at
            begin, size = at, 0
        size += mine
    if begin < len(states):
        yield begin, len(states)
