"""What is given to a step: seen to where it is written, and not by a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from elastic.api.components import Bolt, Spout
from elastic.errors import TopologyError
from elastic.flow.keyed import Folding, FoldingBy


def getter(key: object) -> Callable[[Any], Any]:
    """What makes the key of an element: a function, or the name of an attribute."""
    return attrgetter(key) if isinstance(key, str) else key  # type: ignore[return-value]  # which is looked at later


def folding(
    begin: Callable[[], Any], add: Callable[[Any, Any], Any], merge: Callable[[Any, Any], Any] | None
) -> Folding:
    """What `fold` does.

    Raises:
        TopologyError: These are no functions.
    """
    if not callable(begin):
        raise TopologyError(
            f"fold() begins with what a function makes, and was given {begin!r}.",
            remedy=f"lambda: {begin!r}, so that no two keys share it; int and list are such functions, too.",
        )
    check("fold", add)
    if merge is not None:
        check("fold", merge)
    return FoldingBy(begin, add, merge)


def check_time(what: str, time: object) -> None:
    """Raises: TopologyError: It is neither a name, nor a function, nor left out."""
    if time is not None and not isinstance(time, str):
        check(what, time)


def check(what: str, function: object) -> None:
    """See that calling it does something.

    Raises:
        TopologyError: It cannot be called, or would not be run.
    """
    if isinstance(function, Bolt | Spout) or (
        isinstance(function, type) and issubclass(function, Bolt | Spout)
    ):
        shown = function.__name__ if isinstance(function, type) else type(function).__name__
        raise TopologyError(
            f"{what}() takes a function, not the component {shown}.",
            remedy=f"{'sink' if what == 'sink' else 'through'}({shown}(...))",
        )
    if not callable(function):
        raise TopologyError(f"{what}() takes a function, not {function!r}.")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TopologyError(
            f"{what}() was given an async function: calling it would do nothing.",
            remedy="Make it a plain function; asyncio.run(...) in it runs a coroutine.",
        )
    if inspect.isgeneratorfunction(function) and what != "flat_map":
        raise TopologyError(
            f"{what}() was given a generator: calling it would do nothing.",
            remedy="flat_map(function) takes all that a function yields; others return a value.",
        )
