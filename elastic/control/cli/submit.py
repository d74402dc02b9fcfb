"""submit: pack a topology with its code, send it, and wait for its end where that is asked for."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from elastic.control.cli import output, present
from elastic.control.cli.arguments import TOPOLOGY_CONTEXT
from elastic.control.cli.base import command
from elastic.control.cli.failures import Outcome
from elastic.control.cli.loading import Loaded, load
from elastic.control.cli.narration import Waiting, leaving, note
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.errors import ExecutionError, NotFound, Refused, Unavailable
from elastic.model.events import Event, Severity
from elastic.model.records import TopologyStatus
from elastic.model.views import TopologySummary

SUBMIT_SECONDS = 120.0
"""For sending the code and for the check, on every node, that what it imports is installed."""
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
    loaded = load(target, arguments)
    topology = loaded.topology
    if name:
        topology = topology.renamed(name)
    if workers:
        topology = topology.with_workers(workers)
    loaded = Loaded(topology, loaded.entry)
    left = f"whether {topology.name} was submitted, {settings.command('list')} tells."
    with leaving(left), settings.connect(timeout=SUBMIT_SECONDS) as client:
        state_id = _send(client, loaded)
        summary = _summary(client, topology.name, state_id)
        data = present.topology(summary) if summary else {"name": topology.name, "id": state_id}
        output.show(settings, data, lambda: click.echo(topology.name))
        if not wait:
            note(f"{topology.name} is submitted. Watch it: {settings.command('top', topology.name)}")
            return
    left = f"{topology.name} keeps running. Stop it: {settings.command('kill', topology.name)}"
    with leaving(left):
        end = wait_for_end(settings, topology.name, state_id)
    tell_end(settings, topology.name, end)


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


def wait_for_end(settings: Settings, name: str, id: str) -> TopologySummary | None:
    """Follow a topology's events until it has ended; warnings and errors are told on standard error.

    Returns:
        What became of it; None when it was killed, and its record is gone.

    Raises:
        Unavailable: No Nimbus could be reached for a minute.
    """
    since = 0
    lost = 0.0
    with Waiting(f"{name} is running", patience=10.0) as waiting:
        while True:
            try:
                with settings.connect() as client:
                    lost = 0.0
                    ended, since = _follow(client, name, id, since, waiting.line)
                    if ended:
                        return _summary(client, name, id)
            except Unavailable as error:
                lost = lost or time.monotonic()
                if time.monotonic() - lost > TAKE_OVER_SECONDS:
                    raise
                # Another Nimbus counts its events on its own: begin at the first.
                since = 0
                waiting.update(f"{name} is running; {error.message}")
                time.sleep(1.0)


def _follow(client: Client, name: str, id: str, since: int, tell: Callable[[str], None]) -> tuple[bool, int]:
    """Follow until it has ended, or the stream has. Returns (whether it has ended, the last event's number)."""

    def over() -> bool:
        summary = _summary(client, name, id)
        return summary is None or summary.status in (TopologyStatus.FINISHED, TopologyStatus.FAILED)

    stream = client.events(since=since, topology=name, follow=True)
    began = next((t.submitted for t in client.list() if t.id == id), 0.0)
    if over():
        return True, since
    for number, event in stream:
        since = number
        if event.time < began:
            continue
        if event.severity is not Severity.INFO:
            tell(_sentence(event))
        if event.kind.startswith("topology-") and over():
            return True, since
    return over(), since


def _sentence(event: Event) -> str:
    color = "red" if event.severity is Severity.ERROR else "yellow"
    label = click.style(f"{event.severity.value}: ", fg=color)
    trace = str(event.details.get("traceback", "")).rstrip()
    return (trace + "\n" if trace else "") + label + event.message.partition("\n")[0]


def tell_end(settings: Settings, name: str, end: TopologySummary | None) -> None:
    """Say how it ended, and end with the code for that."""
    if end is None or end.status is TopologyStatus.KILLED:
        raise Refused(
            f"{name} was killed while it was waited for{': ' + end.reason if end and end.reason else ''}."
        )
    if end.status is TopologyStatus.FAILED:
        raise ExecutionError(
            f"{name} failed{': ' + end.reason if end.reason else '.'}",
            remedy=f"Tracebacks: {settings.command('errors', name)}",
        )
    failed = 0
    try:
        with settings.connect() as client:
            failed = sum(c.failed for c in client.describe(name).components)
    except (NotFound, Unavailable):
        pass
    note(f"{name} has finished after {output.duration(end.uptime)}.")
    if failed:
        note(f"{failed} tuples failed: {settings.command('errors', name)}")
        raise Outcome(ExecutionError.exit_code)
    sys.stdout.flush()
