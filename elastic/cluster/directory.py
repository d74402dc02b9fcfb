"""A cluster's directory: what tells the command line that a cluster runs and where, and what is left when it
ends.

`cluster.json` is written by the launcher, whole or not at all. Whether it is still true is told by the
launcher's
process: its number, and its start time in case the number has gone to another process. A lock on the
directory, held by the launcher as long as it lives, keeps a second one out; the lock's file says whose it is as
well, and each of both files does when the other one has been lost.

Nothing is written to a directory that holds anything else, and nothing is removed but what a cluster makes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from elastic import procs
from elastic.cluster.options import UpOptions
from elastic.errors import AlreadyExists, ElasticError, EnvironmentProblem, NotFound
from elastic.model.codec import decode, encode

T = TypeVar("T")

LAUNCHER = "elastic.cluster.launcher_main"
"""The module that is the launcher's process."""
OPTIONS = "ELASTIC_UP_OPTIONS"
"""The environment variable by which it gets all its options; its command line, which anybody can read, has those that are no secrets."""
FILE = "cluster.json"
LOG = "launcher.log"
OLD_LOG = f"{LOG}.1"
NODE_LOG = "supervisor.log"
LOCK = ".lock"
_MADE = (FILE, f".{FILE}-*", "nimbus-*.log*", "nimbus", "nodes", "run", "spark", "zookeeper")
"""Patterns of what a launcher and its children make there, besides its own logs and the lock."""


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A running cluster.

    Attributes:
        name: Of the cluster.
        directory: Its own.
        pid: Of the launcher.
        identity: Tells that process from a later one with the same number (`procs.identity`).
        zookeeper: host:port/root.
        nimbus: host:port of each Nimbus.
        options: What it was started with.
        started: Seconds since 1970.
        ready: All nodes are there, and a Nimbus leads.
        ending: It is being ended.
    """

    name: str
    directory: str
    pid: int
    identity: str
    zookeeper: str
    nimbus: tuple[str, ...]
    options: UpOptions
    started: float
    ready: bool
    ending: bool = False

    def alive(self) -> bool:
        """Whether its launcher runs."""
        return _runs(self.pid, self.identity)


@dataclass(frozen=True, slots=True)
class Owner:
    """The launcher that holds a directory's lock, as the lock's file says.

    Attributes:
        pid: Of the launcher.
        identity: Tells that process from a later one with the same number (`procs.identity`).
    """

    pid: int
    identity: str

    def alive(self) -> bool:
        """Whether it runs."""
        return _runs(self.pid, self.identity)


def _runs(pid: int, identity: str) -> bool:
    return identity != "" and procs.identity(pid) == identity


def read_cluster(home: Path | str, name: str) -> ClusterInfo:
    """The cluster of that name on this machine.

    Args:
        home: The directory that holds a directory for each cluster.
        name: Of the cluster.

    Raises:
        NotFound: There is none, or it has ended.
        EnvironmentProblem: There may be one, of another user.
    """
    directory = UpOptions(cluster=name, home=str(home)).directory
    info = stored(directory)
    if info is None or not info.alive():
        _check_readable(directory / FILE)
        raise NotFound(f"no cluster named {name} runs here", remedy="Start one with: elastic up")
    return info


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except PermissionError as error:
        raise EnvironmentProblem(
            f"{path}: {error.strerror}",
            remedy="It may be another user's cluster: ask as that user, or name its Nimbus with --address.",
        ) from error
    except OSError:  # it is not there
        pass


def stored(directory: Path) -> ClusterInfo | None:
    """What `cluster.json` says, true or not; None when there is none."""
    return _read(directory / FILE, ClusterInfo)


def launcher_of(directory: Path) -> ClusterInfo | Owner | None:
    """The launcher that runs there, also when it has just begun, or when one of both files is lost, or all of them are; or None."""
    for found in (stored(directory), _read(directory / LOCK, Owner)):
        if found is not None and found.alive():
            return found
    return _bereft(directory)


def _bereft(directory: Path) -> Owner | None:
    """The launcher under which the directory was removed: nothing there tells of it any more, only what it was started with."""
    if sys.platform != "linux" or os.path.exists(directory / LOCK):  # noqa: PTH110 - no name is too long for it
        return None
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # It has ended meanwhile, or is another program.
        with contextlib.suppress(OSError, ValueError, ElasticError, msgspec.MsgspecError):
            words = path.read_bytes().split(b"\0")
            given = words[words.index(b"--options") + 1]
            mine = LAUNCHER.encode() in words and path.stat().st_uid == os.getuid()
            if mine and decode(given, UpOptions).directory == directory:
                found = Owner(int(path.parent.name), procs.identity(int(path.parent.name)))
                if found.alive():
                    return found
    return None


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return decode(path.read_bytes(), kind)
    except (OSError, msgspec.MsgspecError):
        return None


def is_clusters(directory: Path) -> bool:
    """Whether it is a cluster's: a launcher's log is there, which stays when it ends, or a `cluster.json`."""
    logs = (os.path.isfile(directory / name) for name in (LOG, OLD_LOG))  # noqa: PTH113 - no name is too long for it
    return any(logs) or stored(directory) is not None


def write(info: ClusterInfo) -> None:
    """Replace `cluster.json`: readers find the old one or the new one, never a part.

    Raises:
        EnvironmentProblem: It cannot be written.
    """
    directory = Path(info.directory)
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=f".{FILE}-", delete=False) as file:
            file.write(encode(info))
        Path(file.name).replace(directory / FILE)
    except OSError as error:
        raise EnvironmentProblem(
            f"{directory / FILE}: {error.strerror}", remedy="Make room there, or give another with --home."
        ) from error


@contextlib.contextmanager
def owned(
    directory: Path, *, launcher: bool = False, lock: int | None = None
) -> Iterator[Callable[[], bool]]:
    """Own a cluster's directory; it is made when missing. The lock's file goes with the owner. Yields what tells whether it is still its
    own: it may have been removed, and another cluster have begun there.

    Args:
        directory: The cluster's.
        launcher: This process is its launcher, and stays: the lock's file says so.
        lock: By which whoever started this process has owned it (`handed_on`).

    Raises:
        AlreadyExists: Another launcher owns it.
        EnvironmentProblem: It cannot be written to, or holds something else.
    """
    if lock is None:
        lock = _own(directory)
    else:
        os.set_inheritable(lock, False)  # no process of the cluster's is to keep it
    try:
        if launcher:
            with contextlib.suppress(OSError):  # only for when `cluster.json` is not there
                os.ftruncate(lock, 0)
                os.pwrite(lock, encode(Owner(os.getpid(), procs.identity(os.getpid()))), 0)
        yield lambda: _lock_there(directory, lock) is not False
    finally:
        _let_go(directory, lock)


@contextlib.contextmanager
def handed_on(directory: Path) -> Iterator[int]:
    """Own a cluster's directory for a process that is started inside, and gets this file descriptor: there is no moment at which nobody
    owns it. Raises as `owned` does."""
    lock = _own(directory)
    try:
        yield lock
    except BaseException:
        _let_go(directory, lock)
        raise
    os.close(lock)


def _own(directory: Path) -> int:
    """The lock, taken."""
    try:
        _check_ours(directory)
        lock = _lock(directory)
    except BlockingIOError:
        raise _taken(directory) from None
    except OSError as error:
        raise EnvironmentProblem(
            f"{directory}: {error.strerror}", remedy="Give another with --home."
        ) from error
    info = stored(directory)
    if info is not None and info.alive():  # the file of its lock has been removed
        _let_go(directory, lock)
        raise _taken(directory)
    return lock


def _let_go(directory: Path, lock: int) -> None:
    with contextlib.suppress(OSError):
        if _lock_there(directory, lock):
            (directory / LOCK).unlink()
    os.close(lock)


def _lock_there(directory: Path, lock: int) -> bool | None:
    """Whether the lock's file is the one that was locked; None: there is none."""
    try:
        return os.path.samestat(os.fstat(lock), (directory / LOCK).stat())
    except OSError:
        return None


