"""What the port promises, kept by every adapter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from coordination_harness import PATIENCE, Memory, Real, Seen, Service

from elastic.coordination.base import Check, Coordination, Create, Delete, SessionState, Set, Versioned
from elastic.errors import Conflict, ElasticError, NotConnected, NotFound, Refused, SessionExpired


@pytest.fixture(params=["memory", "zookeeper"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    made: Service = (
        Memory() if request.param == "memory" else Real(request.getfixturevalue("zookeeper_address"))
    )
    yield made
    made.close()


@pytest.fixture
def session(service: Service) -> Coordination:
    return service.connect()


def states(session: Coordination) -> Seen[SessionState]:
    seen: Seen[SessionState] = Seen()
    session.watch_session(seen)
    seen.until_last(SessionState.CONNECTED)
    return seen


def test_reads_of_what_is_not_there(session: Coordination) -> None:
    assert session.get("/a") is None
    assert session.children("/a") is None
    assert session.children("/") == ()


def test_create_makes_parents_and_refuses_a_second_time(session: Coordination) -> None:
    session.create("/a/b", b"1")
    assert session.get("/a/b") == Versioned(b"1", 0)
    assert session.children("/a") == ("b",)
    with pytest.raises(Conflict, match="/a/b"):
        session.create("/a/b", b"2")
    with pytest.raises(NotFound):
        session.create("/x/y", parents=False)
    assert session.get("/a/b") == Versioned(b"1", 0)


def test_children_are_sorted_names(session: Coordination) -> None:
    for name in ("c", "a", "b"):
        session.create(f"/p/{name}")
    assert session.children("/p") == ("a", "b", "c")


def test_set_counts_versions_and_refuses_another(session: Coordination) -> None:
    session.create("/a", b"0")
    assert session.set("/a", b"1") == 1
    assert session.set("/a", b"2", version=1) == 2
    with pytest.raises(Conflict, match="/a"):
        session.set("/a", b"3", version=1)
    with pytest.raises(NotFound, match="/b"):
        session.set("/b", b"3")
    assert session.get("/a") == Versioned(b"2", 2)


def test_a_set_that_nobody_waits_for_says_how_it_ended(session: Coordination) -> None:
    session.create("/a", b"0")
    ended: Seen[int | ElasticError] = Seen()

    def then(answer: Callable[[], int]) -> None:
        try:
            ended(answer())
        except ElasticError as error:
            ended(error)

    session.begin_set("/a", b"1", then=then)
    session.begin_set("/a", b"2", version=1, then=then)
    session.begin_set("/a", b"3", version=1, then=then)
    session.begin_set("/none", b"3", then=then)
    first, second, conflict, missing = ended.wait(lambda calls: len(calls) == 4)
    assert (first, second) == (1, 2)
    assert isinstance(conflict, Conflict) and "/a" in conflict.message
    assert isinstance(missing, NotFound) and "/none" in missing.message
    assert session.get("/a") == Versioned(b"2", 2)


def test_a_set_that_nobody_waits_for_is_not_begun_without_a_connection(
    service: Service, session: Coordination
) -> None:
    session.create("/a", b"0")
    seen = states(session)
    service.cut(session)
    seen.until_last(SessionState.SUSPENDED)
    with pytest.raises(NotConnected):
        session.begin_set("/a", b"1", then=lambda answer: pytest.fail("it was not begun"))
    service.restore(session)
    seen.until_last(SessionState.CONNECTED)
    assert session.get("/a") == Versioned(b"0", 0)


def test_put_creates_or_sets(session: Coordination) -> None:
    session.put("/a/b", b"1")
    session.put("/a/b", b"2")
    assert session.get("/a/b") == Versioned(b"2", 1)


def test_delete(session: Coordination) -> None:
    session.create("/a/b/c", b"")
    with pytest.raises(Conflict, match="children"):
        session.delete("/a")
    with pytest.raises(Conflict):
        session.delete("/a/b/c", version=1)
    session.delete("/a", recursive=True)
    assert session.get("/a") is None
    session.delete("/a")
    session.delete("/a", recursive=True)
    with pytest.raises(NotFound):
        session.delete("/a", missing_ok=False)


def test_sequential_names_never_come_twice(session: Coordination) -> None:
    first = session.create_sequential("/q/n-", b"x", ephemeral=False)
    assert first.startswith("/q/n-") and len(first) == len("/q/n-") + 10
    session.delete(first)
    second = session.create_sequential("/q/n-")
    third = session.create_sequential("/q/")
    assert first < second
    assert int(third[-10:]) > int(second[-10:])
    assert session.get(second) == Versioned(b"", 0)


def test_transaction_is_all_or_nothing(session: Coordination) -> None:
    session.create("/a", b"0")
    session.create("/gone")
    session.transaction([Check("/a", 0), Set("/a", b"1", 0), Create("/b", b"2"), Delete("/gone")])
    assert session.get("/a") == Versioned(b"1", 1)
    assert session.get("/b") == Versioned(b"2", 0)
    assert session.get("/gone") is None
    for wrong in (
        Check("/a", 0),
        Set("/a", b"", 0),
        Create("/b"),
        Delete("/none"),
        Check("/none"),
        Delete("/a", 7),
    ):
        with pytest.raises(Conflict, match=wrong.path):
            session.transaction([Set("/b", b"never"), Create("/c"), wrong, Create("/d")])
    assert session.get("/b") == Versioned(b"2", 0)
    assert session.get("/c") is None
    assert session.get("/d") is None
    with pytest.raises(Conflict, match="/none/child"):
        session.transaction([Create("/none/child")])
    session.transaction([Create("/p"), Create("/p/q"), Set("/p", b"any")])
    assert session.get("/p/q") is not None


def test_ephemeral_nodes_go_with_their_session(service: Service, session: Coordination) -> None:
    other = service.connect()
    other.create("/e/a", b"", ephemeral=True)
    other.transaction([Create("/e/b", b"", ephemeral=True)])
    other.create("/e/c")
    path = other.create_sequential("/e/d")
    assert session.children("/e") == ("a", "b", "c", path[3:])
    with pytest.raises(Conflict):
        other.create("/e/a/below")
    seen: Seen[tuple[str, ...]] = Seen()
    session.watch_children("/e", seen)
    other.close()
    seen.until_last(("c",))


def test_too_large_a_value_is_refused_and_the_session_lives(session: Coordination) -> None:
    with pytest.raises(Refused, match="/big"):
        session.create("/big", b"x" * 1_100_000)
    session.create("/a")
    with pytest.raises(Refused):
        session.transaction([Set("/a", b"x" * 600_000), Create("/b", b"x" * 600_000)])
    assert session.get("/b") is None
    session.create("/large", b"x" * 900_000)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a/../b"])
def test_a_malformed_path_is_refused(session: Coordination, path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        session.get(path)


def test_watch_value_sees_creation_change_and_deletion(service: Service, session: Coordination) -> None:
    writer = service.connect()
    seen: Seen[Versioned | None] = Seen()
    session.watch_value("/w/x", seen)
    seen.until_last(None)
    writer.create("/w/x", b"1")
    seen.until_last(Versioned(b"1", 0))
    writer.set("/w/x", b"2")
    seen.until_last(Versioned(b"2", 1))
    writer.delete("/w/x")
    seen.until_last(None)
    writer.create("/w/x", b"3")
    seen.until_last(Versioned(b"3", 0))


def test_the_last_of_many_changes_is_never_missed(service: Service, session: Coordination) -> None:
    writer = service.connect()
    writer.create("/w", b"")
    values: Seen[Versioned | None] = Seen()
    names: Seen[tuple[str, ...]] = Seen()
    session.watch_value("/w", values)
    session.watch_children("/w", names)
    for n in range(200):
        writer.set("/w", str(n).encode())
        writer.create(f"/w/{n:03}")
    values.until_last(Versioned(b"199", 200))
    names.until_last(tuple(f"{n:03}" for n in range(200)))
    versions = [v.version for v in values.calls if v is not None]
    assert versions == sorted(versions)


def test_watch_children_of_a_node_that_comes_and_goes(service: Service, session: Coordination) -> None:
    writer = service.connect()
    seen: Seen[tuple[str, ...]] = Seen()
    session.watch_children("/p/q", seen)
    seen.until_last(())
    writer.create("/p/q/a")
    seen.until_last(("a",))
    writer.create("/p/q/b")
    seen.until_last(("a", "b"))
    writer.delete("/p", recursive=True)
    seen.until_last(())
    writer.create("/p/q/c")
    seen.until_last(("c",))


def test_a_node_that_is_removed_and_made_anew_at_once_is_seen_as_it_is(
    service: Service, session: Coordination
) -> None:
    writer = service.connect()
    writer.create("/w", b"1")
    seen: Seen[Versioned | None] = Seen()
    session.watch_value("/w", seen)
    seen.until_last(Versioned(b"1", 0))
    writer.transaction([Delete("/w"), Create("/w", b"2")])
    seen.until_last(Versioned(b"2", 0))
    writer.set("/w", b"3")
    seen.until_last(Versioned(b"3", 1))


def test_a_child_that_came_back_under_its_name_is_a_change(service: Service, session: Coordination) -> None:
    session.create("/p/a")
    first: Seen[tuple[str, ...]] = Seen()
    session.watch_children("/p", first)
    first.until_last(("a",))
    session.transaction([Delete("/p/a"), Create("/p/a")])
    first.wait(lambda calls: len(calls) == 2)
    assert first.calls == [("a",)] * 2


def test_an_only_child_that_came_and_went_before_that_was_read_is_a_change(session: Coordination) -> None:
    session.create("/p")
    first: Seen[tuple[str, ...]] = Seen()
    session.watch_children("/p", first)
    first.until_last(())
    held, go = threading.Event(), threading.Event()

    def hold(_: Versioned | None) -> None:  # calls come one at a time: nothing is read meanwhile
        held.set()
        go.wait(PATIENCE)

    session.watch_value("/q", hold)
    assert held.wait(PATIENCE)
    session.create("/p/a")
    session.delete("/p/a")
    go.set()
    first.wait(lambda calls: len(calls) == 2)
    assert first.calls == [()] * 2


def test_a_cancelled_watch_is_silent_and_others_go_on(session: Coordination) -> None:
    silent: Seen[Versioned | None] = Seen()
    going: Seen[Versioned | None] = Seen()
    watch = session.watch_value("/w", silent)
    session.watch_value("/w", going)
    silent.until_last(None)
    watch.cancel()
    watch.cancel()
    session.create("/w", b"1")
    going.until_last(Versioned(b"1", 0))
    assert silent.calls == [None]


def kept(session: Coordination) -> int:
    """What is kept of nodes that are followed: by the session, and by the client behind it."""
    watches = session._watches  # type: ignore[attr-defined]
    client = getattr(session, "_client", None)
    behind = [client._data_watchers, client._child_watchers] if client is not None else []
    return sum(map(len, (watches._subscriptions, watches._dirty, *behind)))


def test_of_nodes_that_were_followed_until_they_went_nothing_is_left(
    service: Service, session: Coordination
) -> None:
    other, before = service.connect(), kept(session)
    for n in range(5):
        path, value, names = f"/passing/{n}", Seen[Any](), Seen[Any]()
        other.create(path, b"1")
        other.create(f"{path}/child")
        session.watch_value(path, value, until_gone=True)
        session.watch_children(path, names, until_gone=True)
        names.until_last(("child",))
        other.set(path, b"2")
        value.wait(lambda calls: bool(calls) and calls[-1].data == b"2")
        other.transaction([Delete(f"{path}/child"), Delete(path)])
        value.until_last(None)
        names.until_last(())
        other.create(path, b"another")
    last = Seen[Any]()
    session.watch_value("/last", last)  # what it hears of comes after all that is before it
    last.until_last(None)
    assert kept(session) <= before + 2, "but for the last one, and the watch on it"


def test_a_node_that_is_followed_until_it_goes_may_come_later(
    service: Service, session: Coordination
) -> None:
    other, seen = service.connect(), Seen[Any]()
    session.watch_value("/later", seen, until_gone=True)
    seen.until_last(None)
    other.create("/later", b"1")
    seen.wait(lambda calls: calls[-1] is not None)
    other.delete("/later")
    seen.until_last(None)


def test_of_a_watch_that_was_cancelled_nothing_is_left_when_its_node_has_changed(
    service: Service, session: Coordination
) -> None:
    other, before = service.connect(), kept(session)
    for n in range(5):
        seen = Seen[Any]()
        other.create(f"/cancelled/{n}", b"1")
        watch = session.watch_value(f"/cancelled/{n}", seen)
        seen.wait(bool)
        watch.cancel()
        other.set(f"/cancelled/{n}", b"2")
    last = Seen[Any]()
    session.watch_value("/last", last)
    last.until_last(None)
    assert kept(session) <= before + 2


@pytest.mark.parametrize("waits", [True, False], ids=["when it was told", "at once"])
def test_of_a_watch_that_was_cancelled_nothing_is_left_although_its_node_never_changes(
    service: Service, session: Coordination, waits: bool
) -> None:
    """Nodes of topologies that are gone, and marks of moves in which a worker takes no part."""
    other, before = service.connect(), kept(session)
    other.create("/there", b"1")
    for n in range(5):
        for path in (f"/never/{n}", "/there"):
            value, names = Seen[Any](), Seen[Any]()
            watches = session.watch_value(path, value), session.watch_children(path, names)
            if waits:
                value.wait(bool)
                names.wait(bool)
            for watch in watches:
                watch.cancel()
    for path in (
        "/last",
        "/one more",
    ):  # what a session subscribes to, and hears of, comes after all that is before it
        last = Seen[Any]()
        session.watch_value(path, last)
        last.until_last(None)
        session.caught_up()
    assert kept(session) <= before + 4, "but for the last ones, and the watches on them"


def test_who_follows_a_node_again_at_once_misses_nothing(service: Service, session: Coordination) -> None:
    """That the first watch is over, and is taken back, must not cost the second one its word."""
    other = service.connect()
    for n in range(20):
        path, first, second = f"/again/{n}", Seen[Any](), Seen[Any]()
        watch = session.watch_value(path, first)
        if n % 2:
            first.until_last(None)
        watch.cancel()
        children = session.watch_children(path, lambda _: None) if n % 3 else None
        session.watch_value(path, second)
        if children is not None:
            children.cancel()
        second.until_last(None)
        other.create(path, b"1")
        second.until_last(Versioned(b"1", 0))


def test_a_watch_may_be_cancelled_from_within(session: Coordination) -> None:
    calls: list[Versioned | None] = []
    ready = threading.Event()

    def once(value: Versioned | None) -> None:
        ready.wait(PATIENCE)
        calls.append(value)
        watch.cancel()

    watch = session.watch_value("/w", once)
    ready.set()
    session.create("/w")
    after: Seen[Versioned | None] = Seen()
    session.watch_value("/w", after)
    after.until_last(Versioned(b"", 0))
    assert len(calls) == 1


def test_a_callback_may_ask_and_watch_and_one_that_raises_harms_nobody(session: Coordination) -> None:
    session.create("/a", b"1")
    seen: Seen[object] = Seen()

    def ask(_value: object) -> None:
        session.put("/b", b"2")
        session.watch_children("/", seen)
        seen(session.get("/a"))
        raise RuntimeError("planted")

    session.watch_value("/a", ask)
    seen.wait(lambda calls: Versioned(b"1", 0) in calls and ("a", "b") in calls)


def test_callbacks_run_one_at_a_time_on_one_thread(service: Service, session: Coordination) -> None:
    threads: Seen[int] = Seen()
    session.watch_session(lambda _: threads(threading.get_ident()))
    session.watch_value("/a", lambda _: threads(threading.get_ident()))
    session.create("/a")
    session.watch_children("/", lambda _: threads(threading.get_ident()))
    calls = threads.wait(lambda calls: len(calls) >= 3)
    assert len(set(calls)) == 1
    assert calls[0] != threading.get_ident()


def test_without_a_connection_nothing_is_known(service: Service) -> None:
    session, writer = service.connect(), service.connect()
    session.create("/kids/a")
    seen = states(session)
    values: Seen[Versioned | None] = Seen()
    names: Seen[tuple[str, ...]] = Seen()
    still: Seen[tuple[str, ...]] = Seen()
    session.watch_value("/v", values)
    session.watch_children("/kids", names)
    session.watch_children("/kids/a", still)
    values.until_last(None)
    names.until_last(("a",))
    still.until_last(())
    service.cut(session)
    seen.until_last(SessionState.SUSPENDED)
    told: Seen[object] = Seen()

    def answers_at_once(state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            with pytest.raises(NotConnected):
                session.get("/v")
            told(None)

    session.watch_session(answers_at_once)  # a callback does not wait for the connection
    told.until_last(None)
    writer.create("/v", b"1")
    writer.create("/kids/b")
    assert values.calls == [None]
    assert names.calls == [("a",)]
    service.restore(session)
    seen.until_last(SessionState.CONNECTED)
    values.until_last(Versioned(b"1", 0))
    names.until_last(("a", "b"))
    still.wait(lambda calls: len(calls) == 2)  # every watch fires once, changed or not
    assert session.get("/v") == Versioned(b"1", 0)
    assert seen.calls == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]


def test_a_request_waits_for_the_connection_and_not_for_ever(service: Service) -> None:
    session = service.connect(session_timeout=2.0)
    seen = states(session)
    service.cut(session)
    seen.until_last(SessionState.SUSPENDED)
    with pytest.raises((NotConnected, SessionExpired)):
        session.get("/")
    with pytest.raises((NotConnected, SessionExpired)):
        session.create("/a")


def test_an_expired_session_is_lost_for_ever(service: Service, session: Coordination) -> None:
    doomed = service.connect()
    doomed.create("/e", ephemeral=True)
    seen = states(doomed)
    values: Seen[Versioned | None] = Seen()
    doomed.watch_value("/e", values)
    values.until_last(Versioned(b"", 0))
    gone: Seen[Versioned | None] = Seen()
    session.watch_value("/e", gone)
    service.expire(doomed)
    seen.until_last(SessionState.LOST)
    gone.until_last(None)
    for ask in (
        lambda: doomed.get("/e"),
        lambda: doomed.create("/f"),
        lambda: doomed.transaction([Set("/e", b"")]),
    ):
        with pytest.raises(SessionExpired):
            ask()
    session.create("/e", b"again")
    assert values.calls == [Versioned(b"", 0)]
    assert seen.calls[-1] is SessionState.LOST
    later: Seen[SessionState] = Seen()
    doomed.watch_session(later)
    later.until_last(SessionState.LOST)
    doomed.close()


def test_a_session_that_expired_while_cut_off_learns_it_from_the_connection(service: Service) -> None:
    session = service.connect(session_timeout=20.0)
    seen = states(session)
    service.cut(session)
    seen.until_last(SessionState.SUSPENDED)
    service.expire(session)
    service.restore(session)
    seen.until_last(SessionState.LOST)
    assert seen.calls.count(SessionState.CONNECTED) == 1


def test_close_twice_and_from_a_callback(service: Service) -> None:
    session = service.connect()
    session.close()
    session.close()
    with pytest.raises(SessionExpired, match="closed"):
        session.get("/")
    inside, done = service.connect(), threading.Event()

    def close(_value: object) -> None:
        inside.close()
        done.set()

    inside.watch_value("/a", close)
    assert done.wait(PATIENCE)


def test_the_session_says_its_time_out(session: Coordination) -> None:
    assert session.session_timeout > 0


def test_several_nodes_are_looked_at_in_one_exchange(session: Coordination) -> None:
    session.create("/a", b"1")
    session.create("/a/y", b"")
    session.create("/a/x", b"2")
    found = session.look(["/a", "/none", "/a/x"], ["/a", "/none"])
    assert found.values == {"/a": Versioned(b"1", 0), "/none": None, "/a/x": Versioned(b"2", 0)}
    assert found.children == {"/a": ("x", "y"), "/none": None}
    assert session.look([], ["/a/x"]).children == {"/a/x": ()}


def test_a_session_knows_whether_its_watches_have_told_everything(service: Service) -> None:
    session, other = service.connect(), service.connect()
    session.create("/a", b"1")
    go, told, seen = threading.Event(), threading.Event(), Seen[Versioned | None]()
    inside: list[bool] = []

    def slowly(value: Versioned | None) -> None:
        told.set()
        inside.append(session.caught_up())
        assert go.wait(PATIENCE)
        seen(value)

    session.watch_value("/a", slowly)
    assert told.wait(PATIENCE)
    assert not session.caught_up(), "it has not said yet that it was told"
    assert other.caught_up()
    go.set()
    for n in range(2, 20):
        other.set("/a", b"%d" % n)
        while not session.caught_up():
            seen.until_last(Versioned(b"%d" % n, n - 1))
        assert seen.calls[-1] == Versioned(b"%d" % n, n - 1), "it was said before it had been told"
    assert not any(inside), "a callback has not been told"


def test_a_session_that_is_cut_off_has_not_caught_up(service: Service) -> None:
    session = service.connect(session_timeout=2.0)
    assert session.caught_up()
    service.cut(session)
    with pytest.raises((NotConnected, SessionExpired)):
        session.caught_up()


def test_the_place_of_a_write_among_all_writes_grows(session: Coordination) -> None:
    stamps = [session.put("/a", b"1"), session.put("/b", b"1")]
    session.create("/c", b"")
    stamps += [session.put("/a", b"2"), session.put("/a", b"2")]
    assert stamps == sorted(set(stamps))


def test_word_of_a_change_comes_before_it_is_read(session: Coordination) -> None:
    session.create("/a", b"1")
    told, seen, read = threading.Event(), threading.Event(), []
    watch = session.watch_value("/a", lambda v: (read.append(v), seen.set()), early=told.set)
    assert seen.wait(PATIENCE) and read[0] == Versioned(b"1", 0)
    session.set("/a", b"2")
    assert told.wait(PATIENCE), "there was no early word"
    watch.cancel()
