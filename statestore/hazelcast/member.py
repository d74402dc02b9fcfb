"""A member of a Hazelcast cluster as a child process: configured, started, known to be ready, ended in order or not."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import random
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from statestore import lifetime
from statestore.errors import Missing
from statestore.hazelcast.jar import VERSION, obtain_jar
from statestore.lifetime import Spawn

logger = logging.getLogger(__name__)

_MAIN = "com.hazelcast.core.server.HazelcastMemberStarter"
_STARTED = b" is STARTED"
_SIZE = re.compile(rb"Members \{size:(\d+),")
_MIGRATED = b"All migration tasks have been completed"
_LOG = 20 << 20
"""Bytes of a log that is moved aside; one older is kept."""
_PORTS = (20000, 32000)
"""Below the range out of which the system gives ports to clients."""

_CONFIG = """\
hazelcast:
  cluster-name: "{cluster}"
  network:
    port:
      port: {port}
      auto-increment: false
    interfaces:
      enabled: true
      interfaces: ["{host}"]
    join:
      auto-detection:
        enabled: false
      multicast:
        enabled: false
      tcp-ip:
        enabled: true
        member-list: [{members}]
    # GET /hazelcast/health/cluster-safe: whether every entry has its backups.
    rest-api:
      enabled: true
      endpoint-groups:
        HEALTH_CHECK:
          enabled: true
        CLUSTER_READ:
          enabled: false
  jet:
    enabled: false
  metrics:
    enabled: false
  integrity-checker:
    enabled: false
  map:
    # Heads are few and small, and tell what is gone: they always have a backup.
    "statestore.heads":
      backup-count: {head_backups}
      statistics-enabled: false
      merge-policy:
        class-name: DiscardMergePolicy
    "statestore.*":
      backup-count: {backups}
      statistics-enabled: false
      merge-policy:
        class-name: DiscardMergePolicy
  properties:
    hazelcast.phone.home.enabled: "false"
    hazelcast.wait.seconds.before.join: "0"
    hazelcast.socket.bind.any: "false"
    hazelcast.socket.server.bind.any: "false"
    hazelcast.socket.client.bind.any: "false"
    # Kilobytes.
    hazelcast.socket.receive.buffer.size: "1024"
    hazelcast.socket.send.buffer.size: "1024"
    hazelcast.socket.client.receive.buffer.size: "1024"
    hazelcast.socket.client.send.buffer.size: "1024"
    hazelcast.shutdownhook.policy: GRACEFUL
    hazelcast.graceful.shutdown.max.wait: "20"
    hazelcast.heartbeat.interval.seconds: "1"
    hazelcast.max.no.heartbeat.seconds: "{heartbeat}"
    # A cluster that has split becomes one again in seconds, not after five minutes; the smaller part forgets what it has.
    hazelcast.merge.first.run.delay.seconds: "5"
    hazelcast.merge.next.run.delay.seconds: "5"
    hazelcast.tcp.join.previously.joined.member.address.retention.seconds: "600"
    hazelcast.health.monitoring.level: "OFF"
    hazelcast.logging.type: jdk
