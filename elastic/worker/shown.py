"""Tuples and errors of user code as text for people: cut to a bearable length, whatever their own `repr` and attributes do."""

from __future__ import annotations

import traceback
from typing import Any

from elastic.api.fields import Tuple
from elastic.errors import ElasticError
from elastic.machine import with_limit

MADE = "<emit of "
"""How the names of generated functions' files begin: tracebacks are shown without their lines."""
_SHOWN = 500
_SAID = 2000
_TRACE = 20_000
MESSAGE = 4000
DETAIL = 40_000
"""Characters of an event's message and of each of its details at most."""


def shown(tup: Any) -> str:
    """A tuple as text, cut to a bearable length; whatever its values' own `repr` do, and however large they are."""
    names = getattr(type(tup), "__struct_fields__", None)
    if names is None:
        return _shown(tup, _SHOWN)
    each = max(40, _SHOWN // max(1, len(names)))
    text = f"{type(tup).__name__}({', '.join(f'{n}={_shown(getattr(tup, n), each)}' for n in names)})"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _shown(value: Any, most: int) -> str:
    try:
        if isinstance(value, str | bytes | bytearray):
            value = value[: most + 1]
        text = repr(value)
    except Exception as e:
        return f"(repr raised {type(e).__name__})"
    return text if len(text) <= most else text[:most] + "..."


def described(error: BaseException) -> str:
    """An error's class and message, cut to a bearable length; whatever its `__str__` does."""
    name = type(error).__name__
    try:
        text = str(error)
        if isinstance(error, AttributeError) and isinstance(error.obj, Tuple):
            text += f" (its fields: {', '.join(error.obj.fields)})"
        text = with_limit(text, error)
    except Exception as e:  # the thread that says what has failed would end by it
        text = f"(str raised {type(e).__name__})"
    return f"{name}: {text[:_SAID]}{'...' if len(text) > _SAID else ''}" if text else name


def why(error: BaseException) -> str:
    """The reason that an error gives: its own message, with its class if it is none of elastic's."""
    return error.message if isinstance(error, ElasticError) else described(error)


def user_traceback(error: BaseException) -> str:
    """The traceback, with those of its causes, without the framework's own frames in front of the user's code; whatever the error's own
    attributes do."""
    try:
        return _traceback(error)
    except Exception as e:  # as in `described`
        return f"(the traceback of {type(error).__name__} cannot be shown: {type(e).__name__})"


def _traceback(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
    own = (__file__.rpartition("/worker/")[0], MADE)
    todo, seen = [told], set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        while len(one.stack) > 1 and one.stack[0].filename.startswith(own):
            one.stack.pop(0)
        todo += [e for e in (one.__cause__, one.__context__) if e is not None]
    text = "".join(told.format())
    if len(text) <= _TRACE:
        return text
    return f"{text[: _TRACE // 2]}\n...\n{text[-_TRACE // 2 :]}"
