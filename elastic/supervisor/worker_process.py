"""Worker processes: started with their pipes, listened to, and waited for by one thread.

A process's end is noticed by its process handle (pidfd), at once. What it wrote to its report pipe before
is read first, then what is left in its process group is killed, then it is reaped and its end told.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import elastic
from elastic import procs
from elastic.errors import EnvironmentProblem
from elastic.machine import with_limit
from elastic.model.events import Event
from elastic.model.ids import Incarnation
from elastic.supervisor import logs
from elastic.supervisor.groups import Groups
from elastic.supervisor.messages import Malformed, Messages, Stacks
from elastic.supervisor.ports import WorkerExit, WorkerLaunch, WorkerListener

log = logging.getLogger(__name__)

WORKER_MAIN = ("-P", "-m", "elastic.cluster.worker_main")

_CHUNK = 1 << 16
_CHUNKS = 64
_TRIM_EVERY = 5.0
_CLOSE = 10.0


class WorkerProcess:
    """See `elastic.supervisor.ports.RunningWorker`. Made by `ProcessLauncher.start`."""

    def __init__(
        self,
        launch: WorkerLaunch,
        listener: WorkerListener,
        process: subprocess.Popen[bytes],
        handle: int,
        report: int,
        begin: int,
        groups: Groups,
    ) -> None:
        assert process.stdin is not None
        self.launch = launch
        self.listener = listener
        self.report = report
        self.handle = handle
        self._process = process
        self._stdin = process.stdin.fileno()
        self._begin = begin
        self._groups = groups
        self._messages = Messages()
        self._lock = threading.Lock()
        self._reaped = False
        self._trimmed = time.monotonic()
        os.set_blocking(self._stdin, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, version: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            if not self._reaped:
                # A full pipe has lines that the worker has yet to read; it will find this version by them.
                os.write(self._stdin, b"%d\n" % version)

    def signal(self, number: int) -> None:
        self._send(os.kill, number)

    def kill(self) -> None:
        self._send(os.killpg, signal.SIGKILL)

    def _send(self, send: Callable[[int, int], None], number: int) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._reaped:
                send(self.pid, number)

    def read(self) -> bool:
        """Read what is in the report pipe now, up to a bound. False: its end has been reached."""
        for _ in range(_CHUNKS):
            try:
                data = os.read(self.report, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            for message in self._messages.feed(data):
                self._hand_on(message)
        return True

    def _hand_on(self, message: object) -> None:
        try:
            self._tell_of(message)
        except Exception as error:
            # It must cost neither those that have come with it nor the listening to others.
            log.exception("a message of %s could not be handed on", self.launch.incarnation)
            with contextlib.suppress(Exception):
                self.listener.on_malformed(self.launch.incarnation, f"it cannot be passed on: {error}")

    def _tell_of(self, message: object) -> None:
        incarnation = self.launch.incarnation
        if isinstance(message, Malformed):
            self.listener.on_malformed(incarnation, message.what)
        elif isinstance(message, Event):
            self.listener.on_event(incarnation, message)
        elif isinstance(message, Stacks):
            self.listener.on_stacks(incarnation, message.text)
        else:
            self.listener.on_report(incarnation, message)  # type: ignore[arg-type]
            now = time.monotonic()
            if now - self._trimmed >= _TRIM_EVERY:
                self._trimmed = now
                logs.trim(self.launch.log)

    def reap(self) -> WorkerExit:
        """The process has ended: end what is left of it and take its exit code."""
        self.read()
        self.kill()  # its number stays its own until it is waited for
        self._groups.discard(self.pid)
        with self._lock:
            self._reaped = True
            code = self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
        os.close(self.handle)
        os.close(self.report)
        return WorkerExit(code, logs.tail(self.launch.log, self._begin))


class ProcessLauncher:
    """Starts workers as processes; see `elastic.supervisor.ports.WorkerLauncher`.

    Args:
        zookeeper: `host:port/root`.
        store: Directory of the node's store.
        run_dir: Where workers put their Unix sockets; a short path.
        log_level: Of the workers.
        cycle: T_W of N-Storm 2019 (section IV.B), seconds; 0: workers are told.
        session_timeout: Of the workers' sessions, seconds.
        own_zookeeper: That ZooKeeper is the one server that the cluster's launcher runs.
        program: What Python runs, before the arguments.
        environment: Set over this process's.
        host: The address on which workers listen, and that they register; "" leaves it to them: loopback.
        socket: Where a worker's socket lies, if it has one. One that is killed leaves it there, and the next life has another.
    """

    def __init__(
        self,
        *,
        zookeeper: str,
        store: Path,
        run_dir: Path,
        log_level: str = "info",
        cycle: float = 0.0,
        session_timeout: float = 0.0,
        own_zookeeper: bool = False,
        program: Sequence[str] = WORKER_MAIN,
        environment: Mapping[str, str] | None = None,
        host: str = "",
        socket: Callable[[Incarnation], Path | None] = lambda _: None,
    ) -> None:
        if not hasattr(os, "pidfd_open"):
            raise EnvironmentProblem(
                "this system has no process handles (pidfd)", remedy="run nodes on Linux 5.3 or later"
            )
        self._socket = socket
        self._common = ["--store", str(store), "--zookeeper", zookeeper, "--run-dir", str(run_dir)]
        self._common += ["--log-level", log_level]
        self._common += ["--cycle", f"{cycle:g}"] if cycle else []
        self._common += ["--session-timeout", f"{session_timeout:g}"] if session_timeout else []
        self._common += ["--own-zookeeper"] if own_zookeeper else []
        self._common += ["--host", host] if host else []
        self._program = tuple(program)
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._environment["PYTHONPATH"] = _python_path(self._environment.get("PYTHONPATH", ""))
        self._lock = threading.Lock()
        self._new: list[WorkerProcess] = []
        self._running: set[WorkerProcess] = set()
        self._closing = False
        self._groups = Groups()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._work, name="elastic-workers", daemon=True)
        self._thread.start()

    def start(self, launch: WorkerLaunch, listener: WorkerListener) -> WorkerProcess:
        try:
            worker = self._started(launch, listener)
        except OSError as error:
            said = f"worker {launch.worker} cannot be started: {error}"
            raise EnvironmentProblem(with_limit(said, error, starting=True)) from error
        with self._lock:
            refused = self._closing
            self._new.append(worker)
            self._running.add(worker)
        if refused:
            worker.kill()
        self._wake()
        return worker

    def end_stray(self, pid: int, incarnation: Incarnation, timeout: float) -> bool:
        ended = procs.end_stray(pid, incarnation, timeout)
        if ended:
            self._remove_socket(incarnation)
        return ended

    def close(self) -> None:
        with self._lock:
            self._closing = True
            running = list(self._running)
        for worker in running:
            worker.kill()
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE)

    def _started(self, launch: WorkerLaunch, listener: WorkerListener) -> WorkerProcess:
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(read, False)
            process, begin = self._spawn(launch, write)
            try:
                handle = os.pidfd_open(process.pid)
            except OSError:
                with process:  # nobody could see its end
                    process.kill()
                raise
        except OSError:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._groups.add(process.pid)
        return WorkerProcess(launch, listener, process, handle, read, begin, self._groups)

    def _spawn(self, launch: WorkerLaunch, report: int) -> tuple[subprocess.Popen[bytes], int]:
        with self._lock:
            running = {worker.launch.topology for worker in self._running}
        logs.make_room(launch.log, running)
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        logs.trim(launch.log)
        with launch.log.open("ab") as file:
            file.write(f"--- {launch.incarnation}\n".encode())
            begin = file.tell()
        argv = [sys.executable, *self._program]
        argv += [
            "--topology",
            launch.topology,
            "--worker",
            launch.worker,
            "--incarnation",
            launch.incarnation,
        ]
        argv += ["--bundle", str(launch.bundle), "--report-fd", str(report), *self._common]
        process = procs.spawn(
            argv,
            env=self._environment,
            log=launch.log,
            stdin=subprocess.PIPE,
            pass_fds=(report,),
            cwd=launch.log.parent,
        )
        return process, begin

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # full: it is awake already; closed: it has ended
            os.write(self._wake_write, b"x")

    def _work(self) -> None:
        while True:
            with self._lock:
                new, self._new = self._new, []
                if self._closing and not self._running:
                    break
            for worker in new:
                self._selector.register(worker.handle, selectors.EVENT_READ, (worker, True))
                self._selector.register(worker.report, selectors.EVENT_READ, (worker, False))
            ended = []
            for key, _ in self._selector.select():
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, _CHUNK)
                    continue
                worker, is_end = key.data
                if is_end:
                    ended.append(worker)
                else:
                    self._read(worker)
            for worker in ended:
                self._end(worker)
        self._selector.close()
        self._groups.close()
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1

    def _read(self, worker: WorkerProcess) -> None:
        try:
            more = worker.read()
        except Exception:  # one worker must not end the listening to all others
            log.exception("a message of %s could not be handed on", worker.launch.incarnation)
            return
        if not more:
            self._selector.unregister(worker.report)

    def _end(self, worker: WorkerProcess) -> None:
        self._selector.unregister(worker.handle)
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.report)
        try:
            exit = worker.reap()
            self._remove_socket(worker.launch.incarnation)
            worker.listener.on_exit(worker.launch.incarnation, exit)
        except Exception:  # as above
            log.exception("the end of %s could not be handed on", worker.launch.incarnation)
        with self._lock:
            self._running.discard(worker)

    def _remove_socket(self, incarnation: Incarnation) -> None:
        path = self._socket(incarnation)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _python_path(inherited: str) -> str:
    """Workers run elsewhere: they must find this very package, and what was relative must not be."""
    here = str(Path(elastic.__file__).resolve().parent.parent)
    parts = [str(Path(p).absolute()) for p in inherited.split(os.pathsep) if p]
    if Path(here).name not in ("site-packages", "dist-packages") and here not in parts:
        parts.insert(0, here)
    return os.pathsep.join(parts)
