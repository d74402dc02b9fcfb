"""The ends of links that lie in one worker process: of the tasks that run there, and of those that are about to go.

They are made when their task begins, from what it brings, and forgotten when it is somebody else's.
"""

from __future__ import annotations

from elastic.migration.emitter import Emitter
from elastic.migration.plan import Wiring
from elastic.migration.receiver import Receiver
from elastic.migration.role import Actions
from elastic.migration.snapshot import TaskLinks
from elastic.migration.table import EmitterState


class Ends:
    """See the module.

    Args:
        wiring: Which task emits to which.
        buffer_rows: Tuples that an output buffer holds.

    Attributes:
        emitters: The ends at which links begin, by source and target.
        receivers: Those at which they end, in the same way.
    """

    def __init__(self, wiring: Wiring, buffer_rows: int) -> None:
        self.emitters: dict[tuple[int, int], Emitter] = {}
        self.receivers: dict[tuple[int, int], Receiver] = {}
        self._wiring = wiring
        self._buffer_rows = buffer_rows

    @property
    def flow(self) -> bool:
        """Whether nothing is held back at any of them."""
        return all(e.state is EmitterState.FLOWING for e in self.emitters.values())

    def receive(self, task: int, links: TaskLinks) -> list[Actions]:
        """The task takes what comes for it from here on. Returns what has to be done about what had come before that."""
        known = {link.source: link for link in links.inputs}
        closed: list[Actions] = []
        for source in self._wiring.emitters_of(task):
            before = self.receivers.get((source, task))
            if before is not None:
                closed.append(before.close())
            self.receivers[source, task] = Receiver(source, task, known.get(source))
        return closed

    def emit(self, task: int, links: TaskLinks) -> None:
        """The task emits from here on: its links hold until they are told where they lead."""
        known = {link.target: link for link in links.outputs}
        for target in self._wiring.targets_of(task):
            self.emitters[task, target] = Emitter(
                task, target, links.life, self._buffer_rows, known.get(target)
            )

    def fence_is_here(self, source: int, task: int, epoch: int) -> bool:
        """Whether everything up to that source's fence of that move has been taken."""
        receiver = self.receivers.get((source, task))
        return receiver is not None and receiver.reached(epoch)

    def forget_fences(self, task: int, epoch: int) -> None:
        """The move is over, and the task has stayed."""
        for source in self._wiring.emitters_of(task):
            self.receivers[source, task].forget_fence(epoch)

    def export(self, task: int, life: int) -> TaskLinks:
        """What of them has to travel with the task."""
        return TaskLinks(
            life,
            tuple(self.receivers[s, task].export() for s in self._wiring.emitters_of(task)),
            tuple(self.emitters[task, t].export() for t in self._wiring.targets_of(task)),
        )

    def forget(self, task: int) -> list[Actions]:
        """The task is somebody else's. Returns what has to be done about what had come for it and was not taken."""
        closed: list[Actions] = []
        for source in self._wiring.emitters_of(task):
            receiver = self.receivers.pop((source, task), None)
            if receiver is not None:
                closed.append(receiver.close())
        for target in self._wiring.targets_of(task):
            self.emitters.pop((task, target), None)
        return closed
