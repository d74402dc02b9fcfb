"""The embedded server: starts, says why it cannot, leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from elastic.cluster import zookeeper_server
from elastic.cluster.java import VARIABLE
from elastic.cluster.zookeeper_server import EmbeddedZooKeeper, free_port, port_is_free
from elastic.coordination.zookeeper import connect
from elastic.errors import EnvironmentProblem
from tests.families import listens


def test_it_runs_on_the_wheels_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv(VARIABLE, "wheel")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.process is not None
        session = connect(server.address)
        try:
            session.create("/a", b"1")
        finally:
            session.close()
    assert server.process.returncode is not None


def test_only_this_machine_reaches_it_and_nothing_else_of_it_listens(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.process is not None
        listening = list(listens(psutil.Process(server.process.pid)))
        port = int(server.address.rpartition(":")[2])
        assert listening == [("127.0.0.1", port)]


@pytest.mark.parametrize("planted", [False, True])
def test_java_is_ready_to_be_managed_before_the_server_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """That takes the longest of all that it does between listening and serving, in which sessions' time runs."""
    options = [o for o in zookeeper_server._OPTIONS if not (planted and "authProvider" in o)]
    log = tmp_path / "classes.log"
    monkeypatch.setattr(zookeeper_server, "_OPTIONS", (*options, f"-Xlog:class+load:file={log}"))
    with EmbeddedZooKeeper(tmp_path / "z"):
        loaded = [line.split()[1] for line in log.read_text().splitlines() if len(line.split()) > 1]
    managed = loaded.index("com.sun.jmx.mbeanserver.JmxMBeanServer")
    listens = loaded.index("org.apache.zookeeper.server.NIOServerCnxnFactory$AcceptThread")
    assert (managed < listens) is not planted


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=f"port {port} is taken"):
            EmbeddedZooKeeper(tmp_path, port).start()
    assert not port_is_free(1) or os.getuid() == 0
    assert port_is_free(free_port())


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    server = EmbeddedZooKeeper(tmp_path)
    with pytest.raises(EnvironmentProblem, match="ZooKeeper ended while starting") as caught:
        server.start()
    assert str(server.log) in caught.value.remedy


def test_without_room_it_is_down_rather_than_listening_and_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is down sessions go on; what listens and does not serve costs them their time."""
    with EmbeddedZooKeeper(tmp_path) as server:
        server.stop()
        with monkeypatch.context() as full:
            full.setattr(zookeeper_server, "_ROOM", 1 << 60)
            with pytest.raises(
                EnvironmentProblem, match=f"no space left on the disk of {tmp_path}"
            ) as caught:
                server.launch()
        assert "Make room" in caught.value.remedy
        assert server.process is not None and server.process.poll() is not None
        server.start()


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "none")
    with pytest.raises(EnvironmentProblem, match="no Java"):
        EmbeddedZooKeeper(tmp_path).start()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, signal; from elastic.cluster.zookeeper_server import EmbeddedZooKeeper\n"
        "s = EmbeddedZooKeeper(pathlib.Path(sys.argv[1])); s.start(); print(s.process.pid, flush=True); signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    handle = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert select.select([handle], [], [], 30.0)[0]
    finally:
        os.close(handle)
        parent.stdout.close()


@pytest.mark.parametrize("name", ["jürgen", "with blanks", "back\\temp"])
def test_its_data_lie_where_they_belong_whatever_the_directory_is_called(tmp_path: Path, name: str) -> None:
    """Java reads settings by another encoding than they are written in, and takes a backslash for the beginning of a character."""
    with EmbeddedZooKeeper(tmp_path / name / "zk"):
        pass
    assert (tmp_path / name / "zk" / "data" / "version-2").is_dir()
    assert [p.name for p in tmp_path.iterdir()] == [name]
