"""What `elastic up` and `elastic down` do. Light: nothing here loads kazoo, grpc or Spark, except `run_foreground`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

import msgspec

from elastic import errors, procs
from elastic.cluster.directory import (
    LAUNCHER,
    LOG,
    OLD_LOG,
    OPTIONS,
    ClusterInfo,
    Owner,
    clean,
    handed_on,
    is_clusters,
    launcher_of,
    owned,
    read_cluster,
)
from elastic.cluster.options import UpOptions
from elastic.errors import AlreadyExists, DeadlineExceeded, ElasticError, EnvironmentProblem, NotFound
from elastic.handles import readable
from elastic.model.codec import encode
from elastic.signals import insist

__all__ = ["ClusterInfo", "UpOptions", "read_cluster", "run_foreground", "start_background", "stop"]

_STOP = 60.0
_DOWN = 120.0
"""Seconds for a cluster to end in order: the longest `stop_grace` that a topology may have, and as much again."""


def start_background(options: UpOptions, on_progress: Callable[[str], None]) -> ClusterInfo:
    """Start a cluster that goes on running; returns when it is ready.

    Args:
        options: What is wanted.
        on_progress: Told what happens meanwhile.

    Raises:
        ElasticError: It could not be started. Nothing is left of it; the launcher's log says more.
        KeyboardInterrupt: Interrupted; what had been started has been ended.
    """
    options.validate()
    directory = options.directory
    _prepare(options, on_progress)
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as reports:
        try:
            with handed_on(directory) as lock, _new_log(directory) as log:
                argv = [sys.executable, "-P", "-m", LAUNCHER]
                argv += ["--options", encode(_shown(options)).decode()]
                argv += ["--report-fd", str(write), "--lock-fd", str(lock)]
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(write, lock),
                    env={**os.environ, "PYTHONPATH": _python_path(), OPTIONS: encode(options).decode()},
                    start_new_session=True,
                )
        finally:
            os.close(write)
        try:
            return _follow(reports.fileno(), process, options, on_progress)
        except BaseException:
            _end(process)
            raise


def run_foreground(
    options: UpOptions, on_progress: Callable[[str], None], on_ready: Callable[[ClusterInfo], None]
) -> None:
    """Run a cluster in this process, in the main thread, until Ctrl-C, SIGTERM or SIGHUP; returns when it has ended.

    Args:
        options: What is wanted.
        on_progress: Told what happens.
        on_ready: Told once that the cluster is ready.

    Raises:
        ElasticError: It could not be started. Nothing is left of it.
    """
    from elastic.cluster.running import Launcher

    os.environ.pop(procs.PARENT_VARIABLE, None)
    _prepare(options.validate(), on_progress)
    launcher = Launcher(options, on_progress, on_ready)
    numbers = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # else by nohup: it is to stay
        numbers.add(signal.SIGHUP)
    undo = insist(dict.fromkeys(numbers, launcher.ask_stop))
    try:
        launcher.run()
    finally:
        undo()


def stop(
    home: Path | str,
    cluster: str,
    *,
    purge: bool = False,
    timeout: float = _DOWN,
    on_progress: Callable[[str], None] = lambda _: None,
    on_killed: Callable[[str], None] = lambda _: None,
) -> None:
    """End a cluster: nodes, Nimbus, ZooKeeper; returns when nothing of it runs and only logs are left.

    Args:
        home: The directory that holds a directory for each cluster.
        cluster: Its name.
        purge: Remove the logs as well.
        timeout: Seconds that it has to end in order; then it is killed, and what it started dies with it.

    Raises:
        NotFound: No such cluster runs here. What an earlier one left, because it was killed, has been removed.
        AlreadyExists: It is just being started or ended.
        DeadlineExceeded: It does not even end when it is killed.
    """
    directory = UpOptions(cluster=cluster, home=str(home)).directory
    launcher = launcher_of(directory)
    if launcher is None:
        try:
            _clean(directory, purge)
        except AlreadyExists:
            raise AlreadyExists(
                f"cluster {cluster} is just being started or ended", remedy="Try again in a moment."
            ) from None
        raise NotFound(f"no cluster named {cluster} runs here", remedy="Start one with: elastic up")
    on_progress(f"ending cluster {cluster}")
    with contextlib.suppress(ProcessLookupError):
        os.kill(launcher.pid, signal.SIGTERM)
    if not _wait_gone(launcher, timeout):
        on_killed(f"it has not ended within {timeout:g} s, and is killed")
        with contextlib.suppress(ProcessLookupError):
            os.kill(launcher.pid, signal.SIGKILL)
        if not _wait_gone(launcher, 10.0):
            raise DeadlineExceeded(f"process {launcher.pid} of cluster {cluster} does not end")
    with contextlib.suppress(AlreadyExists):  # the next one has begun there: what is there is its own by now
        _clean(directory, purge)


def _clean(directory: Path, purge: bool) -> None:
    """Remove what is left of a cluster that does not run; nothing of what is no cluster's."""
    if not is_clusters(directory):
        return
    with owned(directory):
        clean(directory, purge=purge)
    if purge:
        with contextlib.suppress(OSError):  # somebody else's files are there
            directory.rmdir()


