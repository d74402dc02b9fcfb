"""The client's way to the leading Nimbus: finds it among several addresses, and finds it again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc

from elastic.control.v1 import control_pb2 as pb
from elastic.control.v1.control_pb2_grpc import ControlServiceStub
from elastic.errors import ConfigError, DeadlineExceeded, ElasticError, Unavailable
from elastic.rpc.channels import open_channel
from elastic.rpc.errors import Unreachable, from_call

_ASK = 5.0
_PAUSES = (0.05, 0.5)
_WORD = 1.0
"""Seconds without a leader after which it is said that there is none: another one takes over sooner where one stands by."""
_LEADERLESS = 60.0
"""Seconds that one is waited for at most while some Nimbus answers, however long the request itself may take: coordination may be down."""


@dataclass(frozen=True)
class Link:
    """A channel to one Nimbus."""

    address: str
    channel: grpc.Channel
    stub: ControlServiceStub


class Connection:
    """Keeps a link to the leader. Thread-safe.

    Args:
        addresses: `host:port` of the Nimbuses that are known. Others are found when a known one names the leader.
        patience: Seconds to go on when none of the addresses answers: the first time, and once one has answered.
    """

    def __init__(self, addresses: Sequence[str], *, patience: tuple[float, float]) -> None:
        if not addresses:
            raise ConfigError("no address of a Nimbus is given", remedy="Give host:port of one or more.")
        self._addresses = tuple(dict.fromkeys(addresses))
        self._patience = patience
        self._lock = threading.Lock()
        self._links: dict[str, Link] = {}
        self._leader = ""
        self._met = False
        self._closed = False
        self.on_lost: Callable[[str], None] = lambda why: None
        """Told in a sentence that there is no leader and it is tried again; "" when there is one again. On the thread that asks."""

    def leader(self, deadline: float, *, sure: bool = False) -> Link:
        """A link to the leading Nimbus.

        Args:
            deadline: By the monotonic clock; asking goes on until then while there is somebody who answers.
            sure: Ask whether it still leads, also when it did a moment ago.

        Raises:
            Unavailable: None of the addresses answers, or nobody leads.
        """
        with self._lock:
            known = self._leader
            if known and not sure:
                return self._link(known)
        began, said = time.monotonic(), False
        patience = began + self._patience[self._met]
        pause = _PAUSES[0]
        answered: pb.ClusterInfoResponse | None = None
        while True:
            info, problem = self._ask_round(deadline, known)
            # The last round may have no time left for an answer; but who cannot be reached any more has gone.
            answered = info or (None if isinstance(problem, Unreachable) else answered)
            if info is not None and info.leading:
                if said:
                    self.on_lost("")
                with self._lock:
                    self._leader, self._met = info.address, True
                    return self._link(info.address)
            now = time.monotonic()
            until = patience if info is None else began + _LEADERLESS
            if now + pause >= min(deadline, until):
                raise self._nobody(answered, problem)
            if not said and now - began >= _WORD and not self._closed:
                said = True
                self.on_lost("no Nimbus answers" if info is None else "no Nimbus leads")
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    def forget(self, link: Link, hint: str = "") -> None:
        """That Nimbus doesn't answer, or doesn't lead; `hint` is who does, if it said so."""
        with self._lock:
            if self._leader == link.address:
                self._leader = hint

    def info(self, deadline: float) -> pb.ClusterInfoResponse:
        """What the leader says about the cluster, or, while there is none, whoever answers.

        Raises:
            Unavailable: None of the addresses answers.
        """
        with self._lock:
            known = self._leader
        patience = min(deadline, time.monotonic() + self._patience[self._met])
        while True:
            info, problem = self._ask_round(deadline, known)
            if info is not None:
                with self._lock:
                    self._met = True
                return info
            if time.monotonic() + _PAUSES[1] >= patience:
                raise self._nobody(None, problem)
            time.sleep(_PAUSES[1])

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End all calls. Safe to call twice."""
        with self._lock:
            self._closed = True
            links, self._links = list(self._links.values()), {}
        for link in links:
            link.channel.close()

    def _ask_round(
        self, deadline: float, known: str
    ) -> tuple[pb.ClusterInfoResponse | None, ElasticError | None]:
        """Ask everybody who leads, and the one that is named. Any answer, best the leader's; and the last problem."""
        queue = [a for a in dict.fromkeys((known, *self._addresses)) if a]
        found: pb.ClusterInfoResponse | None = None
        problem: ElasticError | None = None
        asked = set[str]()
        while queue:
            address = queue.pop(0)
            asked.add(address)
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                with self._lock:
                    link = self._link(address)
                # One that hangs leaves time for those that come after it.
                within = min(_ASK, left / (1 + len(queue)))
                info = link.stub.ClusterInfo(pb.ClusterInfoRequest(), timeout=within)
            except ValueError as e:  # its channel has been closed in between
                if self._closed:
                    raise Unavailable("this client is closed") from e
                raise
            except grpc.RpcError as e:
                problem = from_call(e, doing="ask for the leader", address=address)
                if not isinstance(problem, Unavailable | DeadlineExceeded):
                    raise problem from e
                continue
            # Under whatever name it is reached from here: 127.0.0.1, localhost, a tunnel.
            info.address = address
            found = info
            if info.leading:
                return info, None
            if info.leader and info.leader not in asked:
                queue = [info.leader, *(a for a in queue if a != info.leader)]
        return found, problem

    def _link(self, address: str) -> Link:
        """Called with the lock held."""
        if self._closed:
            raise Unavailable("this client is closed")
        link = self._links.get(address)
        if link is None:
            channel = open_channel(address)
            link = self._links[address] = Link(address, channel, ControlServiceStub(channel))
        return link

    def _nobody(self, info: pb.ClusterInfoResponse | None, problem: ElasticError | None) -> Unavailable:
        where = ", ".join(self._addresses)
        why = (
            f" ({problem.message.rpartition('(')[2].rstrip(')')})" if isinstance(problem, Unreachable) else ""
        )
        if info is not None and info.leader and problem is not None:
            return Unavailable(
                f"Nimbus at {where} answers and says that {info.leader} leads, which does not answer here{why}",
                remedy="If that one has just ended, another one takes over in some seconds: try again. Else see whether its address"
                " can be reached from here.",
            )
        if info is not None:
            return Unavailable(
                f"Nimbus at {where} answers, but none of them leads",
                remedy="If coordination (ZooKeeper) is up, one takes over in some seconds: try again, or see its log.",
            )
        return Unavailable(
            f"no Nimbus answers at {where}{why}",
            remedy="Is the cluster running? Start one with: elastic up. Is it elsewhere? Give its address.",
        )
