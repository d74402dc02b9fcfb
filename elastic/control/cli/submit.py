"""submit: pack a topology with its code, send it, and wait for its end where that is asked for."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from elastic.control import present
from elastic.control.cli import output
from elastic.control.cli.arguments import TOPOLOGY_CONTEXT
from elastic.control.cli.base import command
from elastic.control.cli.connection import NotRunning
from elastic.control.cli.failures import Outcome
from elastic.control.cli.loading import Loaded, load
from elastic.control.cli.narration import Waiting, leaving, note
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.control.cli.troubles import Troubles
from elastic.errors import DeadlineExceeded, Ended, ExecutionError, NotFound, Refused, Unavailable
from elastic.model.records import TopologyStatus
from elastic.model.topology import TopologySpec
from elastic.model.views import NodeSummary, TopologySummary
from elastic.model.words import counted

SUBMIT_SECONDS = 120.0
"""For sending the code and for the check, on every node, that what it imports is installed."""
LAST_REPORT_SECONDS = 3.0
TAKE_OVER_SECONDS = 60.0
"""How long `--wait` looks for a Nimbus after it has lost one."""


@command(
    "submit",
    context_settings=TOPOLOGY_CONTEXT,
    examples=[
        (
            "elastic submit examples/word_count.py --input a.txt",
            "words after the file go to its topology(args)",
        ),
        (
            "elastic submit --wait --name wc2 --workers 2 examples/word_count.py",
            "options of elastic go before it",
        ),
        (
            "elastic submit mypackage.jobs:build",
            "a function of a module; a package directory or a wheel does too",
        ),
    ],
    see=("run", "list", "top", "kill"),
)
@click.option("--name", metavar="NAME", help="Run it under this name instead of its own.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Worker processes, instead of what the topology says."
)
@click.option("--wait", is_flag=True, help="Wait until it has ended; the exit code tells how.")
@click.argument("target", metavar="FILE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def submit(
    settings: Settings,
    name: str | None,
    workers: int | None,
    wait: bool,
    target: str,
    arguments: tuple[str, ...],
) -> None:
    """Send a topology to the cluster, which runs it.

    FILE is a Python file, module:function, a package directory or a wheel; its function topology(args) makes
    the topology here, and gets everything that follows FILE. Its code is packed and sent along; packages that
    it imports must be installed on the nodes, which is checked. Prints the topology's name.

    With --wait, the exit code is 0 when it has finished, 10 when it failed, 6 when somebody killed it.
    """
    with output.apart(settings):
        loaded = load(target, arguments)
    topology = loaded.topology
    if name:
        topology = topology.renamed(name)
    if workers:
        topology = topology.with_workers(workers)
    loaded = Loaded(topology, loaded.entry)
    unsure = f"whether {topology.name} was submitted, {settings.command('list')} tells."
    left = f"{topology.name} keeps running. Stop it: {settings.command('kill', topology.name)}"
    with ExitStack() as connected:
        with leaving(unsure):
            client = connected.enter_context(settings.connect(timeout=SUBMIT_SECONDS))
            with output.apart(settings):  # what is packed says itself how
                id = _send(client, loaded)
        with leaving(left):  # one block to the end: Ctrl-C has no gap to fall into
            summary = _summary(client, topology.name, id)
            data = present.topology(summary) if summary else {"name": topology.name, "id": id}
            output.show(settings, data, lambda: click.echo(topology.name))
            if summary is not None and summary.unassigned:
                _say_missing(settings, client, summary, topology.spec)
            elif summary is not None and summary.workers < topology.spec.workers:
                _say_fewer(settings, client, summary, topology.spec)
            connected.close()
            if not wait:
                note(f"{topology.name} is submitted. Watch it: {settings.command('top', topology.name)}")
                return
            troubles = Troubles()
            end = wait_for_end(settings, topology.name, id, troubles)
            tell_end(settings, topology.name, end, troubles)


def _send(client: Client, loaded: Loaded) -> str:
    """Pack and submit; the topology's id."""
    from elastic.api.bundle import build_bundle

    name = loaded.topology.name
    with (
        tempfile.TemporaryDirectory(prefix="elastic-submit-") as directory,
        Waiting(f"packing {name}") as waiting,
    ):
        into = Path(directory) / "bundle.zip"
        info = build_bundle(loaded.topology, loaded.entry, into)

        def progress(sent: int, total: int) -> None:
            waiting.update(f"sending {name}: {output.size(sent)} of {output.size(total)}")
            if sent >= total:
                waiting.update(f"waiting until Nimbus has checked {name}")

        return client.submit(loaded.topology.spec, into, requires=info.requires, progress=progress).id


def _summary(client: Client, name: str, id: str) -> TopologySummary | None:
    return next((t for t in client.list() if t.name == name and t.id == id), None)


def _say_missing(settings: Settings, client: Client, summary: TopologySummary, spec: TopologySpec) -> None:
    """That it waits for slots, how many it lacks, and what gives it some."""
    lacks = max(1, min(spec.workers, summary.executors + summary.unassigned) - summary.workers)
    note(
        f"{summary.name} waits for slots: {counted(summary.unassigned, 'executor')} of it have none, and it lacks"
        f" {counted(lacks, 'slot')} for the {counted(spec.workers, 'worker')} that it wants."
        f" {_more(settings, client.nodes(), lacks)}"
    )


