"""Whatever comes, goes and is asked for: who runs a task changes by moves alone, and in the end everything is where it shall be."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.rounds import on_the_way
from elastic.errors import Refused
from elastic.migration.decide import SOON
from elastic.migration.record import MoveRecord, Outcome
from elastic.model.assignment import Assignment, ExecutorId, NodeInfo
from elastic.model.ids import (
    ComponentId,
    Epoch,
    Incarnation,
    NodeId,
    TaskId,
    TopologyName,
    WorkerId,
    node_of,
    worker_of,
)
from elastic.model.records import Progress, TopologyState, TopologyStatus, WorkerInfo
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.nimbus.deciding import dividing, placing, store_waits
from elastic.nimbus.deciding.decisions import Begin, Limits, Place, decide
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.deciding.store_waits import excuse, trouble
from elastic.nimbus.observing.facts import Facts, MoveFacts, TopologyFacts
from elastic.nimbus.observing.plans import Left, Plan, after_outcomes, interim, relocated, same
from elastic.scheduler.base import Demand
from elastic.scheduler.round_robin import RoundRobinScheduler

T = TopologyName("t")
NODES = [NodeId(f"n{i}") for i in range(3)]
RULES = Rules(tries=2, retry=1.0, start_timeout=10.0, at_once=3, store_timeout=100.0)
LIMITS = Limits(60.0, 5, RULES)
SPEC = TopologySpec(
    T,
    (
        ComponentSpec(ComponentId("a"), "spout", 1, 1),
        ComponentSpec(ComponentId("b"), "bolt", 6, 3, stateful=True),
    ),
    workers=2,
)


@dataclass
class World:
    """One topology, as coordination has it, and everything that can happen to it."""

    t: TopologyFacts
    nodes: dict[NodeId, NodeInfo]
    now: float = 1000.0
    drains: dict[NodeId, bool] = field(default_factory=dict)
    lives: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    attempts: dict[tuple[float, int], int] = field(default_factory=dict)
    began: dict[Epoch, dict[NodeId, NodeInfo]] = field(default_factory=dict)
    # What was taken from them, as they have not heard.
    runs: dict[Incarnation, set[TaskId]] = field(default_factory=dict)

    @classmethod
    def make(cls) -> World:
        state = TopologyState(TopologyStatus.ACTIVE, "t-1", "b", 1.0)
        nodes = {n: NodeInfo(n, "h", 2, 1, "fake", store="h:1") for n in NODES}
        world = cls(TopologyFacts(SPEC, state, 0), nodes)
        first = RoundRobinScheduler().schedule([world.t.demand()], world.facts().cluster, {})[T]
        world.t = replace(world.t, assignment=first)
        for worker in first.workers:
            world.live(worker)
            world.carry_out(worker)
        return world

    def facts(self) -> Facts:
        return Facts(self.now, self.nodes, drains=self.drains, topologies={T: self.t})

    # --- what happens

    def live(self, worker: WorkerId) -> None:
        a = self.t.assignment
        if (
            a is not None
            and worker in a.workers
            and node_of(worker) in self.nodes
            and worker not in self.t.workers
        ):
            info = WorkerInfo(worker, Incarnation(f"{worker}#{next(self.lives)}"), "", "", "", 1, Epoch(1))
            self.t = replace(self.t, workers={**self.t.workers, worker: info})

    def die(self, worker: WorkerId) -> None:
        self.t = replace(self.t, workers={w: i for w, i in self.t.workers.items() if w != worker})

    def carry_out(self, worker: WorkerId) -> None:
        """It does what the assignment says."""
        assert self.t.assignment is not None
        life = self.t.workers[worker].incarnation
        self.runs.pop(life, None)
        done = Progress(life, self.t.assignment.epoch)
        self.t = replace(self.t, progress={**self.t.progress, worker: done})

    def lose(self, node: NodeId) -> None:
        if len(self.nodes) > 1:
            self.nodes = {n: i for n, i in self.nodes.items() if n != node}
            for worker in [w for w in self.t.workers if node_of(w) == node]:
                self.die(worker)

    def store(self, node: NodeId, serves: bool) -> None:
        """A node's store ends, or begins to serve."""
        if (info := self.nodes.get(node)) is not None and bool(info.store) != serves:
            store = "h:1" if serves else ""
            info = replace(info, store=store, store_life=info.store_life + serves)
            self.nodes = {**self.nodes, node: info}

    def settle(self, pick: int, outcome: Outcome) -> None:
        """An open task of a move gets its outcome; a rollback also when its source has died."""
        open_ = [(e, t) for e, m in self.t.moves.items() for t in m.record.tasks if not t.outcome]
        if not open_:
            return
        epoch, task = open_[pick % len(open_)]
        before = self.t.moves[epoch].record
        alive = {i.incarnation for i in self.t.workers.values()}
        if task.source not in alive:
            outcome = Outcome.ROLLED_BACK
        done = replace(task, outcome=outcome, reason="no" if outcome is Outcome.ROLLED_BACK else "")
        after = replace(before, tasks=tuple(done if x is task else x for x in before.tasks))
        assignment, plan = self.t.assignment, self.t.plan
        assert assignment is not None
        if outcome is not Outcome.ROLLED_BACK:
            places = {**assignment.place_of(), task.task: worker_of(task.target)}
            desired = plan.assignment if plan is not None else assignment
            assignment = interim(assignment, desired, places, placing.held(self.t, self.facts()))
        if plan is not None:
            began = self.began[epoch]
            plan = after_outcomes(
                plan,
                before,
                after,
                alive,
                self.now,
                RULES.tries,
                excuse(plan, began, self.nodes, self.now, RULES.store_timeout),
            )
        moves = {**self.t.moves, epoch: MoveFacts(after, 0)}
        if plan is not None and placing.came_true(plan, assignment, self.t.moving - {task.task}):
            plan = None
        self.t = replace(self.t, assignment=assignment, plan=plan, moves=moves)

    def close(self) -> None:
        """Settled moves end."""
        left = {e: m for e, m in self.t.moves.items() if not m.record.settled}
        self.t = replace(self.t, moves=left)

    def ask(self, workers: int, executors: int) -> Assignment | None:
        """A rebalance, as a request does it. Returns what was asked for, if there is room for it."""
        demand = Demand(
            SPEC, workers, {ComponentId("b"): executors}, rebalance=True, spread=True, movable=True
        )
        try:
            desired = RoundRobinScheduler().schedule([demand], self.facts().cluster, self.facts().claims())[T]
        except Refused:
            return None
        self.want(desired)
        return desired

    def ask_back(self) -> None:
        """That all tasks shall be where they are written at present."""
        assert self.t.assignment is not None
        self.want(self.t.assignment)

    def want(self, desired: Assignment) -> None:
        step = placing.asked(self.t, self.facts(), Plan(desired, "asked", self.now, requested=True))
        self.apply(Place(T, step.assignment, 0, step.plan, step.gone))

    def waits(self) -> list[str]:
        return placing.waits(self.t, self.facts(), RULES)

    # --- what Nimbus does

    def decide(self) -> bool:
        """Carry out what follows; returns whether anything did."""
        actions = decide(self.facts(), RoundRobinScheduler(), LIMITS)
        for action in actions:
            if isinstance(action, Place):
                self.apply(action)
            elif isinstance(action, Begin):
                self.begin(action.record)
            else:
                continue  # what becomes of the node itself
            return True  # the rest is decided on what is so then
        return False

    def apply(self, place: Place) -> None:
        before, after = self.t.assignment, place.assignment
        assert before is not None and not set(place.gone) & set(self.t.workers)
        was, now = before.place_of(), after.place_of()
        seen = [t for e in (*dict(after.executors), *after.unassigned) for t in e.tasks()]
        assert sorted(seen) == list(range(1, SPEC.task_count + 1)), "a task was lost or doubled"
        for task, worker in was.items():
            if now.get(task) != worker:
                assert task not in self.t.moving, "a task in a move was placed"
                forced = self.drains.get(node_of(worker), False)
                assert worker not in self.t.workers or (forced and task not in now), (
                    "a running task was placed"
                )
        for task in now.keys() - was.keys():
            assert not any(task in self.runs.get(i.incarnation, ()) for i in self.t.workers.values()), (
                "two run it"
            )
        for task in was.keys() - now.keys():
            if (info := self.t.workers.get(was[task])) is not None:
                self.runs.setdefault(info.incarnation, set()).add(task)
        taking = {w for m in self.t.moves.values() for w in m.workers}
        assert {w for w in taking if w in self.t.workers} <= set(after.workers), "who takes part is not named"
        self.t = replace(self.t, assignment=after, plan=place.plan)

    def begin(self, record: MoveRecord) -> None:
        assert record.epoch == self.t.latest + 1
        assert all(m.record.settled for m in self.t.moves.values() if m.record.later), "the next part began"
        alive = {i.incarnation for i in self.t.workers.values()}
        plan = self.t.plan
        assert plan is not None and not plan.halted
        for task in record.tasks:
            assert task.task not in self.t.moving and {task.source, task.target} <= alive
            late = self.now >= plan.asked + RULES.start_timeout
            assert late or task.source in {p.incarnation for p in self.t.progress.values() if p.epoch}, (
                "it has not begun"
            )
            assert worker_of(task.source) == self.t.assignment.place_of()[task.task]  # type: ignore[union-attr]
            assert worker_of(task.target) in self.t.assignment.workers  # type: ignore[union-attr]
            assert self.nodes[task.source_node].store and self.nodes[task.target_node].store, (
                "begun without a store"
            )
            key = (plan.asked, task.task)
            self.attempts[key] = self.attempts.get(key, 0) + 1
        moves = {**self.t.moves, record.epoch: MoveFacts(record, 0)}
        self.began[record.epoch] = self.nodes
        self.t = replace(self.t, moves=moves, latest=record.epoch)

    def run(self) -> None:
        for _ in range(20):
            if not self.decide():
                return
        raise AssertionError("it does not come to rest")

    def heal(self) -> Assignment:
        """Nothing fails any more; everything comes to its end."""
        for _ in range(60):
            self.now += 3.0
            self.run()
            if self.t.assignment is not None:
                for worker in self.t.assignment.workers:
                    self.live(worker)
                for worker in self.t.workers:
                    self.carry_out(worker)
            while self.t.moving:
                self.settle(0, Outcome.COMMITTED)
            self.close()
            if not self.decide() and self.t.plan is None:
                break
        a = self.t.assignment
        assert a is not None and self.t.plan is None and not self.t.moves, self.t.plan
        assert set(a.workers) == {w for _, w in a.executors}
        return a


