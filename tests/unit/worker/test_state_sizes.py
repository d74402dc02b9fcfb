"""How large the states of tasks are said to be, and how seldom anybody looks at them for that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from moving_harness import Moving
from test_giving_up_copies import Panic
from test_moves import chain, tasks_of

from elastic import KeyedState, StatefulBolt
from elastic.worker.content.copier import Copier
from elastic.worker.moving import state_sizes
from elastic.worker.moving.state_sizes import AT_ONCE, StateSizes
from elastic.worker.report import Measurer


class Keeps(StatefulBolt):
    kept = KeyedState(str)

    def execute(self, tup: Any) -> None: ...


class Own(StatefulBolt):
    def execute(self, tup: Any) -> None: ...

    def get_state(self) -> object:
        raise AssertionError("nobody asks in order to measure")


class Task:
    """A task, as far as it is needed here; its executor does at once what it is asked."""

    def __init__(self, id: int, component: Any, stateful: bool = True) -> None:
        self.id, self.component = id, component
        self.spec = SimpleNamespace(stateful=stateful, id="c")
        self.stopped = False
        self.looked = 0

    def call(self, what: Callable[[], None]) -> None:
        self.looked += 1
        what()


def keeps(entries: int, value: str = "x" * 100) -> Any:
    made = Keeps()
    made.kept.update({f"key-{n:06}": value for n in range(entries)})
    return made


def told(sizes: StateSizes, *tasks: Task) -> dict[int, int]:
    return sizes.of(tasks)  # type: ignore[arg-type]


def test_a_size_is_that_of_what_would_be_saved_and_is_looked_up_seldom() -> None:
    sizes, task = StateSizes(), Task(1, keeps(10_000))
    told(sizes, task)
    said = told(sizes, task)[1]
    content = Copier(task.component).rest()
    assert said == pytest.approx(sum(len(data) for _, data in content.pieces), rel=0.15)
    for n in range(9_000):  # it grows, and is not looked at again
        task.component.kept[f"more-{n:05}"] = "x" * 100
    assert told(sizes, task)[1] == pytest.approx(1.9 * said, rel=0.05) and task.looked == 1
    task.component.kept.update({f"longer-{n:06}": "x" * 1000 for n in range(20_000)})
    told(sizes, task)
    assert task.looked == 2 and told(sizes, task)[1] > 5 * said


def test_it_is_looked_up_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, task = StateSizes(), Task(1, keeps(100))
    told(sizes, task)
    before = told(sizes, task)[1]
    task.component.kept.update(dict.fromkeys(task.component.kept, "x" * 1000))
    assert told(sizes, task)[1] == before
    monkeypatch.setattr(state_sizes, "LASTS", -1.0)
    told(sizes, task)
    assert told(sizes, task)[1] > 5 * before


def test_few_are_looked_at_at_once_and_the_others_are_taken_to_be_like_them() -> None:
    tasks = [Task(n, keeps(1000)) for n in range(3 * AT_ONCE)]
    sizes = StateSizes()
    told(sizes, *tasks)
    assert sum(t.looked for t in tasks) == AT_ONCE
    said = told(sizes, *tasks)
    assert min(said.values()) == pytest.approx(max(said.values()), rel=0.05) and min(said.values()) > 100_000
    told(sizes, *tasks)
    assert all(t.looked == 1 for t in tasks)


def test_what_stands_still_or_has_no_state_is_left_alone() -> None:
    moving, plain, empty = Task(1, keeps(100)), Task(2, keeps(100), stateful=False), Task(3, Keeps())
    moving.stopped = True
    assert told(StateSizes(), moving, plain, empty) == {1: 0, 3: 0}
    assert not moving.looked and not plain.looked and not empty.looked


def test_a_state_of_its_own_is_known_from_moves_only_and_forgotten_with_its_task() -> None:
    sizes, task = StateSizes(), Task(1, Own())
    assert told(sizes, task) == {1: 0}
    sizes.note(task, 4000)  # type: ignore[arg-type]
    assert told(sizes, task) == {1: 4000}
    assert told(sizes) == {}
    assert told(sizes, task) == {1: 0}


def test_what_cannot_be_encoded_is_not_asked_for_again_and_again() -> None:
    sizes, task = StateSizes(), Task(1, Keeps())
    task.component.kept["lock"] = threading.Lock()
    for _ in range(3):
        assert told(sizes, task) == {1: 0}
    assert task.looked == 1


class _Panics:
    def __reduce__(self) -> Any:
        raise Panic


def test_whatever_a_value_raises_when_it_is_looked_at_does_not_end_the_executor() -> None:
    sizes, task = StateSizes(), Task(1, Keeps())
    task.component.kept["value"] = _Panics()
    for _ in range(3):
        assert told(sizes, task) == {1: 0}
    assert task.looked == 1


def test_a_worker_reports_it_also_of_what_has_just_come() -> None:
    topology, _ = chain(10**6, rate=8000.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        task = tasks_of(topology, "count")[0]
        cluster.wait(lambda: cluster.task(task).executed > 100)

        def reported(n: int) -> int:
            measurer, looked = Measurer(cluster.processes[n].worker), threading.Event()
            measurer.report()
            cluster.task(task).call(looked.set)  # after what was asked
            assert looked.wait(30)
            return next(t.state for t in measurer.report().tasks if t.task == task)

        before = reported(0)
        cluster.move({task: 1})
        assert before > 0 and reported(1) > 0
        spout = tasks_of(topology, "numbers")[0]
        assert cluster.processes[0].worker.sizes.of([cluster.task(spout)]) == {spout: 0}
        cluster.move({spout: 1})
        assert cluster.processes[1].worker.sizes.of([cluster.task(spout)])[spout] > 0
