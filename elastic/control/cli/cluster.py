"""up, down, info, version: the cluster itself."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from elastic.control.cli import output
from elastic.control.cli.arguments import SECONDS, SIZE
from elastic.control.cli.base import command
from elastic.control.cli.narration import Waiting, leaving, note
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.errors import ConfigError, NotFound, Unavailable
from elastic.model.records import MAX_NODES, MAX_SLOTS

if TYPE_CHECKING:
    from elastic.cluster.directory import ClusterInfo
    from elastic.model.views import NodeSummary, TopologySummary


@command(
    "up",
    examples=[
        ("elastic up", "two nodes as processes of this machine"),
        ("elastic up --nodes 3 --slots 4 --cluster test", "another cluster beside it"),
        (
            "elastic up --host spark --master spark://host:7077 --bind 10.0.0.5 --nodes 4",
            "nodes on Spark's machines, which reach this one at 10.0.0.5",
        ),
        (
            "elastic up --zookeeper zk1:2181,zk2:2181/elastic",
            "with a ZooKeeper ensemble that is there already",
        ),
        (
            "elastic up --nodes 3 --store hazelcast --store-memory 1G",
            "states that move lie in Hazelcast, with a backup: a member with 1 GB of heap on every node",
        ),
    ],
    see=("down", "doctor", "nodes", "submit"),
)
@click.option(
    "--nodes",
    type=click.IntRange(min=0, max=MAX_NODES),
    default=2,
    show_default=True,
    help="How many nodes.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1, max=MAX_SLOTS),
    default=2,
    show_default=True,
    help="Workers that each node may run.",
)
@click.option(
    "--cores",
    type=click.FloatRange(min=0.0),
    default=0.0,
    help="CPUs that a node's workers may use, as elasticity counts them [those of its machine].",
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
    "--spark-conf",
    multiple=True,
    default=(),
    metavar="KEY=VALUE",
    help="A setting of Spark's (repeatable; with --host spark).",
)
@click.option(
    "--bind",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="This machine's address for nodes on other machines; no authentication yet: private networks only.",
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
    help="An external ensemble, ZooKeeper 3.5 or newer, host:port[,host:port…][/path] [own server].",
)
@click.option(
    "--store",
    default="embedded",
    show_default=True,
    metavar="KIND",
    help="The state store: embedded, hazelcast, or hazelcast:[NAME@]HOST:PORT,… for members that run already.",
)
@click.option(
    "--store-memory",
    type=SIZE,
    default=0,
    show_default="1G; 512M with hazelcast",
    metavar="SIZE",
    help="What a node's store may hold; the heap of a node's Hazelcast member.",
)
@click.option(
    "--store-backups",
    type=click.IntRange(0, 6),
    default=1,
    show_default=True,
    help="Synchronous backups in Hazelcast: how a node's member is set, or how members that run already must be, at least.",
)
@click.option(
    "--session-timeout", type=SECONDS, default=6.0, show_default="6s", help="ZooKeeper's session timeout."
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
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Where the first Nimbus listens [a free one]."
)
@click.option(
    "--move-share",
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    metavar="SHARE",
    help="Of a component's tasks that may pause at once, unless a request says; 0: as keeps pauses short.",
)
@click.option(
    "--move-prepare",
    type=SECONDS,
    default=120.0,
    show_default="2m",
    help="How long a task's new place may take to get ready, `prepare()` included.",
)
@click.option(
    "--move-pause",
    type=SECONDS,
    default=60.0,
    show_default="1m",
    help="How long a paused task may take until its state is saved.",
)
@click.option(
    "--move-restore",
    type=SECONDS,
    default=120.0,
    show_default="2m",
    help="How long an attempt to restore it may take.",
)
@click.option(
    "--move-tries",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often a task's move may fail before it is given up.",
)
@click.option(
    "--ready-timeout",
    type=SECONDS,
    default=0.0,
    show_default="1m; 3m on Spark",
    help="How long it may take to be ready.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What the cluster's processes log.",
)
@click.option(
    "--policy",
    default="",
    metavar="LINE",
    help="What resizes topologies by load, as `elastic policy set` takes it [nothing].",
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground; Ctrl-C stops the cluster.")
def up(settings: Settings, policy: str, foreground: bool, **options: Any) -> None:
    """Start a cluster on this machine, or on Spark.

    Starts a ZooKeeper server, Nimbus and the nodes, waits until all are ready, and leaves them running in the
    background. `elastic down` ends everything. Nothing listens beyond the loopback interface unless --bind
    says so: for nodes on other machines, in a private network, as there is no authentication and no encryption yet.
    """
    if settings.address:
        raise click.UsageError("up starts a cluster on this machine: --address has no meaning here.")
    if options["master"] and options["host"] != "spark":
        raise ConfigError("--master is only for --host spark.", remedy="Add --host spark.")
    if options["spark_conf"] and options["host"] != "spark":
        raise ConfigError("--spark-conf is only for --host spark.", remedy="Add --host spark.")
    _start(settings, options, policy, foreground)


def _start(settings: Settings, options: dict[str, Any], policy: str, foreground: bool) -> None:
    from elastic.cluster import launcher
    from elastic.cluster.options import UpOptions

    made = UpOptions(home=str(settings.home), cluster=settings.cluster, **options).validate()
    if policy:
        from elastic.nimbus.balancing.elastic_lines import read_policy

        read_policy(policy)  # before anything is started

    def show(cluster: ClusterInfo) -> None:
        if policy:
            with settings.connect() as client:
                client.set_elasticity(policy=policy)
        data = {
            "cluster": cluster.name,
            "pid": cluster.pid,
            "nimbus": list(cluster.nimbus),
            "zookeeper": cluster.zookeeper,
            "directory": cluster.directory,
        }
        output.show(settings, data, lambda: _how_to_go_on(settings, foreground))

    if foreground:
        launcher.run_foreground(made, note, show)
        note(f"Cluster {settings.cluster} is down.")
        return
    cluster: ClusterInfo | None = None

    def left() -> str:
        if cluster is None:
            return "starting was given up; what had been started has been ended."
        return f"the cluster is up, and stays up. To end it: {settings.command('down')}"

    with leaving(left):
        with Waiting(f"starting {settings.target}") as waiting:

            def said(text: str) -> None:
                waiting.line(text)
                waiting.update(f"starting {settings.target}: {text}")

            cluster = launcher.start_background(made, said)
        show(cluster)


def _how_to_go_on(settings: Settings, foreground: bool) -> None:
    name = settings.target
    note(f"{name[0].upper()}{name[1:]} is up ({settings.directory}).")
    note(f"  Submit a topology: {settings.command('submit', 'examples/word_count.py', '--input', 'FILE')}")
    note(f"  Look at it:        {settings.command('list')}, {settings.command('top')}")
    note(f"  Stop everything:   {'Ctrl-C' if foreground else settings.command('down')}")


@command(
    "down",
    examples=[
        ("elastic down", "stop everything; logs stay"),
        ("elastic down --purge --cluster test", "another cluster, and its logs too"),
    ],
    see=("up", "kill", "doctor"),
)
@click.option("--purge", is_flag=True, help="Remove the logs too.")
@click.option(
    "--timeout",
    type=SECONDS,
    default=120.0,
    show_default="2m",
    help="Time to end in order; then it is made to.",
)
def down(settings: Settings, purge: bool, timeout: float) -> None:
    """Stop the cluster and everything it started.

    Topologies end without being worked off: `elastic kill NAME` first where that matters. Also removes what a
    launcher left that was killed hard.
    """
    if settings.address:
        raise click.UsageError("down stops a cluster on this machine: --address has no meaning here.")
    from elastic.cluster import launcher
    from elastic.cluster.directory import stored

    left = f"the cluster goes on stopping; {settings.command('down')} again waits for it."
    stale = stored(settings.directory) is not None
    with leaving(left), Waiting(f"stopping {settings.target}") as waiting:
        try:
            launcher.stop(
                settings.home,
                settings.cluster,
                purge=purge,
                timeout=timeout,
                on_progress=waiting.update,
                on_killed=waiting.line,
            )
        except NotFound:
            ended = False
            removed = " What an earlier one had left is removed." if stale else ""
            waiting.line(f"Cluster {settings.cluster} was not running.{removed}")
        else:
            ended = True
            waiting.line(f"Cluster {settings.cluster} is down.")
    data = {"cluster": settings.cluster, "ended": ended, "removed": stale and not ended}
    output.show_data(settings, data)


@command(
    "info",
    examples=[
        ("elastic info", "of the cluster on this machine"),
        ("elastic info --address 10.0.0.5:7000 -o json", "of another one, for programs"),
    ],
    see=("nodes list", "doctor", "version"),
)
def info(settings: Settings) -> None:
    """Show the cluster: its Nimbus, versions, addresses.

    Nodes and topologies are what the leader knows: while there is none, the rest is shown without them.
    """
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        there = client.info()
        led, nodes, topologies = _led(client) if there.leading else (False, (), ())
    data = {
        "cluster": there.cluster,
        "version": there.version,
        "leader": there.leader,
        "answered": there.address,
        "uptime": round(there.uptime, 3),
        "python": there.python,
        "nodes": len(nodes) if led else None,
        "slots": sum(n.slots for n in nodes) if led else None,
        "used": sum(n.used for n in nodes) if led else None,
        "topologies": len(topologies) if led else None,
    }
    leader = there.leader or "none at the moment"
    if there.leader and not led:
        leader += " does not lead at the moment"

    def show() -> None:
        output.pairs(
            settings,
            [
                ("Cluster", data["cluster"]),
                ("Leader", leader),
                ("Answered", data["answered"]),
                ("Up for", output.duration(there.uptime)),
                ("elastic", data["version"]),
                ("Python", data["python"]),
                ("Nodes", data["nodes"]),
                ("Slots", f"{data['used']} of {data['slots']} in use" if led else None),
                ("Topologies", data["topologies"]),
            ],
        )

    output.show(settings, data, show)


def _led(client: Client) -> tuple[bool, Sequence[NodeSummary], Sequence[TopologySummary]]:
    """Whether there is a leader that says so, its nodes and its topologies."""
    try:
        return True, client.nodes(), client.list()
    except Unavailable:  # it has gone since, or is about to learn that it does not lead any more
        return False, (), ()


@command(
    "version",
    examples=[
        ("elastic version", "of elastic"),
        ("elastic version -o json", "with Python's and the platform's"),
    ],
    see=("info", "doctor"),
)
def version(settings: Settings) -> None:
    """Print the version of elastic."""
    import elastic

    data = {
        "version": elastic.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    output.show(settings, data, lambda: click.echo(data["version"]))
