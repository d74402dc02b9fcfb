"""The command `elastic`. `main` is its entry point; each command's module is imported only when that command runs."""

from __future__ import annotations

import io
import os
import sys

from elastic.control.cli.interrupts import hasten


def _open_closed() -> None:
    """Streams that whoever calls has closed (`2>&-`) lead nowhere: Python has None for them, and the next file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", errors="replace"))


def _lenient() -> None:
    """Text that the terminal's or locale's encoding does not have is escaped, as on standard error: a command must not fail by that."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.errors == "strict":
        out.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command line of this process, and end the process with the exit code of `docs/cli.md`."""
    hasten()
    _open_closed()
    _lenient()
    from elastic.control.cli.app import app

    app.main(prog_name="elastic")


__all__ = ["main"]
