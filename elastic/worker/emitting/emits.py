"""The code of the functions that are generated for each stream: `emit`, `emit_all` and what emits a generator's values.

The fields are local variables in it, and may have any name that does not begin with `_`: whatever else the code uses after a field
has its value has a name that does, Python's own functions among it (`BUILTINS`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

BUILTINS: dict[str, Any] = {
    "_len": len,
    "_map": map,
    "_step": next,
    "_isinstance": isinstance,
    "_list": list,
    "_tuple": tuple,
    "_Exception": Exception,
    "_missing": (KeyError, TypeError),
    "_nothing": object(),
    "_wrong": (TypeError, ValueError),
}
"""What the generated code calls what is Python's: a field may be called `len`, and is a variable then."""


class Emits(NamedTuple):
    """The functions that are generated for a stream.

    Attributes:
        emit: A tuple, of its values.
        emit_all: Many tuples; `Component.emit_all`.
        emit_each: Many tuples, values that are tuples taken apart, by the rule of `Component._emit_each`.
    """

    emit: Callable[..., None]
    emit_all: Callable[..., None]
    emit_each: Callable[..., int]


def functions(stream: str, names: list[str], body: list[str], only: str = "") -> str:
    """The code of a stream's `Emits`: the same body in each, with the fields as its variables.

    Args:
        stream: The stream's name.
        names: Its fields.
        body: The lines that make a tuple and put it into the buffers of its targets.
        only: The buffer, if all tuples go into one: a list of values, as `str.split` gives one, goes there as a whole.
    """
    fields = ", ".join(names)
    # One field is taken as it comes, several out of each value.
    each = fields if len(names) == 1 else f"({fields},)"
    if len(names) == 1:
        value, routed = fields, [f"if {fields}.__class__ is _tuple: _emit(*{fields})", "else:"]
    else:
        # `_emit` says what is wrong with a value that does not fit. A named tuple may; a plain one does not wait for that question.
        value = "_v"
        routed = [
            "if _v.__class__ is not _tuple: _emit(*_v) if _isinstance(_v, _tuple) else _emit(_v)",
            f"elif _len(_v) != {len(names)}: _emit(*_v)",
            "else:",
            f"    {each} = _v",
        ]
    return "\n".join(
        [
            f"def emit({fields}):",
            *("    " + line for line in body),
            f"def emit_all(values, stream={stream!r}):",
            f"    if stream != {stream!r}: return _other(values, stream)",
            *_all_of(names, _as_a_whole(names, only), body),
            "def emit_each(_values, _failed=None, _ended=None):",
            "    _n = 0",
            "    try:",
            f"        for {value} in _values:",
            "            _n += 1",
            "            try:",
            *("                " + line for line in routed),
            *("                    " + line for line in body),
            "            except _Exception as _e:",
            "                if _failed is None: raise",
            f"                if _failed(_e, {value}): break",
            "    except _Exception as _e:",
            "        if _ended is None: raise",
            "        _ended(_e)",
            "    return _n",
        ]
    )


def _as_a_whole(names: list[str], only: str) -> list[str]:
    """Half the time of the loop, whose steps are the interpreter's. What is no list may emit something itself while it is read."""
    if not only:
        return []
    made = "_map(_T, values)" if len(names) == 1 else "_starmap(_T, values)"
    return [
        "if values.__class__ is _list and _len(values) <= _limit:",
        f"    {only}.extend({made})",
        f"    if _len({only}) >= _limit: _full({only})",
        "    return",
    ]


def _all_of(names: list[str], whole: list[str], body: list[str]) -> list[str]:
    """The loop. What Python says of a value that is not as many as there are fields does not name the stream: `_misfit` does."""
    if len(names) == 1:
        return [
            "    " + line
            for line in [*whole, f"for {names[0]} in values:", *("    " + line for line in body)]
        ]
    loop = ["for _v in values:", f"    {', '.join(names)} = _v", *("    " + line for line in body)]
    return [
        "    _v = _nothing",  # also within a list that goes as a whole
        "    try:",
        *("        " + line for line in [*whole, *loop]),
        "    except _wrong as _e:",
        "        _misfit((_v,) if _v is not _nothing else values if values.__class__ is _list else ())",
        "        raise",
    ]


@functools.lru_cache(256)
def compiled(code: str, name: str) -> types.CodeType:
    """Compiled once for all tasks of a component."""
    return compile(code, name, "exec")
