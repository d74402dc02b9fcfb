"""A session's receiving end as pure state: what has arrived, what was consumed, and when to say so. See `session.py`."""

from __future__ import annotations

from elastic.transport.framing import ALL_TARGETS, UNBOUNDED, Report


class _Taken:
    """What a target has consumed, at the receiver."""

    __slots__ = ("asked", "due", "rows", "rows_asked", "rows_due", "total")

    def __init__(self, due: int, rows_due: int) -> None:
        self.total = 0  # bytes
        self.rows = 0
        self.due = due  # report when so many bytes, or so many rows, have been consumed
        self.rows_due = rows_due
        self.asked = 0  # what the sender asked for last
        self.rows_asked = 0


class Inbound:
    """The receiver's end. Not thread-safe.

    Args:
        window: The sender's bound of bytes per target.
        in_flight: The sender's bound of bytes per link.
        window_rows: The sender's bound of rows per target, 0 for none.

    Attributes:
        received: How many frames have arrived since the session began: also the number of the last one.
    """

    __slots__ = (
        "_changed",
        "_confirmed",
        "_quarter",
        "_rows_step",
        "_step",
        "_targets",
        "_unconfirmed",
        "received",
    )

    def __init__(self, window: int, in_flight: int, window_rows: int = 0) -> None:
        self.received = 0
        self._confirmed = 0
        self._unconfirmed = 0  # bytes that arrived since the last confirmation
        self._quarter = max(1, in_flight // 4)
        self._step = max(1, window // 2)
        self._rows_step = max(1, (window_rows or UNBOUNDED) // 2)
        self._targets: dict[int, _Taken] = {}
        self._changed: set[int] = set()

    @property
    def owes(self) -> bool:
        """Whether frames have arrived that are not confirmed."""
        return self.received > self._confirmed

    def arrived(self, frames: int, size: int) -> bool:
        """So many frames were handed on, with `size` bytes read. Returns whether a report is due now."""
        self.received += frames
        self._unconfirmed += size
        return self._unconfirmed >= self._quarter and self.received > self._confirmed

    def consumed(self, target: int, size: int, rows: int = 0) -> bool:
        """A task has taken so many bytes and rows. Returns whether a report is due now."""
        taken = self._targets.get(target) or self._first(target)
        taken.total = total = taken.total + size
        self._changed.add(target)
        if rows:
            taken.rows += rows
            return taken.rows >= taken.rows_due or total >= taken.due
        return total >= taken.due

    def asked(self, target: int, total: int, rows: int) -> bool:
        """The sender asks for a report when both have been consumed. Returns whether one is due now."""
        if target == ALL_TARGETS:
            return self.received > self._confirmed
        taken = self._targets.get(target) or self._first(target)
        taken.asked, taken.rows_asked = total, rows
        if taken.total >= total and taken.rows >= rows:
            self._changed.add(target)
            return True
        # At each of the two, so that the later one is never missed.
        if taken.total < total:
            taken.due = min(taken.due, total)
        if taken.rows < rows:
            taken.rows_due = min(taken.rows_due, rows)
        return False

    def report(self) -> list[Report]:
        """Everything that the sender does not know yet."""
        entries = []
        if self.received > self._confirmed:
            self._confirmed = self.received
            self._unconfirmed = 0
            entries.append((ALL_TARGETS, self.received, 0))
        for target in self._changed:
            taken = self._targets[target]
            taken.due = _next(taken.total, self._step, taken.asked)
            taken.rows_due = _next(taken.rows, self._rows_step, taken.rows_asked)
            entries.append((target, taken.total, taken.rows))
        self._changed.clear()
        return entries

    def resumed(self) -> list[Report]:
        """The pipe is new; `received` is said in the handshake, and this after it: every target's total."""
        self._confirmed = self.received
        self._changed.update(t for t, taken in self._targets.items() if taken.total or taken.rows)
        return self.report()

    def _first(self, target: int) -> _Taken:
        taken = self._targets[target] = _Taken(self._step, self._rows_step)
        return taken


def _next(total: int, step: int, asked: int) -> int:
    """The total at which the next report is due."""
    return min(total + step, asked) if asked > total else total + step
