"""The parts of the Spark host that need no Spark: generations, settings, masters, messages, and the task's helpers."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.errors import ConfigError, EnvironmentProblem, Refused, Unavailable
from elastic.hosts import generation, spark, spark_notices, spark_session, spark_task
from elastic.hosts.archives import without_archives
from elastic.hosts.base import NodeCommand
from elastic.hosts.child import exit_sentence, python_path
from elastic.hosts.spark_session import first_line
from elastic.hosts.spark_settings import is_here, local_with_retries, room, settings
from elastic.hosts.spark_task import Payload, Process
from elastic.model.ids import NodeId


def test_attempts_of_a_start_lie_between_the_starts_before_and_after_it() -> None:
    numbers = [generation.of_attempt(start, attempt) for start in (1, 2, 3) for attempt in (0, 1, 3, 5000)]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (("-m", "x", "--generation", "7", "--y"), ("-m", "x", "--generation", "7002", "--y")),
        (("--generation=7",), ("--generation=7002",)),
        (("-m", "x"), ("-m", "x")),
        (("--generation",), ("--generation",)),
        (("--generation", "many"), ("--generation", "many")),
    ],
)
def test_the_generation_in_the_arguments_becomes_that_of_the_attempt(
    given: tuple[str, ...], made: tuple[str, ...]
) -> None:
    assert generation.with_attempt(given, 2) == made


@pytest.mark.parametrize(
    ("master", "made", "nodes"),
    [
        ("local", "local[64,4]", 64),
        ("local[2]", "local[2,4]", 2),
        ("local[2,9]", "local[2,9]", 2),
        ("local[2, 9]", "local[2, 9]", 2),
        ("local[* ,9]", "local[* ,9]", os.cpu_count()),
        ("local[*]", "local[*,4]", os.cpu_count()),
        ("local-cluster[2,3,512]", "local-cluster[2,3,512]", 6),
        ("spark://h:7077", "spark://h:7077", None),
        ("yarn", "yarn", None),
    ],
)
def test_local_masters_get_retries_and_have_so_much_room(master: str, made: str, nodes: int | None) -> None:
    assert local_with_retries(master) == made
    assert room(made, {}) == room(master, {}) == nodes


def test_room_counts_the_cores_of_a_node() -> None:
    assert room("local[5,4]", {"spark.task.cpus": "2"}) == 2
    assert room("local-cluster[2,3,512]", {"spark.task.cpus": "2"}) == 2
    assert room("local[2]", {"spark.task.cpus": "4"}) == room("local[0]", {}) == 0


def test_a_cluster_elsewhere_keeps_its_own_settings() -> None:
    here, there = settings("spark://127.0.0.1:7077"), settings("spark://a:7077,b:7077")
    assert (is_here("spark://127.0.0.1:7077"), is_here("spark://a,b"), is_here("k8s://https://c")) == (
        True,
        False,
        False,
    )
    assert here["spark.driver.bindAddress"] == "127.0.0.1"
    assert not {k for k in there if "memory" in k or "ava" in k or "driver" in k or "ui.enabled" in k}
    assert settings("local", "/scratch")["spark.local.dir"] == "/scratch"
    assert "spark.local.dir" not in settings("yarn", "/scratch")
    assert there["spark.speculation"] == here["spark.speculation"] == "false"


@pytest.mark.parametrize(
    ("variable", "value", "remote", "said"),
    [
        (
            "SPARK_REMOTE",
            "sc://127.0.0.1:1/;token=secret",
            None,
            "SPARK_REMOTE names another Spark than the master local",
        ),
        (
            "SPARK_REMOTE",
            "sc://127.0.0.1:1",
            "sc://127.0.0.1:2/;token=secret",
            "another Spark than the master sc://127.0.0.1:2",
        ),
        ("SPARK_API_MODE", "Connect", None, "with the master local.*, Spark's API mode cannot be connect"),
    ],
)
def test_an_environment_that_means_another_spark_is_said(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, remote: str | None, said: str
) -> None:
    """PySpark would say that a session has no JVM, or wait for minutes."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=said) as told:
        spark_session.open_session("local", remote, {}, {}, "", "elastic", "")
    assert "secret" not in str(told.value)


