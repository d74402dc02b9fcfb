"""The shape of all commands: lazy loading, shared options, and help that teaches."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from elastic.control.cli.settings import SHARED, settings_of, shared_options

F = TypeVar("F", bound=Callable[..., Any])
More = Callable[[], Sequence[tuple[str, Sequence[tuple[str, str]]]]]

_TEXT_DEFAULT = re.compile(r"(?<=\[default: )\((.*?)\)(?=[\];])")


@dataclass(frozen=True)
class Lazy:
    """Where a command is, and the line that lists it, so that listing imports nothing."""

    module: str
    attribute: str
    summary: str


class Command(click.Command):
    """A command whose callback takes the `Settings` first, and whose help ends with examples and relatives.

    Args:
        examples: (command line, what it does) pairs.
        see: Names of related commands.
        more: What the help lists beside options, made when the help is asked for: (heading, (term, text) pairs).
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[tuple[str, str]] = (),
        see: Sequence[str] = (),
        more: More | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.more = more
        self.own_params = list(self.params)
        self.examples = tuple(examples)
        self.see = tuple(see)
        self.params.extend(shared_options())

    def invoke(self, ctx: click.Context) -> Any:
        own = {name: value for name, value in ctx.params.items() if name not in SHARED}
        assert self.callback is not None
        return ctx.invoke(self.callback, settings_of(ctx), **own)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [
            # click puts a default that is given as text into parentheses, as if it were worked out.
            (record[0], _TEXT_DEFAULT.sub(r"\1", record[1]))
            for p in self.get_params(ctx)
            if p.name not in SHARED and isinstance(p, click.Option) and (record := p.get_help_record(ctx))
        ]
        explained = dict.fromkeys(getattr(p.type, "explained", "") for p in self.own_params)
        with formatter.section("Options"):
            formatter.write_dl(own)
            for text in filter(None, explained):
                formatter.write_text(text)
        with formatter.section("Options of every command (elastic --help explains them)"):
            formatter.write_text("--cluster  --address  --home  -o table|json|yaml  -v  --no-color")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, terms in self.more() if self.more is not None else ():
            with formatter.section(heading):
                formatter.write_dl(terms)
        write_examples(formatter, self.examples)
        if self.see:
            formatter.write_paragraph()
            formatter.write_text("See also: " + ", ".join(f"elastic {name}" for name in self.see))


class LazyGroup(click.Group):
    """A group that imports a command's module when it is wanted.

    Args:
        sections: Heading -> {command name -> where it is}, in the order of the help.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, Lazy]],
        examples: Sequence[tuple[str, str]] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.lazy = {name: lazy for commands in sections.values() for name, lazy in commands.items()}
        self.examples = tuple(examples)
        self.params.extend(shared_options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self.lazy.get(cmd_name)
        if lazy is None:
            return None
        command = getattr(importlib.import_module(lazy.module), lazy.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.lazy and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.lazy, n=2)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        records = [r for p in self.get_params(ctx) if (r := p.get_help_record(ctx))]
        with formatter.section("Options of every command (before its name or after it)"):
            formatter.write_dl(records)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.lazy)
        for heading, commands in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), lazy.summary) for name, lazy in commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        formatter.write_paragraph()
        formatter.write_text(f"{ctx.command_path} COMMAND --help explains a command.")


def write_examples(formatter: click.HelpFormatter, examples: Sequence[tuple[str, str]]) -> None:
    """The examples, each on a line that can be copied, under what it does."""
    if not examples:
        return
    with formatter.section("Examples"):
        for line, says in examples:
            formatter.write(f"{'':>{formatter.current_indent}}# {says}\n")
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def command(
    name: str, *, examples: Sequence[tuple[str, str]] = (), see: Sequence[str] = (), **kwargs: Any
) -> Callable[[Callable[..., Any]], Command]:
    """Make a `Command` of a function `f(settings, **own)`; its docstring is the help."""
    return click.command(name, cls=Command, examples=examples, see=see, **kwargs)
