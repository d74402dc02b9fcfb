"""`python -m benchmarks`: list the benchmarks; `python -m benchmarks NAME`: run one."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

import benchmarks
from benchmarks.harness import Session, Wrong, to_json, to_table
from elastic.interrupts import forget
from elastic.procs import interrupt_once


def find() -> dict[str, ModuleType]:
    """All benchmarks: the modules of this package that define NAME, SUMMARY and run.

    One that needs what is not installed is named on standard error, and left out.
    """
    found = {}
    for entry in pkgutil.iter_modules(benchmarks.__path__):
        if entry.name.startswith("_") or entry.ispkg:
            continue
        try:
            module = importlib.import_module(f"benchmarks.{entry.name}")
        except ImportError as error:
            print(f"benchmarks.{entry.name} cannot be loaded: {error}", file=sys.stderr)
            continue
        if all(hasattr(module, name) for name in ("NAME", "SUMMARY", "run")):
            found[module.NAME] = module
    return dict(sorted(found.items()))


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Benchmarks of elastic and its peers."
    )
    parser.add_argument("name", nargs="?", help="the benchmark; without it, they are listed")
    parser.add_argument(
        "--runs", type=int, default=None, metavar="N", help="rounds (default 3; with --quick 1)"
    )
    parser.add_argument("--quick", action="store_true", help="less input: for a look, not for a figure")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="only contenders whose name has it"
    )
    parser.add_argument(
        "--input", metavar="FILE", help="another text than the default one, where a text is used"
    )
    parser.add_argument("--host", choices=("process", "spark"), help="what provides nodes (pauses)")
    parser.add_argument(
        "--keep-core",
        action="store_true",
        help="each worker keeps to a core, as by its setting keep_core (pauses)",
    )
    parser.add_argument("--store", help="the state store: embedded, hazelcast (pauses)")
    parser.add_argument(
        "--rate", type=float, help="tuples/s instead of a share of the sustainable rate (pauses, placement)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 0; 1 when a contender's result was wrong, or one broke down; 2 when the command line is.
    """
    parser = options()
    given = parser.parse_args(arguments)
    found = find()
    if given.name is None:
        width = max((len(name) for name in found), default=0)
        for name, module in found.items():
            print(f"{name:<{width}}  {module.SUMMARY}")
        return 0
    if given.name not in found:
        print(f"There is no benchmark {given.name!r}. There are: {', '.join(found)}.", file=sys.stderr)
        return 2
    runs = given.runs if given.runs is not None else (1 if given.quick else 3)
    if runs < 1:
        print("--runs must be at least 1.", file=sys.stderr)
        return 2
    session = Session(
        runs=runs,
        quick=given.quick,
        only=tuple(given.only),
        options={n: getattr(given, n) for n in ("input", "host", "store", "rate", "keep_core")},
    )
    session.progress(f"{given.name}: {found[given.name].SUMMARY}")
    try:
        found[given.name].run(session)
    except Wrong as error:
        print(f"{given.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        forget()
        _print(given, session)  # what there is by then
        print("Interrupted.", file=sys.stderr)
        return 130
    _print(given, session)
    return 1 if session.failed else 0


def _print(given: argparse.Namespace, session: Session) -> None:
    print("\n".join(to_json(given.name, session)) if given.json else to_table(session))


if __name__ == "__main__":
    interrupt_once()  # a cluster that a benchmark has started ends with it, also by SIGTERM
    sys.exit(main())
