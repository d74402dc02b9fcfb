"""Sentences for people: numbers in them, and text of users that can be sent to anybody."""

from __future__ import annotations

import math


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


def number(value: float) -> str:
    """A count or rate, with thousands separated; three figures below a hundred."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


def share(value: float) -> str:
    """A share of 1 as a percentage."""
    return f"{value * 100:.0f}%"


def duration(seconds: float) -> str:
    """Seconds, for people: 0.42 s, 12 s, 3m 20s, 2h 05m, 3d 04h."""
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600:02d}h"


def clock(time: float) -> str:
    """Seconds since 1970 as the local date and time."""
    from datetime import datetime

    return datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def plain(text: str, most: int) -> str:
    """Text that can be sent to anybody: without lone surrogates, and cut to `most` characters."""
    if len(text) <= most and text.isascii():
        return text
    # What cannot be said in UTF-8 gets longer: cut last.
    text = text[: most + 1].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else text[:most] + "..."
