"""policy, scheduler, nodes auto: who resizes and places topologies by load."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence

import click

from elastic.control.cli import output, present
from elastic.control.cli.arguments import SECONDS
from elastic.control.cli.base import command
from elastic.control.cli.narration import Waiting, note
from elastic.control.cli.output import Column
from elastic.control.cli.settings import Settings
from elastic.model.events import Event
from elastic.model.views import ElasticityView

_LINE = {"ignore_unknown_options": True, "allow_interspersed_args": True}
"""What begins with a dash and is no option of the command belongs to the policy or scheduler."""


def _line(words: tuple[str, ...], what: str) -> str | None:
    """The line that was given; None: it is only to be shown."""
    if not words:
        return None
    first, *rest = words
    if first == "set":
        if not rest:
            raise click.UsageError(f"set what {what}? For example: elastic {what} set {_EXAMPLES[what]}")
        return " ".join(rest)
    if first == "off" and not rest:
        return "off"
    more = ", `elastic scheduler serve`" if what == "scheduler" else ""
    raise click.UsageError(f"write `elastic {what}`, `elastic {what} set ...`{more} or `elastic {what} off`.")


_EXAMPLES = {
    "policy": "thresholds --scale-out 0.8",
    "scheduler": "tstorm --gamma 1.7",
    "nodes auto": "--maximum 8",
}


def _plain(view: ElasticityView) -> dict[str, object]:
    return {
        "policy": view.policy,
        "scheduler": view.scheduler,
        "period": view.period,
        "nodes": view.nodes,
        "topologies": [{"name": str(t.name), "policy": t.policy} for t in view.topologies],
        "policies": list(view.policies),
        "schedulers": list(view.schedulers),
        "generators": list(view.generators),
        "decided": [present.event(e) for e in view.decided],
    }


@command(
    "policy",
    examples=[
        ("elastic policy", "which policy resizes which topology"),
        ("elastic policy set thresholds --scale-out 0.8", "all that have no setting `elastic` of their own"),
        ("elastic policy set ds2 --target 0.5 --period 2 --dry-run", "only say what it would do, and why"),
        ("elastic policy set --alpha 0.8 --period 2", "only these; what else was set stays"),
        ("elastic policy off", "numbers of executors stay as they are"),
    ],
    see=("scheduler", "nodes auto", "describe", "events"),
    context_settings=_LINE,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[set [NAME] --PARAMETER VALUE ... | off]")
def policy(settings: Settings, words: tuple[str, ...]) -> None:
    """Show or change the policy that resizes topologies by load.

    It is used from now on, without stopping anything, and stays when Nimbus ends. Without a NAME only the parameters that are given
    change. docs/elasticity.md lists the policies and their
    parameters. A topology's setting `elastic` comes before it.
    """
    line = _line(words, "policy")
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        view = client.elasticity() if line is None else client.set_elasticity(policy=line)

    def show() -> None:
        output.pairs(settings, [("Policy", view.policy or "off")])
        if view.topologies:
            click.echo()
            columns = [Column("TOPOLOGY", "name"), Column("POLICY", lambda r: r["policy"] or "off")]
            output.table(
                settings, columns, [{"name": str(t.name), "policy": t.policy} for t in view.topologies]
            )

    output.show(settings, _plain(view), show)
    if line is None and not view.policy:
        note(
            f"There are {', '.join(view.policies)}. Choose one: {settings.command('policy', 'set', 'thresholds')}"
        )


@command(
    "scheduler",
    examples=[
        ("elastic scheduler", "which one places executors"),
        ("elastic scheduler set tstorm --gamma 1.7", "another one, while everything runs"),
        ("elastic scheduler set otd --every 10s", "one move every ten seconds at most"),
        ("elastic scheduler off", "what has a place stays there"),
        ("elastic scheduler serve", "decide in this process, instead of Nimbus, until it ends"),
    ],
    see=("policy", "moves", "events"),
    context_settings=_LINE,
)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="[set NAME --PARAMETER VALUE ... | off | serve]"
)
@click.option("--every", type=SECONDS, help="Time between two of its decisions [as suits it].")
def scheduler(settings: Settings, words: tuple[str, ...], every: float | None) -> None:
    """Show or change the scheduler that places executors by load.

    It decides anew once a period, and what it decides is made true by moves. docs/schedulers.md lists the schedulers and their
    parameters. With `serve` this process computes what Nimbus would: it is asked for as long as it runs, and Nimbus decides itself again
    when it ends. More than one can run; the others stand by.
    """
    if words == ("serve",) and every is None:
        serve(settings)
        return
    line = _line(words, "scheduler")
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        asks = line is None and every is None
        view = client.elasticity() if asks else client.set_elasticity(scheduler=line, period=every)

    def show() -> None:
        values: list[tuple[str, object]] = [("Scheduler", view.scheduler or "off")]
        if view.scheduler:
            values.append(("Every", output.duration(view.period)))
        if view.generators:
            values.append(("Decided by", ", then ".join(view.generators)))
        output.pairs(settings, values)
        _decided(settings, [e for e in view.decided if not e.kind.startswith("node-")])

    output.show(settings, _plain(view), show)
    if line is None and not view.scheduler:
        known = ", ".join(view.schedulers)
        note(f"There are {known}. Choose one: {settings.command('scheduler', 'set', 'tstorm')}")


def serve(settings: Settings) -> None:
    """Be a schedule generator until interrupted."""
    from elastic.scheduler.question import answer

    with settings.connect() as client, contextlib.closing(client.generate(me(), answer)) as answered:  # type: ignore[type-var]
        note(f"Deciding for {settings.target} as {me()}, until interrupted.")
        for question, found in answered:
            said = found.failure or " ".join(r.message for r in found.reasons)
            click.echo(f"{output.clock(question.time)}  {question.scheduler}: {said}")


def me() -> str:
    """This process, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


@command(
    "auto",
    examples=[
        ("elastic nodes auto", "whether nodes come and go by themselves"),
        ("elastic nodes auto set --maximum 8 --minimum 2", "they do, between two and eight"),
        ("elastic nodes auto off", "they stay as they are"),
    ],
    see=("nodes list", "policy", "events"),
    context_settings=_LINE,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[set --PARAMETER VALUE ... | off]")
def auto(settings: Settings, words: tuple[str, ...]) -> None:
    """Show or change when nodes are asked for and returned by themselves.

    They are asked for when topologies want more cores or workers than there are, and returned, drained first, when fewer have been
    enough for a while. docs/elasticity.md lists the parameters.
    """
    if words == ("set",):
        words = ("set", "--enabled")
    line = _line(words, "nodes auto")
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        view = client.elasticity() if line is None else client.set_elasticity(nodes=line)

    def show() -> None:
        output.pairs(settings, [("Nodes", view.nodes or "off")])
        _decided(settings, [e for e in view.decided if e.kind.startswith("node-")])

    output.show(settings, _plain(view), show)


def _decided(settings: Settings, events: Sequence[Event]) -> None:
    """The newest decisions, and why."""
    if events:
        click.echo()
        output.heading(settings, "Decided by load")
    for event in events[-8:]:
        click.echo(f"  {output.clock(event.time)}  {event.kind}: {event.message}")
