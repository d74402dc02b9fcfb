"""The root of the command line: the list of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from elastic.control.cli.base import Lazy, LazyGroup
from elastic.control.cli.interrupts import heard

_HERE = "elastic.control.cli."
_VERBOSE = re.compile("-v+")


def _at(module: str, attribute: str, summary: str) -> Lazy:
    return Lazy(_HERE + module, attribute, summary)


SECTIONS = {
    "A cluster on this machine": {
        "up": _at("cluster", "up", "Start a cluster on this machine, or on Spark."),
        "down": _at("cluster", "down", "Stop the cluster and everything it started."),
        "doctor": _at("doctor", "doctor", "Say what this machine lacks, and how to get it."),
    },
    "Topologies": {
        "run": _at("run", "run", "Run a topology in this process, without any service."),
        "submit": _at("submit", "submit", "Send a topology to the cluster, which runs it."),
        "list": _at("topologies", "list_", "List the topologies."),
        "get": _at("topologies", "get", "Show a topology's status and where its executors are."),
        "describe": _at("topologies", "describe", "Show everything about a topology."),
        "kill": _at("changes", "kill", "Stop a topology and remove it."),
        "activate": _at("changes", "activate", "Let a topology's spouts emit again."),
        "deactivate": _at(
            "changes", "deactivate", "Stop a topology's spouts; what is under way is worked off."
        ),
        "rebalance": _at(
            "changes", "rebalance", "Give a running topology other numbers of executors or workers."
        ),
        "scale": _at("changes", "scale", "Give components of a running topology other numbers of executors."),
        "move": _at("moves", "move", "Move tasks to another worker or node while they run."),
        "moves": _at("moves", "moves", "List moves of tasks, under way and ended; or show one."),
    },
    "Elasticity": {
        "policy": _at("elasticity", "policy", "Show or change the policy that resizes topologies by load."),
        "scheduler": _at(
            "elasticity", "scheduler", "Show or change the scheduler that places executors by load."
        ),
    },
    "Nodes": {
        "nodes": _at("nodes", "nodes", "List, add and drain the nodes that workers run on."),
    },
    "Looking": {
        "top": _at("top", "top", "Watch a topology's rates, queues and load."),
        "ui": _at("ui", "ui", "Show the cluster in a browser, and its metrics to Prometheus."),
        "logs": _at("logs", "logs", "Print what workers write; follow it."),
        "events": _at("watch", "events", "Print what happened in the cluster; watch it."),
        "errors": _at("watch", "errors", "Show a topology's errors with the user code's tracebacks."),
        "stacks": _at("watch", "stacks", "Show what every thread of a topology is doing now."),
        "info": _at("cluster", "info", "Show the cluster: its Nimbus, versions, addresses."),
    },
    "This command": {
        "completion": _at("completion", "completion", "Print the completion script for a shell."),
        "version": _at("cluster", "version", "Print the version of elastic."),
    },
}


def _say_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """What people try first; `elastic version` says more."""
    if wanted and not ctx.resilient_parsing:
        from elastic import __version__

        click.echo(__version__)
        ctx.exit()


class Root(LazyGroup):
    """The command `elastic`."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # click itself would end with 1, which means something else here.
            from elastic.control.cli.failures import ReaderGone

            raise ReaderGone from None

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run, report what went wrong, and exit.

        Raises:
            SystemExit: Always, with the exit code of `docs/cli.md`.
        """
        kwargs["standalone_mode"] = False
        try:
            with heard():
                code = super().main(*args, **kwargs)
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - every way to end has its exit code
            from elastic.control.cli.failures import report

            words = kwargs.get("args") or (args[0] if args else None) or sys.argv[1:]
            code = report(error, verbose=any(w == "--verbose" or _VERBOSE.fullmatch(w) for w in words))
        sys.exit(code if isinstance(code, int) else 0)


app = Root(
    name="elastic",
    sections=SECTIONS,
    help="Runs topologies: live, elastic, stateful stream processing for Python.",
    examples=[
        (
            "elastic run examples/word_count.py --input a.txt --output counts.tsv",
            "in this process, no service needed",
        ),
        ("elastic up --nodes 2", "a cluster on this machine"),
        ("elastic submit examples/word_count.py --input a.txt", "the same topology on the cluster"),
        ("elastic top word-count", "watch it"),
        ("elastic down", "stop everything"),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    no_args_is_help=True,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_say_version,
            hidden=True,  # it is not of every command
        )
    ],
)
