"""What the balancer remembers: the next leader and a changed line go on with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from balance_harness import LINE, WORK, Clock, Reign, T

from elastic.elasticity import registry, thresholds
from elastic.elasticity.base import Reason, Sizing
from elastic.elasticity.guards import Before, Memory, Track
from elastic.elasticity.infrastructure import Past
from elastic.elasticity.monitor import LoadMonitor
from elastic.model.codec import decode, encode
from elastic.model.records import (
    ElasticitySettings,
)
from elastic.nimbus.balancing import remembering
from elastic.nimbus.balancing.remembering import NodesMemory, TopologyMemory


def test_the_next_leader_goes_on_with_what_was_decided() -> None:
    reign = Reign(policy=LINE.replace("--cooldown 0", "--cooldown 1000"))
    first = Clock(reign)
    first.go(6, 1.0)
    assert first.executors == 2 and reign.writes == 2, "what was decided, and what it took"
    second = Clock(reign)
    second.go(6, 1.0)
    assert second.executors == 2, "it is still left alone"
    assert [e.kind for e in second.balancer.told(T)] == [e.kind for e in first.balancer.told(T)]


def test_the_next_leader_knows_how_much_components_compute_before_it_has_measured_them() -> None:
    reign = Reign(policy=LINE)
    first = Clock(reign)
    first.go(8, 0.95, cpu=0.9)
    written = decode(reign.written[T], TopologyMemory).memory.purity
    assert written[WORK] > 0.8
    second = Clock(reign)
    second.go(1, 0.95, cpu=0.9)
    assert second.balancer._resizing.memories[T].purity == written


class Odd(float):
    """As numpy's: a float that the codec does not know."""


def test_whatever_a_plug_in_names_as_a_number_the_next_leader_can_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    details: dict[str, Any] = {
        "mean": Odd(0.5),
        "of": ["a", "b"],
        "none": None,
        "yes": True,
        "n": 3,
        "text": "x",
    }

    def size(*given: Any) -> Sizing:
        return Sizing(reasons=(Reason("at-maximum", "No more.", topology=T, warning=True, details=details),))

    monkeypatch.setitem(registry.BUILT_IN, "mine", replace(thresholds.POLICY, name="mine", size=size))
    reign = Reign(line=LINE.replace("thresholds", "mine"))
    Clock(reign).go(3, 1.0)
    (told,) = decode(reign.written[T], TopologyMemory).told
    assert told.details == {"mean": 0.5, "of": "['a', 'b']", "none": "None", "yes": 1, "n": 3, "text": "x"}


def test_a_planted_fault_a_leader_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "recalled", lambda *_: Memory())
    with pytest.raises(AssertionError, match="left alone"):
        test_the_next_leader_goes_on_with_what_was_decided()


def test_what_a_leader_left_half_done_the_next_one_tells_the_end_of() -> None:
    reign = Reign(policy=LINE)
    first = Clock(reign)
    while not reign.adopted:
        first.go(1, 1.0)
    assert "topology-resized" not in reign.kinds()
    Clock(reign).go(1, 0.5)
    assert "topology-resized" in reign.kinds()
    assert next(e for e in reign.events if e.kind == "topology-resized").message.startswith(
        "topology t: work 1 -> 2 after"
    )


def test_another_topology_of_that_name_has_no_past_and_one_that_is_gone_leaves_nothing() -> None:
    reign = Reign(policy=LINE)
    Clock(reign).go(4, 1.0)
    assert set(reign.written) == {T}
    t = reign.seen.topologies[T]
    reign.seen = replace(reign.seen, topologies={T: replace(t, state=replace(t.state, id="t-2"))})
    second = Clock(reign)
    second.go(1, 0.5)
    assert second.balancer.told(T) == ()
    reign.seen = replace(reign.seen, topologies={})
    second.balancer.look(second.now)
    assert reign.written == {}