STEP = st.one_of(
    st.tuples(st.just("decide")),
    st.tuples(st.just("live"), st.integers(0, 5)),
    st.tuples(st.just("die"), st.integers(0, 5)),
    st.tuples(st.just("carry out"), st.integers(0, 5)),
    st.tuples(st.just("settle"), st.integers(0, 5), st.sampled_from([Outcome.COMMITTED, Outcome.ROLLED_BACK, Outcome.LOST])),
    st.tuples(st.just("close")),
    st.tuples(st.just("ask"), st.integers(1, 4), st.integers(1, 6)),
    st.tuples(st.just("ask back")),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 20.0])),
    st.tuples(st.just("drain"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("lose"), st.integers(0, 2)),
    st.tuples(st.just("come"), st.integers(0, 2)),
    st.tuples(st.just("store"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("abort")),
)  # fmt: skip


def happen(world: World, step: tuple) -> None:  # type: ignore[type-arg]
    match step:
        case ("decide",):
            world.run()
        case ("live", i):
            workers = sorted(world.t.assignment.workers) if world.t.assignment is not None else []
            if workers:
                world.live(workers[i % len(workers)])
        case ("die", i):
            workers = sorted(world.t.workers)
            if workers:
                world.die(workers[i % len(workers)])
        case ("carry out", i):
            workers = sorted(world.t.workers)
            if workers:
                world.carry_out(workers[i % len(workers)])
        case ("settle", i, outcome):
            world.settle(i, outcome)
        case ("close",):
            world.close()
        case ("ask", workers, executors):
            world.ask(workers, executors)
        case ("ask back",):
            world.ask_back()
        case ("wait", seconds):
            world.now += seconds
        case ("drain", i, force):
            world.drains = {NODES[i]: force}
        case ("lose", i):
            world.lose(NODES[i])
        case ("come", i):
            world.nodes = {**world.nodes, NODES[i]: NodeInfo(NODES[i], "h", 2, 2, "fake", store="h:1")}
        case ("store", i, serves):
            world.store(NODES[i], serves)
        case ("abort",):
            if world.t.plan is not None:
                world.t = replace(world.t, plan=replace(world.t.plan, halted="why"))


def story(steps: list[tuple]) -> World:  # type: ignore[type-arg]
    world = World.make()
    for step in steps:
        happen(world, step)
        tries = list(world.attempts.values())
        assert not tries or max(tries) <= RULES.tries + len(steps), "tried without end"
    world.run()
    return world


search = settings(max_examples=150)


def comes_home(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    """Whatever happened: once nothing fails any more, everything comes to its place."""
    world = story(steps)
    world.drains = {}
    world.nodes = {n: NodeInfo(n, "h", 2, 3, "fake", store="h:1") for n in NODES}
    asked = world.ask(2, 3)  # what has been given up is tried again when somebody asks
    healed = world.heal()
    assert not healed.unassigned
    assert asked is None or same(asked, healed), "it is not where it was asked for"


@search
@given(st.lists(STEP, max_size=25))
def test_nobody_is_moved_without_a_move_and_everything_comes_to_its_place(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    comes_home(steps)


@search
@given(st.lists(STEP, max_size=25))
def test_everything_comes_to_its_place_also_where_a_move_has_room_for_one_task(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dividing, "MAX_BYTES", 0)
        comes_home(steps)


def test_a_move_that_always_fails_is_tried_so_often_and_not_more() -> None:
    world = World.make()
    world.ask(1, 3)
    for _ in range(20):
        world.run()
        while world.t.moving:
            world.settle(0, Outcome.ROLLED_BACK)
        world.close()
        world.now += 5.0
    assert set(world.attempts.values()) == {RULES.tries}
    stuck = placing.stuck(world.t, RULES)
    assert stuck and set(stuck.values()) == {"no"}
    assert all(
        "it is tried again when somebody asks for it" in s
        for s in placing.waits(world.t, world.facts(), RULES)
    )
    assert list(placing.deadlines(world.t, world.facts(), RULES)) == []


def test_chaos_knows_what_is_tried_again_from_what_was_given_up() -> None:
    world = World.make()
    world.ask(1, 3)
    while True:
        world.run()
        while world.t.moving:
            world.settle(0, Outcome.ROLLED_BACK)
        world.close()
        assert world.waits() and world.t.plan is not None
        if placing.stuck(world.t, RULES):
            break
        assert on_the_way(world.waits()), "it is tried again"
        world.now += 5.0
    assert on_the_way(world.waits()) == []
    # tests/contract/test_nimbus.py says so, too.
    assert on_the_way(["wanted: 2 workers; there are slots for 1"]) == []


def awaits_a_store() -> None:
    """While it is away nothing begins, and that is said; when it is announced, everything goes on."""
    world = World.make()
    world.ask(1, 3)
    (source,) = {node_of(w) for w in world.t.workers} - {node_of(c) for c in world.t.plan.assignment.workers}  # type: ignore[union-attr]
    world.store(source, False)
    for _ in range(5):
        world.run()
        assert not world.t.moves
        world.now += 5.0
    assert world.t.plan is not None and world.t.plan.awaited == (source,)
    assert any(f"waits for the state store of node {source}" in s for s in world.waits())
    world.store(source, True)
    world.run()
    assert world.t.moves and world.t.plan.awaited == ()
    world.heal()
    assert set(world.attempts.values()) == {1}


def test_a_store_that_is_away_is_waited_for() -> None:
    awaits_a_store()


def excuses_a_store() -> None:
    """What fails because a store was started again meanwhile does not count, for as long as stores are waited for."""
    world = World.make()
    world.ask(1, 3)
    target = node_of(next(iter(world.t.plan.assignment.workers)))  # type: ignore[union-attr]
    began = world.now
    times = 0

    def fails() -> None:
        world.store(target, False)
        world.store(target, True)
        while world.t.moving:
            world.settle(0, Outcome.ROLLED_BACK)
        world.close()
        world.now += 10.0

    while world.now - began <= RULES.store_timeout:
        world.run()
        assert world.t.moves, "it was given up"
        fails()
        times += 1
    assert times > 2 * RULES.tries and not placing.stuck(world.t, RULES)
    for _ in range(RULES.tries + 1):  # from here on it counts, whatever becomes of the store
        world.run()
        fails()
    assert placing.stuck(world.t, RULES)


def test_a_store_that_is_started_again_is_no_failure_of_what_needs_it() -> None:
    excuses_a_store()


def test_a_store_that_does_not_come_back_is_not_waited_for_for_ever() -> None:
    world = World.make()
    world.ask(1, 3)
    for node in NODES:
        world.store(node, False)
    world.run()
    due = min(placing.deadlines(world.t, world.facts(), RULES))
    assert due <= world.now + RULES.store_timeout
    world.now += RULES.store_timeout + 1
    world.run()
    assert not world.t.moves
    stuck = placing.stuck(world.t, RULES)
    assert stuck and all("has not come back within" in why for why in stuck.values())


def test_stores_before_one_cluster_need_each_other() -> None:
    def node(name: str, store: str, life: int = 1) -> NodeInfo:
        return NodeInfo(NodeId(name), "h", 2, 1, "fake", store=store, store_life=life)

    before = {NodeId(n): node(n, f"h:1 {group}") for n, group in (("a", "g -"), ("b", "g -"), ("c", "- -"))}
    a = [NodeId("a")]
    assert not trouble(before, before, a)
    assert "node b is gone" in trouble(before, {n: i for n, i in before.items() if n != "b"}, a)
    assert "node b was started again" in trouble(before, {**before, NodeId("b"): node("b", "h:1 g -", 2)}, a)
    assert not trouble(before, {n: i for n, i in before.items() if n != "c"}, a)
    assert not trouble(before, {n: i for n, i in before.items() if n != "b"}, [NodeId("c")])


@pytest.mark.parametrize(
    ("name", "where", "fault", "story"),
    [
        ("awaited", placing, lambda change, nodes: None, awaits_a_store),
        ("trouble", store_waits, lambda before, now, concerned: "", excuses_a_store),
    ],
)
def test_the_stories_of_stores_find_planted_faults(
    name: str, where: object, fault: object, story: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, fault)
    with pytest.raises(AssertionError):
        story()  # type: ignore[operator]


def _robs(t: TopologyFacts, facts: Facts, plan: Plan, rules: Rules) -> placing.Step:
    """A planted fault: tasks go where they shall be, whoever runs them."""
    assert t.assignment is not None
    return placing.Step(
        interim(t.assignment, plan.assignment, plan.assignment.place_of(), placing.held(t, facts)), None
    )


def _lets_go(t: TopologyFacts, facts: Facts) -> dict[WorkerId, object]:
    """A planted fault: nobody is kept for the sake of a move."""
    return {}


def _believes(t: TopologyFacts, left: Left) -> bool:
    """A planted fault: what was taken is not run any more."""
    return True


def _hopes(plan: Plan, written: Assignment, moving: object) -> bool:
    """A planted fault: what is written where it shall be stays there."""
    return same(written, plan.assignment) and not plan.left


FORCED = [("lose", 2), ("lose", 1), ("decide",), ("drain", 0, True), ("decide",), ("come", 1), ("decide",)]


@pytest.mark.parametrize(
    ("name", "fault", "steps"),
    [
        ("step", _robs, [("ask", 1, 3), ("decide",)]),
        ("held", _lets_go, [("ask", 3, 2), ("live", 2)]),
        ("_has_let_go", _believes, FORCED),
        ("came_true", _hopes, [("ask", 2, 3), ("decide",), ("ask", 1, 3), ("live", 0), ("decide",)]),
    ],
)
def test_the_rules_find_planted_faults(
    name: str,
    fault: object,
    steps: list[tuple],
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[type-arg]
) -> None:
    comes_home(steps)
    monkeypatch.setattr(placing, name, fault)
    with pytest.raises(AssertionError):
        comes_home(steps)


def test_a_share_of_a_component_is_paused_at_a_time() -> None:
    world = World.make()
    world.ask(1, 3)
    world.run()
    (move,) = world.t.moves.values()
    assert {TaskId(t.task) for t in move.record.tasks} == world.t.moving
    assert len(world.t.moving) > RULES.at_once, "more than go at once"
    for batch in range(move.record.batches):
        assert len([t for t in move.record.tasks if t.batch == batch and t.component == "b"]) <= 3


def waits_for_the_old_side() -> None:
    """Who has just come may not have begun yet with what it is to hand on: that it refuses, and it is tried again seconds later."""
    world = World.make()
    for worker in sorted(world.t.workers):
        world.die(worker)
        world.live(worker)
    world.ask(1, 3)
    world.run()
    assert not world.t.moves and all("to begin with it" in said for said in world.waits()), world.waits()
    for worker in sorted(world.t.workers):
        world.carry_out(worker)
    world.run()
    assert world.t.moves


def test_a_move_waits_until_its_tasks_have_begun() -> None:
    waits_for_the_old_side()


def test_a_move_that_does_not_wait_for_the_old_side_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopologyFacts, "begun", lambda self, worker: True)
    with pytest.raises(AssertionError):
        waits_for_the_old_side()


def test_it_does_not_wait_for_the_old_side_for_ever() -> None:
    """The worker says then why it cannot move, and that is told."""
    world = World.make()
    for worker in sorted(world.t.workers):
        world.die(worker)
        world.live(worker)
    world.ask(1, 3)
    world.run()
    due = world.now + RULES.start_timeout
    assert due in placing.deadlines(world.t, world.facts(), RULES)
    world.now = due
    world.run()
    assert world.t.moves


EIGHT = Rules(at_once=8)


def _batches(
    count: int,
    sizes: dict[TaskId, int] | None = None,
    share: float = 0.0,
    rules: Rules = EIGHT,
) -> list[int]:
    """Of a move of so many tasks, and one of another component, from one worker to another."""
    return [m.batch for m in _begun(count, sizes, share, rules).tasks]


def _begun(
    count: int, sizes: dict[TaskId, int] | None = None, share: float = 0.0, rules: Rules = EIGHT
) -> MoveRecord:
    """That move; the other component has one task."""
    components = (
        ComponentSpec(ComponentId("a"), "spout", 1, 1),
        ComponentSpec(ComponentId("b"), "bolt", 2 * count, 2, stateful=True),
        ComponentSpec(ComponentId("c"), "bolt", 1, 1),
    )
    spec = TopologySpec(T, components, workers=1)
    world = World.make()
    state = TopologyState(TopologyStatus.ACTIVE, "t-1", "b", 1.0)
    here, there = WorkerId("t@n0/0"), WorkerId("t@n1/0")
    slots = {w: placing.slot_of(w) for w in (here, there)}
    first = [ExecutorId(c.id, spec.tasks_of(c.id)[0], spec.tasks_of(c.id)[-1]) for c in components]
    assignment = Assignment(T, Epoch(1), slots, tuple((e, here) for e in first))
    going = [t for t in spec.tasks_of(components[1].id) if t > count + 1] + list(
        spec.tasks_of(components[2].id)
    )
    wanted = {c.id: c.executors for c in components}
    desired = relocated(assignment, going, there, slots[there], wanted)
    lives = {w: WorkerInfo(w, Incarnation(f"{w}#1"), "h:1", "", "boot", 1, Epoch(1)) for w in slots}
    plan = Plan(desired, "asked", 1000.0, share=share)
    done = {w: Progress(i.incarnation, Epoch(1)) for w, i in lives.items()}
    t = TopologyFacts(spec, state, 0, assignment, 1, lives, done, plan=plan, plan_version=0)
    world.t = t
    record = placing.begin(t, world.facts(), rules, sizes)
    assert record is not None and [m.task for m in record.tasks] == going
    return record


def test_so_many_get_ready_together_as_are_not_too_large() -> None:
    size = dividing.SOON_SIZE
    for sizes, together in (
        ({}, 0),
        (
            dict.fromkeys(range(2, 34), 100_000),
            SOON,
        ),  # of the other component's task, which has no state, nothing need be known
        ({3: 100_000}, SOON),  # as large as the others, as far as is known
        ({3: size // 4}, 4),
        ({3: size // 2}, 2),
        ({3: size // 2 + 1}, 0),
        ({3: 0}, 0),
    ):
        assert _begun(16, {TaskId(t): s for t, s in sizes.items()}).soon == together, sizes


def test_a_pause_is_for_few_tasks_and_not_too_much_state_unless_somebody_says_more() -> None:
    assert _batches(16, rules=Rules()) == list(range(17)), "one by one"
    # Everything goes through the last one: it stands still by itself.
    assert _batches(16) == [0] * 8 + [1] * 8 + [2]
    assert _batches(16, share=1.0) == [0] * 17
    assert 0.9 * dividing.BATCHES < max(_batches(500)) < dividing.BATCHES  # a batch takes a round
    large = {TaskId(t): 10 << 20 for t in range(1, 40)}  # copied ahead
    assert _batches(8, large) == [0] * 4 + [1] * 4 + [2]
    middling = {TaskId(t): 200_000 for t in range(1, 40)}
    assert _batches(8, middling) == [0] * 5 + [1] * 4
    assert _batches(2) == [0, 0, 0]
    little = Rules(at_once=8, share=0.25)  # of a component that has twice as many as move
    assert _batches(2, rules=little) == [0, 1, 1] and _batches(2, rules=little, share=1.0) == [0, 0, 0]
    assert _batches(16, rules=little) == _batches(16), "as few as without it"
