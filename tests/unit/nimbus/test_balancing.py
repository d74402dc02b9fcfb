"""The balancer, with a reign that only remembers: measurements in, what is to be changed out; and nothing while nobody asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from balance_harness import (
    ALONE,
    APART,
    LINE,
    N1,
    N2,
    OUT,
    W1,
    W2,
    WORK,
    Clock,
    Reign,
    T,
    executor,
    nodes,
    spec,
    topology,
)

from elastic.elasticity import infrastructure, registry, thresholds
from elastic.elasticity.base import Reason as NodeReason
from elastic.elasticity.base import Sizing
from elastic.elasticity.infrastructure import Wants
from elastic.elasticity.monitor import LoadMonitor
from elastic.model.assignment import Assignment
from elastic.model.ids import (
    ComponentId,
    Epoch,
    Incarnation,
    NodeId,
    TaskId,
    TopologyName,
    WorkerId,
)
from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad
from elastic.model.records import (
    ElasticitySettings,
    Progress,
    TopologyStatus,
)
from elastic.nimbus.balancing import balancing, extending, resizing, subjects
from elastic.nimbus.balancing.balancing import Balancer
from elastic.nimbus.balancing.telling import Teller
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.observing.facts import Facts, slot_of
from elastic.nimbus.observing.plans import Failure, Plan
from elastic.scheduler.algorithm1 import TStormParams
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.decision import Decision, Reason
from elastic.scheduler.registry import Choice, choose


def test_nothing_is_measured_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> bool:
        raise AssertionError("measured")

    monkeypatch.setattr(LoadMonitor, "observe", never)
    monkeypatch.setattr(LoadMonitor, "view", never)
    clock = Clock(Reign())
    clock.go(3, 1.0)
    assert clock.reign.events == [] and clock.reign.adopted == []
    clock.reign.said = ElasticitySettings(policy=LINE)
    with pytest.raises(AssertionError, match="measured"):
        clock.go(2, 1.0)


@pytest.mark.parametrize("own", [True, False])
def test_a_topology_follows_its_load(own: bool) -> None:
    reign = Reign(line=LINE) if own else Reign(policy=LINE)
    clock = Clock(reign)
    clock.go(4, 1.0)
    assert clock.executors >= 2 and reign.kinds()[:2] == ["scale-out", "relocated"]
    desired, why, executors, workers = reign.adopted[0]
    assert executors == {OUT: 1, WORK: 2} and workers == 1 and "above 0.7 busy" in why
    assert {w for _, w in desired.executors} == {W1}, "it waits: a thread is enough"
    clock.go(12, 1.0)
    assert clock.executors == 3 and "at-maximum" in reign.kinds() and "topology-resized" in reign.kinds()
    clock.go(20, 0.01)
    assert clock.executors == 1 and "scale-in" in reign.kinds()
    told = [e.kind for e in clock.balancer.told(T)]
    assert told == [e.kind for e in reign.events if e.topology == T] and "scaled" in told


def test_bounds_of_a_whole_topology_hold_for_each_component_without_its_own() -> None:
    facts = topology(ALONE, min_executors=2, max_executors=2)
    subject = subjects.subject_of(facts, Facts(0.0), Rules())
    assert subject is not None
    assert subject.limits(OUT) == (1, 1) and subject.limits(WORK) == (2, 3)


def test_computing_goes_to_other_processes() -> None:
    clock = Clock(Reign(line=LINE))
    clock.go(6, 0.95, cpu=0.9)
    (desired, *_) = clock.reign.adopted[-1]
    assert len({w for e, w in desired.executors if e.component == WORK}) >= 2


CROWD = replace(
    APART,
    executors=((executor(OUT, 1, 1), W2), (executor(WORK, 2, 3), W1), (executor(WORK, 4, 5), W1)),
)


def test_executors_that_share_a_full_process_are_parted() -> None:
    reign = Reign(CROWD, line=f"{LINE} --scale-out 0.99")
    clock = Clock(reign)
    clock.go(6, 0.6, cpu=0.48)
    assert "crowded" in reign.kinds()
    desired, *_ = reign.adopted[0]
    assert len({w for e, w in desired.executors if e.component == WORK}) == 2


def test_a_planted_fault_dealing_by_number_leaves_them_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resizing, "relieved", lambda assignment, *_: assignment)
    with pytest.raises((AssertionError, IndexError)):
        test_executors_that_share_a_full_process_are_parted()


def test_what_is_only_tried_changes_nothing() -> None:
    clock = Clock(Reign(policy=f"{LINE} --dry-run"))
    clock.go(6, 1.0)
    assert clock.reign.adopted == [] and clock.executors == 1
    out = next(e for e in clock.reign.events if e.kind == "scale-out")
    assert out.message.startswith("dry run: ") and out.details["dry_run"] == 1


def test_what_cannot_be_done_is_said_and_tried_again() -> None:
    clock = Clock(Reign(policy=LINE))
    clock.reign.refuses = True
    clock.go(4, 1.0)
    assert "resize-refused" in clock.reign.kinds() and clock.executors == 1
    clock.reign.refuses = False
    clock.go(4, 1.0)
    assert clock.executors >= 2


def test_a_line_that_cannot_be_used_here_is_said_once() -> None:
    clock = Clock(Reign(policy="of-a-package-that-is-gone"))
    clock.go(3, 1.0)
    assert clock.reign.kinds() == ["elasticity-refused"]


@pytest.mark.parametrize(
    "why",
    ["inactive", "planned", "behind"],
)
def test_who_is_just_changing_is_left_alone(why: str) -> None:
    reign = Reign(policy=LINE)
    t = reign.seen.topologies[T]
    if why == "inactive":
        t = topology(ALONE, TopologyStatus.INACTIVE)
    elif why == "planned":
        t = replace(t, plan=Plan(APART, "asked", 0.0))
    else:
        t = replace(t, progress={W1: Progress(Incarnation(f"{W1}#1"), Epoch(0))})
    reign.seen = replace(reign.seen, topologies={T: t})
    clock = Clock(reign)
    clock.go(6, 1.0)
    assert reign.adopted == []


def test_who_gets_nothing_because_a_worker_has_ended_is_left_alone() -> None:
    halves = ((executor(OUT, 1, 1), W1), (executor(WORK, 2, 3), W2), (executor(WORK, 4, 5), W2))
    reign = Reign(replace(APART, executors=halves), policy=f"{LINE} --workers no")
    clock = Clock(reign)
    clock.go(6, 0.5)
    lives = reign.seen.topologies[T]
    ended = replace(lives, workers={W2: lives.workers[W2]})
    reign.seen = replace(reign.seen, topologies={T: ended})
    clock.go(12, 0.01)
    assert reign.adopted == []
    reign.seen = replace(reign.seen, topologies={T: lives})
    clock.go(6, 0.01)
    assert clock.executors == 1


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes everything for settled resizes what is just changing."""
    monkeypatch.setattr(subjects, "settled", lambda *_: True)
    with pytest.raises(AssertionError):
        test_who_is_just_changing_is_left_alone("behind")


