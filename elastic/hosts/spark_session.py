"""The Spark session that nodes are jobs of: found or started, classic or Connect.

A session that is active in the process already (a user's notebook) is used, and left as it is. One that is started here
gets small settings, is quiet, and is ended with its JVM.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Any, TypeVar

from elastic.errors import ConfigError, ElasticError, EnvironmentProblem, Unavailable
from elastic.hosts.spark_settings import (
    STATIC,
    addresses,
    hidden,
    is_here,
    local_with_retries,
    room,
    settings,
    shown,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

_ANSWER = 5.0
_STOP = 20.0
PATIENCE = 180.0
"""Seconds that Spark may take to start, unless told otherwise."""


class Session:
    """A session, whichever kind it is. Made by `open_session`."""

    def __init__(
        self,
        spark: Any,
        *,
        owned: bool,
        connect: bool,
        own_jvm: bool,
        slots: int | None,
        work: Path | None = None,
    ) -> None:
        self.spark = spark
        self.owned = owned
        self.connect = connect
        self.slots = slots
        """How many nodes have room; None when only Spark knows."""
        self._own_jvm = own_jvm
        self._work = work
        self._suspect = False
        self._cancelled: dict[str, bool] = {}  # for each tag under which jobs run, whether they were
        self._context: Any = None if connect else spark.sparkContext

    def usable(self) -> bool:
        """False once its JVM, or its connection, has gone.

        Raises:
            TimeoutError: It is there and does not answer: nobody can say.
        """
        return self._there() and (not self._suspect or self._responds())

    def _there(self) -> bool:
        if self.connect:
            return not self.spark.is_stopped
        jvm = getattr(self._context._gateway, "proc", None)
        return self._context._jsc is not None and (jvm is None or jvm.poll() is None)

    def run_tagged(self, tag: str, work: Callable[[], T]) -> T:
        """Run Spark jobs in the calling thread such that `cancel(tag)` ends them. The thread does nothing else."""
        self._cancelled[tag] = False
        try:
            return self._run_tagged(tag, work)
        except Exception:
            # A server that was started again doesn't know this session; a JVM that is being killed is a process for some time yet.
            if not self._cancelled[tag]:
                self._suspect = True
            raise
        finally:
            del self._cancelled[tag]

    def _run_tagged(self, tag: str, work: Callable[[], T]) -> T:
        if self.connect:
            self.spark.addTag(tag)
            return work()
        from pyspark import InheritableThread

        self._context.addJobTag(tag)
        try:
            return work()
        finally:
            with contextlib.suppress(Exception):  # gives back the JVM's thread, made for this one alone
                InheritableThread._clean_py4j_conn_for_current_thread()  # type: ignore[attr-defined]

    def cancel(self, tag: str) -> None:
        """Cancel the jobs that run under that tag now; nothing when there are none.

        Raises:
            Unavailable: Spark does not answer.
        """
        if tag in self._cancelled:
            self._cancelled[tag] = True
        cancel = self.spark.interruptTag if self.connect else self._context.cancelJobsWithTag
        try:
            _bounded(lambda: cancel(tag), _ANSWER)
        except Exception as error:
            self._suspect = True
            raise Unavailable(f"Spark cannot be told to cancel {tag}: {first_line(error)}") from error

    def waits(self, tag: str) -> bool:
        """Whether Spark says of the jobs that run under that tag that none of their tasks does: they wait for room. A Connect server
        does not say."""
        if self.connect:
            return False
        try:
            return _bounded(lambda: self._without_tasks(tag), _ANSWER)
        except Exception as error:  # noqa: BLE001 - nobody can say
            log.debug("whether %s runs is not known: %s", tag, first_line(error))
            return False

    def _without_tasks(self, tag: str) -> bool:
        tracker = self._context.statusTracker()
        # PySpark's own asks by group only.
        jobs = self._context._jsc.sc().statusTracker().getJobIdsForTag(tag)
        found = [info for job in jobs if (info := tracker.getJobInfo(job)) is not None]
        stages = [tracker.getStageInfo(stage) for info in found for stage in info.stageIds]
        if not stages or any(s is None or s.numActiveTasks for s in stages):
            return False
        # Spark shows a task that begins soon after its stage some time later, but not that its executor has one more: then nobody can say.
        shown = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = sum(executor.numRunningTasks for executor in tracker.getExecutorInfos())
        return bool(running <= sum(s.numActiveTasks for s in shown if s is not None))

    def _responds(self) -> bool:
        try:
            _bounded(self._ask, _ANSWER)
        except TimeoutError:
            if self._there():
                raise
            return False
        except Exception as error:  # noqa: BLE001 - whatever it is, the session is of no use
            log.info("the Spark session is of no more use: %s", first_line(error))
            return False
        self._suspect = False
        return True

    def _ask(self) -> None:
        self.spark.conf.get("spark.sql.session.timeZone")
        # One that Spark itself has stopped, as its application was killed or its master has gone for good, answers all the same.
        if self._context is not None and self._context._jsc.sc().isStopped():
            raise EnvironmentProblem("Spark has stopped its context")

    def close(self) -> None:
        """End what was started here; a session that was found is left as it is."""
        if not self.owned:
            return
        from pyspark import SparkContext

        with contextlib.suppress(Exception):  # it may be gone already; what matters is what comes now
            _bounded(self.spark.stop, _STOP)
        # PySpark asks the server once more when this process exits, and waits, unless the connection is closed.
        if self.connect and not self.spark.client.is_closed:
            with contextlib.suppress(Exception):
                _bounded(self.spark.client.close, _STOP)
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        if self._own_jvm:
            _end_jvm(SparkContext)
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)


class _Start:
    """The start of Spark that is under way: PySpark has one for a process, and none can be called back.

    One that gets no answer in time is given up: what comes of it later on is ended at once, and no other begins before.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._began = 0.0

    def within(
        self, seconds: float, build: Callable[[], Session], coming: Future[Session] | None = None
    ) -> Session:
        """Start it; raises what `build` raises, and `TimeoutError`. Interrupted by anything else, it is given up as well.

        Args:
            seconds: That it may take.
            build: Starts it.
            coming: What is waited for; another thread gives the start up by setting an exception there.
        """
        result: Future[Session] = Future() if coming is None else coming

        def start() -> None:
            try:
                session = build()
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                with contextlib.suppress(InvalidStateError):
                    result.set_exception(error)
                return
            try:
                result.set_result(session)
            except InvalidStateError:
                log.warning("Spark has started after it was given up, and is ended")
                session.close()

        self._began = time.monotonic()
        self._thread = threading.Thread(target=start, name="elastic-spark", daemon=True)
        try:
            self._thread.start()
            return result.result(seconds)
        except TimeoutError:
            if not result.cancel():  # it has come at the last moment, or is the error of `build`
                return result.result()
            raise TimeoutError(f"no answer in {seconds:g} s") from None
        except BaseException:  # Ctrl-C, after which nobody has the session, or the error of `build`
            if not result.cancel() and result.exception() is None:
                result.result().close()
            raise

    def wait_for_earlier(self) -> None:
        """Wait a moment for one that was given up.

        Raises:
            EnvironmentProblem: It has not ended.
        """
        thread = self._thread
        if thread is None:
            return
        thread.join(_ANSWER)
        if thread.is_alive():
            raise EnvironmentProblem(
                f"an earlier start of Spark has got no answer for {time.monotonic() - self._began:.0f} s, "
                f"and another one cannot begin before it has ended",
                remedy="see what keeps Java from starting; `elastic doctor` tries it",
            )
        self._thread = None


