"""DataFrames in and out, with a real Spark and a real cluster: each row once, and those of a key in order, while tasks of the spout, of the
sink and of what is between them move, and although Spark's driver is killed in the midst and begins again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_harness import LIMIT, Cluster, environment, wait_until, with_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

JOB = '''
from pathlib import Path

from elastic import Fields, KeyedState, StatefulBolt, TopologyBuilder
from elastic.spark import DataFrameSink, DataFrameSpout


class Sum(StatefulBolt):
    """Every number of a user, once and in order: else the tuple fails, and the topology with it."""

    outputs = Fields(user=str, n=int, total=float)
    counts = KeyedState(int)
    totals = KeyedState(float)

    def execute(self, tup):
        if tup.n != self.counts[tup.user]:
            raise AssertionError(f"{tup.user}: {tup.n} instead of {self.counts[tup.user]}")
        self.counts[tup.user] += 1
        self.totals[tup.user] += tup.amount
        self.emit(tup.user, tup.n, self.totals[tup.user])


def topology(args):
    home = Path(args[0])
    b = TopologyBuilder("orders", workers=2, max_errors=0)
    b.spout("orders", DataFrameSpout(home / "in", Fields(user=str, n=int, amount=float)), tasks=2, executors=2)
    b.bolt("sum", Sum(), tasks=6, executors=2).fields("orders", "user")
    b.bolt("totals", DataFrameSink(home / "out", Fields(user=str, n=int, total=float)), tasks=2, executors=2, tick_interval=0.2).fields(
        "sum", "user"
    )
    return b
'''
USERS, EACH = 20, 15


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with with_job(tmp_path_factory, JOB, "--nodes", "2", "--slots", "2") as made:
        (made.work / "source").mkdir()
        yield made


class Application:
    """See `dataframes_driver`."""

    def __init__(self, directory: Path) -> None:
        driver = Path(__file__).with_name("dataframes_driver.py")
        self.process = subprocess.Popen(
            [sys.executable, str(driver), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """All of it, JVM and Python workers included."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(LIMIT) == 0


def comes(work: Path, number: int) -> None:
    """A file with the next numbers of all users appears at the source."""
    lines = [
        json.dumps({"user": f"u{user}", "n": number * EACH + i, "amount": 1.0})
        for i in range(EACH)
        for user in range(USERS)
    ]
    part = work / f".{number}.part"
    part.write_text("\n".join(lines) + "\n")
    part.rename(work / "source" / f"{number:05}.json")


def results(work: Path) -> list[dict[str, object]]:
    """What Spark's own sink has committed."""
    import pyarrow as pa
    from pyarrow import json as read

    log = work / "result" / "_spark_metadata"
    files = {
        json.loads(line)["path"].removeprefix("file://")
        for entry in (sorted(log.glob("[0-9]*")) if log.exists() else [])
        for line in entry.read_text().splitlines()[1:]
    }
    found = [read.read_json(f) for f in sorted(files) if Path(f).stat().st_size]
    return pa.concat_tables(found).to_pylist() if found else []


def test_each_row_comes_once_whatever_moves_and_ends(cluster: Cluster) -> None:
    work = cluster.work
    wait_until("the sink has declared its columns", (work / "out" / "schema.arrow").exists)
    application = Application(work)
    for number in range(2):
        comes(work, number)
    wait_until("results come", lambda: len(results(work)) >= USERS * EACH)
    moved = cluster("rebalance", "orders", "--workers", "1")
    assert moved.code == 0, moved.err
    for number in range(2, 4):
        comes(work, number)
    wait_until(
        "the pipe is written to again", lambda: len(list((work / "checkpoint-in" / "commits").iterdir())) >= 3
    )
    application.kill()  # wherever it is just then
    moved = cluster("rebalance", "orders", "--workers", "2")
    assert moved.code == 0, moved.err
    for number in range(4, 6):
        comes(work, number)
    application = Application(work)
    try:
        wait_until("all has come", lambda: len(results(work)) >= 6 * USERS * EACH)
        time.sleep(1.0)  # what would come twice needs time to
    finally:
        application.end()
    found = Counter((r["user"], r["n"], r["total"]) for r in results(work))
    assert found == {(f"u{user}", n, n + 1.0): 1 for user in range(USERS) for n in range(6 * EACH)}
    described = cluster.described("orders")
    assert described["status"] == "active"
    assert described["moved"]["committed"] >= 4 and not described["moved"]["lost"]


def test_what_was_finished_ends_the_topology(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"from elastic.spark import finish; finish({str(cluster.work / 'in')!r})"],
        env=environment(),
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0
    wait_until("it has ended", lambda: cluster.described("orders")["status"] == "finished")


@pytest.mark.slow
def test_the_example(tmp_path: Path) -> None:
    """The two commands that it begins with, beside each other."""
    example = Path(__file__).parents[2] / "examples" / "dataframes.py"
    words = [str(example), "--pipes", str(tmp_path)]
    topology = subprocess.Popen(
        [sys.executable, "-m", "elastic.control.cli", "run", *words], env=environment()
    )
    try:
        spark = subprocess.run(
            [sys.executable, *words, "--orders", "20000"],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=3 * LIMIT,
        )
        assert spark.returncode == 0, spark.stderr
        assert "Equal: the totals of 100 users." in spark.stdout
        assert topology.wait(LIMIT) == 0
    finally:
        topology.kill()
        topology.wait()
