"""A task of which something comes ahead: how far that is, who is at it, and who waits for it."""

from __future__ import annotations

import math
import threading

from elastic.migration import actions as ac
from elastic.model.ids import NodeId
from elastic.worker.content import Arrival
from elastic.worker.moving.moving import Side
from elastic.worker.moving.putting_in import PuttingIn
from elastic.worker.moving.stores import StoredState


class Coming:
    """One of them. What is not an event is changed under the lock of `Fetching`, or by the one thread that is at it.

    Attributes:
        last: Set when the old side has saved all of it, or when it is waited for no longer.
        busy: A thread is at it, or is to be.
        queued: That has not begun.
        going_in: What was put in last, or is being put in.
        wanted: What is to be answered when nobody is at it any more.
        more: There is something that nobody has looked at.
        news: Set when there is, or may be.
        took: Seconds that the last look has taken.
        fetched: It was said that it has come ahead; what is looked for from then on is what has changed since.
        looks: At what was copied ahead once all of it was, each counted once or twice (`fetching.OUTRUN`).
        until: The monotonic time at which these end.
        before: Seconds that the look before the last one has taken.
        followed: Looks since it had caught up.
        caught_up: All was copied that the last look could find, but for what changes all the time.
        whole: What that look has found and put in, if it is what the old side has saved last. It saves once in a move: nothing else can
            be called saved, and no store need be asked for it again.
    """

    def __init__(self, side: Side, nodes: tuple[NodeId, ...]) -> None:
        self.side, self.nodes = side, nodes
        self.arrival: Arrival | None = None
        self.last = threading.Event()
        self.busy = self.queued = True
        self.more, self.took, self.followed = False, 0.0, 0
        self.fetched, self.looks = False, 0
        self.until = self.before = math.inf
        self.going_in: PuttingIn | None = None
        self.news = threading.Event()
        self.wanted: ac.Fetch | None = None
        self.caught_up = False
        self.whole: StoredState | None = None

    def stop(self) -> None:
        """Whoever waits for something of it need not any more."""
        self.last.set()
        self.news.set()

    @property
    def over(self) -> bool:
        """Nothing is put in ahead any more."""
        return self.arrival is not None and self.arrival.over
