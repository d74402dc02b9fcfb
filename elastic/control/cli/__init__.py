"""The command `elastic`. `main` is its entry point; each command's module is imported only when that command runs."""

from __future__ import annotations

from elastic.control.cli.interrupts import hasten


def main() -> None:
    """Run the command line of this process, and end the process with the exit code of `docs/cli.md`."""
    hasten()
    from elastic.control.cli.app import app

    app.main(prog_name="elastic")


__all__ = ["main"]
