"""A Hazelcast cluster through its official client: options that lose nothing, bounded waits, exchange of one entry, places.

Values are `bytearray`, nothing else: `bytes` would be pickled, and what was pickled is not read (`connection.refuse_pickles`).

A cluster of which all members were started again answers as if it had always been empty. So each partition holds a *canary*, an
entry with the cluster's incarnation, from the day the first store connected: where a key reads as absent, its partition's canary
says whether it is absent or lost. It is the same cluster for as long as one canary is left: what some partitions have lost is no reason
to take it for a new one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hazelcast.lifecycle import LifecycleState

from statestore.errors import Lost, Unavailable
from statestore.hazelcast.connection import NOT_SENT, WAIT, address_of, connect, name_of, wait

HEADS = "statestore.heads"
PIECES = "statestore.pieces"

INCARNATION = "\0incarnation"
CANARY = "\0canary"
_FOUNDING = b"founding:"
_READY = b"ready:"


class Placed(str):
    """A key that lies where its salt lies, not where its text would.

    Args:
        text: The key.
        salt: Decides the partition.
    """

    __slots__ = ("salt",)
    salt: str

    def __new__(cls, text: str, salt: str) -> Placed:
        made = super().__new__(cls, text)
        made.salt = salt
        return made

    def get_partition_key(self) -> str:
        """What the client asks for."""
        return self.salt


class Grid:
    """The connection to a cluster.

    Args:
        members: `host:port` of some members.
        cluster: Its name.
        local: `host:port` of the member on whose partitions pieces are to lie; "" for any.
        expected: The incarnation that the cluster must have, when it was seen before; "" when not.
        proposed: The incarnation to give it when it has none and none is expected.
        before: Given the client before anything is stored; what it raises ends the connection.
        on_replaced: Called once when it turns out to be another cluster than it was; on any thread.
        on_cut_off: Called once when no member could be reached for so long that the client gave up for good; on any thread.

    Raises:
        Unavailable: No member can be reached.
        Lost: The cluster is not the one that was expected.
    """

    def __init__(
        self,
        members: Sequence[str],
        cluster: str,
        local: str,
        *,
        expected: str,
        proposed: str,
        before: Callable[[Any], None] = lambda _: None,
        on_replaced: Callable[[], None] = lambda: None,
        on_cut_off: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name_of(members, cluster)
        self._local = local
        self._on_replaced = on_replaced
        self._replaced = False
        self._on_cut_off = on_cut_off
        self._closed = False
        self._lock = threading.Lock()
        self._salts: dict[int, str] = {}
        self._client = connect(members, cluster)
        try:
            before(self._client)
            self._heads: Any = self._client.get_map(HEADS)
            self._pieces: Any = self._client.get_map(PIECES)
            self.incarnation = self._settle(expected, proposed)
            self._client.lifecycle_service.add_listener(self._on_lifecycle)
            if not self._client.lifecycle_service.is_running():  # since before anybody listened
                raise Unavailable(f"the Hazelcast cluster {self.name} cannot be reached any more")
        except BaseException:
            self._closed = True
            self._client.shutdown()
            raise

    def close(self) -> None:
        """End the connection."""
        self._closed = True
        self._client.shutdown()

    def _on_lifecycle(self, state: str) -> None:
        if state == LifecycleState.SHUTDOWN and not self._closed:
            self._on_cut_off()

    # -- single entries

    def wait(self, future: Any) -> Any:
        """See `connection.wait`."""
        return wait(future, self.name)

    def _send(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Begin a request; a client that is just offline refuses at once. Raises: Unavailable."""
        try:
            return method(*arguments)
        except NOT_SENT as error:
            raise Unavailable(
                f"the Hazelcast cluster {self.name}: {type(error).__name__}: {error}"
            ) from error

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return self.wait(self._send(method, *arguments))

    # -- pieces: requests that are under way, for `wait`

    def set_piece(self, key: Placed, data: bytes) -> Any:
        """Put a piece. `set`, since `put` brings the old value back."""
        return self._send(self._pieces.set, key, bytearray(data))

    def get_piece(self, key: Placed) -> Any:
        """A piece, or None."""
        return self._send(self._pieces.get, key)

    def delete_piece(self, key: Placed) -> Any:
        """Remove a piece."""
        return self._send(self._pieces.delete, key)

    def piece_keys(self) -> list[str]:
        """The keys of all pieces."""
        return list(self._ask(self._pieces.key_set))

    # -- heads

    def look(self, key: str) -> Any:
        """Begin to read an entry of the map of heads; see `read` for one that is not there."""
        return self._send(self._heads.get, key)

    def read(self, key: str, *, anew: bool = False, expected: bool = True) -> bytes | None:
        """An entry of the map of heads; None when there is really none.

        Args:
            anew: None also when it may have been lost: for whoever writes, and takes nothing from what was there. Else a key
                whose partition has lost something could never be written again.
            expected: Whether there is one, most likely. Else what tells that there is really none is asked for at once.

        Raises:
            Lost: There may have been one: its partition is not what it was.
        """
        looking = self.look(key)
        partition = self.partition(key)
        canary = None if expected else self._canary(partition)
        found = self.wait(looking)
        if found is None:
            self._verify(partition, canary or self._canary(partition), anew)
            return None
        return bytes(found)

    def exchange(self, key: str, old: bytes | None, new: bytes) -> bool:
        """Put an entry in the place of the one that was read, in one step.

        Args:
            key: Of the map of heads.
            old: What was read.
            new: Unlike any other value that was ever there: it holds a nonce.

        Returns:
            Whether `new` took its place. An answer that was lost is looked for.

        Raises:
            Unavailable: Nobody can tell. The same exchange may be tried again.
        """
        value = bytearray(new)
        try:
            if old is None:
                done = self._ask(self._heads.put_if_absent, key, value) is None
            else:
                done = self._ask(self._heads.replace_if_same, key, bytearray(old), value)
            if done:
                return True
        except Unavailable:
            pass  # it may have happened
        # Also after a plain "no": the client repeats what was not answered, and the first attempt may have done it.
        found = self._ask(self._heads.get, key)
        return found is not None and bytes(found) == new

    def verify(self, key: str, *, anew: bool = False) -> None:
        """See that the partition of a key has lost nothing.

        Args:
            anew: It may have lost something, but it must be of the same cluster.

        Raises:
            Lost: It has.
        """
        partition = self.partition(key)
        self._verify(partition, self._canary(partition), anew)

    def _verify(self, partition: int, canary: Any, anew: bool) -> None:
        found = self.wait(canary)
        if found is None and anew:
            self.check_all()
        elif found is None:
            raise Lost(
                f"the Hazelcast cluster {self.name} has lost what was in partition {partition}: "
                f"members died, and too few had backups",
                remedy="What was stored there is gone; what is stored from now on is kept. More backups survive more deaths.",
            )
        elif bytes(found).decode() != self.incarnation:
            raise self._other(f"is another one ({bytes(found).decode()})")

    def _canary(self, partition: int) -> Any:
        """Begin to read the canary of a partition."""
        return self._send(self._heads.get, Placed(f"{CANARY}{partition}", self.salt(partition)))

    def _canaries(self) -> Counter[str]:
        """Which incarnations the canaries tell of, and how many of each there are."""
        count = self._client.partition_service.get_partition_count()
        answers = [self.wait(f) for f in [self._canary(p) for p in range(count)]]
        return Counter(bytes(found).decode() for found in answers if found is not None)

    def _other(self, what: str) -> Lost:
        if not self._replaced:
            self._replaced = True
            self._on_replaced()
        return Lost(
            f"the Hazelcast cluster {self.name} {what}: it is not {self.incarnation}, which held the states",
            remedy="All members have been started anew, so what was stored is gone. Start the stores anew as well.",
        )

    def entries(self) -> Iterator[tuple[str, bytes]]:
        """All entries of the map of heads but the store's own."""
        for key, value in self._ask(self._heads.entry_set):
            if not key.startswith("\0"):
                yield key, bytes(value)

    def remove(self, key: str, old: bytes) -> None:
        """Remove an entry of the map of heads, when it is still what was read."""
        self._ask(self._heads.remove_if_same, key, bytearray(old))

    def check_all(self) -> None:
        """See that the cluster is the one that it was. Raises: Lost."""
        found = self._ask(self._heads.get, INCARNATION)
        name = bytes(found).partition(b":")[2].decode() if found is not None else self._restored()
        if name != self.incarnation:
            raise self._other(f"is another one ({name})" if name else "is empty")

    def _restored(self) -> str:
        """The incarnation, by the canaries that are left of it; written down again. "" when there are none."""
        left = self._canaries()
        if not left:
            return ""
        name, _ = max(left.items(), key=lambda item: (item[1], item[0]))
        self._ask(self._heads.put_if_absent, INCARNATION, bytearray(_READY + name.encode()))
        return name

    # -- places

    def partition(self, key: object) -> int:
        """The partition of a key."""
        return int(self._client.partition_service.get_partition_id(key))

    def salt(self, partition: int) -> str:
        """A salt that leads to that partition."""
        with self._lock:
            if not self._salts:
                count = self._client.partition_service.get_partition_count()
                number = 0
                while len(self._salts) < count:
                    self._salts.setdefault(self.partition(f"s{number}"), f"s{number}")
                    number += 1
            return self._salts[partition]

    def local_salts(self, count: int, seed: int) -> tuple[str, ...]:
        """Salts of partitions that the local member owns now; of any when it owns none.

        Args:
            count: How many.
            seed: Writes with different ones get different partitions.
        """
        service = self._client.partition_service
        total = service.get_partition_count()
        mine = next(
            (m.uuid for m in self._client.cluster_service.get_members() if address_of(m) == self._local), None
        )
        owned = [p for p in range(total) if mine is not None and service.get_partition_owner(p) == mine]
        owned = owned or list(range(total))
        return tuple(self.salt(owned[(seed + i) % len(owned)]) for i in range(min(count, len(owned))))

    def members(self) -> int:
        """How many there are, as far as this client knows."""
        return len(self._client.cluster_service.get_members())

    def local_share(self, salts: Iterable[str]) -> float:
        """Which share of these salts leads to the local member now."""
        service = self._client.partition_service
        mine = {m.uuid for m in self._client.cluster_service.get_members() if address_of(m) == self._local}
        hits = [service.get_partition_owner(self.partition(salt)) in mine for salt in salts]
        return sum(hits) / max(1, len(hits))

    # -- incarnation

    def _settle(self, expected: str, proposed: str) -> str:
        """Find the cluster's incarnation, or found it."""
        deadline = time.monotonic() + WAIT
        while True:
            found = self._ask(self._heads.get, INCARNATION)
            if found is None and self._restored():
                continue  # the partition that held it is lost, others are not
            value = bytes(found) if found is not None else None
            name = value.partition(b":")[2].decode() if value is not None else ""
            if expected and name != expected:
                raise Lost(
                    f"the Hazelcast cluster {self.name} "
                    + ("is empty" if value is None else f"is another one ({name})")
                    + f": it is not {expected}, which held the states",
                    remedy="All members have been started anew, so the states are gone. "
                    "To begin without them, remove the store's directory.",
                )
            if value is not None and value.startswith(_READY):
                return name
            if value is None:
                first = bytearray(_FOUNDING + proposed.encode())
                self._ask(self._heads.put_if_absent, INCARNATION, first)
                continue
            self._found(name)  # whoever began it may have died: doing it twice does no harm
            ready = bytearray(_READY + name.encode())
            old = bytearray(value)
            self._ask(self._heads.replace_if_same, INCARNATION, old, ready)
            if time.monotonic() > deadline:
                raise Unavailable(f"the Hazelcast cluster {self.name} does not settle")

    def _found(self, name: str) -> None:
        count = self._client.partition_service.get_partition_count()
        value = bytearray(name.encode())
        futures = []
        for partition in range(count):
            key = Placed(f"{CANARY}{partition}", self.salt(partition))
            futures.append(self._send(self._heads.set, key, value))
        for future in futures:
            self.wait(future)
