"""Lines that choose who resizes and places: `ds2 --target 0.5 --period 2 --dry-run`. Pure.

One line has parameters of the policy, of the manager that asks it, and of the monitor that measures for it; each finds its owner by its
name.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace

from elastic.elasticity import infrastructure, registry
from elastic.elasticity.infrastructure import Infrastructure
from elastic.elasticity.manager import ElasticityManager
from elastic.elasticity.monitor import MonitorConfig
from elastic.elasticity.processes import ManagerConfig
from elastic.errors import ConfigError
from elastic.model.ids import TopologyName
from elastic.model.parameters import describe, make, parse, spell, split
from elastic.model.topology import TopologySpec

OFF = "off"
"""Instead of a policy, a scheduler or parameters: none."""
_MONITOR = {"alpha": "alpha", "sample": "period"}


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """A line, taken apart.

    Attributes:
        policy: Name and parameters, as `ElasticityManager.use` takes them.
        manager: Period, cooldown, dry-run and so on.
        monitor: What it says of `MonitorConfig`, by name.
    """

    policy: str
    manager: ManagerConfig
    monitor: dict[str, str] = field(default_factory=dict)

    def make(self) -> ElasticityManager:
        """A manager that remembers nothing yet."""
        return ElasticityManager(self.policy, self.manager)

    @property
    def sample(self) -> float:
        """Seconds that a sample of the load covers: two of them fit a period."""
        return float(self.monitor.get("period", min(1.0, self.manager.period / 2)))

    @property
    def alpha(self) -> float | None:
        """Weight of the past in averages; None: the line does not say."""
        return float(self.monitor["alpha"]) if "alpha" in self.monitor else None


def read_policy(text: str) -> PolicyLine | None:
    """A policy's line; None: there is none.

    Raises:
        ConfigError: It names what there is not, or a value that cannot be.
    """
    name, *words = _words("policy", text)
    if name == OFF:
        if words:
            raise ConfigError(f"policy {OFF!r} takes no parameters")
        return None
    found = registry.find(name)
    own = {p.name for p in describe(found.params)}
    ours = {p.name for p in describe(ManagerConfig)} - own
    policy: list[str] = []
    manager: list[str] = []
    monitor: dict[str, str] = {}
    owner = policy
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            if key in _MONITOR and key not in own:
                monitor[_MONITOR[key]] = value if equals else next(rest, "")
                continue
            owner = manager if key in ours else policy
        owner.append(word)
    try:
        registry.parameters_of(found, policy)
    except ConfigError as error:
        if all(w[2:].partition("=")[0] in own for w in policy if w.startswith("--")):
            raise
        known = ", ".join(f"--{n}" for n in sorted({*ours, *_MONITOR}))
        raise ConfigError(error.message, remedy=f"{error.remedy}; with every policy: {known}") from None
    config = parse("the elasticity manager", ManagerConfig, manager)
    try:
        make("the load monitor", MonitorConfig, monitor)
    except ConfigError as error:
        raise ConfigError(error.message.replace("--period", "--sample"), remedy=error.remedy) from None
    line = PolicyLine(shlex.join([name, *policy]), config, monitor)
    line.make()
    return line


def changed_policy(before: str, text: str) -> str:
    """What a line becomes by a new one, or by parameters alone: `--alpha 0.8 --period 2` changes those, and leaves the others as they are.

    Raises:
        ConfigError: As `read_policy`; or there is no policy whose parameters could be changed.
    """
    words = _words("policy", text)
    if not words[0].startswith("--"):
        return spell_policy(text)
    name, *old = _words("policy", before)
    if name == OFF:
        raise ConfigError(
            f"there is no policy whose {words[0]} could be changed",
            remedy=f"name one: {', '.join(registry.names())}",
        )
    return spell_policy(shlex.join([name, *_changed(old, words)]))


def changed_nodes(before: str, text: str) -> str:
    """What the line of automatic nodes becomes by parameters: those that are given change, the others stay; `off` forgets them.

    Raises:
        ConfigError: As `read_nodes`.
    """
    words = _words("line of automatic nodes", text)
    if words != [OFF] and before:
        words = _changed(_words("line of automatic nodes", before), words)
    params = read_nodes(shlex.join(words))
    return spell(params) if params.enabled else ""


def _changed(old: list[str], new: list[str]) -> list[str]:
    """The words of a line whose parameters are given anew."""
    given = _by_name(new)
    kept = {key: words for key, words in _by_name(old).items() if key not in given}
    return [w for words in (*kept.values(), *given.values()) for w in words]


def _by_name(words: list[str]) -> dict[str, list[str]]:
    """The words of each parameter, by its name; what is no parameter stays where it was, to be complained of."""
    found: dict[str, list[str]] = {}
    key = ""
    for word in words:
        if word.startswith("--"):
            key = word.partition("=")[0]
        found.setdefault(key, []).append(word)
    return found


def spell_policy(text: str) -> str:
    """The same line with what matters in it alone: defaults are left out. "" when there is no policy.

    Raises:
        ConfigError: As `read_policy`.
    """
    line = read_policy(text)
    if line is None:
        return ""
    monitor = {("sample" if k == "period" else k): v for k, v in line.monitor.items()}
    words = [line.make().describe(), spell(line.manager), *(f"--{k} {v}" for k, v in sorted(monitor.items()))]
    return " ".join(w for w in words if w)


def read_nodes(text: str) -> Infrastructure:
    """When nodes are asked for and returned.

    Raises:
        ConfigError: An unknown name, or a value that cannot be.
    """
    words = _words("line of automatic nodes", text)
    if words == [OFF]:
        return Infrastructure()
    params = parse("`nodes auto`", Infrastructure, words)
    infrastructure.check(params)
    said = any(w.partition("=")[0] == "--enabled" for w in words)
    return params if said else replace(params, enabled=True)


def policy_of(topology: TopologyName, setting: object, default: str) -> str:
    """The line that holds for a topology; "": none."""
    text = str(setting) if setting else default
    return "" if text.strip() == OFF else text


def check_setting(spec: TopologySpec) -> None:
    """See that there is the policy that a topology chooses for itself. Where it is built, nobody knows which there are.

    Raises:
        ConfigError: As `read_policy`.
    """
    try:
        read_policy(str(spec.config.get("elastic") or ""))
    except ConfigError as error:
        raise ConfigError(
            f"Setting 'elastic' of topology {str(spec.name)!r}: {error.message}", remedy=error.remedy
        ) from None


def _words(what: str, text: str) -> list[str]:
    return split(f"{what} {text!r}", text) or [OFF]