def test_a_token_is_in_nothing_that_is_said_of_a_connect_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("sc://127.0.0.1:1/;token=se%20cret", "sc://127.0.0.1:1/;user_id=me;x-key=se%20cret"):
        with pytest.raises(EnvironmentProblem, match=r"answers at sc://127.0.0.1:1/;\.\.\. ") as told:
            spark_session.open_session("local", address, {}, {}, "", "elastic", "")
        assert "cret" not in str(told.value)

        def build(address: str = address) -> None:
            raise ValueError(f"Invalid URL {address}: token 'se cret' of me")

        monkeypatch.setattr(spark_session, "_answers", lambda _: None)
        monkeypatch.setattr(spark_session, "_connect", lambda *_, build=build: build())
        with pytest.raises(EnvironmentProblem, match=r"Invalid URL sc://127.*: token '\.\.\.' of me") as told:
            spark_session.open_session("local", address, {}, {}, "", "elastic", "")
        assert "cret" not in str(told.value)
        monkeypatch.undo()


def test_sparks_pages_become_a_line_with_the_cause() -> None:
    page = """An error occurred while calling o127.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times
Traceback (most recent call last):
  File "worker.py", line 1
ModuleNotFoundError: No module named 'elastic'

\tat org.apache.spark.Foo(Foo.scala:1)
"""
    line = first_line(RuntimeError(page))
    assert line.startswith("org.apache.spark.SparkException: Job aborted due to stage failure")
    assert line.endswith("(ModuleNotFoundError: No module named 'elastic')")
    assert first_line(RuntimeError()) == "RuntimeError"
    assert len(first_line(RuntimeError("x" * 10_000))) < 700


def test_exit_codes_as_sentences() -> None:
    assert [exit_sentence(c) for c in (0, 3, -9, -250)] == [
        "it ended with exit code 0",
        "it ended with exit code 3",
        "it was ended by SIGKILL",
        "it was ended by signal 250",
    ]


def test_what_the_task_is_told_survives_the_way() -> None:
    order = Payload("a", ("-m", "x"), {"A": "ü"}, "/log", Process.of(os.getpid()), "tag", "/notices")
    assert Payload.decode(order.encode()) == order


def test_a_process_is_recognised_and_another_with_its_number_is_not() -> None:
    this = Process.of(os.getpid())
    assert this.is_here()
    assert not Process(this.machine, this.pid, this.begun + "0").is_here()
    assert not Process("another machine", this.pid, this.begun).is_here()
    assert not Process(this.machine, 1 << 30, "").is_here()


def test_the_path_names_this_package_once_and_never_site_packages() -> None:
    here = str(Path(__file__).resolve().parents[2])
    assert python_path("/a").split(os.pathsep) == [here, "/a"]
    assert python_path(python_path("/a")) == python_path("/a")


