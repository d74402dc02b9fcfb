"""The server's jar, by Maven's ordinary client, into a cache directory. It is fetched once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from statestore import lifetime
from statestore.errors import Missing
from statestore.hazelcast.maven import Sight, look, user_home
from statestore.lifetime import Spawn

VERSION = "5.7.0"
NAME = f"hazelcast-{VERSION}.jar"
SHA256 = "241ec66cea8491787f68c3336f069ac463877af50bdb7676cd9d538f1940dc33"
VARIABLE = "STATESTORE_CACHE"
POM = Path(__file__).resolve().parent.parent / "pom.xml"

_PATIENCE = 300.0


def cache_directory() -> Path:
    """Where the jar and the class archives lie: $STATESTORE_CACHE, or `statestore` in the user's cache.

    Raises:
        Missing: This user has no cache.
    """
    told = os.environ.get(VARIABLE)
    if told:
        return Path(told)
    return Path(os.environ.get("XDG_CACHE_HOME") or user_home() / ".cache") / "statestore"


def find_jar(cache: Path | None = None) -> Path | None:
    """The jar, when it was fetched before, or put there by hand.

    Raises:
        Missing: What lies there is something else, or cannot be read; or this user has no cache.
    """
    jar = (cache or cache_directory()) / NAME
    if not jar.is_file():
        return None
    try:
        found = _sum(jar)
    except OSError as error:
        raise Missing(f"{jar} cannot be read: {error.strerror}") from error
    if found != SHA256:
        raise Missing(
            f"{jar} is not the Hazelcast server that it should be: SHA-256 {found}, not {SHA256}",
            remedy=f"Remove it: with Maven (mvn) it is fetched anew. Or put com.hazelcast:hazelcast:{VERSION} there, whole.",
        )
    return jar


def find_maven() -> Path | None:
    """Maven's program."""
    found = shutil.which("mvn")
    return Path(found) if found else None


def problem(cache: Path | None = None) -> str:
    """Why there is no jar and none can be fetched; "" when there is one, or Maven to fetch it.

    Raises:
        Missing: As for `find_jar`.
    """
    if find_jar(cache) is not None or find_maven() is not None:
        return ""
    return f"{NAME} is not in {cache or cache_directory()}, and there is no Maven (mvn) to fetch it"


def obtain_jar(
    cache: Path | None = None, *, spawn: Spawn = lifetime.spawn, timeout: float = _PATIENCE
) -> Path:
    """The jar, fetched when it isn't there. Several processes may do so at once.

    Args:
        cache: Directory; see `cache_directory`.
        spawn: Starts Maven.
        timeout: Seconds for Maven.

    Raises:
        Missing: No Maven, or it could not fetch the jar, or what it fetched, or what is there, is not what it should be.
    """
    cache = cache or cache_directory()
    found = find_jar(cache)
    if found is not None:
        return found
    maven = find_maven()
    if maven is None:
        raise Missing(problem(cache), remedy=remedy(cache))
    try:
        cache.mkdir(parents=True, exist_ok=True)
        fetched = Path(tempfile.mkdtemp(dir=cache, prefix=".new-"))
    except OSError as error:
        raise Missing(
            f"{cache} cannot be written: {error.strerror}", remedy=f"Name another directory with {VARIABLE}."
        ) from error
    try:
        _run(maven, fetched, spawn, timeout, cache)
        jar = fetched / NAME
        if not jar.is_file():
            raise Missing(f"Maven ended without an error, but without {NAME}", remedy=remedy(cache))
        found_sum = _sum(jar)
        if found_sum != SHA256:
            raise Missing(
                f"what Maven fetched as {NAME} is something else: SHA-256 {found_sum}, not {SHA256}",
                remedy="Look at which repository Maven is set to use.",
            )
        jar.replace(cache / NAME)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)
    return cache / NAME


def fetchable(cache: Path | None = None) -> Sight:
    """Whether the jar, where it is not there, will be fetched when it is wanted, as far as can be seen without fetching it."""
    cache = cache or cache_directory()
    maven = find_maven()
    if maven is None:
        return Sight(False, problem(cache))
    there = next(p for p in (cache, *cache.parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Sight(
            False, f"{there} cannot be written: {error.strerror} ({VARIABLE} names another directory)"
        )
    return look(maven, f"com/hazelcast/hazelcast/{VERSION}/{NAME}")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(maven: Path, into: Path, spawn: Spawn, timeout: float, cache: Path) -> None:
    pom = into / "pom.xml"
    shutil.copyfile(POM, pom)  # Maven writes beside it
    log = into / "maven.log"
    argv: list[str | os.PathLike[str]] = [maven, "-B", "-q", "-f", pom, "dependency:copy-dependencies"]
    argv += [f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
    try:
        process = spawn(argv, log=log)
    except OSError as error:
        raise Missing(f"Maven cannot be started: {error}", remedy=remedy(cache)) from error
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise Missing(f"Maven has not fetched {NAME} within {timeout:g} s", remedy=remedy(cache)) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code != 0:
        said = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line]
        reason = said[0] if said else f"exit code {code}"
        raise Missing(f"Maven could not fetch {NAME}: {reason}", remedy=remedy(cache))


def remedy(cache: Path | None = None) -> str:
    """What to do where `problem` says something."""
    return (
        f"Install Maven (for instance: apt-get install maven) and see that it reaches its repository, or put {NAME} into "
        f"{cache or cache_directory()}. The embedded store needs neither."
    )
