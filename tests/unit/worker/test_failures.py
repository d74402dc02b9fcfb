"""Failed tuples: which are told, and what does not end a task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from elastic.worker.failures import Failures


class Played:
    id, context, spec = 2, None, SimpleNamespace(id="sink")


def test_a_flood_of_batches_that_cannot_be_read_drowns_nothing_and_hooks_hear_of_it() -> None:
    """Most likely one tuple of each is to blame: they count, and are no reason to give up."""
    events: list[tuple[str, int]] = []
    heard: list[Exception] = []
    task: Any = Played()
    hook: Any = SimpleNamespace(on_error=lambda context, tup, error: heard.append(error))
    listener: Any = SimpleNamespace(
        on_task_event=lambda task, kind, message, severity, details: events.append((kind, details["failed"]))
    )
    failures = Failures(task, (hook,), 100, listener)
    batch: Any = SimpleNamespace(count=512, source=1)
    for _ in range(50):
        failures.unreadable(batch, TypeError("its __init__ takes two arguments"))
    assert failures.count == 50 * 512 and not failures.broken
    assert events == [("batch-unreadable", 512 * n) for n in (1, 2, 4, 8, 16, 32)]
    assert len(heard) == 50
