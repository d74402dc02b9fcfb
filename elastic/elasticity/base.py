"""What a policy is: a pure function from what is measured of one topology to how many executors its components should have.

    size(view, subject, room, params) -> Sizing

A policy knows nothing of periods, cooldowns and other topologies: that is the manager's. The same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic.elasticity.kinds import ComponentLoad
from elastic.model.events import Event, Severity
from elastic.model.ids import ComponentId, TopologyName
from elastic.model.topology import TopologySpec


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is done, or is not.

    Attributes:
        kind: A short stable name, for programs; docs/elasticity.md lists them.
        message: One sentence with the measurement and the threshold that decided, for people.
        component: "" when it is about the topology or the cluster.
        warning: Somebody should do something about it.
        details: The numbers by name: `measure`, `value`, `threshold`, `before`, `after`, ...
    """

    kind: str
    message: str
    topology: str = ""
    component: str = ""
    warning: bool = False
    details: Mapping[str, str | int | float] = field(default_factory=dict)

    def event(self, now: float) -> Event:
        """The same as an entry of the event stream."""
        return Event(
            now,
            self.kind,
            self.message,
            Severity.WARNING if self.warning else Severity.INFO,
            topology=self.topology,
            component=self.component,
            node=str(self.details.get("node", "")),
            details=self.details,
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many executors a component may have. `minimum` is minExec(op) of Elastic Storm (2016), IV.B; `maximum` 0: as many as tasks."""

    minimum: int = 1
    maximum: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """A topology whose size is to be decided.

    Attributes:
        executors: How many each component has now: those of the assignment, those that wait for a slot included.
        workers: How many worker processes it has now.
        bounds: Of those components that have any of their own.
        settled: False while a move of it is under way, or something that was decided is not carried out: it is left alone.
        waiting: Executors that wait for a slot.
        processes: Whether how many processes it has, and who is in which, is decided here too; False: the scheduler in use does that.
    """

    spec: TopologySpec
    executors: Mapping[ComponentId, int]
    workers: int
    bounds: Mapping[ComponentId, Bounds] = field(default_factory=dict)
    settled: bool = True
    waiting: int = 0
    processes: bool = True

    @property
    def name(self) -> TopologyName:
        return self.spec.name

    def limits(self, component: ComponentId) -> tuple[int, int]:
        """The fewest and the most executors that a component may have."""
        tasks = self.spec.component(component).tasks
        bounds = self.bounds.get(component, Bounds())
        most = min(tasks, bounds.maximum) if bounds.maximum else tasks
        return max(1, min(bounds.minimum, most)), max(1, most)


@dataclass(frozen=True, slots=True)
class Room:
    """What the cluster offers.

    Attributes:
        cores: Of all nodes that may get something; 0: unknown, then nothing is refused for want of cores.
        used: Of those, in use by anybody.
        slots: Slots that are free, on nodes that may get something; -1: unknown.
    """

    cores: float = 0.0
    used: float = 0.0
    slots: int = -1

    @property
    def free(self) -> float:
        """Cores that nobody uses; infinite when unknown."""
        return max(0.0, self.cores - self.used) if self.cores > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Sizing:
    """What a policy wants of one topology.

    Attributes:
        executors: Only components whose number should change.
        cores: What the components would use if there were cores enough; components that are not there: what they use now.
        reasons: One or more for each change, and for what was not done although a threshold was crossed.
        lacking: Of those, the ones that there are not.
        changing: Some component's load is just changing, so that nothing can be said; asked again soon, it can.
    """

    executors: Mapping[ComponentId, int] = field(default_factory=dict)
    cores: Mapping[ComponentId, float] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    lacking: float = 0.0
    changing: bool = False


Size = Callable[[Mapping[ComponentId, ComponentLoad], Subject, Room, Any], Sizing]
"""(what the components do, the topology, what the cluster offers, the policy's parameters) -> what it wants. Only components with enough
samples are in the first."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as a plug-in: an entry point of the group `elastic.policies` loads one of these.

    Attributes:
        summary: One line for people.
        params: A frozen dataclass whose fields are made by `elastic.model.parameters.parameter`.
        check: Raises ConfigError when parameters that are possible one by one are not together.
    """

    name: str
    summary: str
    params: type[Any]
    size: Size
    check: Callable[[Any], None] = lambda params: None
