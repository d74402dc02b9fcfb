"""Narration on standard error: what is going on, and what Ctrl-C leaves behind. Data never goes there."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import click

from elastic.control.cli.failures import Interrupted
from elastic.control.cli.output import duration

PATIENCE = 2.0
"""Seconds of silence before a wait is narrated."""


def note(text: str) -> None:
    """A line of narration."""
    click.echo(text, err=True)


def lost(why: str) -> None:
    """Nimbus is out of reach, or, with "", there again; as `Client.on_lost` tells it."""
    note(said_of(why))


def said_of(why: str) -> str:
    """The sentence for what `Client.on_lost` tells."""
    return f"{why}; trying again" if why else "Nimbus answers again"


@contextmanager
def leaving(left: str | Callable[[], str]) -> Iterator[None]:
    """Turns Ctrl-C inside into `Interrupted(left)`, which says what keeps running.

    Args:
        left: That, or what says it at that moment.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(left if isinstance(left, str) else left()) from None


class StatusLine:
    """One line of a terminal's last row that changes; elsewhere it shows nothing. Not for several threads."""

    def __init__(self) -> None:
        self._drawn = 0

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Show this instead of what is there; cut to the terminal's width."""
        if not sys.stderr.isatty():
            return
        text = text[: max(1, shutil.get_terminal_size().columns - 1)]
        sys.stderr.write("\r" + text.ljust(self._drawn))
        sys.stderr.flush()
        self._drawn = len(text)

    def clear(self) -> None:
        """Remove it, so that a line of its own can be written."""
        if self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
            self._drawn = 0


class Waiting:
    """Narrates a wait: silent for two seconds, then says what is waited for, and for how long already.

    On a terminal it is one line that changes each second, elsewhere a line at 2 s and then at growing distances,
    so that a log keeps few of them.

    Args:
        what: What is under way, e.g. "stopping word-count".
        patience: Seconds before the first word.
    """

    def __init__(self, what: str, *, patience: float = PATIENCE) -> None:
        self._what = self._first = what
        self._lost = ""
        self._patience = patience
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._line = StatusLine()
        self._thread = threading.Thread(target=self._narrate, name="narration", daemon=True)
        self._began = 0.0

    def __enter__(self) -> Waiting:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self._line.clear()

    @property
    def first(self) -> str:
        """What is said when nothing else is known."""
        return self._first

    def becomes(self, what: str) -> None:
        """More is known than at first: say this from now on, and when nothing else is known."""
        with self._lock:
            self._what = self._first = what

    def update(self, what: str) -> None:
        """Say this from now on; "" for what was said at first."""
        with self._lock:
            self._what = what or self._first

    def lost(self, why: str) -> None:
        """Nimbus is out of reach, which is said at once and for as long as it lasts; "": it is there again. On any thread.

        Args:
            why: As `Client.on_lost` tells it.
        """
        with self._lock:
            if why == self._lost:
                return
            self._lost = why
        # On a terminal the line that changes says it; elsewhere the next line may be half a minute away.
        if not sys.stderr.isatty():
            self.line(said_of(why))

    def line(self, text: str) -> None:
        """Write a line of its own, above the one that changes."""
        with self._lock:
            self._line.clear()
            click.echo(text, err=True)

    def _narrate(self) -> None:
        pause = self._patience
        terminal = sys.stderr.isatty()
        while not self._done.wait(pause):
            elapsed = duration(time.monotonic() - self._began)
            with self._lock:
                # First, since a terminal's line is cut at its end.
                said = f"{self._lost}, trying again: {self._what}" if self._lost else self._what
                if terminal:
                    self._line.show(f"… {said} ({elapsed})")
                else:
                    click.echo(f"{said} ({elapsed})", err=True)
            pause = 1.0 if terminal else min(30.0, max(5.0, pause * 2))
