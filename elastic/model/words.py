"""Numbers in sentences for people."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """`1 task`, `2 tasks`, `10,000 tasks`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def size(value: float) -> str:
    """Bytes, for people."""
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
