"""nodes list, add, drain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import click

from elastic.control import present
from elastic.control.cli import output
from elastic.control.cli.arguments import SECONDS, node_argument
from elastic.control.cli.base import Lazy, LazyGroup, command
from elastic.control.cli.losing import Losses, refuse_anew, refuse_lost, told
from elastic.control.cli.move_shown import show_tasks, tell_done
from elastic.control.cli.moving import Following, Request, Telling
from elastic.control.cli.narration import Waiting, leaving, note
from elastic.control.cli.output import Column
from elastic.control.cli.settings import Settings
from elastic.control.move_words import cost
from elastic.errors import DeadlineExceeded, Refused
from elastic.model.events import Event
from elastic.model.ids import node_of
from elastic.model.records import MAX_NODES, MAX_SLOTS
from elastic.model.views import MoveView, TaskMoveView
from elastic.model.words import counted

_HERE = "elastic.control.cli.nodes"

nodes = LazyGroup(
    name="nodes",
    sections={
        "Nodes": {
            "list": Lazy(_HERE, "list_", "List the nodes, their slots and their workers."),
            "add": Lazy(_HERE, "add", "Start more nodes."),
            "drain": Lazy(_HERE, "drain", "Move a node's tasks elsewhere, then end it."),
            "auto": Lazy(
                "elastic.control.cli.elasticity",
                "auto",
                "Let nodes come and go with the load; show whether they do.",
            ),
        }
    },
    help="List, add and drain the nodes that workers run on.\n\nA node is a supervisor with slots; each slot can run"
    " one worker process. A host provides it: this machine (process), or Spark.",
    short_help="List, add and drain the nodes that workers run on.",
    examples=[
        ("elastic nodes list", "what there is"),
        ("elastic nodes add 2", "two more"),
        ("elastic nodes drain node-2", "empty it and give it up"),
    ],
    no_args_is_help=True,
)


@command(
    "list",
    examples=[("elastic nodes list", "all nodes"), ("elastic nodes list -o json", "for programs")],
    see=("nodes add", "nodes drain", "get"),
)
def list_(settings: Settings) -> None:
    """List the nodes, their slots, load and workers.

    USED is slots with a worker, of all. CPU is cores in use, of those that workers may use: nodes on one machine share its.
    MEMORY is what the node's workers use.
    """
    with Waiting(f"asking {settings.target}"), settings.connect() as client:
        rows = [present.node(n) for n in client.nodes()]

    def show() -> None:
        if not rows:
            note(f"No nodes. Start one: {settings.command('nodes', 'add', '1')}")
            return
        output.table(
            settings,
            [
                Column("NODE", "node"),
                Column("STATUS", "status", status=True),
                Column("HOST", "kind"),
                Column("USED", lambda r: f"{r['used']}/{r['slots']}", right=True),
                Column(
                    "CPU",
                    lambda r: f"{r['cpu']:.2f}/{round(r['cores'], 2):g}" if r["cores"] else None,
                    right=True,
                ),
                Column("MEMORY", lambda r: output.size(r["memory"]) if r["memory"] else None, right=True),
                Column("PID", lambda r: r["pid"] or None, right=True),
                Column("ADDRESS", "address"),
                Column("WORKERS", lambda r: ", ".join(r["workers"])),
            ],
            rows,
        )

    output.show(settings, rows, show)


@command(
    "add",
    examples=[
        ("elastic nodes add 1", "one more, like the others"),
        ("elastic nodes add 2 --slots 4 --host spark", "two that Spark provides, with four slots each"),
    ],
    see=("nodes list", "nodes drain", "rebalance"),
)
@click.argument("count", type=click.IntRange(min=1, max=MAX_NODES), metavar="N")
@click.option(
    "--slots", type=click.IntRange(min=1, max=MAX_SLOTS), help="Workers that each may run [as the others]."
)
@click.option("--host", type=click.Choice(["process", "spark"]), help="What provides them [as the others].")
@click.option(
    "--wait", type=SECONDS, default=60.0, show_default="60s", help="Wait so long until they have joined."
)
def add(settings: Settings, count: int, slots: int | None, host: str | None, wait: float) -> None:
    """Start more nodes.

    Topologies with executors that wait for a slot get them at once; others can be spread over them by
    `elastic rebalance NAME`.
    """
    left = f"the nodes, once asked for, go on starting; {settings.command('nodes', 'list')} shows them."
    with Waiting(f"starting {counted(count, 'node')}"), leaving(left), settings.connect() as client:
        names = [str(n) for n in client.add_nodes(count, slots=slots, host=host or "", wait=wait)]

    def show() -> None:
        for name in names:
            click.echo(name)

    output.show(settings, names, show)
    note(f"{counted(len(names), 'node')} joined.")


@command(
    "drain",
    examples=[
        ("elastic nodes drain node-2", "its tasks move elsewhere with their state, then it ends"),
        ("elastic nodes drain node-2 --force", "even if something there finds no other place"),
    ],
    see=("nodes list", "nodes add", "moves"),
)
@node_argument()
@click.option(
    "--wait", type=SECONDS, default=60.0, show_default="60s", help="Wait so long until it is empty and gone."
)
@click.option("--force", is_flag=True, help="Even if tasks find no other place, or lose their state.")
def drain(settings: Settings, node: str, wait: float, force: bool) -> None:
    """Move a node's tasks elsewhere, then end it.

    It gets nothing new from now on. Its tasks move to other nodes with their state, while their streams go on; then
    its workers end, and the node. What finds no free slot elsewhere stays, and waits for one, unless --force is said.
    A task whose process ends before it is saved begins anew, without its state, and that is said (exit code 6, unless
    --force is said).
    No command takes it back: `elastic nodes add 1` gives another node in its place.
    """

    def there(task: TaskMoveView) -> bool:
        return node_of(task.source) == node

    def stays(event: Event) -> bool:
        return event.kind == "node-drain-waits" and event.node == node

    listed, moves_shown = settings.command("nodes", "list"), settings.command("moves")
    request = Request(f"{node} goes on draining; {listed} and {moves_shown} show how far it is.", listed)

    def seen(event: Event) -> None:
        if event.kind == "node-draining" and event.node == node:
            request.taken()
            waiting.becomes(f"draining {node}")

    failed: Refused | DeadlineExceeded | None = None
    with (
        Waiting(f"asking for {node} to be drained") as waiting,
        request.told(),
        settings.connect() as client,
        Telling(settings, waiting, stays, seen),
        Following(
            settings, "", waiting, concerns=there, ours=lambda _: request.is_taken, request=request
        ) as following,
        Losses(settings, waiting, "") as losses,
    ):
        request.asked()
        try:
            client.drain_node(node, wait=wait, force=force)
        except (Refused, DeadlineExceeded) as error:
            failed = error
            caused = following.over(client) if isinstance(error, Refused) else following.so_far(client)
        else:
            if wait > 0:
                request.done()
            request.taken()
            caused = following.settle(client) if wait > 0 else ()
        moves = [_of_those(m, there) for m in caused]
        lost = {of: w for of, w in losses.found().items() if node_of(w) == node} if wait > 0 else {}
    if failed is not None:
        tell_done(settings, {"node": node, "gone": False}, moves)
        raise failed
    plain = [present.move(m) for m in moves]

    def show() -> None:
        if moves:
            show_tasks(settings, moves)

    output.show(settings, {"node": node, "gone": wait > 0, "moves": plain}, show)
    if plain:
        note(f"{cost(plain)}.")
    note(f"{node} is gone." if wait else f"{node} is draining.")
    if force:  # which says that a state may be lost
        if left := _left(moves):
            note(f"What could not be moved has left all the same, and begins anew: {left}.")
        for sentence in told(lost):
            note(sentence)
        return
    refuse_anew(settings, moves, lambda *_: True, lambda task: f"it was to go to {task.target}")
    refuse_lost(settings, lost, None)


def _of_those(move: MoveView, there: Callable[[TaskMoveView], bool]) -> MoveView:
    """What a move has to do with a node: it may move tasks of others as well."""
    return replace(move, tasks=tuple(t for t in move.tasks if there(t)))


def _left(moves: Sequence[MoveView]) -> str:
    """The tasks of which the last move has not moved them, e.g. `task 4 of wc`."""
    last = {(str(m.topology), t.task): t for m in moves for t in m.tasks}
    return ", ".join(f"task {task} of {name}" for (name, task), t in sorted(last.items()) if t.went_back)
