"""move, moves: tasks go elsewhere while they run, and what that cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from elastic.control import present
from elastic.control.cli import output
from elastic.control.cli.aborting import end_moves
from elastic.control.cli.arguments import (
    INT32,
    INT64,
    SECONDS,
    complete_part,
    complete_place,
    topology_argument,
)
from elastic.control.cli.base import command
from elastic.control.cli.losing import Losses, Lost, refuse_anew, refuse_lost
from elastic.control.cli.move_shown import show_tasks, tell, tell_done
from elastic.control.cli.moving import Following, Request
from elastic.control.cli.narration import Waiting, leaving, lost, note
from elastic.control.cli.output import Column, Row
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.control.move_words import cost, milliseconds, outcome, pause, steps, task_rows
from elastic.errors import DeadlineExceeded, NotFound, Refused
from elastic.model import whys
from elastic.model.assignment import Assignment
from elastic.model.ids import TaskId
from elastic.model.views import PLANNED, STEPS, MoveView, TaskMoveView
from elastic.model.words import counted

MOVE_WAIT = 60.0
share_option = click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Of a component's tasks that may pause at once [as keeps pauses short, or as `up` was told].",
)
_ALL = "all"


class _Number(click.IntRange):
    """That of a move, or `_ALL`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == _ALL else super().convert(value, param, ctx)


@command(
    "move",
    examples=[
        ("elastic move word-count 7 --to node-2", "one task, with its state; the stream goes on"),
        ("elastic move word-count 'count[3-4]' 9-12 --to node-2", "an executor and four tasks"),
        (
            "elastic move word-count count --to word-count@node-1/0 --share 0.25",
            "a component, a quarter of it at a time",
        ),
        ("elastic move word-count count --to node-2 --no-wait", "begin, and return at once"),
        (
            "elastic move word-count lines 'count[3-4]' --to node-2",
            "a spout, and an executor that it feeds, in one move",
        ),
        ("elastic move word-count --abort", "end all its moves early: what is not saved goes back"),
        ("elastic move word-count --abort 7", "move 7 alone; what is planned beside it is taken back"),
        (
            "elastic move word-count --abort --force",
            "give up saved states, too, that nobody could restore",
        ),
    ],
    see=("moves", "scale", "rebalance", "nodes drain"),
)
@topology_argument()
@click.argument("what", nargs=-1, metavar="[WHAT]...", shell_complete=complete_part)
@click.option(
    "--to", "where", metavar="WORKER|NODE", shell_complete=complete_place, help="Where the tasks shall run."
)
@click.option(
    "--wait",
    type=SECONDS,
    default=MOVE_WAIT,
    show_default="60s",
    help="Wait so long until they run there.",
)
@click.option("--no-wait", is_flag=True, help="Return at once: as --wait 0.")
@share_option
@click.option(
    "--abort",
    type=_Number(min=1, max=INT64),
    is_flag=False,
    flag_value=_ALL,
    metavar="[EPOCH]",
    help="End the move of that number early, or all that are under way.",
)
@click.option(
    "--force",
    is_flag=True,
    help="With --abort: give up saved states that nobody could restore. Their tasks begin anew, without them.",
)
@click.option("--why", metavar="TEXT", help="With --abort: the reason, for whoever reads of it.")
def move(
    settings: Settings,
    name: str,
    what: tuple[str, ...],
    where: str | None,
    wait: float,
    no_wait: bool,
    share: float | None,
    abort: int | str | None,
    force: bool,
    why: str | None,
) -> None:
    """Move tasks to another worker or node while they run.

    They take their state along. WHAT are task numbers (7, 3-5), executors (count[3-4], in quotes for the shell) or
    components (count). WORKER is named as elsewhere (word-count@node-1/0; node-1/0 is short for it). On a NODE, the
    topology's worker with the fewest tasks takes them, or one in a free slot.

    Only the tasks that move pause, each for some milliseconds; who sends to them holds what is theirs meanwhile.
    Nothing is lost, doubled or reordered. A task that cannot be moved stays where it was and works on (exit code 6).
    If its worker's process ends before it is saved, it starts anew, without its state, and that is said (exit code 6).
    """
    if no_wait:
        given = click.get_current_context().get_parameter_source("wait")
        if given is ParameterSource.COMMANDLINE and wait > 0:
            raise click.UsageError("--wait and --no-wait exclude each other.")
        wait = 0.0
    if abort is not None:
        if what or where or share is not None:
            raise click.UsageError("--abort goes with a topology, --force and --why alone.")
        end_moves(settings, name, abort if isinstance(abort, int) else None, why or "", wait, force=force)
        return
    if why is not None or force:
        raise click.UsageError("--why and --force go with --abort.")
    if not what:
        raise click.UsageError(
            f"Say what to move: tasks (7, 3-5), executors or components. {settings.command('get', name)} shows them."
        )
    if not where:
        raise click.UsageError(
            f"Say where to, with --to WORKER or --to NODE. {settings.command('nodes', 'list')} shows the nodes."
        )
    shows, ends = settings.command("moves", name), settings.command("move", name, "--abort")
    request = Request(f"the move goes on; {shows} shows it, {ends} ends it.", shows)
    tasks = ",".join(what)
    asked = whys.to_move(tasks, where)
    doing = f"asking for {_named(what)} of {name} to move to {where}"
    if wait <= 0:
        with Waiting(doing), request.told(), settings.connect() as client:
            request.asked()
            epoch = client.move(name, tasks, where, wait=0, share=share).epoch
            request.taken()
            found = (m for m in client.moves(name) if m.state != "ended" and whys.asked_by(m.why, asked))
            begun = [present.move(m) for m in found]
        output.show_data(settings, {"topology": name, "epoch": int(epoch), "moves": begun})
        note(
            f"{name}: {_named(what)} to go to {where}; {settings.command('moves', name)} shows how far it is."
        )
        return
    assignment, moves, anew = followed(
        settings,
        name,
        doing,
        request,
        asked,
        lambda client: client.move(name, tasks, where, wait=wait, share=share),
    )
    tell(settings, {"topology": name, "epoch": int(assignment.epoch)}, moves)
    check_kept(settings, assignment, asked, moves, anew)
    if not moves:
        note(f"{name}: nothing had to move: {_named(what)} at {where} already, or begins there.")


