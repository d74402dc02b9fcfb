"""What only a real server and a real network can do: answers that are lost, servers that die, nobody at the address."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coordination_harness import Proxy, Real, Seen
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from elastic.cluster.zookeeper_server import EmbeddedZooKeeper
from elastic.coordination._client import why_not
from elastic.coordination.base import Create, SessionState, Set, Versioned
from elastic.coordination.zookeeper import ZooKeeperCoordination, connect
from elastic.errors import Conflict, NotConnected, SessionExpired, Unavailable


@pytest.fixture
def real(zookeeper_address: str) -> Iterator[Real]:
    made = Real(zookeeper_address)
    yield made
    made.close()


@pytest.fixture
def session(real: Real) -> ZooKeeperCoordination:
    return real.connect()


@pytest.fixture
def losing(real: Real, session: ZooKeeperCoordination) -> Callable[[], Proxy]:
    """Has the next answer lost: the request is carried out, and its answer does not arrive."""

    def lose() -> Proxy:
        proxy = real.proxy(session)
        proxy.lose_next_answer()
        return proxy

    return lose


def test_reads_are_asked_again(session: ZooKeeperCoordination, losing: Callable[[], Proxy]) -> None:
    session.create("/a", b"1")
    losing()
    assert session.get("/a") == Versioned(b"1", 0)
    losing()
    assert session.children("/") == ("a",)


def test_of_a_node_that_is_removed_nobody_asks_for_the_value(
    real: Real, session: ZooKeeperCoordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move ends with the removal of all its nodes, which every process of a topology watches."""
    writer, seen, asked = real.connect(), Seen[Versioned | None](), list[str]()
    get, exists = session._client.get_async, session._client.exists_async
    writer.create("/a", b"1")
    session.watch_value("/a", seen)
    seen.until_last(Versioned(b"1", 0))

    def getting(path: str, watch: object = None) -> object:
        asked.append("get")
        return get(path, watch=watch)

    def looking(path: str, watch: object = None) -> object:
        asked.append("exists")
        return exists(path, watch=watch)

    monkeypatch.setattr(session._client, "get_async", getting)
    monkeypatch.setattr(session._client, "exists_async", looking)
    writer.delete("/a")
    seen.until_last(None)
    assert asked == ["exists"]
    writer.create("/a", b"2")
    seen.until_last(Versioned(b"2", 0))


