"""The options that every command takes, before its name or after it: which cluster, and how to write."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from elastic.control.cli.ports import Client

FORMATS = ("table", "json", "yaml")
DEFAULT_HOME = "~/.elastic"
DEFAULT_CLUSTER = "default"


@dataclass(frozen=True)
class Settings:
    """What the shared options say, for one command.

    Attributes:
        home: The directory that holds one directory for each cluster; absolute, unless it is below the home directory of a
            user who has none: that is an error only for commands that look into it.
        cluster: The name of the cluster on this machine.
        address: `HOST:PORT` of a Nimbus elsewhere, or "" for the cluster on this machine.
        output: "table", "json" or "yaml".
        verbose: How often `-v` was given.
        color: Whether data on standard output may be coloured.
        connector: Makes the client; tests put their own here.
    """

    home: Path
    cluster: str = DEFAULT_CLUSTER
    address: str = ""
    output: str = "table"
    verbose: int = 0
    color: bool = False
    connector: Callable[[Settings, float], Client] | None = None

    @property
    def directory(self) -> Path:
        """The directory of the cluster."""
        return self.home / self.cluster

    @property
    def target(self) -> str:
        """How a message names the cluster."""
        return f"the cluster at {self.address}" if self.address else f"cluster {self.cluster}"

    def connect(self, *, timeout: float = 30.0) -> Client:
        """A client of the cluster; use it as a context manager.

        Args:
            timeout: Seconds within which a Nimbus must answer.

        Raises:
            Unavailable: No such cluster runs, or it does not answer.
        """
        if self.connector is not None:
            return self.connector(self, timeout)
        from elastic.control.cli.connection import connect

        return connect(self, timeout)

    def command(self, *words: str) -> str:
        """A command for the reader to copy, with the options that lead to the same cluster."""
        parts = ["elastic"]
        if self.address:
            parts += ["--address", quote([self.address])]
        elif self.cluster != DEFAULT_CLUSTER:
            parts += ["--cluster", quote([self.cluster])]
        usual = _place(os.environ.get("ELASTIC_HOME") or DEFAULT_HOME)
        if self.home != usual and not self.address:
            parts += ["--home", quote([str(self.home)])]
        return " ".join([*parts, *words])


def shared_options() -> list[click.Option]:
    """New instances of the shared options (click wants each command to own its parameters)."""
    return [
        click.Option(
            ["--cluster"], metavar="NAME", help="Cluster on this machine [$ELASTIC_CLUSTER; default]."
        ),
        click.Option(["--address"], metavar="HOST:PORT", help="A Nimbus elsewhere [$ELASTIC_ADDRESS]."),
        click.Option(
            ["--home"], metavar="DIR", help="Where clusters keep their files [$ELASTIC_HOME; ~/.elastic]."
        ),
        click.Option(["-o", "--output"], type=click.Choice(FORMATS), help="How data is written [table]."),
        click.Option(["-v", "--verbose"], count=True, help="Say more; with errors, elastic's own traceback."),
        click.Option(["--no-color"], is_flag=True, default=None, help="No colours [$NO_COLOR]."),
    ]


SHARED = ("cluster", "address", "home", "output", "verbose", "no_color")


def settings_of(ctx: click.Context) -> Settings:
    """The settings in force in `ctx`: what is given after the command's name wins over what is given before it."""
    chain: list[click.Context] = []
    current: click.Context | None = ctx
    while current is not None:
        chain.append(current)
        current = current.parent

    def given(name: str, otherwise: Any) -> Any:
        return next((c.params[name] for c in chain if c.params.get(name)), otherwise)

    env = os.environ.get
    cluster = given("cluster", "") or env("ELASTIC_CLUSTER") or DEFAULT_CLUSTER
    if not cluster.strip(".") or "/" in cluster or cluster != cluster.strip():
        raise click.BadParameter(
            f"{cluster!r} cannot be a cluster's name: it names a directory.", param_hint="--cluster"
        )
    # A cluster that is named on the command line is the one on this machine, whatever the environment says.
    address = given("address", "") or ("" if given("cluster", "") else env("ELASTIC_ADDRESS") or "")
    if address and not _is_address(address):
        raise click.BadParameter(f"{address!r} is not HOST:PORT.", param_hint="--address")
    home = given("home", "") or env("ELASTIC_HOME") or DEFAULT_HOME
    connector = ctx.find_object(Connector)
    return Settings(
        home=_place(home),
        cluster=cluster,
        address=address,
        output=given("output", "table"),
        verbose=sum(int(c.params.get("verbose") or 0) for c in chain),
        color=not given("no_color", False) and not env("NO_COLOR") and sys.stdout.isatty(),
        connector=connector.make if connector else None,
    )


@dataclass(frozen=True)
class Connector:
    """How to make a client; given as click's context object it replaces the real one."""

    make: Callable[[Settings, float], Client]


def _place(home: str) -> Path:
    try:
        return Path(home).expanduser().absolute()
    except RuntimeError:
        return Path(home)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536


def quote(words: Sequence[str]) -> str:
    """Words as a shell would take them."""
    import shlex

    return shlex.join(words)
