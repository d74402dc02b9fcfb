"""What every adapter refuses before it asks anybody."""

from __future__ import annotations

from collections.abc import Sequence

from elastic.coordination.base import MAX_BYTES, Create, Operation, Set
from elastic.errors import Refused

_NAMED = 8
"""Paths of a transaction that are named to people."""
_EACH = 128
"""Bytes that an operation of a transaction takes beside its path and data: the root that its path begins with, rights, lengths. What is
more than the server takes at once it does not answer: it hangs up."""


def check(path: str, data: bytes = b"") -> str:
    """Returns the path.

    Raises:
        ValueError: It is not absolute, or has an empty or relative element.
        Refused: The value is too large.
    """
    if path != "/" and (not path.startswith("/") or any(p in ("", ".", "..") for p in path[1:].split("/"))):
        raise ValueError(f"not a path of the coordination tree: {path!r}")
    size(path, len(data))
    return path


def transaction(operations: Sequence[Operation]) -> str:
    """Returns what it is about, for people.

    Raises:
        ValueError, Refused: As `check`, also of all together.
    """
    paths = [check(o.path) for o in operations]
    named = ", ".join(paths[:_NAMED]) + (f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else "")
    size(
        named,
        sum(_EACH + len(o.path) + (len(o.data) if isinstance(o, Create | Set) else 0) for o in operations),
    )
    return named


def size(what: str, count: int) -> None:
    if count > MAX_BYTES:
        raise Refused(
            f"{what}: {count:,} bytes are too many for coordination, which takes {MAX_BYTES:,}",
            remedy="Small facts only: code bundles and state travel another way.",
        )


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
