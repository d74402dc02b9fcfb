"""A process that Ctrl-C ends has its own exit code, also when it came while a text was executed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INTERRUPT = 'exec("import signal; signal.raise_signal(signal.SIGINT)")'
COMMAND_LINE = f"""
import sys
from elastic.control.cli.interrupts import heard
try:
    with heard():
        {INTERRUPT}
except KeyboardInterrupt:
    sys.exit(130)
"""
DEMONSTRATION = f"""
import sys
from examples.demo.stage import Story, perform
def body(home):
    {INTERRUPT}
sys.exit(perform("test", body, Story()))
"""


def ends_with(code: str, directory: Path) -> int:
    """As a module: it is with `-m` that Python ends by the signal."""
    (directory / "interrupted.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "interrupted"],
        env={"TMPDIR": str(directory), "PYTHONPATH": f"{directory}:{ROOT}"},
        timeout=60,
        capture_output=True,
    ).returncode


def test_the_command_line_ends_with_130(tmp_path: Path) -> None:
    assert ends_with(COMMAND_LINE, tmp_path) == 130


def test_a_demonstration_ends_with_130(tmp_path: Path) -> None:
    assert ends_with(DEMONSTRATION, tmp_path) == 130


def test_what_is_not_forgotten_is_found(tmp_path: Path) -> None:
    """Planted fault: Python ends by the signal then, whatever the exit code."""
    forgets_not = "from elastic import interrupts\ninterrupts.forget = lambda: None\n"
    assert ends_with(forgets_not + COMMAND_LINE, tmp_path) == -signal.SIGINT
    assert ends_with(forgets_not + DEMONSTRATION, tmp_path) == -signal.SIGINT
