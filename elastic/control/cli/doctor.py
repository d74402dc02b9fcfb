"""doctor: what this machine has and lacks. The looks themselves are in `checks.py`."""

from __future__ import annotations

import click

from elastic.control.cli import output
from elastic.control.cli.base import command
from elastic.control.cli.checks import PROBLEM, WARNING, examine
from elastic.control.cli.failures import Outcome
from elastic.control.cli.narration import Waiting, note
from elastic.control.cli.output import Column
from elastic.control.cli.settings import Settings
from elastic.errors import EnvironmentProblem
from elastic.model.words import counted


@command(
    "doctor",
    examples=[
        ("elastic doctor", "each check, and a remedy for what is not well"),
        ("elastic doctor -o json | jq '.[] | select(.status != \"ok\")'", "only what is not well"),
    ],
    see=("up", "down"),
)
def doctor(settings: Settings) -> None:
    """Say what this machine lacks, and how to get it.

    Looks at Python, packages, Java, ZooKeeper, the network, the home directory, and at clusters that run or were
    left behind. Changes nothing. The exit code is 11 when there is a problem; warnings don't count.
    """
    with Waiting("looking at this machine"):
        found = examine(settings)
    rows = [{"check": c.name, "status": c.status, "message": c.message, "remedy": c.remedy} for c in found]

    def show() -> None:
        output.table(
            settings,
            [Column("STATUS", "status", status=True), Column("CHECK", "check"), Column("", "message")],
            rows,
        )
        for check in found:
            if check.remedy:
                click.echo()
                click.echo(f"{check.name}: {check.message}")
                click.echo("  " + check.remedy.replace("\n", "\n  "))

    output.show(settings, rows, show)
    problems = sum(c.status == PROBLEM for c in found)
    warnings = sum(c.status == WARNING for c in found)
    if problems:
        note(f"{counted(problems, 'problem')}: elastic will not work fully until that is put right.")
        raise Outcome(EnvironmentProblem.exit_code)
    note("All is well." if not warnings else f"{counted(warnings, 'warning')}; elastic works.")
