"""The load monitor: averages as in T-Storm (2014), and what must not count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loads import report, spec

from elastic.elasticity.averages import Average
from elastic.elasticity.kinds import ComponentLoad, components
from elastic.elasticity.monitor import LoadMonitor, MonitorConfig, key_of, node_of
from elastic.errors import ConfigError
from elastic.model.ids import ComponentId, NodeId, TopologyName, WorkerId
from elastic.model.load import NodeReport

KEY = key_of("t", "bolt[1-2]")


def monitor(**values: float) -> LoadMonitor:
    return LoadMonitor(MonitorConfig(**{"period": 1.0, **values}))


def fed(m: LoadMonitor, rates: list[int], *, every: float = 1.0) -> LoadMonitor:
    """After reports in which the task has done so many tuples per second."""
    done, at = 0.0, 0.0
    m.observe(report(at, {1: ("bolt[1-2]", 0, 0)}), at)
    for rate in rates:
        at, done = at + every, done + rate * every
        m.observe(
            report(
                at, {1: ("bolt[1-2]", int(done), int(done))}, shares={"bolt[1-2]": (rate / 100, 0, 0, 0.1)}
            ),
            at,
        )
    return m


def test_averages_are_those_of_the_paper() -> None:
    m = fed(monitor(alpha=0.5), [10, 20, 40])
    load = m.view(3.0).executors[KEY]
    assert load.executed == pytest.approx(0.5 * (0.5 * 10 + 0.5 * 20) + 0.5 * 40)  # Y = aY + (1 - a) sample
    assert load.busy == pytest.approx(0.275)
    assert load.samples == 3
    assert load.newest == 40


def test_a_larger_alpha_follows_more_slowly() -> None:
    slow, quick = fed(monitor(alpha=0.9), [10, 100]), fed(monitor(alpha=0.1), [10, 100])
    assert slow.view(2).executors[KEY].executed == pytest.approx(19)
    assert quick.view(2).executors[KEY].executed == pytest.approx(91)


def test_a_sample_that_covers_two_periods_weighs_as_two() -> None:
    one = fed(monitor(), [10, 40, 40]).view(3).executors[KEY].executed
    m = fed(monitor(), [10])
    m.observe(report(3.0, {1: ("bolt[1-2]", 90, 90)}), 3.0)
    assert m.view(3).executors[KEY].executed == pytest.approx(one)


def test_several_reports_make_one_sample_when_the_period_is_longer() -> None:
    m = fed(monitor(period=2.0), [10, 30, 20, 20])
    load = m.view(4).executors[KEY]
    assert (load.samples, load.executed) == (2, pytest.approx(20))


def test_alpha_and_period_change_while_it_runs_and_what_was_measured_stays() -> None:
    m = fed(monitor(alpha=0.5), [10])
    m.configure(alpha=0.0)
    m.observe(report(2.0, {1: ("bolt[1-2]", 90, 90)}), 2.0)
    assert m.view(2).executors[KEY].executed == pytest.approx(80)
    with pytest.raises(ConfigError, match=r"--alpha is 1\.5"):
        m.configure(alpha=1.5)
    assert m.config.alpha == 0.0


def test_the_first_report_of_a_life_gives_no_rate() -> None:
    m = monitor()
    m.observe(report(0.0, {1: ("bolt[1-2]", 1_000_000, 0)}), 0.0)
    assert m.view(0).executors == {}
    m = fed(m, [])
    m.observe(report(1.0, {1: ("bolt[1-2]", 5_000_000, 0)}, life=2), 1.0)
    assert m.view(1).executors == {}, "a new life's counters are not a rate"


def test_an_executor_that_has_just_come_is_not_measured_by_its_first_share() -> None:
    m = fed(monitor(), [10])
    both = {1: ("bolt[1-2]", 10, 10), 3: ("bolt[3-4]", 0, 0)}
    m.observe(report(2.0, both, shares={"bolt[3-4]": (1.0, 0, 0, 1.0)}), 2.0)
    assert key_of("t", "bolt[3-4]") not in m.view(2).executors
    m.observe(report(3.0, both, shares={"bolt[3-4]": (0.25, 0, 0.75, 0.2)}), 3.0)
    assert m.view(3).executors[key_of("t", "bolt[3-4]")].busy == pytest.approx(0.25)


def test_a_counter_that_went_back_is_no_sample_of_tuples() -> None:
    m = fed(monitor(alpha=0.0), [10])
    m.observe(report(2.0, {1: ("bolt[1-2]", 3, 3)}), 2.0)
    assert m.view(2).executors[KEY].executed == 0.0


def test_an_old_report_does_not_count() -> None:
    m = fed(monitor(), [10, 10])
    assert not m.observe(report(1.5, {1: ("bolt[1-2]", 500, 0)}), 2.0)
    assert not m.observe(report(3.0, {1: ("bolt[1-2]", 500, 0)}, epoch=0), 3.0)


def test_when_tasks_are_regrouped_the_executors_of_before_are_gone() -> None:
    m = fed(monitor(), [10, 10])
    now = {1: ("bolt[1-1]", 20, 20), 2: ("bolt[2-2]", 0, 0)}
    for at in (3.0, 4.0):
        m.observe(report(at, now, epoch=2), at)
    assert {str(k.executor) for k in m.view(4).executors} == {"bolt[1-1]", "bolt[2-2]"}


def test_an_executor_that_a_new_worker_took_over_part_of_is_gone_although_its_own_worker_is_silent() -> None:
    m = fed(monitor(), [10, 10])
    for at in (3.0, 4.0):
        m.observe(report(at, {1: ("bolt[1-1]", 0, 0)}, worker="t@n2/0", epoch=2), at)
    assert {str(k.executor) for k in m.view(4).executors} == {"bolt[1-1]"}


def test_an_executor_that_moved_keeps_its_averages_and_the_old_worker_cannot_claim_it() -> None:
    m = fed(monitor(alpha=0.5), [100, 100])
    moved = {1: ("bolt[1-2]", 7, 7)}
    m.observe(report(10.0, moved, worker="t@n2/0", epoch=2), 3.0)
    m.observe(report(3.0, {1: ("bolt[1-2]", 900, 900)}), 3.0)  # it is being stopped there
    assert m.view(3).executors[KEY].executed == pytest.approx(100)
    assert m.view(3).workers[WorkerId("t@n2/0")].executors == (KEY,)
    assert m.view(3).workers[WorkerId("t@n1/0")].executors == ()


def test_pairs_of_tasks_become_traffic_between_executors() -> None:
    m = monitor(alpha=0.5)
    tasks = {1: ("src[1-1]", 0, 0), 2: ("bolt[2-3]", 0, 0), 3: ("bolt[2-3]", 0, 0)}
    for at, sent in enumerate([0, 10, 40]):
        pairs = [(1, 2, sent, 2 * sent), (1, 3, sent, 0)]
        m.observe(report(float(at), tasks, pairs=pairs), float(at))
    pair = (key_of("t", "src[1-1]"), key_of("t", "bolt[2-3]"))
    assert m.view(2).traffic == {pair: pytest.approx(0.5 * 20 + 0.5 * 60)}
    assert m.volume() == {pair: pytest.approx(0.5 * 20 + 0.5 * 60)}
    m.observe(report(3.0, tasks), 3.0)
    assert m.traffic()[pair] == pytest.approx(20), "silence counts"


def costs(m: LoadMonitor, at: float) -> ComponentLoad:
    """What the bolt's tuples cost, as policies see it."""
    return components(m.view(at), spec("t", bolt=1))[ComponentId("bolt")]