def test_sparks_archives_are_left_out_where_pyspark_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["/spark/python/lib/pyspark.zip", "/spark/py4j-0.10.9.9-src.zip", "/theirs.zip", "/code"]
    assert without_archives(given) == ["/theirs.zip", "/code"]
    monkeypatch.setattr(sys, "path", [])
    assert without_archives(given) == given


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_what_the_daemon_imports_before_it_forks_starts_no_thread_and_no_heavy_package() -> None:
    code = """
import os, sys
import pyspark.worker, elastic.hosts.spark_task
print(len(os.listdir("/proc/self/task")), *[m for m in ("pyarrow", "pandas", "numpy", "grpc") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_a_start_of_spark_without_an_answer_is_waited_for_and_ended_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_session, "_ANSWER", 0.01)
    answer, closed = threading.Event(), threading.Event()
    late: Any = SimpleNamespace(close=closed.set)

    def build() -> Any:
        answer.wait()
        return late

    start = spark_session._Start()
    with pytest.raises(TimeoutError, match="no answer"):
        start.within(0.01, build)
    with pytest.raises(EnvironmentProblem, match="earlier start of Spark"):
        start.wait_for_earlier()
    answer.set()
    assert closed.wait(30), "what nobody waits for any more is ended"
    monkeypatch.setattr(spark_session, "_ANSWER", 10.0)
    start.wait_for_earlier()
    again: Any = SimpleNamespace()
    assert start.within(10, lambda: again) is again
    with pytest.raises(ValueError, match="no such master"):
        start.within(10, lambda: (_ for _ in ()).throw(ValueError("no such master")))


@pytest.mark.parametrize("come", [False, True])
def test_a_session_whose_start_was_interrupted_is_ended(monkeypatch: pytest.MonkeyPatch, come: bool) -> None:
    """By Ctrl-C: whether it had come at that moment or comes later, nobody has it."""
    answer, closed = threading.Event(), threading.Event()
    session: Any = SimpleNamespace(close=closed.set)

    class Interrupted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            if timeout is None:
                return super().result()
            if come:
                answer.set()
                super().result()
            raise KeyboardInterrupt

    def build() -> Any:
        answer.wait()
        return session

    monkeypatch.setattr(spark_session, "Future", Interrupted)
    start = spark_session._Start()
    with pytest.raises(KeyboardInterrupt):
        start.within(60, build)
    assert closed.is_set() is come
    answer.set()
    assert closed.wait(30)


def test_a_context_that_is_being_made_is_nobodys_session(monkeypatch: pytest.MonkeyPatch) -> None:
    core = SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=object()))
    monkeypatch.setitem(sys.modules, "pyspark", core)
    monkeypatch.delitem(sys.modules, "pyspark.sql.connect.session", raising=False)
    assert spark_session._active() is None


def test_a_session_is_asked_after_a_job_has_failed_though_its_jvm_is_still_a_process() -> None:
    """One that is being killed has lost its connections already, and one whose application was killed answers for its session all the
    same: a node that was given to it would fail as well, at once."""
    answers: list[Exception | str] = ["UTC", "UTC", RuntimeError("nobody answers")]
    stopped = [False, True]

    def get(_: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    jvm = SimpleNamespace(poll=lambda: None)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped.pop(0)))
    context = SimpleNamespace(_gateway=SimpleNamespace(proc=jvm), _jsc=java, addJobTag=lambda tag: None)
    spark = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(get=get))
    session = spark_session.Session(spark, owned=True, connect=False, own_jvm=True, slots=1)

    def fail() -> None:
        raise RuntimeError("its Spark job failed")

    assert session.usable() and len(answers) == 3, "nobody doubts it"
    for still in (True, False, False):
        with pytest.raises(RuntimeError):
            session.run_tagged("a", fail)
        assert session.usable() is still
    assert not answers


class Standing:
    """Spark whose jobs run until they are cancelled, and that answers nothing else until it is told to."""

    def __init__(self) -> None:
        self.jobs: dict[str, threading.Event] = {}
        self.running = threading.Semaphore(0)
        self.answers = threading.Event()
        self.conf = SimpleNamespace(get=lambda _: self.answers.wait())
        gateway = SimpleNamespace(proc=SimpleNamespace(poll=lambda: None))
        self.sparkContext = SimpleNamespace(
            _gateway=gateway,
            _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)),
            addJobTag=self._tag,
            cancelJobsWithTag=lambda t: self.jobs[t].set(),
        )
        self._own = threading.local()

    def _tag(self, tag: str) -> None:
        self._own.job = self.jobs[tag] = threading.Event()

    def range(self, *_: int) -> Standing:
        return self

    mapInArrow = range

    def collect(self) -> None:
        self.running.release()
        self._own.job.wait()
        raise RuntimeError("its job was cancelled")


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[spark.SparkHost, Standing, list[str]]]:
    """(a host of that Spark, it, what becomes of its session)."""
    monkeypatch.setattr(spark_session, "_ANSWER", 0.01)
    monkeypatch.setattr(spark_session.Session, "close", lambda session: said.append("closed"))
    made, said = Standing(), ["opened"]
    host = spark.SparkHost()
    host._session = spark_session.Session(made, owned=True, connect=False, own_jvm=True, slots=None)
    another: Any = SimpleNamespace(
        usable=lambda: True, slots=1, close=lambda: said.append("the other closed")
    )
    monkeypatch.setattr(spark, "open_session", lambda *_: said.append("opened") or another)
    yield host, made, said
    made.answers.set()
    host.close()


def started(host: spark.SparkHost, name: str) -> spark.SparkNode:
    return host.start(NodeCommand(NodeId(name), (), {}, ""), lambda node, why: None)


def two_running(host: spark.SparkHost, made: Standing) -> list[spark.SparkNode]:
    nodes = [started(host, name) for name in "ab"]
    for _ in nodes:
        assert made.running.acquire(timeout=30)
    return nodes


def test_a_spark_that_is_too_small_for_any_node_is_said(
    standing: tuple[spark.SparkHost, Standing, list[str]],
) -> None:
    """Its job would wait for ever."""
    host, _, _ = standing
    assert host._session is not None
    host._session.slots = 0
    with pytest.raises(EnvironmentProblem, match=r"node a: Spark has room for no node at local"):
        started(host, "a")


def test_a_session_is_not_doubted_for_a_node_that_was_cancelled(
    standing: tuple[spark.SparkHost, Standing, list[str]],
) -> None:
    host, made, said = standing
    nodes = two_running(host, made)
    nodes[0].stop(0.0)
    started(host, "c")
    assert made.running.acquire(timeout=30)
    assert nodes[1].alive() and said == ["opened"], "though it would not have answered"


def test_a_node_that_waits_for_room_is_not_given_time_to_end(
    standing: tuple[spark.SparkHost, Standing, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_session, "_ANSWER", 60.0)
    host, made, _ = standing
    nodes = two_running(host, made)
    active = {nodes[0].tag: 1, nodes[1].tag: 0}
    tags, executors = list(active), [0, 1]
    made.sparkContext.statusTracker = lambda: SimpleNamespace(
        getJobInfo=lambda job: SimpleNamespace(stageIds=[job]),
        getStageInfo=lambda stage: SimpleNamespace(numActiveTasks=active[tags[stage]]),
        getActiveStageIds=lambda: [0, 1],
        getExecutorInfos=lambda: [SimpleNamespace(numRunningTasks=n) for n in executors],
    )
    jvm = SimpleNamespace(getJobIdsForTag=lambda tag: [tags.index(tag)] if tag in tags else [])
    made.sparkContext._jsc.sc = lambda: SimpleNamespace(statusTracker=lambda: jvm)
    assert host._session is not None
    assert [host._session.waits(tag) for tag in (*tags, "another")] == [False, True, False]
    executors[0] = 1
    assert not host._session.waits(nodes[1].tag), "it has begun, and its stage does not show it yet"
    executors[0] = 0
    nodes[1].stop(threading.TIMEOUT_MAX)
    assert nodes[0].alive() and not nodes[1].alive()


def test_spark_that_does_not_answer_is_not_ended_under_its_nodes(
    standing: tuple[spark.SparkHost, Standing, list[str]],
) -> None:
    host, made, said = standing
    nodes = two_running(host, made)
    made.jobs[nodes[0].tag].set()
    nodes[0]._thread.join(30)
    with pytest.raises(Unavailable, match=r"does not answer .*while it has b"):
        started(host, "c")
    assert nodes[1].alive() and said == ["opened"]
    made.answers.set()
    nodes.append(started(host, "c"))
    assert made.running.acquire(timeout=30) and said == ["opened"], "the same again, now that it answers"
    made.answers.clear()
    for node in nodes[1:]:
        made.jobs[node.tag].set()
        node._thread.join(30)
    host.open()
    assert said == ["opened", "closed", "opened"], "with nobody in it"


def test_a_node_is_not_waited_for_where_spark_does_not_answer(
    standing: tuple[spark.SparkHost, Standing, list[str]],
) -> None:
    host, made, _ = standing
    nodes = two_running(host, made)
    made.sparkContext.cancelJobsWithTag = lambda _: made.answers.wait()
    with pytest.raises(Unavailable, match=r"cannot be told to cancel .*no answer"):
        nodes[0].stop(0.0)
    for job in made.jobs.values():
        job.set()


def test_a_session_of_a_local_cluster_ends_though_its_jvm_says_nothing_any_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it has left in Spark's installation goes with it. It was asked for there and then, and nodes were never started again."""
    monkeypatch.setattr("pyspark.find_spark_home._find_spark_home", lambda: str(tmp_path))
    context = SimpleNamespace(master="local-cluster[1,1,512]", applicationId="app-1")
    work = spark_session._work(context)
    assert work == tmp_path / "work" / "app-1"
    work.mkdir(parents=True)
    del context.applicationId
    made = SimpleNamespace(sparkContext=context, stop=lambda: None)
    spark_session.Session(made, owned=True, connect=False, own_jvm=False, slots=1, work=work).close()
    assert not work.exists()
    context.master = "local[2]"
    assert spark_session._work(context) is None