def _named(what: Sequence[str]) -> str:
    """What was asked for, for people: `task 7`, `tasks 3-5 9`, `count`."""
    if not all(word.replace("-", "").replace(",", "").isdecimal() for word in what):
        return " ".join(what)
    return f"task {what[0]}" if len(what) == 1 and what[0].isdecimal() else f"tasks {' '.join(what)}"


def check_kept(
    settings: Settings, assignment: Assignment, why: str, moves: Sequence[MoveView], anew: Lost
) -> None:
    """Whether all tasks that a request has moved took along what they had.

    Args:
        assignment: Who runs what after that.
        why: What its moves give as their reason: the others are somebody else's.
        anew: Tasks that began so meanwhile, before a move of them.

    Raises:
        Refused: Some have begun anew, wherever that is: they were to move with their state.
    """
    places = assignment.place_of()

    def where(task: TaskMoveView) -> str:
        place = places.get(TaskId(task.task))
        return f"now in worker {place}" if place is not None else "it waits for a slot"

    refuse_anew(settings, moves, lambda m, _: whys.asked_by(m.why, why), where)
    refuse_lost(settings, anew, places, [m for m in moves if whys.asked_by(m.why, why)])


def followed(
    settings: Settings,
    name: str,
    doing: str,
    request: Request,
    why: str,
    ask: Callable[[Client], Assignment],
    *,
    settles: bool = True,
) -> tuple[Assignment, Sequence[MoveView], Lost]:
    """Make a request that moves tasks, and wait until its moves have ended.

    Args:
        doing: What is said until it is known to be under way.
        why: What moves give as their reason that this request has caused, but for the share.
        settles: Whether its moves are waited for.

    Returns:
        The answer, the moves, and the tasks that began anew meanwhile.

    Raises:
        Refused, DeadlineExceeded: As the request. What has been done of it is shown first.
    """

    def ours(move: MoveView) -> bool:
        return whys.asked_by(move.why, why)

    failed: Refused | DeadlineExceeded | None = None
    with (
        Waiting(doing) as waiting,
        request.told(),
        settings.connect() as client,
        Following(settings, name, waiting, ours=ours, request=request) as following,
        Losses(settings, waiting, name) as losses,
    ):
        client.on_lost(waiting.lost)
        try:
            request.asked()
            answer = ask(client)
        except (Refused, DeadlineExceeded) as error:
            failed = error
            if isinstance(error, Refused):
                following.over(client)  # what those cost that have just come to their end
            # Also when it is refused: what others want elsewhere by now arrives first.
            done = following.so_far(client)
        else:
            if settles:
                request.done()
            request.taken()
            moves = following.settle(client) if settles else ()
            anew = losses.found() if settles else {}
    if failed is None:
        return answer, moves, anew
    tell_done(settings, {"topology": name}, done)
    raise failed


