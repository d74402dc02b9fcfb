"""A node's state store, put together: its process, who keeps it running, who says where it is, and who tidies it."""

from __future__ import annotations

import argparse
from pathlib import Path

from elastic.cluster.network import is_loopback
from elastic.cluster.store_keeper import StoreKeeper
from elastic.cluster.store_service import DIRECTORY, LOG, StoreService, socket_path
from elastic.cluster.store_sweep import Sweeper
from elastic.coordination.base import Coordination
from elastic.model.ids import NodeId
from elastic.supervisor.happenings import Happenings
from elastic.supervisor.supervisor import Supervisor


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
        arguments = ["--backend", "embedded", "--directory", str(directory / DIRECTORY)]
        arguments += ["--limit", options.store_limit, "--log-level", options.log_level]
        if not is_loopback(host):
            arguments.append("--allow-remote")
        unix = socket_path(run_dir, node, directory)
        service = StoreService(arguments, log=directory / LOG, host=host, unix=unix)
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
        self._sweeper.serving(address)
