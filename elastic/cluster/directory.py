"""A cluster's directory: what tells the command line that a cluster runs and where, and what is left when it
ends.

`cluster.json` is written by the launcher, whole or not at all. Whether it is still true is told by the
launcher's
process: its number, and its start time in case the number has gone to another process. A lock on the
    directory,
held by the launcher as long as it lives, keeps a second one out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastic import procs
from elastic.cluster.options import UpOptions
from elastic.errors import AlreadyExists, EnvironmentProblem, NotFound
from elastic.model.codec import decode, encode

FILE = "cluster.json"
LOG = "launcher.log"
_LOCK = ".lock"


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

    def alive(self) -> bool:
        """Whether its launcher runs."""
        return self.identity != "" and procs.identity(self.pid) == self.identity


def read_cluster(home: Path | str, name: str) -> ClusterInfo:
    """The cluster of that name on this machine.

    Args:
        home: The directory that holds a directory for each cluster.
        name: Of the cluster.

    Raises:
        NotFound: There is none, or it has ended.
    """
    info = stored(UpOptions(cluster=name, home=str(home)).directory)
    if info is None or not info.alive():
        raise NotFound(f"no cluster named {name} runs here", remedy="Start one with: elastic up")
    return info


def stored(directory: Path) -> ClusterInfo | None:
    """What `cluster.json` says, true or not; None when there is none."""
    try:
        return decode((directory / FILE).read_bytes(), ClusterInfo)
    except (OSError, msgspec.MsgspecError):
        return None


def write(info: ClusterInfo) -> None:
    """Replace `cluster.json`: readers find the old one or the new one, never a part."""
    directory = Path(info.directory)
    with tempfile.NamedTemporaryFile(dir=directory, prefix=f".{FILE}-", delete=False) as file:
        file.write(encode(info))
    Path(file.name).replace(directory / FILE)


@contextlib.contextmanager
def owned(directory: Path) -> Iterator[None]:
    """Own a cluster's directory; it is made when missing. The lock's file goes with the owner.

    Raises:
        AlreadyExists: Another launcher owns it.
        EnvironmentProblem: It cannot be written to.
    """
    try:
        lock = _lock(directory)
    except BlockingIOError:
        info = stored(directory)
        owner = f" (process {info.pid})" if info is not None else ""
        raise AlreadyExists(
            f"a cluster named {directory.name} runs already{owner}",
            remedy=f"End it with: elastic down --cluster {directory.name}",
        ) from None
    except OSError as error:
        raise EnvironmentProblem(
            f"{directory}: {error.strerror}", remedy="Give another with --home."
        ) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (directory / _LOCK).unlink()
        os.close(lock)


def _lock(directory: Path) -> int:
    """A locked file descriptor of the file that has the lock's name also after it was locked."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), (directory / _LOCK).stat()):
                return lock
        except FileNotFoundError:  # its owner ended just now
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def clean(directory: Path, *, logs: bool = False, purge: bool = False) -> None:
    """Remove what a cluster leaves.

    Args:
        logs: Also logs, except the launcher's, which is in use.
        purge: Everything, and the directory itself.
    """
    if purge:
        shutil.rmtree(directory, ignore_errors=True)
        return
    keep = {directory / _LOCK, directory / LOG}
    for folder, folders, files in os.walk(directory, topdown=False):
        for path in (Path(folder) / name for name in files):
            if path not in keep and (logs or not is_log(path.name)):
                with contextlib.suppress(OSError):
                    path.unlink()
        for path in (Path(folder) / name for name in folders):
            with contextlib.suppress(OSError):
                path.unlink() if path.is_symlink() else path.rmdir()


def is_log(name: str) -> bool:
    """Whether a file is a log: `x.log`, or an older one, `x.log.1`."""
    return name.endswith(".log") or ".log." in name
