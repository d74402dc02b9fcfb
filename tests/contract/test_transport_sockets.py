"""What only sockets can get wrong: broken and half-open connections, strangers, addresses, things left behind."""

from __future__ import annotations

import contextlib
import logging
import random
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from leaks import held, left_since

from elastic.errors import ConfigError, EnvironmentProblem
from elastic.model.ids import Incarnation
from elastic.transport import addresses, handshake, inlet, sockets
from elastic.transport.base import Address, TransportOptions
from elastic.transport.framing import HEADER, Request, request
from elastic.transport.handshake import Hello, Verdict, Welcome
from elastic.transport.sockets import SocketTransport

BOUND = 30.0
A, B = Incarnation("t@n/0#1"), Incarnation("t@n/1#1")
STRANGER = Incarnation("t@n/9#1")


class Worker:
    """A receiver that takes everything at once."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.frames: list[tuple[Incarnation, int, bytes]] = []
        self.rooms = 0
        self.losses: list[tuple[Incarnation, int, int]] = []
        self.transport: SocketTransport | None = None

    def on_frame(self, source: Incarnation, target: int, payload: memoryview) -> None:
        assert self.transport is not None
        with self.changed:
            self.frames.append((source, target, bytes(payload)))
            self.changed.notify_all()
        self.transport.consumed(source, target, len(payload))

    def on_room(self, peer: Incarnation, target: int) -> None:
        with self.changed:
            self.rooms += 1
            self.changed.notify_all()

    def on_lost(self, peer: Incarnation, frames: int, size: int) -> None:
        with self.changed:
            self.losses.append((peer, frames, size))
            self.changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, BOUND), "it did not happen"


Start = Callable[..., tuple[SocketTransport, Worker]]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts transports, closes them, and sees that they left nothing."""
    before = held()
    started: list[SocketTransport] = []
    run = tmp_path_factory.mktemp("run")

    def start(incarnation: Incarnation, **options: object) -> tuple[SocketTransport, Worker]:
        options.setdefault("run_dir", run)
        transport = SocketTransport(incarnation, **options)  # type: ignore[arg-type]
        worker = Worker()
        worker.transport = transport
        transport.start(worker)
        started.append(transport)
        return transport, worker

    yield start
    for transport in started:
        transport.close()
    assert left_since(before) == []
    assert list(run.iterdir()) == []


def tcp(transport: SocketTransport) -> Address:
    return Address(tcp=transport.address.tcp)


def connect(transport: SocketTransport) -> socket.socket:
    sock = socket.create_connection(addresses.parse_tcp(transport.address.tcp), timeout=BOUND)
    sock.settimeout(BOUND)
    return sock


def hello(attempt: int = 1, *, session: int = 5, resuming: bool = False, to: Incarnation = B) -> bytes:
    return Hello(session, attempt, resuming, 1000, 1000, 1000, 0, STRANGER, to).encode()


def read_welcome(sock: socket.socket) -> Welcome:
    data = b""
    while (greeting := handshake.split(data)) is None:
        part = sock.recv(1)
        assert part, "closed before the Welcome was complete"
        data += part
    return handshake.parse_welcome(greeting.body)


