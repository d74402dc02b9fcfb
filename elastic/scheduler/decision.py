"""What an algorithm decides, with its reasons; and what an algorithm is.

`elastic.scheduler.base.Scheduler` answers whenever something happened and gives a place only to what has none. An algorithm is asked
once a period, with measurements, and may move what runs. It is a pure function too: whoever calls it writes the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import TaskId, TopologyName, WorkerId
from elastic.model.loadview import LoadView
from elastic.scheduler.base import ClusterView, Demand


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is done, or is not.

    Attributes:
        kind: A short stable name, for programs; docs/schedulers.md lists them.
        message: One sentence with the measurements that decided, for people.
        topology: The one that it is about; "" when it is about the cluster.
        warning: Somebody should do something about it.
        details: The numbers by name.
    """

    kind: str
    message: str
    topology: str = ""
    warning: bool = False
    details: Mapping[str, str | int | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """An algorithm's answer.

    Attributes:
        assignments: One for each demand: the very object that was in force when nothing changes for that topology, otherwise one
            whose epoch is one larger.
        reasons: In the order in which they arose; never empty.
    """

    assignments: Mapping[TopologyName, Assignment]
    reasons: tuple[Reason, ...]

    @property
    def warnings(self) -> tuple[Reason, ...]:
        """The reasons that somebody should do something about."""
        return tuple(r for r in self.reasons if r.warning)

    def relocated(self, current: Mapping[TopologyName, Assignment]) -> dict[TopologyName, tuple[TaskId, ...]]:
        """The tasks that are to go to another worker, ascending, for each topology that has any."""
        result = {}
        for name, new in self.assignments.items():
            old = current.get(name)
            if old is None or old is new:
                continue
            was, now = old.place_of(), new.place_of()
            moved = tuple(sorted(t for t, w in was.items() if t in now and now[t] != w))
            if moved:
                result[name] = moved
        return result


Decide = Callable[[Sequence[Demand], ClusterView, LoadView, Mapping[TopologyName, Assignment], Any], Decision]
"""(demands, living nodes, load, assignments in force, the algorithm's parameters) -> decision.

The assignments in force are all there are, also of topologies that are not demanded: their slots and cores are taken.

Raises:
    Refused: A demand with `rebalance` cannot be met; the message says why.
"""


def same_places(a: Assignment, b: Assignment) -> bool:
    """Whether two assignments say the same but for their epoch."""
    return (
        dict(a.workers) == dict(b.workers)
        and set(a.executors) == set(b.executors)
        and set(a.unassigned) == set(b.unassigned)
    )


def homes(assignment: Assignment) -> dict[ExecutorId, WorkerId]:
    """Each assigned executor's worker."""
    return dict(assignment.executors)