def _check_ours(directory: Path) -> None:
    """That it is missing, empty or a cluster's."""
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return
    if names - {LOCK} and not is_clusters(directory):
        raise EnvironmentProblem(
            f"{directory} is not empty, and nothing tells that it is a cluster's",
            remedy="Give another --home or --cluster.",
        )


def _taken(directory: Path) -> AlreadyExists:
    found = launcher_of(directory)
    if found is None:
        return AlreadyExists(
            f"the cluster named {directory.name} is just being started or ended",
            remedy="Try again in a moment.",
        )
    down = ["elastic", "down", "--home", str(directory.parent), "--cluster", directory.name]
    return AlreadyExists(
        f"a cluster named {directory.name} runs already (process {found.pid})",
        remedy=f"End it with: {shlex.join(down)}",
    )


def _lock(directory: Path) -> int:
    """A locked file descriptor of the file that has the lock's name also after it was locked."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), (directory / LOCK).stat()):
                return lock
        except FileNotFoundError:  # its owner ended just now
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def clean(directory: Path, *, logs: bool = False, purge: bool = False) -> None:
    """Remove what a cluster leaves, and nothing else. For whoever owns the directory.

    Args:
        directory: The cluster's.
        logs: Also logs, except the launcher's: the one in use, and the one before it.
        purge: Those as well.
    """
    for path in [path for pattern in _MADE for path in directory.glob(pattern)]:
        _remove(path, logs=logs or purge)
    if purge:  # last: it is these that tell that the directory is a cluster's
        for name in (OLD_LOG, LOG):
            with contextlib.suppress(OSError):
                (directory / name).unlink()


def _remove(path: Path, *, logs: bool) -> None:
    """Remove a file, or a folder with what is in it; folders in which a log stays are kept."""
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(OSError):
            for entry in list(path.iterdir()):
                _remove(entry, logs=logs)
            path.rmdir()
    elif logs or not is_log(path.name):
        with contextlib.suppress(OSError):
            path.unlink()


def is_log(name: str) -> bool:
    """Whether a file is a log: `x.log`, or an older one, `x.log.1`."""
    return name.endswith(".log") or ".log." in name
