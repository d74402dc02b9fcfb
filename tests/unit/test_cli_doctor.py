"""doctor: each check finds the fault that it is there for."""

from __future__ import annotations

import json
import os
import resource
import socket
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_fake import invoke

from elastic.control.cli import checks
from elastic.control.cli.settings import Settings
from elastic.errors import EnvironmentProblem
from statestore.errors import Missing
from statestore.hazelcast import jar


def test_python_too_old_or_too_new() -> None:
    assert checks.python((3, 11, 0)).status == checks.OK
    assert checks.python((3, 10, 9)).status == checks.PROBLEM
    assert checks.python((3, 14, 0)).status == checks.PROBLEM


def test_a_package_that_is_missing_or_too_old() -> None:
    found = checks.packages(
        [("no-such-thing", "no_such_thing", "1", "tests"), ("click", "click", "999", "tests")]
    )
    assert [c.status for c in found] == [checks.PROBLEM, checks.PROBLEM]
    assert "is missing" in found[0].message and "pip install 'no-such-thing>=1'" in found[0].remedy
    assert "older than 999" in found[1].message
    assert checks.packages([("click", "click", "8.1", "tests")])[0].status == checks.OK


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_JAVA", "none")
    found = checks.java()
    assert found.status == checks.PROBLEM and found.remedy


def test_java_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("elastic.cluster.java.find_java", lambda: broken)
    assert checks.java().status == checks.PROBLEM


def test_no_zookeeper_in_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_jars() -> list[Path]:
        raise EnvironmentProblem("jars has no zookeeper-*.jar")

    monkeypatch.setattr("elastic.cluster.zookeeper_server._jars", no_jars)
    assert checks.zookeeper().status == checks.PROBLEM


