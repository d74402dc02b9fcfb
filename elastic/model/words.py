"""Sentences for people: numbers in them, and text of users that can be sent to anybody."""

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


def plain(text: str, most: int) -> str:
    """Text that can be sent to anybody: without lone surrogates, and cut to `most` characters."""
    if len(text) <= most and text.isascii():
        return text
    # What cannot be said in UTF-8 gets longer: cut last.
    text = text[: most + 1].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else text[:most] + "..."
