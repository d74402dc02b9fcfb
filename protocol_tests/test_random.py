"""Every promise under random operations: seeded runs, and a state machine that Hypothesis drives and shrinks."""

from __future__ import annotations

import json
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from elastic.migration.record import Outcome
from elastic.migration.table import EmitterState, ReceiverState
from protocol_tests import profiles
from protocol_tests.planted import planted
from protocol_tests.profiles import PROFILE, PROFILES, Profile
from protocol_tests.runner import Report, plan, replay, run_many, run_ops
from protocol_tests.truth import Broken
from protocol_tests.world import COSTLY, FREE, Op, World

pytestmark = pytest.mark.timeout(PROFILE.timeout)
WHICH = st.integers(0, 63)
WHILE = st.sampled_from((2.0, 10.0, 40.0, 150.0))


class Moves(RuleBasedStateMachine):
    """Random topologies, moves and faults."""

    world: World
    seed: int
    ops: list[Op]
    ended: bool

    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.seed, self.ops, self.ended = seed, [], False
        self.world = World(seed, trace=[])

    def _do(self, *op: object) -> None:
        self.ops.append(op)
        self._tell(lambda: self.world.apply(op))

    def _tell(self, what: object) -> None:
        assert callable(what)
        try:
            what()
        except Exception as error:
            self.ended = True
            tail = "\n".join((self.world.trace or [])[-60:])
            error.add_note(
                f"{tail}\nTo see all of it: python -m protocol_tests --replay FILE, with this in the file:\n{self.example()}"
            )
            raise

    def example(self) -> str:
        return json.dumps({"seed": self.seed, "ops": self.ops})

    @rule(steps=st.sampled_from((1, 3, 10, 30, 100)))
    def run(self, steps: int) -> None:
        self._do("run", steps)

    @rule(which=WHICH, count=st.integers(1, 6))
    def emit(self, which: int, count: int) -> None:
        self._do("emit", which, count)

    @rule(first=WHICH, count=st.integers(1, 6), to=WHICH, share=st.sampled_from((1.0, 0.5, 0.3)))
    def move(self, first: int, count: int, to: int, share: float) -> None:
        self._do("move", first, count, to, share)

    @rule(kind=st.sampled_from(FREE), which=WHICH, longest=WHILE)
    def fault(self, kind: str, which: int, longest: float) -> None:
        self._do(kind, which, longest)

    @rule(kind=st.sampled_from(COSTLY), which=WHICH, longest=WHILE)
    def costly_fault(self, kind: str, which: int, longest: float) -> None:
        self._do(kind, which, longest)

    def teardown(self) -> None:
        if hasattr(self, "world") and not self.ended:
            self._tell(self.world.finish)


def _settings(profile: Profile, examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=profile.steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        print_blob=False,
    )


Moves.TestCase.settings = _settings(PROFILE, PROFILE.examples)
TestMoves = Moves.TestCase


def test_seeded_runs_keep_every_promise_and_reach_every_state() -> None:
    report = run_many(0, 1, runs=PROFILE.runs)
    assert not report.failures, str(report)
    assert report.moves > PROFILE.runs
    assert {kind for kind in (*FREE, *COSTLY) if kind != "reassign"} <= report.faults.keys()
    assert {"batches of several", "taken by the shortcut", "output buffer full"} <= report.met.keys()
    reached = {
        role: {s for r, s in report.states if r == role}
        for role in ("emitter", "receiver", "old side", "new side", "notifier")
    }
    assert set(report.outcomes) >= {Outcome.COMMITTED, Outcome.ROLLED_BACK}
    assert reached["emitter"] == {*EmitterState} and reached["receiver"] == {*ReceiverState}
    assert reached["old side"] >= {
        "preparing",
        "ready",
        "stopping",
        "draining",
        "confirming",
        "saving",
        "marking",
        "saved",
        "failed",
    }
    assert reached["new side"] >= {
        "preparing",
        "ready",
        "fetching",
        "installing",
        "marking",
        "running",
        "failed",
    }
    assert reached["notifier"] >= {"watching", "writing", "cleaning", "closing", "removing", "ended"}


@pytest.mark.parametrize("name", PROFILES)
def test_each_profile_can_be_asked_for_and_tries_what_the_docs_say(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTOCOL_TESTS", name)
    profile = runpy.run_path(profiles.__file__)["PROFILE"]
    # Loaded a second time it is of another class.
    assert asdict(profile) == asdict(PROFILES[name])
    run_state_machine_as_test(Moves, settings=_settings(PROFILES[name], 2))
    said = (Path(__file__).parents[1] / "docs" / "developing.md").read_text()
    assert f"{profile.runs:,}" in said and f"{profile.examples:,}" in said


def test_the_same_seed_gives_the_same_run() -> None:
    first: list[str] = []
    second: list[str] = []
    run_ops(5, plan(5), trace=first)
    run_ops(5, plan(5), trace=second)
    assert first == second and len(first) > 100


def test_a_run_is_told_again_from_a_file(tmp_path: Path) -> None:
    ops = plan(7)
    file = tmp_path / "example.json"
    file.write_text(json.dumps({"seed": 7, "ops": ops}))
    assert replay(str(file)) == replay("7")


def test_a_failing_example_is_told_and_can_be_told_again(tmp_path: Path) -> None:
    with planted("begins before restored is accepted"):
        machine = Moves()
        machine.begin(seed=1)
        with pytest.raises(Broken) as caught:
            for op in plan(1):
                machine._do(*op)
            machine.teardown()
        told, _, example = caught.value.__notes__[-1].rpartition("\n")
        assert "--replay FILE" in told and " <- ViewRead " in told
        file = tmp_path / "example.json"
        file.write_text(example)
        assert replay(str(file))[1] == f"Broken: {caught.value}"


def test_a_report_says_what_was_done() -> None:
    report = Report(seconds=1.0)
    report.add(run_ops(4, plan(4)))
    text = str(report)
    assert "moves/s" in text and "states reached" in text and "committed" in text and "old side" in text