def test_a_topology_of_which_a_task_has_finished_is_sized_as_before() -> None:
    reign = Reign(policy=LINE)
    t = reign.seen.topologies[T]
    done = {W1: Progress(Incarnation(f"{W1}#1"), Epoch(1), finished=(1,))}
    reign.seen = replace(reign.seen, topologies={T: replace(t, progress=done)})
    Clock(reign).go(6, 1.0)
    assert reign.kinds()[0] == "scale-out" and reign.adopted


def test_a_scheduler_is_exchanged_and_explains_itself() -> None:
    reign = Reign(APART, scheduler="otd", period=1.0)
    clock = Clock(reign)
    clock.go(1, 0.3)
    assert reign.kinds() == [], "what was measured since everything is where it is says too little"
    clock.go(4, 0.3)
    assert "case-4" in reign.kinds() or "moved" in reign.kinds()
    reign.adopted.clear()
    reign.seen = replace(reign.seen, topologies={T: topology(APART)})
    reign.said = ElasticitySettings(scheduler="tstorm --gamma 6 --worker-cores 0", period=1.0)
    clock.go(6, 0.3)
    assert "rescheduled" in reign.kinds()
    desired, why, executors, workers = reign.adopted[0]
    assert len({w for _, w in desired.executors}) == 1 and why.startswith("tstorm: ")
    assert executors == {} and workers is None
    before = len(reign.events)
    clock.go(5, 0.3)
    assert reign.kinds()[before:].count("kept") <= 1, "that nothing is done is said once"


def test_overload_does_not_wait_for_the_period() -> None:
    """T-Storm (2014), section IV.C. Two executors fit into a worker while they compute little, and not when one needs all of its core."""
    reign = Reign(ALONE, scheduler="tstorm --gamma 2", period=300.0)
    clock = Clock(reign)
    clock.go(12, 0.5, cpu=0.5)
    assert reign.adopted == [], "nothing is overloaded"
    clock.go(12, 1.0, cpu=1.0)
    ((desired, why, _, _),) = reign.adopted
    assert len({s.node for s in desired.workers.values()}) == 2
    assert why.startswith("tstorm: T-Storm's schedule, because capacities were exceeded by")