def test_a_jvm_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "_ANSWER", 0.01)
    answers = threading.Event()
    jvm = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    gateway = SimpleNamespace(proc=jvm, shutdown=answers.wait)
    spark_session._end_jvm(SimpleNamespace(_gateway=gateway, _lock=threading.Lock()))
    assert jvm.poll() is not None
    answers.set()


def test_a_connect_server_that_does_not_answer_keeps_no_process_from_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark asks it once more when its process exits, unless the connection has been closed."""
    monkeypatch.setattr(spark_session, "_STOP", 0.01)
    closed = threading.Event()
    client = SimpleNamespace(is_closed=False, close=closed.set)
    there = SimpleNamespace(stop=closed.wait, client=client)
    spark_session.Session(there, owned=True, connect=True, own_jvm=False, slots=None).close()
    assert closed.wait(30)


@pytest.mark.parametrize("others", [True, False])
def test_a_start_that_fails_ends_no_jvm_but_its_own(others: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    ended: list[object] = []

    def fail(_variables: object) -> None:
        raise RuntimeError("no memory for it")

    monkeypatch.setattr(SparkContext, "_gateway", object() if others else None)
    monkeypatch.setattr(spark_session, "_active", lambda: None)
    monkeypatch.setattr(spark_session, "_environment", fail)
    monkeypatch.setattr(spark_session, "_end_jvm", ended.append)
    monkeypatch.setattr(spark_session, "_start", spark_session._Start())
    with pytest.raises(EnvironmentProblem, match="no memory for it"):
        spark_session.open_session("local", None, {}, {}, "", "test", "")
    assert len(ended) == (0 if others else 1)


def test_a_start_without_an_answer_is_given_up_when_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    answer = threading.Event()

    def hang(_variables: object) -> None:
        answer.wait()
        raise RuntimeError("it came to nothing")

    monkeypatch.setattr(SparkContext, "_gateway", object())
    monkeypatch.setattr(spark_session, "_active", lambda: None)
    monkeypatch.setattr(spark_session, "_environment", hang)
    monkeypatch.setattr(spark_session, "_start", spark_session._Start())
    host = spark.SparkHost("local", patience=0.01)
    try:
        with pytest.raises(EnvironmentProblem, match=r"no answer in 0\.01 s\n.*elastic up --ready-timeout"):
            host.open()
    finally:
        answer.set()
        host.close()


def test_a_host_is_closed_though_another_thread_starts_spark_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted fault: it waited for as long as a start may take, three minutes."""
    from pyspark import SparkContext

    begun, answer = threading.Event(), threading.Event()

    def hang(_variables: object) -> None:
        begun.set()
        answer.wait()
        raise RuntimeError("it came to nothing")

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(spark, "_COMING", 0.01)
    monkeypatch.setattr(spark_session, "_active", lambda: None)
    monkeypatch.setattr(spark_session, "_environment", hang)
    monkeypatch.setattr(spark_session, "_start", spark_session._Start())
    host = spark.SparkHost("local")
    with ThreadPoolExecutor(2) as threads:
        try:
            opening = threads.submit(host.open)
            assert begun.wait(30)
            closing = threads.submit(host.close)
            with pytest.raises(EnvironmentProblem, match="given up, as the Spark host is closed"):
                opening.result(30)
            closing.result(30)
        finally:
            answer.set()
    with pytest.raises(Refused):
        host.open()


