"""Schedulers by name, with parameters: `tstorm --gamma 1.7`. Others come by the entry point group `elastic.schedulers`.

A plug-in's entry point gives a `Kind`: its name, its parameters as a dataclass (`elastic.model.parameters`), and a pure function.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from elastic.errors import ConfigError
from elastic.model.assignment import Assignment
from elastic.model.ids import TopologyName
from elastic.model.loadview import LoadView
from elastic.model.parameters import Parameter, describe, make, parse, spell, split
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
        workers: Whether it decides how many workers a topology has. Then no policy does: each would undo what the other has done.
    """

    name: str
    summary: str
    params: type[Any]
    decide: Decide
    period: float = 10.0
    excess: Excess | None = None
    workers: bool = False

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
        workers=True,
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


def names(plugins: Sequence[EntryPoint] | None = None) -> tuple[str, ...]:
    """All that `find` knows, ascending; nothing is loaded for it.

    Args:
        plugins: Entry points; by default those of the installed packages.
    """
    return tuple(sorted({kind.name for kind in BUILT_IN} | {point.name for point in _points(plugins)}))


def _points(plugins: Sequence[EntryPoint] | None) -> Sequence[EntryPoint]:
    return sorted(entry_points(group=GROUP) if plugins is None else plugins, key=lambda p: p.name)


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
    if kind.name != point.name:
        raise ConfigError(
            f"the scheduler plug-in {point.name!r} ({point.value}) calls itself {kind.name!r}",
            remedy="give its entry point that name",
        )
    try:
        describe(kind.params)
    except TypeError as error:
        raise ConfigError(
            f"the parameters of the scheduler plug-in {point.name!r} are wrong: {error}",
            remedy="make every field of its dataclass by elastic.model.parameters.parameter",
        ) from error
    return kind


def choose(text: str | Sequence[str], plugins: Sequence[EntryPoint] | None = None) -> Choice:
    """A scheduler from a line or from its words: `tstorm --gamma 1.7`.

    Args:
        plugins: As for `names`.

    Raises:
        ConfigError: No such scheduler or parameter, or a value that it cannot have.
    """
    words = split(f"scheduler {text!r}", text) if isinstance(text, str) else list(text)
    if not words:
        raise ConfigError("no scheduler is named", remedy=_known(plugins))
    kind = find(words[0], plugins)
    return Choice(kind, parse(kind.who, kind.params, words[1:]))


def choice(name: str, values: Mapping[str, Any], plugins: Sequence[EntryPoint] | None = None) -> Choice:
    """A scheduler from its name and a mapping of parameters.

    Raises:
        ConfigError: As `choose`.
    """
    kind = find(name, plugins)
    return Choice(kind, make(kind.who, kind.params, values))


def find(name: str, plugins: Sequence[EntryPoint] | None = None) -> Kind:
    """The scheduler of that name. Those of elastic come first: a plug-in that is broken is in nobody's way but its own.

    Raises:
        ConfigError: There is none, or the package that offers it gives something else.
    """
    for kind in BUILT_IN:
        if kind.name == name:
            return kind
    for point in _points(plugins):
        if point.name == name:
            return load_plugin(point)
    near = difflib.get_close_matches(name, names(plugins), 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"there is no scheduler {name!r}", remedy=hint + _known(plugins))


def _known(plugins: Sequence[EntryPoint] | None) -> str:
    return "there are: " + ", ".join(names(plugins))