def test_a_scheduler_that_is_set_again_decides_by_what_is_measured_then() -> None:
    reign = Reign(ALONE, scheduler="tstorm --gamma 2", period=300.0)
    clock = Clock(reign)
    clock.go(8, 0.5, cpu=0.5)
    set_again = reign.said
    reign.said = ElasticitySettings()
    clock.go(5, 1.0, cpu=1.0)
    before = len(reign.events)
    reign.said = set_again
    clock.go(2, 1.0, cpu=1.0)
    assert reign.kinds()[before:] == [], "what was measured a while ago is nothing to decide by"
    clock.go(4, 1.0, cpu=1.0)
    assert [why for _, why, _, _ in reign.adopted] and "exceeded by 0.11 cores" in reign.adopted[0][1]


def test_a_scheduler_whose_period_is_changed_does_not_wait_for_the_end_of_the_one_before() -> None:
    reign = Reign(APART, scheduler="tstorm --gamma 6 --worker-cores 0", period=3600.0)
    clock = Clock(reign)
    clock.go(6, 0.3)
    assert len(reign.adopted) == 1
    reign.seen = replace(reign.seen, topologies={T: topology(APART)})
    clock.go(6, 0.3)
    assert len(reign.adopted) == 1, "it is not due for an hour"
    reign.said = replace(reign.said, period=1.0)
    clock.go(6, 0.3)
    assert len(reign.adopted) == 2


def test_a_scheduler_that_found_nothing_measured_does_not_wait_for_its_period() -> None:
    reign = Reign(ALONE, scheduler="tstorm --gamma 2", period=300.0)
    clock = Clock(reign)
    for _ in range(17):  # nobody reports
        clock.balancer.look(clock.now)
        clock.now += 1.0
    assert reign.kinds() == ["nothing-measured"]
    clock.go(8, 0.5, cpu=0.5)
    assert reign.kinds() == ["nothing-measured", "kept"]


def test_a_worker_that_reports_rarely_is_waited_for() -> None:
    """One with much to tell reports every four seconds here: nothing is decided by what it did before its third report."""
    reign = Reign(APART, scheduler="otd", period=1.0)
    clock = Clock(reign)
    for second in range(1, 12):
        clock.balancer.look(clock.now)
        clock.now += 1.0
        if second % 4 == 0:
            clock.second = second
            clock.balancer.observe(reign.measured(second, 0.3), nodes(second))
    assert reign.kinds() == []
    clock.second = 12
    clock.go(1, 0.3)
    assert "case-4" in reign.kinds() or "moved" in reign.kinds()


def test_a_topology_that_reports_more_rarely_than_silence_is_forgotten_is_sized() -> None:
    reign = Reign()
    line = LINE.replace("--cooldown 0", "--cooldown 1000")
    reign.seen = replace(reign.seen, topologies={T: topology(ALONE, elastic=line, report_interval=40.0)})
    clock = Clock(reign)
    for second in range(1, 130):
        clock.balancer.look(clock.now)
        clock.now += 1.0
        if second % 40 == 0:
            for report in reign.measured(second, 1.0):
                clock.balancer._measuring._monitor.observe(report, clock.now)
    assert len(reign.adopted) == 1
    for _ in range(130):  # nobody reports any more
        clock.balancer.look(clock.now)
        clock.now += 1.0
    assert not clock.balancer._measuring.view(reign.seen, clock.now).executors


def test_overload_that_nothing_relieves_is_looked_at_once() -> None:
    reign = Reign(ALONE, scheduler="tstorm", period=300.0)
    reign.seen = replace(reign.seen, nodes={N1: reign.seen.nodes[N1]})
    clock = Clock(reign)
    clock.go(12, 0.5, cpu=0.5)
    clock.go(60, 1.0, cpu=1.0)
    assert reign.adopted == []
    assert reign.kinds().count("resources-lack") == 1


def test_otd_that_does_nothing_says_so_once_and_again_after_a_move() -> None:
    said = Reign()
    teller = Teller(said)
    idle = (Reason("case-3", "nothing pays"),)
    moved = (Reason("case-3", "this pays"), Reason("moved", "it goes", T))
    for reasons in (moved, idle, idle, idle, moved, idle):
        teller.explain(reasons)
    assert said.kinds() == ["case-3", "moved", "case-3", "case-3", "moved", "case-3"]


