"""A request knows its moves again by what they give as their reason."""

from __future__ import annotations

import pytest

from elastic.model import whys

MOVE = whys.to_move("6-7", "b")
SCALE = whys.to_rebalance({"split": 3, "count": 4}, 2)


def test_what_was_asked_for_is_said() -> None:
    assert MOVE == "move 6-7 to b" and SCALE == "rebalance count=4, split=3, 2 workers"
    assert whys.to_rebalance({}, None) == "rebalance"
    assert whys.with_share(MOVE, 0.25) == "move 6-7 to b, share 0.25" and whys.with_share(MOVE, None) == MOVE


@pytest.mark.parametrize("share", [None, 0.5])
def test_each_of_several_knows_their_move(share: float | None) -> None:
    why = whys.several([whys.with_share(MOVE, share), SCALE], 200)
    assert whys.asked_by(why, MOVE) and whys.asked_by(why, SCALE)
    assert not whys.asked_by(why, whys.to_move("6-7", "bb")) and not whys.asked_by(why, "move 6")
    assert whys.several([why, SCALE], 200) == why, "the same again"


def test_those_that_came_first_are_left_out_where_there_is_no_room() -> None:
    why = MOVE
    for n in range(50):
        why = whys.several([why, whys.to_move(str(n), "c")], 200)
    assert len(why) <= 200 and whys.asked_by(why, "move 49 to c") and not whys.asked_by(why, MOVE)
    assert whys.is_cut(why) and not whys.is_cut(MOVE) and why.count("…") == 1, "which is said, once"
    assert whys.several([MOVE, "x" * 300], 200) == "…; " + "x" * 300