def test_what_a_tuple_costs_goes_on_when_tasks_are_regrouped() -> None:
    """50 tuples/s of 10 ms each; then two executors instead of one, and in the first sample of them a burst of cheap ones."""
    m = fed(monitor(alpha=0.5), [50] * 8)
    assert costs(m, 8.0).service == pytest.approx(0.01)
    two = {1: ("bolt[1-1]", 400, 400), 2: ("bolt[2-2]", 0, 0)}
    m.observe(report(9.0, two, epoch=2), 9.0)
    two = {1: ("bolt[1-1]", 500, 500), 2: ("bolt[2-2]", 100, 100)}
    shares = {"bolt[1-1]": (0.25, 0.0, 0.0, 0.01), "bolt[2-2]": (0.25, 0.0, 0.0, 0.01)}
    m.observe(report(10.0, two, epoch=2, shares=shares), 10.0)
    view = m.view(10.0)
    assert {k.executor.component for k in view.executors} == {"bolt"} and len(view.executors) == 2
    assert 0.004 < costs(m, 10.0).service < 0.01, "a sample does not undo all that was known"
    m.observe(report(11.0, two, epoch=2), 11.0)
    of_executors = replace(view, rates={})
    careless = components(of_executors, spec("t", bolt=1))[ComponentId("bolt")]
    assert careless.service == pytest.approx(0.0025), "a planted fault: what executors say begins anew"


