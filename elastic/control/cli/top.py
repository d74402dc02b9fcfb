"""top: a live view of one topology, or of all."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from elastic.control.cli import output
from elastic.control.cli.arguments import SECONDS, topology_argument
from elastic.control.cli.base import command
from elastic.control.cli.narration import leaving, lost, note, said_of
from elastic.control.cli.output import Column, duration
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.control.cli.top_views import ByTask, View
from elastic.errors import DeadlineExceeded, NotFound, Unavailable
from elastic.model.records import TopologyStatus
from elastic.model.views import TopologyDetail
from elastic.model.words import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

ENDED = (TopologyStatus.FINISHED, TopologyStatus.FAILED)
FOOT = "Ctrl-C ends this view; the topologies go on."
OUT_OF_REACH_SECONDS = 60.0
"""How long the view outlives a Nimbus that does not answer: a standby takes over within that time."""


@command(
    "top",
    examples=[
        ("elastic top word-count", "components, executors and workers of one topology, each second"),
        ("elastic top word-count --tasks", "what each task does"),
        ("elastic top --once -o json", "one look at all, for programs"),
        ("elastic top word-count --interval 5s | tee load.log", "plain lines where it is not a terminal"),
    ],
    see=("ui", "describe", "events", "stacks"),
)
@topology_argument(required=False, metavar="[NAME]")
@click.option(
    "--tasks", is_flag=True, help="A line for each task, in place of those for executors and workers."
)
@click.option("--once", is_flag=True, help="One look, then end.")
@click.option("--interval", type=SECONDS, default=1.0, show_default="1s", help="Time between two looks.")
def top(settings: Settings, name: str | None, tasks: bool, once: bool, interval: float) -> None:
    """Watch a topology's rates, queues and load.

    BUSY is the share of time in user code and the framework's work for it, BLOCKED the share spent waiting for
    room further down. Ends with the topology, or by Ctrl-C; the topology goes on.
    With --tasks, --once takes a second look after the interval: what a task does per second is measured between two.
    """
    interval = max(0.1, interval)
    view: View = ByTask() if tasks else View()
    with leaving("the topologies go on."), settings.connect() as client:
        client.on_lost(lost)
        if once:
            details = look(client, name)
            if tasks:
                view.see(details)
                threading.Event().wait(interval)
                details = look(client, name)
            view.see(details)
            if settings.output == "table":
                for line in snapshot(settings, details, view):
                    click.echo(line)
            else:
                output.write(settings, [view.data(d) for d in details])
        elif settings.output == "table" and output.is_terminal():
            _live(client, name, interval, view)
        else:
            _plain(settings, client, name, interval, view)


def look(client: Client, name: str | None) -> list[TopologyDetail]:
    """One topology, or all that have not ended."""
    if name is not None:
        return [client.describe(name)]
    found = []
    for topology in client.list():
        if topology.status not in ENDED:
            with suppress(NotFound):  # it has just gone
                found.append(client.describe(str(topology.name)))
    return found


class Looks:
    """Looks at the cluster again and again, and stays when Nimbus is away for a while, once it has answered.

    Args:
        interval: Seconds between two looks.
    """

    def __init__(self, client: Client, name: str | None, interval: float) -> None:
        self._client = client
        self._name = name
        self._interval = interval
        self._wake = threading.Event()  # never set: a wait on it ends at once by Ctrl-C
        self._answered: float | None = None
        self.trouble = ""

    def again(self) -> list[TopologyDetail] | None:
        """The next look, or None when nobody answered.

        Raises:
            Unavailable, DeadlineExceeded: Nobody has answered for a minute, or ever: the address may be wrong.
        """
        try:
            details = look(self._client, self._name)
        except (Unavailable, DeadlineExceeded) as error:
            if self._answered is None:
                raise
            away = time.monotonic() - self._answered
            if away > OUT_OF_REACH_SECONDS:
                raise
            self.trouble = f"no answer for {duration(away)}: {error.message}"
            return None
        self._answered = time.monotonic()
        self.trouble = ""
        return details

    def ended(self, details: Sequence[TopologyDetail] | None) -> bool:
        """Whether the one topology that is watched has ended."""
        return bool(self._name and details and details[0].summary.status in ENDED)

    def pause(self) -> None:
        """Until the next look."""
        self._wake.wait(self._interval)


def title(detail: TopologyDetail) -> str:
    """One line about a topology."""
    s = detail.summary
    parts = [str(s.name), s.status.value, f"up {duration(s.uptime)}", counted(s.workers, "worker")]
    parts += [counted(s.executors, "executor"), counted(s.tasks, "task")]
    return "  ".join(parts + ([f"{s.unassigned} wait for a slot"] if s.unassigned else []))


def snapshot(settings: Settings, details: Sequence[TopologyDetail], view: View) -> list[str]:
    """One look as lines of text."""
    lines: list[str] = []
    for detail in details:
        lines += [title(detail), ""]
        for columns, rows in view.tables(detail):
            lines += ["  " + line for line in output.lines_of(columns, rows, color=settings.color)] + [""]
        lines += [f"  waits: {sentence}" for sentence in detail.waits]
    return lines or ["No topology is running."]


def _plain(settings: Settings, client: Client, name: str | None, interval: float, view: View) -> None:
    """A line for each component, or task, and look: for logs, and for programs with -o json."""
    looks = Looks(client, name, interval)
    while True:
        details = looks.again()
        if details is None:
            note(looks.trouble)
        else:
            view.see(details)
        now = time.time()
        for detail in details or ():
            if settings.output != "table":
                output.write(settings, {"time": now, **view.data(detail)}, one_line=True)
                continue
            head = f"{output.clock(now)}  {detail.summary.name}  {detail.summary.status.value}"
            for line in view.lines(detail):
                click.echo(f"{head}  {line}")
        if looks.ended(details):
            return
        looks.pause()


def _live(client: Client, name: str | None, interval: float, view: View) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    looks = Looks(client, name, interval)
    shown: list[TopologyDetail] = []
    with Live(console=console, auto_refresh=False, screen=False, vertical_overflow="crop") as live:
        # A look waits for quite a while for a Nimbus that is away.
        client.on_lost(
            lambda why: live.update(
                render(shown, why and said_of(why), console.size.height, view=view), refresh=True
            )
        )
        while True:
            details = looks.again()
            if details is not None:
                view.see(details)
                shown = details
            live.update(render(shown, looks.trouble, console.size.height, view=view), refresh=True)
            if looks.ended(details):
                return
            looks.pause()


def render(
    details: Sequence[TopologyDetail], trouble: str, height: int, foot: str = FOOT, view: View | None = None
) -> RenderableType:
    """One look for a terminal with `height` lines: components always, executors and workers as far as there is room.

    Args:
        trouble: Said in red; "" for none.
        foot: The last line.
        view: What is shown of it, and has seen it.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    view = view or View()
    parts: list[RenderableType] = []
    left = height - 1 - bool(trouble) - sum(2 + len(d.waits[:3]) for d in details)
    for detail in details:
        color = output.STATUS_COLORS.get(detail.summary.status.value, "")
        parts.append(Text(title(detail), style=f"bold {color}"))
        for columns, rows in view.tables(detail):
            room = left - 2  # a blank line and the headings come with it
            if len(rows) > room:
                room -= 1  # and a line says how many are left out
            if not rows or room < 1:
                continue
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim")
            for column in columns:
                table.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
            for row in rows[:room]:
                table.add_row(*(_cell(column, row) for column in columns))
            parts += [Text(""), table]
            left -= 2 + min(len(rows), room)
            if len(rows) > room:
                parts.append(Text(f"… {len(rows) - room} more", style="dim"))
                left -= 1
        parts += [Text(f"waits: {sentence}", style="yellow") for sentence in detail.waits[:3]]
        parts.append(Text(""))
    if not details and not trouble:
        parts.append(Text("No topology is running.", style="dim"))
    if trouble:
        parts.append(Text(trouble, style="red"))
    parts.append(Text(foot, style="dim"))
    return Group(*parts)


def _cell(column: Column, row: dict[str, Any]) -> Any:
    from rich.text import Text

    text = column.text(row)
    style = output.STATUS_COLORS.get(text, "") if column.status else ""
    if column.title in ("BUSY", "BLOCKED"):
        value = float(row["busy" if column.title == "BUSY" else "blocked"])
        style = "red" if value > 0.9 else "yellow" if value > 0.7 else "green" if value > 0.01 else "dim"
    return Text(text, style=style)
