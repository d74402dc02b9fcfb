"""policy, scheduler, nodes auto: who resizes and places topologies by load."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
from collections.abc import Collection, Sequence
from typing import Any

import click

from elastic.control import present
from elastic.control.cli import output
from elastic.control.cli.arguments import SECONDS
from elastic.control.cli.base import command
from elastic.control.cli.narration import Waiting, leaving, lost, note
from elastic.control.cli.output import Column
from elastic.control.cli.settings import Settings
from elastic.errors import ConfigError
from elastic.model import parameters
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
        return rest[0] if len(rest) == 1 else shlex.join(rest)
    if first == "off" and not rest:
        return "off"
    more = ", `elastic scheduler serve`" if what == "scheduler" else ""
    raise click.UsageError(f"write `elastic {what}`, `elastic {what} set ...`{more} or `elastic {what} off`.")


def _terms(kind: type[Any], without: Collection[str] = ()) -> list[tuple[str, str]]:
    """What can be set, for the help."""
    return [
        (f"--{p.name} {'|'.join(p.choices) or p.kind.upper()}", f"{p.help} [{_spelt(p)}]")
        for p in parameters.describe(kind)
        if p.name not in without
    ]


def _spelt(p: parameters.Parameter) -> str:
    return str(p.default).lower() if isinstance(p.default, bool) else f"{p.default}".removesuffix(".0")


def _policies() -> list[tuple[str, list[tuple[str, str]]]]:
    """The parameters of all policies that are installed here, for the help."""
    from elastic.elasticity import registry
    from elastic.elasticity.processes import ManagerConfig

    result = []
    for name in registry.names():
        with contextlib.suppress(ConfigError):  # a plug-in that is broken is told of when it is chosen
            found = registry.find(name)
            result.append((f"Policy {name}: {found.summary}", _terms(found.params)))
    measuring = [
        ("--alpha NUMBER", "Weight of the past in averages of the load, 0 to below 1 [0.5]"),
        ("--sample NUMBER", "Seconds that a sample of the load covers [half a period, at most 1]"),
    ]
    return [*result, ("Every policy", [*_terms(ManagerConfig, ("enabled",)), *measuring])]


def _schedulers() -> list[tuple[str, list[tuple[str, str]]]]:
    """The parameters of all schedulers that are installed here, for the help."""
    from elastic.scheduler import registry

    result = []
    for name in registry.names():
        with contextlib.suppress(ConfigError):
            kind = registry.find(name)
            result.append((f"Scheduler {name}: {kind.summary}", _terms(kind.params)))
    return result


def _nodes() -> list[tuple[str, list[tuple[str, str]]]]:
    """The parameters of automatic nodes, for the help."""
    from elastic.elasticity.infrastructure import Infrastructure

    return [("Parameters", _terms(Infrastructure, ("enabled",)))]


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
    more=_policies,
    context_settings=_LINE,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[set [NAME] --PARAMETER VALUE ... | off]")
def policy(settings: Settings, words: tuple[str, ...]) -> None:
    """Show or change the policy that resizes topologies by load.

    It is used from now on, without stopping anything, and stays when Nimbus ends. Without a NAME only the parameters that are given
    change. A topology's setting `elastic` comes before it. docs/elasticity.md explains policies and parameters.
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
    more=_schedulers,
    context_settings=_LINE,
)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="[set NAME --PARAMETER VALUE ... | off | serve]"
)
@click.option("--every", type=SECONDS, help="Time between two of its decisions [as suits it].")
def scheduler(settings: Settings, words: tuple[str, ...], every: float | None) -> None:
    """Show or change the scheduler that places executors by load.

    It decides anew once a period, and what it decides is made true by moves. docs/schedulers.md explains the schedulers. With `serve`
    this process computes what Nimbus would: it is asked for as long as it runs, and Nimbus decides itself again when it ends. More
    than one can run; the others stand by.
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

    left = "whoever stands by decides now, or Nimbus itself."
    with (
        leaving(left),
        settings.connect() as client,
        contextlib.closing(client.generate(me(), answer)) as answered,  # type: ignore[type-var]
    ):
        client.on_lost(lost)
        note(f"Deciding for {settings.target} as {me()}, until interrupted.")
        for question, found in answered:
            said = found.failure or " ".join(r.message for r in found.reasons)
            if settings.output == "table":
                click.echo(f"{output.clock(question.time)}  {question.scheduler}: {said}")
                continue
            data = {"time": question.time, "scheduler": question.scheduler, "failure": found.failure}
            output.write(settings, {**data, "reasons": [r.message for r in found.reasons]}, one_line=True)


def me() -> str:
    """This process, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


@command(
    "auto",
    examples=[
        ("elastic nodes auto", "whether nodes come and go by themselves"),
        ("elastic nodes auto set --maximum 8 --minimum 2", "they do, between two and eight"),
        ("elastic nodes auto set --step 1", "only this; what else was set stays"),
        ("elastic nodes auto off", "they stay as they are"),
    ],
    see=("nodes list", "policy", "events"),
    more=_nodes,
    context_settings=_LINE,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[set --PARAMETER VALUE ... | off]")
def auto(settings: Settings, words: tuple[str, ...]) -> None:
    """Show or change when nodes are asked for and returned by themselves.

    They are asked for when topologies want more cores or workers than there are, and returned, drained first, when fewer have been
    enough for a while. Parameters that are not given stay as they are set; `off` forgets them.
    """
    if words == ("set",):
        words = ("set", "--enabled")
    line = _line(words, "nodes auto")
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        view = client.elasticity() if line is None else client.set_elasticity(nodes=line)

    def show() -> None:
        output.pairs(settings, [("Nodes", _limits(view.nodes) if view.nodes else "off")])
        _decided(settings, [e for e in view.decided if e.kind.startswith("node-")])

    output.show(settings, _plain(view), show)
    if line is None and not view.nodes:
        note(
            f"They come and go by themselves after {settings.command('nodes', 'auto', 'set', '--maximum', '8')}"
        )


def _limits(text: str) -> str:
    """All parameters in force, those that have their default too."""
    from elastic.elasticity.infrastructure import Infrastructure

    try:
        values = parameters.valued(parameters.parse("`nodes auto`", Infrastructure, text.split()))
    except ConfigError:  # another version's
        return text
    del values["enabled"]
    return " ".join(f"--{name} {value}" for name, value in values.items())


def _decided(settings: Settings, events: Sequence[Event]) -> None:
    """The newest decisions, and why."""
    if events:
        click.echo()
        output.heading(settings, "Decided by load")
    for event in events[-8:]:
        click.echo(f"  {output.clock(event.time)}  {event.kind}: {event.message}")
