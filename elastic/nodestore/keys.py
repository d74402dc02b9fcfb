"""What lies under which key of a node's store."""

from __future__ import annotations

from elastic.model.ids import WorkerId


def allocation(worker: WorkerId) -> str:
    """The worker's `Allocation`, as `elastic.model.codec.encode` writes it."""
    return f"allocation/{worker}"


def life(worker: WorkerId) -> str:
    """The supervisor's note of each process that it started as this worker."""
    return f"life/{worker}"
