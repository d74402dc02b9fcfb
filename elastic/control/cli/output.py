"""Data on standard output: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import codecs
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import click

from elastic.control.cli.settings import Settings
from elastic.model.words import clock as clock
from elastic.model.words import duration as duration
from elastic.model.words import number as number
from elastic.model.words import share as share
from elastic.model.words import size as size

Row = Mapping[str, Any]
GAP = "  "
STATUS_COLORS = {
    "active": "green",
    "inactive": "yellow",
    "killed": "yellow",
    "finished": "cyan",
    "failed": "red",
    "ok": "green",
    "warning": "yellow",
    "problem": "red",
    "error": "red",
    "waiting": "yellow",
    "running": "yellow",
    "aborting": "yellow",
    "closing": "yellow",
    "ended": "green",
    "moved": "green",
    "came back": "yellow",
    "stayed": "yellow",
    "started anew": "yellow",
    "lost": "red",
    "alive": "green",
    "draining": "yellow",
    "starting": "yellow",
    "gone": "red",
}


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        title: Its heading.
        key: Which value of the row, or a function of the row.
        right: Align to the right (numbers).
        status: Colour the words of `STATUS_COLORS`.
    """

    title: str
    key: str | Callable[[Row], object]
    right: bool = False
    status: bool = False

    def text(self, row: Row) -> str:
        value = self.key(row) if callable(self.key) else row[self.key]
        return "-" if value is None or value == "" else str(value)


def show(settings: Settings, data: Any, table: Callable[[], None]) -> None:
    """Write one answer: `data` (plain values) as JSON or YAML, or what `table` writes."""
    if settings.output == "table":
        table()
    else:
        write(settings, data)


def show_data(settings: Settings, data: Any) -> None:
    """Write one answer of which there is no table, for programs: what it says to people is said otherwise."""
    show(settings, data, lambda: None)


@contextmanager
def apart(settings: Settings) -> Iterator[None]:
    """Inside, what the user's code prints goes to standard error where data is JSON or YAML: among it would be neither."""
    if settings.output == "table":
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def write(settings: Settings, data: Any, *, one_line: bool = False) -> None:
    """Write plain values as JSON or YAML.

    Args:
        one_line: For entries of a stream: JSON in one line; YAML as a document of its own.
    """
    # JSON is UTF-8, whatever the locale; what both can write in ASCII alone is right everywhere.
    utf_8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
    if settings.output == "json":
        indent = None if one_line else 2
        click.echo(
            json.dumps(_finite(data), indent=indent, ensure_ascii=not utf_8, allow_nan=False, default=str)
        )
        return
    import yaml

    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=utf_8, default_flow_style=False)
    click.echo(("---\n" if one_line else "") + text, nl=False)


def _finite(data: Any) -> Any:
    """Plain values with numbers that JSON does not know as text: "NaN", "Infinity", "-Infinity"."""
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else "Infinity" if data > 0 else "-Infinity"
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data


def table(settings: Settings, columns: Sequence[Column], rows: Sequence[Row], *, indent: str = "") -> None:
    """Write rows under headings, with two spaces between columns and no lines around them."""
    for line in lines_of(columns, rows, color=settings.color):
        click.echo(indent + line)


def lines_of(columns: Sequence[Column], rows: Sequence[Row], *, color: bool = False) -> list[str]:
    """The lines of a table, the heading first."""
    cells = [[c.text(row) for c in columns] for row in rows]
    widths = [max([len(c.title), *(len(line[i]) for line in cells)]) for i, c in enumerate(columns)]
    lines = []
    for at, line in enumerate([[c.title for c in columns], *cells]):
        parts = []
        for column, width, cell in zip(columns, widths, line, strict=True):
            text = cell.rjust(width) if column.right else cell.ljust(width)
            if color and at == 0:
                text = click.style(text, bold=True)
            elif color and column.status and cell in STATUS_COLORS:
                text = click.style(text, fg=STATUS_COLORS[cell])
            parts.append(text)
        lines.append(GAP.join(parts).rstrip())
    return lines


def heading(settings: Settings, text: str) -> None:
    """A line above a part of an answer."""
    click.echo(click.style(text, bold=True) if settings.color else text)


def pairs(settings: Settings, values: Sequence[tuple[str, object]], *, indent: str = "") -> None:
    """Names and values, one a line."""
    width = max((len(name) for name, _ in values), default=0)
    for name, value in values:
        text = "-" if value is None or value == "" else str(value)
        if settings.color and text in STATUS_COLORS:
            text = click.style(text, fg=STATUS_COLORS[text])
        click.echo(f"{indent}{name.ljust(width)}  {text}")


def traceback_text(trace: str) -> str:
    """A traceback out of a worker, for people: the user's files by the names that they have in the bundle."""
    return re.sub(r'(File ")[^"]*/bundles/[0-9a-f]{64}/code/', r"\1", trace.rstrip())


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()
