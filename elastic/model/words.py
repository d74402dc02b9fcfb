"""Numbers in sentences for people."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """`1 task`, `2 tasks`, `10,000 tasks`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
