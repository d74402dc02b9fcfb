"""What the cluster's own logs say at the end of a run: faults that were dealt with and told nobody, and processes that ended unasked."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from chaos.rounds import Kill
from elastic.supervisor.ports import SESSION_LOST

RUN = "chaos.log"
"""The run's own log."""
MOST = 20
"""Faults of one log that are told."""
_RECORD = re.compile(r"\d{4}-\d\d-\d\d [\d:]+,\d+ ([A-Z]+) (\S+): ")
_FAULT = re.compile(
    r'a fault in elastic|ProtocolViolation|Exception in thread (?!"hz\.[^"]*" java\.util\.concurrent\.RejectedExecutionException)'
)
"""A Hazelcast member that shuts down ends its executors before those of its own tasks that would have themselves called again."""
_CLIENTS = ("hazelcast", "kazoo")
"""Libraries that note down why a connection has broken: whoever was at its other end was killed."""
_TRACEBACK = "Traceback (most recent call last):"
_ITSELF = re.compile(r"ended (by|with) ")
_END = re.compile(r"(nimbus-\d+|zookeeper|node (\S+), generation \d+): (it (?:was ended by|ended with) .*)")


def faults(directory: Path) -> Iterator[str]:
    """Faults in elastic and tracebacks in the logs of a run, with file and line.

    A traceback beside a warning is the reason for something that elastic deals with, such as a state that is not saved as its store has
    died.

    Args:
        directory: Of the run: all logs in it are read, but for its own.
    """
    for path in sorted(directory.rglob("*.log")):
        if path != directory / RUN:
            found = list(_faults(path))
            yield from (f"{path.relative_to(directory)}:{line}: {text}" for line, text in found[:MOST])


def _faults(path: Path) -> Iterator[tuple[int, str]]:
    record, excused, told = "", False, False
    with path.open(errors="replace") as file:
        for number, line in enumerate(file, 1):
            if head := _RECORD.match(line):
                excused = head[1] == "WARNING" or head[2].startswith(_CLIENTS)
                record, told = line, False
            fault = _FAULT.search(line) is not None
            traceback = line.startswith(_TRACEBACK) and not excused
            if (fault or traceback) and not told:
                told = True  # one that comes of another one is of the same record
                yield number, (line if fault else record or line).strip()[:300]


def ended(
    log: Path, events: Iterable[dict[str, Any]], kills: Sequence[Kill], beyond: Collection[str] = ()
) -> Iterator[str]:
    """Nimbuses, ZooKeeper, nodes and their state stores that ended unasked, and not as chaos kills.

    Args:
        log: With what the launcher says, which has started them.
        events: Of the whole cluster.
        kills: Of all accounts. Who was frozen ends when it goes on, as its session is over.
        beyond: Nodes that were cut off: so do they, and as long as they are, their next lives, which reach nobody.
    """
    frozen = any(k.round.frozen for k in kills)
    for line in log.read_text(errors="replace").splitlines():
        if (found := _END.search(line)) is None or found[3].endswith((" signal 9", " SIGKILL")):
            continue
        session_over = frozen and found[3].endswith(f" exit code {SESSION_LOST}")
        cut_off = found[2] in beyond and " exit code " in found[3]
        if not (session_over or cut_off):
            yield f"{found[1]}: {found[3]}, and nobody had killed it"
    for event in events:
        reason = str(event.get("details", {}).get("reason", ""))
        itself = _ITSELF.search(reason) is not None and not reason.endswith(" signal 9")
        if event["kind"] == "store-lost" and itself:
            yield f"nobody had killed it: {event['message'][:200]}"
