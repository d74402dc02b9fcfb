"""The ElasticityManager: periods, one topology at a time, cooldown, confirmation, damping, dry run, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from loads import ROOM, busy, spec, subject, view

from elastic.elasticity import registry, thresholds
from elastic.elasticity.base import Room, Subject
from elastic.elasticity.guards import Patience, Track
from elastic.elasticity.manager import ElasticityManager, Outcome, expected
from elastic.elasticity.processes import ManagerConfig, bins
from elastic.errors import ConfigError
from elastic.model.ids import ComponentId, TopologyName
from elastic.model.loadview import LoadView, SmoothedLoad

BOLT = ComponentId("bolt")
OVER, UNDER, RIGHT = busy(0.9, 0.05), busy(0.1, 0.05), busy(0.5, 0.05)
QUICK = ManagerConfig(period=1.0, cooldown=0, confirm_in=1)


class World:
    """Topologies of one bolt each, whose load is what a test says, and whose size is what the manager decides."""

    def __init__(self, config: ManagerConfig = QUICK, policy: str = "thresholds", **sizes: int) -> None:
        self.manager = ElasticityManager(policy, config)
        self.sizes = sizes or {"t": 4}
        self.now = 0.0

    def subject(self, name: str) -> Subject:
        return subject(spec(name, source=1, bolt=self.sizes[name]))

    def run(
        self, load: SmoothedLoad, only: Sequence[str] = (), room: Room = ROOM, **special: bool
    ) -> Outcome:
        """One run with that load on all topologies, or on some."""
        subjects = [replace(self.subject(n), **special) for n in self.sizes]
        whole = LoadView()
        for s in subjects:
            here = load if not only or s.name in only else RIGHT
            one = view(s.spec, {"source": [UNDER], "bolt": [here] * s.executors[BOLT]})
            whole = LoadView(
                {**whole.executors, **one.executors}, {}, {}, 0.0, {**whole.workers, **one.workers}
            )
        self.now += 1.0
        outcome = self.manager.run(whole, subjects, room, self.now)
        if outcome.decision is not None and not outcome.decision.dry_run:
            self.sizes[outcome.decision.topology] = outcome.decision.executors[BOLT]
        return outcome

    def sizes_after(self, loads: Sequence[SmoothedLoad]) -> list[int]:
        """The size of the only topology after each run."""
        found = []
        for load in loads:
            self.run(load)
            found.append(self.sizes["t"])
        return found


def test_it_runs_once_a_period() -> None:
    w = World(replace(QUICK, period=3.0))
    assert w.sizes_after([OVER] * 7) == [8, 8, 8, 16, 16, 16, 32]


def test_at_most_one_topology_is_changed_in_a_run_and_each_gets_its_turn() -> None:
    w = World(a=2, b=2, c=2)
    assert [w.run(OVER).decision.topology for _ in range(4)] == ["a", "b", "c", "a"]  # type: ignore[union-attr]


def test_after_a_decision_a_topology_is_left_alone_for_so_many_runs() -> None:
    assert World(replace(QUICK, cooldown=2)).sizes_after([OVER] * 7) == [8, 8, 8, 16, 16, 16, 32]


def test_cooldown_of_one_topology_does_not_hold_another() -> None:
    w = World(replace(QUICK, cooldown=9), a=2, b=2)
    assert [w.run(OVER).decision.topology for _ in range(2)] == ["a", "b"]  # type: ignore[union-attr]
    assert w.run(OVER).decision is None


@pytest.mark.parametrize("runs", [0, 1, 3])
def test_a_load_that_is_just_changing_is_waited_for_so_many_runs(
    monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    size = thresholds.POLICY.size
    changing = replace(
        thresholds.POLICY, name="mine", size=lambda *given: replace(size(*given), changing=True)
    )
    monkeypatch.setitem(registry.BUILT_IN, "mine", changing)
    w = World(replace(QUICK, defer=runs), policy="mine")
    assert w.sizes_after([OVER] * 2 * (runs + 1)) == [4] * runs + [8] * (runs + 1) + [16]


def test_a_change_has_to_be_wanted_in_several_runs_in_a_row() -> None:
    slow = replace(QUICK, confirm_in=3, confirm_out=2)
    assert World(slow).sizes_after([UNDER, UNDER, RIGHT, UNDER, UNDER, UNDER]) == [4, 4, 4, 4, 4, 2]
    assert World(slow).sizes_after([OVER, UNDER, OVER, OVER]) == [4, 4, 4, 8]


def test_an_unsettled_topology_and_one_with_too_few_samples_are_left_alone() -> None:
    w = World()
    assert w.run(OVER, settled=False).decision is None
    assert w.run(replace(OVER, samples=1)).decision is None
    assert w.run(OVER).decision is not None


def test_a_component_with_an_executor_that_is_not_measured_is_left_alone() -> None:
    w = World()
    t = w.subject("t")
    four = view(t.spec, {"bolt": [OVER] * 4})
    more = replace(t, executors={**t.executors, BOLT: 5})
    assert w.manager.run(four, [more], ROOM, 1.0).decision is None


def test_a_scale_in_that_was_a_mistake_makes_the_next_one_slower() -> None:
    """A load that is too little for n and too much for n/2: each time it takes twice as long to be fooled."""
    w, sizes = World(), []
    for _ in range(60):
        w.run(UNDER if w.sizes["t"] > 4 else OVER)
        sizes.append(w.sizes["t"])
    changes = [i for i in range(1, 60) if sizes[i] != sizes[i - 1]]
    gaps = [b - a for a, b in pairwise(changes)]
    assert max(gaps[-3:]) >= 4 * max(gaps[:2])
    assert len(changes) < 16


def test_planted_fault_without_damping_it_oscillates() -> None:
    w, sizes = World(replace(QUICK, memory=0)), []
    for _ in range(60):
        w.run(UNDER if w.sizes["t"] > 4 else OVER)
        sizes.append(w.sizes["t"])
    assert sum(a != b for a, b in pairwise(sizes)) > 50


@pytest.mark.parametrize(("mistakes", "within"), [(0, 6), (1, 12), (3, 48)])
def test_who_has_erred_before_is_watched_for_longer(mistakes: int, within: int) -> None:
    """The next scale-in takes so many times as many runs: with the first bound its mistakes would not count any more."""
    patience = Patience(1, 1, 6)
    track = Track(mistakes=mistakes, last_mistake=1).done(-1, 100, patience)
    assert track.done(1, 100 + within, patience).mistakes == mistakes + 1
    assert track.done(1, 101 + within, patience).mistakes == mistakes


def test_mistakes_are_forgiven_and_scale_outs_never_damped() -> None:
    patience = Patience(1, 2, 6)
    track = Track(mistakes=3, last_mistake=10).wished(-1)
    assert track.needs(patience) == 16
    assert track.forgiven(59, patience).mistakes == 0
    assert track.forgiven(58, patience).mistakes == 3
    assert track.wished(1).needs(patience) == 1


def test_mistakes_about_the_number_of_workers_are_forgiven_as_well() -> None:
    w = World()
    w.run(RIGHT)
    memory = w.manager.state.topologies[TopologyName("t")]
    erred = {**memory.tracks, "": Track(mistakes=1, last_mistake=1)}
    w.manager.recall({TopologyName("t"): replace(memory, tracks=erred)})
    for _ in range(w.manager.config.memory << 2):
        w.run(RIGHT)
    assert w.manager.state.topologies[TopologyName("t")].track("").mistakes == 0


def test_a_component_may_have_any_name() -> None:
    t = spec(source=1, crowd=2)
    seen = view(t, {"source": [RIGHT], "crowd": [OVER] * 2})
    decision = ElasticityManager("thresholds", QUICK).run(seen, [subject(t)], ROOM, 1.0).decision
    assert decision is not None and decision.changes == {ComponentId("crowd"): (2, 4)}


def test_a_load_that_grows_later_is_no_mistake() -> None:
    w = World()
    w.sizes_after([UNDER] + [RIGHT] * 20 + [OVER])
    assert w.manager.state.topologies[TopologyName("t")].tracks["bolt"].mistakes == 0


def test_a_dry_run_says_what_it_would_do_and_changes_nothing() -> None:
    w = World(replace(QUICK, dry_run=True))
    decision = w.run(OVER).decision
    assert decision is not None
    assert decision.dry_run
    assert decision.changes == {BOLT: (4, 8)}
    assert w.sizes["t"] == 4
    assert w.manager.state.topologies[TopologyName("t")].before is None


def test_a_decision_says_why_and_later_what_it_led_to() -> None:
    w = World(replace(QUICK, cooldown=1))
    [reason] = w.run(OVER).reasons
    assert (reason.kind, reason.component) == ("scale-out", "bolt")
    assert reason.details["threshold"] == 0.7
    event = reason.event(5.0)
    assert (event.time, event.kind, event.topology) == (5.0, "scale-out", "t")
    [effect] = w.run(RIGHT).reasons
    assert effect.message.startswith("bolt went from 4 to 8 executors 1 s ago: busy 0.90 -> 0.50")


def test_what_a_decision_led_to_is_said_when_it_has_been_carried_out() -> None:
    w = World(replace(QUICK, cooldown=1))
    w.run(OVER)
    assert not any(w.run(OVER, settled=False).reasons for _ in range(3))  # its tasks are moving
    assert (
        w.run(RIGHT)
        .reasons[0]
        .message.startswith("bolt went from 4 to 8 executors 4 s ago: busy 0.90 -> 0.50")
    )


def test_what_lasts_is_said_once() -> None:
    w = World(replace(QUICK, workers=False), t=32)
    assert [len(w.run(OVER).reasons) for _ in range(5)] == [1, 0, 0, 0, 0]
    assert [len(w.run(x).reasons) for x in (RIGHT, OVER)] == [0, 0]


def test_policy_and_parameters_change_while_it_runs() -> None:
    w = World()
    w.manager.use("thresholds --scale-out 0.95")
    assert w.run(OVER).decision is None
    assert w.manager.describe() == "thresholds --scale-out 0.95"
    with pytest.raises(ConfigError, match="did you mean 'thresholds'"):
        w.manager.use("treshold")
    with pytest.raises(ConfigError, match="could be doubled at once"):
        w.manager.use("thresholds --scale-in 0.4")
    assert w.manager.describe() == "thresholds --scale-out 0.95"
    w.manager.use("ds2")
    assert w.manager.policy.name == "ds2"
    w.manager.configure(["--dry-run", "--period", "20"])
    assert (w.manager.config.dry_run, w.manager.config.period) == (True, 20.0)
    with pytest.raises(ConfigError, match="--period is 0"):
        w.manager.configure(["--period", "0"])


def test_switched_off_it_does_nothing() -> None:
    assert World(replace(QUICK, enabled=False)).run(OVER) == Outcome()


def test_computing_gets_processes_and_waiting_gets_threads() -> None:
    computing = World(t=1)
    decision = computing.run(busy(0.9)).decision
    assert decision is not None
    assert (decision.executors[BOLT], decision.workers, decision.spread[BOLT]) == (2, 3, 2)
    waiting = World(t=1)
    decision = waiting.run(busy(0.9, 0.02)).decision
    assert decision is not None
    assert (decision.executors[BOLT], decision.workers, decision.spread[BOLT]) == (2, 1, 1)


def test_processes_are_bounded_by_slots_and_what_lacks_is_said() -> None:
    outcome = World(t=4).run(busy(0.9), room=Room(cores=64.0, used=4.0, slots=2))
    assert outcome.decision is not None
    assert outcome.decision.workers == 3
    assert outcome.workers == 9
    assert not outcome.settled


def test_processes_that_somebody_undoes_are_asked_for_ever_more_rarely() -> None:
    w = World(t=4)  # however many are decided, it has one
    found = [w.run(busy(0.5, 0.5)).decision for _ in range(64)]
    asked = [n for n, decision in enumerate(found) if decision is not None]
    assert asked == [0, 1, 3, 7, 15, 31, 63] and {d.workers for d in found if d is not None} == {4}
    w.run(busy(0.5, 0.5))
    other = w.run(busy(0.5, 0.3)).decision
    assert other is not None and other.workers == 3


def test_a_forgotten_topology_begins_anew() -> None:
    w = World(replace(QUICK, cooldown=9))
    w.run(OVER)
    w.manager.forget(TopologyName("t"))
    assert w.run(OVER).decision is not None


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(0.54, 20), (0.45, 1), (0.05, 1)], 21),
        ([(0.2, 10)], 3),
        ([(1.2, 2), (0.1, 1)], 3),
        ([(0.5, 3), (0.3, 3), (0.25, 1)], 4),
        ([(0.0, 5)], 0),
        ([(0.4, 3)], 2),
    ],
)
def test_processes_are_packed_first_fit_the_largest_first(
    sizes: list[tuple[float, int]], expected: int
) -> None:
    assert bins(sizes, 0.8) == expected


def test_executors_that_crowd_in_one_process_are_placed_anew_and_ever_more_rarely() -> None:
    t = spec("t", source=1, bolt=2, other=1)
    crowd = view(
        t,
        {"source": [UNDER], "bolt": [busy(0.6, 0.45)] * 2, "other": [busy(0.1, 0.02)]},
        workers={"n1/0": (0.95, ["bolt"]), "n1/1": (0.05, ["source", "other"])},
    )
    manager = ElasticityManager("thresholds", QUICK)
    decided = []
    for now in range(1, 41):
        decision = manager.run(crowd, [subject(t, 2)], ROOM, float(now)).decision
        if decision is not None:
            decided.append(now)
            assert (decision.changes, decision.workers) == ({}, 2)
            assert [r.kind for r in decision.reasons] == ["crowded"]
    assert decided == [1, 3, 7, 15, 31]


def test_a_scheduler_places_by_the_load_that_is_to_come() -> None:
    w = World(t=4)
    of = w.subject("t")
    now = view(of.spec, {"source": [UNDER], "bolt": [busy(0.9)] * 4})
    decision = w.manager.run(now, [of], ROOM, 1.0).decision
    assert decision is not None
    then = expected(now, decision)
    assert sum(x.cpu for k, x in then.executors.items() if k.executor.component == BOLT) == pytest.approx(7.2)
    assert sum(x.cpu for k, x in then.executors.items() if k.executor.component != BOLT) == pytest.approx(
        0.05
    )
