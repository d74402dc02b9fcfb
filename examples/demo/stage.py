"""What demonstrations have in common: lines that are told above a live view, and a cluster that is ended however they end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from elastic.cluster.launcher import ClusterInfo, UpOptions, start_background, stop
from elastic.errors import ElasticError, NotFound
from elastic.interrupts import forget
from elastic.signals import insist

if TYPE_CHECKING:
    from rich.live import Live


class Story:
    """What is told: lines on standard output, above the live view when there is one. For several threads."""

    def __init__(self) -> None:
        self.live: Live | None = None
        self._lock = threading.Lock()

    def say(self, text: str = "") -> None:
        """A line. Where nobody reads any more it is dropped: there are still things to put away."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            if self.live is not None:
                self.live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                print(text, flush=True)

    @contextlib.contextmanager
    def showing(self, *, transient: bool = False) -> Iterator[None]:
        """A live view as long as the body lasts, on a terminal; elsewhere none.

        Args:
            transient: It goes away at the end.
        """
        if not sys.stdout.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        with Live(
            console=Console(), auto_refresh=False, transient=transient, vertical_overflow="crop"
        ) as live:
            self.live = live
            try:
                yield
            finally:
                self.live = None


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt once, and not any more when what was started is being ended."""

    def __init__(self) -> None:
        self.caught = False
        self.ending = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        insist()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self.caught = not self.caught, True
        if first and not self.ending:
            raise KeyboardInterrupt


def up(options: UpOptions, story: Story) -> ClusterInfo:
    """Start a cluster, and tell of it."""
    began = time.monotonic()
    story.say(f"Starting a cluster: ZooKeeper, Nimbus, {options.nodes} nodes ({options.host}).")
    info = start_background(options, lambda text: story.say(f"  {text}"))
    story.say(f"The cluster is ready after {time.monotonic() - began:.1f} s.")
    return info


def perform(name: str, body: Callable[[Path], bool], story: Story, *, keep: bool = False) -> int:
    """Do something with a directory of its own, in which it may start a cluster; end that, and remove the directory.

    Args:
        name: Of the directory, in part.
        body: Gets the directory; returns whether all was right.
        keep: Leave the cluster running at the end.

    Returns:
        The exit code: 0 all was right, 1 it was not, 130 interrupted, otherwise that of the error.
    """
    signals = Signals()
    home = Path(tempfile.mkdtemp(prefix=f"elastic-{name}-"))
    began, code = time.monotonic(), 1
    try:
        code = 0 if body(home) else 1
    except KeyboardInterrupt:
        forget()
        story.say("\nInterrupted.")
        code = 130
    except ElasticError as error:
        story.say(f"\nerror: {error}")
        code = error.exit_code
    finally:
        signals.ending = True
        if keep and code != 130:
            story.say(f"The cluster goes on. Look at it: ELASTIC_HOME={home} elastic list")
            story.say(f"End it: ELASTIC_HOME={home} elastic down --purge")
        elif not _tear_down(home, story):
            code = code or 1
    if signals.caught:
        code = 130
    said = f"Done after {time.monotonic() - began:.0f} s." if code == 0 else f"Ended with exit code {code}."
    story.say(said)
    return code


def _tear_down(home: Path, story: Story) -> bool:
    """End the cluster and remove its files; returns whether it could be done."""
    try:
        with contextlib.suppress(NotFound):
            stop(home, "default", purge=True, on_progress=lambda text: story.say(text.capitalize() + "."))
    except ElasticError as error:
        story.say(f"error: {error}\nIts files are in {home}.")
        return False
    shutil.rmtree(home, ignore_errors=True)
    return True
