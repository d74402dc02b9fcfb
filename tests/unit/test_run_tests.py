"""What runs the tests runs each of them once, and says so when a group of them has not gone well, however that ended."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("run_tests", ROOT / "tools" / "run_tests.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool.sys, "stdout", sys.__stdout__)
    return tool


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        (["pass", "pass", "pass"], 0),
        (["sys.exit(5)", "pass", "pass"], 0),
        (["sys.exit(1)", "pass", "pass"], 1),
        (["pass", "sys.exit(2)", "pass"], 2),
        (["os.kill(os.getpid(), 15)", "pass", "pass"], 143),
        (["pass", "pass", "os.kill(os.getpid(), 9)"], 137),
        (["sys.exit(1)", "os.kill(os.getpid(), 9)", "sys.exit(5)"], 137),
    ],
)
def test_the_worst_of_the_groups_is_the_result(
    tool: Any, monkeypatch: pytest.MonkeyPatch, groups: list[str], wanted: int
) -> None:
    monkeypatch.setattr(tool, "GROUPS", len(groups))
    monkeypatch.setattr(
        tool, "_command", lambda number, *_: [sys.executable, "-c", f"import os, sys; {groups[number]}"]
    )
    assert tool.main([]) == wanted
    assert tool.main(["--beside", "exit 3", "-k", "x"]) == max(3, wanted)


TESTS = """
import os, pytest

def ran(name):
    with open(os.environ["RAN"], "a") as file:
        file.write(f"{__name__} {name}\\n")

@pytest.fixture(scope="module")
def once():
    ran("begins")
    yield
    ran("ends")

@pytest.mark.parametrize("number", [1, 2])
def test_it(once, number):
    ran(number)

def test_not_chosen():
    ran("not chosen")
"""


def test_each_test_runs_once_whatever_groups_there_are(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    names = [f"test_{i}" for i in range(8)]
    for name in names:
        (tmp_path / f"{name}.py").write_text(TESTS)
    (tmp_path / "test_4_is_none.py").write_text("import what_is_nowhere")
    monkeypatch.setattr(tool, "PATHS", [str(tmp_path)])
    monkeypatch.setattr(tool, "GROUPS", 2)
    monkeypatch.setenv("RAN", str(ran))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.chdir(ROOT)
    chosen = ["-k", "not not_chosen", f"--rootdir={tmp_path}"]
    assert tool.main(chosen) == 1, "a file that cannot be imported is a failure"
    lines = ran.read_text().splitlines()
    for name in names:
        wanted = [f"{name} {what}" for what in ("begins", 1, 2, "ends")]
        assert [line for line in lines if line.startswith(name)] == wanted
