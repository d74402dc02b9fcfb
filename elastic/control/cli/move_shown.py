"""Moves on the command line: tables of their tasks, and the answers of the commands that cause them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from elastic.control import present
from elastic.control.cli import output
from elastic.control.cli.narration import note
from elastic.control.cli.output import Column
from elastic.control.cli.settings import Settings
from elastic.control.move_words import cost, milliseconds, pause, ranges, task_rows
from elastic.model.views import MoveView

TASK_COLUMNS = [
    Column("TASK", "task", right=True),
    Column("COMPONENT", "component"),
    Column("FROM", "source"),
    Column("TO", "target"),
    Column("OUTCOME", "step", status=True),
    Column("PAUSE", lambda r: pause([r], r["pause"]), right=True),
    Column("AT RECEIVERS", lambda r: milliseconds(r["gap"]) if r["gap"] else None, right=True),
    Column("SIZE", lambda r: output.size(r["size"]) if r["size"] else None, right=True),
]


def show_tasks(settings: Settings, moves: Sequence[MoveView]) -> None:
    """A line for each task of some moves: where from and to, its pause, its bytes; then why some stayed.

    Of which move and topology it is, is said where there are several: numbers of moves are each topology's own.
    """
    rows = task_rows(moves)
    columns = TASK_COLUMNS
    several = len({row["topology"] for row in rows}) > 1
    if len(moves) > 1:
        columns = [Column("MOVE", "move", right=True), *columns]
    if several:
        columns = [Column("TOPOLOGY", "topology"), *columns]
    output.table(settings, columns, rows)
    reasons: dict[tuple[str, int, str], list[int]] = {}
    for row in rows:
        if row["reason"]:
            reasons.setdefault((row["topology"], row["task"], row["reason"]), []).append(row["move"])
    for (topology, task, reason), numbers in reasons.items():
        which = f", move {ranges(numbers)}" if len(moves) > 1 else ""
        whose = f" of {topology}" if several else ""
        click.echo(f"task {task}{whose}{which}: {reason}")


def tell(settings: Settings, data: present.Plain, moves: Sequence[MoveView]) -> None:
    """The answer to a request that moved tasks: `data` and the moves."""
    plain = [present.move(m) for m in moves]

    def show() -> None:
        if moves:
            show_tasks(settings, moves)

    output.show(settings, {**data, "moves": plain}, show)
    if moves:
        numbers = ", ".join(str(m.epoch) for m in moves)
        note(f"{data['topology']}: {cost(plain)} ({'moves' if len(moves) > 1 else 'move'} {numbers}).")


def tell_done(settings: Settings, data: present.Plain, done: Sequence[MoveView]) -> None:
    """What a request has done that has come to an error, which is about to be told."""
    plain = [present.move(m) for m in done]
    if settings.output != "table":
        output.write(settings, {**data, "moves": plain})
    elif done:
        show_tasks(settings, done)
        note(f"{data['topology']}: {cost(plain)}." if "topology" in data else f"{cost(plain)}.")