@command(
    "moves",
    examples=[
        ("elastic moves", "of all topologies, under way and ended, the newest first"),
        ("elastic moves word-count --limit 3", "the last three of one"),
        ("elastic moves word-count 7", "one move: every task, and when each of its steps was"),
        ("elastic moves --watch", "as they begin and end"),
        ("elastic moves word-count -o json | jq '.[0].pause'", "the longest pause of the newest, in seconds"),
    ],
    see=("move", "describe", "events"),
)
@topology_argument(required=False, metavar="[NAME]")
@click.argument("epoch", type=click.IntRange(min=1, max=INT64), required=False, metavar="[EPOCH]")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=INT32),
    default=20,
    show_default=True,
    help="So many of the newest; those that have not ended are shown besides.",
)
@click.option("-w", "--watch", is_flag=True, help="Go on with those that begin and end, until Ctrl-C.")
def moves(settings: Settings, name: str | None, epoch: int | None, limit: int, watch: bool) -> None:
    """List moves of tasks, under way and ended; or show one.

    PAUSE is the longest that senders held what was for one of its tasks, or for how long one has stood still so far.
    AT RECEIVERS is the longest that a worker which gets a task's tuples had none from it, between its old and its new place.
    The times of a task's steps are relative to its pause, by the clocks of the processes in which they happened.
    Nimbus keeps the last 50 of each topology.
    """
    if watch and epoch is not None:
        raise click.UsageError("--watch follows all moves of a topology: leave EPOCH out.")
    if watch:
        _watch(settings, name or "")
        return
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        found = client.moves(name or "", limit=0 if epoch is not None else limit, epoch=epoch)
        one = next((m for m in found if m.epoch == epoch), None)
        known = client.moves(name or "", tasks=False) if epoch is not None and one is None else ()
    if epoch is None:
        output.show(settings, [present.move(m) for m in found], lambda: _list(settings, name, found))
        return
    if one is None:
        raise _unknown(settings, str(name), epoch, [m.epoch for m in known if m.state != PLANNED])
    output.show(settings, present.move(one), lambda: _one(settings, one))


def _unknown(settings: Settings, name: str, epoch: int, known: Sequence[int]) -> NotFound:
    """That no such move is known. Numbers only grow: one above all that are known was not given, unless Nimbus ran elsewhere then."""
    if known and epoch > max(known):
        return NotFound(
            f"no move {epoch} of topology {name!r} is known: the latest that is has the number {max(known)}",
            remedy=f"all that are known: {settings.command('moves', name)} (a Nimbus knows of those that ended under one of its machine)",
        )
    newest = ", ".join(str(n) for n in known[:10]) or "none"
    return NotFound(
        f"topology {name!r} has no move {epoch} that is still known",
        remedy=f"the newest that are: {newest}; move {epoch} is forgotten (`{settings.command('events', name)}` may tell of it), was an"
        " earlier topology's (where its numbers ended, this one's began), or never was",
    )


