"""What every adapter refuses before it asks anybody."""

from __future__ import annotations

from elastic.errors import Refused

MAX_BYTES = 1_000_000
"""A little under what a ZooKeeper server accepts as one request; it answers a larger one by hanging up."""


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


def size(what: str, count: int) -> None:
    if count > MAX_BYTES:
        raise Refused(
            f"{what}: {count:,} bytes are too many for coordination, which takes {MAX_BYTES:,}",
            remedy="Small facts only: code bundles and state travel another way.",
        )


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