def hung_up(sock: socket.socket) -> bool:
    """Waits until the other side closes."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


class Proxy:
    """A TCP proxy that breaks each connection after a random number of bytes in either direction, `breaks` times."""

    def __init__(self, target: str, breaks: int, seed: int) -> None:
        self._target = addresses.parse_tcp(target)
        self.breaks = breaks
        self._chance = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(tcp=addresses.format_tcp(*self._listener.getsockname()))
        self._selector = selectors.DefaultSelector()
        self._stop, self._stopper = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._stop, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._selector.select():
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is self._stop:
                    return
                if key.fileobj is self._listener:
                    near, _ = self._listener.accept()
                    try:
                        far = socket.create_connection(self._target, timeout=BOUND)
                    except OSError:
                        near.close()
                        continue
                    for end in (near, far):
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    budget = [self._chance.choice((30, 200, 5000, 40_000)) if self.breaks > 0 else 1 << 60]
                    self._selector.register(near, selectors.EVENT_READ, (far, budget))
                    self._selector.register(far, selectors.EVENT_READ, (near, budget))
                elif key.fileobj.fileno() >= 0:  # not closed with its other end a moment ago
                    self._pump(key)

    def _pump(self, key: selectors.SelectorKey) -> None:
        sock, (other, budget) = key.fileobj, key.data
        assert isinstance(sock, socket.socket)
        with contextlib.suppress(OSError):
            data = sock.recv(min(65536, budget[0]))
            if data:
                other.sendall(data)
                budget[0] -= len(data)
                if budget[0]:
                    return
                self.breaks -= 1
        for end in (sock, other):
            self._selector.unregister(end)
            if self._chance.random() < 0.5:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            end.close()

    def close(self) -> None:
        self._stopper.send(b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        self._stopper.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_network_that_breaks_at_any_byte_loses_and_doubles_nothing(start: Start, seed: int) -> None:
    options = TransportOptions(window=8000, in_flight=10_000, reconnect_min=0.001, reconnect_max=0.005)
    a, at_a = start(A, options=options)
    b, at_b = start(B)
    proxy = Proxy(b.address.tcp, breaks=60, seed=seed)
    try:
        link = a.link(B, proxy.address)
        chance = random.Random(seed)
        wanted = []
        number = 0
        while proxy.breaks > 0 or number < 1000:
            number += 1
            target = chance.randrange(4)
            payload = number.to_bytes(4, "big") * chance.choice((1, 10, 300, 1500, 5000))
            wanted.append((A, target, payload))
            while True:
                with at_a.changed:
                    before = at_a.rooms
                if link.offer(target, [payload]):
                    break
                at_a.until(lambda before=before: at_a.rooms > before)  # type: ignore[misc]
            link.flush()
        at_b.until(lambda: len(at_b.frames) >= len(wanted))
        assert at_b.frames == wanted
        assert at_a.losses == []
    finally:
        a.close()
        proxy.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        bytes(100),
        b"ELTR\0\2\xff\xff",
        b"ELTR\0\2\0\3abc",
        b"ELTR\0\x63\0\0",
        hello() + HEADER.pack(1001, 1),
        hello() + HEADER.pack(0x7FFFFFFF, 1),
        hello() + b"\xff" * 50,
        hello() + HEADER.pack(10, 1) + bytes(10) + HEADER.pack(1 << 31 | 9 << 16, 0),
    ],
)
def test_malformed_input_closes_its_connection_alone(
    start: Start, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    a, _ = start(A)
    b, at_b = start(B)
    link = a.link(B, b.address)
    assert link.offer(1, [b"before"])
    link.flush()
    at_b.until(lambda: len(at_b.frames) == 1)
    with caplog.at_level(logging.WARNING, "elastic"), connect(b) as sock:
        sock.sendall(data)
        assert hung_up(sock)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "closed a connection from" in caplog.text
    count = len(at_b.frames)
    assert link.offer(1, [b"after"])
    link.flush()
    at_b.until(lambda: len(at_b.frames) > count)
    assert at_b.frames[-1] == (A, 1, b"after")


def test_many_silent_strangers_do_not_keep_others_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlet, "GREETING_TIME", 600.0)
    a, _ = start(A)
    b, at_b = start(B)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(connect(b)) for _ in range(150)]
        assert hung_up(strangers[0])
        link = a.link(B, tcp(b))
        assert link.offer(1, [b"x"])
        link.flush()
        at_b.until(lambda: len(at_b.frames) == 1)


def test_who_says_nothing_is_let_go_after_a_while(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlet, "GREETING_TIME", 0.05)
    b, _ = start(B)
    with connect(b) as sock:
        sock.sendall(hello()[:5])
        assert hung_up(sock)


def test_sessions_of_who_has_gone_are_bounded_and_one_for_each_worker(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "_MOST_SOURCES", 4)
    b, _ = start(B)
    kept = []
    for who in ("t@n/1#1", "t@n/2#1", "t@n/3#1", "t@n/3#2", "t@n/4#1", "t@n/4#2", "t@n/5#1"):
        with connect(b) as sock:
            sock.sendall(Hello(5, 1, False, 1000, 1000, 1000, 0, Incarnation(who), B).encode())
            assert read_welcome(sock).verdict is Verdict.OK
            sock.shutdown(socket.SHUT_WR)
            assert hung_up(sock), "its connection has ended, its session is kept"
        kept.append(list(b._sources))
    assert kept[3] == ["t@n/1#1", "t@n/2#1", "t@n/3#2"], "an earlier life goes"
    assert kept[5] == ["t@n/1#1", "t@n/2#1", "t@n/3#2", "t@n/4#2"], "and makes room"
    assert kept[-1] == ["t@n/2#1", "t@n/3#2", "t@n/4#2", "t@n/5#1"], "the oldest goes"


def test_a_peer_that_vanishes_without_a_word_is_noticed_within_ten_seconds(start: Start) -> None:
    b, _ = start(B)
    with connect(b) as sock:
        addresses.tune(sock)
        ask = sock.getsockopt
        assert ask(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle = ask(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        assert (
            idle + ask(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) * ask(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
            == 10
        )
        assert ask(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000


def test_a_unix_socket_of_another_machine_is_not_used(start: Start) -> None:
    b, _ = start(B)
    unix = b.address
    assert addresses.dial_target(unix, prefer_tcp=False) == (socket.AF_UNIX, unix.unix)
    tcp_only = (socket.AF_INET, addresses.parse_tcp(unix.tcp))
    assert addresses.dial_target(replace(unix, boot="another"), prefer_tcp=False) == tcp_only
    assert addresses.dial_target(unix, prefer_tcp=True) == tcp_only, "each in turn while neither answers"


def test_an_answer_that_makes_no_sense_is_warned_of_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    options = TransportOptions(reconnect_min=0.001, reconnect_max=0.001)
    a, at_a = start(A, options=options, linger=0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(BOUND)
        link = a.link(B, Address(tcp=addresses.format_tcp(*server.getsockname())))
        assert link.offer(1, [b"x"])
        for _ in range(5):
            sock, _ = server.accept()
            with sock:
                sock.sendall(b"220 mail.example ESMTP\r\n")
                sock.settimeout(BOUND)
                assert hung_up(sock)
        assert [r.levelname for r in caplog.records if r.levelno >= logging.WARNING] == ["WARNING"]
        a.close()
    assert at_a.losses == [(B, 1, 1)]


def test_the_newest_handshake_wins(start: Start) -> None:
    b, at_b = start(B)
    with connect(b) as first, connect(b) as second, connect(b) as late:
        first.sendall(hello(1) + HEADER.pack(3, 1) + b"one")
        assert read_welcome(first) == Welcome(Verdict.OK, 0, B)
        at_b.until(lambda: len(at_b.frames) == 1)
        second.sendall(hello(3, resuming=True))
        assert read_welcome(second) == Welcome(Verdict.OK, 1, B)
        assert hung_up(first)
        late.sendall(hello(2, resuming=True))
        assert read_welcome(late).verdict is Verdict.STALE
        assert hung_up(late)
        second.sendall(HEADER.pack(3, 1) + b"two")
        at_b.until(lambda: len(at_b.frames) == 2)


def test_a_half_frame_of_a_broken_connection_is_not_counted(start: Start) -> None:
    b, at_b = start(B)
    with connect(b) as first:
        first.sendall(hello(1) + HEADER.pack(3, 1) + b"one" + HEADER.pack(5, 1) + b"ha")
        read_welcome(first)
        at_b.until(lambda: len(at_b.frames) == 1)
    with connect(b) as second:
        second.sendall(hello(2, resuming=True))
        assert read_welcome(second).received == 1
        second.sendall(HEADER.pack(5, 1) + b"whole")
        at_b.until(lambda: len(at_b.frames) == 2)
    assert [p for _, _, p in at_b.frames] == [b"one", b"whole"]


def test_who_is_not_here_is_said(start: Start) -> None:
    b, _ = start(B)
    for greeting, verdict in (
        (hello(to=Incarnation("t@n/1#7")), Verdict.WRONG_INCARNATION),
        (hello(resuming=True), Verdict.UNKNOWN_SESSION),
    ):
        with connect(b) as sock:
            sock.sendall(greeting)
            assert read_welcome(sock) == Welcome(verdict, 0, B)
            assert hung_up(sock)


def test_a_session_ends_with_a_goodbye(start: Start) -> None:
    b, _ = start(B)
    with connect(b) as sock:
        sock.sendall(hello(1) + request(Request.BYE))
        read_welcome(sock)
        assert hung_up(sock)
    with connect(b) as sock:
        sock.sendall(hello(2, resuming=True))
        assert read_welcome(sock).verdict is Verdict.UNKNOWN_SESSION


def test_a_peer_that_has_forgotten_the_session_is_lost(start: Start) -> None:
    """The same incarnation, but its memory of what it had received is gone: going on could double, so it is a loss."""
    a, at_a = start(A, options=TransportOptions(reconnect_min=0.001, reconnect_max=0.01))
    b, at_b = start(B)
    link = a.link(B, tcp(b))
    assert link.offer(1, [b"x"])
    link.flush()
    at_b.until(lambda: len(at_b.frames) == 1)
    b.close()
    assert link.offer(1, [b"yy"])
    _, at_again = start(B, port=int(b.address.tcp.rpartition(":")[2]))
    at_a.until(lambda: len(at_a.losses) == 1)
    assert at_a.losses[0][0] == B
    assert at_again.frames == []


def test_only_loopback_is_listened_on(start: Start) -> None:
    b, _ = start(B)
    host, port = addresses.parse_tcp(b.address.tcp)
    assert host == "127.0.0.1"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
    assert [a for a in listening if int(a.partition(":")[2], 16) == port] == [f"0100007F:{port:04X}"]


def test_a_unix_socket_is_used_between_workers_of_one_machine(start: Start) -> None:
    """Even when the TCP address leads nowhere; and not from another machine, where that path means something else."""
    a, _ = start(A)
    b, at_b = start(B)
    assert len(b.address.unix.encode()) < 100
    assert Path(b.address.unix).stat().st_mode & 0o777 == 0o600
    link = a.link(B, Address(tcp="127.0.0.1:1", unix=b.address.unix, boot=b.address.boot))
    assert link.offer(1, [b"x"])
    link.flush()
    at_b.until(lambda: len(at_b.frames) == 1)
    elsewhere, at_c = start(STRANGER, linger=0.0)
    away = elsewhere.link(B, Address(tcp="127.0.0.1:1", unix=b.address.unix, boot="another machine"))
    assert away.offer(1, [b"x"])
    elsewhere.close()
    assert at_c.losses == [(B, 1, 1)]


def test_tcp_is_used_when_the_unix_socket_has_gone(start: Start) -> None:
    a, _ = start(A)
    b, at_b = start(B)
    Path(b.address.unix).unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(b.address.unix)  # there, but nobody listens
        link = a.link(B, b.address)
        assert link.offer(1, [b"x"])
        link.flush()
        at_b.until(lambda: len(at_b.frames) == 1)


def test_a_run_directory_with_a_long_name_means_tcp(start: Start, tmp_path: Path) -> None:
    b, _ = start(B, run_dir=tmp_path / ("x" * 100))
    assert b.address.unix == ""


def test_a_taken_port_is_an_environment_problem(start: Start) -> None:
    b, _ = start(B)
    port = int(b.address.tcp.rpartition(":")[2])
    with pytest.raises(EnvironmentProblem, match=f"cannot listen on 127.0.0.1:{port}"):
        start(A, port=port)


def test_a_taken_socket_file_is_an_environment_problem_but_a_dead_one_is_replaced(start: Start) -> None:
    b, _ = start(B)
    path = Path(b.address.unix)
    with pytest.raises(EnvironmentProblem, match=r"\.sock"):
        start(B)
    b.close()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    again, _ = start(B)
    assert again.address.unix == str(path)


def test_bad_options_and_addresses_are_refused(start: Start) -> None:
    with pytest.raises(ConfigError, match="max_frame"):
        SocketTransport(A, options=TransportOptions(max_frame=1 << 32))
    with pytest.raises(ConfigError, match="window_rows"):
        SocketTransport(A, options=TransportOptions(window_rows=-1))
    with pytest.raises(ConfigError, match="window"):
        SocketTransport(A, options=TransportOptions(window=0))
    a, _ = start(A)
    for text in ("", "nowhere", "example.org:80", "127.0.0.1:0", "127.0.0.1:x"):
        with pytest.raises(ConfigError, match="not an address"):
            a.link(B, Address(tcp=text))


def test_closing_early_in_any_state_leaves_nothing(start: Start) -> None:
    SocketTransport(A).close()
    a, _ = start(A)
    a.link(B, Address(tcp="127.0.0.1:1"))
    a.close()
    ended = a.link(STRANGER, Address(tcp="127.0.0.1:1"))
    assert not ended.offer(1, [b"x"])
