"""Nimbus on real ZooKeeper, with the real way to its nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastic.cluster.node_stores import NodeStores
from elastic.cluster.store_ways import store_address
from elastic.coordination import paths
from elastic.coordination.base import SessionState, Watch
from elastic.coordination.zookeeper import ZooKeeperCoordination, connect
from elastic.errors import ElasticError
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.options import NimbusOptions
from elastic.reporting.node_gateway import GrpcNodeGateway


@dataclass(frozen=True)
class OpenNimbus:
    """A Nimbus and what it stands on."""

    nimbus: Nimbus
    nodes: GrpcNodeGateway
    coordination: ZooKeeperCoordination
    session: Watch
    connected: threading.Event

    def over(self) -> bool:
        """Whether the cluster is being ended: the launcher has taken back that nodes are wanted. Not where that cannot be asked."""
        try:
            return self.connected.is_set() and self.coordination.get(paths.WANTED) is None
        except ElasticError:
            return False

    def close(self) -> None:
        """Step down, then end the session."""
        self.session.cancel()
        self.nimbus.close()

    def end_session(self) -> None:
        """After `close`, and after what still asks this Nimbus has ended."""
        self.coordination.close()


def open_nimbus(
    *,
    zookeeper: str,
    address: str,
    directory: Path,
    session_timeout: float,
    connect_timeout: float = 10.0,
    own_zookeeper: bool = False,
    options: NimbusOptions,
    on_lost: Callable[[], None],
) -> OpenNimbus:
    """A Nimbus with a session of its own; the caller starts it, and closes what it gets.

    Args:
        zookeeper: "host:port" of the servers, with commas between, and "/root".
        address: `host:port` where others reach this Nimbus.
        directory: For its bundles and events; several on one machine share it.
        session_timeout: Seconds.
        connect_timeout: Seconds to wait for the first connection.
        own_zookeeper: That is the one server that the cluster's launcher runs, and nothing is between.
        options: Of Nimbus.
        on_lost: Called once when the session is lost: the process must end.

    Raises:
        Unavailable: ZooKeeper does not answer.
    """

    connected = threading.Event()

    def state(now: SessionState) -> None:
        if now is SessionState.CONNECTED:
            connected.set()
        else:
            connected.clear()
        if now is SessionState.LOST:
            on_lost()

    coordination = connect(
        zookeeper,
        session_timeout=session_timeout,
        connect_timeout=connect_timeout,
        own_server=own_zookeeper,
    )
    try:
        nodes = GrpcNodeGateway()
        nimbus = Nimbus(
            coordination,
            address=address,
            directory=directory,
            nodes=nodes,
            options=options.validate(),
            stores=NodeStores(None, lambda node: store_address(coordination, node)),
        )
        return OpenNimbus(nimbus, nodes, coordination, coordination.watch_session(state), connected)
    except BaseException:
        coordination.close()
        raise
