"""Families of processes, some of which come and go while they are looked at: who belongs to one, who listens where, who is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def concerned_with(directory: Path) -> list[psutil.Process]:
    """Processes that name a directory in their command lines."""
    return [p for p in psutil.process_iter() if str(directory) in command_of(p)]


def command_of(process: psutil.Process) -> str:
    """Its command line; "" for one that has ended."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def listens(process: psutil.Process) -> Iterator[tuple[str, int]]:
    """Addresses and ports at which a process listens with TCP; one that has ended listens nowhere."""
    try:
        connections = process.net_connections("tcp")
    except psutil.Error:  # what is ending belongs to root, and says nothing to others
        if _runs(process):
            raise
        return
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN:
            yield connection.laddr.ip.removeprefix("::ffff:"), connection.laddr.port  # as gRPC writes IPv4


def left_of(processes: Iterable[psutil.Process], within: float = 60.0) -> list[str]:
    """Those that still run after some time, by their command lines; not those whose end nobody has asked for yet (zombies).

    Args:
        within: Seconds to wait for the last of them.
    """
    _, alive = psutil.wait_procs(list(processes), timeout=within)
    return [command_of(p) or repr(p) for p in alive if _runs(p)]


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