def test_time_goes_on_while_nobody_leads() -> None:
    before = Before(40.0, {WORK: (1, 2)}, {WORK: 0.9}, {WORK: 3.0})
    memory = Memory(
        run=7, cooldown=5, tracks={"work": Track(wish=-1, runs=2, mistakes=1, last_mistake=6)}, before=before
    )
    written = TopologyMemory("t-1", 1000.0, 2.0, remembering.lasting(memory, 50.0, 1000.0))
    assert written.memory.before is not None and written.memory.before.time == 990.0
    later = remembering.recalled(decode(encode(written), TopologyMemory), 5.0, 1006.5)
    assert (later.run, later.cooldown) == (10, 2)
    assert later.tracks["work"] == Track(mistakes=1, last_mistake=6)
    assert later.before is not None and later.before.time == pytest.approx(990.0 - 1001.5)
    past = Past(grown=30.0)
    kept = decode(encode(remembering.nodes_memory(past, (), 50.0, 1000.0)), NodesMemory)
    assert remembering.past_of(kept, 10.0, 1005.0) == Past(grown=-15.0)


def test_a_line_that_is_changed_goes_on_with_what_the_one_before_remembers() -> None:
    reign = Reign(policy=LINE.replace("--cooldown 0", "--cooldown 1000"))
    clock = Clock(reign)
    clock.go(6, 1.0)
    assert clock.executors == 2
    reign.said = ElasticitySettings(policy=reign.said.policy.replace("--period 1", "--period 2"))
    clock.go(6, 1.0)
    assert clock.executors == 2


def test_how_it_is_averaged_is_changed_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    configure = LoadMonitor.configure
    monkeypatch.setattr(LoadMonitor, "configure", lambda m, **v: seen.append(v) or configure(m, **v))
    reign = Reign(line="thresholds --alpha 0.25 --sample 2")
    clock = Clock(reign)
    clock.go(1, 0.5)
    assert seen[-1] == {"period": 2.0, "alpha": 0.25}
    reign.said = ElasticitySettings(policy="thresholds --alpha 0.75 --sample 0.5")
    clock.go(1, 0.5)
    assert seen[-1] == {"period": 0.5, "alpha": 0.75}, "the cluster's counts"
    reign.said = ElasticitySettings(policy="thresholds")
    clock.go(1, 0.5)
    assert seen[-1] == {"period": 1.0, "alpha": 0.25}


def test_a_topology_that_takes_the_name_of_another_begins_without_its_memory() -> None:
    """One that has ended is replaced at once: there is no moment without one of that name."""
    reign = Reign(policy=LINE.replace("--cooldown 0", "--cooldown 1000"))
    clock = Clock(reign)
    clock.go(6, 1.0)
    assert clock.executors == 2 and clock.balancer.told(T)
    before = clock.balancer._resizing.memories[T]
    t = reign.seen.topologies[T]
    reign.seen = replace(reign.seen, topologies={T: replace(t, state=replace(t.state, id="t-2"))})
    clock.balancer.look(clock.now)
    assert clock.balancer.told(T) == () and T not in clock.balancer._resizing.begun
    clock.go(2, 1.0)
    after = clock.balancer._resizing.memories[T]
    assert before.cooldown and not after.cooldown


def test_what_was_written_down_of_a_topology_that_is_gone_is_removed_by_the_next_leader() -> None:
    """Also where nobody asks it for a policy."""
    reign = Reign(line=LINE)
    Clock(reign).go(4, 1.0)
    assert set(reign.written) == {T}
    reign.seen = replace(reign.seen, topologies={})
    second = Clock(reign)
    second.balancer.look(second.now)
    assert not reign.written


def test_what_a_topology_that_is_gone_wanted_is_not_wanted_any_more() -> None:
    reign = Reign(policy=LINE)
    clock = Clock(reign)
    clock.go(6, 1.0)
    (found,) = clock.balancer._resizing.outcomes()
    assert found.cores > 0
    reign.seen = replace(reign.seen, topologies={})
    clock.balancer.look(clock.now)
    (left,) = clock.balancer._resizing.outcomes()
    assert (left.cores, left.workers, left.settled) == (0.0, 0, True)
