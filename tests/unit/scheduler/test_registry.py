"""Schedulers by name, their parameters, and plug-ins."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from benchmarks.placements import chain
from elastic.errors import ConfigError
from elastic.model.parameters import describe, make, parameter, parse, spell
from elastic.scheduler.decision import Decision, Reason
from elastic.scheduler.otd import OtdParams
from elastic.scheduler.registry import GROUP, Choice, Kind, choice, choose, find, names
from elastic.scheduler.tstorm import TStormParams


def test_a_line_names_a_scheduler_with_its_parameters() -> None:
    chosen = choose("tstorm --gamma 1.7 --workers-per-node=0")
    assert chosen.kind.name == "tstorm"
    assert chosen.params == TStormParams(gamma=1.7, workers_per_node=0)
    assert str(chosen) == "tstorm --gamma 1.7 --workers-per-node 0"
    assert choose(str(chosen)) == chosen
    assert choose(["otd", "--threshold", "5"]).params == OtdParams(threshold=5.0)
    assert str(choose("roundrobin")) == "roundrobin"
    assert choice("tstorm", {"worker_cores": "2"}).params.worker_cores == 2.0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "tstrom",
            "there is no scheduler 'tstrom'\n  did you mean 'tstorm'? there are: otd, roundrobin, tstorm",
        ),
        ("", "no scheduler is named"),
        ("tstorm --gama 2", "scheduler 'tstorm' has no parameter --gama\n  did you mean --gamma?"),
        ("tstorm --gamma 0.5", "--gamma is 0.5\n  it must be at least 1. Consolidation factor"),
        ("tstorm --gamma nan", "--gamma is 'nan'\n  give a number"),
        ("tstorm --gamma much", "--gamma is 'much'\n  give a number"),
        ("tstorm --gamma", "--gamma has no value"),
        ("tstorm --gamma 1 --gamma 2", "--gamma is given twice"),
        ("tstorm --workers-per-node 1.5", "--workers-per-node is '1.5'\n  give a whole number"),
        ("tstorm --measure sweat", "--measure is 'sweat'\n  give one of: cpu, busy"),
        ("tstorm fast", "'fast' is not a parameter"),
        ("otd --high 2", "it must be at most 1"),
        ("otd '", "cannot be read"),
    ],
)
def test_mistakes_are_named(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(line)
    assert message in str(caught.value)


def test_otd_wants_low_below_high() -> None:
    with pytest.raises(ConfigError, match=r"--low 0\.9 is not below --high 0\.8"):
        choose("otd --low 0.9")


@dataclass(frozen=True)
class Mine:
    eager: bool = parameter(False, help="At once.")
    name: str = parameter("x", help="Any text.")
    many: int = parameter(3, minimum=1, help="How many.")


def test_parameters_of_all_kinds() -> None:
    assert parse("it", Mine, ["--eager", "--many", "4"]) == Mine(True, "x", 4)
    assert parse("it", Mine, ["--eager", "no"]) == Mine()
    assert make("it", Mine, {"many": 5.0, "eager": "on"}) == Mine(True, "x", 5)
    assert spell(Mine(True, "y", 3)) == "--eager true --name y"
    assert parse("it", Mine, spell(Mine(True, "y", 9)).split()) == Mine(True, "y", 9)
    assert [p.name for p in describe(Mine)] == ["eager", "name", "many"]
    for wrong in ({"eager": "maybe"}, {"many": True}, {"many": 2.5}, {"many": 0}):
        with pytest.raises(ConfigError):
            make("it", Mine, wrong)


def _stay(demands, cluster, load, current, params) -> Decision:  # type: ignore[no-untyped-def]
    return Decision({d.spec.name: current[d.spec.name] for d in demands}, (Reason("kept", params.name),))


def _point(monkeypatch: pytest.MonkeyPatch, value: object) -> EntryPoint:
    module = ModuleType("a_plugin")
    module.scheduler = value  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_plugin", module)
    return EntryPoint("stay", "a_plugin:scheduler", GROUP)


def test_a_plugin_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = [_point(monkeypatch, Kind("stay", "Leaves everything.", Mine, _stay))]
    assert names(plugins) == ("otd", "roundrobin", "stay", "tstorm")
    chosen = choose("stay --name because", plugins)
    question = chain((2, 2), 2)
    decision = question.ask(chosen)
    assert decision.reasons[0].message == "because"
    for text in ("rack 1", "", "--far", "it's"):
        assert choose(str(Choice(chosen.kind, Mine(name=text))), plugins).params.name == text
    assert question.after(decision) == question


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "is no elastic.scheduler.registry.Kind but 3"),
        (Kind("tstorm", "", Mine, _stay), "calls itself 'tstorm'"),
        (
            Kind("stay", "", dataclass(type("P", (), {"__annotations__": {"x": int}, "x": 1})), _stay),
            "field 'x'",
        ),
    ],
)
def test_a_broken_plugin_is_named(value: object, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = [_point(monkeypatch, value), EntryPoint("gone", "no_such_module:x", GROUP)]
    with pytest.raises(ConfigError, match=message):
        find("stay", plugins)
    with pytest.raises(ConfigError, match="cannot be loaded: ModuleNotFoundError"):
        choose("gone --fast", plugins)
    assert choose("tstorm", plugins).kind.name == "tstorm", "it is in nobody's way but its own"
    assert names(plugins) == ("gone", "otd", "roundrobin", "stay", "tstorm")


def test_the_scheduler_is_swapped_while_everything_runs() -> None:
    # Each takes over what the one before left.
    question = chain((2, 4, 2), 3)
    for line in ("roundrobin", "tstorm --gamma 1.5", "otd --share 0", "tstorm --gamma 1", "roundrobin"):
        decision = question.ask(choose(line))
        assert decision.reasons
        question = question.after(decision)
    (a,) = question.current.values()
    assert len(a.executors) == 8
    assert not a.unassigned
