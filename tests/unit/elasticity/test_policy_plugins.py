"""Policies of other packages: found by entry point, checked, used by name."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from loads import ROOM, busy, spec, subject, view

from elastic.elasticity import registry
from elastic.elasticity.base import Policy, Sizing
from elastic.elasticity.manager import ElasticityManager
from elastic.errors import ConfigError
from elastic.model.ids import ComponentId
from elastic.model.parameters import parameter
from elastic.nimbus.balancing.elastic_lines import changed_policy, read_policy, spell_policy


@dataclass(frozen=True, slots=True)
class Constant:
    executors: int = parameter(3, minimum=1, help="How many executors every bolt gets.")


def size(loads: Any, subject: Any, room: Any, params: Constant) -> Sizing:
    return Sizing({c: params.executors for c in loads if subject.executors[c] != params.executors})


CONSTANT = Policy("constant", "as many as one says", Constant, size)
WRONG = "not a policy"


@dataclass(frozen=True)
class Odd:
    number: int = 3


ODD = Policy("odd", "with parameters that are none", Odd, size)


@dataclass(frozen=True, slots=True)
class Placed:
    where: str = parameter("anywhere", help="A text.")


PLACED = Policy("placed", "with a text", Placed, size)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    def install(name: str, what: str) -> None:
        point = EntryPoint(name, f"{__name__}:{what}" if ":" not in what else what, registry.GROUP)
        monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([point]).select(group=group))

    return install


def test_an_installed_policy_is_used_by_name(install: Callable[[str, str], None]) -> None:
    install("constant", "CONSTANT")
    assert registry.names() == ("constant", "ds2", "thresholds")
    manager = ElasticityManager("constant --executors 5")
    t = spec(source=1, bolt=2)
    decision = manager.run(view(t, {"bolt": [busy(0.5)] * 2}), [subject(t)], ROOM, 1.0).decision
    assert decision is not None
    assert decision.executors[ComponentId("bolt")] == 5
    with pytest.raises(ConfigError, match="executors is 0"):
        manager.use("constant --executors 0")


def test_a_text_is_read_again_as_it_was_given(install: Callable[[str, str], None]) -> None:
    install("placed", "PLACED")
    for text in ("rack 1", "", "--far", "it's"):
        line = spell_policy(shlex.join(["placed", f"--where={text}", "--period", "2"]))
        assert spell_policy(line) == line
        found = read_policy(line)
        assert found is not None and found.make().params == Placed(text)
        assert changed_policy(line, "--period 5") == found.make().describe()
    with pytest.raises(ConfigError, match="cannot be read"):
        ElasticityManager("placed --where 'x")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("WRONG", "is a str, not an elastic.elasticity.base.Policy"),
        ("ODD", "its parameters cannot be used"),
        ("no.such.module:X", "cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_name(
    install: Callable[[str, str], None], what: str, message: str
) -> None:
    install("mine", what)
    with pytest.raises(ConfigError, match="policy 'mine'") as found:
        registry.find("mine")
    assert message in str(found.value)


def test_an_unknown_one_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="known are ds2, thresholds"):
        registry.find("magic")
