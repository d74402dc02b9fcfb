"""User code that raises as its task moves: `elastic errors` shows it with its traceback, as at any other time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import KeyedState, StatefulBolt, TopologyBuilder
from elastic.errors import ElasticError
from elastic.model.events import Event, Severity
from elastic.worker.moving import move_errors
from tests.unit.worker.harness import Endless, numbers
from tests.unit.worker.moving_harness import Moving

RAISING: dict[str, tuple[str, int]] = {}
"""Where whose code raises, and how many more times."""


def at(name: str, where: str) -> None:
    """Raise, if it is to be here."""
    wanted, left = RAISING[name]
    if wanted == where and left:
        RAISING[name] = wanted, left - 1
        raise ValueError(f"no {where}")


class Own(StatefulBolt):
    def __init__(self, name: str) -> None:
        self.name, self.count, self.first = name, 0, True

    def prepare(self, context: Any) -> None:
        at(self.name, "prepare")

    def execute(self, tup: Any) -> None:
        self.count += 1

    def get_state(self) -> object:
        at(self.name, "get")
        return {"lock": threading.Lock()} if RAISING[self.name][0] == "pickle" else self.count

    def set_state(self, state: Any) -> None:
        at(self.name, "set")
        self.count = state


class Keyed(StatefulBolt):
    things = KeyedState[str, Any]()

    def prepare(self, context: Any) -> None:
        self.things["lock"] = threading.Lock()

    def execute(self, tup: Any) -> None: ...


def errors(cluster: Moving) -> list[Event]:
    return [e for e in cluster.events if e.severity is Severity.ERROR]


def moved(bolt: StatefulBolt, name: str, where: str, times: int, told: int = 1) -> list[Event]:
    """What is told of a task's code when it is moved: so much."""
    RAISING[name] = "", 0
    b = TopologyBuilder(name)
    b.spout("numbers", Endless())
    b.bolt("own", bolt).shuffle("numbers")
    topology = b.build()
    (task,) = topology.spec.tasks_of("own")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.wait(lambda: cluster.task(task).executed > 0)
        RAISING[name] = where, times
        cluster.move({task: 1})
        cluster.wait(lambda: len(errors(cluster)) >= told)  # whoever says so has told the moves first
        found = errors(cluster)
        assert {e.kind for e in found} <= {"task-move-failed"} and {e.task for e in found} <= {task}
        assert {e.component for e in found} <= {"own"}
        return found


@pytest.mark.parametrize(
    ("where", "leaves", "line"),
    [
        ("get", False, 'raise ValueError(f"no {where}")'),
        ("set", True, 'raise ValueError(f"no {where}")'),
        ("prepare", True, 'raise ValueError(f"no {where}")'),
        ("pickle", False, "cannot pickle '_thread.lock' object"),
    ],
)
def test_it_is_told_with_its_traceback(where: str, leaves: bool, line: str) -> None:
    name = f"raises-{next(numbers)}"
    (told,) = moved(Own(name), name, where, 1)
    assert ("cannot come here" if leaves else "cannot leave") in told.message
    assert told.details["attempt"] == int(leaves) and line in str(told.details["traceback"])


def test_which_entry_cannot_be_pickled_is_told() -> None:
    name = f"raises-{next(numbers)}"
    (told,) = moved(Keyed(), name, "", 0)
    assert "the value of key 'lock' is a lock" in told.message


def test_of_many_attempts_not_each_is_told() -> None:
    """Where the process that has it is gone, it is tried again and again."""
    told: list[Any] = []
    spec = SimpleNamespace(component_of=lambda task: SimpleNamespace(id="own"))
    worker: Any = SimpleNamespace(
        spec=spec, event=lambda *of, details, **more: told.append(details["attempt"])
    )
    for attempt in range(1, 10):
        move_errors.tell(worker, 2, 1, ValueError("no"), attempt)
    assert told == [1, 2, 4, 8]


def test_what_is_none_of_user_code_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.worker.moving_harness import Stores

    def full(self: Stores, *arguments: Any) -> None:
        raise ElasticError("the stores have no room")

    monkeypatch.setattr(Stores, "reserve", full)
    name = f"raises-{next(numbers)}"
    assert moved(Own(name), name, "", 0, told=0) == []
