"""Workers that take part in moves as the protocol says, without running anything: they write marks, and nothing else."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from coordination_harness import PATIENCE, Service

from elastic.coordination import paths
from elastic.errors import ElasticError
from elastic.migration.record import (
    FailedMark,
    Marks,
    MoveRecord,
    Phase,
    SavedMark,
    TaskMove,
    encode_marks,
    stage_of,
)
from elastic.model.ids import Incarnation, TopologyName, worker_of
from elastic.nimbus.observing.facts import MoveFacts
from elastic.nimbus.observing.mirror import Mirror

STEPS = ("asked", "prepared", "saved", "restored", "closed")


class Actors:
    """Takes part for every living worker of every topology.

    Attributes:
        held: Steps that nobody takes until `let` says so.
        held_of: Steps that nobody takes for a task until `let` says so.
        only: The topology in which they are held; None: in all.
        fails: Why a side says that it can't, by (step, task).
    """

    def __init__(self, service: Service) -> None:
        self.held: set[str] = set()
        self.held_of: set[tuple[str, int]] = set()
        self.only: TopologyName | None = None
        self.fails: dict[tuple[str, int], str] = {}
        self.session = service.connect()
        self.mirror = Mirror(self.session)
        self._over = False
        self._thread = threading.Thread(target=self._run, name="actors", daemon=True)
        self._thread.start()

    def hold(self, *steps: str) -> None:
        self.held |= set(steps)

    def hold_of(self, step: str, *tasks: int) -> None:
        self.held_of |= {(step, n) for n in tasks}

    def let(self, *steps: str) -> None:
        """Let steps be taken; all when none is named."""
        self.held -= set(steps or STEPS)
        self.held_of = {(s, n) for s, n in self.held_of if s not in (steps or STEPS)}
        self.mirror.nudge()

    def close(self) -> None:
        self._over = True
        self.mirror.nudge()
        self._thread.join(PATIENCE)
        self.mirror.close()

    def _run(self) -> None:
        seen = -1
        while not self._over:
            self.mirror.wait_for(lambda: self._over or self.mirror.revision != seen, PATIENCE)  # noqa: B023
            seen = self.mirror.revision
            for t in self.mirror.facts(time.time(), {}).topologies.values():
                for move in t.moves.values():
                    for one, marked in move.marks.items():
                        info = t.workers.get(worker_of(one))
                        if info is None or info.incarnation != one:
                            continue
                        new = self._marks(one, marked.marks, move)
                        if new != marked.marks:
                            path = paths.move_marks(t.name, move.record.epoch, one)
                            try:
                                self.session.set(path, encode_marks(new), version=marked.version)
                            except ElasticError:
                                self.mirror.nudge()  # somebody was first, or it is gone: look again

    def _marks(self, me: Incarnation, marks: Marks, move: MoveFacts) -> Marks:
        record = move.record
        for task in record.tasks:
            if not task.outcome:
                phase, _ = stage_of(task, record, move.marks, move.turn)
                marks = self._of(me, marks, task, phase, self._held(record))
        if record.settled and "closed" not in self._held(record):
            marks = replace(marks, closed=True)
        return marks

    def _held(self, record: MoveRecord) -> set[str]:
        return self.held if self.only in (None, record.topology) else set()

    def _of(self, me: Incarnation, marks: Marks, task: TaskMove, phase: Phase, held: set[str]) -> Marks:
        n = task.task

        def may(step: str, attempt: int) -> bool:
            nonlocal marks
            if step in held or (step, n) in self.held_of:
                return False
            why = self.fails.get((step, n))
            if why is not None:
                marks = replace(marks, failed={**marks.failed, n: FailedMark(attempt, why, "gone" in why)})
            return why is None

        if task.source == me:
            if phase >= Phase.PREPARING and n not in marks.asked and may("asked", 0):
                marks = replace(marks, asked=tuple(sorted({*marks.asked, n})))
            free = n not in marks.saved and n not in marks.barred
            if phase is Phase.PAUSED and free and may("saved", 0):
                nodes = (task.source_node, task.target_node)
                marks = replace(marks, saved={**marks.saved, n: SavedMark(nodes, 100 + n)})
        if task.target == me and marks.revoked.get(n, 0) < task.attempt:
            # It has it still, and asks nobody.
            if task.source == me and phase is Phase.SAVED and "restored" not in held:
                return replace(marks, restored={**marks.restored, n: task.attempt})
            new = marks.prepared.get(n) != task.attempt
            if phase >= Phase.PREPARING and new and may("prepared", task.attempt):
                marks = replace(marks, prepared={**marks.prepared, n: task.attempt})
            new = marks.restored.get(n) != task.attempt
            if phase is Phase.SAVED and new and may("restored", task.attempt):
                marks = replace(marks, restored={**marks.restored, n: task.attempt})
        return marks
