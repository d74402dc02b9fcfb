"""The workers' log files: bounded in size and number, with the end of a life at hand."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from elastic.model.ids import TopologyName, WorkerId
from elastic.reporting.base import aside_of

MAX_BYTES = 20 << 20
"""Size at which a log is moved aside to `<name>.1`, replacing the one there: two times this is the most on
disk."""

KEPT = 100
"""Topologies of which a node keeps logs after they have ended: where each run has a name of its own there would be ever more."""

TAIL_BYTES = 4096
TAIL_LINES = 30


def file_of(directory: Path, topology: TopologyName, worker: WorkerId) -> Path:
    """Where a worker's output goes."""
    return directory / "workers" / topology / worker.rpartition("/")[2] / "worker.log"


def files_of(directory: Path, node: str, topology: str) -> Mapping[WorkerId, Path]:
    """The log files of a topology's workers on this node, also of those that have ended."""
    found: dict[WorkerId, Path] = {}
    if Path(topology).name != topology:  # not a name, but a way out of here
        return found
    for path in sorted((directory / "workers" / topology).glob("*/worker.log")):
        found[WorkerId(f"{topology}@{node}/{path.parent.name}")] = path
    return found


def make_room(log: Path, running: Collection[TopologyName], kept: int = KEPT) -> None:
    """Before a topology's first log on this node: remove those of what has written last longest ago, if there are too many.

    Args:
        log: Where a worker's output is going to go (`file_of`).
        running: Topologies that have workers here.
        kept: Of how many others logs may be there, with those to come.
    """
    topology = log.parents[1]
    try:
        if topology.exists():
            return
        others = [path for path in topology.parent.iterdir() if path.name not in running]
        ended = sorted((at, path) for path in others if (at := _written(path)))
    except OSError:  # there are none yet; and what cannot be looked at must not keep a worker from starting
        return
    for _, path in ended[: max(0, len(ended) + 1 - kept)]:
        shutil.rmtree(path, ignore_errors=True)


def _written(topology: Path) -> float:
    """When a worker of it wrote something last, seconds since 1970; 0 where none has."""
    return max((path.stat().st_mtime for path in topology.glob("*/worker.log")), default=0.0)


def trim(path: Path, limit: int = MAX_BYTES) -> bool:
    """Move a log's content aside when it is too large. Its writer goes on in the same file, from the start.

    The writer must append (`O_APPEND`). Lines that it writes between the copy and the cut are lost.

    Returns:
        Whether that was necessary.
    """
    try:
        if path.stat().st_size <= limit:
            return False
        shutil.copyfile(path, aside_of(path))
        os.truncate(path, 0)
    except OSError:  # a full disk must not end what the log is about; the next look tries again
        return False
    return True


def tail(path: Path, since: int = 0) -> str:
    """The last lines of a log, a few kilobytes at most.

    Args:
        since: Where the present life began to write; what is before it is left out. Ignored when the file
        has been
            cut since.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = since if since <= size else 0
            start = max(begin, size - TAIL_BYTES)
            file.seek(start)
            data = file.read(TAIL_BYTES)
    except OSError:
        return ""
    lines = data.decode(errors="replace").splitlines()
    if start > begin:
        lines = lines[1:]  # begins in the middle
    return "\n".join(lines[-TAIL_LINES:])
