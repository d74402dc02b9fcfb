"""What a kill may cost, and that it was said: each fault that is planted in a record or its events is found."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.account import judge
from chaos.check import check
from chaos.lag import Lag
from chaos.plan import COST, FREE, choose
from chaos.rounds import Kill
from chaos.watch import STEPS

SECOND = 1_000_000_000
FREE_KILLS: list[Kill] = []


def kill(owned: set[int], *, at: int = 12, surely: bool = True) -> Kill:
    round = choose(1, 1, cost=True, hazelcast=False)
    return Kill(
        round,
        at * SECOND,
        at * SECOND + 1,
        at,
        "paused",
        [1],
        owned,
        set(owned) if surely else set(),
        {"t@n/0"},
    )


def lost(tasks: str, *, at: float = 13.0) -> dict[str, Any]:
    return {"kind": "state-lost", "message": "", "time": at, "details": {"tasks": tasks}}


def record(**changes: Any) -> dict[str, Any]:
    """A key of spout task 1 by count task 5 and sink task 16, as `chaos.check --json` gives it."""
    key = {
        "key": "1.a.0",
        "path": [5, 16],
        "arrived": 9,
        "emitted": 10,
        "lost": [],
        "doubled": [],
        "reordered": [],
        "forgotten": [],
    }
    return {"keys": {"1.a.0": {**key, **changes}}, "overlaps": [], "recounts": [], "unknown": []}


HOLE = [{"first": 4, "last": 5, "after": 11 * SECOND, "before": 14 * SECOND}]
FORGOTTEN = [{"count": 0, "expected": 4, "after": 11 * SECOND, "at": 14 * SECOND}]


def test_what_arrived_once_and_in_order_is_as_promised() -> None:
    assert judge(record(), [], FREE_KILLS, cost=False) == []
    assert judge(check([]).__dict__, [], [], cost=False) == ["nothing has arrived"]


def test_a_loss_on_the_way_of_a_killed_task_is_accounted_for_when_it_was_said() -> None:
    report = record(lost=HOLE, forgotten=FORGOTTEN)
    assert judge(report, [lost("5, 6")], [kill({5, 6})], cost=True) == []


@pytest.mark.parametrize(
    ("report", "events", "kills", "cost", "says"),
    [
        (record(lost=HOLE), [], FREE_KILLS, False, "4 to 5 are lost"),
        (record(lost=HOLE), [lost("5")], [kill({5})], False, "4 to 5 are lost"),
        (record(lost=HOLE), [lost("6")], [kill({6})], True, "4 to 5 are lost"),
        (record(lost=HOLE), [lost("5")], [kill({5}, at=15)], True, "4 to 5 are lost"),
        (
            record(lost=[{**HOLE[0], "after": 40 * SECOND, "before": 0}]),
            [lost("5")],
            [kill({5})],
            True,
            "4 to 5 are lost",
        ),
        (record(doubled=[{"n": 3, "at": SECOND}]), [lost("5")], [kill({5})], True, "3 came again"),
        (record(reordered=[{"n": 3, "at": SECOND}]), [lost("5")], [kill({5})], True, "3 came late"),
        (record(forgotten=FORGOTTEN), [lost("6")], [kill({6})], True, "had counted 0 instead of 4"),
        (record(emitted=-1), [lost("5")], [kill({5})], True, "began anew"),
        ({**record(), "overlaps": ["sink 16: a and b"]}, [lost("16")], [kill({16})], True, "two at once"),
        (
            {**record(), "recounts": ["sink 16: a begins with 0, not 3"]},
            [lost("5")],
            [kill({5})],
            True,
            "begins with 0",
        ),
        (record(), [lost("5")], FREE_KILLS, False, "lost 1 times, and killed 0 times"),
        (record(), [lost("5"), lost("5")], [kill({5})], True, "lost 2 times, and killed 1 times"),
        (record(), [], [kill({5})], True, "that was not said"),
        (record(), [lost("5"), lost("5", at=14.0)], [kill({5}), kill({5}, at=20)], True, "that was not said"),
        (
            record(),
            [{"kind": "tuples-doubled", "message": "3"}],
            FREE_KILLS,
            False,
            "tuples-doubled was said",
        ),
        (
            record(),
            [{"kind": "worker-lost", "message": "x", "details": {"exit_code": 4}}],
            FREE_KILLS,
            False,
            "that nobody killed",
        ),
    ],
)
def test_each_planted_fault_is_found(
    report: dict[str, Any], events: list[dict[str, Any]], kills: list[Kill], cost: bool, says: str
) -> None:
    wrong = judge(report, events, kills, cost=cost)
    assert any(says in w for w in wrong), wrong


def test_a_round_follows_from_its_seed_and_number_alone() -> None:
    for number in range(50):
        for cost in (False, True):
            first, again = (choose(7, number, cost=cost, hazelcast=True) for _ in range(2))
            assert str(first) == str(again) and first.after == again.after
            assert first.step in (COST if cost else FREE)[first.victim]
            assert first.chance.random() == again.chance.random()


def test_every_victim_and_every_step_has_its_turn() -> None:
    rounds = [choose(1, n, cost=False, hazelcast=True) for n in range(2000)]
    assert {(r.victim, r.step) for r in rounds} == {(v, s) for v, steps in FREE.items() for s in steps}
    only = [choose(1, n, cost=False, hazelcast=True, only=("nimbus", "saved")) for n in range(20)]
    assert {(r.victim, r.step) for r in only} == {("nimbus", "saved")}
    assert {r.step for r in rounds} == set(STEPS)


def test_how_long_the_machine_kept_the_run_waiting_is_of_the_time_since_it_was_asked_before() -> None:
    lag = Lag()
    lag.close()
    lag._longest = 5.0
    assert lag.take() == 5.0
    assert lag.take() == 0.0
