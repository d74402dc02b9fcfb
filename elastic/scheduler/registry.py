"""Schedulers by name, with parameters: `tstorm --gamma 1.7`. Others come by the entry point group `elastic.schedulers`.

A plug-in's entry point gives a `Kind`: its name, its parameters as a dataclass (`elastic.model.parameters`), and a pure function.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from elastic.errors import ConfigError
from elastic.model.assignment import Assignment
from elastic.model.ids import TopologyName
from elastic.model.loadview import LoadView
from elastic.model.parameters import Parameter, describe, make, parse, spell
from elastic.scheduler import even, otd, tstorm
from elastic.scheduler.base import ClusterView, Demand
from elastic.scheduler.decision import Decide, Decision

GROUP = "elastic.schedulers"
Excess = Callable[[ClusterView, LoadView, Mapping[TopologyName, Assignment], Any], float]
"""(living nodes, load, assignments in force, the scheduler's parameters) -> cores."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A scheduler that can be chosen.

    Attributes:
        name: What it is called on the command line.
        summary: One line for people.
        params: The dataclass of its parameters; every field is made by `elastic.model.parameters.parameter`.
        decide: The function itself.
        period: Seconds between two decisions that suit it, when nobody says otherwise.
        excess: Cores by which the present placement exceeds what the parameters allow. It is asked with every sample of the load; when it
            says more than nothing, a decision does not wait for the period. None: decisions are made once a period, whatever the load.
    """

    name: str
    summary: str
    params: type[Any]
    decide: Decide
    period: float = 10.0
    excess: Excess | None = None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What can be set."""
        return describe(self.params)

    @property
    def who(self) -> str:
        """It, for messages."""
        return f"scheduler {self.name!r}"


BUILT_IN = (
    Kind(
        "roundrobin",
        "Storm's even scheduler: moves nothing that has a valid place",
        even.EvenParams,
        even.decide,
    ),
    Kind(
        "tstorm",
        "T-Storm: least traffic between nodes, within capacities; consolidates by gamma",
        tstorm.TStormParams,
        tstorm.decide,
        300.0,
        tstorm.excess,
    ),
    Kind(
        "otd",
        "OTD: one move a cycle, towards balance first and less traffic then",
        otd.OtdParams,
        otd.decide,
        5.0,
    ),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheduler with its parameters: what is in force, and what can be written down."""

    kind: Kind
    params: Any

    def decide(
        self,
        demands: Sequence[Demand],
        cluster: ClusterView,
        load: LoadView,
        current: Mapping[TopologyName, Assignment],
    ) -> Decision:
        """See `elastic.scheduler.decision.Decide`."""
        return self.kind.decide(demands, cluster, load, current, self.params)

    def excess(
        self, cluster: ClusterView, load: LoadView, current: Mapping[TopologyName, Assignment]
    ) -> float:
        """Cores by which the present placement exceeds what it may; 0.0 when the scheduler does not say. See `Kind.excess`."""
        return 0.0 if self.kind.excess is None else self.kind.excess(cluster, load, current, self.params)

    def __str__(self) -> str:
        """Text that `choose` reads."""
        return f"{self.kind.name} {spell(self.params)}".strip()


def kinds(plugins: Sequence[EntryPoint] | None = None) -> dict[str, Kind]:
    """All schedulers by name, those of plug-ins included.

    Args:
        plugins: Entry points; by default those of the installed packages.

    Raises:
        ConfigError: A plug-in cannot be loaded, gives something else than a Kind, or has a name that is taken.
    """
    result = {kind.name: kind for kind in BUILT_IN}
    for point in sorted(entry_points(group=GROUP) if plugins is None else plugins, key=lambda p: p.name):
        kind = load_plugin(point)
        if kind.name in result:
            raise ConfigError(
                f"the plug-in {point.value!r} offers a scheduler {kind.name!r}, and there is one already",
                remedy="uninstall one of the two, or give the plug-in's another name",
            )
        result[kind.name] = kind
    return result


def load_plugin(point: EntryPoint) -> Kind:
    """The scheduler behind an entry point.

    Raises:
        ConfigError: It cannot be loaded, or is no scheduler.
    """
    try:
        kind = point.load()
    except Exception as error:  # a plug-in's import may raise anything
        raise ConfigError(
            f"the scheduler plug-in {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}",
            remedy="repair or uninstall the package that has it",
        ) from error
    if not isinstance(kind, Kind):
        raise ConfigError(
            f"the scheduler plug-in {point.name!r} ({point.value}) is no elastic.scheduler.registry.Kind but {kind!r}",
            remedy="let its entry point name a Kind",
        )
    try:
        describe(kind.params)
    except TypeError as error:
        raise ConfigError(
            f"the parameters of the scheduler plug-in {point.name!r} are wrong: {error}",
            remedy="make every field of its dataclass by elastic.model.parameters.parameter",
        ) from error
    return kind


def choose(text: str | Sequence[str], among: Mapping[str, Kind] | None = None) -> Choice:
    """A scheduler from a line or from its words: `tstorm --gamma 1.7`.

    Raises:
        ConfigError: No such scheduler or parameter, or a value that it cannot have.
    """
    try:
        words = shlex.split(text) if isinstance(text, str) else list(text)
    except ValueError as error:
        raise ConfigError(
            f"the scheduler {text!r} cannot be read: {error}", remedy="close the quotes"
        ) from None
    if not words:
        raise ConfigError("no scheduler is named", remedy=_known(kinds() if among is None else among))
    kind = find(words[0], among)
    return Choice(kind, parse(kind.who, kind.params, words[1:]))


def choice(name: str, values: Mapping[str, Any], among: Mapping[str, Kind] | None = None) -> Choice:
    """A scheduler from its name and a mapping of parameters.

    Raises:
        ConfigError: As `choose`.
    """
    kind = find(name, among)
    return Choice(kind, make(kind.who, kind.params, values))


def find(name: str, among: Mapping[str, Kind] | None = None) -> Kind:
    """The scheduler of that name.

    Raises:
        ConfigError: There is none.
    """
    known = kinds() if among is None else among
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"there is no scheduler {name!r}", remedy=hint + _known(known))
    return known[name]


def _known(known: Mapping[str, Kind]) -> str:
    return "there are: " + ", ".join(sorted(known))
