"""What goes wrong while a topology runs, told on standard error without a flood."""

from __future__ import annotations

import threading
from collections.abc import Callable

import click

from elastic.control.cli.narration import note
from elastic.control.cli.output import traceback_text
from elastic.errors import ExecutionError
from elastic.model.events import Event, Severity

MOST_TRACEBACKS = 5


class Troubles:
    """Collects what goes wrong while a topology runs, to tell it between two lines of progress.

    Tracebacks that are the same but for values are told once; the number of those that are kept is bounded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._lines: list[str] = []
        self._hidden = 0
        self._fatal: Event | None = None
        self._end: Event | None = None

    def on_event(self, event: Event) -> None:
        """Called on any thread."""
        if event.kind == "executor-failed":
            # What ends the topology is raised as its error, and told by that.
            self._fatal = self._fatal or event
            return
        if event.kind == "topology-failed":
            self._end = event
        if event.severity is Severity.INFO or event.kind.startswith("topology-"):
            return
        trace = traceback_text(str(event.details.get("traceback", "")))
        where = f"{event.kind} {event.component} {trace.rpartition(chr(10))[0] or event.message}"
        with self._lock:
            if where in self._told:
                return
            if len(self._told) >= MOST_TRACEBACKS:
                self._hidden += 1
                return
            self._told.add(where)
            color = "red" if event.severity is Severity.ERROR else "yellow"
            label = click.style(f"{event.severity.value}: ", fg=color)
            self._lines.append((trace + "\n" if trace else "") + label + event.message)

    def explain(self, name: str, error: ExecutionError) -> ExecutionError:
        """The error to end with: the user's traceback apart from the sentence that says what failed."""
        # Workers tell on a way of their own: that the topology has ended may come before what has ended it, and has that traceback.
        found = self._fatal or self._end
        if found is None:
            return error
        said = f"{name} failed: {found.message}" if found is self._fatal else error.message
        made = ExecutionError(said, remedy=error.remedy)
        setattr(made, "user_traceback", traceback_text(str(found.details.get("traceback", ""))))  # noqa: B010
        return made

    def tell(self, write: Callable[[str], None] = note) -> None:
        """Write what has come since the last time."""
        with self._lock:
            lines, self._lines = self._lines, []
            hidden, self._hidden = self._hidden, 0
        for line in lines:
            write(line)
        if hidden:
            write(f"and {hidden} more warnings and errors.")
