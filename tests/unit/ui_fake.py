"""A cluster for the page in a few lines: its streams go on until they are closed, and bring what a test puts in."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from cli_fake import FakeClient

from elastic.errors import Unavailable
from elastic.model.events import Event
from elastic.model.views import MoveView


class Living(FakeClient):
    """A `FakeClient` whose streams are open."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.changed: queue.SimpleQueue[MoveView | None] = queue.SimpleQueue()
        self.happening: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self.gone = threading.Event()

    def close(self) -> None:
        super().close()
        self.gone.set()
        self.changed.put(None)
        self.happening.put(None)

    def follow_moves(self, topology: str = "") -> Iterator[tuple[MoveView, ...]]:
        yield tuple(reversed(self.moved))
        for move in iter(self.changed.get, None):
            yield (move,)

    def events(
        self, *, since: int = 0, topology: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[tuple[int, Event]]:
        number = 0
        for number, event in enumerate(self.happened, start=1):
            yield number, event
        for event in iter(self.happening.get, None):
            number += 1
            yield number, event


class Somewhere:
    """Where the page finds its cluster: `there` says what it finds; None: nobody answers. `made` has all that it was given."""

    def __init__(self, there: Callable[[], Living] | None = Living) -> None:
        self.there = there
        self.made: list[Living] = []

    def connect(self) -> Living:
        if self.there is None:
            raise Unavailable("No cluster is here.")
        self.made.append(self.there())
        return self.made[-1]
