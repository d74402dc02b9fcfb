"""Make a virtual environment hold what a lock says: `.venv` (with the project itself, editable), or a side one.

    python tools/setup.py                                                   .venv from requirements.lock
    python tools/setup.py --venv .venv/stubs --lock tools/stubs.lock        the generator of the gRPC stubs

Runs on a bare Python (standard library only). Does nothing when that is already so: a stamp in the environment holds
the hash of what it was made from, and is written last, so that an interrupted set-up is done again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT_LOCK = ROOT / "requirements.lock"


def wanted_stamp(lock: Path) -> str:
    """The hash of everything that decides what the environment holds.

    Args:
        lock: The lock it is made from.
    """
    digest = hashlib.sha256(str(ROOT).encode() + b"\0" + lock.read_bytes())
    if lock == PROJECT_LOCK:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        parts = [project["build-system"], project["project"], project["tool"]["setuptools"]]
        digest.update(json.dumps(parts, sort_keys=True).encode())
    return digest.hexdigest()


def python_of(venv: Path) -> Path:
    """The interpreter of an environment."""
    return venv / "bin" / "python"


def works(venv: Path) -> bool:
    """Whether the environment's interpreter starts, is of a version that elastic supports, and has pip."""
    check = "import sys, pip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"
    try:
        return subprocess.run([python_of(venv), "-c", check], capture_output=True).returncode == 0
    except OSError:
        return False


def say(text: str) -> None:
    """One line of progress."""
    print(text, flush=True)


def run(command: list[str | Path], log: Path, wanted: int) -> None:
    """Run pip, showing what it collects; the whole output goes to a log.

    Args:
        command: What to run.
        log: The file that the output is added to.
        wanted: How many packages are expected, for the progress.

    Raises:
        SystemExit: It failed; the end of its output is shown.
    """
    collected, shown = 0, time.monotonic()
    with log.open("a", encoding="utf-8", errors="replace") as sink:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=ROOT,
        )
        assert child.stdout is not None
        for line in child.stdout:
            sink.write(line)
            if match := re.match(r"\s*Collecting (\S+?)(==|>=|\s|$)", line):
                collected += 1
                if time.monotonic() - shown > 2:
                    shown = time.monotonic()
                    say(f"  {min(collected, wanted)}/{wanted} {match[1]}")
            elif line.lstrip().startswith(("Building wheel", "Installing collected")):
                say("  " + line.strip()[:90])
    if child.wait() != 0:
        say("".join(log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[-25:]))
        sys.exit(f"Setting up failed (the whole output is in {log}). Is a package registry in reach?")


def install(venv: Path, lock: Path) -> None:
    """Bring the environment to what the lock says."""
    log = venv / "setup.log"
    log.write_text("")
    count = len(re.findall(r"^\S+==", lock.read_text(encoding="utf-8"), re.MULTILINE))
    pip: list[str | Path] = [python_of(venv), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    say(f"Installing up to {count} packages of {lock.name} into {venv.name} (once; this takes a while)")
    started = time.monotonic()
    # The lock is complete, so pip need not resolve anything; the hashes say that it is what was tested.
    run(
        [*pip, "install", "--progress-bar=off", "--no-compile", "--no-deps", "--require-hashes", "-r", lock],
        log,
        count,
    )
    compile_modules(venv)
    if lock == PROJECT_LOCK:
        say("Installing elastic itself, editable")
        run([*pip, "install", "--no-deps", "--no-build-isolation", "--editable", ROOT], log, 1)
    say(f"Set up in {time.monotonic() - started:.0f} s")


def compile_modules(venv: Path) -> None:
    """Compile what is installed, on all cores, and without the packages' own tests: pip takes one core, and would compile those as well.

    What cannot be compiled is none of our business: nobody imports it.
    """
    for packages in (venv / "lib").glob("python*/site-packages"):
        tests = re.escape(str(packages)) + r"/.*\btests?/"
        command: list[str | Path] = [python_of(venv), "-m", "compileall", "-qq", "-j0", "-x", tests, packages]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)


def main() -> None:
    """The command: see the module's docstring."""
    parser = argparse.ArgumentParser(description="Make a virtual environment hold what a lock says.")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--lock", type=Path, default=PROJECT_LOCK)
    options = parser.parse_args()
    venv, lock = options.venv.absolute(), options.lock.absolute()
    stamp, wanted = venv / ".setup-stamp", wanted_stamp(lock)
    if stamp.is_file() and stamp.read_text() == wanted and works(venv):
        return
    os.environ.pop("PYTHONPATH", None)
    if not works(venv):
        say(f"Making {venv.name} with Python {sys.version.split()[0]}")
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, stdin=subprocess.DEVNULL)
    stamp.unlink(missing_ok=True)
    install(venv, lock)
    stamp.write_text(wanted)


if __name__ == "__main__":
    main()
