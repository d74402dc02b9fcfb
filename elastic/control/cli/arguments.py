"""Arguments that several commands share, with what completes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETION_SECONDS = 0.7
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
"""The largest numbers that requests hold."""

_YEARS = 100

TOPOLOGY_CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Everything after FILE belongs to the topology, also what looks like an option of ours."""


def topology_argument(**kwargs: Any) -> Callable[[Any], Any]:
    """The argument NAME: a topology of the cluster."""
    kwargs.setdefault("metavar", "NAME")
    return click.argument("name", shell_complete=complete_topology, callback=_not_empty, **kwargs)


def _not_empty(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    # An unset variable of a script, say. Where a name may be left out it would mean all topologies.
    if name == "":
        raise click.BadParameter("the name of a topology is empty", ctx, param)
    return name


def node_argument() -> Callable[[Any], Any]:
    """The argument NODE: a node of the cluster."""
    return click.argument("node", metavar="NODE", shell_complete=complete_node)


def complete_topology(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the topologies; nothing when no cluster answers at once."""
    return _names(ctx, incomplete, lambda client: [(str(t.name), str(t.status.value)) for t in client.list()])


def complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the nodes; nothing when no cluster answers at once."""
    return _names(
        ctx, incomplete, lambda client: [(str(n.id), f"{n.used}/{n.slots} slots") for n in client.nodes()]
    )


def complete_part(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Components and workers of the topology that was named before."""

    def parts(client: Any) -> list[tuple[str, str]]:
        detail = client.describe(ctx.params["name"])
        return [(str(c.id), c.kind) for c in detail.components] + [
            (str(w.worker), "worker") for w in detail.workers
        ]

    return _names(ctx, incomplete, parts)


def complete_place(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Nodes, and workers of the topology that was named before."""

    def places(client: Any) -> list[tuple[str, str]]:
        found = [(str(n.id), f"{n.used}/{n.slots} slots") for n in client.nodes()]
        if name := ctx.params.get("name"):
            found += [(str(w.worker), "worker") for w in client.describe(name).workers]
        return found

    return _names(ctx, incomplete, places)


def _names(
    ctx: click.Context, incomplete: str, ask: Callable[[Any], list[tuple[str, str]]]
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from elastic.control.cli.settings import settings_of

    try:
        with settings_of(ctx).connect(timeout=COMPLETION_SECONDS) as client:
            return [CompletionItem(n, help=h) for n, h in sorted(ask(client)) if n.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell that completes words must never see an error
        return []


class Seconds(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A time: `30`, `30s`, `5m`, `2h` or `1d`; a float of seconds."""

    name = "TIME"
    explained = "TIME: 30, 30s, 5m, 2h, 1d or 500ms; a bare number is seconds."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        factor = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
        unit = text.lstrip("0123456789.")
        try:
            seconds = float(text[: len(text) - len(unit)]) * (factor[unit] if unit else 1.0)
        except (KeyError, ValueError):
            self.fail(f"{value!r} is not a time; write 30, 30s, 5m, 2h or 1d.", param, ctx)
        if seconds > _YEARS * 365 * factor["d"]:
            self.fail(f"{value!r} is more than {_YEARS} years.", param, ctx)
        return seconds


SECONDS = Seconds()


class Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number of bytes: `1048576`, `512M` or `4G`."""

    name = "SIZE"
    explained = "SIZE: 512M, 4G, or a number of bytes."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().upper()
        number = text.rstrip("KMG")
        unit = {"": 0, "K": 10, "M": 20, "G": 30}.get(text[len(number) :])
        if unit is None or not number.isdigit():
            self.fail(f"{value!r} is not a size; write 512M, 4G, or bytes.", param, ctx)
        return int(number) << unit


SIZE = Size()
