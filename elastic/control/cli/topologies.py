"""list, get, describe: what the cluster says about its topologies."""

from __future__ import annotations

import time

import click

from elastic.control import present
from elastic.control.checkpoint_words import troubles
from elastic.control.cli import output
from elastic.control.cli.arguments import topology_argument
from elastic.control.cli.base import command
from elastic.control.cli.narration import Waiting, note
from elastic.control.cli.output import Column, number, share
from elastic.control.cli.settings import Settings
from elastic.control.move_words import at_receivers, milliseconds, steps
from elastic.model.records import TopologyStatus
from elastic.model.views import CheckpointView, TopologyDetail
from elastic.model.words import counted


@command(
    "list",
    examples=[("elastic list", "all topologies"), ("elastic list -o json", "for programs")],
    see=("get", "describe", "top"),
)
def list_(settings: Settings) -> None:
    """List the topologies.

    Those that run, and for a while also those that have finished or failed.
    """
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        rows = [present.topology(t) for t in client.list()]

    def show() -> None:
        if not rows:
            note(f"No topologies. Submit one: {settings.command('submit', 'FILE.py')}")
            return
        output.table(
            settings,
            [
                Column("NAME", "name"),
                Column("STATUS", "status", status=True),
                Column("UPTIME", lambda r: output.duration(r["uptime"]), right=True),
                Column("WORKERS", "workers", right=True),
                Column("EXECUTORS", "executors", right=True),
                Column("TASKS", "tasks", right=True),
                Column("WAITING", lambda r: r["unassigned"] or None, right=True),
                Column("REASON", lambda r: r["reason"].partition("\n")[0][:60]),
            ],
            rows,
        )

    output.show(settings, rows, show)


@command(
    "get",
    examples=[
        ("elastic get word-count", "status, and which executor is in which worker on which node"),
        ("elastic get word-count -o yaml", "the same for programs"),
    ],
    see=("describe", "list", "rebalance"),
)
@topology_argument()
def get(settings: Settings, name: str) -> None:
    """Show a topology's status and where its executors are.

    Answers "does it run, and where". `describe` says everything else.
    """
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        detail = client.describe(name)
    data = present.placement(detail)

    def show() -> None:
        _summary(settings, detail)
        rows = [{**p, "executors": ", ".join(p["executors"])} for p in data["placement"]]
        click.echo()
        output.table(
            settings,
            [Column("WORKER", "worker"), Column("NODE", "node"), Column("EXECUTORS", "executors")],
            rows,
        )
        _waits(settings, detail)

    output.show(settings, data, show)


@command(
    "describe",
    examples=[
        ("elastic describe word-count", "components, executors, workers, rates, errors, and what waits"),
        (
            "elastic describe word-count -o json | jq '.components[] | {id, executed_rate}'",
            "one figure of it",
        ),
    ],
    see=("get", "top", "errors", "events"),
)
@topology_argument()
def describe(settings: Settings, name: str) -> None:
    """Show everything about a topology.

    Components with their rates and queues, executors with their load and state, workers, what executors send each other, the
    moves of tasks under way, what was decided by load, the newest errors, and for what does not run: why it waits.
    """
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        detail = client.describe(name)
    output.show(settings, present.description(detail), lambda: _describe(settings, detail))


def _describe(settings: Settings, detail: TopologyDetail) -> None:
    _summary(settings, detail)
    inputs = {
        c.id: ", ".join(
            f"{i.source}{'' if i.stream == 'default' else ':' + i.stream} {i.grouping}" for i in c.inputs
        )
        for c in detail.spec.components
    }
    click.echo()
    output.heading(settings, "Components")
    output.table(
        settings,
        [*COMPONENT_COLUMNS, Column("INPUTS", "inputs")],
        [{**present.component(c), "inputs": inputs.get(c.id, "")} for c in detail.components],
        indent="  ",
    )
    custom = [(f"{c.id}.{k}", number(v)) for c in detail.components for k, v in sorted(c.custom.items())]
    if custom:
        click.echo()
        output.heading(settings, "Metrics of components")
        output.pairs(settings, custom, indent="  ")
    click.echo()
    output.heading(settings, "Executors")
    output.table(settings, EXECUTOR_COLUMNS, [present.executor(e) for e in detail.executors], indent="  ")
    click.echo()
    output.heading(settings, "Workers")
    output.table(settings, WORKER_COLUMNS, [present.worker(w) for w in detail.workers], indent="  ")
    _traffic(settings, detail)
    if detail.moves:
        click.echo()
        output.heading(settings, "Moves under way")
        for move in detail.moves:
            click.echo(f"  {move.epoch} ({move.state}): {steps(move.tasks)}: {move.why}")
    if detail.decided:
        click.echo()
        output.heading(settings, "Decided by load")
        for event in detail.decided[-8:]:
            click.echo(f"  {output.clock(event.time)}  {event.kind}: {event.message}")
    _waits(settings, detail)
    if detail.errors:
        click.echo()
        output.heading(settings, "Newest errors")
        for error in detail.errors[-5:]:
            click.echo(f"  {output.clock(error.time)}  {error.message.partition(chr(10))[0]}")
        note(f"Tracebacks: {settings.command('errors', str(detail.summary.name))}")


