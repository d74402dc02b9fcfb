"""kill, activate, deactivate, rebalance, scale: what changes a running topology."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from elastic.control.cli import output
from elastic.control.cli.arguments import INT64, SECONDS, topology_argument
from elastic.control.cli.base import command
from elastic.control.cli.failures import Outcome
from elastic.control.cli.move_shown import tell
from elastic.control.cli.moves import check_kept, followed, share_option
from elastic.control.cli.moving import Request
from elastic.control.cli.narration import Waiting, leaving, note
from elastic.control.cli.settings import Settings
from elastic.errors import DeadlineExceeded
from elastic.model import whys
from elastic.model.words import counted

KILL_WAIT = 10.0
CHANGE_WAIT = 30.0


def _made_by_moves(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of what changes the places of running tasks."""
    wait = click.option(
        "--wait",
        type=SECONDS,
        default=CHANGE_WAIT,
        show_default="30s",
        help="Wait so long until workers have done it.",
    )
    return wait(share_option(command))


@command(
    "kill",
    examples=[
        (
            "elastic kill word-count",
            "stop the spouts, let what is under way be worked off for 10 s, then stop it",
        ),
        ("elastic kill word-count --wait 0 -y", "stop it at once, without asking"),
    ],
    see=("deactivate", "list", "down"),
)
@topology_argument()
@click.option(
    "--wait",
    type=SECONDS,
    default=KILL_WAIT,
    show_default="10s",
    help="How long what is under way may take to be worked off.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask (it asks only on a terminal).")
def kill(settings: Settings, name: str, wait: float, yes: bool) -> None:
    """Stop a topology and remove it.

    Its spouts stop first; what they have emitted is worked off for as long as --wait allows; then its workers
    end and its name is free. Its events stay.
    """
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"Kill {name} on {settings.target}?", abort=True, err=True)
    left = f"Nimbus, once told, goes on killing {name}; {settings.command('list')} shows when it is gone."
    with Waiting(f"killing {name}"), leaving(left), settings.connect() as client:
        client.kill(name, wait=wait)
    output.show_data(settings, {"topology": name, "gone": True})
    note(f"{name} is gone.")


@command(
    "activate",
    examples=[("elastic activate word-count", "go on where deactivate stopped")],
    see=("deactivate", "get"),
)
@topology_argument()
def activate(settings: Settings, name: str) -> None:
    """Let a topology's spouts emit again."""
    with Waiting(f"activating {name}"), settings.connect() as client:
        client.activate(name)
    output.show_data(settings, {"topology": name, "status": "active"})
    note(f"{name} is active.")


@command(
    "deactivate",
    examples=[
        ("elastic deactivate word-count", "the spouts stop; bolts work off what is under way"),
        (
            "elastic deactivate word-count --wait 30",
            "and wait until that is done (exit code 8 when it is not)",
        ),
    ],
    see=("activate", "kill"),
)
@topology_argument()
@click.option(
    "--wait", type=SECONDS, default=0.0, help="Wait so long until everything emitted is worked off."
)
def deactivate(settings: Settings, name: str, wait: float) -> None:
    """Stop a topology's spouts; what is under way is worked off.

    Its workers stay, with their state. `activate` lets the spouts go on.
    """
    left = f"{name}, once told to, becomes inactive; {settings.command('activate', name)} lets it go on."
    with (
        Waiting(f"waiting until {name} has worked off what is under way") as waiting,
        leaving(left),
        settings.connect() as client,
    ):
        client.on_lost(waiting.lost)
        drained = client.deactivate(name, wait=wait)
    output.show_data(settings, {"topology": name, "status": "inactive", "drained": drained})
    if wait and not drained:
        raise DeadlineExceeded(
            f"{name} is inactive, but has not worked off everything within {output.duration(wait)}.",
            remedy=f"{settings.command('top', name)} shows where tuples wait, {settings.command('stacks', name)} which call into user"
            " code does not return.",
        )
    note(f"{name} is inactive" + (", and everything emitted has been worked off." if drained else "."))


