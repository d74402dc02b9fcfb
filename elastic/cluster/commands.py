"""The command lines of what the launcher starts, and the hosts that nodes run on."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from elastic.cluster.options import UpOptions
from elastic.errors import ConfigError
from elastic.hosts.base import Host, NodeCommand
from elastic.model.ids import NodeId
from elastic.model.records import WantedNode


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
                "--option": f"node_slots={options.slots}",
                "--log-level": options.log_level,
            },
        ),
    ]


def nimbus_log(options: UpOptions, number: int) -> Path:
    return options.directory / f"nimbus-{number}.log"


def node(
    options: UpOptions, zookeeper: str, name: NodeId, generation: int, wanted: WantedNode
) -> NodeCommand:
    """How to start a node."""
    kind = wanted.host or options.host
    base = options.directory
    if kind == "spark" and not (options.master or "local").startswith("local"):
        # Another machine knows nothing of this directory.
        base = Path(tempfile.gettempdir()) / f"elastic-{options.cluster}-{os.getpid()}"
    arguments = _module(
        "elastic.cluster.supervisor_main",
        {
            "--node": name,
            "--generation": generation,
            "--slots": wanted.slots,
            "--zookeeper": zookeeper,
            "--directory": base / "nodes" / name,
            "--run-dir": base / "run",
            "--kind": kind,
            "--cycle": options.supervisor_cycle,
            "--worker-cycle": options.worker_cycle,
            "--session-timeout": options.session_timeout,
            "--log-level": options.log_level,
        },
    )
    return NodeCommand(name, tuple(arguments), log=str(base / "nodes" / name / "supervisor.log"))


def node_log(options: UpOptions, name: NodeId) -> Path:
    return options.directory / "nodes" / name / "supervisor.log"


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

        name = f"elastic {options.cluster}"
        if options.master.startswith("sc://"):
            return SparkHost(remote=options.master, name=name)
        return SparkHost(options.master or "local", java_environment=java_environment(), name=name)
    raise ConfigError(f"there is no host {kind!r}", remedy="process and spark are.")


def _module(module: str, arguments: Mapping[str, object]) -> list[str]:
    return ["-m", module, *(str(part) for pair in arguments.items() for part in pair)]
