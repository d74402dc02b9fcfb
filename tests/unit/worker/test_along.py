"""What is left of a state goes along, from process to process, while the stores are taking it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elastic.errors import ExecutionError, Unavailable
from elastic.migration.record import Marks, Outcome
from elastic.worker.content.engine import engine_pieces
from elastic.worker.moving import along, fetching
from elastic.worker.moving.along import ALONE, MOST, CameAlong, Recent
from elastic.worker.moving.stores import SmallState
from elastic.worker.moving.words import Words
from statestore.base import pack, unpack
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_moves_ahead import COUNT, ENTRIES, _found, with_a_large_state

ALL = {1, 2, 3}
FORMS = pytest.mark.parametrize("entries", [ENTRIES, 100], ids=["large", "small"])


def name(number: int) -> tuple[int, int, int, int]:
    return 7, number, 1, 0


def came(body: bytes, epoch: int = 7) -> CameAlong:
    """What has come along for task 1."""
    kept = CameAlong(lambda task, epoch: True)
    kept.keep(1, epoch, memoryview(body))
    return kept


def of(*numbers: int) -> bytes:
    """What is sent of pieces 1 to 3, of which these were written last."""
    recent = Recent()
    for n in numbers:
        recent.add(n, b"%d" % n)
    return recent.along([1, 2, 3], [name(n) for n in (1, 2, 3)], b"note")


def test_what_is_here_and_what_came_along_make_the_whole() -> None:
    found = came(of(3, 1)).take(1, 7, {name(2): b"", name(9): b""})
    assert found is not None
    assert (found.meta, list(found.named)) == (b"note", [name(1), name(2), name(3)])
    assert list(found.pieces) == [b"1", b"", b"3"] and found.more == 0


def test_less_than_the_whole_is_nothing() -> None:
    assert came(of(1)).take(1, 7, {name(2): b""}) is None
    assert came(of(1, 2, 3)).take(1, 7, {}) is not None


def test_it_is_of_one_move_and_is_taken_once() -> None:
    kept = came(of(1, 2, 3), epoch=6)
    assert kept.take(1, 7, {}) is None
    kept.keep(1, 7, memoryview(of(1, 2, 3)))
    assert kept.take(2, 7, {}) is None
    assert kept.take(1, 7, {}) is not None and kept.take(1, 7, {}) is None


def test_pieces_that_the_state_has_no_more_do_not_come() -> None:
    assert came(of(8, 1, 9, 3)).take(1, 7, {name(2): b""}) is not None


def test_what_was_written_long_ago_does_not_come() -> None:
    recent, names = Recent(), [name(n) for n in (1, 2, 3)]
    recent.add(3, bytes(MOST // 2))
    recent.committed()
    for n in (2, 1):
        recent.add(n, bytes(MOST // 2))
    body = recent.along([1, 2, 3], names, b"")
    assert MOST <= len(body) < MOST + 1000 and came(body).take(1, 7, {name(3): b""}) is not None


def test_nothing_is_sent_that_cannot_be_enough() -> None:
    """The engine's part comes first in a state, and was not there before the task stood still."""
    assert of(3, 2) == b""
    recent = Recent()
    for n in (1, 2, 3):
        recent.add(n, bytes(MOST // 2))
    assert recent.along([1, 2, 3], [name(n) for n in (1, 2, 3)], b"") == b""


def test_nothing_is_sent_of_which_the_new_side_cannot_have_the_rest() -> None:
    recent, names = Recent(), [name(n) for n in (1, 2, 3)]
    recent.add(3, bytes(MOST))
    recent.add(1, b"1")
    assert recent.along([1, 2, 3], names, b"") == b""
    assert recent.along([1, 2], names[:2], b""), "that piece is not one of the state's any more"
    recent.committed()
    recent.add(2, b"2")
    assert recent.along([1, 2, 3], names, b"")


def test_what_comes_too_late_takes_no_ones_place() -> None:
    kept = CameAlong(lambda task, epoch: epoch == 7)
    kept.keep(1, 7, memoryview(of(1, 2, 3)))
    kept.keep(1, 6, memoryview(of(1, 2, 3)))
    assert kept.take(1, 6, {}) is None and kept.take(1, 7, {}) is not None


def test_what_cannot_be_read_is_fetched() -> None:
    assert came(b"\xc1").take(1, 7, {}) is None


def test_stores_know_the_names_that_came_along() -> None:
    """A look that was under way goes on with them, and may ask a store for the rest."""
    found = came(of(1, 2, 3)).take(1, 7, {})
    assert found is not None
    assert unpack(pack(found.named)) == tuple(found.named)  # type: ignore[arg-type]


def test_a_small_state_comes_whole_unless_it_is_too_large_for_that() -> None:
    state = SmallState("wc/1", 7, "w#1", (b"one", b"two"), b"note")
    found = came(along.small(state, MOST)).take(1, 7, {})
    assert found is not None and (list(found.pieces), found.meta) == ([b"one", b"two"], b"note")
    large = SmallState("wc/1", 7, "w#1", (bytes(MOST),), b"note")
    assert along.small(large, ALONE + 1) == b"" and along.small(state, ALONE + 1) != b""
    assert came(along.small(large, ALONE)).take(1, 7, {}) is not None, "nothing else is on its way"


def test_it_is_kept_for_tasks_that_come_and_for_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    coming, body = {1}, memoryview(of(1, 2, 3))
    monkeypatch.setattr(along, "ROOM", 2 * len(body))
    kept = CameAlong(lambda task, epoch: task in coming)
    kept.keep(2, 7, body)
    assert kept.take(2, 7, {}) is None, "nobody would ever take it"
    coming |= ALL
    for task in (1, 1, 2, 3):
        kept.keep(task, 7, body)
    assert kept.take(3, 7, {}) is None and kept.take(1, 7, {}) is not None
    kept.keep(3, 7, body)
    kept.forget(2)
    kept.keep(1, 7, body)
    assert kept.take(3, 7, {}) is not None and kept.take(1, 7, {}) is not None


# --- in moves


@contextmanager
def moved(entries: int, times: int = 4) -> Iterator[Moving]:
    """A task whose state changes all the time is moved; then it is seen whether it has counted everything."""
    topology_name, topology, large = with_a_large_state(entries)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        yield cluster
        for n in range(times):
            (part,) = cluster.move({large: 1 - n % 2}).tasks
            assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
    assert _found[topology_name] == sum(range(entries)) + COUNT


def asked(entries: int) -> int:
    """How often a store was asked for a state that stood still, in four moves. Marks are written when what was sent along has come."""
    keep, here = CameAlong.keep, threading.Event()

    def keeps(self: CameAlong, task: int, epoch: int, body: memoryview) -> None:
        keep(self, task, epoch, body)
        here.set()

    def sends(self: Words, task: int, epoch: int, body: bytes) -> None:
        here.clear()
        send(self, task, epoch, body)
        if not body:
            here.set()  # too much has changed just before the pause: nothing is sent

    def before_marks(marks: Marks) -> None:
        if marks.saved:
            assert here.wait(30.0), "what was sent along has not come"

    send = Words.along
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CameAlong, "keep", keeps)
        patch.setattr(Words, "along", sends)
        with moved(entries) as cluster:
            cluster.before_marks = before_marks
    return len(cluster.stores.brought)


@FORMS
def test_stores_are_asked_for_nothing_in_the_pause(entries: int) -> None:
    assert asked(entries) == 0


@FORMS
def test_that_nothing_is_taken_of_it_is_found(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CameAlong, "take", lambda *_: None)
    monkeypatch.setattr("elastic.worker.moving.fetching.Fetching._look_again", lambda *_, **__: None)
    assert asked(entries) == 4


@FORMS
def test_what_does_not_come_costs_time_and_nothing_else(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second one is lost on its way."""
    send, count = Words.along, 0

    def loses(self: Words, task: int, epoch: int, body: bytes) -> None:
        nonlocal count
        count += 1
        if count % 2:
            send(self, task, epoch, body)

    monkeypatch.setattr(Words, "along", loses)
    with moved(entries):
        pass
    assert count == 4


@FORMS
def test_what_the_stores_did_not_take_is_not_restored(entries: int) -> None:
    """It has come along all the same; the task goes on where it was."""
    name, topology, large = with_a_large_state(entries)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        stores, sent = cluster.stores, []

        def refuses(*_: Any) -> Any:
            if sent:
                raise Unavailable("the store does not answer")

        def send(self: Words, task: int, epoch: int, body: bytes) -> None:
            along_(self, task, epoch, body)
            sent.append(body)

        along_ = Words.along
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Words, "along", send)
            patch.setattr(stores, "on_commit", refuses)
            patch.setattr(
                stores, "save_many", lambda states, nodes: [Unavailable("it does not answer")] * len(states)
            )
            (part,) = cluster.move({large: 1}).tasks
            assert part.outcome == Outcome.ROLLED_BACK and "not answer" in part.reason and sent
        (part,) = cluster.move({large: 1}).tasks
        assert part.outcome == Outcome.COMMITTED
        cluster.wait_finished()
    assert _found[name] == sum(range(entries)) + COUNT


def test_that_something_else_came_along_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that are one version too old."""
    take = CameAlong.take

    def older(self: CameAlong, task: int, epoch: int, here: Any) -> Any:
        found = take(self, task, epoch, here)
        if found is None or not hasattr(found.named, "index"):
            return found
        own = engine_pieces(found.pieces)
        pieces = [*found.pieces[:own], *(p and b"\x80" for p in found.pieces[own:])]
        return type(found)(found.meta, found.named, pieces)

    monkeypatch.setattr(CameAlong, "take", older)
    with pytest.raises(AssertionError), moved(ENTRIES, 8):
        pass


@FORMS
def test_what_came_along_and_is_of_no_use_is_fetched(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, failed = fetching.decode_engine, threading.Event()

    def decodes(pieces: Any, streams: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise ExecutionError("it cannot be read")
        return decode(pieces, streams)

    def before_marks(marks: Marks) -> None:
        # What the marks say has to be right the first time: by a word it is tried before that.
        if marks.saved:
            assert failed.wait(30.0), "nobody has tried"

    monkeypatch.setattr(fetching, "decode_engine", decodes)
    with moved(entries, 1) as cluster:
        cluster.before_marks = before_marks
    assert cluster.stores.brought