_start = _Start()


def open_session(
    master: str,
    remote: str | None,
    config: Mapping[str, str],
    environment: Mapping[str, str],
    python: str,
    name: str,
    scratch: str,
    coming: Future[Session] | None = None,
    patience: float = PATIENCE,
) -> Session:
    """Use the session that is active, or else start one.

    Args:
        master: Spark's master, as for `SparkSession.builder.master`; without meaning when `remote` is given.
        remote: A Connect server (`sc://host:port`), or a local master to start one with; None for a classic session.
        config: Spark's settings, over those chosen here.
        environment: Set while the session starts (where Java is).
        python: The interpreter for tasks, or "" for this one on this machine, and whatever Spark finds elsewhere.
        name: The application's name.
        scratch: Directory for temporary files of a local master.
        coming: Where another thread may set an exception to give up the start.
        patience: Seconds that it may take.

    Raises:
        ConfigError: Something else makes PySpark use another Spark than this master.
        EnvironmentProblem: PySpark or Java is missing, nobody answers at that address, or the start was given up.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EnvironmentProblem(
            f"PySpark cannot be imported: {error}", remedy="pip install 'pyspark[connect]>=4.3,<4.4'"
        ) from error
    _start.wait_for_earlier()
    if remote is None and (active := _active()) is not None:
        log.info(
            "nodes run in the Spark session that is active in this process; the master %s is not started",
            shown(master),
        )
        return active
    _one_spark(master, remote, config)
    master = local_with_retries(master)
    chosen = {
        **settings(remote if remote and remote.startswith("local") else master, scratch),
        "spark.app.name": name,
        **config,
    }
    variables = {**environment, **_variables(remote or master, python)}
    fresh = SparkContext._gateway is None  # else its JVM is somebody else's, and stays

    def build() -> Session:
        builder = SparkSession.builder
        for key, value in chosen.items():
            builder = builder.config(key, value)
        with _environment(variables):
            if remote is None:
                spark = builder.master(master).getOrCreate()
            elif remote.startswith("local"):
                spark = builder.remote(local_with_retries(remote)).getOrCreate()
            else:
                spark = _connect(SparkSession, remote, chosen)
        own_jvm = fresh and SparkContext._gateway is not None
        # What nodes take may be set in Spark's own files.
        slots = room(
            remote or master, chosen if remote is not None else dict(spark.sparkContext.getConf().getAll())
        )
        work = _work(spark.sparkContext) if remote is None else None
        return Session(spark, owned=True, connect=remote is not None, own_jvm=own_jvm, slots=slots, work=work)

    _answers(remote or master)
    if (quiet := logging.getLogger("py4j")).level == logging.NOTSET:
        quiet.setLevel(logging.WARNING)  # it says when each node's connection is closed
    try:
        # Not in this thread: in the main thread, PySpark would put its own handler of SIGINT in place of ours.
        return _start.within(patience, build, coming)
    except ElasticError:
        raise
    except Exception as error:
        if fresh:
            with contextlib.suppress(Exception):
                _end_jvm(SparkContext)
        remedy = (
            "`elastic doctor` says what is missing; Spark's own messages are above or in the launcher's log"
        )
        if isinstance(error, TimeoutError):
            remedy = (
                f"where it is slow, or waits for room, `elastic up --ready-timeout` gives it longer; {remedy}"
            )
        raise EnvironmentProblem(
            f"Spark cannot be started with {shown(remote or master)}: {hidden(first_line(error), remote or master)}",
            remedy=remedy,
        ) from error


def _work(context: Any) -> Path | None:
    """The directory that `local-cluster` puts into Spark's installation, and leaves there. Asked for as long as the JVM answers."""
    if not str(context.master).startswith("local-cluster"):
        return None
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()) / "work" / str(context.applicationId)


