"""Handing work to a pool of threads that may have been ended."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from elastic.errors import Unavailable


def have_done(pool: ThreadPoolExecutor, what: Callable[..., None], *arguments: Any) -> None:
    """Have something done on one of its threads.

    Raises:
        Unavailable: The worker is about to end.
    """
    try:
        pool.submit(what, *arguments)
    except RuntimeError as e:  # the pool is closed
        raise Unavailable("the worker is about to end") from e
