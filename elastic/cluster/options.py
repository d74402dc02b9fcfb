"""What `elastic up` can be told."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from pathlib import Path

from elastic.cluster import network
from elastic.errors import ConfigError
from elastic.model.records import MAX_NODES, MAX_SLOTS

_MEMBERS = re.compile(r"([\w.-]{1,100}@)?[^\s,@:]+:\d{1,5}(,[^\s,@:]+:\d{1,5})*")
_SERVER = r"([^\s,:/\[\]]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?"
_PATH = r"((?!/\.\.?(/|$))/[^/\s]+)*/?"
_ENSEMBLE = re.compile(rf"{_SERVER}(,{_SERVER})*{_PATH}")
_LEAST_MEMORY = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class UpOptions:
    """A cluster on this machine, or on Spark, as it is wanted. Times are seconds.

    Attributes:
        cluster: Its name: that of its directory in `home`.
        home: The directory that holds a directory for each cluster.
        nodes: How many nodes to start with.
        slots: How many workers each node may run.
        cores: CPUs that the workers of each node may use together, as far as elasticity counts on them; 0.0: those of the
            machine, shared by the nodes on it.
        host: What provides nodes: "process" or "spark".
        master: Spark's master (`local[N]`, `spark://...`, `yarn`, `k8s://...`) or `sc://...` for Spark
            Connect; "" for one on this machine with room for all.
        spark_conf: Spark's settings, each "key=value".
        bind: The IPv4 address of this machine that Nimbus and the own ZooKeeper server listen on. Loopback: nothing
            of the cluster listens beyond it. Another: each node listens on the address by which its machine reaches
            ZooKeeper. There is no authentication yet.
        zookeeper: An ensemble that is there already: "host:port[,host:port...][/root]"; "" starts a server.
        nimbus: How many Nimbuses; all but one stand by.
        store: The state store: "embedded"; "hazelcast", with a member on every node; or "hazelcast:[NAME@]HOST:PORT,...": members
            of a Hazelcast cluster that is there already.
        store_memory: Bytes: what the embedded store of a node may hold, and may use twice over, in memory and on disk; the
            heap of a node's Hazelcast member; what all may hold of a Hazelcast cluster that is there already. 0: as it suits.
        store_backups: Synchronous backups of what is in Hazelcast: what the nodes' members are set to, and what members that are there
            already must be set to at least.
        port: Where the first Nimbus listens, the others on the ports after it; 0 for free ones.
        session_timeout: Of the sessions with ZooKeeper.
        supervisor_cycle: T_S (N-Storm 2019, section IV.B); 0: supervisors are told of changes.
        worker_cycle: T_W; 0: workers are told of changes.
        move_share: Of a component's tasks that may be paused at once, up to 1, unless a request names a share; 0.0: as keeps pauses short.
        move_prepare: How long both sides of a move may take to get ready: user code's `prepare()` is in it.
        move_pause: How long a task may take from being paused until its state is saved.
        move_restore: How long one attempt to restore it may take.
        move_tries: How often a task's move may fail before it is given up.
        ready_timeout: How long the cluster may take to be ready; 0: a minute, three with Spark.
        log_level: "debug", "info", "warning" or "error".
    """

    cluster: str = "default"
    home: str = "~/.elastic"
    nodes: int = 2
    slots: int = 2
    cores: float = 0.0
    host: str = "process"
    master: str = ""
    spark_conf: tuple[str, ...] = ()
    bind: str = network.LOOPBACK
    zookeeper: str = ""
    nimbus: int = 1
    store: str = "embedded"
    store_memory: int = 0
    store_backups: int = 1
    port: int = 0
    session_timeout: float = 6.0
    supervisor_cycle: float = 0.0
    worker_cycle: float = 0.0
    move_share: float = 0.0
    move_prepare: float = 120.0
    move_pause: float = 60.0
    move_restore: float = 120.0
    move_tries: int = 3
    ready_timeout: float = 0.0
    log_level: str = "info"

    @property
    def directory(self) -> Path:
        """The cluster's own.

        Raises:
            ConfigError: `home` begins with the home directory of a user who has none.
        """
        try:
            return Path(self.home).expanduser().absolute() / self.cluster
        except RuntimeError:
            raise ConfigError(
                f"{self.home}: there is no such home directory",
                remedy="Name a directory with --home or ELASTIC_HOME.",
            ) from None

    @property
    def patience(self) -> float:
        """Seconds until being not ready is an error."""
        return self.ready_timeout or (180.0 if self.host == "spark" else 60.0)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Those of `spark_conf`; the last one of a name counts."""
        return {key: value for key, _, value in (item.partition("=") for item in self.spark_conf)}

    def validate(self) -> UpOptions:
        """Itself.

        Raises:
            ConfigError: A value cannot be.
        """

        def wanted(good: bool, what: str) -> None:
            if not good:
                raise ConfigError(f"cluster {self.cluster}: {what}")

        if not _NAME.fullmatch(self.cluster):
            raise ConfigError(
                f"{self.cluster!r} cannot name a cluster",
                remedy="Letters, digits, dots, dashes and underscores, at most 64.",
            )
        try:
            str(self.directory).encode()
        except UnicodeEncodeError:
            raise ConfigError(f"--home {self.home!r} is no UTF-8", remedy="Name another directory.") from None
        wanted(0 <= self.nodes <= MAX_NODES, f"--nodes must be 0 to {MAX_NODES}, not {self.nodes}")
        wanted(1 <= self.slots <= MAX_SLOTS, f"--slots must be 1 to {MAX_SLOTS}, not {self.slots}")
        wanted(self.nimbus >= 1, f"--nimbus must be 1 or more, not {self.nimbus}")
        wanted(self.host in ("process", "spark"), f"--host must be process or spark, not {self.host!r}")
        wanted(not self.master or self.host == "spark", "--master is only for --host spark")
        wanted(not self.spark_conf or self.host == "spark", "--spark-conf is only for --host spark")
        for item in self.spark_conf:
            key, equals, _ = item.partition("=")
            wanted(
                bool(equals and key and not any(c.isspace() for c in key)),
                f"--spark-conf must be KEY=VALUE, not {item!r}",
            )
            wanted(
                key != "spark.master", "--spark-conf spark.master: it is --master that says where Spark is"
            )
        wanted(
            not self.zookeeper or bool(_ENSEMBLE.fullmatch(self.zookeeper)),
            f"--zookeeper must be HOST:PORT[,HOST:PORT...][/PATH], not {self.zookeeper!r}",
        )
        network.check_bind(self.bind)
        kind, _, members = self.store.partition(":")
        wanted(
            self.store in ("embedded", "hazelcast")
            or (kind == "hazelcast" and bool(_MEMBERS.fullmatch(members))),
            f"--store must be embedded, hazelcast or hazelcast:[NAME@]HOST:PORT,..., not {self.store!r}",
        )
        wanted(
            self.store_memory == 0 or self.store_memory >= _LEAST_MEMORY,
            f"--store-memory must be {_LEAST_MEMORY >> 20}M or more, not {self.store_memory / (1 << 20):.4g}M",
        )
        wanted(0 <= self.store_backups <= 6, f"--store-backups must be 0 to 6, not {self.store_backups}")
        wanted(0 <= self.port <= 65536 - self.nimbus, f"{self.port} is no port for {self.nimbus} Nimbuses")
        wanted(
            self.session_timeout >= 1.0,
            f"--session-timeout must be 1 s or more, not {self.session_timeout:g}",
        )
        for name in ("supervisor_cycle", "worker_cycle", "ready_timeout", "cores"):
            wanted(getattr(self, name) >= 0, f"{name} must be 0 or more, not {getattr(self, name):g}")
        wanted(0 <= self.move_share <= 1, f"--move-share must be 0 to 1, not {self.move_share:g}")
        wanted(self.move_tries >= 1, f"--move-tries must be 1 or more, not {self.move_tries}")
        for name in ("prepare", "pause", "restore"):
            seconds = getattr(self, f"move_{name}")
            wanted(seconds > 0, f"--move-{name} must be more than 0, not {seconds:g}")
        for field in fields(self):
            value = getattr(self, field.name)
            wanted(
                not isinstance(value, float) or math.isfinite(value),
                f"{field.name} must be a number, not {value}",
            )
        levels = ("debug", "info", "warning", "error")
        wanted(
            self.log_level in levels,
            f"the log level must be one of {', '.join(levels)}, not {self.log_level!r}",
        )
        return self
