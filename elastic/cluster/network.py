"""Which addresses a cluster listens on: loopback alone, unless its user gave another address of this machine."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import TYPE_CHECKING

from elastic.errors import ConfigError, EnvironmentProblem

if TYPE_CHECKING:
    from elastic.cluster.options import UpOptions

LOOPBACK = "127.0.0.1"
AUTO = "auto"
"""Instead of a node's address: the one by which its own machine reaches ZooKeeper."""


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach that address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def check_bind(address: str) -> None:
    """See that others can be told to come to an address.

    Raises:
        ConfigError: It is no IPv4 address, or one of no machine in particular.
    """
    try:
        found = ipaddress.IPv4Address(address)
        good = not (found.is_unspecified or found.is_multicast or address == "255.255.255.255")
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"--bind {address}: nobody can be told to come to that",
            remedy="Give one IPv4 address of this machine, by which the machines of the nodes reach it.",
        )


def check_local(address: str) -> None:
    """See that a server of this machine can listen there.

    Raises:
        EnvironmentProblem: It is not an address of this machine.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            why = "it is not an address of this machine"
            if error.errno != errno.EADDRNOTAVAIL:
                why = error.strerror or str(error)
            raise EnvironmentProblem(
                f"--bind {address}: {why}",
                remedy="`ip -4 addr` (or ifconfig) lists this machine's addresses; without --bind it is loopback.",
            ) from error


def own_address(zookeeper: str) -> str:
    """The address by which this machine reaches ZooKeeper: others that reach ZooKeeper find this machine there.

    Nothing is sent: the system is asked which of its addresses it would send from.

    Args:
        zookeeper: `host:port[,host:port...][/root]`. One member to which there is a way is enough.

    Raises:
        EnvironmentProblem: There is no way to any.
    """
    reasons = []
    for member in zookeeper.partition("/")[0].split(","):
        host, _, port = member.strip().rpartition(":")
        try:
            target = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_DGRAM)[0][4]
            if is_loopback(str(target[0])):
                return str(target[0])  # the system would name 127.0.0.1 for every loopback address
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
        except (OSError, ValueError) as error:
            reasons.append(f"{member}: {error}")
    raise EnvironmentProblem(
        f"no way from this machine to ZooKeeper: {'; '.join(reasons)}",
        remedy="Name an address of the node's machine with --host, or mend names and routes there.",
    )


def warnings(options: UpOptions) -> list[str]:
    """What is to be said about addresses before a cluster starts: who could not reach it, or who could."""
    from elastic.hosts.spark_settings import is_here, shown

    local = is_loopback(options.bind)
    elsewhere = options.host == "spark" and not is_here(options.master or "local")
    said = []
    if not local:
        said.append(
            f"listening on {options.bind}: there is no authentication and no encryption yet, and whoever reaches "
            "it can run code here; use it in a private network only"
        )
    if elsewhere and local:
        said.append(
            f"warning: nodes of {shown(options.master)} on other machines cannot take part: this cluster listens on "
            "loopback only. Give the address of this machine that they reach it by: --bind ADDRESS"
        )
    host = options.zookeeper.partition(",")[0].partition("/")[0].rpartition(":")[0]
    if elsewhere and not local and options.zookeeper and is_loopback(host):
        said.append(
            f"warning: nodes of {shown(options.master)} on other machines cannot reach ZooKeeper at {options.zookeeper}. "
            "Name it by an address that they reach, or leave --zookeeper out"
        )
    return said
