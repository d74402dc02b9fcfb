"""Room for what is written beyond what was asked for: much is asked for before, the little that a commit brings along is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from elastic.cluster import state_write, store_ends
from elastic.cluster.state_write import Commit, StateWrite, commit_many
from elastic.cluster.store_ends import Begun, Small
from elastic.model.ids import NodeId
from statestore.base import Ticket
from statestore.errors import Full, StateStoreError
from statestore.errors import Unavailable as Unreached

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


class Many:
    """A store that knows what it was told to commit: together, and one by one."""

    streams = False

    def __init__(self, answer: Callable[[list[Small]], list[StateStoreError | None]]) -> None:
        self.answer = answer
        self.together: list[list[tuple[str, int]]] = []
        self.alone: list[tuple[str, int]] = []

    def start_commits(self, commits: list[Small], took: Callable[[Any], None]) -> Callable[[], None]:
        self.together.append([(c.ticket.key, c.sequence) for c in commits])
        return lambda: took(self.answer(commits))

    def start_commit(self, ticket: Ticket, sequence: int, *_: Any) -> Callable[[], None]:
        self.alone.append((ticket.key, sequence))
        return lambda: None

    def forget(self, ticket: Ticket) -> None: ...


def many(*ways: Many) -> list[Commit]:
    """Three writes to these stores, with a piece each."""
    nodes = {NodeId(f"n{n}"): way for n, way in enumerate(ways)}
    commits = []
    for name in "xyz":
        begun = {node: Begun(1, 4, "") for node in nodes}
        write = StateWrite(Ticket(name, 1, "w"), nodes, begun, SIZE, lambda *_: None)  # type: ignore[arg-type]
        commits.append((write, [write.put(b"data")], b"meta"))
    return commits


def well(commits: list[Small]) -> list[StateStoreError | None]:
    return [None] * len(commits)


def test_commits_go_with_one_message_to_each_store() -> None:
    ways = Many(well), Many(well)
    assert commit_many(many(*ways)) == [8, 8, 8]
    for way in ways:
        assert way.together == [[("x", 5), ("y", 5), ("z", 5)]] and not way.alone


def test_a_commit_by_itself_needs_no_company() -> None:
    way = Many(well)
    assert commit_many(many(way)[:1]) == [None] and not way.alone and not way.together


def test_what_one_store_has_not_confirmed_is_to_be_done_again_with_the_same_number() -> None:
    """All stores are told: the one that has confirmed it does nothing."""

    def not_the_second(commits: list[Small]) -> list[StateStoreError | None]:
        return [None, Full("no room"), None]

    ways = Many(well), Many(not_the_second)
    commits = many(*ways)
    assert commit_many(commits) == [8, None, 8]
    write, numbers, meta = commits[1]
    assert write.commit(numbers, meta) == 8
    assert [way.alone for way in ways] == [[("y", 5)], [("y", 5)]]


def test_a_store_that_is_not_reached_leaves_none_of_them_for_done() -> None:
    def breaks(commits: list[Small]) -> list[StateStoreError | None]:
        raise Unreached("it does not answer")

    ways = Many(well), Many(breaks)
    assert commit_many(many(*ways)) == [None, None, None]


def test_that_one_store_is_enough_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    real = state_write._committed_together
    monkeypatch.setattr(state_write, "_committed_together", lambda parts: real(parts) | set(parts))
    with pytest.raises(AssertionError):
        test_what_one_store_has_not_confirmed_is_to_be_done_again_with_the_same_number()


def test_a_number_of_commits_that_is_too_much_for_one_message_is_divided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_ends, "_MESSAGE", 60)
    way = Many(well)
    assert commit_many(many(way)) == [8, 8, None]
    assert way.together == [[("x", 5), ("y", 5)]]
