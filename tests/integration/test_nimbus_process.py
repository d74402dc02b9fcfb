"""The process of a Nimbus, on a real ZooKeeper: answers, is followed by another one, and ends as it should."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elastic.control.client import Client
from elastic.coordination import paths
from elastic.coordination.zookeeper import connect
from elastic.errors import Ended, NotFound, Refused
from elastic.model.events import Event
from elastic.procs import end, spawn
from elastic.reporting.grpc_client import GrpcReporter

WAIT = 60.0


@dataclass
class Process:
    child: subprocess.Popen[bytes]
    log: Path
    address_file: Path

    @property
    def address(self) -> str:
        pause = threading.Event()
        for _ in range(int(WAIT / 0.05)):
            if self.address_file.exists():
                return self.address_file.read_text()
            assert self.child.poll() is None, self.log.read_text()
            pause.wait(0.05)
        raise AssertionError(f"no address: {self.log.read_text()}")


class Cluster:
    def __init__(self, zookeeper: str, directory: Path) -> None:
        self.zookeeper, self.directory = zookeeper, directory
        self.processes: list[Process] = []

    def nimbus(self, *more: str, zookeeper: str = "") -> Process:
        number = len(self.processes)
        log, address = self.directory / f"nimbus-{number}.log", self.directory / f"address-{number}"
        command = [
            sys.executable,
            "-m",
            "elastic.control.nimbus_main",
            "--directory",
            str(self.directory / "nimbus"),
        ]
        command += [
            "--zookeeper",
            zookeeper or self.zookeeper,
            "--cluster",
            "test",
            "--address-file",
            str(address),
        ]
        command += ["--session-timeout", "4", *more]
        self.processes.append(Process(spawn(command, log=log), log, address))
        return self.processes[-1]


@pytest.fixture
def cluster(zookeeper_address: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(zookeeper_address, tmp_path)
    yield cluster
    for process in cluster.processes:
        process.child.send_signal(signal.SIGCONT)
        end(process.child, 10)


def test_two_of_them_the_second_takes_over(cluster: Cluster) -> None:
    one, two = cluster.nimbus(), cluster.nimbus()
    with Client([one.address, two.address], timeout=WAIT) as client:
        client.list()
        leader = client.info()
        assert (leader.cluster, leader.leading, leader.leader) == ("test", True, leader.address)
        assert client.nodes() == ()
        with pytest.raises(NotFound):
            client.describe("nothing")
        first, second = (one, two) if leader.address == one.address else (two, one)
        coordination = connect(cluster.zookeeper, session_timeout=4)
        reporter = GrpcReporter(coordination, "n1")
        stream = client.events(follow=True)

        def next_of(kind: str) -> Event:
            return next(event for _, event in stream if event.kind == kind)

        reporter.report("n1", [], [Event(1.0, "first", "told to the first leader")])
        assert next_of("first").message == "told to the first leader"
        first.child.kill()
        reporter.report("n1", [], [Event(2.0, "second", "told to the next one")])
        assert next_of("second").message == "told to the next one"
        assert client.info().address == second.address
        stream.close()
        reporter.close()
        coordination.close()
        second.child.terminate()
        assert second.child.wait(WAIT) == 0, second.log.read_text()
        assert "Traceback" not in second.log.read_text()


def test_who_follows_it_is_told_that_the_cluster_has_ended(cluster: Cluster) -> None:
    process = cluster.nimbus()
    coordination = connect(cluster.zookeeper, session_timeout=4)
    with Client(process.address, timeout=WAIT) as client:
        stream = client.events(follow=True)
        assert next(event.kind for _, event in stream) == "nimbus-elected"
        coordination.set(paths.WANTED, paths.WANTED_SAID)
        coordination.delete(paths.WANTED, recursive=True)  # as the launcher does
        coordination.close()
        process.child.terminate()
        with pytest.raises(Ended, match="cluster test has ended"):
            list(stream)
    assert process.child.wait(WAIT) == 0, process.log.read_text()


def test_it_ends_with_its_session(cluster: Cluster) -> None:
    process = cluster.nimbus()
    with Client(process.address, timeout=WAIT) as client:
        client.list()
    process.child.send_signal(signal.SIGSTOP)
    # Another one leads when the session of the first has expired.
    other = cluster.nimbus()
    with Client(other.address, timeout=WAIT) as client:
        client.list()
    process.child.send_signal(signal.SIGCONT)
    assert process.child.wait(WAIT) == 4, process.log.read_text()
    assert "session is lost" in process.log.read_text()


def test_what_cannot_be_is_refused_with_its_exit_code(cluster: Cluster) -> None:
    address = cluster.nimbus().address
    refused = [
        (cluster.nimbus("--listen", "0.0.0.0:0"), 2, "no authentication"),
        (cluster.nimbus("--listen", "0.0.0.0:0", "--allow-remote"), 2, "--advertise"),
        (cluster.nimbus("--option", "retention=x"), 2, "cannot be 'x'"),
        (cluster.nimbus("--option", "nothing=1"), 2, "no option of Nimbus"),
        (cluster.nimbus("--listen", address), 11, "port taken"),
        (cluster.nimbus("--connect-timeout", "1", zookeeper="127.0.0.1:1"), 7, "127.0.0.1:1"),
    ]
    for process, code, says in refused:
        assert process.child.wait(WAIT) == code
        assert says in process.log.read_text()
        assert "Traceback" not in process.log.read_text()


def test_nobody_to_submit_to_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    from control_fake import spec

    bundle = tmp_path / "b.zip"
    bundle.write_bytes(b"zip")
    with Client(cluster.nimbus().address, timeout=WAIT) as client, pytest.raises(Refused, match="no nodes"):
        client.submit(spec(), bundle)
