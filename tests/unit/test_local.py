"""Local mode: what callers ask of a run while it runs, at the same time and after its end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pytest

from elastic import Fields, LocalCluster, Spout, Topology, TopologyBuilder, local
from elastic.errors import AlreadyExists, ConfigError, ExecutionError, Refused
from elastic.local import LocalRun
from elastic.model.ids import ComponentId
from elastic.testing import collect

LIMIT = 30.0


class Ever(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> float:
        self.emit(1)
        return 0.01


def topology(**config: Any) -> Topology:
    b = TopologyBuilder("t", **config)
    b.spout("numbers", Ever())
    b.bolt("out", collect(), tasks=4).shuffle("numbers")
    return b.build()


class Some(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Iterator[int]:
        yield from range(10)


def ending(name: str) -> Topology:
    b = TopologyBuilder(name)
    b.spout("numbers", Some())
    b.bolt("out", collect(), tasks=4, executors=4).shuffle("numbers")
    return b.build()


def executors(run: LocalRun) -> int:
    """How many the bolt has."""
    return sum(e.component == "out" for e in run.worker.assigned.executors())


def test_a_policy_that_no_cluster_would_know_is_refused_here_too() -> None:
    with LocalCluster() as cluster:
        with pytest.raises(ConfigError, match="topology 't': there is no policy 'ds3'"):
            cluster.submit(topology(elastic="ds3"))
        cluster.submit(topology(elastic="ds2"))


def test_a_name_is_free_again_when_its_topology_was_stopped() -> None:
    with LocalCluster() as cluster:
        first = cluster.submit(topology())
        with pytest.raises(AlreadyExists):
            cluster.submit(topology())
        first.stop()
        assert first.stopped and not cluster.submit(topology()).stopped


def test_what_has_finished_has_no_threads_when_another_topology_is_submitted() -> None:
    with LocalCluster() as cluster:
        others = set(threading.enumerate())
        first = cluster.submit(ending("first")).wait(LIMIT)
        threads = set(threading.enumerate()) - others
        ever = cluster.submit(topology())
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive(), thread
        assert threads and first.wait(LIMIT).metrics()["out"]["executed"] == 10
        cluster.submit(ending("second"))
        assert not ever.stopped, "it has not finished"


class Fails(Ever):
    def next_tuple(self) -> float:
        raise ValueError("no")


@pytest.mark.parametrize("stuck", [False, True])
def test_what_has_failed_has_no_threads_any_more_and_can_be_asked_all_the_same(stuck: bool) -> None:
    go = threading.Event()

    class Waits(Ever):
        def next_tuple(self) -> float:
            if stuck:
                go.wait(LIMIT)
            return super().next_tuple()

    b = TopologyBuilder("t", max_errors=0, stop_grace=0.5 if stuck else LIMIT)
    b.spout("fails", Fails())
    with LocalCluster() as cluster:
        others = set(threading.enumerate())
        b.spout("numbers", Waits())
        b.bolt("out", collect(), tasks=4, executors=2).shuffle("numbers")
        run = cluster.submit(b)
        with pytest.raises(ExecutionError, match="ValueError: no"):
            run.wait(LIMIT)
        if stuck:
            with pytest.raises(ExecutionError, match="a call into user code does not return"):
                run.stop()
            go.set()
        for thread in set(threading.enumerate()) - others:
            thread.join(LIMIT)
            assert not thread.is_alive(), thread
        assert run.failed and run.stopped == stuck and run.metrics()["out"]["failed"] == 0


def test_a_deactivation_of_what_was_stopped_says_so_instead_of_waiting() -> None:
    with LocalCluster() as cluster:
        run = cluster.submit(topology())
        run.stop()
        with pytest.raises(ExecutionError, match="was stopped before everything had been worked off"):
            run.deactivate(LIMIT)


def test_a_name_is_taken_once_by_threads_that_want_it_at_the_same_time() -> None:
    refused, together = [], threading.Barrier(2)

    class Slow(Ever):
        def __deepcopy__(self, memo: dict[int, Any]) -> Ever:
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(0.5)  # for the other one, which never comes here
            return Ever()

    b = TopologyBuilder("t")
    b.spout("numbers", Slow())
    made = b.build()

    def submit() -> None:
        try:
            cluster.submit(made)
        except AlreadyExists as error:
            refused.append(error)

    with LocalCluster() as cluster:
        both = [threading.Thread(target=submit) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(LIMIT)
        assert len(refused) == 1


@pytest.mark.parametrize("number", [2.5, 2.0, True, "2", None, 0, 5])
def test_a_number_of_executors_that_is_none_is_refused_and_leaves_the_run_as_it_is(number: Any) -> None:
    with LocalCluster() as cluster:
        run = cluster.submit(topology())
        with pytest.raises(Refused, match=f"1 to 4 executors, not {number!r}"):
            run.rebalance(out=number)
        assert run.deactivate(LIMIT)
        run.activate()
        run.rebalance(out=3)
        assert executors(run) == 3


class Told:
    """A lock that tells who comes to it."""

    def __init__(self, lock: Any, coming: threading.Event) -> None:
        self.lock, self.coming = lock, coming

    def __enter__(self) -> None:
        if threading.current_thread().name == "rebalances":
            self.coming.set()
        self.lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lock.release()


def test_a_rebalance_beside_a_deactivation_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    coming = threading.Event()
    with LocalCluster() as cluster:
        run = cluster.submit(topology())
        monkeypatch.setattr(run, "_wanted", Told(getattr(run, "_wanted", threading.Lock()), coming), False)

        def rebalance() -> None:
            run.rebalance(out=4)
            coming.set()

        other, split = threading.Thread(target=rebalance, name="rebalances"), local.split_tasks

        def splits(component: ComponentId, *arguments: Any) -> Any:
            made = split(component, *arguments)
            if component == "out" and not other.ident:
                other.start()
                assert coming.wait(LIMIT)
            return made

        monkeypatch.setattr(local, "split_tasks", splits)
        run.deactivate(LIMIT)
        other.join(LIMIT)
        assert executors(run) == 4
