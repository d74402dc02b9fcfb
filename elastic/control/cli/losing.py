"""Tasks that have begun anew, without their state, while a request was to move them: by its moves, or, when their process had ended before
one began, by what is heard of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from elastic.control.cli.moving import Telling
from elastic.control.cli.narration import Waiting
from elastic.control.cli.settings import Settings
from elastic.control.move_words import ANEW
from elastic.errors import Refused
from elastic.model.events import Event
from elastic.model.ids import Incarnation, WorkerId, worker_of
from elastic.model.views import MoveView, TaskMoveView
from elastic.model.words import counted

SOON = 3.0
"""Seconds that the word of it is waited for when a process has ended: it comes with the reports of whoever starts the tasks anew."""
Lost = Mapping[tuple[str, int], WorkerId]
"""The worker that each had run in, by topology and task."""
NAMED = 5
"""Tasks that an error names; the others are counted."""


class Losses(Telling):
    """Hears of them while a request is under way.

    Args:
        topology: Whose; "" for all.
    """

    def __init__(self, settings: Settings, waiting: Waiting, topology: str) -> None:
        super().__init__(settings, waiting, lambda event: False, self._heard)
        self._topology = topology
        self._changed = threading.Condition()
        self._lost: dict[tuple[str, int], WorkerId] = {}
        self._ended: set[str] = set()  # topologies of which a process has ended

    def found(self) -> Lost:
        """What has been heard; after a moment, if a process has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended <= {name for name, _ in self._lost}, SOON)
            return dict(self._lost)

    def _heard(self, event: Event) -> None:
        if self._topology in ("", event.topology):
            with self._changed:
                self._hear(event)
                self._changed.notify_all()

    def _hear(self, event: Event) -> None:
        name, details = str(event.topology), event.details
        if event.kind == "worker-lost":
            self._ended.add(name)
        elif event.kind == "state-lost":
            before = worker_of(Incarnation(str(details.get("before", ""))))
            for task in str(details.get("tasks", "")).replace(",", " ").split():
                self._lost[name, int(task)] = before


def refuse_anew(
    settings: Settings,
    moves: Iterable[MoveView],
    counts: Callable[[MoveView, TaskMoveView], bool],
    where: Callable[[TaskMoveView], str],
) -> None:
    """Say of tasks that have not taken along what they had that they haven't.

    Args:
        moves: What a request has caused, and maybe others besides.
        counts: Whether a task of a move is one that the request was to move.
        where: Where the task is by now, e.g. `now in worker wc@node-1/0`.

    Raises:
        Refused: Some have begun anew, wherever that is: they were to move with their state. Of one topology it names some of its tasks;
            of several, only the first.
    """
    anew: dict[str, dict[int, TaskMoveView]] = {}
    for m in moves:
        for t in m.tasks:
            if t.phase in ANEW and counts(m, t):
                anew.setdefault(m.topology, {})[t.task] = t
    if not anew:
        return
    name, tasks = min(anew.items())
    said = [f"task {n} ({where(t)}): {t.reason or 'its state is lost'}" for n, t in sorted(tasks.items())]
    more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
    others = f"; and tasks of {', '.join(sorted(anew.keys() - {name}))}" if len(anew) > 1 else ""
    raise _refused(settings, name, len(said), f": {'; '.join(said[:NAMED])}{more}{others}")


def refuse_lost(
    settings: Settings,
    lost: Lost,
    places: Mapping[Any, WorkerId] | None,
    moves: Iterable[MoveView] = (),
) -> None:
    """Say of tasks that they have begun anew where they were to move to, or have moved to just before.

    Args:
        places: Where each task of the topology is by now: those that are where they were are none of the request. None: all are.
        moves: What the request has caused: their tasks are all its own.

    Raises:
        Refused: Some have. Of several topologies it names only the first.
    """
    own = {(str(m.topology), int(t.task)) for m in moves for t in m.tasks}
    anew = {
        (name, task): before
        for (name, task), before in lost.items()
        if places is None or places.get(task) != before or (name, task) in own
    }
    if not anew:
        return
    name = min(name for name, _ in anew)
    tasks = sorted((task, before) for (of, task), before in anew.items() if of == name)
    said = ", ".join(f"task {task} (of worker {before})" for task, before in tasks[:NAMED])
    more = f", and {len(tasks) - NAMED} more" if len(tasks) > NAMED else ""
    raise _refused(
        settings, name, len(tasks), f" without state, as the process that had it ended: {said}{more}"
    )


def _refused(settings: Settings, name: str, tasks: int, said: str) -> Refused:
    return Refused(
        f"topology {name!r}: {counted(tasks, 'task')} began anew{said}",
        remedy=f"what is lost does not come back; {settings.command('events', name)} tells what ended, and when",
    )


def told(lost: Lost) -> list[str]:
    """The same in sentences, one for each topology."""
    by: dict[str, list[int]] = {}
    for name, task in sorted(lost):
        by.setdefault(name, []).append(task)
    return [
        f"{name}: {counted(len(tasks), 'task')} began anew without state: {', '.join(map(str, tasks))}."
        for name, tasks in by.items()
    ]
