"""Who listens where, what is said about it, and the commands that come of it."""

from __future__ import annotations

import errno
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from elastic.cluster import commands, network, supervisor_main, zookeeper_server
from elastic.cluster.options import UpOptions
from elastic.errors import ConfigError, EnvironmentProblem
from elastic.model.codec import decode, encode
from elastic.model.ids import NodeId
from elastic.model.records import WantedNode

SPARK = {"host": "spark", "master": "spark://head:7077"}
WANTED = WantedNode(2)


def options(**given: Any) -> UpOptions:
    return UpOptions(**{"cluster": "c", "home": "/h", **given}).validate()


def node(made: UpOptions, wanted: WantedNode = WANTED) -> Any:
    """The arguments as the supervisor takes them; what Python takes is left out."""
    command = commands.node(made, "zk:1/e", NodeId("n"), 3, wanted)
    return supervisor_main._parser().parse_args(command.arguments[3:])


@pytest.mark.parametrize(
    "bind", ["0.0.0.0", "255.255.255.255", "224.0.0.1", "::1", "", "head", "10.0.0", "10.0.0.5:1"]
)
def test_addresses_by_which_nobody_can_come(bind: str) -> None:
    with pytest.raises(ConfigError, match="nobody can be told") as caught:
        options(bind=bind)
    assert "address of this machine" in caught.value.remedy


def test_an_address_of_another_machine_is_refused_with_the_way_to_find_ones_own() -> None:
    network.check_local("127.0.0.1")
    with pytest.raises(
        EnvironmentProblem, match=r"192\.0\.2\.1: it is not an address of this machine"
    ) as caught:
        network.check_local("192.0.2.1")  # TEST-NET-1: nobody's
    assert "ip -4 addr" in caught.value.remedy


class FakeSocket(socket.socket):
    """One whose machine reaches 192.0.2.1 from 192.0.2.9, and nobody else."""

    to: Any = None

    def connect(self, address: Any) -> None:
        self.to = address
        if address[0] != "192.0.2.1":
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    def getsockname(self) -> Any:
        return ("192.0.2.9" if self.to else "0.0.0.0", 40000)


@pytest.mark.parametrize(
    ("zookeeper", "expected"),
    [
        ("127.0.0.1:2181/e", "127.0.0.1"),
        ("127.0.0.2:2181", "127.0.0.2"),
        ("localhost:2181/a/b", "127.0.0.1"),
        ("192.0.2.1:2181/e", "192.0.2.9"),
        ("198.51.100.1:2181,192.0.2.1:2181/e", "192.0.2.9"),
    ],
)
def test_a_node_is_where_its_machine_reaches_zookeeper_from(
    zookeeper: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "socket", FakeSocket)
    assert network.own_address(zookeeper) == expected


def test_no_way_to_zookeeper_is_said_for_every_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", FakeSocket)
    with pytest.raises(EnvironmentProblem, match=r"100\.1:1: .*unreachable; 198\.51\.100\.2:x: ") as caught:
        network.own_address("198.51.100.1:1,198.51.100.2:x/e")
    assert "--host" in caught.value.remedy


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, []),
        ({"bind": "127.0.0.2"}, []),
        ({"host": "spark"}, []),
        ({"host": "spark", "master": "spark://127.0.0.1:7077"}, []),
        ({"zookeeper": "zk:2181"}, []),
        (SPARK, ["--bind ADDRESS"]),
        ({"host": "spark", "master": "yarn", "zookeeper": "zk:2181/e"}, ["--bind ADDRESS"]),
        ({"host": "spark", "master": "sc://head", "bind": "127.0.0.2"}, ["--bind ADDRESS"]),
        ({"host": "spark", "master": "sc://head/;token=x"}, ["nodes of sc://head/;... on other machines"]),
        ({"bind": "10.0.0.5"}, ["no authentication"]),
        ({**SPARK, "bind": "10.0.0.5"}, ["no authentication"]),
        ({**SPARK, "bind": "10.0.0.5", "zookeeper": "zk:2181"}, ["no authentication"]),
        (
            {**SPARK, "bind": "10.0.0.5", "zookeeper": "localhost:2181,zk:2181/e"},
            ["no authentication", "cannot reach ZooKeeper at localhost:2181"],
        ),
    ],
)
def test_what_is_said_before_the_start(given: dict[str, Any], says: list[str]) -> None:
    said = network.warnings(options(**given))
    assert len(said) == len(says)
    for text, part in zip(said, says, strict=True):
        assert part in text


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.0.0.2"])
def test_on_loopback_nothing_may_listen_beyond_it(bind: str) -> None:
    for given in ({}, {"zookeeper": "zk:2181/e"}, SPARK):
        made = options(bind=bind, **given)
        there = node(made)
        assert (there.host, there.allow_remote) == (bind, False)  # also when ZooKeeper is elsewhere
        assert "--allow-remote" not in commands.nimbus(made, "zk:1", f"{bind}:1")


