"""How the command line finds the cluster that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic.control.cli.ports import Client
from elastic.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from elastic.control.cli.settings import Settings


def connect(settings: Settings, timeout: float) -> Client:
    """A client of the Nimbus that `settings` names.

    Args:
        timeout: Seconds within which it must answer.

    Raises:
        Unavailable: No cluster of that name runs on this machine, or none of its Nimbuses answers.
    """
    from elastic.control.client import Client as RealClient

    return RealClient(addresses(settings), timeout=timeout)


def addresses(settings: Settings) -> tuple[str, ...]:
    """Where the Nimbuses of the cluster listen, as `host:port`.

    Raises:
        Unavailable: No such cluster runs on this machine.
    """
    if settings.address:
        return (settings.address,)
    from elastic.cluster.directory import read_cluster

    try:
        return read_cluster(settings.home, settings.cluster).nimbus
    except NotFound:
        raise Unavailable(
            f"Cluster {settings.cluster} does not run on this machine (looked in {settings.directory}).",
            remedy=f"Start it with {settings.command('up')}, or name one elsewhere with --address HOST:PORT.",
        ) from None
