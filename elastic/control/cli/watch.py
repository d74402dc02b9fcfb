"""events, errors, stacks: what happened and what happens inside."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from elastic.control import present
from elastic.control.cli import output
from elastic.control.cli.arguments import INT32, SECONDS, complete_part, topology_argument
from elastic.control.cli.base import command
from elastic.control.cli.narration import Waiting, leaving, lost, note
from elastic.control.cli.settings import Settings
from elastic.model.events import Event, Severity

SEVERITY_COLORS = {Severity.WARNING: "yellow", Severity.ERROR: "red"}


@command(
    "events",
    examples=[
        ("elastic events", "everything that is kept, oldest first"),
        ("elastic events word-count --since 10m", "one topology's, of the last ten minutes"),
        ("elastic events --watch -o json | jq -r .kind", "as they happen, one JSON object a line"),
    ],
    see=("errors", "logs", "top"),
)
@topology_argument(required=False, metavar="[NAME]")
@click.option("-w", "--watch", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--since", type=SECONDS, help="Only what happened so long ago or later, e.g. 10m.")
@click.option(
    "--tail", type=click.IntRange(min=0, max=INT32), help="Only so many of the newest [all that are kept]."
)
def events(settings: Settings, name: str | None, watch: bool, since: float | None, tail: int | None) -> None:
    """Print what happened in the cluster; watch it.

    Oldest first, by the clocks of the processes that tell them; with --watch in the order in which they arrive.
    docs/events.md lists the kinds of events. With --watch, JSON is one object a line and YAML one document
    an event; without it both are one list.
    """
    earliest = time.time() - since if since is not None else 0.0
    collected: list[Event] = []
    with leaving("the cluster goes on."), settings.connect() as client:
        client.on_lost(lost)
        for _, event in client.events(topology=name or "", follow=watch, tail=tail):
            if event.time < earliest:
                continue
            if not watch:
                collected.append(event)
            elif settings.output == "table":
                _line(settings, event)
            else:
                output.write(settings, present.event(event), one_line=True)
    if watch:
        return
    collected.sort(key=lambda event: event.time)  # nodes keep theirs until there is a leader to send them to
    if settings.output != "table":
        output.write(settings, [present.event(event) for event in collected])
        return
    for event in collected:
        _line(settings, event)
    if not collected:
        note(f"No events of {name!r}." if name else "No events.")


def _line(settings: Settings, event: Event) -> None:
    kind = event.kind.ljust(20)
    color = SEVERITY_COLORS.get(event.severity)
    if settings.color and color:
        kind = click.style(kind, fg=color)
    first, _, rest = event.message.partition("\n")
    click.echo(f"{output.clock(event.time)}  {kind}  {first}")
    for line in rest.splitlines():
        click.echo(" " * 25 + line)


@command(
    "errors",
    examples=[
        ("elastic errors word-count", "each kind of error once, with its traceback and how often it came"),
        ("elastic errors word-count -o json | jq -r '.[].details.traceback'", "all of them, for programs"),
    ],
    see=("describe", "logs", "events"),
)
@topology_argument(required=False, metavar="[NAME]")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=INT32),
    default=200,
    show_default=True,
    help="At most so many of the newest.",
)
def errors(settings: Settings, name: str | None, limit: int) -> None:
    """Show a topology's errors with the user code's tracebacks.

    Errors with the same traceback are shown once, the newest last.
    """
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        found = client.errors(name or "", limit=limit)

    def show() -> None:
        if not found:
            note(f"No errors{' of ' + name if name else ''}.")
        for number, (event, times) in enumerate(grouped(found)):
            if number:
                click.echo()
            trace = output.traceback_text(str(event.details.get("traceback", "")))
            if trace:
                click.echo(trace)
            head = click.style("error", fg="red", bold=True) if settings.color else "error"
            often = f", {times} times" if times > 1 else ""
            click.echo(f"{head}: {event.message.partition(chr(10))[0]}")
            click.echo(f"  {_where(event)}, {'last ' * (times > 1)}at {output.clock(event.time)}{often}")

    output.show(settings, [present.event(e) for e in found], show)


def grouped(found: Sequence[Event]) -> list[tuple[Event, int]]:
    """The newest of the errors that are the same, with how many there were; the newest group last."""
    groups: dict[tuple[str, str, str, str], tuple[Event, int]] = {}
    so_far: dict[tuple[str, int], int] = {}
    for event in sorted(found, key=lambda e: e.time):
        trace = str(event.details.get("traceback", ""))
        # The same fault with another value in its message is one group: the message's own text is left out.
        key = (event.topology, event.component, event.kind, trace.rpartition("\n  ")[0] or event.message)
        # A task says how many tuples have failed so far, of whatever; it doesn't report each of a flood.
        task, failed = (event.worker, event.task), int(event.details.get("failed", 0))
        before = so_far.get(task, 0)
        if failed:
            so_far[task] = failed
        groups[key] = (
            event,
            groups.pop(key, (event, 0))[1] + max(1, failed - before if failed > before else failed),
        )
    return list(groups.values())


def _where(event: Event) -> str:
    parts = [("", event.topology), ("component ", event.component), ("task ", event.task or "")]
    parts += [("worker ", event.worker), ("node ", "" if event.worker else event.node)]
    return ", ".join(f"{label}{value}" for label, value in parts if value) or "cluster"


@command(
    "stacks",
    examples=[
        ("elastic stacks word-count", "of every worker: which line each thread is at"),
        ("elastic stacks word-count word-count@node-1/0", "of one worker"),
        ("elastic stacks word-count node-1/0", "the same, for short"),
    ],
    see=("top", "logs", "errors"),
)
@topology_argument()
@click.argument("worker", required=False, metavar="[WORKER]", shell_complete=complete_part)
def stacks(settings: Settings, name: str, worker: str | None) -> None:
    """Show what every thread of a topology is doing now.

    First comes what executors and tasks that move wait for. It is not in the workers' logs. Nothing is stopped by it.
    """
    with Waiting(f"asking the workers of {name}"), settings.connect() as client:
        found = client.stacks(name, worker=worker or "")

    def show() -> None:
        for part in found:
            output.heading(settings, f"{part.worker} (node {part.node})")
            click.echo((part.text.rstrip() or "no answer") + "\n")

    output.show(settings, [{"worker": s.worker, "node": s.node, "text": s.text} for s in found], show)
