"""The version of elastic that is installed."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def version() -> str:
    """As in the distribution's metadata; "unknown" when run out of a source tree that was never installed."""
    try:
        return metadata.version("elastic-streams")
    except metadata.PackageNotFoundError:
        return "unknown"
