"""What the client answers, beside the values of the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """What a Nimbus says about itself and its cluster.

    Attributes:
        cluster: The cluster's name.
        version: Of elastic, there.
        leader: `host:port` of the leading Nimbus; "" while there is none.
        address: `host:port` of the one that answered.
        leading: Whether that is the leader.
        uptime: Seconds since it was started.
        python: The version of Python there.
    """

    cluster: str
    version: str
    leader: str
    address: str
    leading: bool
    uptime: float
    python: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a worker's log; `text` has no line end. Very long lines come in pieces."""

    worker: str
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class WorkerStacks:
    """What the threads of one worker are doing, as text."""

    worker: str
    node: str
    text: str
