"""What workers write and hear between the pause of a task and its resume, with a real ZooKeeper and the one in memory.

Whatever is said to the workers from the first mark in the pause on is withheld, but for what the test lets through.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from coordination_harness import PATIENCE, Service

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Versioned
from elastic.migration.record import Marks, decode_marks
from elastic.migration.table import EmitterState
from elastic.worker.moving.words import Words
from tests.unit.worker.moving_harness import Moving, Nimbus
from tests.unit.worker.test_moves import chain, check, tasks_of

COUNT = 4000


class Session:
    """A session that can be kept from hearing anything. Notes what it writes meanwhile."""

    def __init__(self, inner: Coordination) -> None:
        self._inner = inner
        self._news = threading.Condition()
        self._withholds = False
        self._waiting: list[tuple[str, Versioned | None, Callable[[], None]]] = []
        self.heard: list[str] = []
        self.written: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def set(self, path: str, data: bytes, *, version: int = -1) -> int:
        if self._withholds:
            self.written.append(path)
        return self._inner.set(path, data, version=version)

    def begin_set(self, path: str, data: bytes, *, version: int = -1, then: Any) -> None:
        if self._withholds:
            self.written.append(path)
        self._inner.begin_set(path, data, version=version, then=then)

    def watch_value(self, path: str, callback: Any, *, early: Any = None, **more: Any) -> Any:
        return self._inner.watch_value(
            path, self._through(path, True, callback), early=self._through(path, False, early), **more
        )

    def watch_children(self, path: str, callback: Any, *, early: Any = None, **more: Any) -> Any:
        return self._inner.watch_children(
            path, self._through(path, True, callback), early=self._through(path, False, early), **more
        )

    def _through(self, path: str, value: bool, callback: Any) -> Any:
        def told(*arguments: Any) -> None:
            with self._news:
                if self._withholds:
                    new = arguments[0] if value else None
                    self._waiting.append((path, new, lambda: callback(*arguments)))
                    self._news.notify_all()
                    return
            callback(*arguments)

        return told if callback is not None else None

    def withhold(self) -> None:
        with self._news:
            self._withholds = True

    def notify(self, path: str, of: Callable[[Marks], object]) -> None:
        """Let the word of a change of marks there through, when it has come. What was written before may be read late."""

        def has_come() -> bool:
            return any(p == path and new and of(decode_marks(new.data)) for p, new, _ in self._waiting)

        with self._news:
            assert self._news.wait_for(has_come, PATIENCE), f"nothing was said of {path}"
            now = [call for p, _, call in self._waiting if p == path]
            self._waiting = [w for w in self._waiting if w[0] != path]
        self.heard.append(path)
        for call in now:
            call()

    def over(self) -> None:
        """Let all of it through, in the order in which it came: what comes now comes last."""
        while True:
            with self._news:
                now, self._waiting = self._waiting, []
                if not now:
                    self._withholds = False
                    return
            for _, _, call in now:
                call()


class Sessions:
    """Gives them. The first is Nimbus's."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.all: list[Session] = []

    def connect(self) -> Session:
        self.all.append(Session(self._service.connect()))
        return self.all[-1]

    def close(self) -> None:
        """The service is somebody else's."""


@pytest.mark.parametrize("hints", [True, False])
def test_no_other_word_is_needed_from_pause_to_resume(
    service: Service, hints: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task moves from worker 1 to worker 2, while worker 0 emits to it."""
    if not hints:
        monkeypatch.setattr(Words, "saved", lambda self, states: None)
        monkeypatch.setattr(Words, "restored", lambda self, where, epoch, tasks: None)
    topology, name = chain(COUNT, spouts=1, tasks=2, rate=8000.0)
    sessions = Sessions(service)
    with Moving(topology, 3, lambda c, i: int(c == "count"), server=sessions) as cluster:
        (spout,), (task, _) = tasks_of(topology, "numbers"), tasks_of(topology, "count")
        cluster.wait(lambda: cluster.task(task).executed > 100)
        emits, _, comes = sessions.all[1:]
        old, new = cluster.processes[1].me, cluster.processes[2].me
        link = cluster.processes[0].worker.moves.participant.emitters[spout, task]
        nimbus = Nimbus(cluster, {task: 2}, 1.0)
        marks = {i: paths.move_marks(topology.spec.name, nimbus.record.epoch, i) for i in (old, new)}

        def in_the_pause(written: Marks) -> None:
            if written.saved or written.restored:
                for session in sessions.all[1:]:
                    session.withhold()

        def paused() -> bool:
            nimbus.look()
            return nimbus.notifier.record.paused == 1

        cluster.before_marks = in_the_pause
        cluster.wait(paused)
        if not hints:
            comes.notify(marks[old], lambda m: m.saved)
            emits.notify(marks[new], lambda m: m.restored)
        cluster.wait(lambda: link.where == new and link.state is not EmitterState.HOLDING)
        heard = [p for s in sessions.all for p in s.heard]
        assert heard == ([] if hints else [marks[new], marks[old]])
        written = [p for s in sessions.all for p in s.written]
        assert marks[new] in written and len(written) <= 2, written
        cluster.before_marks = lambda marks: None
        for session in sessions.all:
            session.over()
        assert nimbus.run(PATIENCE).tasks[0].outcome
        cluster.wait_finished()
    check(topology, name, COUNT)
