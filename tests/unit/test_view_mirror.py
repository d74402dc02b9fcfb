"""What a session's watches have said is the present only as long as nothing else was heard, also while a question is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from elastic.cluster.worker_moves import Mirror
from elastic.coordination.base import Looked, Versioned

RECORD, PLACES, WORKERS = "/moves/6", "/assignment", "/workers"
NAMES = ("t@n1/0", "t@n2/0")


class Session:
    """A session in which one transaction changes the record and the places, while the record is being asked for."""

    def __init__(self) -> None:
        self.values = {RECORD: Versioned(b"open", 0), PLACES: Versioned(b"there", 0)}
        self.heard: dict[str, Callable[[], None]] = {}
        self.given: dict[str, Callable[[Any], None]] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.asked: list[str] = []

    def watch_value(
        self, path: str, given: Callable[[Any], None], *, early: Callable[[], None], until_gone: bool
    ) -> Any:
        self.heard[path], self.given[path] = early, given
        given(self.values[path])
        return type("Watch", (), {"cancel": lambda self: None})()

    def watch_children(
        self, path: str, given: Callable[[Any], None], *, early: Callable[[], None], until_gone: bool
    ) -> Any:
        self.heard[path], self.given[path] = early, given
        given(NAMES)
        return type("Watch", (), {"cancel": lambda self: None})()

    def look(self, values: Sequence[str], children: Sequence[str]) -> Looked:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.asked += [*values, *children]
        return Looked({p: self.values[p] for p in values}, dict.fromkeys(children, NAMES))

    def commit(self) -> None:
        """Both change, and both are heard of; what the places are by now is known before the answer about the record comes."""
        self.values = {RECORD: Versioned(b"committed", 1), PLACES: Versioned(b"here", 1)}
        for path in (RECORD, PLACES):
            self.heard[path]()
        self.given[PLACES](self.values[PLACES])


def read_while_it_changes() -> dict[str, bytes]:
    session = Session()
    mirror = Mirror(session, lambda: None, "/moves")  # type: ignore[arg-type]
    mirror.follow({(RECORD, False), (PLACES, False)})
    session.heard[RECORD]()  # of something before that: it is to be asked for
    session.meanwhile = session.commit
    found = mirror.look([RECORD, PLACES], [])
    return {path: value.data for path, value in found.values.items() if value is not None}


def test_what_changed_while_it_was_asked_is_not_older_than_the_answer() -> None:
    """A record that says where a task has gone, and places that say where it was: its tuples would be sent to where it is no more."""
    assert read_while_it_changes() == {RECORD: b"committed", PLACES: b"here"}


def test_a_look_at_the_names_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: whether something is known is asked, and not whether it is the same."""

    class Same(dict[Any, Any]):
        """Says of each value that it is the one from before."""

        def __getitem__(self, key: Any) -> Any:
            return self.first.setdefault(key, super().__getitem__(key))

        first: dict[Any, Any]

    real = Mirror.__init__

    def made(self: Mirror, *arguments: Any) -> None:
        real(self, *arguments)
        self._present = Same()
        self._present.first = {}

    monkeypatch.setattr(Mirror, "__init__", made)
    with pytest.raises(AssertionError):
        test_what_changed_while_it_was_asked_is_not_older_than_the_answer()


def test_the_same_names_may_be_other_workers() -> None:
    """One that begins anew while the server is away has the name of the one before: who is not told sends to the one that is gone."""
    session, told = Session(), []
    mirror = Mirror(session, lambda: told.append(1), "/moves")  # type: ignore[arg-type]
    mirror.follow({(WORKERS, True)})
    mirror.look([], [WORKERS])
    told.clear()
    session.heard[WORKERS]()
    session.given[WORKERS](NAMES)
    assert told == [1], "something has happened there"
    session.heard[WORKERS]()
    assert mirror.look([], [WORKERS]).children[WORKERS] == NAMES
    session.given[WORKERS](NAMES)
    assert told == [1], "who has asked since then need not be told"


def test_what_was_doubted_is_asked_for_once() -> None:
    session = Session()
    mirror = Mirror(session, lambda: None, "/moves")  # type: ignore[arg-type]
    mirror.follow({(PLACES, False), (WORKERS, True)})
    mirror.doubt([(PLACES, False), (WORKERS, True)])
    for _ in range(2):
        assert mirror.look([PLACES], [WORKERS]).values[PLACES] == session.values[PLACES]
    assert session.asked == [PLACES, WORKERS]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_an_answer_that_something_was_heard_after_is_not_kept(when: str) -> None:
    session = Session()
    mirror = Mirror(session, lambda: None, "/moves")  # type: ignore[arg-type]
    mirror.follow({(PLACES, False)})
    mirror.doubt([(PLACES, False)])
    if when == "before":
        session.heard[PLACES]()
    else:
        session.meanwhile = session.heard[PLACES]
    mirror.look([PLACES], [])
    session.values[PLACES] = Versioned(b"here", 1)
    assert mirror.look([PLACES], []).values[PLACES] == Versioned(b"here", 1)


def test_what_a_watch_reads_already_is_waited_for() -> None:
    session = Session()
    mirror = Mirror(session, lambda: None, "/moves")  # type: ignore[arg-type]
    mirror.follow({(RECORD, False), (PLACES, False)})
    session.heard[PLACES]()
    given = threading.Timer(0.05, session.given[PLACES], [Versioned(b"here", 1)])
    given.start()
    mirror.await_values(60.0)
    found = mirror.look([RECORD, PLACES], [])
    assert found.values[PLACES] == Versioned(b"here", 1) and session.asked == []
    given.join()


def test_what_does_not_come_is_asked_for() -> None:
    session = Session()
    mirror = Mirror(session, lambda: None, "/moves")  # type: ignore[arg-type]
    mirror.follow({(PLACES, False), (RECORD, False)})
    session.heard[RECORD]()
    mirror.await_values(60.0, {RECORD})  # known already, from elsewhere
    session.heard[PLACES]()
    mirror.await_values(0.01)
    assert mirror.look([PLACES], []).values[PLACES] == session.values[PLACES] and session.asked == [PLACES]


def test_the_first_word_is_passed_on_before_anything_is_read() -> None:
    session, told = Session(), []
    early = {(PLACES, False): lambda: told.append("places")}
    mirror = Mirror(session, lambda: told.append("news"), "/moves", early)  # type: ignore[arg-type]
    mirror.follow({(PLACES, False), (RECORD, False)})
    told.clear()
    session.heard[RECORD]()
    assert not told
    session.heard[PLACES]()
    assert told == ["places"]
