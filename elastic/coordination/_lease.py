"""How long a session surely lives, as far as its client can know. No thread, no clock, no socket.

The server ends a session when nothing has come from its client for the session time-out. What came was sent before: so what a
client may rely on is that time from when the last request that was answered was *sent*. When the answer came says less, as it may
have been long on its way; a notification, for which nobody asked, says nothing.

A server that is down ends no session, and one that starts gives every session its whole time again. So where there is one server
only, a sign that it was down at some moment is worth as much as an answer to what was sent at that moment: whichever server serves
later has begun after it. That holds as long as the session lived until then, which is why a lease that is over stays over. Which sign
is good enough is for the caller to know.

    answered what was sent at t, or down at some time after t, when the lease was not over  ->  deadline = t + GIVE_UP * time-out
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from elastic.coordination.base import GIVE_UP

PING = -2
"""The number that all pings have; other requests have numbers above 0."""


class Lease:
    """See the module. Told of everything by one thread, but for what is sent: that by one at a time, and not while it connects. Any may
    read `deadline`.

    Args:
        timeout: Seconds, until the server has said what it grants.
        on_proof: Told, whenever that becomes later, until when the server surely does not end the session.
    """

    def __init__(self, timeout: float, on_proof: Callable[[float], None] = lambda _: None) -> None:
        self.timeout = timeout
        self._on_proof = on_proof
        self.deadline = math.inf
        """When the client must have given the session up; infinite before there is a session."""
        self._requests: deque[tuple[int, float]] = deque()
        self._pings: deque[float] = deque()

    def granted(self, asked: float, timeout: float) -> None:
        """The server knows the session: it has begun, or goes on.

        Args:
            asked: When that was asked for.
            timeout: Seconds that the server grants.
        """
        self.timeout = timeout
        self._proved(asked)

    def connecting(self) -> None:
        """What was sent by the connection before will not be answered any more."""
        self._requests.clear()
        self._pings.clear()

    def sent(self, number: int, at: float) -> None:
        """A request is about to be sent."""
        if number == PING:
            self._pings.append(at)
        elif number > 0:
            self._requests.append((number, at))

    def answered(self, number: int) -> None:
        """An answer has come. They come in the order of the requests; notifications have numbers that no request has."""
        if number == PING and self._pings:
            self._proved(self._pings.popleft())
        while number > 0 and self._requests:
            one, at = self._requests.popleft()
            if one == number:
                self._proved(at)
                return

    def down(self, at: float) -> bool:
        """The only server there is did not run at some moment after `at`.

        Returns:
            Whether there was a session that still lived then.
        """
        if self.deadline == math.inf or at >= self.deadline:
            return False
        self._proved(at)
        return True

    def _proved(self, at: float) -> None:
        deadline = at + GIVE_UP * self.timeout
        if self.deadline == math.inf or deadline > self.deadline:
            self.deadline = deadline
            self._on_proof(at + self.timeout)
