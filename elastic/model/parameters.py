"""Parameters of exchangeable parts (schedulers, policies): declared on a frozen dataclass, given as text, checked on the way in.

    @dataclass(frozen=True, slots=True)
    class Params:
        gamma: float = parameter(1.0, minimum=0.1, help="Consolidation factor.")

A dataclass whose parameters depend on each other checks that in `__post_init__`, and raises ConfigError.

`parse("scheduler 'tstorm'", Params, ["--gamma", "1.7"])` gives `Params(gamma=1.7)`; `spell` is its inverse.
"""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from elastic.errors import ConfigError

P = TypeVar("P")
_KEY = "elastic.parameter"
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, for people.

    Attributes:
        name: As on the command line, without dashes in front: `workers-per-node`.
        kind: "number", "whole number", "yes or no" or "text".
        minimum, maximum: Bounds of numbers, both included; None: no bound.
        choices: What a text may be; empty: anything.
    """

    name: str
    kind: str
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


def parameter(
    default: Any,
    *,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """A field of a dataclass of parameters. Its type is that of the default: float, int, bool or str."""
    return field(default=default, metadata={_KEY: (help, minimum, maximum, tuple(choices))})


_KINDS = {bool: "yes or no", int: "whole number", float: "number", str: "text"}


def describe(kind: type[Any]) -> tuple[Parameter, ...]:
    """The parameters that a dataclass declares, in its order."""
    return tuple(_describe(f) for f in fields(kind))


def _describe(f: Field[Any]) -> Parameter:
    if _KEY not in f.metadata or f.default is MISSING:
        raise TypeError(f"the field {f.name!r} is not made by `parameter`")
    help, minimum, maximum, choices = f.metadata[_KEY]
    return Parameter(
        f.name.replace("_", "-"), _KINDS[type(f.default)], f.default, help, minimum, maximum, choices
    )


def parse(who: str, kind: type[P], words: Sequence[str]) -> P:
    """Parameters from the words of a command line: `--gamma 1.7` or `--gamma=1.7`; a yes-or-no parameter may stand alone.

    Args:
        who: Whose parameters they are, for messages: "scheduler 'tstorm'".

    Raises:
        ConfigError: An unknown name, or a value that it cannot have.
    """
    given: dict[str, Any] = {}
    flags = {p.name for p in describe(kind) if p.kind == "yes or no"}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise ConfigError(
                f"{who}: {word!r} is not a parameter", remedy="write `--name value`; " + _known(kind)
            )
        name, equals, value = word[2:].partition("=")
        if not equals:
            if rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            elif name in flags:
                value = "true"
            elif name in {p.name for p in describe(kind)}:
                raise ConfigError(f"{who}: --{name} has no value", remedy=f"write `--{name} value`")
        if name in given:
            raise ConfigError(f"{who}: --{name} is given twice", remedy="give it once")
        given[name] = value
    return make(who, kind, given)


def make(who: str, kind: type[P], values: Mapping[str, Any]) -> P:
    """Parameters from a mapping of names (with dashes or underscores) to values, or to their text.

    Raises:
        ConfigError: An unknown name, or a value that it cannot have.
    """
    known = {p.name: p for p in describe(kind)}
    result = {}
    for raw, value in values.items():
        name = raw.replace("_", "-")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean --{near[0]}? " if near else ""
            raise ConfigError(f"{who} has no parameter --{name}", remedy=hint + _known(kind))
        result[name.replace("-", "_")] = _checked(who, known[name], value)
    return kind(**result)


def split(what: str, text: str) -> list[str]:
    """The words of a line, as a shell takes it apart: what is in quotes is one. `shlex.join` is the inverse.

    Args:
        what: The line, for messages.

    Raises:
        ConfigError: Quotes that are not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"the {what} cannot be read: {error}", remedy="close the quotes") from None


def spell(params: Any) -> str:
    """Parameters as a line whose words (`split`) `parse` reads; those that have their default are left out."""
    words = []
    for p in describe(type(params)):
        value = getattr(params, p.name.replace("-", "_"))
        if value != p.default:
            text = _spelt(value)
            # What begins as a name does is taken for a value only as a part of the same word.
            between = "=" if text.startswith("--") else " "
            words.append(f"--{p.name}{between}{shlex.quote(text)}")
    return " ".join(words)


def valued(params: Any) -> dict[str, str]:
    """Every parameter's value as text, by name."""
    return {p.name: _spelt(getattr(params, p.name.replace("-", "_"))) for p in describe(type(params))}


def _spelt(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _known(kind: type[Any]) -> str:
    names = ", ".join("--" + p.name for p in describe(kind))
    return f"it takes {names}" if names else "it takes no parameters"


def _checked(who: str, p: Parameter, value: Any) -> Any:
    try:
        result = _converted(p, value)
    except ValueError:
        raise ConfigError(f"{who}: --{p.name} is {value!r}", remedy=f"give a {p.kind}. {p.help}") from None
    if p.choices and result not in p.choices:
        raise ConfigError(f"{who}: --{p.name} is {value!r}", remedy="give one of: " + ", ".join(p.choices))
    low = p.minimum is not None and result < p.minimum
    if low or (p.maximum is not None and result > p.maximum):
        bound = f"at least {p.minimum:g}" if low else f"at most {p.maximum:g}"
        raise ConfigError(f"{who}: --{p.name} is {_spelt(result)}", remedy=f"it must be {bound}. {p.help}")
    return result


def _converted(p: Parameter, value: Any) -> Any:
    if p.kind == "yes or no":
        if isinstance(value, bool):
            return value
        word = str(value).lower()
        if word not in _TRUE | _FALSE:
            raise ValueError(value)
        return word in _TRUE
    if isinstance(value, bool):
        raise ValueError(value)
    if p.kind == "text":
        return str(value)
    if p.kind == "whole number":
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(value)
        return int(value)
    number = float(value)
    if math.isnan(number):
        raise ValueError(value)
    return number