def test_the_server_forgets_what_nobody_watches_any_more(
    real: Real, session: ZooKeeperCoordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, seen, last, heard = (
        real.connect(),
        Seen[Versioned | None](),
        Seen[Versioned | None](),
        list[str](),
    )
    changed = session._watches.changed
    monkeypatch.setattr(
        session._watches,
        "changed",
        lambda kind, path, **gone: heard.append(path) or changed(kind, path, **gone),
    )
    watch = session.watch_value("/a", seen)
    seen.until_last(None)
    watch.cancel()
    session.watch_value("/b", last)
    last.until_last(None)
    session.caught_up()
    writer.create("/a", b"1")
    writer.create("/b", b"1")
    last.until_last(Versioned(b"1", 0))
    assert heard == ["/b"]


def test_an_ephemeral_node_does_not_conflict_with_itself(
    session: ZooKeeperCoordination, losing: Callable[[], Proxy]
) -> None:
    session.create("/e")
    losing()
    session.create("/e/mine", b"1", ephemeral=True)
    assert session.get("/e/mine") == Versioned(b"1", 0)
    losing()
    with pytest.raises(Conflict):  # this session's, but from an earlier request
        session.create("/e/mine", b"2", ephemeral=True)


def test_without_the_check_of_the_owner_it_would(
    session: ZooKeeperCoordination, losing: Callable[[], Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    session.create("/e")
    monkeypatch.setattr(ZooKeeperCoordination, "_session_id", 0)
    losing()
    with pytest.raises(Conflict):
        session.create("/e/mine", ephemeral=True)


def test_a_node_of_somebody_else_is_a_conflict(
    real: Real, session: ZooKeeperCoordination, losing: Callable[[], Proxy]
) -> None:
    real.connect().create("/e/theirs", ephemeral=True)
    losing()
    with pytest.raises(Conflict):
        session.create("/e/theirs", ephemeral=True)
    losing()
    with pytest.raises(Conflict):  # older than the request
        session.create("/e")


def test_a_persistent_node_that_may_be_ones_own_is_unknown(
    session: ZooKeeperCoordination, losing: Callable[[], Proxy]
) -> None:
    losing()
    with pytest.raises(NotConnected, match="/a"):
        session.create("/a", b"1")
    assert session.get("/a") == Versioned(b"1", 0)


def test_a_sequential_node_is_made_once(session: ZooKeeperCoordination, losing: Callable[[], Proxy]) -> None:
    first = session.create_sequential("/q/n-", b"1")
    losing()
    second = session.create_sequential("/q/n-", b"2")
    third = session.create_sequential("/q/n-", b"3")
    assert session.children("/q") == tuple(sorted(p[3:] for p in (first, second, third)))
    assert session.get(second) == Versioned(b"2", 0)
    losing()
    with pytest.raises(NotConnected):
        session.create_sequential("/p/n-", ephemeral=False)


def test_a_set_that_was_done_is_done(session: ZooKeeperCoordination, losing: Callable[[], Proxy]) -> None:
    session.create("/a", b"0")
    losing()
    assert session.set("/a", b"1", version=0) == 1
    with pytest.raises(Conflict):
        session.set("/a", b"2", version=0)
    losing()
    session.put("/a", b"3")
    value = session.get("/a")
    assert value is not None and value.data == b"3"


def test_a_delete_that_was_done_is_done(session: ZooKeeperCoordination, losing: Callable[[], Proxy]) -> None:
    session.create("/a")
    losing()
    session.delete("/a", version=0, missing_ok=False)
    assert session.get("/a") is None


def test_a_transaction_that_may_have_been_done_is_unknown(
    session: ZooKeeperCoordination, losing: Callable[[], Proxy]
) -> None:
    session.create("/a", b"0")
    losing()
    with pytest.raises(NotConnected, match="Read it again"):
        session.transaction([Set("/a", b"1", 0), Create("/b")])
    assert session.get("/a") == Versioned(b"1", 1)
    assert session.get("/b") is not None


def test_a_session_gives_itself_up_before_the_server_does(real: Real) -> None:
    """Cut off for good, it cannot hear from the server that it has expired."""
    doomed, other = real.connect(session_timeout=4.0), real.connect()
    assert doomed.session_timeout == 4.0
    doomed.create("/e", ephemeral=True)
    seen: Seen[SessionState] = Seen()
    doomed.watch_session(seen)
    gone: Seen[Versioned | None] = Seen()
    other.watch_value("/e", gone)
    real.cut(doomed)
    seen.until_last(SessionState.LOST)
    with pytest.raises(SessionExpired):
        doomed.get("/e")
    gone.until_last(None)


def test_a_silent_connection_is_given_up_also_while_it_is_used(real: Real) -> None:
    """Requests keep kazoo from asking whether anybody is there: it would go on for as long as they are sent."""
    doomed, other = real.connect(session_timeout=4.0), real.connect()
    doomed.create("/e", ephemeral=True)
    seen: Seen[SessionState] = Seen()
    doomed.watch_session(seen)
    gone: Seen[Versioned | None] = Seen()
    other.watch_value("/e", gone)
    real.proxy(doomed).silence()
    enough = threading.Event()

    def use() -> None:
        while not enough.wait(0.1) and doomed.state is SessionState.CONNECTED:
            doomed._client.get_async("/e")

    using = threading.Thread(target=use)
    using.start()
    try:
        with pytest.raises(SessionExpired):  # whoever waits is told as soon as it is known
            doomed.get("/e")
        seen.until_last(SessionState.LOST)
        gone.until_last(None)
    finally:
        enough.set()
        using.join()


def test_the_time_out_is_what_the_server_grants(real: Real) -> None:
    assert real.connect(session_timeout=0.1).session_timeout == 1.0


def test_a_server_that_died_and_came_back_has_forgotten_nothing(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        one, two = (connect(f"{server.address}/r", session_timeout=20.0) for _ in range(2))
        try:
            one.create("/kept", b"1")
            one.create("/mine", b"2", ephemeral=True)
            seen: Seen[SessionState] = Seen()
            values: Seen[Versioned | None] = Seen()
            one.watch_session(seen)
            two.watch_value("/kept", values)
            values.until_last(Versioned(b"1", 0))
            address, first = server.address, server.process
            server.kill()
            seen.until_last(SessionState.SUSPENDED)
            server.start()
            assert server.address == address and server.process is not first
            seen.until_last(SessionState.CONNECTED)
            assert one.get("/mine") == Versioned(b"2", 0)
            one.set("/kept", b"3", version=0)
            values.until_last(Versioned(b"3", 1))
            assert SessionState.LOST not in seen.calls
        finally:
            one.close()
            two.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """One that a test may do anything to."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        yield server


def test_no_session_ends_while_the_only_server_is_down(server: EmbeddedZooKeeper) -> None:
    """Longer than the time-out. Who does not know that it is the only server has to give up: others may have been told."""
    knows = connect(f"{server.address}/r", session_timeout=5.0, own_server=True)
    unaware = connect(f"{server.address}/r", session_timeout=5.0)
    try:
        knows.create("/mine", b"1", ephemeral=True)
        seen: Seen[SessionState] = Seen()
        given_up: Seen[SessionState] = Seen()
        knows.watch_session(seen)
        unaware.watch_session(given_up)
        server.kill()
        seen.until_last(SessionState.SUSPENDED)
        given_up.until_last(SessionState.LOST)
        server.start()
        seen.until_last(SessionState.CONNECTED)
        assert SessionState.LOST not in seen.calls
        assert knows.get("/mine") == Versioned(b"1", 0)
        knows.set("/mine", b"2", version=0)
    finally:
        knows.close()
        unaware.close()


def test_a_server_that_is_frozen_is_not_down(server: EmbeddedZooKeeper) -> None:
    """It counts the time all the same."""
    session = connect(f"{server.address}/r", session_timeout=2.0, own_server=True)
    assert server.process is not None
    try:
        seen: Seen[SessionState] = Seen()
        session.watch_session(seen)
        server.process.send_signal(signal.SIGSTOP)
        seen.until_last(SessionState.LOST)
    finally:
        server.process.send_signal(signal.SIGCONT)
        session.close()


def test_something_else_on_the_port_is_no_sign_that_the_server_is_down(server: EmbeddedZooKeeper) -> None:
    session = connect(f"{server.address}/r", session_timeout=2.0, own_server=True)
    try:
        seen: Seen[SessionState] = Seen()
        session.watch_session(seen)
        host, _, port = server.address.rpartition(":")
        server.kill()
        with socket.create_server((host, int(port))):
            seen.until_last(SessionState.LOST)
    finally:
        session.close()


def test_a_refusal_counts_on_the_servers_own_machine_alone(
    server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere a firewall may have refused, and the server may live."""
    monkeypatch.setattr("elastic.coordination.zookeeper.is_own", lambda _: False)
    session = connect(f"{server.address}/r", session_timeout=2.0, own_server=True)
    try:
        seen: Seen[SessionState] = Seen()
        session.watch_session(seen)
        server.kill()
        seen.until_last(SessionState.LOST)
    finally:
        session.close()


def test_nobody_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unavailable, match=rf"no ZooKeeper at 127.0.0.1:{port}/root: Connection refused"):
        connect(f"127.0.0.1:{port}/root", connect_timeout=0.3)
    with pytest.raises(Unavailable, match="not a ZooKeeper address"):
        connect("127.0.0.1:nonsense")


def test_without_a_port_it_is_said_what_came_of_zookeepers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setattr(
        "elastic.coordination._client.collect_hosts", lambda hosts: ([("127.0.0.1", port)], None)
    )
    for address in ("127.0.0.1", "[::1]"):
        assert why_not(address) == "Connection refused"


@pytest.mark.parametrize("root", ["a//b", "a/./b", "a/../b", "."])
def test_a_root_that_is_no_path_is_refused(zookeeper_server: EmbeddedZooKeeper, root: str) -> None:
    """As it is, nodes would lie elsewhere than where they are looked for: no candidate would ever lead."""
    with pytest.raises(Unavailable, match="not a ZooKeeper address"):
        connect(f"{zookeeper_server.address}/{root}")


@pytest.mark.parametrize("address", ["{0}/a,{0}/a", "{0}/a,{0}", "zookeeper://{0}/a"])
def test_a_root_behind_each_server_is_refused(zookeeper_server: EmbeddedZooKeeper, address: str) -> None:
    """It would be one server, and a root that nobody has meant."""
    with pytest.raises(
        Unavailable, match=r"not a ZooKeeper address.*\n.*one root, behind the last of the servers"
    ):
        connect(address.format(zookeeper_server.address), connect_timeout=0.3)


def test_a_root_that_does_not_let_us_in_says_what_it_has_to_let(zookeeper_server: EmbeddedZooKeeper) -> None:
    owner = KazooClient(zookeeper_server.address)
    owner.start()
    try:
        owner.add_auth("digest", "somebody:else")
        owner.create("/theirs", acl=[make_digest_acl("somebody", "else", all=True)])
        with pytest.raises(
            Unavailable, match=r"NoAuthError\n.*has to let everybody read, write, create and delete"
        ):
            connect(f"{zookeeper_server.address}/theirs/ours")
        owner.delete("/theirs")
    finally:
        owner.stop()
        owner.close()


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_host_whose_name_is_none_is_refused(host: str) -> None:
    """Also beside others: kazoo's thread would end by it."""
    with pytest.raises(Unavailable, match="not a ZooKeeper address"):
        connect(f"127.0.0.1:1,{host}:2181", connect_timeout=0.3)


def test_something_else_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match="does not answer as ZooKeeper"):
            connect(address, session_timeout=1.0, connect_timeout=0.3)


def test_closing_does_not_wait_for_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic.coordination._client._FIRST", 1000.0)
    ended = threading.Event()

    def give_up(address: str) -> None:
        with contextlib.suppress(Unavailable):
            connect(address, session_timeout=3000.0, connect_timeout=0.3)
        ended.set()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        threading.Thread(target=give_up, args=(address,), daemon=True).start()
        assert ended.wait(60.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0\0\0\4abcd",
        b"\0\0\0\0",
        b"\xff\xff\xff\xf0abcdefgh",
        b"\0\0\0\x25" + b"\xff" * 37,
    ],
    ids=["web server", "small", "empty", "less than nothing", "no answer to that"],
)
def test_what_else_answers_at_the_address_is_said_once(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    came = threading.Semaphore(0)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = other.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(1024)
                    connection.sendall(answer)
                    came.release()

    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(Unavailable, match="does not answer as ZooKeeper"):
            connect(address, session_timeout=1.0, connect_timeout=1.0)
        assert came.acquire(timeout=20.0) and came.acquire(timeout=20.0), "it was tried again"
        other.shutdown(socket.SHUT_RDWR)
    said = [r.getMessage() for r in caplog.records if r.name.startswith("elastic.coordination")]
    assert len(said) == 1 and f"what answers at {address} is no ZooKeeper" in said[0]


class Deaf(Proxy):
    """Takes the first connection, and what comes by it, and never answers: as a server does that is starting."""

    first: socket.socket | None = None

    def _accept(self) -> None:
        if self.first is None:
            self.first, _ = self._listener.accept()
        else:
            super()._accept()


@pytest.fixture
def deaf(real: Real) -> Iterator[Deaf]:
    proxy = Deaf(real.host)
    yield proxy
    proxy.close()
    if proxy.first is not None:
        proxy.first.close()


def test_who_is_not_answered_tries_again_soon(real: Real, deaf: Deaf) -> None:
    """And not when a third of the session time-out is over: a Nimbus that begins beside its server has ended by then."""
    connect(f"{deaf.address}/{real.root}", session_timeout=120.0, connect_timeout=20.0).close()
    assert deaf.first is not None


def test_that_it_waits_for_as_long_as_a_session_lets_it_is_found(
    real: Real, deaf: Deaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastic.coordination._client._FIRST", 120.0)
    with pytest.raises(Unavailable, match="does not answer as ZooKeeper"):
        connect(f"{deaf.address}/{real.root}", session_timeout=12.0, connect_timeout=2.0)


def test_roots_are_made_and_kept_apart(zookeeper_server: EmbeddedZooKeeper) -> None:
    sessions = [connect(f"{zookeeper_server.address}/apart/{name}") for name in ("a", "b")]
    try:
        for n, session in enumerate(sessions):
            session.create("/x", str(n).encode())
            path = session.create_sequential("/s/", ephemeral=False)
            assert path == "/s/0000000000"
            session.transaction([Set("/x", b"t")])
        assert [s.children("/") for s in sessions] == [("s", "x")] * 2
    finally:
        for session in sessions:
            session.close()


def test_closing_while_cut_off_ends_in_time(real: Real) -> None:
    session = real.connect(session_timeout=2.0)
    seen: Seen[SessionState] = Seen()
    session.watch_session(seen)
    real.cut(session)
    seen.until_last(SessionState.SUSPENDED)
    session.close()
    with pytest.raises(SessionExpired, match="closed"):
        session.get("/")


def test_a_member_of_which_the_machine_is_off_costs_no_session_while_another_one_serves(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing answers there, not even that nobody listens: by default an attempt to connect takes as long as a session lives."""
    proxy, off = Proxy(real.host), socket.create_server(("127.0.0.1", 0), backlog=0)
    port = off.getsockname()[1]
    queue = [socket.socket() for _ in range(3)]  # who comes after these is not answered
    for one in queue:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    # In the order that is given.
    monkeypatch.setattr("kazoo.protocol.connection.random.shuffle", lambda hosts: None)
    session = connect(f"127.0.0.1:{port},{proxy.address}/{real.root}", session_timeout=6.0)
    try:
        seen: Seen[SessionState] = Seen()
        session.watch_session(seen)
        seen.until_last(SessionState.CONNECTED)
        proxy.cut()
        seen.until_last(SessionState.SUSPENDED)
        proxy.restore()
        calls = seen.wait(lambda calls: calls[-1] is not SessionState.SUSPENDED)
        assert calls[-1] is SessionState.CONNECTED
    finally:
        session.close()
        proxy.close()
        for one in (off, *queue):
            one.close()
