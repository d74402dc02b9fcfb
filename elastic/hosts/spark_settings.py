"""What Spark is told when it is started for nodes; and what a master's address says: where it is, how much room it has."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

from elastic.hosts.child import python_path

RETRIES = 4
"""How often Spark runs a node's task before it gives up, unless told otherwise (`spark.task.maxFailures`)."""

LOCAL_SLOTS = 64
"""Room for nodes under the master `local`: each is a process, and takes nothing from Spark but a waiting thread."""

_LOCAL = re.compile(r"local(\[(?P<n>\d+|\*)(\s*,\s*(?P<retries>\d+))?\])?")
_CLUSTER = re.compile(r"local-cluster\[\s*(?P<n>\d+)\s*,\s*(?P<cores>\d+)\s*,\s*\d+\s*\]")
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A JVM that starts fast and does next to nothing afterwards."""
_HARMLESS = ("grpc_max_message_size", "session_id", "use_ssl", "user_agent", "user_id")
"""Parameters of a Connect server's address whose values are no secrets, and may be words that are in any text."""
STATIC = ("spark.sql.catalogImplementation",)


def settings(master: str, scratch: str = "") -> dict[str, str]:
    """What is set in a session that is started here, under the user's own settings.

    A cluster elsewhere has its own ideas of memory, logs and pages (`spark-defaults.conf`): there, only what nodes need.

    Args:
        master: Where it is started.
        scratch: Directory for the temporary files of a local master, or "" for the system's.
    """
    chosen = {
        "spark.speculation": "false",  # a second copy of a node is never wanted
        "spark.task.maxFailures": str(RETRIES),
        "spark.python.task.killTimeout": "500ms",  # after which a cancelled node is killed
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",  # one row: compiling costs more than it can give
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    if path := python_path(os.environ.get("PYTHONPATH", "")):
        chosen["spark.executorEnv.PYTHONPATH"] = path
    if is_here(master):
        chosen |= {
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": _QUICK,
            "spark.executor.extraJavaOptions": _QUICK,
        }
    if master.startswith("local"):
        if "SPARK_HOME" not in os.environ:  # then its Python side is the one installed here
            chosen["spark.python.daemon.module"] = "elastic.hosts.spark_daemon"
        if scratch:
            java = f'{_QUICK} "-Djava.io.tmpdir={scratch}"'
            chosen |= dict.fromkeys(
                ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), java
            )
            chosen["spark.local.dir"] = scratch
    return chosen


def local_with_retries(master: str) -> str:
    """The master, with retries added to a `local[N]` that has none: it would give up at the first failure."""
    match = _LOCAL.fullmatch(master)
    if match is None or match["retries"]:
        return master
    return f"local[{match['n'] or LOCAL_SLOTS},{RETRIES}]"


def room(master: str, config: Mapping[str, str]) -> int | None:
    """How many one-task jobs run at once; None when that changes with the cluster."""
    per_node = max(1, int(config.get("spark.task.cpus", "1")))
    if match := _LOCAL.fullmatch(master):
        cores = (
            LOCAL_SLOTS
            if match["n"] is None
            else os.cpu_count() or 1
            if match["n"] == "*"
            else int(match["n"])
        )
        return cores // per_node
    if match := _CLUSTER.fullmatch(master):
        return int(match["n"]) * (int(match["cores"]) // per_node)
    return None


def is_here(master: str) -> bool:
    """Whether tasks run on this machine."""
    if master.startswith("local"):
        return True
    return any(host in ("127.0.0.1", "localhost", "::1") for host, _ in addresses(master))


def addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of those masters (or Connect servers) that an address names."""
    scheme, found, rest = master.partition("://")
    if not found or scheme not in ("spark", "sc"):
        return []
    result = []
    for part in re.split(r"[/;]", rest)[0].split(","):
        host, colon, port = part.rpartition(":")
        if not colon or not port.isdecimal():
            host, port = part, "7077" if scheme == "spark" else "15002"
        result.append((host.strip("[]"), int(port)))
    return result


def shown(master: str) -> str:
    """The address for people, and for lists of processes: what follows a Connect server's may be a token."""
    head, found, _ = master.partition(";")
    return f"{head};..." if found and master.startswith("sc://") else master


def hidden(text: str, master: str) -> str:
    """What Spark says, without what `shown` leaves out of the address."""
    if shown(master) != master:
        for part in filter(None, master.split(";")[1:]):
            key, equals, value = part.partition("=")
            text = text.replace(part, f"{key}=..." if equals else "...")
            if key not in _HARMLESS and value:
                text = text.replace(value, "...").replace(unquote(value), "...")
    return text
