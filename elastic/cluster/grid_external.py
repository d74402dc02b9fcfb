"""Members of a Hazelcast cluster that somebody else runs: where they are, and what is seen of them before a cluster starts."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from elastic.errors import EnvironmentProblem
from elastic.errors import Unavailable as NotThere
from statestore.errors import Missing, Unavailable

_REACH = 6.0


@dataclass(frozen=True, slots=True)
class External:
    """A Hazelcast cluster that somebody else runs: its name, and addresses of some members."""

    name: str
    members: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> External:
        """`[NAME@]HOST:PORT,...`; without a name it is Hazelcast's own, "dev"."""
        name, at, members = text.rpartition("@")
        return cls(name if at else "dev", tuple(m for m in members.split(",") if m))


def check_external(
    external: External, backups: int, tell: Callable[[str], None], seconds: float = _REACH
) -> None:
    """See whether members that somebody else runs can be reached, and keep what is stored: how they are set is their affair, and
    the nodes' stores refuse what would lose states.

    Args:
        external: The members.
        backups: Synchronous backups that they must keep at least.
        tell: Told what is not as it should be, and is no reason to refuse.
        seconds: For reaching one, and for being taken by it.

    Raises:
        Unavailable: Nobody can be reached, with what came of each; or they are of another cluster.
        EnvironmentProblem: They drop what is stored, or keep fewer backups; it says what to set.
    """
    from statestore.hazelcast.connection import connect, name_of  # supervisors do without the client
    from statestore.hazelcast.settings import check

    _reach(external, seconds)
    name = name_of(external.members, external.name)
    try:
        client = connect(external.members, external.name, seconds)
        try:
            doubts = check(client, name, backups)
        finally:
            client.shutdown()
    except Unavailable as error:
        raise NotThere(
            f"--store hazelcast: {error.message}",
            remedy=f"Somebody listens there: is the Hazelcast cluster's name {external.name}? Write hazelcast:NAME@HOST:PORT.",
        ) from error
    except Missing as error:
        remedy = f"{error.remedy} With --store-backups fewer are enough." if backups else error.remedy
        raise EnvironmentProblem(f"--store hazelcast: {error.message}", remedy=remedy) from error
    for doubt in doubts:
        tell(doubt)


def _reach(external: External, seconds: float) -> None:
    """See whether anybody listens: nodes would ask in vain for as long as nobody does. Raises: Unavailable."""
    until, said = time.monotonic() + seconds, []
    for n, member in enumerate(external.members):
        host, _, port = member.rpartition(":")
        left = (until - time.monotonic()) / (len(external.members) - n)
        try:
            socket.create_connection((host, int(port)), max(0.1, left)).close()
        except (OSError, OverflowError) as error:
            said.append(f"{member} ({getattr(error, 'strerror', None) or error})")
        else:
            return
    raise NotThere(
        f"--store hazelcast: no member of the Hazelcast cluster {external.name} can be reached: {', '.join(said)}",
        remedy="Do its members run, and may this machine reach them? `--store hazelcast` alone starts members.",
    )
