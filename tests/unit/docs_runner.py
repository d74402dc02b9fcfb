"""Runs what the documentation shows: its Python, its `elastic run`s, and the output that it says they have.

A page is a row of programs. Every `## ` heading begins a new one: the Python blocks below it share one namespace and are
run in order, in a directory with a small text file `a.txt` and the folder `examples`. What stands after the language on a fence says more:

    ```python                       run it
    ```python file=word_count.py    also save it under that name, for the shell and for imports
    ```python raises=ConfigError    it must raise an error of that class
    ```python needs=cluster         only compile it, and carry out its imports
    ```text output                  what the block before prints, exactly
    ```sh                           lines that begin with `elastic run` are run; of other commands of `elastic` the words are checked
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

TEXT = "the quick brown fox\njumps over the lazy dog\nthe end\n"

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

_FENCE = re.compile(r"^```(\w*)[ \t]*(.*)$")


class Wrong(AssertionError):
    """The documentation says something that is not so."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: The page's name.
        line: Where its code begins in the page, from 1.
        language: The first word on the fence.
        options: The other words: `name=value`, or `name` alone.
        program: The number of the program on the page that it belongs to.
    """

    page: str
    line: int
    language: str
    options: dict[str, str]
    program: int
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, text: str) -> Iterator[Block]:
    """All fenced blocks of a page."""
    program = 0
    inside: tuple[int, str, dict[str, str]] | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None:
            if line.startswith("## "):
                program += 1
            elif fence:
                words = (word.partition("=") for word in fence[2].split())
                inside, lines = (number + 1, fence[1], {n: v for n, _, v in words}), []
        elif line == "```":
            yield Block(page, *inside, program, "\n".join(lines) + "\n")
            inside = None
        else:
            lines.append(line)
    if inside is not None:
        raise Wrong(f"{page}:{inside[0]}: the block does not end")


@dataclass
class Runner:
    """Runs the programs of pages, in a directory that it fills.

    Attributes:
        directory: Where the present program works.
    """

    directory: Path
    _namespace: dict[str, Any] = field(default_factory=dict)
    _printed: str = ""
    _program: tuple[str, int] = ("", -1)

    def run(self, page: str, text: str) -> int:
        """Run a page; returns how many blocks were run or checked.

        Raises:
            Wrong: Something is not as the page says; the message begins with the place.
        """
        count = 0
        root = self.directory
        for block in blocks(page, text):
            if (page, block.program) != self._program:
                self._begin(root, block)
            count += self._one(block)
        return count

    def _begin(self, root: Path, block: Block) -> None:
        self._program = (block.page, block.program)
        self._namespace = {"__name__": "__main__"}
        self._printed = ""
        self.directory = root / f"{Path(block.page).stem}-{block.program}"
        self.directory.mkdir(parents=True)
        (self.directory / "a.txt").write_text(TEXT)
        (self.directory / "examples").symlink_to(EXAMPLES)
        os.chdir(self.directory)

    def _one(self, block: Block) -> int:
        if block.language == "python":
            self._python(block)
        elif block.language == "sh":
            self._shell(block)
        elif block.language == "text" and "output" in block.options:
            if block.code.strip() != self._printed.strip():
                raise Wrong(f"{block.place}: printed was\n{self._printed}\nand not\n{block.code}")
        else:
            return 0
        return 1

    def _python(self, block: Block) -> None:
        try:
            tree = ast.parse(block.code)
        except SyntaxError as error:
            raise Wrong(f"{block.place}: {error}") from error
        if "file" in block.options:
            (self.directory / block.options["file"]).write_text(block.code)
        if "needs" in block.options:
            tree.body = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
        ast.increment_lineno(tree, block.line - 1)
        code = compile(tree, block.page, "exec", dont_inherit=True)
        printed = io.StringIO()
        wanted = block.options.get("raises")
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, self._namespace)
        except Exception as error:
            if wanted not in {kind.__name__ for kind in type(error).__mro__}:
                raise Wrong(f"{block.place}: {type(error).__name__}: {error}") from error
            printed.write(str(error))
        else:
            if wanted:
                raise Wrong(f"{block.place}: it did not raise {wanted}")
        self._printed = printed.getvalue()

    def _shell(self, block: Block) -> None:
        for number, line in enumerate(block.code.replace("\\\n", "  ").splitlines(), block.line):
            for part in re.split(r"&&|\||;", line.partition(" #")[0]):
                words = part.split()
                if words[:1] != ["elastic"]:
                    continue
                check_command(words[1:], f"{block.page}:{number}")
                if words[1] == "run":
                    self._printed = self._run(words[1:], f"{block.page}:{number}")

    def _run(self, words: list[str], place: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "elastic.control.cli", *words],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise Wrong(f"{place}: ended with {done.returncode}:\n{done.stderr}")
        return done.stdout


def check_command(words: list[str], place: str) -> None:
    """The command exists, and takes these options and arguments; it is not carried out."""
    from elastic.control.cli.app import app

    command: click.Command = app
    context = click.Context(app, info_name="elastic")
    rest = list(words)
    try:
        while isinstance(command, click.Group):
            name = rest.pop(0) if rest else ""
            found = command.get_command(context, name)
            if found is None:
                raise click.UsageError(f"there is no command {name!r}")
            command, context = found, click.Context(found, info_name=name, parent=context)
        if not {"-h", "--help"} & set(rest):
            command.make_context(context.info_name, rest, parent=context.parent)
    except (click.ClickException, click.exceptions.Exit) as error:
        what = error.format_message() if isinstance(error, click.ClickException) else "it only shows its help"
        raise Wrong(f"{place}: elastic {' '.join(words)}: {what}") from error
