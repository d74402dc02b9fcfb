"""What the supervisor decides: single situations by table, and whole histories by random."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.records import Allocation, TopologyState, TopologyStatus, WorkerInfo
from elastic.supervisor import decide as d
from elastic.supervisor.allocate import allocation, nothing, workers_here
from elastic.supervisor.bundles import BundleState
from elastic.supervisor.decide import Life, Phase, Situation, decide
from elastic.supervisor.observe import TopologyView
from elastic.supervisor.options import SupervisorOptions
from elastic.supervisor.ports import CANNOT_LOAD

NODE = NodeId("n")
T = TopologyName("t")
W = WorkerId("t@n/0")
ELSEWHERE = WorkerId("t@m/0")
NOW = 1000.0
OPTIONS = SupervisorOptions(kill_delay=5.0, grace=1.0, start_timeout=60.0)


def executor(first: int, last: int) -> ExecutorId:
    return ExecutorId(ComponentId("c"), TaskId(first), TaskId(last))


def view(
    worker: WorkerId = W,
    status: TopologyStatus = TopologyStatus.ACTIVE,
    id: str = "1",
    workers: tuple[WorkerInfo, ...] = (),
    epoch: int = 1,
    held: bool = False,
    **config: object,
) -> TopologyView:
    """`held`: both workers are named, whoever has the executors."""
    places = {W: WorkerSlot(NODE, 0), ELSEWHERE: WorkerSlot(NodeId("m"), 0)}
    places = places if held else {worker: places[worker]}
    assignment = Assignment(T, Epoch(epoch), places, ((executor(1, 2), worker),))
    return TopologyView(T, TopologyState(status, id, f"bundle-{id}", 0.0), assignment, workers, config=config)


def info(incarnation: str, worker: WorkerId = W) -> WorkerInfo:
    return WorkerInfo(worker, Incarnation(incarnation), "", "", "", 1, Epoch(1))


def life(phase: Phase = Phase.RUNNING, **changes: object) -> Life:
    made = Life(W, T, "1", "bundle-1", Incarnation("t@n/0#1"), NOW - 10, phase)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def situation(
    seen: TopologyView | None = None,
    known: Life | None = None,
    *,
    written: bool = True,
    ready: bool = True,
    connected: bool = True,
    ending: bool = False,
) -> Situation:
    seen = seen or view()
    allocations: Mapping[WorkerId, Allocation] = {}
    if written and seen.assignment and seen.running:
        allocations = {W: dataclasses.replace(allocation(seen, W), version=3)}
    bundles = {"bundle-1": BundleState.READY if ready else BundleState.FETCHING}
    lives = {W: known} if known else {}
    return Situation(NODE, NOW, connected, ending, {T: seen}, lives, allocations, bundles, OPTIONS)


START = d.Start(W, T, "1", "bundle-1", 0)
GONE = view(ELSEWHERE)
HELD = view(ELSEWHERE, held=True)
OVER = view(status=TopologyStatus.KILLED)
STOP_AT = NOW + 5.0 + 1.0  # the topology's stop_grace, and ours

TABLE: dict[str, tuple[Situation, tuple[d.Action, ...], float | None]] = {
    "new: start it": (situation(), (START,), None),
    "new: write first": (situation(written=False), (d.Write(allocation(view(), W)), START), None),
    "new: the bundle is coming": (situation(ready=False), (), None),
    "new: somebody is registered": (
        situation(view(workers=(info("t@n/0#9"),))),
        (d.Reap(info("t@n/0#9")),),
        None,
    ),
    "new: others don't matter": (situation(view(workers=(info("t@m/0#9", ELSEWHERE),))), (START,), None),
    "new: not connected": (situation(connected=False), (), None),
    "new: ending": (situation(ending=True), (d.Finish(),), None),
    "running, registered": (
        situation(view(workers=(info("t@n/0#1"),)), life()),
        (d.Registered(W),),
        None,
    ),
    "running, registered, as is known": (
        situation(view(workers=(info("t@n/0#1"),)), life(registered=True, since=NOW - 60)),
        (),
        None,
    ),
    "running, registered no more": (
        situation(known=life(registered=True, since=NOW - 60)),
        (d.Absent(W, NOW + 1.0),),
        None,
    ),
    "running, registered no more, and may still end by itself": (
        situation(known=life(registered=True, absent_at=NOW + 0.5)),
        (),
        NOW + 0.5,
    ),
    "running, registered no more, and does not end": (
        situation(known=life(registered=True, absent_at=NOW)),
        (d.Kill(W, "it has lost its session with coordination, and does not end by itself"),),
        None,
    ),
    "running, registered again": (
        situation(view(workers=(info("t@n/0#1"),)), life(registered=True, absent_at=NOW)),
        (d.Registered(W),),
        None,
    ),
    "running, not yet registered": (situation(known=life()), (), NOW + 50),
    "new, without executors: the target of a move": (
        situation(HELD, written=False),
        (d.Write(allocation(HELD, W)), START),
        None,
    ),
    "running, its tasks moved, and still named": (
        situation(view(ELSEWHERE, workers=(info("t@n/0#1"),), held=True), life(registered=True)),
        (),
        None,
    ),
    "running, not yet registered, and could not be for a while": (
        dataclasses.replace(situation(known=life(since=NOW - 200, apart=50.0)), apart=200.0),
        (),
        NOW + 10,
    ),
    "running, never registered, whatever was before it": (
        dataclasses.replace(situation(known=life(since=NOW - 60, apart=50.0)), apart=50.0),
        (d.Kill(W, "it has not registered within 60 s"),),
        None,
    ),
    "running, never registered": (
        situation(known=life(since=NOW - 60)),
        (d.Kill(W, "it has not registered within 60 s"),),
        None,
    ),
    "running, of another topology": (
        situation(view(id="2"), life(), written=False),
        (d.Stop(W, "another topology with its name was submitted", STOP_AT),),
        None,
    ),
    "running, its tasks moved": (
        situation(GONE, life()),
        (d.Dismiss(W, NOW + 5.0),),
        None,
    ),
    "dismissed, not yet due": (situation(GONE, life(dismiss_at=NOW + 1)), (), NOW + 1),
    "dismissed, due": (
        situation(GONE, life(dismiss_at=NOW)),
        (d.Stop(W, "its executors have moved", STOP_AT),),
        None,
    ),
    "dismissed, has tasks again": (
        situation(view(workers=(info("t@n/0#1"),)), life(dismiss_at=NOW + 1, registered=True)),
        (d.Recall(W),),
        None,
    ),
    "dismissed, not connected": (situation(GONE, life(dismiss_at=NOW), connected=False), (), None),
    "running, topology over": (
        situation(OVER, life()),
        (d.Write(nothing(T, W, None)), d.Stop(W, "its topology is over", STOP_AT)),
        None,
    ),
    "running, ending": (situation(known=life(), ending=True), (d.Stop(W, "the node stops", STOP_AT),), None),
    "running, ending, not connected": (
        situation(known=life(), ending=True, connected=False),
        (d.Stop(W, "the node stops", STOP_AT),),
        None,
    ),
    "stopping, within grace": (situation(known=life(Phase.STOPPING, kill_at=NOW + 2)), (), NOW + 1),
    "stopping, nearly too long": (
        situation(known=life(Phase.STOPPING, kill_at=NOW + 1)),
        (d.Question(W),),
        NOW + 1,
    ),
    "stopping, nearly too long, and asked": (
        situation(known=life(Phase.STOPPING, kill_at=NOW + 1, questioned=True)),
        (),
        NOW + 1,
    ),
    "stopping, too long": (
        situation(known=life(Phase.STOPPING, kill_at=NOW, questioned=True)),
        (d.Kill(W, "it did not end when asked to"),),
        None,
    ),
    "stopping, too long, not connected": (
        situation(known=life(Phase.STOPPING, kill_at=NOW, questioned=True), connected=False),
        (d.Kill(W, "it did not end when asked to"),),
        None,
    ),
    "stopping, killed": (situation(known=life(Phase.STOPPING, kill_at=float("inf"))), (), None),
    "dead": (situation(known=life(Phase.DEAD)), (d.Unregister(life(Phase.DEAD)),), None),
    "dead, not connected": (situation(known=life(Phase.DEAD), connected=False), (), None),
    "dead, ending": (
        situation(known=life(Phase.DEAD), ending=True),
        (d.Unregister(life(Phase.DEAD)), d.Finish()),
        None,
    ),
    "down, pause not over": (situation(known=life(Phase.DOWN, failures=2, restart_at=NOW + 3)), (), NOW + 3),
    "down, pause over": (
        situation(known=life(Phase.DOWN, failures=2, restart_at=NOW)),
        (dataclasses.replace(START, failures=2),),
        None,
    ),
    "down, its old registration is still seen": (
        situation(view(workers=(info("t@n/0#1"),)), life(Phase.DOWN)),
        (START,),
        None,
    ),
    "down, somebody else is registered": (
        situation(view(workers=(info("t@n/0#8"),)), life(Phase.DOWN)),
        (d.Reap(info("t@n/0#8")),),
        None,
    ),
    "down, not wanted": (situation(GONE, life(Phase.DOWN)), (d.Forget(W),), None),
    "broken, not told": (
        situation(known=life(Phase.DOWN, broken="x")),
        (d.ReportBroken(life(Phase.DOWN, broken="x")),),
        None,
    ),
    "broken, told": (situation(known=life(Phase.DOWN, broken="x", told=True)), (), None),
    "broken, not wanted, not told": (
        situation(GONE, life(Phase.DOWN, broken="x")),
        (d.ReportBroken(life(Phase.DOWN, broken="x")),),
        None,
    ),
    "written by an earlier supervisor, not wanted": (situation(GONE), (d.Forget(W),), None),
}


@pytest.mark.parametrize("name", TABLE)
def test_one_situation(name: str) -> None:
    given_, actions, wake_at = TABLE[name]
    assert decide(given_) == d.Decision(actions, wake_at)


@pytest.mark.parametrize("delay", [0, 0.5, 2.0, 9])
def test_a_worker_without_tasks_goes_on_for_as_long_as_its_topology_says(delay: float) -> None:
    now = situation(view(ELSEWHERE, kill_delay=delay), life())
    decided = decide(dataclasses.replace(now, options=SupervisorOptions()))
    assert decided.actions == (d.Dismiss(W, NOW + delay),)


def test_a_topology_that_is_submitted_again_gets_a_fresh_start() -> None:
    broken = life(Phase.DOWN, broken="x", told=True, failures=7, restart_at=NOW + 30)
    given_ = dataclasses.replace(
        situation(view(id="2"), broken),
        bundles={"bundle-2": BundleState.READY, "bundle-1": BundleState.READY},
    )
    assert decide(given_).actions == (d.Start(W, T, "2", "bundle-2", 0), d.Drop("bundle-1"))


def test_bundles_are_wanted_and_dropped() -> None:
    given_ = dataclasses.replace(situation(), bundles={"old": BundleState.READY})
    assert decide(given_).actions == (d.Want("bundle-1"), d.Drop("old"))
    # An old worker's code stays until it has ended.
    given_ = dataclasses.replace(given_, lives={W: life(Phase.STOPPING, bundle="old", kill_at=NOW + 1)})
    assert d.Drop("old") not in decide(given_).actions


def test_the_workers_that_an_assignment_names_run_here() -> None:
    assert workers_here(view(), NODE) == (W,)
    assert workers_here(GONE, NODE) == ()
    assert workers_here(view(), NodeId("m")) == ()
    assert workers_here(HELD, NODE) == (W,) and allocation(HELD, W).executors == ()
    assert workers_here(TopologyView(T), NODE) == ()
    assert workers_here(OVER, NODE) == ()


def test_restart_pauses_grow_to_their_last() -> None:
    assert [SupervisorOptions().restart_pause(n) for n in (1, 2, 3, 8, 9, 100)] == [0, 0.5, 1, 30, 30, 30]


# -- histories: a driver that carries out what is decided, and a world that does what it likes


class History:
    """A model of everything outside of `decide`: steps are carried out, or fail; processes end when they like."""

    def __init__(self) -> None:
        self.now = NOW
        self.connected = True
        self.ending = False
        self.view: TopologyView | None = None
        self.lives: dict[WorkerId, Life] = {}
        self.allocations: dict[WorkerId, Allocation] = {}
        self.bundles: dict[str, BundleState] = {}
        self.registered: set[Incarnation] = set()
        self.processes: set[Incarnation] = set()
        self.number = 0
        self.epoch = 0
        self.finished = False

    def situation(self) -> Situation:
        views = {}
        if self.view is not None:
            living = tuple(info(i) for i in sorted(self.registered))
            views = {T: dataclasses.replace(self.view, workers=living)}
        return Situation(
            NODE,
            self.now,
            self.connected,
            self.ending,
            views,
            dict(self.lives),
            dict(self.allocations),
            dict(self.bundles),
            OPTIONS,
        )

    def settle(self) -> float | None:
        for _ in range(50):
            decision = decide(self.situation())
            self.check(decision)
            done = [self.do(action) for action in decision.actions]
            if not any(done):
                return decision.wake_at
        raise AssertionError(f"it never settles: {decision}")

    def check(self, decision: d.Decision) -> None:
        starts = [a for a in decision.actions if isinstance(a, d.Start)]
        assert len({a.worker for a in starts}) == len(starts)
        if not self.connected:
            assert all(isinstance(a, d.Stop | d.Question | d.Kill | d.Finish) for a in decision.actions)
        if self.ending:
            assert not starts
        assert decision.wake_at is None or decision.wake_at > self.now

    def do(self, action: d.Action) -> bool:
        match action:
            case d.Write(wanted):
                before = self.allocations.get(wanted.worker)
                version = before.version + 1 if before else 1
                self.allocations[wanted.worker] = dataclasses.replace(wanted, version=version)
            case d.Start(worker, topology, topology_id, bundle, failures):
                assert not self.processes, "two lives of one worker"
                assert not self.registered, "started beside another's registration"
                assert self.bundles[bundle] is BundleState.READY
                assert self.allocations[worker].executors
                self.number += 1
                incarnation = Incarnation(f"{worker}#{self.number}")
                self.lives[worker] = Life(
                    worker, topology, topology_id, bundle, incarnation, self.now, failures=failures
                )
                self.processes.add(incarnation)
            case d.Stop(worker, _, kill_at):
                self.change(worker, phase=Phase.STOPPING, asked=True, kill_at=kill_at)
            case d.Question(worker):
                self.change(worker, questioned=True)
            case d.Kill(worker, _):
                self.change(worker, phase=Phase.STOPPING, kill_at=float("inf"))
                self.exit(-9)
            case d.Dismiss(worker, until):
                assert until > self.now
                self.change(worker, dismiss_at=until)
            case d.Recall(worker):
                self.change(worker, dismiss_at=None)
            case d.Registered(worker):
                self.change(worker, registered=True, absent_at=None)
            case d.Absent(worker, until):
                self.change(worker, absent_at=until)
            case d.Unregister(dead):
                assert dead.incarnation not in self.processes
                self.registered.discard(dead.incarnation)
                self.change(dead.worker, phase=Phase.DOWN)
            case d.ReportBroken(broken):
                self.change(broken.worker, told=True)
            case d.Reap(stranger):
                self.registered.discard(stranger.incarnation)
            case d.Forget(worker):
                assert not self.processes
                self.lives.pop(worker, None)
                self.allocations.pop(worker, None)
            case d.Want(bundle):
                self.bundles[bundle] = BundleState.FETCHING
            case d.Drop(bundle):
                assert all(x.bundle != bundle or not x.alive for x in self.lives.values())
                del self.bundles[bundle]
            case d.Finish():
                assert not self.processes
                if self.finished:
                    return False
                self.finished = True
        return True

    def change(self, worker: WorkerId, **changes: object) -> None:
        self.lives[worker] = dataclasses.replace(self.lives[worker], **changes)  # type: ignore[arg-type]

    # -- what the world does

    def exit(self, code: int) -> None:
        for dead in list(self.lives.values()):
            if dead.alive:
                self.processes.discard(dead.incarnation)
                failed = not dead.asked
                failures = dead.failures + 1 if failed else 0
                pause = OPTIONS.restart_pause(failures) if failed else 0.0
                self.change(
                    dead.worker,
                    phase=Phase.DEAD,
                    failures=failures,
                    restart_at=self.now + pause,
                    broken="x" if code == 3 else "",
                )

    def step(self, what: str) -> None:
        self.epoch += 1
        match what:
            case "assign here":
                self.view = view(epoch=self.epoch, id=self.id)
            case "assign elsewhere":
                self.view = view(ELSEWHERE, epoch=self.epoch, id=self.id)
            case "submit again":
                self.view = view(epoch=self.epoch, id=str(self.epoch))
            case "kill":
                self.view = view(epoch=self.epoch, status=TopologyStatus.KILLED, id=self.id)
            case "remove":
                self.view = None
            case "unassign":
                self.view = self.view and dataclasses.replace(self.view, assignment=None)
            case "disconnect":
                self.connected = False
            case "connect":
                self.connected = True
            case "bundle arrives":
                self.bundles = dict.fromkeys(self.bundles, BundleState.READY)
            case "register":
                self.registered |= self.processes
            case "expire":
                self.registered -= self.processes
            case "stranger":
                if not self.processes:
                    self.registered.add(Incarnation(f"{W}#old"))
            case "exit":
                self.exit(0)
            case "crash":
                self.exit(-11)
            case "unloadable":
                self.exit(CANNOT_LOAD)
            case "wait":
                self.now += 3.0
            case "end":
                self.ending = True

    @property
    def id(self) -> str:
        return self.view.state.id if self.view and self.view.state else "1"


STEPS = [
    "assign here",
    "assign elsewhere",
    "submit again",
    "kill",
    "remove",
    "unassign",
    "disconnect",
    "connect",
    "bundle arrives",
    "register",
    "expire",
    "stranger",
    "exit",
    "crash",
    "unloadable",
    "wait",
]


@settings(max_examples=300)
@example(["assign here", "bundle arrives", "submit again", "disconnect", "wait", "wait"], False)
@given(st.lists(st.sampled_from(STEPS), max_size=25), st.booleans())
def test_any_history_ends_as_it_should(steps: list[str], ending: bool) -> None:
    history = History()
    for step in steps:
        history.step(step)
        history.settle()
    # The world calms down: after a bounded time what should run runs, and nothing else is left.
    history.step("end" if ending else "submit again")
    history.step("connect")
    for _ in range(40):
        history.step("bundle arrives")
        history.step("register")
        wake_at = history.settle()
        if wake_at is not None:
            history.now = wake_at
    if ending:
        assert history.finished and not history.processes and not history.registered - {f"{W}#old"}
    else:
        assert len(history.processes) == 1
        assert history.lives[W].phase is Phase.RUNNING
        assert history.registered == history.processes
        assert history.view is not None and history.view.state is not None
        assert set(history.bundles) == {history.view.state.bundle}
        assert history.allocations[W].executors == (("c", 1, 2),)


def test_the_history_above_finds_a_start_beside_another_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a dead worker's registration is not waited for."""
    real = d._wanted

    def hasty(now: Situation, worker: WorkerId, known: Life | None, seen: TopologyView) -> object:
        return real(now, worker, known, dataclasses.replace(seen, workers=()))

    monkeypatch.setattr(d, "_wanted", hasty)
    history = History()
    history.step("stranger")
    history.step("assign here")
    history.settle()
    history.step("bundle arrives")
    with pytest.raises(AssertionError, match="beside another"):
        history.settle()
