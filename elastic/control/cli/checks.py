"""The looks that `elastic doctor` takes. Each is a function that returns one `Check` and changes nothing."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastic.control.cli.settings import Settings
from elastic.errors import EnvironmentProblem

OK = "ok"
WARNING = "warning"
PROBLEM = "problem"

PYTHONS = ((3, 11), (3, 14))
JAVA_SECONDS = 20.0
LEAST_FREE = 256 << 20
LONGEST_HOME = 60
"""Bytes: a Unix socket's path has at most 107, and cluster, node and worker names follow the home."""
LEAST_FILES = 1024

# What must be there: (distribution, module, least version, what it is for).
PACKAGES = (
    ("pyspark", "pyspark", "4.3", "ZooKeeper's jars, nodes on Spark"),
    ("pandas", "pandas", "", "Spark"),
    ("pyarrow", "pyarrow", "18", "record batches"),
    ("kazoo", "kazoo.client", "2.10", "ZooKeeper's client"),
    ("grpcio", "grpc", "1.76", "requests to Nimbus"),
    ("protobuf", "google.protobuf", "6.31", "requests to Nimbus"),
    ("msgspec", "msgspec", "0.20", "tuples on the wire"),
    ("mmh3", "mmh3", "5", "fields grouping"),
    ("pyiceberg-core", "pyiceberg_core", "0.6", "fields grouping of record batches"),
    ("lmdb", "lmdb", "1.6", "the node-local store"),
    ("cloudpickle", "cloudpickle", "3.1", "sending components to workers"),
    ("click", "click", "8.1", "this command"),
    ("rich", "rich", "13", "elastic top"),
    ("PyYAML", "yaml", "6", "-o yaml"),
)


@dataclass(frozen=True)
class Check:
    """The result of one look.

    Attributes:
        status: "ok", "warning" (elastic works, but…) or "problem".
        remedy: What to do, when it isn't ok.
    """

    name: str
    status: str
    message: str
    remedy: str = ""


def examine(settings: Settings) -> list[Check]:
    """Take all looks. One that fails itself is a problem, not an exception."""
    found: list[Check] = []
    looks: Sequence[tuple[str, Callable[[], Check | list[Check]]]] = (
        ("python", python),
        ("packages", packages),
        ("java", java),
        ("zookeeper", zookeeper),
        ("network", network),
        ("processes", processes),
        ("files", files),
        ("temporary", temporary),
        ("home", lambda: home(settings.home)),
        ("clusters", lambda: clusters(settings)),
        ("maven", maven),
    )
    for name, look in looks:
        try:
            result = look()
        except Exception as error:  # noqa: BLE001 - the doctor reports, whatever it meets
            result = Check(name, PROBLEM, f"the check itself failed: {type(error).__name__}: {error}")
        found += result if isinstance(result, list) else [result]
    return found


def python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Check:
    """The interpreter's version."""
    text = ".".join(map(str, version))
    if PYTHONS[0] <= version < PYTHONS[1]:
        return Check("python", OK, f"{text} at {sys.executable}")
    return Check("python", PROBLEM, f"{text} is not supported", "Use Python 3.11, 3.12 or 3.13.")


def packages(wanted: Sequence[tuple[str, str, str, str]] = PACKAGES) -> list[Check]:
    """Whether what elastic imports can be imported, in a version that it knows."""
    bad: list[Check] = []
    versions: list[str] = []
    for distribution, module, least, purpose in wanted:
        name = f"package {distribution}"
        install = (
            f"{Path(sys.executable).name} -m pip install '{distribution}{'>=' + least if least else ''}'"
        )
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a package with a broken native part raises what it likes
            reason = (
                "is missing" if isinstance(error, ModuleNotFoundError) else f"cannot be imported: {error}"
            )
            bad.append(Check(name, PROBLEM, f"{reason} (needed for {purpose})", install))
            continue
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        if least and version and _numbers(version) < _numbers(least):
            bad.append(
                Check(name, PROBLEM, f"{version} is older than {least} (needed for {purpose})", install)
            )
        else:
            versions.append(f"{distribution} {version}".strip())
    if bad:
        return bad
    return [Check("packages", OK, ", ".join(versions))]


