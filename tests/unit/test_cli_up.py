"""up and down: options, refusals, and what is said; the launcher itself is replaced."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from cli_fake import invoke

from elastic.cluster import commands
from elastic.cluster.directory import ClusterInfo
from elastic.cluster.options import UpOptions
from elastic.control import nimbus_main
from elastic.control.cli.cluster import up
from elastic.control.cli.failures import INTERRUPTED
from elastic.control.cli.narration import Waiting
from elastic.errors import ConfigError, NotFound
from elastic.nimbus.options import NimbusOptions


class FakeLauncher(ModuleType):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__("elastic.cluster.launcher")
        self.asked: list[Any] = []

    def start_background(self, options: UpOptions, on_progress: Callable[[str], None]) -> ClusterInfo:
        self.asked.append(options)
        on_progress("ZooKeeper is up")
        return ClusterInfo(
            options.cluster,
            str(options.directory),
            1,
            "x",
            "127.0.0.1:2/e",
            ("127.0.0.1:3",),
            options,
            1.0,
            True,
        )

    def stop(
        self,
        home: Path,
        cluster: str,
        *,
        purge: bool,
        timeout: float,
        on_progress: Callable[[str], None],
        on_killed: Callable[[str], None],
    ) -> None:
        self.asked.append((home, cluster, purge, timeout))
        if cluster == "gone":
            raise NotFound("no cluster named gone runs here")
        if cluster == "stuck":
            on_progress("ending cluster stuck")
            on_killed("it has not ended within 2 s, and is killed")


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> FakeLauncher:
    import elastic.cluster

    fake = FakeLauncher()
    monkeypatch.setitem(sys.modules, "elastic.cluster.launcher", fake)
    monkeypatch.setattr(elastic.cluster, "launcher", fake, raising=False)
    return fake


def test_up_passes_its_options_on(launcher: FakeLauncher, tmp_path: Path) -> None:
    words = ["--nodes", "3", "--slots", "4", "--host", "spark", "--master", "local[3]", "--nimbus", "2"]
    words += [
        "--zookeeper",
        "zk:2181/e",
        "--session-timeout",
        "4s",
        "--supervisor-cycle",
        "1",
        "--worker-cycle",
        "2",
        *("--spark-conf", "spark.task.cpus=2", "--spark-conf", "spark.x=a=b", "--bind", "127.0.0.3"),
        *("--store", "hazelcast:grid@h1:5701,h2:5701", "--store-memory", "256M", "--store-backups", "2"),
        *("--move-share", "0.25", "--move-prepare", "10m", "--move-pause", "5s", "--move-restore", "7"),
        *("--move-tries", "1"),
    ]
    result = invoke(None, "up", "--home", str(tmp_path), "--cluster", "c", *words)
    assert result.exit_code == 0, result.output
    assert launcher.asked == [
        UpOptions(
            cluster="c",
            home=str(tmp_path),
            nodes=3,
            slots=4,
            host="spark",
            master="local[3]",
            spark_conf=("spark.task.cpus=2", "spark.x=a=b"),
            bind="127.0.0.3",
            zookeeper="zk:2181/e",
            nimbus=2,
            store="hazelcast:grid@h1:5701,h2:5701",
            store_memory=256 << 20,
            store_backups=2,
            move_share=0.25,
            move_prepare=600.0,
            move_pause=5.0,
            move_restore=7.0,
            move_tries=1,
            session_timeout=4.0,
            supervisor_cycle=1.0,
            worker_cycle=2.0,
        )
    ]
    assert result.stdout == ""
    assert "ZooKeeper is up" in result.stderr
    assert f"elastic --cluster c --home {tmp_path} submit" in result.stderr


def test_what_up_is_told_of_moves_is_what_nimbus_does(tmp_path: Path) -> None:
    def nimbus_of(options: UpOptions) -> NimbusOptions:
        words = commands.nimbus(options, "zk:2181", "127.0.0.1:1")
        return nimbus_main._options(nimbus_main._parser().parse_args(words[4:]).option).validate()

    assert nimbus_of(UpOptions(home=str(tmp_path))) == NimbusOptions(), "the defaults of both are the same"
    told = {
        "move_share": 0.25,
        "move_prepare": 600.0,
        "move_pause": 5.0,
        "move_restore": 7.0,
        "move_tries": 1,
    }
    made = nimbus_of(UpOptions(home=str(tmp_path), slots=5, **told))  # type: ignore[arg-type]
    assert made == NimbusOptions(node_slots=5, **told)  # type: ignore[arg-type]


def test_up_as_data(launcher: FakeLauncher, tmp_path: Path) -> None:
    data = json.loads(invoke(None, "up", "--home", str(tmp_path), "-o", "json").stdout)
    assert data["nimbus"] == ["127.0.0.1:3"] and data["cluster"] == "default"


def test_the_defaults_are_those_of_the_options() -> None:
    wanted = UpOptions()
    options = {p.name: p.default for p in up.params if isinstance(p, click.Option)}
    for field in dataclasses.fields(UpOptions):
        if field.name not in ("cluster", "home"):
            assert options[field.name] == getattr(wanted, field.name), field.name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--zookeeper", "foo:bar"), "--zookeeper must be HOST:PORT"),
        (("--zookeeper", "foo:2181/a//b"), "--zookeeper must be HOST:PORT"),
        (("--zookeeper", "foo:2181/a/../b"), "--zookeeper must be HOST:PORT"),
        (("--store", "redis"), "--store must be embedded, hazelcast or"),
        (("--move-share", "1.5"), "1.5 is not in the range"),
        (("--move-share", "-0.1"), "-0.1 is not in the range"),
        (("--move-share", "nan"), "--move-share must be 0 to 1"),
        (("--move-pause", "0"), "--move-pause must be more than 0"),
        (("--move-tries", "0"), "0 is not in the range"),
        (("--store", "hazelcast:"), "--store must be"),
        (("--store", "hazelcast:host"), "--store must be"),
        (("--store-memory", "1M"), "--store-memory must be 64M or more"),
        (("--store-memory", "much"), "is not a size"),
        (("--store-backups", "7"), "--store-backups"),
        (("--master", "local[2]"), "--host spark"),
        (("--spark-conf", "spark.x=y"), "--host spark"),
        (("--host", "spark", "--spark-conf", "spark.x"), "KEY=VALUE"),
        (("--host", "spark", "--spark-conf", "spark.master=yarn"), "--master"),
        (("--bind", "0.0.0.0"), "nobody can be told"),
        (("--bind", "head"), "one IPv4 address of this machine"),
        (("--nodes", "-1"), "--nodes"),
        (("--address", "127.0.0.1:1"), "--address"),
        (("--session-timeout", "10ms"), "session-timeout"),
        (("--cluster", "no good"), "no good"),
        (("--slots", "1001"), "1001"),
        (("--cores", "inf"), "cores must be a number, not inf"),
    ],
)
def test_up_refuses_what_cannot_be(
    launcher: FakeLauncher, words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    result = invoke(None, "up", "--home", str(tmp_path), *words)
    assert result.exit_code == 2 and says in result.stderr
    assert not launcher.asked and not list(tmp_path.iterdir())


def test_down(launcher: FakeLauncher, tmp_path: Path) -> None:
    result = invoke(None, "down", "--home", str(tmp_path), "--purge", "--timeout", "3")
    assert result.exit_code == 0 and "is down" in result.stderr
    assert launcher.asked == [(tmp_path, "default", True, 3.0)]
    gone = invoke(None, "down", "--home", str(tmp_path), "--cluster", "gone")
    assert gone.exit_code == 0 and "was not running" in gone.stderr and not gone.stdout
    stuck = invoke(None, "down", "--home", str(tmp_path), "--cluster", "stuck").stderr.splitlines()
    assert stuck == ["it has not ended within 2 s, and is killed", "Cluster stuck is down."]


def test_down_as_data(launcher: FakeLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(cluster: str) -> Any:
        return json.loads(
            invoke(None, "down", "--home", str(tmp_path), "--cluster", cluster, "-o", "json").stdout
        )

    assert down("one") == {"cluster": "one", "ended": True, "removed": False}
    assert down("gone") == {"cluster": "gone", "ended": False, "removed": False}
    monkeypatch.setattr("elastic.cluster.directory.stored", lambda _: True)
    assert down("gone") == {"cluster": "gone", "ended": False, "removed": True}


def test_without_a_cluster_every_request_is_7_with_the_way_to_one(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from elastic.control.cli.app import app

    result = CliRunner().invoke(app, ["list", "--home", str(tmp_path)], prog_name="elastic")
    assert result.exit_code == 7 and f"elastic --home {tmp_path} up" in result.stderr


@pytest.mark.parametrize("up_by_then", [False, True])
def test_ctrl_c_says_whether_the_cluster_is_up(
    launcher: FakeLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up_by_then: bool
) -> None:
    start = launcher.start_background

    def started(options: UpOptions, on_progress: Callable[[str], None]) -> ClusterInfo:
        if not up_by_then:
            raise KeyboardInterrupt
        return start(options, on_progress)

    def ends(waiting: Waiting, *_: object) -> None:
        ended(waiting, *_)
        if up_by_then:
            raise KeyboardInterrupt

    ended = Waiting.__exit__
    monkeypatch.setattr(launcher, "start_background", started)
    monkeypatch.setattr(Waiting, "__exit__", ends)
    result = invoke(None, "up", "--home", str(tmp_path))
    assert result.exit_code == INTERRUPTED
    said = (
        "the cluster is up, and stays up. To end it: elastic"
        if up_by_then
        else "what had been started has been ended"
    )
    assert said in result.stderr


def test_a_home_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no UTF-8") as caught:
        UpOptions(home=f"{tmp_path}/\udce9").validate()
    caught.value.message.encode()


def test_without_a_home_directory_only_what_needs_one_fails(launcher: FakeLauncher) -> None:
    nowhere = ("--home", "~no-such-user/x")
    assert invoke(None, "version", *nowhere).exit_code == 0
    from click.testing import CliRunner

    from elastic.control.cli.app import app

    for word in ("up", "list"):
        result = CliRunner().invoke(app, [word, *nowhere], prog_name="elastic")
        assert result.exit_code == ConfigError.exit_code, result.output
        assert (
            "~no-such-user/x: there is no such home directory" in result.stderr
            and "ELASTIC_HOME" in result.stderr
        )
    assert not launcher.asked
