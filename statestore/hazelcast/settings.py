"""How the members of a cluster are set to keep the maps of a store. Members that somebody else runs decide that for themselves.

Each member is asked, by the request with which Hazelcast's own Management Center asks: the official client knows the protocol, and
has no name for this part of it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hazelcast.invocation import Invocation
from hazelcast.protocol.builtin import StringCodec
from hazelcast.protocol.client_message import (
    REQUEST_HEADER_SIZE,
    RESPONSE_HEADER_SIZE,
    OutboundMessage,
    create_initial_buffer,
)

from statestore.errors import Missing, Unavailable
from statestore.hazelcast.connection import NOT_SENT, address_of, wait
from statestore.hazelcast.grid import HEADS, PIECES

_invocation: Any = Invocation  # the client's own types are not complete
_message: Any = OutboundMessage
_strings: Any = StringCodec
_new: Any = create_initial_buffer

_GET_MAP_CONFIG = 0x200300
_RESPONSE = struct.Struct("<7i?i")
"""In-memory format, backups, asynchronous backups, seconds to live, idle seconds, size, what the size means, whether backups are read,
eviction."""
_NO_EVICTION = 2
_EVICTIONS = {0: "LRU", 1: "LFU", 3: "RANDOM"}
_DISCARD = "DiscardMergePolicy"


@dataclass(frozen=True, slots=True)
class MapSettings:
    """How one member keeps one map.

    Attributes:
        member: `host:port`.
        map: Its name.
        backups: Synchronous ones.
        time_to_live: Seconds after which an entry goes; 0 for never.
        max_idle: Seconds without use after which an entry goes; 0 for never.
        eviction: What goes when it is full; "" for nothing.
        merge_policy: What becomes of entries of two parts of a cluster that find each other again.
    """

    member: str
    map: str
    backups: int
    time_to_live: int
    max_idle: int
    eviction: str
    merge_policy: str


def check(client: Any, name: str, backups: int) -> list[str]:
    """See that members keep what a store puts there, and with so many backups.

    Args:
        client: Connected.
        name: Of the cluster, for people.
        backups: Synchronous ones that are wanted at least.

    Returns:
        What is not as it should be, and is no reason not to begin.

    Raises:
        Missing: A member has fewer backups, or drops entries of itself: what had been confirmed would be gone, and nobody told.
    """
    members = client.cluster_service.get_members()
    try:
        found = [_of(client, name, member, kept) for member in members for kept in (HEADS, PIECES)]
    except _Unread as error:
        return [
            f"how the members of the Hazelcast cluster {name} are set cannot be read ({error}): nobody has seen that "
            f"they keep {_backups(backups)} and drop nothing"
        ]
    wrong = problems(found, backups)
    if wrong:
        raise Missing(
            f"the members of the Hazelcast cluster {name} do not keep what is stored there: {'; '.join(wrong)}",
            remedy=f'Set the maps "statestore.*" in their configuration to backup-count {backups} or more, without eviction, '
            "time-to-live-seconds and max-idle-seconds, and start them anew.",
        )
    return doubts(found, backups, len(members))


def problems(found: Sequence[MapSettings], backups: int) -> list[str]:
    """What makes them of no use, for people."""
    said = {
        f"{s.map} has {_backups(s.backups)}, and {backups} {'is' if backups == 1 else 'are'} wanted": s
        for s in found
        if s.backups < backups
    }
    said |= {f"{s.map} evicts entries ({s.eviction})": s for s in found if s.eviction}
    said |= {
        f"{s.map} drops entries after {s.time_to_live} s (time-to-live-seconds)": s
        for s in found
        if s.time_to_live
    }
    said |= {
        f"{s.map} drops entries that nobody uses for {s.max_idle} s (max-idle-seconds)": s
        for s in found
        if s.max_idle
    }
    return [f"{what} at {s.member}" for what, s in said.items()]


def doubts(found: Sequence[MapSettings], backups: int, members: int) -> list[str]:
    """What may cost something one day, for people."""
    said = []
    if members <= backups:
        said.append(
            f"there {'is' if members == 1 else 'are'} only {members} of the Hazelcast cluster's members: with fewer than "
            f"{backups + 1} not everything has {_backups(backups)}"
        )
    other = sorted({s.merge_policy for s in found if s.merge_policy.rpartition(".")[2] != _DISCARD})
    if other:
        said.append(
            f'the Hazelcast members\' maps "statestore.*" have the merge policy {", ".join(other)}: after a split of their '
            f"cluster, what had been deleted may come back (set it to {_DISCARD})"
        )
    return said


class _Unread(Exception):
    """A member does not tell, and says why."""


def _of(client: Any, name: str, member: Any, kept: str) -> MapSettings:
    request = _new(REQUEST_HEADER_SIZE, _GET_MAP_CONFIG)
    _strings.encode(request, kept, True)
    asked = _invocation(_message(request, True), uuid=member.uuid, response_handler=lambda message: message)
    try:
        client._invocation_service.invoke(asked)
        answer = wait(asked.future, name)
        _, backups, _, to_live, idle, _, _, _, eviction = _RESPONSE.unpack_from(
            answer.next_frame().buf, RESPONSE_HEADER_SIZE
        )
        policy = _strings.decode(answer)
    except (Unavailable, *NOT_SENT, AttributeError, struct.error, ValueError) as error:
        raise _Unread(str(error)) from error  # a server that does not allow it, or is another version
    return MapSettings(
        address_of(member),
        kept,
        backups,
        to_live,
        idle,
        "" if eviction == _NO_EVICTION else _EVICTIONS.get(eviction, str(eviction)),
        policy,
    )


def _backups(count: int) -> str:
    return f"{count} synchronous backup{'' if count == 1 else 's'}" if count else "no backup"
