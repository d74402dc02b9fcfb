"""Every error that a state store raises, as one tree.

StateStoreError
├── NotFound         no such state, or another has taken its place
├── Superseded       a newer epoch, or another writer, owns the key: this writer must stop
├── Conflict         what is asked for contradicts what the store has
├── Full             it does not fit; says how much was wanted, is free and is allowed
├── Incomplete       a commit names a piece that was never put
├── Damaged          bytes differ from their checksum
├── Invalid          an argument that cannot be
├── Unavailable      the store cannot be reached, or did not answer in time
├── Lost             what was stored is gone: the store has come back empty, or has lost a part
└── Missing          the machine lacks something (Java, Maven, the server's jar, a free port), or a cluster a setting
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where a disk, or what a user may have of it, is full."""


class StateStoreError(Exception):
    """The root of all errors of the state store.

    Args:
        message: What happened, and to what.
        remedy: What the reader can do about it, or an empty string.
    """

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message if not remedy else f"{message}\n  {remedy}")
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.remedy, self.details())

    def details(self) -> Mapping[str, int]:
        """Numbers that belong to it, so that they can travel."""
        return {}


class NotFound(StateStoreError):
    pass


class Superseded(StateStoreError):
    pass


class Conflict(StateStoreError):
    pass


class Full(StateStoreError):
    """What was to be stored does not fit.

    Attributes:
        needed: Bytes that were wanted.
        free: Bytes that are left.
        limit: Bytes that the store may hold.
    """

    def __init__(
        self, message: str, *, remedy: str = "", needed: int = 0, free: int = 0, limit: int = 0
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.needed = needed
        self.free = free
        self.limit = limit

    def details(self) -> Mapping[str, int]:
        return {"needed": self.needed, "free": self.free, "limit": self.limit}


class Incomplete(StateStoreError):
    pass


class Damaged(StateStoreError):
    pass


class Invalid(StateStoreError):
    pass


class Unavailable(StateStoreError):
    pass


class Lost(StateStoreError):
    pass


class Missing(StateStoreError):
    pass


KINDS: Mapping[str, type[StateStoreError]] = {
    kind.__name__: kind
    for kind in (
        *(StateStoreError, NotFound, Superseded, Conflict, Full, Incomplete),
        *(Damaged, Invalid, Unavailable, Lost, Missing),
    )
}


def rebuild(name: str, message: str, remedy: str, details: Mapping[str, int]) -> StateStoreError:
    """The error that was raised at the other end of a wire; the root for a name that this version does not know."""
    return _rebuild(KINDS.get(name, StateStoreError), message, remedy, details)


def _rebuild(
    kind: type[StateStoreError], message: str, remedy: str, details: Mapping[str, int]
) -> StateStoreError:
    if issubclass(kind, Full):
        return kind(message, remedy=remedy, **{n: details.get(n, 0) for n in ("needed", "free", "limit")})
    return kind(message, remedy=remedy)
