"""The command: see the package."""

from __future__ import annotations

import argparse
import sys

from protocol_tests.runner import replay, run_many


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m protocol_tests", description="Random moves and faults over the protocol's roles."
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to run")
    parser.add_argument("--seed", type=int, default=1, help="the first run's seed; the next run has the next")
    parser.add_argument("--runs", type=int, default=0, help="so many runs instead of a time")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--replay", metavar="SEED|FILE", help="tell one run step by step")
    options = parser.parse_args()
    if options.replay:
        lines, end = replay(options.replay)
        sys.stdout.write("\n".join([*lines, end]) + "\n")
        return 0 if end == "every promise was kept" else 1
    report = run_many(options.seconds, options.seed, runs=options.runs, stop_at_failure=options.stop)
    sys.stdout.write(f"{report}\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
