"""What runs the tests says so when a group of them has not gone well, however that ended."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "run_tests.py"


@pytest.mark.parametrize(
    ("parts", "clusters", "wanted"),
    [
        ("pass", "pass", 0),
        ("sys.exit(5)", "pass", 0),
        ("sys.exit(1)", "pass", 1),
        ("pass", "sys.exit(2)", 2),
        ("os.kill(os.getpid(), 15)", "pass", 143),
        ("pass", "os.kill(os.getpid(), 9)", 137),
        ("sys.exit(1)", "os.kill(os.getpid(), 9)", 137),
    ],
)
def test_the_worse_of_both_groups_is_the_result(
    monkeypatch: pytest.MonkeyPatch, parts: str, clusters: str, wanted: int
) -> None:
    spec = importlib.util.spec_from_file_location("run_tests", TOOL)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    groups = {"tests/unit": parts, "tests/integration": clusters}
    monkeypatch.setattr(
        tool, "_command", lambda paths, _: [sys.executable, "-c", f"import os, sys; {groups[paths[0]]}"]
    )
    monkeypatch.setattr(tool.sys, "stdout", sys.__stdout__)
    assert tool.main([]) == wanted
