"""Room for what is written beyond what was asked for: much is asked for before, the little that a commit brings along is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from elastic.cluster import state_write
from elastic.cluster.state_write import StateWrite
from elastic.cluster.store_ends import Begun
from elastic.model.ids import NodeId
from statestore.base import Ticket
from statestore.errors import Full

A = NodeId("a")
SIZE = 1 << 20


class Way:
    """A store of this machine with so much room."""

    streams = False

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked: list[int] = []
        self.refused: list[int] = []

    def start_reserve(self, epoch: int, sizes: dict[str, int]) -> Callable[[], None]:
        (wanted,) = sizes.values()
        if wanted > self.room:
            self.refused.append(wanted)
            raise Full(f"no room for {wanted}")
        self.asked.append(wanted)
        return lambda: None

    def start_commit(self, *_: Any) -> Callable[[], None]:
        return lambda: None

    def forget(self, ticket: Ticket) -> None: ...


def written(way: Way, directory: str, after: Sequence[int]) -> StateWrite:
    """A state of the size that was expected, which is committed; then pieces of these sizes are put."""
    one = StateWrite(
        Ticket("k", 1, "w"), {A: way}, {A: Begun(1, 0, directory)}, SIZE, lambda *_: None  # type: ignore[dict-item]
    )  # fmt: skip
    one.commit([one.put(bytes(SIZE // 2)), one.put(bytes(SIZE // 2 - 4096))])
    for size in after:
        one.put(bytes(size))
    one.close()
    return one


def test_the_little_that_is_left_to_a_pause_costs_no_question(tmp_path: Any) -> None:
    way = Way(1 << 30)
    written(way, str(tmp_path), [60_000, 60_000])
    assert not way.asked and not way.refused


def test_much_is_asked_for_before_it_is_put(tmp_path: Any) -> None:
    way = Way(1 << 30)
    written(way, str(tmp_path), [150_000, 150_000, 150_000])
    assert len(way.asked) == 1 and way.asked[0] >= 450_000


def test_that_a_question_comes_with_each_commit_is_found(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault."""
    monkeypatch.setattr(state_write, "_INLINE", 0)
    with pytest.raises(AssertionError):
        test_the_little_that_is_left_to_a_pause_costs_no_question(tmp_path)


def test_where_there_is_little_room_no_more_is_asked_for_than_is_needed(tmp_path: Any) -> None:
    way = Way(320_000)
    written(way, str(tmp_path), [150_000, 150_000])
    assert way.refused and len(way.asked) == 1 and 300_000 <= way.asked[0] <= 320_000
    with pytest.raises(Full):
        written(Way(320_000), str(tmp_path), [150_000, 150_000, 150_000])
