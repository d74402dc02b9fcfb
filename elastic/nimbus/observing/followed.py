"""Values of coordination that are followed by watches, for `elastic.nimbus.observing.mirror`."""

from __future__ import annotations

import logging
import threading
from typing import Any, Protocol, TypeVar

import msgspec

from elastic.coordination.base import Coordination, Versioned, Watch
from elastic.model.codec import decode

log = logging.getLogger(__name__)
T = TypeVar("T")


class Owner(Protocol):
    """Whose parts these are.

    Attributes:
        changed: The lock of all parts.
    """

    coordination: Coordination
    changed: threading.Condition

    def touch(self) -> None:
        """Something has changed; called with the lock."""


def read_value(path: str, data: bytes, kind: type[T]) -> T | None:
    """The value at a path, or None when nobody can read it: one bad record must not stop the others."""
    try:
        return decode(data, kind)
    except msgspec.MsgspecError as error:
        log.error("%s holds something that is not a %s: %s", path, kind.__name__, error)
        return None


def read_versioned(path: str, found: Versioned | None, kind: type[T]) -> tuple[T | None, int]:
    """What lies at a path, and its version; None and -1 when there is nothing."""
    return (None, -1) if found is None else (read_value(path, found.data, kind), found.version)


class FollowedValue:
    """One followed value, decoded; raw bytes when no kind is given.

    Args:
        until_gone: As in `Coordination.watch_value`.
    """

    def __init__(self, mirror: Owner, path: str, kind: type[Any] | None, *, until_gone: bool = False) -> None:
        self.loaded = False
        self.value: Any = None
        self.version = -1
        self._path, self._kind, self._mirror = path, kind, mirror
        self._watch: Watch = mirror.coordination.watch_value(path, self._on_value, until_gone=until_gone)

    def _on_value(self, found: Versioned | None) -> None:
        if found is None or self._kind is None:
            value = None if found is None else found.data
        else:
            value = read_value(self._path, found.data, self._kind)
        with self._mirror.changed:
            self.value, self.version = value, -1 if found is None else found.version
            self.loaded = True
            self._mirror.touch()

    def close(self) -> None:
        self._watch.cancel()


class FollowedValues:
    """The values of all children of a path. `snapshot` is the newest moment at which all of them were
    known."""

    def __init__(self, mirror: Owner, path: str, kind: type[Any] | None) -> None:
        self.snapshot: dict[str, Any] | None = None
        self._members: dict[str, FollowedValue] = {}
        self._listed = False
        self._path, self._kind, self._mirror = path, kind, mirror
        self._watch: Watch = mirror.coordination.watch_children(path, self._on_children)

    def _on_children(self, names: tuple[str, ...]) -> None:
        with self._mirror.changed:
            for name in set(self._members) - set(names):
                self._members.pop(name).close()
            for name in set(names) - set(self._members):
                self._members[name] = FollowedValue(self._mirror, f"{self._path}/{name}", self._kind)
            self._listed = True
            self._mirror.touch()

    def settle(self) -> None:
        """Take a new snapshot, if everything is known."""
        if self._listed and all(m.loaded for m in self._members.values()):
            self.snapshot = {n: m.value for n, m in sorted(self._members.items()) if m.value is not None}

    def close(self) -> None:
        self._watch.cancel()
        for member in self._members.values():
            member.close()