def test_what_was_decided_about_nodes_is_kept_however_much_a_scheduler_says() -> None:
    reign = Reign()
    teller = Teller(reign)
    teller.say((NodeReason("node-request", "more are needed"),), dry=False)
    for n in range(200):
        teller.explain((Reason("rescheduled", f"schedule {n}"),))
    assert [e.message for e in teller.told(newest=2)] == ["more are needed", "schedule 198", "schedule 199"]
    later = Teller(reign)
    later.recall("", teller.told(newest=2))
    assert later.told() == teller.told(newest=2)


def test_nodes_are_asked_for_and_returned() -> None:
    reign = Reign(policy=LINE, nodes="--maximum 4 --minimum 1 --patience 3 --cooldown-in 3 --cooldown-out 1")
    clock = Clock(reign)
    clock.go(6, 0.3)
    assert reign.added == 0
    clock.go(8, 0.3)
    assert reign.drained and "node-return" in reign.kinds()
    reign.said = replace(reign.said, nodes="--maximum 4 --minimum 3")
    clock.go(2, 0.3)
    assert reign.added >= 1 and "node-request" in reign.kinds()
    told = clock.balancer.told_with_nodes(T, 0.0)
    assert {"node-return", "node-request"} <= {e.kind for e in told}, "a topology's description says why, too"
    assert [e.time for e in told] == sorted(e.time for e in told)
    assert set(clock.balancer.told(T)) == {e for e in told if not e.kind.startswith("node-")}
    late = next(e.time for e in told if e.kind == "node-request")
    assert next(e.kind for e in clock.balancer.told_with_nodes("another", late)) == "node-request"


@pytest.mark.parametrize(
    ("was", "said"), [(True, "n2 has been gone for 5 s"), (False, "n2 was asked for 5 s ago")]
)
def test_a_node_that_is_given_up_is_told_as_what_it_is(was: bool, said: str) -> None:
    reign = Reign(nodes="--maximum 4 --minimum 2 --overdue 5")
    clock = Clock(reign)
    alone = {N1: reign.seen.nodes[N1]}
    if not was:
        reign.seen = replace(reign.seen, nodes=alone)
    for _ in range(9):
        clock.balancer.look(clock.now)
        clock.now += 1.0
        reign.seen = replace(reign.seen, nodes=alone)
    told = next(e.message for e in reign.events if e.kind == "node-overdue")
    assert told.startswith(said) and ", and is given up" in told
    assert N2 in reign.drained


def test_a_run_of_a_policy_is_not_late_because_a_look_came_just_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(Reign(policy=LINE))
    clock.go(4, 0.3)
    due = min(s.manager.state.due for s in clock.balancer._resizing._sizers.values())
    monkeypatch.setattr(balancing.time, "monotonic", lambda: due - 0.125)
    assert clock.balancer._tick() == pytest.approx(0.125)
    monkeypatch.setattr(balancing.time, "monotonic", lambda: due + 0.5)
    assert clock.balancer._tick() > 0.125, "who is not asked at all is not waited for all the time"


def test_nodes_on_one_machine_share_its_cores() -> None:
    view = LoadView(nodes={N1: NodeLoad(2.0, 1.0), N2: NodeLoad(2.0, 1.0)})
    part = NodeLoad(1.0, 0.5, sharing=2)
    assert subjects.shared(view, {N1: "m", N2: "m"}).nodes == {N1: part, N2: part}
    assert subjects.shared(view, {N1: "m", N2: "n"}) is view
    assert subjects.shared(view, {N1: "", N2: ""}) is view, "their own"


def test_the_thread_ends() -> None:
    balancer = Balancer(Reign())
    balancer.close()
    balancer.start()
    balancer.join()
    assert balancing.Balancer is Balancer