MOVE_COLUMNS = [
    Column("TOPOLOGY", "topology"),
    Column("MOVE", lambda r: r["epoch"] or None, right=True),
    Column("STATE", "state", status=True),
    Column("TASKS", outcome),
    Column("SIZE", lambda r: output.size(r["size"]) if r["size"] else None, right=True),
    Column("PAUSE", lambda r: pause(r["tasks"], r["pause"]), right=True),
    Column("AT RECEIVERS", lambda r: milliseconds(r["gap"]) if r["gap"] else None, right=True),
    Column("BEGAN", lambda r: output.clock(r["began"]) if r["began"] else None),
    Column("TOOK", lambda r: output.duration(_took(r)) if r["began"] else None, right=True),
    Column("WHY", "why"),
]


def _took(move: Row) -> float:
    return max(0.0, float(move["ended"] or time.time()) - float(move["began"]))


def _list(settings: Settings, name: str | None, found: Sequence[MoveView]) -> None:
    if not found:
        note(f"No moves{' of ' + name if name else ''} yet. Move tasks: {settings.command('move', '--help')}")
        return
    output.table(settings, MOVE_COLUMNS, [present.move(m) for m in found])
    for m in found:
        for sentence in m.waits:
            note(f"{m.topology}{', move ' + str(m.epoch) if m.epoch else ''}: {sentence}")


def _one(settings: Settings, one: MoveView) -> None:
    plain = present.move(one)
    output.pairs(
        settings,
        [
            ("Topology", one.topology),
            ("Move", one.epoch),
            ("State", one.state),
            ("Why", one.why),
            ("Began", output.clock(one.began)),
            ("Took", output.duration(_took(plain))),
            ("Tasks", outcome(plain) if one.state == "ended" else steps(one.tasks)),
            ("State moved", output.size(plain["size"])),
            ("Longest pause", pause(plain["tasks"], plain["pause"])),
            ("At receivers", milliseconds(plain["gap"]) if plain["gap"] else None),
        ],
    )
    click.echo()
    output.heading(settings, "Tasks")
    show_tasks(settings, [one])
    click.echo()
    output.heading(settings, "Steps, relative to the pause")
    output.table(
        settings,
        [
            Column("TASK", "task", right=True),
            *(Column(s.upper(), lambda r, s=s: _relative(r, s), right=True) for s in STEPS),  # type: ignore[misc]
            Column("ATTEMPT", "attempt", right=True),
        ],
        task_rows([one]),
    )
    if one.waits:
        click.echo()
        output.heading(settings, "Waits")
        for sentence in one.waits:
            click.echo(f"  {sentence}")


def _relative(row: Row, step: str) -> str | None:
    """When a step was, after the pause began."""
    at = row["times"].get(step)
    if at is None:
        return None
    began = row["times"].get("paused")
    return output.clock(at)[11:] if began is None else f"{1000 * (at - began):+,.1f} ms"


def _watch(settings: Settings, name: str) -> None:
    told: dict[tuple[str, int, float], str] = {}
    first = True
    with leaving("the moves go on."), settings.connect() as client:
        client.on_lost(lost)
        for changed in client.follow_moves(name):
            for m in changed:
                key = (str(m.topology), m.epoch, m.began)
                old, told[key] = told.get(key, ""), m.state
                if (first and m.state == "ended") or old == "ended":
                    continue
                if settings.output != "table":
                    output.write(settings, present.move(m), one_line=True)
                elif old != m.state:
                    _line(settings, m)
            first = False


def _line(settings: Settings, m: MoveView) -> None:
    plain = present.move(m)
    state = m.state.ljust(8)
    if settings.color and m.state in output.STATUS_COLORS:
        state = click.style(state, fg=output.STATUS_COLORS[m.state])
    says = cost([plain]) if m.state == "ended" else f"{counted(len(m.tasks), 'task')}: {m.why}"
    click.echo(f"{output.clock(m.ended or time.time())}  {m.topology}  move {m.epoch}  {state}  {says}")
