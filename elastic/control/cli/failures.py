"""How things that go wrong are told, and which exit code they end with (`docs/cli.md`)."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import click

from elastic.errors import ElasticError, EnvironmentProblem, ExecutionError, TopologyError
from elastic.machine import limit_reached

UNEXPECTED = 1
USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 128 + signal.SIGPIPE

_FULL = (errno.ENOSPC, errno.EDQUOT)
_ROOM = "Make room where standard output goes, or in the directory for temporary files."

_ELASTIC = str(Path(__file__).resolve().parents[2]) + os.sep


class Interrupted(Exception):
    """Ctrl-C, at a place that knows what it leaves behind.

    Args:
        left: What keeps running or was left undone, and how to go on; for the reader.
    """

    def __init__(self, left: str) -> None:
        super().__init__(left)
        self.left = left


class CodeFailed(TopologyError):
    """The user's own code raised while its topology was loaded.

    Args:
        user_traceback: The frames of the user's code, as text.
    """

    def __init__(self, message: str, *, remedy: str = "", user_traceback: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.user_traceback = user_traceback


class Outcome(click.exceptions.Exit):
    """The command did its work, and its result is an exit code other than 0."""


class ReaderGone(Exception):
    """Whoever read standard output has gone: `elastic events | head`."""


def report(error: BaseException, *, verbose: bool = False) -> int:
    """Tell on standard error what went wrong; return the exit code.

    Args:
        verbose: Whether elastic's own traceback is shown too.
    """
    if isinstance(error, Interrupted):
        say(f"\ninterrupted: {error.left}" if sys.stderr.isatty() else f"interrupted: {error.left}")
        return INTERRUPTED
    if isinstance(error, KeyboardInterrupt | click.Abort) or _by_interrupt(error):
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError | ReaderGone):
        _drop_output()  # nothing is left to say
        return BROKEN_PIPE
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, OSError) and error.errno in _FULL:
        where = f": {error.filename}" if error.filename else ""
        if not where:
            _drop_output()
        full = EnvironmentProblem(f"{error.strerror}{where}", remedy=_ROOM)
        full.__cause__, error = error, full
    # `tempfile` says so of all that it has tried, and names no file.
    said = error.strerror or "" if isinstance(error, FileNotFoundError) and error.filename is None else ""
    if "temporary directory" in said:
        lacks = EnvironmentProblem(said, remedy="Name one that can be written with TMPDIR.")
        lacks.__cause__, error = error, lacks
    if isinstance(error, FileNotFoundError) and error.filename is None and _nowhere():
        gone = EnvironmentProblem("the present directory has been removed", remedy="Go to another one.")
        gone.__cause__, error = error, gone
    if limit := limit_reached(error):
        reached = EnvironmentProblem(f"{type(error).__name__}: {error}", remedy=limit)
        reached.__cause__, error = error, reached
    if isinstance(error, ElasticError):
        if verbose:
            say("".join(traceback.format_exception(error)).rstrip())
        elif text := user_part(error):
            say(text)
        say(click.style("error: ", fg="red", bold=True) + error.message)
        if error.remedy:
            say("  " + error.remedy.replace("\n", "\n  "))
        for note in getattr(error, "__notes__", ()):
            say(note)
        return error.exit_code
    say("".join(traceback.format_exception(error)).rstrip())
    say(click.style("error: ", fg="red", bold=True) + f"unexpected: {type(error).__name__}: {error}")
    say("  This is a fault of elastic itself; the traceback above says where.")
    return UNEXPECTED


def _drop_output() -> None:
    """What is still buffered of standard output must not fail at exit."""
    with suppress(OSError, ValueError):  # it is no file of the system, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _nowhere() -> bool:
    """Whether this process is in a directory that has been removed: what is relative to it cannot be found."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _by_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C came while a class was made: before 3.12 Python says then that `__set_name__` failed."""
    cause = error.__cause__
    return cause is not None and (isinstance(cause, KeyboardInterrupt) or _by_interrupt(cause))


def say(text: str) -> None:
    """A line of narration, on standard error (colours are removed where it is not a terminal)."""
    click.echo(text, err=True)


def user_part(error: ElasticError) -> str:
    """What the reader's own code did to cause `error`, as text; "" when it had no part in it."""
    text = getattr(error, "user_traceback", "")
    if text:
        return str(text).rstrip()
    if isinstance(error, ExecutionError) and error.__cause__ is not None:
        return user_traceback(error.__cause__)
    return ""


def user_traceback(error: BaseException, *, message: bool = True) -> str:
    """The traceback of `error` without the frames of elastic and of Python's import machinery.

    Args:
        message: Whether the last line, the exception itself, is kept.
    """
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    seen: set[int] = set()
    while part is not None and id(part) not in seen:
        seen.add(id(part))
        part.stack[:] = [frame for frame in part.stack if _is_users(frame.filename)]
        part = part.__cause__ or part.__context__
    lines = list(whole.format())
    if not message:
        lines = [line for line in lines if line.startswith((" ", "Traceback"))]
        if not whole.stack:
            return ""
    return "".join(lines).rstrip()


def _is_users(filename: str) -> bool:
    return not (
        filename.startswith(("<frozen ", "<string>")) or str(Path(filename).resolve()).startswith(_ELASTIC)
    )
