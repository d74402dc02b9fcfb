"""What is said of a topology's checkpoints, in tables and on the page alike."""

from __future__ import annotations

from elastic.model.views import CheckpointView
from elastic.model.words import counted


def troubles(c: CheckpointView) -> str:
    """The end of a sentence: why the next one was given up, and how often the topology has gone back; or ""."""
    given_up = f"; the next was given up: {c.failed}" if c.failed else ""
    return f"{given_up}; went back {counted(c.back, 'time')}" if c.back else given_up
