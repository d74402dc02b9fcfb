"""The command lines of what the launcher starts, and the hosts that nodes run on."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from elastic.cluster import network
from elastic.cluster.directory import NODE_LOG
from elastic.cluster.options import UpOptions
from elastic.cluster.zookeeper_server import free_port, port_is_free, tail
from elastic.errors import ConfigError, EnvironmentProblem
from elastic.hosts.base import Host, NodeCommand
from elastic.hosts.generation import ATTEMPTS
from elastic.model.ids import NodeId
from elastic.model.records import WantedNode

_OF_MOVES = ("move_share", "move_prepare", "move_pause", "move_restore", "move_tries")
"""Options of Nimbus that are options of `up` by the same names."""


_THIS = secrets.token_hex(4)
"""This launcher: by its process's number alone, in containers, two may be told apart by nothing."""


def nimbus_ports(options: UpOptions) -> list[int]:
    """Where the Nimbuses listen.

    Raises:
        EnvironmentProblem: A port that was asked for is taken.
    """
    if not options.port:
        drawn: list[int] = []
        for _ in range(options.nimbus):
            drawn.append(free_port(options.bind, besides=drawn))
        return drawn
    ports = list(range(options.port, options.port + options.nimbus))
    for port in ports:
        if not port_is_free(port, options.bind):
            raise EnvironmentProblem(
                f"port {port} is taken: Nimbus cannot listen there", remedy="Give another port, or 0."
            )
    return ports


def nimbus(options: UpOptions, zookeeper: str, address: str) -> list[str]:
    """How to start a Nimbus that listens there."""
    return [
        sys.executable,
        *_module(
            "elastic.control.nimbus_main",
            {
                "--zookeeper": zookeeper,
                "--listen": address,
                "--directory": options.directory / "nimbus",
                "--cluster": options.cluster,
                "--session-timeout": options.session_timeout,
                "--log-level": options.log_level,
            },
        ),
        "--option",
        f"node_slots={options.slots}",
        *(word for name in _OF_MOVES for word in ("--option", f"{name}={getattr(options, name)}")),
        *(() if network.is_loopback(options.bind) else ("--allow-remote",)),
        *_own_zookeeper(options),
    ]


def _own_zookeeper(options: UpOptions) -> tuple[str, ...]:
    """That ZooKeeper is the one server that the launcher runs: see `elastic.coordination.zookeeper.connect`."""
    return () if options.zookeeper else ("--own-zookeeper",)


def nimbus_log(options: UpOptions, number: int) -> Path:
    return options.directory / f"nimbus-{number}.log"


def node(
    options: UpOptions, zookeeper: str, name: NodeId, generation: int, wanted: WantedNode
) -> NodeCommand:
    """How to start a node."""
    kind = wanted.host or options.host
    local = network.is_loopback(options.bind)
    flags = (*(() if local else ("--allow-remote",)), *_own_zookeeper(options))
    directory = options.directory / "nodes" / name
    run, log = options.directory / "run", str(node_log(options, name))
    if away(options, kind):
        # Another machine knows nothing of the cluster's directory: the node gets one of its own among the temporary
        # files there, and the executor's log takes its output.
        directory = Path(f"elastic-{options.cluster}-{os.getpid()}-{_THIS}-{name}")
        run, log = directory / "run", ""
        flags = (*flags, "--remove-directory")
    arguments = _module(
        "elastic.cluster.supervisor_main",
        {
            "--node": name,
            "--generation": generation // ATTEMPTS if restarts(options, kind) else generation,
            "--slots": wanted.slots,
            "--zookeeper": zookeeper,
            "--directory": directory,
            "--run-dir": run,
            "--host": options.bind if local else network.AUTO,
            "--kind": kind,
            "--cycle": options.supervisor_cycle,
            "--worker-cycle": options.worker_cycle,
            "--cores": options.cores,
            "--store": options.store,
            "--store-memory": options.store_memory,
            "--store-backups": options.store_backups,
            "--session-timeout": options.session_timeout,
            "--log-level": options.log_level,
        },
    )
    return NodeCommand(name, (*arguments, *flags), log=log)


def restarts(options: UpOptions, kind: str) -> bool:
    """Whether the host of that kind starts a node again on its own, with a generation that it makes (`elastic/hosts/generation.py`)."""
    return (kind or options.host) == "spark"


def away(options: UpOptions, kind: str) -> bool:
    """Whether nodes of that kind may run on other machines."""
    return kind == "spark" and not (options.master or "local").startswith("local")


def node_log(options: UpOptions, name: NodeId) -> Path:
    """Of a node on this machine."""
    return options.directory / "nodes" / name / NODE_LOG


def node_said(options: UpOptions, name: NodeId, kind: str) -> tuple[str, str]:
    """What a node that did not come said last, and where there is more."""
    if away(options, kind or options.host):
        remedy = (
            "Either Spark has no room for it (a node takes spark.task.cpus cores of an executor), or its log, in that of its executor, "
            "says more: see the pages of Spark."
        )
        return "", " ".join([remedy, *network.warnings(options)])
    file = node_log(options, name)
    return tail(file), f"Its log: {file}"


def host(options: UpOptions, kind: str) -> Host:
    """A host of that kind.

    Raises:
        ConfigError: There is no such host.
        EnvironmentProblem: It needs Java, and there is none.
    """
    if kind == "process":
        from elastic.hosts.process import ProcessHost

        return ProcessHost()
    if kind == "spark":
        from elastic.cluster.java import java_environment
        from elastic.hosts.spark import SparkHost
        from elastic.hosts.spark_session import PATIENCE

        connect = options.master.startswith("sc://")
        return SparkHost(
            options.master or "local",
            config=options.spark_settings,
            java_environment=None if connect else java_environment(),
            name=f"elastic {options.cluster}",
            scratch=str(options.directory / "spark"),
            patience=max(PATIENCE, options.patience),
        )
    raise ConfigError(f"there is no host {kind!r}", remedy="process and spark are.")


def _module(module: str, arguments: Mapping[str, object]) -> list[str]:
    """What Python runs; with `-P`, as nothing of the folder that somebody happens to be in may stand for a module of ours."""
    return ["-P", "-m", module, *(str(part) for pair in arguments.items() for part in pair)]
