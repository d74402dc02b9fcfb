"""What runs inside the Spark task that is a node: it starts the supervisor, and watches over it.

    launcher (driver) - driver's JVM - executor's JVM - python daemon - python worker (this) - supervisor - workers

Nothing below survives what is above it, whoever dies:

- this process: the kernel ends the supervisor with it, and the workers with that (`elastic.procs`);
- the python daemon or the executor's JVM: seen here by process handle, without waiting for either to notice by itself;
- the launcher, when it is on this machine: likewise (a JVM can take seconds to shut down after its driver has gone);
- the launcher elsewhere: Spark ends the executor or cancels the task.

A cancelled task's python worker is killed by Spark 2 to 4 s later, and the node with it. A worker that Spark only drops
(by closing the socket to it, while this function runs on) is seen here: the supervisor gets SIGTERM, then SIGKILL.

This module is imported by Spark's python workers: it needs nothing but the standard library until it makes its one row.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import stat
import struct
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elastic import procs
from elastic.handles import readable
from elastic.hosts import generation
from elastic.hosts.archives import without_archives
from elastic.hosts.child import Child, exit_sentence, python_path

log = logging.getLogger(__name__)

SCHEMA = "reason string"
"""What the task's one row looks like, as Spark writes it."""

_OF_SPARK = (
    "PYTHON_WORKER_FACTORY",
    "PYTHON_DAEMON",
    "PYTHON_UDF_BATCH_SIZE",
    "PYTHONSAFEPATH",
    "PYTHONUNBUFFERED",
    "SPARK_REUSE_WORKER",
)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that can be told from a later one with its number: on which machine, which number, begun when."""

    machine: str
    pid: int
    begun: str

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(machine(), pid, procs.identity(pid))

    def is_here(self) -> bool:
        """Whether it runs on this machine, where its number means the same."""
        return self.machine == machine() != "" and procs.identity(self.pid) == self.begun != ""

    def open(self) -> int | None:
        """A handle that becomes readable when it has ended, for the caller to close; None when it isn't here."""
        if not hasattr(os, "pidfd_open"):
            return None
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.is_here():  # asked after the handle was opened: the number can't have changed hands
            return handle
        os.close(handle)
        return None


@dataclass(frozen=True, slots=True)
class Payload:
    """What the launcher tells the task, as JSON.

    Attributes:
        arguments: For the Python interpreter; the value of `--generation` is replaced by that of the task's attempt.
        environment: Set over the one found there.
        log: File that takes the supervisor's output, when it can be written there; or "".
        launcher: Whoever ends without saying so; the node ends with it when it is on the same machine.
        tag: The job's.
        notices: Address of the Unix socket by which a task on the launcher's machine says which process the supervisor is.
        grace: Seconds between SIGTERM and SIGKILL when the task's connection to Spark is closed.
    """

    node: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    log: str
    launcher: Process
    tag: str = ""
    notices: str = ""
    grace: float = 1.5

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Payload:
        fields = json.loads(text)
        fields["launcher"] = Process(**fields["launcher"])
        fields["arguments"] = tuple(fields["arguments"])
        return cls(**fields)


def run(batches: Iterable[Any], payload: str) -> Iterator[Any]:
    """The node's task: run the supervisor until it ends, then give one row that says how. Called by Spark.

    Args:
        batches: The task's input; of no interest, but read, so that Spark's writer is done with it.
        payload: A `Payload`, encoded.
    """
    for _ in batches:
        pass
    from pyspark import TaskContext

    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    yield _row(hold(Payload.decode(payload), attempt))


def _row(reason: str) -> Any:
    """One row with that text. From its bytes: `pyarrow.array` would import pandas, which takes a second and 40 MB."""
    import pyarrow as pa

    text = reason.encode()
    ends = pa.py_buffer(struct.pack("=ii", 0, len(text)))
    column: Any = pa.StringArray.from_buffers(1, ends, pa.py_buffer(text))
    return pa.RecordBatch.from_arrays([column], names=["reason"])