def _prepare(options: UpOptions, on_progress: Callable[[str], None]) -> None:
    """What may take minutes the first time, and can be given up by Ctrl-C at any moment."""
    from elastic.cluster.commands import away

    kind, _, members = options.store.partition(":")
    if kind != "hazelcast" or away(options, options.host):
        return
    if members:
        from elastic.cluster.grid_external import External, check_external

        check_external(External.parse(members), options.store_backups, on_progress)
    else:
        import tempfile

        from elastic.cluster.grid_service import prepare

        with tempfile.TemporaryDirectory(prefix="elastic-hazelcast-") as directory:
            prepare(Path(directory), on_progress)


def _follow(
    reports: int, process: subprocess.Popen[bytes], options: UpOptions, on_progress: Callable[[str], None]
) -> ClusterInfo:
    """Read what the launcher says until it is ready."""
    # It watches the time itself, and ends in order.
    deadline = time.monotonic() + options.patience + 2 * _STOP
    rest = b""
    while True:
        while b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            message = msgspec.json.decode(line)
            if "tell" in message:
                on_progress(message["tell"])
            elif "ready" in message:
                return msgspec.convert(message["ready"], ClusterInfo)
            else:
                raise _error(**message["error"])
        if not readable([reports], deadline - time.monotonic()):
            raise EnvironmentProblem(f"cluster {options.cluster} is not ready, and its launcher says nothing")
        data = os.read(reports, 65536)
        if not data:
            code = process.wait()
            raise EnvironmentProblem(
                f"the launcher ended with exit code {code}: {_tail(options.directory / LOG)}",
                remedy=f"Its log: {options.directory / LOG}",
            )
        rest += data


def _new_log(directory: Path) -> IO[bytes]:
    """The launcher's log, begun anew; one older is kept. For whoever owns the directory.

    Raises:
        EnvironmentProblem: The directory cannot be written to.
    """
    path = directory / LOG
    try:
        if path.exists():
            path.replace(directory / OLD_LOG)
        return path.open("ab")
    except OSError as error:
        raise EnvironmentProblem(f"{path}: {error.strerror}", remedy="Give another with --home.") from error


def _error(kind: str, message: str, remedy: str) -> ElasticError:
    found = getattr(errors, kind, None)
    known = found if isinstance(found, type) and issubclass(found, ElasticError) else EnvironmentProblem
    return known(message, remedy=remedy)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher that has started for nothing. A second Ctrl-C does not wait for its order."""
    try:
        procs.end(process, _STOP)
    except KeyboardInterrupt:
        process.kill()
        process.wait()
        raise


def _wait_gone(info: ClusterInfo | Owner, timeout: float) -> bool:
    """Wait for the end of a process that is no child of this one."""
    deadline = time.monotonic() + timeout
    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(info.pid)
        except OSError:
            return not info.alive()
        try:
            if procs.identity(info.pid) not in ("", info.identity):  # the number is another process's by now
                return True
            # Also of one of which the system says that it has ended: the last of its threads may be about to let go of the lock.
            return bool(readable([handle], timeout))
        finally:
            os.close(handle)
    while info.alive():  # nothing to wait on here
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _tail(log: Path) -> str:
    from elastic.cluster.zookeeper_server import tail

    return tail(log)


def _shown(options: UpOptions) -> UpOptions:
    """What anybody may see in lists of processes: a token may be in the address of a Connect server, a password in Spark's settings."""
    from elastic.hosts.spark_settings import shown

    return replace(options, master=shown(options.master), spark_conf=())


def _python_path() -> str:
    from elastic.hosts.child import python_path

    return python_path(os.environ.get("PYTHONPATH", ""))
