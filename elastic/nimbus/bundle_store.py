"""Code bundles as files named by their SHA-256. A bundle is there whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType

from elastic.errors import EnvironmentProblem, NotFound, Refused

_HASH = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".zip"


class BundleWriter:
    """A bundle on its way in. Either `commit` or `abort` ends it; as a context manager it aborts what was
    not committed."""

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._size = 0
        self._hash = hashlib.sha256()
        with _writing(directory):
            descriptor, name = tempfile.mkstemp(prefix="incoming-", dir=directory)
        self._path = Path(name)
        self._file = os.fdopen(descriptor, "wb")

    def write(self, chunk: bytes) -> None:
        """Append a piece.

        Raises:
            Refused: The bundle is larger than Nimbus takes.
            EnvironmentProblem: It cannot be written: the disk is full, say.
        """
        self._size += len(chunk)
        if self._size > self._limit:
            self.abort()
            raise Refused(
                f"the code bundle is larger than {self._limit} bytes",
                remedy="leave data files out of the shipped package, or raise max_bundle",
            )
        self._hash.update(chunk)
        with _writing(self._directory):
            self._file.write(chunk)

    def commit(self) -> str:
        """Make it durable under its hash, and return that.

        Raises:
            EnvironmentProblem: As `write`.
        """
        name = self._hash.hexdigest()
        with _writing(self._directory):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.replace(self._directory / f"{name}{_SUFFIX}")
        return name

    def abort(self) -> None:
        """Forget it. Safe to call after `commit`, and twice."""
        with contextlib.suppress(OSError):  # what is left to write may find no room
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()


class BundleStore:
    """The bundles of one cluster.

    Args:
        directory: Made when missing. Several Nimbuses on one machine share it.
        limit: Bytes of the largest bundle.
    """

    def __init__(self, directory: Path, limit: int = 1 << 30) -> None:
        self.directory = directory
        self._limit = limit
        directory.mkdir(parents=True, exist_ok=True)

    def begin(self) -> BundleWriter:
        """Start to store one.

        Raises:
            EnvironmentProblem: Nothing can be written there.
        """
        return BundleWriter(self.directory, self._limit)

    def path(self, sha256: str) -> Path:
        """The file of a bundle.

        Raises:
            NotFound: There is none with that hash.
        """
        if _HASH.fullmatch(sha256):
            path = self.directory / f"{sha256}{_SUFFIX}"
            if path.is_file():
                return path
        raise NotFound(
            f"there is no code bundle {sha256!r} on this Nimbus", remedy="submit the topology again"
        )

    def prune(self, keep: Collection[str], grace: float) -> tuple[tuple[str, ...], float]:
        """Remove bundles, and halves of such, that are not in `keep` and older than `grace` seconds.

        Returns:
            What went; and when the next one will have been here for so long (seconds since 1970), infinite when there is none.
        """
        gone, due = [], math.inf
        oldest = time.time() - grace
        for path in sorted(self.directory.iterdir()):
            if path.stem in keep and path.suffix == _SUFFIX:
                continue
            with contextlib.suppress(FileNotFoundError):
                stored = path.stat().st_mtime
                if stored < oldest:
                    path.unlink()
                    gone.append(path.name)
                else:
                    due = min(due, stored + grace)
        return tuple(gone), due


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Raises what the system has against it so that whoever submits can read it: it is not a fault of Nimbus."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            f"Nimbus cannot store the code bundle in {directory}: {error.strerror}",
            remedy="is there room, and the right to write there?",
        ) from error