def _say_fewer(settings: Settings, client: Client, summary: TopologySummary, spec: TopologySpec) -> None:
    """That it runs in fewer workers than it wants. Where slots are free, the scheduler has chosen so: nothing is said."""
    wants = f"{summary.name} wants {counted(spec.workers, 'worker')}"
    lacks = min(spec.workers, summary.executors) - summary.workers
    if lacks <= 0:
        note(f"{wants}, and gets {summary.workers}: it has {counted(summary.executors, 'executor')}.")
        return
    nodes = client.nodes()
    if all(n.used >= n.slots for n in nodes):
        note(f"{wants}, and found slots for {summary.workers}. {_more(settings, nodes, lacks)}")


def _more(settings: Settings, nodes: Sequence[NodeSummary], slots: int) -> str:
    """The command that adds nodes with as many slots, at least, beside those that are to come anyway."""
    said = []
    if coming := [n for n in nodes if n.wanted and not n.alive and not n.draining]:
        are = "is" if len(coming) == 1 else "are"
        said.append(
            f"{', '.join(n.id for n in coming)} {are} wanted and not there yet; if that lasts, launcher.log in the"
            " cluster's directory says why."
        )
    if (lacks := slots - sum(n.slots for n in coming)) > 0:
        each = max((n.slots for n in nodes), default=0) or 1
        said.append(f"Add some: {settings.command('nodes', 'add', str(-(-lacks // each)))}")
    return " ".join(said)


@dataclass(frozen=True)
class End:
    """How a topology ended.

    Attributes:
        status: Finished, failed or killed.
        seconds: How long it ran.
        reason: Why it failed or was killed.
        since: The number of the last event that was read.
        submitted: When it was submitted, seconds since 1970.
    """

    status: TopologyStatus
    seconds: float
    reason: str = ""
    since: int = 0
    submitted: float = 0.0


ENDS = {
    "topology-finished": TopologyStatus.FINISHED,
    "topology-failed": TopologyStatus.FAILED,
    "topology-killed": TopologyStatus.KILLED,
    "topology-removed": TopologyStatus.KILLED,
}


def wait_for_end(settings: Settings, name: str, id: str, troubles: Troubles) -> End:
    """Follow a topology's events until it has ended; warnings and errors are told on standard error.

    Raises:
        Unavailable, DeadlineExceeded: No Nimbus could be reached, or answered, for a minute; or the cluster has ended.
    """
    since = 0
    lost = 0.0
    with Waiting(f"{name} is running", patience=10.0) as waiting:
        while True:
            try:
                with settings.connect() as client:
                    summary = _summary(client, name, id)
                    if summary is None:
                        return End(TopologyStatus.KILLED, 0.0)
                    if summary.status in (TopologyStatus.FINISHED, TopologyStatus.FAILED):
                        return End(summary.status, summary.uptime, summary.reason, since, summary.submitted)
                    lost = 0.0
                    waiting.update("")
                    # Numbers of events grow from one Nimbus to the next: none is missed, none comes twice.
                    for number, event in client.events(since=since, topology=name, follow=True):
                        since = number
                        if event.time < summary.submitted or event.details.get("id", id) != id:
                            continue
                        troubles.on_event(event)
                        troubles.tell(waiting.line)
                        if event.kind in ENDS:
                            seconds = event.time - summary.submitted
                            return End(ENDS[event.kind], seconds, event.message, since, summary.submitted)
            except (NotRunning, Ended) as error:  # nobody will answer any more
                raise Unavailable(
                    f"{settings.target} has ended, and {name} with it",
                    remedy=f"A new one: {settings.command('up')}",
                ) from error
            except (
                Unavailable,
                DeadlineExceeded,
                Refused,
            ) as error:  # it may serve as many followers as it can
                lost = lost or time.monotonic()
                if time.monotonic() - lost > TAKE_OVER_SECONDS:
                    raise
                waiting.update(f"{name} was running; {error.message}")
                time.sleep(1.0)


def tell_end(settings: Settings, name: str, end: End, troubles: Troubles) -> None:
    """Say how it ended, and end with the code for that."""
    if end.status is TopologyStatus.KILLED:
        raise Refused(f"{name} was killed while it was waited for{': ' + end.reason if end.reason else '.'}")
    if end.status is TopologyStatus.FAILED:
        with suppress(Unavailable):  # how it ended is known without that
            _late_warnings(settings, name, end, troubles)
        error = ExecutionError(
            end.reason or f"{name} failed.", remedy=f"All errors: {settings.command('errors', name)}"
        )
        raise troubles.explain(name, error)
    note(f"{name} has finished after {output.duration(end.seconds)}.")
    failed = _failed_tuples(settings, name)
    _late_warnings(settings, name, end, troubles)
    if failed:
        note(f"{counted(failed, 'tuple')} failed: {settings.command('errors', name)}")
        raise Outcome(ExecutionError.exit_code)


def _late_warnings(settings: Settings, name: str, end: End, troubles: Troubles) -> None:
    """Tell what workers said on their own way while the end was being told; it comes before their last reports."""
    with settings.connect() as client:
        for _, event in client.events(since=end.since, topology=name):
            since = event.time - end.submitted
            if since >= 0 and (event.kind in ENDS or since <= end.seconds):
                troubles.on_event(event)
    troubles.tell()


def _failed_tuples(settings: Settings, name: str) -> int:
    """How many tuples failed, by the workers' last reports.

    Those come on their own way, and may be a little later than the news that all tasks have finished: nothing tells
    when, so they are asked for until each task's has come.
    """
    deadline = time.monotonic() + LAST_REPORT_SECONDS
    with settings.connect() as client:
        while True:
            try:
                detail = client.describe(name)
            except NotFound:
                return 0
            done = {t.task for report in detail.reports for t in report.tasks if t.finished}
            if len(done) >= detail.spec.task_count or time.monotonic() > deadline:
                return sum(c.failed for c in detail.components)
            time.sleep(0.05)
