"""What may happen at once to watches that end with their node: the node is played."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest

from elastic.coordination._watches import GONE, Kind, Watches
from elastic.coordination.base import SessionState

KEY = (Kind.VALUE, "/x")
PATIENCE = 10.0


class Node:
    """One node; a read of it can be held up."""

    def __init__(self) -> None:
        self.value: str | None = "here"
        self.reads = threading.Event()
        self.may = threading.Event()
        self.may.set()
        self.watches = Watches(self._read, "played")

    def _read(self, kind: Kind, path: str, begun: Any, lasting: bool) -> tuple[Hashable, Any]:
        found = self.value
        self.reads.set()
        assert self.may.wait(PATIENCE)
        if found is None and not lasting:
            return GONE, None
        return found, found


class Calls:
    def __init__(self) -> None:
        self.made: list[str | None] = []
        self.made_one = threading.Semaphore(0)

    def __call__(self, value: str | None) -> None:
        self.made.append(value)
        self.made_one.release()

    def next(self) -> str | None:
        assert self.made_one.acquire(timeout=PATIENCE), self.made
        return self.made[-1]


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.watches.close()


def test_who_gets_early_word_is_told_of_the_end_although_more_is_heard_meanwhile(node: Node) -> None:
    """It is the last call: there is none that could bring it later."""
    calls = Calls()
    node.watches.subscribe(*KEY, calls, early=lambda: None, until_gone=True)
    assert calls.next() == "here"
    node.value = None
    node.reads.clear()
    node.may.clear()
    node.watches.changed(*KEY)
    assert node.reads.wait(PATIENCE)
    node.watches.changed(*KEY)  # told twice; or the connection has been away
    node.may.set()
    assert calls.next() is None


def test_who_wants_to_hear_of_another_node_is_not_ended_with_the_first(node: Node) -> None:
    """It has come between the word of the end and what was made of it."""
    first, lasting = Calls(), Calls()
    node.watches.subscribe(*KEY, first, until_gone=True)
    assert first.next() == "here"
    node.value = None
    with node.watches._wake:  # the thread does not get to it yet
        node.watches.subscribe(*KEY, lasting)
        node.watches._mark(KEY, GONE)
    assert first.next() is None and lasting.next() is None
    node.value = "another"
    node.watches.changed(*KEY)
    assert lasting.next() == "another"


class Begun:
    """Reads are begun at once; an answer is what there was then."""

    def __init__(self) -> None:
        self.value = "first"
        self.begun: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.watches = Watches(self._read, "played", begin=self._begin)

    def _begin(self, kind: Kind, path: str, gone: bool) -> str:
        found = self.value
        self.begun.append(path)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return found

    def _read(self, kind: Kind, path: str, begun: Any, lasting: bool) -> tuple[Hashable, Any]:
        assert begun is not None, "asked for once more"
        return begun, begun


def test_what_nobody_watches_any_more_is_let_go(node: Node) -> None:
    """Also of a node of which nothing is ever heard again, such as those of a topology that is no more."""
    made: list[weakref.ref[Calls]] = []
    for n in range(50):
        calls = Calls()
        watch = node.watches.subscribe(Kind.VALUE, f"/{n}", calls)
        calls.next()
        watch.cancel()
        watch.cancel()
        made.append(weakref.ref(calls))
        del calls, watch
    calls = Calls()
    other = node.watches.subscribe(Kind.VALUE, "/0", calls)
    assert calls.next() == "here"
    gc.collect()
    assert not [at for at, ref in enumerate(made[:-1]) if ref() is not None]
    assert list(node.watches._subscriptions) == [(Kind.VALUE, "/0")]
    other.cancel()


def test_all_that_is_subscribed_to_is_asked_for_at_once() -> None:
    """The thread that reads need not have come to the first of them."""
    node = Begun()
    try:
        with node.watches._wake:  # it does not
            for name in "abc":
                node.watches.subscribe(Kind.VALUE, f"/{name}", Calls())
            assert node.begun == ["/a", "/b", "/c"]
    finally:
        node.watches.close()


@pytest.mark.parametrize("fault", [False, True])
def test_what_a_change_has_begun_is_not_put_in_the_place_of_by_what_was_begun_before(
    monkeypatch: pytest.MonkeyPatch, fault: bool
) -> None:
    """The answer to that is older, and the change is not heard of again."""
    node, calls = Begun(), Calls()

    def changes() -> None:
        node.value = "second"
        node.watches.changed(*KEY)

    if fault:

        class Forgets(dict[Any, Any]):
            def get(self, key: Any, default: Any = None) -> Any:
                return None

        monkeypatch.setattr(node.watches, "_dirty", Forgets())
    node.meanwhile = changes
    try:
        with node.watches._wake:
            node.watches.subscribe(*KEY, calls)
        told = calls.next()
    finally:
        node.watches.close()
    assert (told == "second") != fault


def test_who_is_told_early_and_raises_does_not_end_the_connection(node: Node) -> None:
    """Its thread is the one that tells."""
    calls = Calls()

    def raises() -> None:
        raise RuntimeError("can't start new thread")

    node.watches.subscribe(*KEY, calls, early=raises)
    assert calls.next() == "here"
    node.value = "there"
    node.watches.changed(*KEY)
    assert calls.next() == "there"


def test_an_answer_of_before_a_break_is_not_taken_for_one_with_a_watch() -> None:
    """It is handed over when the connection is back: its watch went with the old one, and nothing more would ever be heard."""
    reads: list[Any] = []
    read = threading.Semaphore(0)

    def look(kind: Kind, path: str, begun: Any, lasting: bool) -> tuple[Hashable, Any]:
        reads.append(begun)
        read.release()
        return "read", "read"

    def begin(kind: Kind, path: str, gone: bool) -> str:
        watches.set_state(SessionState.SUSPENDED)
        watches.set_state(SessionState.CONNECTED)
        return "old"

    watches = Watches(look, "played", begin=begin)
    try:
        with watches._wake:  # the thread comes to it only then
            watches.subscribe(*KEY, lambda _: None)
        assert read.acquire(timeout=PATIENCE)
        assert reads == [None]
    finally:
        watches.close()


def test_what_cannot_be_read_keeps_nothing_else_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has the right to read it, say: the thread goes on, which also gives the session up in time."""
    may = threading.Event()

    def look(kind: Kind, path: str, begun: Any, lasting: bool) -> tuple[Hashable, Any]:
        if path == "/x" and not may.is_set():
            raise PermissionError("no right")
        return path, path

    watches = Watches(look, "played")
    try:
        failing, other = Calls(), Calls()
        watches.subscribe(*KEY, failing)
        watches.subscribe(Kind.VALUE, "/y", other)
        assert other.next() == "/y" and not failing.made
        may.set()
        assert failing.next() == "/x"
        assert [r.message for r in caplog.records if r.exc_info] == [
            "/x cannot be watched; it is tried again"
        ]
    finally:
        watches.close()
