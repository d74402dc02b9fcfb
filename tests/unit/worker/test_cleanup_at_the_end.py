"""Every task that was prepared is cleaned up when its worker ends, whoever was about to run it then."""

from __future__ import annotations

import threading

import pytest

from elastic import Bolt, TopologyBuilder
from elastic.api.context import TopologyContext
from elastic.worker.executing.hands import Hands
from tests.unit.worker.harness import Ascending, InProcess

PATIENCE = 30.0


class World:
    """What tasks and the test tell each other."""

    def __init__(self) -> None:
        self.within, self.may_go_on = threading.Event(), threading.Event()
        self.prepared: list[int] = []
        self.cleaned: list[int] = []


world = World()


class Held(Bolt):
    """Stays within a tuple for as long as the test wants."""

    def prepare(self, context: TopologyContext) -> None:
        self.task = context.task
        world.prepared.append(self.task)

    def execute(self, tup: object) -> None:
        world.within.set()
        assert world.may_go_on.wait(PATIENCE)

    def cleanup(self) -> None:
        world.cleaned.append(self.task)


def ends_while_a_task_changes_its_executor() -> None:
    """Its executor is within a tuple, and the one that is to have it has ended already when it hands it over."""
    global world
    world = World()
    b = TopologyBuilder("held")
    b.spout("numbers", Ascending(), rate=2000.0)
    b.bolt("held", Held(), tasks=2, executors=1).shuffle("numbers")
    with InProcess(b.build(), 1) as cluster:
        (worker,) = cluster.workers
        assert world.within.wait(PATIENCE)
        (before,) = (e for e in worker.executors.named.values() if e.id.component == "held")
        cluster.apply(held=2)
        others = [e for e in worker.executors.named.values() if e is not before]
        closing = threading.Thread(target=lambda: worker.close(PATIENCE))
        closing.start()
        for executor in others:
            executor.thread.join(PATIENCE)
        world.may_go_on.set()
        closing.join(PATIENCE)
        assert sorted(world.cleaned) == sorted(world.prepared) and len(world.cleaned) == 2


def test_a_task_that_changes_its_executor_while_its_worker_ends_is_cleaned_up() -> None:
    ends_while_a_task_changes_its_executor()


def test_a_task_that_nobody_cleans_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hands, "close", lambda hands, executor: list(executor.tasks.values()))
    with pytest.raises(AssertionError):
        ends_while_a_task_changes_its_executor()