def _connect(kind: Any, remote: str, chosen: Mapping[str, str]) -> Any:
    """A session of its own on that server."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    builder = kind.builder.remote(remote)
    for key, value in chosen.items():
        # These are all that a session on a running server can set.
        if key.startswith("spark.sql.") and key not in STATIC:
            builder = builder.config(key, value)
    spark = builder.create()
    # By itself it tries for ten minutes before it says that the server has gone.
    spark.client.set_retry_policies([DefaultPolicy(max_retries=8, max_backoff=5000)])
    return spark


def first_line(error: BaseException) -> str:
    """What went wrong in one line, out of Spark's pages: its first line, and the last of a Python traceback in it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error of Java asks Java what it says, which may have gone
        return type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = lines[0]
    if said.startswith("An error occurred while calling") and len(lines) > 1:
        said = lines[1].removeprefix(": ")
    cause = [m for line in lines[1:] if (m := re.match(r"(?:\w+\.)*\w*(?:Error|Exception): .*", line))]
    if cause and "Traceback" in text and cause[0][0] not in said:
        said += f" ({cause[0][0]})"
    return said if len(said) <= 600 else said[:600] + " ..."


def _active() -> Session | None:
    """The session that somebody else has started in this process."""
    core, connect = sys.modules.get("pyspark"), sys.modules.get("pyspark.sql.connect.session")
    context = core.SparkContext._active_spark_context if core is not None else None
    found = (
        connect.SparkSession.getActiveSession() or connect.SparkSession._default_session if connect else None
    )
    if found is not None and not found.is_stopped:
        return Session(found, owned=False, connect=True, own_jvm=False, slots=None)
    if context is None or getattr(context, "_jsc", None) is None:  # without one while it is being made
        return None
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise ConfigError(
            "the active Spark session was started with PYSPARK_PIN_THREAD=false: its jobs can't be told apart",
            remedy="start the session without that variable",
        )
    from pyspark.sql import SparkSession

    try:
        stopped = _bounded(lambda: context._jsc.sc().isStopped(), _ANSWER)
    except Exception as error:
        raise _ended(f"does not answer: {first_line(error)}") from error
    if stopped:  # by Spark: its application was killed, or its master has gone for good
        raise _ended("has been stopped by Spark")
    if str(context.getConf().get("spark.speculation", "false")).lower() == "true":
        log.warning("spark.speculation is on in the active Spark session: Spark may start a node twice")
    session = SparkSession.builder.getOrCreate().newSession()  # settings of its own, the same executors
    for key, value in settings("").items():
        if key.startswith("spark.sql.") and key not in STATIC:
            session.conf.set(key, value)
    slots = room(context.master, dict(context.getConf().getAll()))
    return Session(session, owned=False, connect=False, own_jvm=False, slots=slots)


