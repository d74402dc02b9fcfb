"""What comes for a task of which everything has been exported, kept until the outcome of its move is known here.

Who emits to it goes on: it knows the outcome, which has not been read here yet. Where the task went may have died, and this process be
the one to start it anew: what is said then is for that life of it. If the task has stayed it is taken afterwards. Senders' windows
bound it.
"""

from __future__ import annotations

from elastic.migration import events as ev

Said = ev.Opened | ev.Arrived | ev.FenceArrived


class Later:
    """See the module."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[int, dict[int, list[Said]]] = {}  # target -> source -> what it has said

    def __bool__(self) -> bool:
        return bool(self._kept)

    def keeps(self, event: Said) -> bool:
        """Whether that is for later, and kept here: from the moment a source has opened its link to go on."""
        links = self._kept.get(event.target, {})
        if event.source not in links and not (isinstance(event, ev.Opened) and not event.epoch):
            return False
        self._kept.setdefault(event.target, links).setdefault(event.source, []).append(event)
        return True

    def of(self, task: int) -> tuple[Said, ...]:
        """What is kept for that task: by source, each in the order in which it came."""
        return tuple(event for events in self._kept.get(task, {}).values() for event in events)

    def take(self, task: int) -> tuple[Said, ...]:
        """The same, and it is not kept any more."""
        said = self.of(task)
        self._kept.pop(task, None)
        return said
