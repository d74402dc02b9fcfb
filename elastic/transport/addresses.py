"""Where workers listen and how they reach each other: addresses as text, sockets with the right options."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import platform
import socket
from pathlib import Path

from elastic.errors import ConfigError, EnvironmentProblem
from elastic.model.ids import Incarnation
from elastic.transport.base import Address

LONGEST_UNIX_PATH = 99
"""Bytes. Systems allow 103 to 107."""

_BUFFER = 1 << 20
_SILENCE = 10.0
"""Seconds until a peer that does not answer the kernel's questions counts as gone."""


@functools.cache
def boot_id() -> str:
    """Identifies this machine since it was booted, and the file system view that its Unix sockets are in."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/mnt').readlink()}"
    except OSError:
        return platform.node()


def unix_path(run_dir: Path | None, incarnation: Incarnation) -> Path | None:
    """Where an incarnation's Unix socket lies; None without a directory, or when the path is too long for a socket."""
    if run_dir is None:
        return None
    name = hashlib.blake2b(incarnation.encode(), digest_size=8).hexdigest()
    path = run_dir.absolute() / f"{name}.sock"
    return path if len(bytes(path)) <= LONGEST_UNIX_PATH else None


def parse_tcp(text: str) -> tuple[str, int]:
    """The host and port in `host:port`. The host is a number or `localhost`: looking names up may block.

    Raises:
        ConfigError: It is not of that form.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
        number = int(port)
    except ValueError:
        number = 0
    if not colon or not 0 < number < 65536:
        raise ConfigError(
            f"{text!r} is not an address that a worker can be reached at",
            remedy="it must be host:port, the host as a numeric address",
        )
    return host, number


def format_tcp(host: str, port: int) -> str:
    """`host:port`, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_tcp(host: str, port: int) -> socket.socket:
    """A listening socket. Raises EnvironmentProblem."""
    try:
        (family, kind, proto, _, target), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as e:
        raise EnvironmentProblem(
            f"the worker's transport cannot listen on {host}: {e}",
            remedy="give it an address of this machine",
        ) from e
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tune(sock)  # connections take the buffers' sizes over from here
        sock.bind(target)
        sock.listen(128)
    except OSError as e:
        sock.close()
        raise EnvironmentProblem(
            f"the worker's transport cannot listen on {format_tcp(host, port)}: {e}",
            remedy="choose another port, or 0 for any that is free",
        ) from e
    sock.setblocking(False)
    return sock


def listen_unix(path: Path) -> socket.socket:
    """A listening Unix socket. What a dead process left at that path is replaced. Raises EnvironmentProblem."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_socket() and not _answers(path):
            path.unlink(missing_ok=True)
        tune(sock)
        sock.bind(str(path))
        path.chmod(0o600)
        sock.listen(128)
    except OSError as e:
        sock.close()
        raise EnvironmentProblem(
            f"the worker's transport cannot listen on {path}: {e}",
            remedy="is another process of that name running, or the directory not writable?",
        ) from e
    sock.setblocking(False)
    return sock


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True


def dial_target(address: Address, *, prefer_tcp: bool) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    """What to connect to: the Unix socket when the peer is on this machine and its socket is there, else TCP."""
    if (
        address.unix
        and address.boot == boot_id()
        and not (prefer_tcp and address.tcp)
        and Path(address.unix).exists()
    ):
        return socket.AF_UNIX, address.unix
    host, port = parse_tcp(address.tcp)
    return (socket.AF_INET6 if ":" in host else socket.AF_INET), (host, port)


def tune(sock: socket.socket) -> None:
    """The options that a connection has; those that the system lacks are left out."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # A peer that vanished without a word (its machine is gone) is noticed, whether the link is idle or not.
    for name, value in (
        ("TCP_KEEPIDLE", int(_SILENCE / 2)),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", int(_SILENCE / 2)),
        ("TCP_USER_TIMEOUT", int(_SILENCE * 1000)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
