"""Puts a node's state store together: its process, who keeps it running, and who says where it is."""

from __future__ import annotations

import argparse
from pathlib import Path

from elastic.cluster.network import is_loopback
from elastic.cluster.store_keeper import StoreKeeper
from elastic.cluster.store_service import DIRECTORY, LOG, StoreService, socket_path
from elastic.coordination.base import Coordination
from elastic.model.ids import NodeId
from elastic.supervisor.happenings import Happenings
from elastic.supervisor.supervisor import Supervisor


def make_keeper(
    options: argparse.Namespace,
    supervisor: Supervisor,
    coordination: Coordination,
    *,
    host: str,
    directory: Path,
    run_dir: Path,
) -> StoreKeeper:
    """The keeper of a node's store; the caller starts and closes it.

    Args:
        options: The supervisor's arguments.
        supervisor: Says where the store is.
        coordination: The supervisor's session.
        host: Where the node listens.
        directory: The node's own.
        run_dir: For Unix sockets.
    """
    node = NodeId(options.node)
    arguments = ["--backend", "embedded", "--directory", str(directory / DIRECTORY)]
    arguments += ["--limit", options.store_limit, "--log-level", options.log_level]
    if not is_loopback(host):
        arguments.append("--allow-remote")
    unix = socket_path(run_dir, node, directory)
    service = StoreService(arguments, log=directory / LOG, host=host, unix=unix)
    return StoreKeeper(service, Happenings(node), supervisor.set_store, supervisor.tell)
