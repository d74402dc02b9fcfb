"""Starting a contender as a process of its own, and checking its answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Skip, Wrong
from benchmarks.words.text import expected, lines

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 300.0
GRACE = 20.0
NOT_HERE = 77  # the exit code of a contender that cannot run on this machine; the reason is its last line


@dataclass(frozen=True)
class Job:
    """What all contenders have to count.

    Args:
        input: The text file, or None for the default text.
        copies: How often it is gone through.
        words: The number of words in all copies.
        digest: The digest of the right counts.
    """

    input: str | None
    copies: int
    words: int
    digest: str

    @classmethod
    def of(cls, input: str | None, target: int) -> Job:
        """As many copies of a text as give at least `target` words.

        Raises:
            SystemExit: The text has no words.
        """
        text = lines(input)
        once, _ = expected(text, 1)
        if once == 0:
            sys.exit(f"{input} has no words.")
        copies = -(-target // once)
        words, digest = expected(text, copies)
        return cls(input, copies, words, digest)


def run(module: str, job: Job, *more: str) -> float:
    """Run a contender once.

    Args:
        module: Its module.
        job: What to count.
        more: Further arguments for it.

    Returns:
        Words per second.

    Raises:
        Skip: It says that it cannot run here.
        Wrong: It failed, took longer than five minutes, or counted something else.
    """
    command = [sys.executable, "-m", module, "--copies", str(job.copies), *more]
    if job.input is not None:
        command += ["--input", job.input]
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Wrong(f"it did not end within {TIMEOUT:.0f} s") from None
    finally:
        if child.poll() is None:  # it may have a cluster to take down
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
        # Whatever it left behind goes with it: they share a session of their own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.returncode == NOT_HERE:
        raise Skip(out.strip().splitlines()[-1] if out.strip() else "it cannot run here")
    if child.returncode != 0:
        raise Wrong(f"it ended with code {child.returncode}:\n{(out + err)[-3000:]}")
    result = json.loads(out.strip().splitlines()[-1])
    if (result["words"], result["digest"]) != (job.words, job.digest):
        raise Wrong(f"it counted {result['words']} words, not {job.words}, or not the right ones")
    return float(result["words"] / result["seconds"])


def not_here(reason: str) -> None:
    """End this contender, because something that it needs is missing."""
    print(reason, flush=True)
    sys.exit(NOT_HERE)