"""


_LOGGING = """\
handlers=java.util.logging.ConsoleHandler
.level=INFO
# A line for each time that a store counts what there is.
com.hazelcast.client.impl.protocol.task.map.level=WARNING
"""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """How a member is.

    Attributes:
        cluster: Its cluster's name; others with that name at the given addresses join.
        host: The one address on which it listens; the loopback interface unless the network is a private one: there is
            neither encryption nor authentication.
        port: 0 for a free one.
        others: Addresses of members that run already; none for the first one.
        backups: Synchronous backups of pieces, 0 to 6. Heads have one at least.
        heap: Bytes of the Java heap.
        heartbeat: Seconds without a word after which the others go on without a member. One that has died is noticed at once, by its
            closed connections; a member that is only slow must not be taken for dead, for then there are two clusters. So it
            is longer than whatever ends a node that is cut off.
    """

    cluster: str = "statestore"
    host: str = "127.0.0.1"
    port: int = 0
    others: tuple[str, ...] = ()
    backups: int = 1
    heap: int = 256 << 20
    heartbeat: float = 15.0

    def validate(self) -> None:
        """Raises: Missing."""
        if not re.fullmatch(r"[\w.-]{1,100}", self.cluster):
            raise Missing(f"{self.cluster!r} is no name of a cluster: letters, digits, '.', '_', '-'")
        if not 0 <= self.backups <= 6:
            raise Missing(f"{self.backups} backups: Hazelcast has 0 to 6")
        for other in (self.host, *self.others):
            if not re.fullmatch(r"[\w.:-]+", other):
                raise Missing(f"{other!r} is no address")


class HazelcastMember:
    """One member. `start` may be called again after it has ended: same address, and without what it held.

    Args:
        options: How it is.
        directory: For its configuration and log; made when missing.
        java: The Java program, 17 or newer.
        spawn: Starts a program that ends with this process.
        cache: Where the jar and the class archive lie; see `jar.cache_directory`.
    """

    def __init__(
        self,
        options: MemberOptions,
        directory: Path,
        *,
        java: Path,
        spawn: Spawn = lifetime.spawn,
        cache: Path | None = None,
    ) -> None:
        options.validate()
        self.options = options
        self.log = directory / "hazelcast.log"
        self._directory = directory
        self._java = java
        self._spawn = spawn
        self._cache = cache
        self._port = options.port
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._settled = threading.Event()
        self._unwritten = ""  # why the log cannot be written, once that has been said
        self._ready = False
        self._changed = threading.Condition()
        self._migrations = 0
        self._size = 0

    @property
    def address(self) -> str:
        """host:port; known once it was launched."""
        return f"{self.options.host}:{self._port}"

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """To wait for its end."""
        return self._process

    def prepare(self) -> None:
        """Get what it needs on this machine; the first time that takes a while.

        Raises:
            Missing: No jar and no Maven.
        """
        obtain_jar(self._cache, spawn=self._spawn)

    def launch(self, others: Sequence[str] | None = None) -> None:
        """Start it; it is not ready yet.

        Args:
            others: Members that run now, in place of those in the options.

        Raises:
            Missing: No jar and no Maven, no free port, or no Java.
        """
        self._launch(others, ())

    def _launch(self, others: Sequence[str] | None, flags: Sequence[str]) -> None:
        jar = obtain_jar(self._cache, spawn=self._spawn)
        if not self._port:
            self._port = _free_port(self.options.host)
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "hazelcast.yaml"
        config.write_text(self._config(self.options.others if others is None else others))
        logging = self._directory / "logging.properties"
        logging.write_text(_LOGGING)
        argv: list[str | os.PathLike[str]] = [self._java, *self._flags(jar), *flags]
        argv += [f"-Dhazelcast.config={config}", f"-Djava.util.logging.config.file={logging}"]
        argv += ["-cp", jar, _MAIN]
        try:
            process = self._spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            raise Missing(f"a Hazelcast member cannot be started with {self._java}: {error}") from error
        assert process.stdout is not None
        self._process = process
        self._ready = False
        self._size = 0
        self._settled = threading.Event()
        self._reader = threading.Thread(
            target=self._read, args=(process.stdout, self._settled), name="hazelcast-log", daemon=True
        )
        self._reader.start()

    def wait_ready(self, timeout: float = 60.0) -> str:
        """Wait until it has joined and serves. Returns its address.

        Raises:
            Missing: It ended, or is not ready within `timeout` seconds.
        """
        if not self._settled.wait(timeout):
            self.kill()
            raise Missing(
                f"the Hazelcast member at {self.address} is not ready within {timeout:g} s",
                remedy=f"Its log: {self.log}",
            )
        if not self._ready:
            self.kill()
            raise Missing(
                f"the Hazelcast member at {self.address} ended while starting: {self._tail()}",
                remedy=f"Its log: {self.log}",
            )
        return self.address

    def start(self, others: Sequence[str] | None = None, timeout: float = 60.0) -> str:
        """Start it and wait until it serves; see `launch` and `wait_ready`."""
        self.launch(others)
        return self.wait_ready(timeout)

    @property
    def size(self) -> int:
        """Members of the cluster, as this member has said last; 0 before it has said so. Once it is ready, it has."""
        return self._size

    @property
    def migrations(self) -> int:
        """How often this member has told, as the oldest one, that partitions have been laid out anew."""
        return self._migrations

    def wait_migrated(self, after: int, timeout: float = 60.0) -> bool:
        """Wait until partitions have been laid out anew: from then on every entry has its backups again.

        Args:
            after: What `migrations` of the oldest member said before another one joined or left.
            timeout: Seconds.

        Returns:
            Whether it has happened.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._migrations > after, timeout)

    def wait_size(self, size: int, timeout: float = 60.0) -> bool:
        """Wait until the cluster, as this member sees it, has so many members. Returns whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._size == size, timeout)

    def stop(self, grace: float = 30.0) -> None:
        """End it in order: what it holds moves to the others first. Safe to call twice."""
        if self._process is not None:
            lifetime.end(self._process, grace)
            self._join()

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._join()

    def _join(self) -> None:
        if self._reader is not None:
            self._reader.join(10)

    def _read(self, output: IO[bytes], settled: threading.Event) -> None:
        """Its words go to the log, as far as that can be written; among them is that it is ready."""
        with output, contextlib.ExitStack() as opened:
            log: IO[bytes] | None = None
            for line in output:
                try:
                    if log is not None and log.tell() > _LOG:
                        opened.close()
                        log = None
                        self.log.replace(self.log.with_name(f"{self.log.name}.1"))
                    if log is None:
                        log = opened.enter_context(self.log.open("ab", buffering=0))
                    log.write(line)
                except OSError as e:  # it runs all the same, and nobody else reads what it says
                    if not self._unwritten:
                        logger.warning(
                            "the log of the Hazelcast member at %s cannot be written: %s", self.address, e
                        )
                    self._unwritten = str(e)
                if _STARTED in line and not settled.is_set():
                    self._ready = True
                    settled.set()
                size = _SIZE.match(line)
                if size is not None or _MIGRATED in line:
                    with self._changed:
                        self._size = int(size[1]) if size is not None else self._size
                        self._migrations += size is None
                        self._changed.notify_all()
        settled.set()

    def _config(self, others: Sequence[str]) -> str:
        # The very first one asks nobody: so it need not wait for answers.
        members = ", ".join(f'"{address}"' for address in others or [self.address])
        return _CONFIG.format(
            cluster=self.options.cluster,
            host=self.options.host,
            port=self._port,
            members=members,
            backups=self.options.backups,
            head_backups=max(1, self.options.backups),
            heartbeat=max(1, round(self.options.heartbeat)),
        )

    def _flags(self, jar: Path) -> list[str]:
        flags = [
            f"-Xmx{self.options.heap >> 10}k",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",  # one that limps on is worse than one whose backup takes over
            "-Djava.net.preferIPv4Stack=true",
        ]
        archive = class_archive(self._java, jar)
        if archive.is_file():
            flags += [
                "-Xshare:auto",
                f"-XX:SharedArchiveFile={archive}",
                "-Xlog:cds=off",
                "-Xlog:cds+dynamic=off",
            ]
        return flags

    def _tail(self, lines: int = 3) -> str:
        try:
            text = self.log.read_bytes()[-4096:].decode(errors="replace")
        except OSError:
            return "no log"
        return "\n".join(text.rstrip().splitlines()[-lines:]) or "its log is empty"

    def __enter__(self) -> HazelcastMember:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def class_archive(java: Path, jar: Path) -> Path:
    """Where the archive of loaded classes for this Java lies, once `make_class_archive` has made it."""
    home = java.resolve().parent.parent
    release = home / "release"
    about = release.read_bytes() if release.is_file() else b""
    name = hashlib.blake2b(about + str(home).encode(), digest_size=8).hexdigest()
    return jar.parent / f"classes-{VERSION}-{name}.jsa"


def make_class_archive(
    java: Path, directory: Path, *, spawn: Spawn = lifetime.spawn, cache: Path | None = None
) -> Path | None:
    """Run a member once so that later ones start in a third of the time. Does nothing when it was done before.

    Args:
        java: The Java program.
        directory: For the configuration and log of that member.
        spawn: Starts it.
        cache: See `HazelcastMember`.

    Returns:
        The archive; None when this Java can't make one, which costs nothing but time.

    Raises:
        Missing: The jar can't be had, or no member can be started.
    """
    jar = obtain_jar(cache, spawn=spawn)
    archive = class_archive(java, jar)
    if archive.is_file():
        return archive
    made = archive.with_suffix(f".{os.getpid()}.new")
    member = HazelcastMember(MemberOptions(cluster="archive"), directory, java=java, spawn=spawn, cache=cache)
    try:
        member._launch(None, [f"-XX:ArchiveClassesAtExit={made}"])
        member.wait_ready()
        member.stop()
        if made.is_file():
            made.replace(archive)
    finally:
        member.kill()
        made.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
    return archive if archive.is_file() else None


def _free_port(host: str) -> int:
    for _ in range(1000):
        port = random.randrange(*_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise Missing(f"no free port on {host} between {_PORTS[0]} and {_PORTS[1]}")
