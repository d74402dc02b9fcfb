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
    assert whys.several([MOVE, SCALE, MOVE], 200) == f"{MOVE}; {SCALE}", "each once"


def test_those_that_came_first_are_left_out_where_there_is_no_room() -> None:
    why = whys.several([MOVE, *(whys.to_move(str(n), "c") for n in range(50))], 200)
    assert len(why) <= 203 and whys.asked_by(why, "move 49 to c") and not whys.asked_by(why, MOVE)
    assert whys.is_cut(why) and not whys.is_cut(MOVE) and why.startswith("…; "), "which is said"
    assert whys.several([MOVE, "x" * 300], 200) == "…; " + "x" * 300
    assert whys.several(["a; b" * 100], 200) == "a; b" * 100, "one alone, whatever it says"