class ComponentCount(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`component=number`."""

    name = "COMPONENT=N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        component, _, count = str(value).rpartition("=")
        if not component or not count.isdecimal() or not count.strip("0"):
            self.fail(f"{value!r} is not COMPONENT=N with N of 1 or more.", param, ctx)
        return component, click.IntRange(max=INT64)(count, param, ctx)


@command(
    "rebalance",
    examples=[
        ("elastic rebalance word-count --executors count=4", "four threads run count's tasks, while it runs"),
        ("elastic rebalance word-count --workers 2", "spread it over two worker processes"),
        (
            "elastic rebalance word-count --executors split=2 --executors count=4 --wait 1m",
            "both, waiting longer",
        ),
    ],
    see=("scale", "move", "moves", "nodes"),
)
@topology_argument()
@click.option(
    "--executors", "-e", type=ComponentCount(), multiple=True, help="New number of executors; repeatable."
)
@click.option("--workers", "-w", type=click.IntRange(min=1, max=INT64), help="New number of workers.")
@_made_by_moves
def rebalance(
    settings: Settings,
    name: str,
    executors: tuple[tuple[str, int], ...],
    workers: int | None,
    wait: float,
    share: float | None,
) -> None:
    """Give a running topology other numbers of executors or workers.

    It keeps running: only tasks whose executor changes pause, and those that another worker shall run move there
    with their state. The number of a component's tasks is fixed, and is the most executors that it can have.
    Without options the topology is only placed anew, which spreads it over nodes that came later.
    """
    _rebalance(settings, name, _by_component(executors), workers, wait, share)


def _by_component(counts: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """Raises: UsageError: Two numbers are given for one."""
    found = dict(counts)
    for component in found:
        numbers = dict.fromkeys(str(n) for name, n in counts if name == component)
        if len(numbers) > 1:
            raise click.UsageError(
                f"{component} cannot have {' and '.join(numbers)} executors: say one number."
            )
    return found


@command(
    "scale",
    examples=[
        ("elastic scale word-count count=4", "four threads run count's tasks, while it runs"),
        ("elastic scale word-count split=2 count=8", "two components at once"),
        ("elastic scale word-count count=8 --share 0.25", "at most a quarter of its tasks paused at once"),
    ],
    see=("rebalance", "move", "moves", "top"),
)
@topology_argument()
@click.argument("counts", type=ComponentCount(), nargs=-1, required=True, metavar="COMPONENT=N...")
@_made_by_moves
def scale(
    settings: Settings, name: str, counts: tuple[tuple[str, int], ...], wait: float, share: float | None
) -> None:
    """Give components of a running topology other numbers of executors.

    As rebalance --executors. More executors use more cores only in more workers: `elastic rebalance --workers N`
    gives it those. What changes its worker moves there with its state, while the stream goes on. The scheduler places
    the whole topology: what was moved by hand may go elsewhere, also if it is of another component.
    """
    _rebalance(settings, name, _by_component(counts), None, wait, share)


def _rebalance(
    settings: Settings,
    name: str,
    executors: dict[str, int],
    workers: int | None,
    wait: float,
    share: float | None,
) -> None:
    shows = f"{settings.command('moves', name)} and {settings.command('get', name)}"
    why = whys.to_rebalance(executors, workers)
    assignment, moves, anew = followed(
        settings,
        name,
        f"asking for {name} to be rebalanced",
        Request(f"it goes on; {shows} show how far it is.", settings.command("moves", name)),
        why,
        lambda client: client.rebalance(name, executors=executors, workers=workers, wait=wait, share=share),
        settles=wait > 0,
    )
    data = {
        "topology": name,
        "epoch": int(assignment.epoch),
        "workers": len(assignment.workers),
        "executors": len(assignment.executors),
        "unassigned": [str(e) for e in assignment.unassigned],
    }
    tell(settings, data, moves)
    if settings.output == "table":
        executors_now = counted(len(assignment.executors), "executor")
        workers_now = counted(len(assignment.workers), "worker")
        note(f"{name}: {executors_now} in {workers_now} (epoch {data['epoch']}).")
    if assignment.unassigned:
        note(
            f"No slot is free for {counted(len(assignment.unassigned), 'executor')}: {settings.command('nodes', 'add', '1')}"
        )
    check_kept(settings, assignment, why, moves, anew)
    if assignment.unassigned:
        raise Outcome(DeadlineExceeded.exit_code)
