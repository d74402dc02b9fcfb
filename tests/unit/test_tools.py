"""Set-up: which Python it takes, and what the locks hold."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def chosen(path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "python.sh")],
        env={"PATH": str(path), "HOME": os.environ.get("HOME", "/"), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_shim_that_fails_is_passed_over(tmp_path: Path) -> None:
    script(tmp_path / "python3", "echo 'python3: command not found' >&2; exit 127")
    script(tmp_path / "python3.12", f'exec {sys.executable} "$@"')
    done = chosen(tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "python3.12")


def test_too_old_a_python_is_named_in_the_error(tmp_path: Path) -> None:
    script(tmp_path / "python3", "echo 3.9")
    done = chosen(tmp_path)
    assert done.returncode == 1
    assert "needs Python 3.11" in done.stderr
    assert "python3 is Python 3.9" in done.stderr


def test_a_python_without_venv_is_named_with_the_remedy(tmp_path: Path) -> None:
    script(tmp_path / "python3", 'case "$2" in *venv*) exit 1;; esac; echo 3.12')
    done = chosen(tmp_path)
    assert done.returncode == 1
    assert "python3-venv" in done.stderr


def test_a_chosen_python_is_taken(tmp_path: Path) -> None:
    done = chosen(tmp_path, PYTHON=sys.executable)
    assert done.stdout.strip() == sys.executable


@pytest.mark.parametrize(("target", "said"), [("setup", True), ("lint", False)])
def test_setting_up_ends_with_how_to_have_the_command(target: str, said: bool) -> None:
    command = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert ("'. .venv/bin/activate' and see 'elastic --help'.\"" in done.stdout) == said, (
        "whoever asks for something else has set up in passing"
    )


def test_what_is_installed_is_compiled_and_the_tests_of_packages_are_not(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("setup", ROOT / "tools" / "setup.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    venv = tmp_path / "tests" / "venv"
    packages = venv / "lib" / "python3.11" / "site-packages"
    for name in ("a/tests/test_a.py", "a/made/for/__init__.py", "a/testing/b.py", "c.py", "tests/d.py"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("x = 1")
    (packages / "broken.py").write_text("x = ")
    (venv / "bin").mkdir()
    script(venv / "bin" / "python", f'exec {sys.executable} "$@"')
    tool.compile_modules(venv)
    compiled = {str(p.relative_to(packages)).split(".")[0] for p in packages.rglob("*.pyc")}
    assert compiled == {"a/made/for/__pycache__/__init__", "a/testing/__pycache__/b", "__pycache__/c"}


@pytest.mark.parametrize("name", ["requirements.lock", "tools/stubs.lock"])
def test_a_lock_pins_everything_by_hash_and_names_no_host(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.replace("\\\n", " ").strip())
    assert len(entries) > 5
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text


def test_the_lock_is_of_the_declared_dependencies() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *(d for e in project["optional-dependencies"].values() for d in e)]
    names = {re.split(r"[\[<>=;!~ ]", d)[0].lower().replace("_", "-") for d in declared}
    locked = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert names - locked == set(), "run `make lock`"
