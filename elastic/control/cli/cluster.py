"""up, down, info, version: the cluster itself."""

from __future__ import annotations

from typing import Any

import click

from elastic.control.cli.arguments import SECONDS
from elastic.control.cli.base import command
from elastic.control.cli.settings import Settings
from elastic.errors import ConfigError


@command(
    "up",
    examples=[
        ("elastic up", "two nodes as processes of this machine"),
        ("elastic up --nodes 3 --slots 4 --cluster test", "another cluster beside it"),
        ("elastic up --host spark --master spark://host:7077 --nodes 4", "nodes that Spark provides"),
        (
            "elastic up --zookeeper zk1:2181,zk2:2181/elastic",
            "with a ZooKeeper ensemble that is there already",
        ),
    ],
    see=("down", "doctor", "nodes", "submit"),
)
@click.option("--nodes", type=click.IntRange(min=0), default=2, show_default=True, help="How many nodes.")
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Workers that each node may run.",
)
@click.option(
    "--host",
    type=click.Choice(["process", "spark"]),
    default="process",
    show_default=True,
    help="What provides nodes.",
)
@click.option(
    "--master",
    default="",
    metavar="URL",
    help="Spark's master: local[N], spark://…, yarn, k8s://…, sc://… (with --host spark).",
)
@click.option(
    "--nimbus",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many Nimbuses; all but one stand by.",
)
@click.option(
    "--zookeeper",
    default="",
    metavar="HOSTS",
    help="An external ensemble, host:port[,host:port…][/path] [own server].",
)
@click.option(
    "--store",
    type=click.Choice(["embedded", "hazelcast"]),
    default="embedded",
    show_default=True,
    help="The state store.",
)
@click.option(
    "--session-timeout", type=SECONDS, default=10.0, show_default="10s", help="ZooKeeper's session timeout."
)
@click.option(
    "--supervisor-cycle",
    type=SECONDS,
    default=0.0,
    help="T_S: supervisors look at fixed intervals [are told].",
)
@click.option(
    "--worker-cycle", type=SECONDS, default=0.0, help="T_W: workers look at fixed intervals [are told]."
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground; Ctrl-C stops the cluster.")
def up(settings: Settings, foreground: bool, **options: Any) -> None:
    """Start a cluster on this machine, or on Spark.

    Starts a ZooKeeper server, Nimbus and the nodes, waits until all are ready, and leaves them running in the
    background. `elastic down` ends everything. Nothing listens beyond the loopback interface.
    """
    if settings.address:
        raise click.UsageError("up starts a cluster on this machine: --address has no meaning here.")
    if options["master"] and options["host"] != "spark":
        raise ConfigError("--master is only for --host spark.", remedy="Add --host spark.")
    if options["store"] == "hazelcast":
        raise ConfigError(
            "The state store hazelcast is not available yet.",
            remedy="Leave --store out: the embedded store is used.",
        )
    _start(settings, options, foreground)


def _start(settings: Settings, options: dict[str, Any], foreground: bool) -> None:
    raise NotImplementedError
