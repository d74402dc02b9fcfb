"""Marks are said again to the new process of a target, whatever else happens at that moment: else it would wait for them for ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elastic import TopologyBuilder
from elastic.model.ids import ComponentId
from elastic.worker.emitting.crossing import Out
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.tuples.batch import Mark, MarkKind
from tests.unit.worker.harness import Check, InProcess, Lasting, Numbers, Sink, over

PATIENCE = 20.0


def test_end_is_said_to_a_target_that_starts_anew_while_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """One target has heard it, and is gone, before it is said to the next."""
    over.clear()
    said, go_on = threading.Event(), threading.Event()
    put = Outputs._put

    def watched(self: Outputs, out: Out, item: Any) -> None:
        put(self, out, item)
        if self.component.id == "quick" and isinstance(item, Mark) and not said.is_set():
            assert self.emitter is not None
            self.emitter.flush_links()
            said.set()
            assert go_on.wait(PATIENCE)

    monkeypatch.setattr(Outputs, "_put", watched)
    b = TopologyBuilder("end-anew")
    b.spout("quick", Numbers(10))
    b.spout("lasting", Lasting())
    b.bolt("sink", Sink(), tasks=2).shuffle("quick").shuffle("lasting")
    with InProcess(b.build(), 2, place=lambda c, i: int(c == "sink")) as cluster:
        try:
            assert said.wait(PATIENCE)
            cluster.crash(1)
        finally:
            go_on.set()
            over.set()
        cluster.wait_finished(PATIENCE)


def test_who_goes_on_while_it_notes_what_to_say_again_says_it() -> None:
    """Whoever lets it go on is another thread than the one that notes it."""
    b = TopologyBuilder("unsaid")
    b.spout("numbers", Numbers(10))
    b.bolt("check", Check("unsaid"), tasks=2).fields("numbers", "source", "key")
    topology = b.build()
    (source,) = topology.spec.tasks_of(ComponentId("numbers"))
    targets = tuple(topology.spec.tasks_of(ComponentId("check")))
    with InProcess(topology, 1) as cluster:
        cluster.wait_finished()
        task = cluster.workers[0].tasks[source]
        assert task.executor is not None
        stopped, noted, said = threading.Event(), threading.Event(), threading.Event()
        marks: list[tuple[MarkKind, Any]] = []

        def mark(mark: Mark, targets: Any = None) -> None:
            marks.append((mark.kind, targets))
            said.set()

        task.outputs.mark = mark  # type: ignore[method-assign]
        task.executor.stop_task(task, stopped.set)
        assert stopped.wait(PATIENCE)

        def go_on_if_nobody_is_at_it() -> None:
            if task.guard.acquire(blocking=False):
                task.go_on()
                task.guard.release()

        class Between(set[int]):
            def update(self, *some: Any) -> None:
                other = threading.Thread(target=go_on_if_nobody_is_at_it)
                other.start()
                other.join()
                super().update(*some)

        def note() -> None:
            task.marks.say_again(targets)
            noted.set()

        task.marks._unsaid = Between()
        task.executor.call(note)
        assert noted.wait(PATIENCE)
        task.go_on()
        assert said.wait(PATIENCE)
        assert marks == [(MarkKind.END, targets)]


def test_it_is_said_by_whoever_runs_the_task_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the tasks gets another executor between the moment at which it is asked to and that at which it says it."""
    b = TopologyBuilder("said-by")
    b.spout("numbers", Numbers(10), tasks=2, executors=1)
    b.bolt("check", Check("said-by")).fields("numbers", "source", "key")
    with InProcess(b.build(), 2, place=lambda c, i: int(c == "check")) as cluster:
        cluster.wait_finished()
        tasks = dict(cluster.workers[0].tasks)
        (before,) = {task.executor for task in tasks.values()}
        assert before is not None
        go_on, said = threading.Event(), threading.Event()
        by: dict[int, tuple[object, object]] = {}
        mark = Outputs.mark

        def watched(self: Outputs, *what: Any) -> None:
            mark(self, *what)
            task = tasks.get(self.task)
            if task is not None and task.executor is not None:
                by[self.task] = threading.current_thread(), task.executor.thread
                if by.keys() == tasks.keys():
                    said.set()

        monkeypatch.setattr(Outputs, "mark", watched)

        def wait() -> None:
            assert go_on.wait(PATIENCE)

        before.call(wait)
        try:
            cluster.apply(numbers=2)
            cluster.crash(1)
        finally:
            go_on.set()
        assert said.wait(PATIENCE)
        assert len(set(by.values())) == 2, "each has its own by now"
        assert all(who is its for who, its in by.values())