def test_beyond_loopback_only_when_told() -> None:
    for given in ({}, {"zookeeper": "zk:2181/e"}, SPARK):
        made = options(bind="10.0.0.5", **given)
        there = node(made)
        assert (there.host, there.allow_remote) == ("auto", True)
        assert "--allow-remote" in commands.nimbus(made, "zk:1", "10.0.0.5:1")


def test_a_node_on_this_machine_lives_in_the_clusters_directory_and_leaves_it_to_down() -> None:
    for made in (options(), options(host="spark"), options(host="spark", master="local-cluster[2,1,512]")):
        there = node(made)
        assert (there.directory, there.run_dir) == (Path("/h/c/nodes/n"), Path("/h/c/run"))
        assert not there.remove_directory


def test_a_node_in_the_clusters_directory_asks_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container of which nothing else can be written there is none."""

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", none)
    assert supervisor_main._directory(node(options())) == Path("/h/c/nodes/n")


def test_a_node_elsewhere_lives_among_the_temporary_files_there_and_removes_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = node(options(**SPARK))
    assert there.remove_directory and not there.directory.is_absolute()
    assert len(there.directory.parts) == 1, "nobody else's is in it"
    assert there.run_dir == there.directory / "run"
    monkeypatch.setattr("tempfile.tempdir", "/elsewhere")
    assert supervisor_main._directory(there) == Path("/elsewhere") / there.directory
    assert commands.node(options(**SPARK), "zk:1", NodeId("n"), 1, WANTED).log == ""
    said, remedy = commands.node_said(options(**SPARK), NodeId("n"), "")
    assert said == "" and "spark.task.cpus" in remedy and "pages of Spark" in remedy and "--bind" in remedy
    process = WantedNode(2, host="process")
    assert node(options(**SPARK), process).directory == Path("/h/c/nodes/n"), "each by its own kind"


@pytest.mark.parametrize("master", ["", "local[3]", "spark://head:7077", "sc://head:15002"])
def test_spark_gets_its_settings_and_a_place_that_down_removes(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastic.cluster.java.java_environment", lambda: {"JAVA_HOME": "/java"})
    made = options(host="spark", master=master, spark_conf=("a=1", "b=x=y", "a=2", "c="))
    made = decode(encode(made), UpOptions)  # as the launcher gets it
    host = commands.host(made, "spark")
    assert made.spark_settings == {"a": "2", "b": "x=y", "c": ""}
    assert vars(host)["_config"] == made.spark_settings
    assert vars(host)["_scratch"] == "/h/c/spark"
    assert vars(host)["_patience"] == 180.0
    slow = commands.host(options(host="spark", master=master, ready_timeout=600.0), "spark")
    assert vars(slow)["_patience"] == 600.0, "it may wait for room, and the user has said for how long"
    assert vars(host)["_remote"] == (master if master.startswith("sc:") else None)


def test_processes_know_whether_zookeeper_is_the_launchers_own() -> None:
    """With somebody else's a refused connection says nothing: it may be one of an ensemble, or a tunnel."""
    for given, own in (("", True), ("zk:1/e", False)):
        made = options(zookeeper=given)
        node = commands.node(made, "zk:1/e", NodeId("n"), 1, WANTED)
        assert ("--own-zookeeper" in node.arguments) is own
        assert ("--own-zookeeper" in commands.nimbus(made, "zk:1/e", "127.0.0.1:1")) is own


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([21000, 21000, 21001, 21001, 21000, 21002])
    monkeypatch.setattr("random.randrange", lambda *_: next(drawn))
    monkeypatch.setattr(zookeeper_server, "port_is_free", lambda *_: True)
    ports = commands.nimbus_ports(options(nimbus=2))
    assert ports == [21000, 21001]
    assert zookeeper_server.free_port(besides=ports) == 21002


def test_a_full_disk_is_named_where_the_end_of_a_log_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "zookeeper.log"
    log.write_text("SLF4J(W): No SLF4J providers were found.\n")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1 << 30))
    assert zookeeper_server.tail(log) == "SLF4J(W): No SLF4J providers were found."
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=4096))
    said = zookeeper_server.tail(log).splitlines()
    assert said[0] == f"no space left on the disk of {tmp_path} (4 KiB are free)" and "SLF4J" in said[1]