# Of components, executors and tasks alike.
COUNTS = [
    Column("EXECUTED", lambda r: number(r["executed"]), right=True),
    Column("EMITTED", lambda r: number(r["emitted"]), right=True),
]
RATES = [
    Column("IN/S", lambda r: number(r["executed_rate"]), right=True),
    Column("OUT/S", lambda r: number(r["emitted_rate"]), right=True),
]
WAITING = [
    Column("QUEUED", lambda r: number(r["queued"]), right=True),
    Column("HELD", lambda r: number(r["held"]) if r["held"] else None, right=True),
]
FAILED = Column("FAILED", lambda r: number(r["failed"]), right=True)
STATE = Column("STATE", lambda r: output.size(r["state"]) if r["state"] else None, right=True)

COMPONENT_COLUMNS = [
    Column("COMPONENT", "id"),
    Column("KIND", lambda r: r["kind"] + (" (stateful)" if r["stateful"] else "")),
    Column("EXECUTORS", "executors", right=True),
    Column(
        "TASKS", lambda r: f"{r['tasks']}" + (f" ({r['finished']} done)" if r["finished"] else ""), right=True
    ),
    *COUNTS,
    *RATES,
    *WAITING,
    Column("BUSY", lambda r: share(r["busy"]), right=True),
    Column("BLOCKED", lambda r: share(r["blocked"]), right=True),
    FAILED,
]

EXECUTOR_COLUMNS = [
    Column("EXECUTOR", "id"),
    Column("WORKER", lambda r: r["worker"] or "waiting for a slot"),
    *RATES,
    *WAITING,
    Column("BUSY", lambda r: share(r["busy"]), right=True),
    Column("BLOCKED", lambda r: share(r["blocked"]), right=True),
    Column("IDLE", lambda r: share(r["idle"]), right=True),
    Column("CPU", lambda r: share(r["cpu"]), right=True),
    STATE,
]

PAIR_COLUMNS = [
    Column("FROM", "source"),
    Column("TO", "target"),
    Column("TUPLES/S", lambda r: number(r["tuples"]), right=True),
    Column("BYTES/S", lambda r: output.size(r["bytes"]) if r["bytes"] else None, right=True),
]
_PAIRS = 8
"""Pairs of executors in the table: those that exchange most."""

WORKER_COLUMNS = [
    Column("WORKER", "worker"),
    Column("STATUS", lambda r: "alive" if r["alive"] else "starting", status=True),
    Column("PID", lambda r: r["pid"] or None, right=True),
    Column("UPTIME", lambda r: output.duration(r["uptime"]) if r["alive"] else None, right=True),
    Column("RESTARTS", "restarts", right=True),
    Column("EXECUTORS", "executors", right=True),
    Column("MEMORY", lambda r: output.size(r["memory"]) if r["memory"] else None, right=True),
    Column("CPU", lambda r: share(r["cpu"]), right=True),
]


def _summary(settings: Settings, detail: TopologyDetail) -> None:
    summary = detail.summary
    goes_on = summary.status in (TopologyStatus.ACTIVE, TopologyStatus.INACTIVE)
    up = output.duration(summary.uptime)  # of what has ended: until then, which says nothing of now
    values: list[tuple[str, object]] = [
        ("Topology", summary.name),
        ("Status", summary.status.value),
        ("Id", summary.id),
        (
            "Submitted",
            f"{output.clock(summary.submitted)} ({f'{up} ago' if goes_on else f'ended after {up}'})",
        ),
        (
            "Placed",
            f"{counted(summary.executors, 'executor')} of {counted(summary.tasks, 'task')} in {counted(summary.workers, 'worker')}",
        ),
        ("Epoch", int(detail.assignment.epoch)),
    ]
    if summary.reason:
        values.append(("Reason", summary.reason.replace("\n", "\n" + " " * 11)))
    if detail.checkpoints.interval:
        values.append(("Checkpoint", _checkpoint(detail.checkpoints)))
    if detail.moved.moves:
        m = detail.moved
        what = f"{counted(m.committed, 'task')} in {counted(m.moves, 'move')}, {output.size(m.size)}"
        held = f", longest pause {milliseconds(m.pause_max)}" if m.pause_max else ""
        text = f"{what}{held}{at_receivers(m.gap_max)}"
        values.append(("Moved", text))
    if detail.policy:
        values.append(("Policy", detail.policy))
    output.pairs(settings, values)


def _traffic(settings: Settings, detail: TopologyDetail) -> None:
    """What executors send each other, by whoever sends most."""
    plain = present.traffic(detail.traffic)
    total, pairs = plain["tuples"], plain["pairs"]
    if not total:
        return
    click.echo()
    output.heading(settings, "Traffic")
    far, apart = (share(plain[k] / total) for k in ("between_nodes", "between_workers"))
    click.echo(
        f"  {number(total)} tuples/s between executors, {apart} between workers ({output.size(plain['bytes'])}/s), {far} between nodes"
    )
    output.table(settings, PAIR_COLUMNS, pairs[:_PAIRS], indent="  ")
    if len(pairs) > _PAIRS:
        click.echo(
            f"  and those that exchange less: {settings.command('describe', str(detail.summary.name), '-o json')}"
        )


def _checkpoint(c: CheckpointView) -> str:
    """How far back the topology would go, and how often it has."""
    text = f"none yet, one every {c.interval:g} s"
    if c.number:
        text = f"{c.number}, {output.duration(max(0.0, time.time() - c.began))} old, {output.size(c.size)} in {c.seconds:.2f} s"
    return text + troubles(c)


def _waits(settings: Settings, detail: TopologyDetail) -> None:
    if detail.waits:
        click.echo()
        output.heading(settings, "Waits")
        for sentence in detail.waits:
            click.echo(f"  {sentence}")
