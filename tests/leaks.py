"""What a test has left behind in its own process: threads and open files that were not there before it.

By identity, not by number: what an earlier test's servers end meanwhile must neither fail a test nor hide a leak in it.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import NamedTuple


class Held(NamedTuple):
    """What a process holds."""

    threads: frozenset[threading.Thread]
    files: frozenset[tuple[str, str]]


def held() -> Held:
    """What this process holds now. Files only where /proc shows them."""
    return Held(frozenset(threading.enumerate()), frozenset(_files()))


def left_since(before: Held) -> list[str]:
    """What has come since then and is there still."""
    now = held()
    return sorted(map(repr, now.threads - before.threads)) + sorted(
        f"{number}: {what}" for number, what in now.files - before.files
    )


def _files() -> list[tuple[str, str]]:
    if sys.platform != "linux":
        return []
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the names are enough
        with suppress(FileNotFoundError):  # the one that lists them
            found.append((number, os.readlink(f"/proc/self/fd/{number}")))  # noqa: PTH115
    return found
