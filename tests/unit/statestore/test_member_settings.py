"""What is made of how members are set that somebody else runs; real ones: tests/contract/test_statestore_hazelcast_foreign.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statestore.hazelcast.settings import MapSettings, doubts, problems

GOOD = MapSettings("10.0.0.7:5701", "statestore.pieces", 1, 0, 0, "", "DiscardMergePolicy")


def test_what_keeps_everything_is_taken_without_a_word() -> None:
    full_name = replace(GOOD, merge_policy="com.hazelcast.spi.merge.DiscardMergePolicy")
    assert problems([GOOD, full_name], 1) == []
    assert doubts([GOOD, full_name], 1, 2) == []
    assert problems([replace(GOOD, backups=3)], 1) == []
    assert problems([replace(GOOD, backups=0)], 0) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"backups": 0}, "statestore.pieces has no backup, and 1 is wanted at 10.0.0.7:5701"),
        ({"eviction": "LRU"}, "evicts entries (LRU) at"),
        ({"time_to_live": 60}, "drops entries after 60 s (time-to-live-seconds) at"),
        ({"max_idle": 5}, "nobody uses for 5 s (max-idle-seconds) at"),
    ],
)
def test_what_would_lose_states_is_said(wrong: dict[str, int | str], says: str) -> None:
    (said,) = problems([GOOD, replace(GOOD, **wrong), replace(GOOD, **wrong)], 1)  # type: ignore[arg-type]
    assert says in said


def test_too_few_backups_are_numbers() -> None:
    assert problems([GOOD], 2) == [
        "statestore.pieces has 1 synchronous backup, and 2 are wanted at 10.0.0.7:5701"
    ]


def test_what_may_cost_something_one_day_is_said_once() -> None:
    others = [replace(GOOD, map=m, merge_policy="a.PutIfAbsentMergePolicy") for m in ("x", "y")]
    alone, back = doubts(others, 1, 1)
    assert "only 1" in alone and "fewer than 2" in alone
    assert "a.PutIfAbsentMergePolicy" in back and "deleted may come back" in back
    assert doubts([GOOD], 0, 1) == []
