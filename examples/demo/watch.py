"""What the demonstration sees of its topology, and how it shows it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from elastic.control.cli import top
from elastic.control.cli.output import number, share
from elastic.control.client import Client
from elastic.errors import ConfigError, DeadlineExceeded, ElasticError, ExecutionError, NotFound, Unavailable
from elastic.model.events import Event, Severity
from elastic.model.views import TopologyDetail

from .stage import Story

LOOK = 1.0
"""Seconds between two looks."""
LINE = 5.0
"""Seconds between two lines where there is no terminal."""


class Watch:
    """Follows one topology: its events as they come, and a look at everything each second.

    Args:
        address: host:port of Nimbus.
        name: The topology.
    """

    def __init__(self, address: tuple[str, ...], name: str, story: Story) -> None:
        self.name = name
        self.detail: TopologyDetail | None = None
        self.events: list[Event] = []
        self.seconds = 0.0
        self._story = story
        self._began = time.monotonic()
        self._told = 0.0
        self._expected: set[str] = set()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        # A client each: closing it ends what its thread waits for.
        self._clients = [Client(address), Client(address)]
        self._threads = [
            threading.Thread(target=self._follow, args=(self._clients[0],), name="events", daemon=True),
            threading.Thread(target=self._look, args=(self._clients[1],), name="looks", daemon=True),
        ]

    @contextlib.contextmanager
    def following(self) -> Iterator[Watch]:
        """Watch as long as the body runs."""
        with self._story.showing():
            for thread in self._threads:
                thread.start()
            try:
                yield self
            finally:
                self._closing.set()
                for client in self._clients:
                    client.close()
                for thread in self._threads:
                    thread.join(10.0)

    def expect(self, *kinds: str) -> None:
        """Warnings of these kinds are part of the show: they are not told as troubles."""
        self._expected = set(kinds)

    def wait(self, what: str, until: Callable[[], bool], timeout: float, look: float | None = None) -> None:
        """Wait until something is so; looked at whenever something was seen.

        Args:
            timeout: Seconds.
            look: Look at this monotonic time as well.

        Raises:
            ExecutionError: The topology has failed.
            DeadlineExceeded: It is not so after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not until():
                ended = next(
                    (e for e in self.events if e.kind in ("topology-failed", "topology-killed")), None
                )
                if ended is not None:
                    raise ExecutionError(f"While {what} was waited for: {ended.message}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineExceeded(f"{what} did not happen within {timeout:g} s.")
                if look is not None and (soon := look - time.monotonic()) > 0:
                    left = min(left, soon)
                self._changed.wait(left)

    def wait_event(self, kind: str, since: float, timeout: float, worker: str = "") -> Event:
        """Wait for an event that happened after `since` (seconds since 1970); returns it."""
        found: list[Event] = []

        def there() -> bool:
            found.extend(
                e for e in self.events if e.kind == kind and e.time >= since and worker in ("", e.worker)
            )
            return bool(found)

        self.wait(f"the event {kind}", there, timeout)
        return found[0]

    def since(self, kind: str, time: float) -> list[Event]:
        """The events of a kind after a time."""
        with self._changed:
            return [e for e in self.events if e.kind == kind and e.time >= time]

    def not_over(self) -> None:
        """Make sure that it still reads.

        Raises:
            ConfigError: The text was too short.
        """
        if self.since("topology-finished", 0.0):
            raise ConfigError("The text was at its end before all was shown.", remedy="Give more --seconds.")

    # -- threads

    def _follow(self, client: Client) -> None:
        with contextlib.suppress(ElasticError):
            for _, event in client.events(topology=self.name, follow=True):
                with self._changed:
                    self.events.append(event)
                    self._changed.notify_all()
                if event.severity is not Severity.INFO and event.kind not in self._expected:
                    self._story.say(f"  {event.severity.value}: {event.message}")

    def _look(self, client: Client) -> None:
        while not self._closing.is_set():
            detail, trouble = self.detail, ""
            try:
                detail = client.describe(self.name)
            except NotFound:
                return
            except Unavailable as error:
                trouble = error.message
            except ElasticError:
                return
            if detail is not None:
                with self._changed:
                    self.detail = detail
                    self._changed.notify_all()
                self._show(detail, trouble)
            self._closing.wait(LOOK)

    # -- what is shown

    def _show(self, detail: TopologyDetail, trouble: str) -> None:
        live = self._story.live
        if live is not None:
            live.update(
                top.render([detail], trouble, live.console.size.height, "Ctrl-C ends everything."),
                refresh=True,
            )
            return
        now = time.monotonic()
        if now - self._told >= LINE and any(c.executed for c in detail.components):
            self._told = now
            rates = ", ".join(
                f"{c.id} {number(round(c.executed_rate))}/s ({share(c.busy)} busy)" for c in detail.components
            )
            self._story.say(f"  {now - self._began:4.0f} s  {rates}\n          {placement(detail)}")


def placement(detail: TopologyDetail) -> str:
    """Which executors are in which worker, in one line."""
    parts = []
    for worker in detail.workers:
        inside = " ".join(e.id for e in detail.executors if e.worker == worker.worker)
        parts.append(f"{worker.worker.partition('@')[2]}: {inside or '-'}")
    return "   ".join(parts)
