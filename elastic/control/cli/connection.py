"""How the command line finds the cluster that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic.control.cli.ports import Client
from elastic.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from elastic.control.cli.settings import Settings


class NotRunning(Unavailable):
    """No such cluster runs on this machine."""


def connect(settings: Settings, timeout: float) -> Client:
    """A client of the Nimbus that `settings` names.

    Args:
        timeout: Seconds within which it must answer.

    Raises:
        NotRunning: No cluster of that name runs on this machine.
        Unavailable: None of its Nimbuses answers.
    """
    from elastic.control.client import Client as RealClient

    return RealClient(addresses(settings), timeout=timeout, explain=lambda: fate(settings))


def addresses(settings: Settings) -> tuple[str, ...]:
    """Where the Nimbuses of the cluster listen, as `host:port`.

    Raises:
        NotRunning: No such cluster runs on this machine.
    """
    if settings.address:
        return (settings.address,)
    from elastic.cluster.directory import read_cluster

    try:
        return read_cluster(settings.home, settings.cluster).nimbus
    except NotFound:
        raise NotRunning(
            f"Cluster {settings.cluster} does not run on this machine (looked in {settings.directory}).",
            remedy=f"Start it with {settings.command('up')}, or name one elsewhere with --address HOST:PORT.",
        ) from None


def fate(settings: Settings) -> str:
    """What has become of a cluster on this machine that could be asked before; "" when it runs, and of one elsewhere."""
    if settings.address:
        return ""
    from elastic.cluster.directory import read_cluster

    try:
        ending = read_cluster(settings.home, settings.cluster).ending
    except NotFound:
        return f"Cluster {settings.cluster} has ended meanwhile."
    return f"Cluster {settings.cluster} is being ended." if ending else ""