def java() -> Check:
    """A Java runtime that can run ZooKeeper and Spark."""
    from elastic.cluster.java import find_java

    try:
        place = find_java()
    except EnvironmentProblem as problem:
        return Check("java", PROBLEM, problem.message, problem.remedy)
    try:
        done = subprocess.run(
            [str(place), "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("java", PROBLEM, f"{place} does not run: {error}", "Install Java 17 or newer.")
    line = next((ln for ln in (done.stderr + done.stdout).splitlines() if "version" in ln), "")
    if done.returncode or not line:
        return Check(
            "java", PROBLEM, f"{place} ends with exit code {done.returncode}", "Install Java 17 or newer."
        )
    return Check("java", OK, f"{line.strip()} at {place}")


def zookeeper() -> Check:
    """The ZooKeeper server inside PySpark."""
    from elastic.cluster.zookeeper_server import _jars

    try:
        found = _jars()
    except EnvironmentProblem as problem:
        return Check(
            "zookeeper",
            PROBLEM,
            problem.message,
            "Install the whole PySpark (pip install 'pyspark>=4.3'), or use a ZooKeeper of your own:\n"
            "elastic up --zookeeper HOST:PORT",
        )
    return Check("zookeeper", OK, f"{found[0].stem} in PySpark")


def network() -> Check:
    """A free port on the loopback interface, and that it can be reached."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), 5),
        ):
            port = server.getsockname()[1]
    except OSError as error:
        return Check(
            "network",
            PROBLEM,
            f"no connection over the loopback interface: {error}",
            "Everything in a cluster talks over 127.0.0.1: bring the interface lo up, or allow it in the firewall.",
        )
    return Check("network", OK, f"a port on 127.0.0.1 can be opened and reached (tried {port})")


def processes() -> Check:
    """Whether the kernel tells of the end of processes, which nodes need of their workers, and can end children with their parent."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        why = f" ({error.strerror})" if isinstance(error, OSError) else ""
        return Check(
            "processes",
            PROBLEM,
            f"there are no process handles (pidfd_open) here{why}: no node can run on this machine",
            "Run nodes on Linux 5.3 or later; in a sandbox, allow pidfd_open in its profile.",
        )
    if not sys.platform.startswith("linux"):
        return Check(
            "processes",
            WARNING,
            f"{sys.platform} cannot end children with their parent",
            "Should the launcher be killed hard, `elastic down` removes what it left.",
        )
    libc = ctypes.CDLL(None, use_errno=True)
    state = ctypes.c_int()
    if libc.prctl(2, ctypes.byref(state), 0, 0, 0) != 0:  # PR_GET_PDEATHSIG
        return Check(
            "processes",
            WARNING,
            "PR_SET_PDEATHSIG is forbidden here",
            "Allow prctl in the sandbox's profile.",
        )
    return Check("processes", OK, "children end with their parent (PR_SET_PDEATHSIG)")


def files() -> Check:
    """How many files and sockets a process may have open."""
    try:
        import resource
    except ImportError:
        return Check("files", OK, "no limit is known here")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        return Check(
            "files",
            WARNING,
            f"a process may open only {soft} files and sockets",
            _more_files(hard, resource.RLIM_INFINITY),
        )
    return Check(
        "files", OK, f"a process may open {'any number of' if soft == resource.RLIM_INFINITY else soft} files"
    )


def _more_files(hard: int, infinity: int) -> str:
    """How a process gets more than its limit lets it have; beyond the hard limit it takes somebody else."""
    if hard != infinity and hard < LEAST_FILES:
        return f"The hard limit is {hard}: have it raised (nofile in /etc/security/limits.conf, LimitNOFILE of a service)."
    return f"ulimit -n {65536 if hard == infinity else min(hard, 65536)}"


def temporary() -> Check:
    """A directory for temporary files: code is packed there to be sent, and wheels are unpacked."""
    try:
        place = tempfile.gettempdir()
    except OSError as error:
        return Check("temporary", PROBLEM, str(error.strerror), "Name one that can be written: TMPDIR.")
    return Check("temporary", OK, f"{place} can be written")


def home(place: Path) -> Check:
    """Whether the clusters' files can be written, with room, and names that fit."""
    if not place.is_absolute():
        return Check(
            "home",
            PROBLEM,
            f"{place}: there is no such home directory",
            "Name a directory: --home DIR or ELASTIC_HOME.",
        )
    there = next(p for p in (place, *place.parents) if os.path.exists(p))  # noqa: PTH110 - no name is too long for it
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Check(
            "home",
            PROBLEM,
            f"{there} cannot be written: {error.strerror}",
            "Name another directory: --home DIR or ELASTIC_HOME.",
        )
    if len(os.fsencode(place)) > LONGEST_HOME:
        return Check(
            "home",
            WARNING,
            f"{place} is a long path: Unix sockets in it may not fit",
            "Name a shorter one: --home DIR or ELASTIC_HOME.",
        )
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE:
        return Check(
            "home",
            WARNING,
            f"only {free >> 20} MiB are free in {there}",
            "Make room, or name another --home.",
        )
    return Check("home", OK, f"{place} can be written, {free / (1 << 30):.1f} GiB free")


def clusters(settings: Settings) -> list[Check]:
    """What runs on this machine, and what was left behind."""
    found: list[Check] = []
    from elastic.cluster.directory import FILE, LOCK

    names = {path.parent.name for file in (FILE, LOCK) for path in settings.home.glob(f"*/{file}")}
    for name in sorted(names):
        found += _cluster(settings, name)
    return found or [Check("clusters", OK, "none runs on this machine")]


def _cluster(settings: Settings, name: str) -> list[Check]:
    """What is to be said of it; nothing of a directory that is no cluster's."""
    from elastic.cluster.directory import FILE, is_clusters, launcher_of, stored

    which = dataclasses.replace(settings, cluster=name, address="")
    label = f"cluster {name}"
    cluster = stored(which.directory)
    launcher = launcher_of(which.directory)
    down = which.command("down")
    if launcher is None:
        left = Check(label, WARNING, "was left behind: its launcher is gone", f"{down} removes what is left.")
        return [left] if is_clusters(which.directory) and (which.directory / FILE).exists() else []
    if cluster is None:
        lost = f"runs, or is just starting or ending, without its {FILE} (launcher {launcher.pid})"
        return [Check(label, WARNING, lost, f"{down} ends it.")]
    return [Check(label, OK, f"{'runs' if cluster.ready else 'is starting'} (launcher {launcher.pid})")]


def maven() -> Check:
    """Only for the Hazelcast state store, which fetches its server with it, once."""
    from statestore.errors import Missing
    from statestore.hazelcast import jar

    lacks = "--store hazelcast cannot start members"
    try:
        fetched = jar.find_jar()
    except Missing as wrong:
        return Check("maven", WARNING, f"{wrong.message}: {lacks}", wrong.remedy)
    if fetched is not None:
        return Check("maven", OK, f"not needed: the Hazelcast server is at {fetched}")
    found = jar.find_maven()
    if found is None:
        return Check("maven", WARNING, f"neither Maven (mvn) nor {jar.NAME} is here: {lacks}", jar.remedy())
    there, why = jar.fetchable()
    if there is False:
        return Check(
            "maven",
            WARNING,
            f"at {found}, but it will not be able to fetch the Hazelcast server ({why}): {lacks}",
            jar.remedy(),
        )
    seen = f"from {why}" if there else f"whether it can be had is not seen from here: {why}"
    return Check(
        "maven", OK, f"at {found}; the Hazelcast server is fetched with it when it is first wanted ({seen})"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
