"""The policies in a simulated cluster: five phases, a waiting load, oscillation, nodes, and size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from elastic.elasticity.infrastructure import Infrastructure
from elastic.elasticity.processes import ManagerConfig
from elastic.model.ids import ComponentId
from elastic.simulation import (
    Result,
    Simulation,
    SimulationOptions,
    fivephase,
    fpd,
    waiting_service,
    waitingwave,
)
from elastic.simulation.__main__ import main
from elastic.simulation.noise import Noise
from elastic.simulation.profile import square
from elastic.simulation.result import quantile
from elastic.simulation.scheduled import Scheduled

PHASE = 100.0
PERIOD = ManagerConfig().period
DETECTOR = ComponentId("detector")


def five(policy: str, *, executors: int = 5, seed: int = 1, elastic: bool = True) -> Result:
    options = SimulationOptions(seed=seed, elastic=elastic, step=0.2)
    return Simulation(fpd(executors=executors), fivephase(PHASE), policy=policy, options=options).run()


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """Thresholds and DS2 with their defaults, and nothing at all, over the five phases."""
    return {
        "thresholds": five("thresholds", executors=20),
        "ds2": five("ds2"),
        "fixed": five("thresholds", elastic=False),
    }


def test_the_detector_has_the_papers_numbers_of_executors(results: dict[str, Result]) -> None:
    """Elastic Storm (2016), section VI.B: {20, 10, 5, 10, 20, 10, 5}."""
    assert results["thresholds"].sequence("detector") == [20, 10, 5, 10, 20, 10, 5]


@pytest.mark.parametrize("policy", ["thresholds", "ds2"])
def test_five_phases_settle(results: dict[str, Result], policy: str) -> None:
    result = results[policy]
    phases = result.phases()
    assert [p.unsettled for p in phases] == [0] * 5, "no decision in a settled phase"
    assert all(p.p95 < 3 * phases[0].p95 for p in phases), [p.p95 for p in phases]
    assert result.degraded <= 0.01
    assert phases[-1].executors < max(p.executors for p in phases), "they come back"


def test_a_fixed_number_diverges(results: dict[str, Result]) -> None:
    phases = results["fixed"].phases()
    assert phases[2].p95 > 100 * phases[0].p95
    assert results["fixed"].late > 0.5


def test_ds2_needs_one_decision_where_thresholds_need_several(results: dict[str, Result]) -> None:
    assert [p.decisions for p in results["ds2"].phases()] == [1] * 5
    wave = waitingwave(60.0)
    options = SimulationOptions(nodes=1, cores=2.0)
    by = {
        policy: [
            p.decisions
            for p in Simulation(waiting_service(), wave, policy=policy, options=options).run().phases()
        ]
        for policy in ("ds2", "thresholds")
    }
    assert by["ds2"][1:] == [1, 1, 1, 1]
    assert by["thresholds"][2] > 1
    assert sum(by["ds2"]) < sum(by["thresholds"])


def test_a_change_is_carried_out_within_two_periods(results: dict[str, Result]) -> None:
    for policy in ("thresholds", "ds2"):
        for start in results[policy].profile.starts()[1:]:
            first = min(m.done for m in results[policy].decisions if m.time >= start)
            assert first <= start + 2 * PERIOD + 0.5


def test_waiting_load_gets_threads_beyond_the_cores_and_no_processes() -> None:
    result = Simulation(
        waiting_service(), waitingwave(60.0), policy="ds2", options=SimulationOptions(nodes=1, cores=2.0)
    ).run()
    phases = result.phases()
    assert phases[2].executors - 1 > 4 * 2.0, "far more threads than cores"
    assert {p.workers for p in phases} == {1}
    assert all(p.p95 < 3 * phases[0].p95 for p in phases)
    assert phases[-1].executors == phases[0].executors


def test_computing_load_gets_processes_up_to_the_cores() -> None:
    result = Simulation(
        fpd(), fivephase(40.0), policy="thresholds", options=SimulationOptions(nodes=1, cores=2.0, slots=32)
    ).run()
    assert max(s.executors for s in result.samples) <= 13, "two cores do not become more by threads"
    assert "no-cores" in {r.kind for _, r in result.reasons}


@pytest.mark.parametrize("policy", ["thresholds", "ds2"])
def test_a_load_that_goes_up_and_down_all_the_time_is_not_followed_for_ever(policy: str) -> None:
    """Without damping it is halved in every trough; with it the mistakes become rare."""

    def scale_ins(memory: int) -> int:
        profile = square(120.0, 480.0, 20.0, 8)
        options = SimulationOptions(step=0.2)
        run = Simulation(
            fpd(), profile, policy=policy, manager=ManagerConfig(memory=memory), options=options
        ).run()
        changes = [m.decision.changes.get(DETECTOR, (0, 0)) for m in run.decisions if m.time > 120]
        return sum(after < before for before, after in changes)

    assert scale_ins(6) <= scale_ins(0) / 2


def test_nodes_come_and_go_with_the_load() -> None:
    result = Simulation(
        fpd(),
        fivephase(80.0),
        infrastructure=Infrastructure(enabled=True, maximum=8, patience=10.0, cooldown_in=15.0),
        options=SimulationOptions(nodes=1),
    ).run()
    numbers = [p.nodes for p in result.phases()]
    assert numbers[0] == 1
    assert 4 <= numbers[2] <= 8
    assert numbers[4] < numbers[2]
    kinds = {r.kind for _, r in result.reasons}
    assert {"node-request", "node-return"} <= kinds
    drained = [m for m in result.samples if m.nodes < 1]
    assert not drained


def test_the_same_seed_gives_the_same_run() -> None:
    a, b, c = (
        Simulation(fpd(), fivephase(20.0), options=SimulationOptions(seed=s)).run().samples for s in (3, 3, 4)
    )
    assert a == b
    assert a != c


def test_chance_is_what_it_says() -> None:
    noise = Noise(7)
    assert sum(noise.count(3.0) for _ in range(4000)) / 4000 == pytest.approx(3.0, rel=0.05)
    assert sum(noise.count(300.0) for _ in range(1000)) / 1000 == pytest.approx(300.0, rel=0.02)
    assert quantile([3, 1, 2, 4], 0.5) == 2
    assert quantile([], 0.5) == 0.0


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--policy", "ds2 --target 0.5", "--phase", "20", "--why"]) == 0
    out = capsys.readouterr().out
    assert "p95 latency" in out
    assert "detector is to take" in out
    assert main(["--policy", "thresholds --scale-in 0.5"]) == 2
    assert "could be doubled at once" in capsys.readouterr().err


def test_the_command_is_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elastic.simulation", "--help"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "fivephase" in done.stdout


@pytest.mark.parametrize(
    "words", [("--nodes", "0"), ("--phase", "-1"), ("--step", "0"), ("--scale", "nan"), ("--cores", "inf")]
)
def test_numbers_that_mean_nothing_are_refused(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"argument {words[0]}: give more than 0" in capsys.readouterr().err


def placed_by(scheduler: str, period: float = 10.0) -> Result:
    return Simulation(
        fpd(),
        fivephase(60.0),
        policy="ds2",
        options=SimulationOptions(step=0.2),
        scheduler=Scheduled(scheduler, period),
    ).run()


def test_a_scheduler_of_the_product_places_what_a_policy_has_sized() -> None:
    """OTD goes on until nothing is left to be done; traffic between nodes is less than where nobody cares for it."""
    even, otd = placed_by("roundrobin"), placed_by("otd", 5.0)
    assert sum(p.moved for p in otd.placed) > 0 == sum(p.moved for p in even.placed)
    assert otd.phases()[-1].between < even.phases()[-1].between
    assert otd.degraded <= 0.01


TSTORM = "tstorm --gamma 2 --workers-per-node 0"


def test_a_scheduler_that_decides_how_many_workers_there_are_is_not_undone_by_a_policy() -> None:
    assert max(p.decisions for p in placed_by(TSTORM).phases()) <= 2


def test_if_both_decided_how_many_workers_there_are_they_would_undo_each_other() -> None:
    """The planted fault for the test before."""
    with patch.object(Scheduled, "processes", property(lambda self: True)):
        assert max(p.decisions for p in placed_by(TSTORM).phases()) > 2


def test_the_command_takes_a_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--phase", "20", "--scheduler", "otd", "--scheduler-period", "5", "--why"]) == 0
    out = capsys.readouterr().out
    assert "placed anew 20 times" in out
    assert main(["--scheduler", "odt"]) == 2
    assert "otd" in capsys.readouterr().err
