"""What the notifier of a move needs of the world, on Nimbus: records, cleaning, timers and voice (`elastic.migration.ports`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Create, Delete, Operation, Set
from elastic.errors import Conflict, Refused, Superseded
from elastic.migration import actions as ac
from elastic.migration import decide
from elastic.migration import events as ev
from elastic.migration.record import Marks, MoveRecord, encode_marks
from elastic.model.assignment import Assignment
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.ids import Incarnation, TaskId, TopologyName
from elastic.nimbus import stories
from elastic.nimbus.deciding import store_waits
from elastic.nimbus.deciding.placing import Rules, came_true, held
from elastic.nimbus.observing.facts import Facts, MoveFacts, TopologyFacts, slot_of
from elastic.nimbus.observing.followed import read_versioned
from elastic.nimbus.observing.plans import Plan, after_outcomes, interim, losing

T = TypeVar("T")
SETTLE_FOR = 0.1
"""Seconds from when a move's last task was restored until that is written: each process of the topology then reads and carries out an
assignment, which took both cores of a small machine for 30 ms while the stream had to work off what the pause had held."""


class Leader(Protocol):
    """The reign, as far as moves need it. All calls are made with its lock."""

    coordination: Coordination
    rules: Rules

    def commit(self, operations: Sequence[Operation]) -> None: ...
    def read(self, path: str, kind: type[T]) -> tuple[T | None, int]: ...
    def tell(self, event: Event) -> None: ...


class MovePorts:
    """All ports of one move.

    Args:
        tell: Hands an event to the driver of this move.
        clean: Has the stores emptied elsewhere; `StoresCleaned` follows.
        limits: Seconds for each kind of timer.

    Attributes:
        known: What was read last.
        nodes: The nodes when it began, or when this Nimbus took over.
        timers: When each is due, by the monotonic clock.
        conflict: Set when a commit did not go through.
    """

    def __init__(
        self,
        leader: Leader,
        known: tuple[TopologyFacts, MoveFacts, Facts],
        tell: Callable[[object], None],
        clean: Callable[[MoveRecord, tuple[str, ...]], None],
        limits: dict[str, float],
    ) -> None:
        self.known = known
        self.nodes = known[2].nodes
        self.record = known[1].record
        self.timers: dict[tuple[str, int], float] = {}
        self.living: frozenset[Incarnation] = frozenset()
        self.conflict = False
        self._leader, self._tell, self._clean, self._limits = leader, tell, clean, limits

    @property
    def _name(self) -> TopologyName:
        return self.record.topology

    # --- Records

    def commit(self, action: ac.Commit) -> None:
        before, after = self.record, action.record
        path = paths.move(self._name, after.epoch)
        try:
            try:
                plans = self._write(before, action)
            except Refused:
                # User code that fails in thousands of tasks: that they go back is written all the same.
                changes = tuple(replace(c, marks=c.marks.brief()) for c in action.marks)
                plans = self._write(before, replace(action, record=after.brief(), marks=changes), brief=True)
        except Superseded:
            raise
        except Conflict:
            record, version = self._leader.read(path, MoveRecord)
            if record is None:
                raise
            self.record, self.conflict = record, True
            self._tell(ev.RecordConflict(record, version))
            return
        self.record = after
        for event in stories.paused(before, after, time.time()):
            self._leader.tell(event)
        if plans:
            for event in stories.given_up(self.known[0], plans[0], plans[1], self._leader.rules, time.time()):
                self._leader.tell(event)
        self._tell(ev.RecordWritten(action.version + 1))

    def _write(self, before: MoveRecord, action: ac.Commit, *, brief: bool = False) -> list[Plan]:
        """Returns the plan as it was and as it is then, if it changes."""
        after, plans = action.record, list[Plan]()
        operations: list[Operation] = [
            Set(paths.move(self._name, after.epoch), encode(after), action.version),
            *(self._marks(after, c) for c in action.marks),
            *self._places(before, after, action, plans, brief),
        ]
        self._leader.commit(operations)
        return plans

    def _marks(self, record: MoveRecord, change: ac.MarksChange) -> Operation:
        path = paths.move_marks(self._name, record.epoch, change.incarnation)
        data = encode_marks(change.marks)
        return Create(path, data) if change.version < 0 else Set(path, data, change.version)

    def _places(
        self, before: MoveRecord, after: MoveRecord, action: ac.Commit, plans: list[Plan], brief: bool
    ) -> list[Operation]:
        """The assignment and the plan, as they are after these outcomes; `plans` gets the plan as it was and as it is then."""
        if all(a.outcome == b.outcome for a, b in zip(after.tasks, before.tasks, strict=True)):
            return []
        t, _, facts = self.known
        at = paths.assignment(self._name), paths.plan(self._name)
        values = self._leader.coordination.look(at).values
        assignment, version = read_versioned(at[0], values[at[0]], Assignment)
        if assignment is None:
            raise Conflict(f"topology {self._name!r} has no assignment any more")
        plan, plan_version = read_versioned(at[1], values[at[1]], Plan)
        result: list[Operation] = []
        new = assignment
        if action.places:
            places = {**assignment.place_of(), **{TaskId(t): w for t, w in action.places}}
            staying = {**held(t, facts), **{w: slot_of(w) for _, w in action.places}}
            desired = plan.assignment if plan is not None else assignment
            halted = bool(plan and plan.halted)
            meant = interim(assignment, desired, places, staying, halted=halted)
            new = losing(meant, before, after, self.living)
            result.append(Set(paths.assignment(self._name), encode(new), version))
        if plan is not None:
            now, rules = time.time(), self._leader.rules
            excused = store_waits.excuse(plan, self.nodes, facts.nodes, now, rules.store_timeout)
            done = after_outcomes(plan, before, after, self.living, now, rules.tries, excused)
            if brief:
                done = done.brief()
            if done != plan:
                plans += [plan, done]
            if came_true(done, new, t.moving - {x.task for x in after.tasks if x.outcome}):
                result.append(Delete(paths.plan(self._name), plan_version))
            elif done != plan:
                result.append(Set(paths.plan(self._name), encode(done), plan_version))
        return result

    def remove(self, action: ac.RemoveRecord) -> None:
        """With all marks that there are: nobody who took part in any attempt may be without the outcomes.

        Raises:
            Conflict: There are marks that were not looked at, or something has changed.
        """
        path = paths.move(self._name, self.record.epoch)
        names = self._leader.coordination.children(path) or ()
        unknown = {paths.life(n) for n in names} - set(self.known[1].marks)
        if unknown:
            raise Conflict(f"{path}: marks of {', '.join(sorted(unknown))} have not been read yet")
        self._leader.commit([*(Delete(f"{path}/{n}") for n in names), Delete(path, action.version)])
        self._tell(ev.RecordRemoved())

    # --- the others

    def clean(self, action: ac.CleanStores) -> None:
        self._clean(self.record, action.nodes)

    def start(self, action: ac.StartTimer) -> None:
        now = time.monotonic()
        match action.kind:
            case decide.SETTLE:
                limit = SETTLE_FOR
            case decide.AGAIN:
                limit = decide.again_after(action.number, self._limits[decide.RESTORE])
            case kind:
                limit = self._limits[kind]
        self.timers[action.kind, action.number] = now + limit

    def say(self, action: ac.Say) -> None:
        self._leader.tell(stories.of_task(self.record, action, time.time()))


def beginning(t: TopologyFacts, record: MoveRecord) -> list[Operation]:
    """What begins a move, but for the leader's guard: its number, its record and an empty node of marks for each who takes part."""
    name = t.name
    digits = str(record.epoch).encode()
    latest: Operation = (
        Create(paths.moves(name), digits)
        if t.latest_version < 0
        else Set(paths.moves(name), digits, t.latest_version)
    )
    marks = [
        Create(paths.move_marks(name, record.epoch, i), encode_marks(Marks(i))) for i in record.participants
    ]
    return [latest, Create(paths.move(name, record.epoch), encode(record)), *marks]