@pytest.mark.skipif(sys.platform != "linux", reason="no task finds its launcher elsewhere")
def test_notices_are_taken_again_when_there_are_descriptors_again(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, come = [], threading.Event()

    def told(tag: str, supervisor: Process) -> None:
        heard.append((tag, supervisor))
        come.set()

    accept, failures = socket.socket.accept, iter([True])

    def fails_once(listener: socket.socket) -> Any:
        if next(failures, False):
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(spark_notices, "_PAUSE", 0.01)
    monkeypatch.setattr(socket.socket, "accept", fails_once)
    notices = spark_notices.Notices(told)
    me = Process.of(os.getpid())
    try:
        order = Payload("n", (), {}, log="", launcher=me, tag="t", notices=notices.address)
        spark_task._notify(order, me)
        assert come.wait(30) and heard == [("t", me)] and next(failures, None) is None
    finally:
        notices.close()
    assert not notices._thread.is_alive()


def test_an_error_whose_text_cannot_be_asked_for_any_more_is_named() -> None:
    """Of Java, whose process has just gone."""

    class Gone(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert first_line(Gone()) == "Gone"


def test_a_notice_that_comes_while_the_host_is_closed_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor is asked to end; else its job would be cancelled after the whole grace."""
    over, asked, cancelled = threading.Event(), [], []

    class Frame:
        def mapInArrow(self, *_: Any) -> Frame:
            return self

        def collect(self) -> list[Any]:
            over.wait(60)
            return []

    session: Any = SimpleNamespace(
        slots=None,
        spark=SimpleNamespace(range=lambda *_: Frame()),
        usable=lambda: True,
        run_tagged=lambda tag, work: work(),
        cancel=lambda tag: (cancelled.append(tag), over.set()),
        waits=lambda tag: False,
        close=lambda: None,
    )

    def signal_(handle: int, number: int) -> None:
        asked.append(number)
        over.set()

    monkeypatch.setattr(spark, "_signal", signal_)
    host = spark.SparkHost(grace=60.0)
    host._session = session
    node = host.start(NodeCommand("node-1", (), {}, ""), lambda node, why: None)  # type: ignore[arg-type]
    stopping, stop = threading.Event(), node.stop

    def stops(grace: float) -> None:
        stopping.set()
        stop(grace)

    monkeypatch.setattr(node, "stop", stops)
    closing = threading.Thread(target=host.close)
    closing.start()
    assert stopping.wait(60)
    supervisor: Any = SimpleNamespace(open=lambda: os.open("/dev/null", os.O_RDONLY))
    host._told(node.tag, supervisor)
    closing.join(90)
    assert asked == [signal.SIGTERM] and not cancelled and not closing.is_alive()