def test_no_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.network().status == checks.OK

    def refuse(*args: Any, **kwargs: Any) -> socket.socket:
        raise OSError("no interface")

    monkeypatch.setattr(socket, "create_server", refuse)
    assert checks.network().status == checks.PROBLEM


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), AttributeError()])
def test_where_no_worker_could_be_waited_for(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbidden, as by the profiles of some containers; or unknown, as to other systems."""

    def refuse(pid: int) -> int:
        raise error

    assert checks.processes().status == checks.OK
    monkeypatch.setattr(os, "pidfd_open", refuse)
    found = checks.processes()
    assert found.status == checks.PROBLEM and "no node can run" in found.message
    assert ("not permitted" in found.message) == isinstance(error, OSError)


def test_no_directory_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where all is read-only; what needs one says the same."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "missing")])
    found = checks.temporary()
    assert found.status == checks.PROBLEM and "missing" in found.message and "TMPDIR" in found.remedy
    (tmp_path / "some_wheel.whl").touch()
    result = invoke(None, "run", str(tmp_path / "some_wheel.whl"))
    assert result.exit_code == EnvironmentProblem.exit_code, result.stderr
    assert result.stderr.startswith(f"error: {found.message}") and "TMPDIR" in result.stderr


def test_home_that_cannot_be_written_or_is_too_long(tmp_path: Path) -> None:
    assert checks.home(Path("/proc/elastic")).status == checks.PROBLEM
    (tmp_path / "file").write_text("")
    assert checks.home(tmp_path / "file").status == checks.PROBLEM
    assert checks.home(Path("/tmp") / ("x" * 80)).status == checks.WARNING
    assert checks.home(Path("/tmp/elastic-home")).status == checks.OK


def test_home_below_no_home_directory_or_with_a_name_that_is_too_long(tmp_path: Path) -> None:
    nowhere = checks.home(Path("~no-such-user/x"))
    assert nowhere.status == checks.PROBLEM and "no such home directory" in nowhere.message
    assert "long path" in checks.home(tmp_path / ("x" * 256)).message


def test_a_user_without_a_home_directory_has_no_hazelcast_and_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(jar.VARIABLE, raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    found = checks.maven()
    assert found.status == checks.WARNING and "no home directory" in found.message and "HOME" in found.remedy


def test_home_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LEAST_FREE", 1 << 70)
    assert checks.home(Path("/tmp/elastic-home")).status == checks.WARNING


@pytest.mark.parametrize(
    ("hard", "remedy"),
    [(4096, "ulimit -n 4096"), (1 << 20, "ulimit -n 65536"), (resource.RLIM_INFINITY, "ulimit -n 65536")],
)
def test_few_open_files(hard: int, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, hard))
    assert checks.files().status == checks.WARNING and checks.files().remedy == remedy


def test_few_open_files_with_a_hard_limit_are_not_had_by_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (64, 64))
    remedy = checks.files().remedy
    assert "hard limit is 64" in remedy and "ulimit" not in remedy


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user who has fetched nothing, and whose Maven, which is there, looks where `settings.xml` says."""
    for name in ("MAVEN_ARGS", "MAVEN_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(jar.VARIABLE, str(tmp_path / "cache"))
    (tmp_path / ".m2").mkdir()
    monkeypatch.setattr(jar, "find_maven", lambda: tmp_path / "maven" / "bin" / "mvn")
    return tmp_path


def test_without_hazelcasts_server_and_maven_it_is_said_what_to_do(
    monkeypatch: pytest.MonkeyPatch, fresh: Path
) -> None:
    monkeypatch.setattr(jar, "find_maven", lambda: None)
    lacks = checks.maven()
    assert lacks.status == checks.WARNING and "--store hazelcast" in lacks.message
    assert "apt-get install maven" in lacks.remedy and str(jar.cache_directory()) in lacks.remedy


def test_a_jar_that_is_another_one_is_found(fresh: Path) -> None:
    (fresh / "cache").mkdir()
    (fresh / "cache" / jar.NAME).write_bytes(b"half of it")
    wrong = checks.maven()
    assert wrong.status == checks.WARNING and "SHA-256" in wrong.message and "Remove it" in wrong.remedy
    with pytest.raises(Missing, match="SHA-256"):
        jar.obtain_jar()


class Repository(BaseHTTPRequestHandler):
    """Has the one jar."""

    def do_HEAD(self) -> None:
        known = self.path == f"/central/com/hazelcast/hazelcast/{jar.VERSION}/{jar.NAME}"
        self.send_response(200 if known else 403 if self.path.startswith("/closed") else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def repository() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Repository) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("settings", "status", "says"),
    [
        ("<mirror><mirrorOf>*</mirrorOf><url>HERE/central/</url></mirror>", checks.OK, "from HERE/central/com"),
        ("<mirror><mirrorOf>*,!central</mirrorOf><url>HERE/</url></mirror>" * 2
         + "<mirror><mirrorOf>a,external:*</mirrorOf><url>HERE/gone</url></mirror>"
         + "<mirror><mirrorOf>central</mirrorOf><url>HERE/central</url></mirror>", checks.OK, "from HERE/central/com"),
        ("<mirror><mirrorOf>*</mirrorOf><url>HERE/gone</url></mirror>", checks.WARNING, "HTTP Error 404"),
        ("<mirror><mirrorOf>*</mirrorOf><url>HERE/closed</url></mirror>", checks.WARNING, "HTTP Error 403"),
        ("<mirror><mirrorOf>*</mirrorOf><url>HERE/closed</url></mirror><server/>", checks.OK, "not seen from here"),
        ("<mirror><mirrorOf>*</mirrorOf><url>http://127.0.0.1:1</url></mirror>", checks.WARNING, "refused"),
        ("<proxy><host>x</host></proxy>", checks.OK, "it goes through a proxy"),
        ("<mirror", checks.WARNING, "settings cannot be read"),
    ],
)  # fmt: skip
def test_where_maven_would_fetch_is_looked_at(
    fresh: Path, repository: str, settings: str, status: str, says: str
) -> None:
    text = f'<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">{settings}</settings>'
    (fresh / ".m2" / "settings.xml").write_text(text.replace("HERE", repository))
    found = checks.maven()
    assert found.status == status and says.replace("HERE", repository) in found.message
    assert bool(found.remedy) == (status == checks.WARNING)
    assert not (fresh / "cache").exists(), "it changes nothing"


def test_what_maven_has_already_is_seen(fresh: Path) -> None:
    kept = fresh / ".m2" / "repository" / "com" / "hazelcast" / "hazelcast" / jar.VERSION / jar.NAME
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert checks.maven().status == checks.OK and str(kept) in checks.maven().message


def test_a_cache_that_cannot_be_written_is_said(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jar.VARIABLE, "/proc/statestore")
    found = checks.maven()
    assert found.status == checks.WARNING and "cannot be written" in found.message
    assert jar.VARIABLE in found.message


def test_a_check_that_breaks_is_a_problem_not_an_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken() -> checks.Check:
        raise RuntimeError("planted")

    monkeypatch.setattr(checks, "maven", broken)
    found = checks.examine(Settings(home=tmp_path))
    assert any(c.name == "maven" and c.status == checks.PROBLEM and "planted" in c.message for c in found)


def test_exit_codes_of_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good, warned = checks.Check("a", checks.OK, "fine"), checks.Check("b", checks.WARNING, "hm", "do")
    bad = checks.Check("c", checks.PROBLEM, "lacks", "get it")
    for found, code in (([good], 0), ([good, warned], 0), ([good, bad], 11)):
        monkeypatch.setattr("elastic.control.cli.doctor.examine", lambda settings, found=found: found)
        result = invoke(None, "doctor", "--home", str(tmp_path), "-o", "json")
        assert result.exit_code == code
        assert [c["status"] for c in json.loads(result.stdout)] == [c.status for c in found]
    assert "get it" in invoke(None, "doctor").stdout


def test_a_cluster_that_was_left_behind_is_found_with_the_command_that_removes_it(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "cluster.json").write_text("{}")
    assert [c.message for c in checks.clusters(Settings(home=tmp_path))] == ["none runs on this machine"]
    (tmp_path / "test" / "launcher.log").write_text("")  # by which it is a cluster's, and not just anybody's
    found = checks.clusters(Settings(home=tmp_path))
    assert [c.status for c in found] == [checks.WARNING]
    assert f"elastic --cluster test --home {tmp_path} down" in found[0].remedy