def test_what_is_made_of_a_tuple_is_of_the_same_moments_as_the_tuples() -> None:
    """Three patterns of each line, before the load has grown and afterwards, although the receivers were regrouped in between."""
    m = monitor(alpha=0.5)
    lines = 0
    for at in range(12):
        rate = 10 if at < 6 else 100
        lines += rate
        bolt = "bolt[2-3]" if at < 8 else ("bolt[2-2]", "bolt[3-3]")
        names = (bolt, bolt) if isinstance(bolt, str) else bolt
        tasks = {1: ("src[1-1]", lines, 3 * lines), 2: (names[0], 0, 0), 3: (names[1], 0, 0)}
        pairs = [(1, 2, 2 * lines, 0), (1, 3, lines, 0)]
        m.observe(report(float(at), tasks, epoch=1 + (at >= 8), pairs=pairs), float(at))
        if at > 1:
            found = m.view(float(at)).rates[TopologyName("t"), ComponentId("src")]
            assert found.sent[ComponentId("bolt")] == pytest.approx(3 * found.executed), at


def test_what_goes_to_tasks_that_nobody_has_reported_yet_is_not_left_out() -> None:
    """The other worker reports later: until then it is not known whose tuples these are, and the source's sample would lack them."""
    m = monitor(alpha=0.5)
    for at in range(8):
        lines = 10 * at
        tasks = {1: ("src[1-1]", lines, 2 * lines), 2: ("bolt[2-2]", 0, 0)}
        m.observe(report(float(at), tasks, pairs=[(1, 2, lines, 0), (1, 3, lines, 0)]), float(at))
        if at > 3:
            other = {3: ("bolt[3-3]", 0, 0)}
            m.observe(report(float(at), other, worker="t@n2/0"), float(at))
    found = m.view(8.0).rates[TopologyName("t"), ComponentId("src")]
    assert found.executed > 0 and found.sent[ComponentId("bolt")] == pytest.approx(2 * found.executed)


def test_queue_state_offer_and_memory_are_the_newest() -> None:
    m = monitor()
    for at in (0.0, 1.0):
        tasks = {1: ("bolt[1-2]", 0, 0), 2: ("bolt[1-2]", 0, 0)}
        m.observe(report(at, tasks, queued=30, state=512, custom={"offered": 5.0}), at)
    load = m.view(1).executors[KEY]
    assert (load.queued, load.fill, load.state, load.offered) == (60, 0.6, 1024, 10.0)
    assert m.state(TopologyName("t")) == {1: 512, 2: 512}


def test_what_a_task_that_has_finished_offered_is_no_demand() -> None:
    m = monitor()
    for at in (0.0, 1.0):
        m.observe(report(at, {1: ("bolt[1-2]", 0, 0)}, finished=True, custom={"offered": 5.0}), at)
    assert m.view(1).executors[KEY].offered == 0


def test_pairs_of_an_executor_whose_first_task_is_just_being_moved_are_left_out() -> None:
    m = monitor()
    for at in range(3):
        tasks = {2: ("bolt[1-2]", at, at), 9: ("other[9-9]", 0, 0)}
        m.observe(report(float(at), tasks, pairs=[(2, 9, 10 * at, 0)]), float(at))
    assert m.traffic() == {}


