"""Runs the tests in a few processes side by side, which take them from one list, file by file: the first begins at its start, with tests
of parts, which want a core; the others at its end, with those of whole clusters, which wait as long as they work. So all of them end about
at the same time, whatever the tests take.

    python tools/run_tests.py [--beside COMMAND] [arguments of pytest ...]

The last process's output is shown as it comes, the others', and that of a command that the shell runs beside them, when it has ended.
Ends with the worst of the results.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATHS = ["tests/contract", "protocol_tests", "tests/unit", "tests/integration"]
GROUPS = min(3, (os.cpu_count() or 1) + 1)
"""One more than cores: clusters wait for a third of their time."""
NOTHING_CHOSEN = 5
"""pytest's exit code when `-k` or `-m` has chosen none."""


def main(arguments: list[str]) -> int:
    """Run all; returns the exit code."""
    beside: list[str] = []
    if arguments[:1] == ["--beside"]:
        beside = ["sh", "-c", arguments[1]]
        arguments = arguments[2:]
    if any(not a.startswith("-") and ("/" in a or a.endswith(".py")) for a in arguments):
        chosen = [sys.executable, "-m", "pytest", *arguments]  # by file
        return max(result(subprocess.call(c, env=_environment())) for c in (beside, chosen) if c)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as taken, contextlib.ExitStack() as stack:
        commands = [_command(number, Path(taken), arguments) for number in range(GROUPS)]
        if beside:
            commands.insert(0, beside)
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+b")) for _ in commands[1:]]
        running: list[subprocess.Popen[bytes]] = []
        try:
            for command, output in zip(commands, [*outputs, None], strict=True):
                running.append(
                    subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=_environment())
                )
            codes = [one.wait() for one in running]
        except BaseException:
            for one in running:
                one.terminate()
            for one in running:
                one.wait()
            raise
        for file in outputs:
            file.seek(0)
            sys.stdout.buffer.write(file.read())
        sys.stdout.flush()
    print(f"== All of it took {time.monotonic() - began:.0f} s: {', '.join(map(str, codes))}")
    return max(map(result, codes))


def result(code: int) -> int:
    """A group's exit code as a result: 0 is good, and larger is worse. One that a signal has ended has a negative code."""
    if code < 0:
        return 128 - code
    return 0 if code == NOTHING_CHOSEN else code


def _command(number: int, taken: Path, arguments: list[str]) -> list[str]:
    # Without a shared cache: several writers. Without percentages: nobody knows how much a group will take.
    own = ["-p", "no:cacheprovider", "-o", "console_output_style=classic", "-p", "tools.run_tests"]
    own.append(
        "--continue-on-collection-errors"
    )  # as a file that cannot be imported is a failure among others
    backwards = ["--backwards"] if number else []
    return [sys.executable, "-m", "pytest", *own, f"--taken={taken}", *backwards, *arguments, *PATHS]


def _environment() -> dict[str, str]:
    # The tests start more than a thousand processes: each would compile what it imports, which takes as long as all else in its start.
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options by which a group is told what it shares with the others (pytest calls this)."""
    parser.addoption(
        "--taken", type=Path, help="directory with an entry for each file that a group has taken"
    )
    parser.addoption("--backwards", action="store_true", help="take the last files first")


def pytest_configure(config: pytest.Config) -> None:
    """Take from the list (pytest calls this)."""
    if not config.option.collectonly:
        config.pluginmanager.register(Share(config.option.taken, config.option.backwards))


class Share:
    """A plugin for pytest: of what was found it runs the files that no other group has taken when their turn comes.

    Each group imports all files before it runs any: a module that is parsed beside other threads, as those of servers that a fixture keeps,
    ends with a SystemError now and then (CPython before 3.11.5).

    Args:
        taken: Directory with an entry for each file that a group has taken.
        backwards: Whether the last ones are taken first.
    """

    def __init__(self, taken: Path, backwards: bool) -> None:
        self._taken = taken
        self._backwards = backwards

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run them, as pytest's own loop does."""
        items = self._items(session.items)
        item = next(items, None)
        while item is not None:
            following = next(items, None)  # which decides which fixtures go on
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following
        return True

    def _items(self, found: list[pytest.Item]) -> Iterator[pytest.Item]:
        files: dict[str, list[pytest.Item]] = {}
        for item in found:  # which pytest may have put in another order, for fixtures with parameters
            files.setdefault(item.nodeid.partition("::")[0], []).append(item)
        for name in reversed(files) if self._backwards else files:
            try:
                (self._taken / name.replace("/", "+")).touch(exist_ok=False)
            except FileExistsError:
                continue
            yield from files[name]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