def hold(order: Payload, attempt: int) -> str:
    """Start the supervisor and wait until it has ended, by itself or because what is above it has ended.

    Returns:
        How it ended, in a sentence.
    """
    parent = os.getppid()
    if not _is_java(parent):  # a daemon's one thread lives as long as it does; a JVM's threads come and go
        procs.die_with_parent(parent)
    above = _Above(order.launcher, parent)
    try:
        env = {k: v for k, v in os.environ.items() if not k.startswith(_OF_SPARK)}
        env.update(order.environment)
        found = env.get("PYTHONPATH", "").split(os.pathsep)
        env["PYTHONPATH"] = python_path(os.pathsep.join(without_archives(found)))
        python = str(Path(sys.executable).absolute())
        argv = (python, *generation.with_attempt(order.arguments, attempt))
        try:
            child = Child(argv, env, _writable(order.log))
        except OSError as error:
            return f"{python} cannot be started: {error}"
        if order.notices and order.launcher.is_here():
            _notify(order, Process.of(child.pid))
        return _watch(child, above, order.grace)
    finally:
        above.close()


class _Above:
    """Handles of all that a node must not survive, and the task's own connections."""

    def __init__(self, launcher: Process, parent: int) -> None:
        self.sockets = [fd for fd in _descriptors() if _is_stream_socket(fd)]
        self.handles: dict[int, str] = {}
        self._watch(parent, "Spark's python daemon")
        if not _is_java(parent):
            self._watch(_parent_of(parent), "Spark's executor")
        if launcher.is_here():
            self._watch(launcher.pid, "the launcher")

    def _watch(self, pid: int, what: str) -> None:
        if hasattr(os, "pidfd_open") and pid > 1:
            try:
                self.handles[os.pidfd_open(pid)] = what
            except ProcessLookupError:
                self.handles[_ended_already()] = what
            except OSError as error:
                log.warning("%s (process %d) cannot be watched: %s", what, pid, error)

    def close(self) -> None:
        for fd in self.handles:
            os.close(fd)


def _watch(child: Child, above: _Above, grace: float) -> str:
    """Wait for the child's end, somebody's end above, or a closed connection; then see that the child ends."""
    code, done = _wait_elsewhere(child)
    reason = ""
    try:
        poll = select.poll()
        poll.register(done, select.POLLIN)
        for fd in above.handles:
            poll.register(fd, select.POLLIN)
        hung_up = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
        for fd in above.sockets:
            poll.register(fd, hung_up)
        parent = os.getppid()
        while True:
            ready = {fd for fd, _ in poll.poll(None if above.handles else 1000)}
            if done in ready:
                break
            gone = [above.handles[fd] for fd in above.handles if fd in ready]
            if gone or os.getppid() != parent:
                reason = f"{gone[0] if gone else 'its parent'} has gone"
                child.signal(signal.SIGKILL, group=True)
                break
            if ready:
                reason = "Spark has dropped its task"
                child.signal(signal.SIGTERM)
                if not readable([done], grace):
                    child.signal(signal.SIGKILL, group=True)
                break
        readable([done], None)
        return reason or exit_sentence(code[0])
    finally:
        os.close(done)


def _wait_elsewhere(child: Child) -> tuple[list[int], int]:
    """Wait for the child in a thread; the descriptor becomes readable when `code` is there."""
    readable, writable = os.pipe()
    code: list[int] = []

    def wait() -> None:
        try:
            code.append(child.wait())
        finally:
            os.close(writable)

    threading.Thread(target=wait, name="elastic-supervisor", daemon=True).start()
    return code, readable


def machine() -> str:
    """Names this machine, this boot of it, and this space of process numbers; "" where that can't be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _descriptors() -> list[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return sorted(int(name) for name in os.listdir(folder))  # noqa: PTH208 - names are enough
        except OSError:
            continue
    return []


def _is_stream_socket(fd: int) -> bool:
    """The task has just begun: all the sockets there are lead to its executor."""
    try:
        return fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


def _ended_already() -> int:
    """A descriptor that is readable from the start."""
    readable, writable = os.pipe()
    os.close(writable)
    return readable


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _notify(order: Payload, supervisor: Process) -> None:
    """A launcher that doesn't listen is no harm: it then cancels the job where it would have asked."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5.0)
            connection.connect(order.notices)
            connection.sendall(json.dumps([order.tag, asdict(supervisor)]).encode() + b"\n")
    except OSError as error:
        log.warning("the launcher can't be told of the supervisor: %s", error)


def _writable(path: str) -> str:
    """The log file, or "" where it can't be written: then the output goes to the executor's own log."""
    if path:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with Path(path).open("ab"):
                return path
        except OSError as error:
            log.warning("%s cannot be written (%s): the executor's log takes the node's output", path, error)
    return ""