def _ended(why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"the Spark session that is active in this process {why}",
        remedy="call its stop(), and start another one, or none, to have one started for the nodes",
    )


def _variables(master: str, python: str) -> dict[str, str]:
    result = {"PYSPARK_PIN_THREAD": "true"}
    if python or is_here(master):
        result["PYSPARK_PYTHON"] = python or sys.executable
        result["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_here(master):
        result["SPARK_LOCAL_IP"] = "127.0.0.1"
        # Its python daemon starts in the folder that somebody happens to be in, whose modules are none of its business.
        result["PYTHONSAFEPATH"] = "1"
    return result


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _one_spark(master: str, remote: str | None, config: Mapping[str, str]) -> None:
    """PySpark takes a Connect server from the environment, whatever master it is told, and says of it what nobody understands."""
    if os.environ.get("SPARK_REMOTE", remote) != remote:
        raise ConfigError(
            f"the environment's SPARK_REMOTE names another Spark than the master {shown(remote or master)}",
            remedy="unset it, or give its value as the master",
        )
    mode = config.get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))
    if remote is None and mode.lower() == "connect":
        raise ConfigError(
            f"with the master {master}, Spark's API mode cannot be connect (spark.api.mode, SPARK_API_MODE)",
            remedy="unset it, or give the address of a Connect server (sc://host:port) as the master",
        )


def _answers(master: str) -> None:
    """Spark itself tries for a minute and more, and then says little."""
    problems = []
    for host, port in addresses(master):
        try:
            socket.create_connection((host, port), timeout=_ANSWER).close()
            return
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
    if problems:
        what = "Spark Connect server" if master.startswith("sc://") else "Spark master"
        raise EnvironmentProblem(
            f"no {what} answers at {shown(master)} ({'; '.join(problems)})",
            remedy="see whether it runs, and the address",
        )


def _end_jvm(context: Any) -> None:
    """End the JVM that PySpark has started in this process, and let PySpark forget it."""
    gateway = context._gateway
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        _bounded(gateway.shutdown, _ANSWER)
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()  # it ends by itself at the end of its input
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with context._lock:
        context._gateway = None
        context._jvm = None
        context._active_spark_context = None
    from pyspark.sql import SparkSession

    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _bounded(work: Callable[[], T], seconds: float) -> T:
    """Do it in a thread of its own, and give up on it after so many seconds."""
    result: list[T] = []
    problem: list[BaseException] = []

    def do() -> None:
        try:
            result.append(work())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            problem.append(error)

    thread = threading.Thread(target=do, name="elastic-spark", daemon=True)
    thread.start()
    thread.join(seconds)
    if problem:
        raise problem[0]
    if not result:
        raise TimeoutError(f"no answer in {seconds:g} s")
    return result[0]