def test_a_scheduler_whose_schedules_save_nothing_waits_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where executors are decides what is measured of them: each schedule promises to save all, and never does."""
    reign = Reign(APART, scheduler="tstorm", period=1.0)
    asked: list[float] = []
    clock = Clock(reign)

    def decide(*args: object) -> Decision:
        asked.append(clock.now)
        (placed,) = reign.seen.claims().values()
        other = APART if placed.workers == ALONE.workers else ALONE
        details = {"before": 90.0, "after": 10.0, "traffic": 100.0, "saves": 0.8}
        return Decision(
            {T: replace(other, epoch=Epoch(placed.epoch + 1))},
            (Reason("rescheduled", "it saves.", details=details),),
        )

    kind = replace(choose("tstorm").kind, decide=decide, excess=None)
    monkeypatch.setattr(
        "elastic.nimbus.balancing.balancing.choose", lambda line: Choice(kind, TStormParams())
    )
    clock.go(60, 0.3)
    assert 2 <= len(reign.adopted) <= 5, "to and fro"
    assert reign.kinds().count("kept") >= 2
    (doubt,) = [e for e in reign.events if e.kind == "kept"][:1]
    assert "from 90% to 10%, and it is 90%" in doubt.message
    waits = [b - a for a, b in pairwise(asked)]
    assert max(waits) >= 8 > waits[0]


def no_answer(demands: Sequence[Demand], *rest: object) -> Decision:
    return Decision({}, (Reason("rescheduled", "for nobody."),))


def divides(*args: object) -> Decision:
    raise ZeroDivisionError("of the plug-in")


@pytest.mark.parametrize(
    ("wrong", "said"), [(divides, "ZeroDivisionError: of the plug-in"), (no_answer, "KeyError: 't'")]
)
def test_a_scheduler_that_raises_is_told_once_and_holds_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., Decision], said: str
) -> None:
    kind, asked = choose("tstorm").kind, [0]
    fails = True

    def decide(*args: Any) -> Decision:
        asked[0] += 1
        return wrong(*args) if fails else kind.decide(*args)

    mine = replace(kind, decide=decide, excess=None)
    monkeypatch.setattr(
        "elastic.nimbus.balancing.balancing.choose", lambda line: Choice(mine, TStormParams(gamma=6))
    )
    reign = Reign(APART, scheduler="mine", period=1.0)
    clock = Clock(reign)
    clock.go(8, 0.3)
    assert reign.kinds() == ["scheduler-failed"], "said once while it lasts"
    assert said in reign.events[0].message and "'tstorm'" in reign.events[0].message
    assert 3 <= asked[0] <= 9, "a period later again, not with every look"
    fails = False
    clock.go(4, 0.3)
    assert reign.adopted, "it is tried again"


@pytest.mark.parametrize("details", [{"traffic": 7.0}, {"traffic": "much", "before": 1.0}])
def test_a_scheduler_of_ones_own_may_name_its_numbers_as_it_likes(
    monkeypatch: pytest.MonkeyPatch, details: dict[str, Any]
) -> None:
    kind = choose("roundrobin").kind
    together = replace(APART, executors=tuple((e, W1) for e, _ in APART.executors), workers={W1: slot_of(W1)})

    def decide(demands: Sequence[Demand], *rest: Any) -> Decision:
        return Decision({T: together}, (Reason("together", "All go to one worker.", T, details=details),))

    mine = replace(kind, decide=decide)
    monkeypatch.setattr("elastic.nimbus.balancing.balancing.choose", lambda line: Choice(mine, kind.params()))
    reign = Reign(APART, scheduler="mine", period=1.0)
    Clock(reign).go(6, 0.3)
    assert reign.adopted and reign.kinds()[0] == "together"


def test_a_scheduler_that_raises_fails_to_carry_out_a_decision_and_holds_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = replace(choose("roundrobin").kind, decide=divides)
    monkeypatch.setattr("elastic.nimbus.balancing.balancing.choose", lambda line: Choice(kind, kind.params()))
    reign = Reign(policy=LINE, scheduler="mine", period=1000.0, nodes="--maximum 4 --minimum 3")
    Clock(reign).go(4, 1.0)
    told = next(e for e in reign.events if e.kind == "resize-refused")
    assert "scheduler 'roundrobin' has failed: ZeroDivisionError: of the plug-in" in told.message
    assert reign.added >= 1 and T in reign.written


def test_a_schedule_that_is_refused_is_not_told_as_if_it_were_in_force() -> None:
    reign = Reign(APART, scheduler="tstorm --gamma 6 --worker-cores 0", period=1.0)
    reign.refuses = True
    clock = Clock(reign)
    clock.go(12, 0.3)
    assert reign.kinds() == ["reschedule-refused"], "said once while it lasts"
    assert "somebody else was faster" in reign.events[0].message and reign.events[0].topology == T
    reign.refuses = False
    clock.go(6, 0.3)
    assert "rescheduled" in reign.kinds() and reign.adopted


@pytest.mark.parametrize("again", [True, False])
def test_a_scheduler_places_by_where_tasks_are_and_not_by_where_they_could_not_be_moved_to(
    monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    kind, seen = choose("roundrobin").kind, []
    workers = {W1: slot_of(W1), W2: slot_of(W2)}
    other = replace(APART, executors=tuple((e, W2) for e, _ in APART.executors), workers={W2: workers[W2]})

    def decide(demands: Sequence[Demand], cluster: Any, view: Any, current: Any, *rest: Any) -> Decision:
        seen.append(current[T])
        return Decision({T: ALONE if again else other}, (Reason("together", "All go to one worker.", T),))

    mine = replace(kind, decide=decide)
    monkeypatch.setattr("elastic.nimbus.balancing.balancing.choose", lambda line: Choice(mine, kind.params()))
    reign = Reign(APART, scheduler="mine", period=1.0)
    failures = tuple(Failure(TaskId(n), 3, 0.0, "no way.") for n in range(2, 6))
    stays = replace(reign.seen.topologies[T], plan=Plan(ALONE, "asked", 0.0, failures=failures))
    reign.seen = replace(reign.seen, topologies={T: stays})
    Clock(reign).go(6, 0.3)
    assert seen[0].executors == APART.executors and dict(seen[0].workers) == workers
    if again:
        assert not reign.adopted and "together" not in reign.kinds(), (
            "what was given up is not tried for ever"
        )
    else:
        assert reign.adopted[0][0] == other and reign.kinds()[0] == "together"


def test_schedules_of_several_topologies_do_not_block_each_other_where_slots_are_free() -> None:
    """Both are placed anew on two nodes with four slots each, and neither can have a slot before the other has left it."""
    names = [TopologyName(n) for n in ("a", "b")]
    places = {"a": ("n1/0", "n2/0", "n1/0", "n1/1"), "b": ("n2/1", "n1/2", "n2/1", "n2/2")}
    cpu = {"a": (0.46, 0.48, 0.73, 0.38), "b": (0.44, 0.32, 0.69, 0.19)}
    rates = {"a": (55.0, 19.0, 72.0, 54.0), "b": (15.0, 93.0, 39.0, 2.0)}
    executors = [executor(OUT, 1, 1), executor(OUT, 2, 2), executor(WORK, 3, 3), executor(WORK, 4, 4)]
    view, current, demands = LoadView(nodes={n: NodeLoad(4.0) for n in (N1, N2)}), {}, []
    for name in names:
        workers = [WorkerId(f"{name}@{place}") for place in places[name]]
        slots = {w: slot_of(w) for w in workers}
        current[name] = Assignment(name, Epoch(1), slots, tuple(zip(executors, workers, strict=True)))
        keys = [ExecutorKey(name, e) for e in executors]
        loads = {k: SmoothedLoad(cpu=c, samples=5) for k, c in zip(keys, cpu[name], strict=True)}
        pairs = [(s, t) for s in keys[:2] for t in keys[2:]]
        traffic = dict(zip(pairs, rates[name], strict=True))
        view = replace(view, executors={**view.executors, **loads}, traffic={**view.traffic, **traffic})
        parts = tuple(replace(c, tasks=2, executors=2) for c in spec().components)
        demands.append(Demand(replace(spec(), name=name, components=parts), 2, movable=True))
    cluster = ClusterView((NodeSlots(N1, 4), NodeSlots(N2, 4)))
    decided = choose("tstorm --workers-per-node 0").decide(demands, cluster, view, current)
    assert decided.reasons[0].kind == "rescheduled"
    for name in names:
        (other,) = set(names) - {name}
        wanted = decided.assignments[name].workers.values()
        assert not {slot for slot in wanted if slot in current[other].workers.values()}


def test_a_topology_that_rests_keeps_its_place_and_nobody_waits_for_it() -> None:
    reign = Reign(APART, scheduler="tstorm --gamma 6 --worker-cores 0", period=1.0)
    name = TopologyName("other")
    resting = replace(
        topology(APART, TopologyStatus.INACTIVE),
        spec=replace(spec(), name=name),
        assignment=replace(APART, topology=name),
    )
    reign.seen = replace(reign.seen, topologies={T: topology(APART), name: resting})
    Clock(reign).go(6, 0.3)
    assert reign.adopted and {a.topology for a, _, _, _ in reign.adopted} == {T}


NODES = "--minimum 1 --maximum 4 --patience 3 --cooldown-in 3"


def drained(reign: Reign) -> list[NodeId]:
    """Which nodes are, in 20 s in which all that runs is busy, and measured after each look."""
    clock = Clock(reign)
    for second in range(1, 21):
        clock.balancer.look(clock.now)
        clock.now += 1.0
        clock.balancer.observe(reign.measured(second, 0.95, 1.7), nodes(second, 2.0, 1.7))
    return reign.drained


@pytest.mark.parametrize("line", ["of-a-package-that-is-gone --speed 3", "thresholds --enabled no"])
def test_nodes_are_not_taken_from_those_whom_no_policy_can_look_at(line: str) -> None:
    reign = Reign(APART, line=line, nodes=NODES)
    assert drained(reign) == []


@pytest.mark.parametrize("policy", ["thresholds", "ds2"])
def test_nodes_are_not_taken_from_those_who_were_not_measured_yet_when_a_policy_looked(policy: str) -> None:
    """It looks again long after a node could have been returned."""
    reign = Reign(APART, policy=f"{policy} --period 60", nodes=NODES)
    assert drained(reign) == []


def test_a_topology_that_has_just_come_counts_with_what_it_has_until_a_policy_looks_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted: list[int] = []

    def decide(there: Any, wants: Wants, *rest: Any) -> Any:
        wanted.append(wants.workers)
        return infrastructure.decide(there, wants, *rest)

    monkeypatch.setattr(extending, "infrastructure", SimpleNamespace(decide=decide))
    reign = Reign(policy="thresholds --period 1000", nodes=NODES)
    clock = Clock(reign)
    clock.go(6, 0.3)
    name = TopologyName("new")
    new = replace(topology(ALONE), spec=replace(spec(), name=name), assignment=replace(ALONE, topology=name))
    reign.seen = replace(reign.seen, topologies={T: topology(ALONE), name: new})
    assert wanted[-1] == 1
    clock.go(1, 0.3)
    assert wanted[-1] == 2


@pytest.mark.parametrize("line", ["", LINE])
def test_a_topology_that_rests_keeps_no_node_that_nobody_needs(line: str) -> None:
    reign = Reign(policy=line, nodes=NODES)
    reign.seen = replace(reign.seen, topologies={T: topology(ALONE, TopologyStatus.INACTIVE)})
    Clock(reign).go(12, 0.0)
    assert reign.drained and reign.drained[0] == N2


@pytest.mark.parametrize("line", [LINE, LINE.replace("thresholds", "ds2")])
def test_a_topology_that_has_rested_is_not_taken_for_idle_when_it_goes_on(line: str) -> None:
    halves = ((executor(OUT, 1, 1), W1), (executor(WORK, 2, 3), W1), (executor(WORK, 4, 5), W1))
    reign = Reign(replace(ALONE, executors=halves), policy=line)
    clock = Clock(reign)
    for status, busy in ((TopologyStatus.INACTIVE, 0.0), (TopologyStatus.ACTIVE, 0.5)):
        placed = reign.seen.topologies[T].assignment
        assert placed is not None
        reign.seen = replace(reign.seen, topologies={T: topology(placed, status)})
        clock.go(8, busy)
    assert reign.adopted == [] and clock.executors == 2
    clock.go(12, 0.01)
    assert clock.executors == 1, "it is measured again"


def test_a_policy_that_raises_is_told_once_and_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = True

    def size(*given: Any) -> Sizing:
        if fails:
            raise ZeroDivisionError("of the plug-in")
        return thresholds.POLICY.size(*given)

    monkeypatch.setitem(registry.BUILT_IN, "mine", replace(thresholds.POLICY, name="mine", size=size))
    reign = Reign(line=LINE.replace("thresholds", "mine"), nodes="--maximum 4 --minimum 3")
    clock = Clock(reign)
    clock.go(8, 1.0)
    assert reign.kinds().count("policy-failed") == 1
    told = next(e for e in reign.events if e.kind == "policy-failed")
    assert "ZeroDivisionError: of the plug-in" in told.message and "mine" in str(told.details["line"])
    assert reign.added >= 1 and clock.balancer._resizing.sized() == set()
    fails = False
    clock.go(4, 1.0)
    assert reign.adopted, "it is tried again"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Sizing({WORK: 4}), "may have 1 to 3 executors, not 4"),
        (Sizing({WORK: 0}), "may have 1 to 3 executors, not 0"),
        (Sizing({WORK: 2.5}), "TypeError"),  # type: ignore[dict-item]
        (Sizing({ComponentId("nix"): 2}), "sizes component 'nix' of t, of which it was told nothing"),
        (Sizing({}, {WORK: math.nan}), "no finite numbers"),
        (Sizing(lacking=math.inf), "no finite numbers"),
    ],
)
def test_a_policy_that_wants_what_cannot_be_is_told_and_holds_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch, wanted: Sizing, said: str
) -> None:
    def size(loads: Any, *given: Any) -> Sizing:
        return wanted if WORK in loads else Sizing()

    monkeypatch.setitem(registry.BUILT_IN, "mine", replace(thresholds.POLICY, name="mine", size=size))
    reign = Reign(line=LINE.replace("thresholds", "mine"), nodes="--maximum 4 --minimum 3")
    Clock(reign).go(6, 1.0)
    told = [e.message for e in reign.events if e.kind == "policy-failed"]
    assert len(told) == 1 and said in told[0]
    assert reign.added >= 1 and reign.adopted == []


def test_what_was_refused_has_led_to_nothing() -> None:
    reign = Reign(policy=LINE)
    reign.refuses = True
    Clock(reign).go(8, 1.0)
    assert "resize-refused" in reign.kinds() and "scaled" not in reign.kinds()


def decided() -> tuple[Reign, Clock]:
    """A policy has decided that one executor becomes two."""
    reign = Reign(policy=LINE)
    clock = Clock(reign)
    while not reign.adopted:
        clock.go(1, 1.0)
    return reign, clock


@pytest.mark.parametrize("how", ["overtaken", "given up", "aborted"])
def test_a_decision_that_did_not_come_true_is_not_told_as_if_it_had(how: str) -> None:
    reign, clock = decided()
    if how == "overtaken":
        now = topology(ALONE)
    else:
        halves = ((executor(OUT, 1, 1), W1), (executor(WORK, 2, 3), W1), (executor(WORK, 4, 5), W2))
        failures = () if how == "aborted" else tuple(Failure(TaskId(n), 3, 0.0, "no way.") for n in (4, 5))
        halted = "no time." if how == "aborted" else ""
        plan = Plan(replace(APART, executors=halves), "asked", 0.0, failures=failures, halted=halted)
        now = replace(topology(ALONE), plan=plan)
    reign.seen = replace(reign.seen, topologies={T: now})
    clock.balancer.look(clock.now)
    assert "topology-resized" not in reign.kinds()
    (told,) = [e for e in reign.events if e.kind == "resize-refused"]
    why = {
        "overtaken": "something else was asked for since",
        "given up": "tasks 4, 5 stay where they are: no way.",
        "aborted": "tasks 4, 5 stay where they are: no time.",
    }[how]
    assert told.message == f"topology t: work 1 -> 2 is not carried out: {why}"
    assert clock.balancer._resizing.memories[T].before is None, "it has led to nothing"


@pytest.mark.parametrize(("busy", "becomes"), [(1.0, 3), (0.01, 2)])
def test_a_component_of_which_tasks_could_not_be_moved_is_still_sized(busy: float, becomes: int) -> None:
    """Two executors were to become one, and two tasks stay where they are. That alone is not tried again and again."""
    halves = ((executor(OUT, 1, 1), W1), (executor(WORK, 2, 3), W1), (executor(WORK, 4, 5), W2))
    failures = tuple(Failure(TaskId(n), 3, 0.0, "no way.") for n in (4, 5))
    reign = Reign(replace(APART, executors=halves), policy=LINE)
    stays = replace(reign.seen.topologies[T], plan=Plan(ALONE, "asked", 0.0, failures=failures))
    reign.seen = replace(reign.seen, topologies={T: stays})
    clock = Clock(reign)
    clock.go(12, busy)
    assert clock.executors == becomes
    assert "scale-in" not in reign.kinds()


@pytest.mark.parametrize("later", [False, True])
def test_the_end_of_a_decision_is_told_though_nobody_asks_for_a_policy_any_more(later: bool) -> None:
    """Also by the next leader. Otherwise it would be told when somebody does, as if it had taken until then."""
    reign, clock = decided()
    reign.said = ElasticitySettings()
    clock = Clock(reign) if later else clock
    clock.balancer.look(clock.now)
    assert "topology-resized" in reign.kinds()
    clock.balancer.look(clock.now)
    assert not clock.balancer._active


def test_a_decision_is_not_told_as_carried_out_where_what_is_shown_is_of_before_it() -> None:
    reign, clock = decided()
    reign.shown = replace(reign.seen, topologies={T: topology(ALONE)})
    behind = replace(reign.seen.topologies[T], progress={W1: Progress(Incarnation(f"{W1}#1"), Epoch(0))})
    reign.seen, done = replace(reign.seen, topologies={T: behind}), reign.seen
    clock.balancer.look(clock.now)
    assert not {"topology-resized", "resize-refused"} & set(reign.kinds())
    reign.shown, reign.seen = None, done
    clock.balancer.look(clock.now)
    assert "topology-resized" in reign.kinds() and "resize-refused" not in reign.kinds()


def test_numbers_without_end_are_kept_for_the_next_leader() -> None:
    reign = Reign(APART, scheduler="tstorm --gamma inf", period=1.0)
    Clock(reign).go(12, 0.3)
    assert reign.of_nodes.told[0].details["gamma"] == "inf"
