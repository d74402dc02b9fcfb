"""A node's state store, put together: its process, who keeps it running, who says where it is, and who tidies it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from elastic import procs
from elastic.cluster.network import is_loopback
from elastic.cluster.store_keeper import Service, StoreKeeper
from elastic.cluster.store_service import DIRECTORY, LOG, StoreService, socket_path
from elastic.cluster.store_sweep import Sweeper
from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.errors import ElasticError
from elastic.model.ids import NodeId
from elastic.supervisor.happenings import Happenings
from elastic.supervisor.supervisor import Supervisor

EMBEDDED = 1 << 30
HEAP = 512 << 20
EXTERNAL = 128 << 20
"""Bytes, when nothing else is said: see `UpOptions.store_memory`."""
_HEARTBEAT = 15.0
"""Seconds that Hazelcast members wait for one that says nothing; never less than twice the time of a session. So a node that is cut
off has ended itself, with its member, before the others go on without it: no two parts of the cluster take writes."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is to run, and how; see `NodeStore`."""

    options: argparse.Namespace
    node: NodeId
    coordination: Coordination
    host: str
    directory: Path
    run_dir: Path

    @property
    def unix(self) -> Path | None:
        return socket_path(self.run_dir, self.node, self.directory)

    @property
    def arguments(self) -> list[str]:
        """Of the store, whatever its kind."""
        remote = () if is_loopback(self.host) else ("--allow-remote",)
        states = str(self.directory / DIRECTORY)
        return ["--directory", states, "--log-level", self.options.log_level, *remote]


def _embedded(place: Place) -> Service:
    limit = place.options.store_memory or EMBEDDED
    arguments = ["--backend", "embedded", "--limit", str(limit), *place.arguments]
    return StoreService(arguments, log=place.directory / LOG, host=place.host, unix=place.unix)


def _hazelcast(place: Place) -> Service:
    from elastic.cluster.grid_external import External
    from elastic.cluster.grid_members import GridMembers
    from elastic.cluster.grid_service import GridService, cluster_name
    from elastic.cluster.java import find_java
    from statestore.hazelcast.member import HazelcastMember, MemberOptions

    options = place.options
    _, _, there = options.store.partition(":")
    arguments = ["--backend", "hazelcast", "--backups", str(options.store_backups), *place.arguments]
    if there:
        external = External.parse(there)
        limit = options.store_memory or EXTERNAL
        group = f"{external.name}@{','.join(external.members)}"
        store = StoreService([], log=place.directory / LOG, host=place.host, unix=place.unix, group=group)
        return GridService(
            store,
            [*arguments, "--foreign", "--limit", str(limit)],
            external.name,
            place.directory,
            member=None,
            members=None,
            external=external.members,
        )
    name = cluster_name(options.zookeeper)
    heap = options.store_memory or HEAP
    store = StoreService([], log=place.directory / LOG, host=place.host, unix=place.unix, group=name)
    member = HazelcastMember(
        MemberOptions(
            name,
            place.host,
            backups=options.store_backups,
            heap=heap,
            heartbeat=max(_HEARTBEAT, 2 * options.session_timeout),
        ),
        place.directory / "hazelcast",
        java=find_java(),
        spawn=procs.spawn,
    )
    return GridService(
        store,
        [*arguments, "--heap", str(heap)],
        name,
        place.directory,
        member=member,
        members=GridMembers(place.coordination, place.node),
        leaving=lambda: _others_go_on(place),
    )


def _others_go_on(place: Place) -> bool:
    """Whether the cluster lives on without this node."""
    try:
        wanted = place.coordination.children(paths.WANTED) or ()
    except ElasticError:
        return False
    return any(name != place.node for name in wanted)


class NodeStore:
    """Beside a supervisor that has started.

    Args:
        options: The supervisor's arguments.
        supervisor: Says where the store is.
        coordination: The supervisor's session.
        host: Where the node listens.
        directory: The node's own.
        run_dir: For Unix sockets.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        supervisor: Supervisor,
        coordination: Coordination,
        *,
        host: str,
        directory: Path,
        run_dir: Path,
    ) -> None:
        node = NodeId(options.node)
        place = Place(options, node, coordination, host, directory, run_dir)
        service = _embedded(place) if options.store == "embedded" else _hazelcast(place)
        self._supervisor = supervisor
        self._sweeper = Sweeper(coordination)
        self._keeper = StoreKeeper(service, Happenings(node), self._serving, supervisor.tell)

    def start(self) -> None:
        """Begin; returns at once."""
        self._sweeper.start()
        self._keeper.start()

    def close(self) -> None:
        """End the store; it is gone when this returns. Safe to call twice."""
        self._sweeper.close()
        self._keeper.close()

    def _serving(self, address: str) -> None:
        self._supervisor.set_store(address)
        if address:
            self._sweeper.serving(address)
