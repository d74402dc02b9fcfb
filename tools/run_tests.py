"""Runs the tests in two processes side by side: those of parts, with some of the others, and those of whole clusters. Each takes about as
long as the other.

    python tools/run_tests.py [arguments of pytest ...]

The second group's output is shown as it comes, the first group's when it has ended. Ends with the worse of the two results.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

WITH_PARTS = ["tests/integration/test_launcher_spark.py", "tests/integration/test_examples.py"]
"""Tests of whole clusters that last, and use nothing that others have started: one group would take much longer than the other."""
PARTS = ["tests/unit", "protocol_tests", "tests/contract", *WITH_PARTS]
CLUSTERS = ["tests/integration", *(f"--ignore={path}" for path in WITH_PARTS)]
NOTHING_CHOSEN = 5
"""pytest's exit code when `-k` or `-m` has chosen none."""


def main(arguments: list[str]) -> int:
    """Run both; returns the exit code."""
    if any(not a.startswith("-") and ("/" in a or a.endswith(".py")) for a in arguments):
        return subprocess.call([sys.executable, "-m", "pytest", *arguments])  # chosen by file
    began = time.monotonic()
    with tempfile.TemporaryFile("w+b") as output:
        parts = subprocess.Popen(_command(PARTS, arguments), stdout=output, stderr=subprocess.STDOUT)
        try:
            clusters = subprocess.call(_command(CLUSTERS, arguments))
            code = parts.wait()
        except BaseException:
            parts.terminate()
            parts.wait()
            raise
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    print(f"== Both groups took {time.monotonic() - began:.0f} s: parts {code}, clusters {clusters}")
    return max(result(code), result(clusters))


def result(code: int) -> int:
    """A group's exit code as a result: 0 is good, and larger is worse. One that a signal has ended has a negative code."""
    if code < 0:
        return 128 - code
    return 0 if code == NOTHING_CHOSEN else code


def _command(paths: list[str], arguments: list[str]) -> list[str]:
    # Without a shared cache: two writers.
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, *paths]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