def test_nodes_say_what_they_have_and_silent_ones_are_summed_up() -> None:
    m = monitor(alpha=0.5)
    for at, cpu in enumerate([1.0, 3.0]):
        m.observe_node(NodeReport("n1", float(at), 4.0, cpu, 10), float(at))
    assert m.view(1).nodes[NodeId("n1")].cpu == pytest.approx(2.0)
    for at in (0.0, 1.0):
        m.observe(report(at, {1: ("bolt[1-2]", 0, 0)}, worker="t@n2/1", cpu=0.5), at)
    assert NodeId("n2") not in m.view(1).nodes, "its capacity is unknown"


def test_what_is_silent_for_too_long_is_forgotten() -> None:
    m = fed(monitor(stale=5.0), [10, 10])
    assert KEY in m.view(6.9).executors
    assert m.view(7.1).executors == {}
    assert m.view(7.1).workers == {}


def test_a_topology_and_workers_that_went_are_forgotten() -> None:
    m = fed(monitor(), [10, 10])
    m.retain(TopologyName("t"), [WorkerId("t@n1/0")])
    assert KEY in m.view(2).executors
    m.retain(TopologyName("t"), [])
    assert m.view(2).executors == {}
    m = fed(monitor(), [10, 10])
    m.forget(TopologyName("t"))
    assert m.view(2).executors == {}


def test_names_of_executors_and_nodes() -> None:
    assert node_of(WorkerId("a@b/c@node-1/7")) == "node-1"
    assert str(key_of("t", "a[0][3-7]").executor) == "a[0][3-7]"
    with pytest.raises(ValueError, match="is not an executor"):
        key_of("t", "a")


def test_the_traffic_of_an_executor_that_has_just_come_is_not_less_than_it_is() -> None:
    """Within a period of four reports it comes after the first: what it sent in two of them was counted in two."""
    pair = (key_of("t", "src[1-1]"), key_of("t", "bolt[2-2]"))
    m = monitor(period=4.0)
    own = {3: ("other[3-3]", 0, 0)}
    came = {**own, 1: ("src[1-1]", 0, 0), 2: ("bolt[2-2]", 0, 0)}
    m.observe(report(0.0, own), 0.0)
    m.observe(report(1.0, own), 1.0)
    for at in (2.0, 3.0, 4.0):
        m.observe(report(at, came, pairs=[(1, 2, 5000 + int(at) * 100, 0)]), at)
    assert m.traffic() == {pair: pytest.approx(100)}


def test_the_first_tuples_of_a_pair_count_when_their_source_was_there() -> None:
    m = monitor()
    tasks = {1: ("src[1-1]", 0, 0), 2: ("bolt[2-2]", 0, 0)}
    m.observe(report(0.0, tasks), 0.0)
    m.observe(report(1.0, tasks, pairs=[(1, 2, 70, 0)]), 1.0)
    assert list(m.traffic().values()) == [pytest.approx(70)]


def test_an_average_over_nothing_comes_to_nothing() -> None:
    """Not to ever smaller numbers: what is divided by those overflows, and no policy decides any more."""
    average = Average()
    average.take(0.2, 0.6)
    for _ in range(100):
        average.take(0.0, 0.6)
    assert average.value == 0.0
    average.take(1e-6, 0.6)
    assert average.value == pytest.approx(0.4e-6)


def test_a_new_life_that_has_not_read_its_assignment_leaves_nothing_of_the_one_before() -> None:
    m = LoadMonitor()
    for at in (0.0, 1.0, 2.0):
        m.observe(report(at, {1: ("bolt[1-2]", int(90 * at), 0)}, epoch=5), at)
    assert m.view(2.0).executors
    m.observe(report(3.0, {1: ("bolt[1-1]", 0, 0)}, life=2, epoch=0), 3.0)
    m.observe(report(4.0, {1: ("bolt[1-1]", 10, 0)}, life=2, epoch=0), 4.0)
    assert [k.executor.last for k in m.view(4.0).executors] == [1]
