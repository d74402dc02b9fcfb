"""Policies by name: those of elastic, and those that installed packages offer under the entry point group `elastic.policies`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from elastic.elasticity import ds2, thresholds
from elastic.elasticity.base import Policy
from elastic.errors import ConfigError
from elastic.model.parameters import describe, parse

GROUP = "elastic.policies"
BUILT_IN = {p.name: p for p in (thresholds.POLICY, ds2.POLICY)}


def names() -> tuple[str, ...]:
    """All that `find` knows, ascending."""
    return tuple(sorted({*BUILT_IN, *(e.name for e in entry_points(group=GROUP))}))


def find(name: str) -> Policy:
    """The policy of that name.

    Raises:
        ConfigError: There is none, or the package that offers it gives something else.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    for point in entry_points(group=GROUP):
        if point.name == name:
            return _checked(name, point.value, _load(point))
    near = difflib.get_close_matches(name, names(), 1)
    raise ConfigError(
        f"there is no policy {name!r}",
        remedy=(f"did you mean {near[0]!r}? " if near else "") + "known are " + ", ".join(names()),
    )


def parameters_of(policy: Policy, words: Sequence[str]) -> Any:
    """A policy's parameters from the words of a command line, checked one by one and together.

    Raises:
        ConfigError: An unknown name, or a value that it cannot have.
    """
    params = parse(f"policy {policy.name!r}", policy.params, words)
    policy.check(params)
    return params


def _load(point: Any) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever the other package does when it is imported
        raise ConfigError(
            f"policy {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}",
            remedy="repair or remove the package that offers it",
        ) from error


def _checked(name: str, where: str, found: object) -> Policy:
    if not isinstance(found, Policy):
        raise ConfigError(
            f"policy {name!r}: {where} is a {type(found).__name__}, not an elastic.elasticity.base.Policy",
            remedy="let the entry point name a Policy object",
        )
    try:
        describe(found.params)
    except TypeError as error:
        raise ConfigError(
            f"policy {name!r}: its parameters cannot be used: {error}",
            remedy="declare each by elastic.model.parameters.parameter",
        ) from error
    return found
