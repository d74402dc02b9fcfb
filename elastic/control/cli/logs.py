"""logs: what workers write."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import click

from elastic.control.cli import output
from elastic.control.cli.arguments import INT32, complete_part, topology_argument
from elastic.control.cli.base import command
from elastic.control.cli.narration import leaving, lost, note
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.errors import NotFound
from elastic.model.views import TopologyDetail

COLORS = ("cyan", "magenta", "green", "yellow", "blue")
TAIL = 200
REFRESH_SECONDS = 2.0
_PLACE = re.compile(r"[^@/]+@[^@/]+/\d+")


@command(
    "logs",
    examples=[
        ("elastic logs word-count", f"the last {TAIL} lines of each of its workers"),
        ("elastic logs word-count count -f", "follow the workers that run executors of count"),
        ("elastic logs word-count node-1/0 --tail all", "everything of one worker"),
    ],
    see=("errors", "events", "stacks"),
)
@topology_argument()
@click.argument("part", required=False, metavar="[COMPONENT|WORKER]", shell_complete=complete_part)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@click.option(
    "--tail", default=str(TAIL), metavar="N|all", show_default=True, help="Last lines of each worker."
)
def logs(settings: Settings, name: str, part: str | None, follow: bool, tail: str) -> None:
    """Print what workers write; follow it.

    That is what the topology's code prints, and what elastic logs in its workers. Each line begins with its
    worker where there are several.
    """
    lines = _tail(tail)
    with leaving(f"{name} goes on."), settings.connect() as client:
        client.on_lost(lost)
        chosen = Chosen(client, name, part, follow=follow)
        alone = next(iter(chosen.workers)) if len(chosen.workers) == 1 else ""
        shown = False
        for line in client.logs(name, worker=chosen.single, follow=follow, tail=lines):
            if not chosen.wants(line.worker):
                continue
            shown = True
            if line.worker != alone:  # there is another one after all: it has ended, or has come later
                alone = ""
            if settings.output != "table":
                data = {"worker": line.worker, "node": line.node, "text": line.text}
                output.write(settings, data, one_line=True)
            elif alone:
                click.echo(line.text)
            else:
                click.echo(f"{_label(settings, line.worker)} | {line.text}")
        if not shown:
            chosen.nothing()


def _tail(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number of lines nor all.", param_hint="--tail")
    try:
        return click.IntRange(max=INT32)(text)
    except click.BadParameter as error:
        raise click.BadParameter(error.message, param_hint="--tail") from None


def _label(settings: Settings, worker: str) -> str:
    place = worker.rpartition("@")[2] or worker
    if not settings.color:
        return place
    return click.style(place, fg=COLORS[sum(place.encode()) % len(COLORS)])


class Chosen:
    """Which workers' lines are wanted.

    Args:
        part: A component (the workers that run it; looked up again while it moves), a worker, or None for all.
        follow: What is written from now on is wanted, too: a worker that has ended writes nothing more.

    Raises:
        NotFound: The topology has neither a component nor a worker of that name.
    """

    def __init__(self, client: Client, name: str, part: str | None, *, follow: bool) -> None:
        self._client = client
        self._name = name
        self._component = ""
        self._looked = 0.0
        self._unknown: NotFound | None = None
        self.single = ""
        self.workers: set[str] = set()
        # What has ended leaves its logs on the nodes: workers that have moved away, a topology that was killed.
        place = "" if part is None else part if part.startswith(f"{name}@") else f"{name}@{part}"
        left = _PLACE.fullmatch(place) is not None and not follow
        try:
            detail = client.describe(name)
        except NotFound as error:
            if follow or not (left or part is None):
                raise
            self._unknown, self.single = error, place
            self.workers = {place} - {""}
            return
        places = {str(w.worker) for w in detail.workers} | {str(w) for w in detail.assignment.workers}
        self.workers = places
        if part is None:
            return
        if any(c.id == part for c in detail.spec.components):
            self._component = part
            self._look(detail)
            return
        matching = [w for w in places if w == part or w.rpartition("@")[2] == part]
        if not matching:
            self._unknown = NotFound(
                f"{name} has neither a component nor a worker called {part}.",
                remedy=f"Components: {_names(c.id for c in detail.spec.components)}. Workers: {_names(places)}.",
            )
            if not left:
                raise self._unknown
            matching = [place]
        self.workers = set(matching)
        self.single = matching[0]

    def wants(self, worker: str) -> bool:
        """Whether that worker's lines are to be shown."""
        if not self._component:
            return not self.single or worker == self.single
        if worker not in self.workers and time.monotonic() - self._looked > REFRESH_SECONDS:
            self._look(self._client.describe(self._name))
        return worker in self.workers

    def nothing(self) -> None:
        """No line has come."""
        if self._unknown is not None:
            raise self._unknown
        if self._component and not self.workers:
            note(f"No worker runs {self._component} now. What all have written: elastic logs {self._name}")

    def _look(self, detail: TopologyDetail) -> None:
        self.workers = {str(w) for e, w in detail.assignment.executors if e.component == self._component}
        self._looked = time.monotonic()


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
