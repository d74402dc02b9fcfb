"""completion: the script that lets a shell complete words of `elastic`."""

from __future__ import annotations

import click

from elastic.control.cli.base import command
from elastic.control.cli.settings import Settings
from elastic.errors import EnvironmentProblem

VARIABLE = "_ELASTIC_COMPLETE"


@command(
    "completion",
    examples=[
        ('eval "$(elastic completion bash)"', "in ~/.bashrc; likewise zsh in ~/.zshrc"),
        ("elastic completion fish > ~/.config/fish/completions/elastic.fish", "for fish"),
    ],
    see=("list", "nodes list"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(settings: Settings, shell: str) -> None:
    """Print the completion script for a shell.

    Names of topologies, components, workers and nodes are completed too when the cluster answers within
    0.7 s; otherwise silently not.
    """
    from click.shell_completion import get_completion_class

    from elastic.control.cli.app import app

    kind = get_completion_class(shell)
    assert kind is not None
    try:
        script = kind(app, {}, "elastic", VARIABLE).source()
    except (RuntimeError, OSError) as error:
        raise EnvironmentProblem(f"No completion for {shell}: {error}") from None
    click.echo(script)
