"""Code bundles on a node: fetched once, checked, unpacked, shared by its workers, and removed when nobody
uses them.

    (unknown) -> FETCHING -> READY           wait for `changed`, or use it
                 FETCHING -> FETCHING        after a failure and a pause, with an event

A bundle is named by its SHA-256, so what came is checked against its name. A bundle from before this
supervisor started is checked and unpacked again, because only the archive can be checked. What nobody has asked for after a while is
removed: its topology ended while no supervisor ran here.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import shutil
import stat
import threading
import time
import zipfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path, PurePosixPath

from elastic.errors import ElasticError
from elastic.supervisor.options import SupervisorOptions

log = logging.getLogger(__name__)

MAX_UNPACKED = 4 << 30
MAX_FILES = 100_000
_END = 5.0
_LEFT = 600.0
"""Seconds after which what runs here has asked for its bundles."""

Fetch = Callable[[str, Path, float], None]
"""`Reporter.fetch_bundle`: hash, file to write, seconds."""


class BundleState(Enum):
    FETCHING = "fetching"
    READY = "ready"


class BadBundle(ElasticError):
    """A bundle that came damaged, or that holds what no bundle may."""


class Bundles:
    """The bundles of one node. One thread fetches, unpacks and removes.

    Args:
        directory: `bundles/` of the node.
        fetch: Where they come from.
        changed: Called (on the thread) when one has become ready.
        failed: Called (on the thread) with hash, reason, failures so far and seconds until the next attempt.
        left: Seconds until what an earlier supervisor had here, and nobody has asked for since, is removed.
    """

    def __init__(
        self,
        directory: Path,
        fetch: Fetch,
        options: SupervisorOptions,
        changed: Callable[[], None],
        failed: Callable[[str, str, int, float], None],
        left: float = _LEFT,
    ) -> None:
        self._directory = directory
        self._fetch = fetch
        self._options = options
        self._changed = changed
        self._failed = failed
        self._wake = threading.Condition()
        self._states: dict[str, BundleState] = {}
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._unwanted: set[str] = set()
        self._sweep_at = time.monotonic() + left
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="elastic-bundles", daemon=True)
        self._thread.start()

    def states(self) -> dict[str, BundleState]:
        """Every bundle that was asked for and not given up since."""
        with self._wake:
            return dict(self._states)

    def path(self, sha256: str) -> Path:
        """Where a bundle is unpacked once it is ready."""
        return self._directory / sha256

    def want(self, sha256: str) -> None:
        """Fetch it, unless that is under way or done."""
        with self._wake:
            if sha256 not in self._states:
                self._states[sha256] = BundleState.FETCHING
                self._due[sha256] = 0.0
                self._wake.notify()

    def drop(self, sha256: str) -> None:
        """Nobody uses it any more: give up fetching it, and remove it."""
        with self._wake:
            self._states.pop(sha256, None)
            self._due.pop(sha256, None)
            self._failures.pop(sha256, None)
            self._unwanted.add(sha256)
            self._wake.notify()

    def close(self) -> None:
        """End. An attempt to fetch that is under way is left behind when it takes longer than some
        seconds."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(_END)

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._closed and not self._unwanted and not self._next():
                    wait = min((self._sweep_at, *self._due.values())) - time.monotonic()
                    if wait <= 0:
                        break
                    self._wake.wait(min(wait, 3600.0))
                if self._closed:
                    return
                unwanted, self._unwanted = self._unwanted - self._states.keys(), set()
                sha256 = self._next()
            if self._sweep_at <= time.monotonic():
                self._sweep_at = math.inf
                self._sweep()
            for name in unwanted:
                shutil.rmtree(self.path(name), ignore_errors=True)
                with contextlib.suppress(OSError):  # it lies there until the next start
                    self._archive(name).unlink(missing_ok=True)
            if sha256:
                self._try(sha256)

    def _next(self) -> str:
        """The bundle whose turn it is, or ""."""
        now = time.monotonic()
        return min(
            (s for s, due in self._due.items() if due <= now), key=lambda s: (self._due[s], s), default=""
        )

    def _try(self, sha256: str) -> None:
        try:
            self._provide(sha256)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may go better
            with self._wake:
                if sha256 not in self._states:
                    return
                failures = self._failures[sha256] = self._failures.get(sha256, 0) + 1
                pause = self._options.fetch_pause(failures)
                self._due[sha256] = time.monotonic() + pause
            log.warning("code bundle %s: %s", sha256[:12], error)
            self._failed(sha256, str(error) or type(error).__name__, failures, pause)
            return
        with self._wake:
            if sha256 in self._states:
                self._states[sha256] = BundleState.READY
                self._due.pop(sha256, None)
                self._failures.pop(sha256, None)
        self._changed()

    def _provide(self, sha256: str) -> None:
        if len(sha256) != 64 or not all(c in "0123456789abcdef" for c in sha256):
            raise BadBundle(f"{sha256[:80]!r} is not the name of a code bundle")
        archive = self._archive(sha256)
        if not archive.exists() or _digest(archive) != sha256:
            archive.unlink(missing_ok=True)
            self._directory.mkdir(parents=True, exist_ok=True)
            coming = archive.with_suffix(".part")
            try:
                self._fetch(sha256, coming, self._options.fetch_timeout)
                came = _digest(coming)
                if came != sha256:
                    raise BadBundle(f"code bundle {sha256[:12]} came damaged: its content is {came[:12]}")
                coming.replace(archive)
            finally:
                coming.unlink(missing_ok=True)
        unpack(archive, self.path(sha256))

    def _archive(self, sha256: str) -> Path:
        return self._directory / f"{sha256}.zip"

    def _sweep(self) -> None:
        """Remove what nobody has asked for, and what is left of attempts to fetch, of which none is under way now."""
        with contextlib.suppress(OSError):
            for path in sorted(self._directory.iterdir()):
                with self._wake:
                    asked = path.name.partition(".")[0] in self._states
                if not asked and path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif not asked:
                    path.unlink()


def unpack(archive: Path, target: Path) -> None:
    """Unpack a bundle; the directory appears complete or not at all, and replaces an older one.

    Raises:
        BadBundle: It is no archive, is damaged, or would write outside of `target`.
    """
    making = target.with_name(target.name + ".unpacking")
    shutil.rmtree(making, ignore_errors=True)
    try:
        with zipfile.ZipFile(archive) as bundle:
            entries = bundle.infolist()
            _check(archive, entries)
            making.mkdir(parents=True)
            for entry in entries:
                made = Path(bundle.extract(entry, making))
                if entry.external_attr >> 16 & stat.S_IXUSR and made.is_file():
                    made.chmod(0o755)  # a program that a package brings along
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        shutil.rmtree(making, ignore_errors=True)
        raise BadBundle(f"code bundle {target.name[:12]} cannot be unpacked: {error}") from error
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    shutil.rmtree(target, ignore_errors=True)
    making.rename(target)


def _check(archive: Path, entries: list[zipfile.ZipInfo]) -> None:
    name = archive.stem[:12]
    if len(entries) > MAX_FILES or sum(e.file_size for e in entries) > MAX_UNPACKED:
        raise BadBundle(f"code bundle {name} is too large: {len(entries)} files")
    for entry in entries:
        path = PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or ":" in path.parts[:1]:
            raise BadBundle(f"code bundle {name} would write outside of its directory: {entry.filename!r}")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise BadBundle(f"code bundle {name} holds something that is no file: {entry.filename!r}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
