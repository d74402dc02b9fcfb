"""Lines that choose policies, schedulers' kin and automatic nodes: each parameter finds its owner, and what is wrong is refused."""

from __future__ import annotations

import pytest

from elastic.errors import ConfigError
from elastic.model.ids import TopologyName
from elastic.model.topology import TopologySpec
from elastic.nimbus.balancing.elastic_lines import (
    changed_nodes,
    changed_policy,
    check_setting,
    policy_of,
    read_nodes,
    read_policy,
    spell_policy,
)


def test_each_parameter_finds_its_owner() -> None:
    line = read_policy("ds2 --target 0.5 --period=2 --dry-run --cooldown 3 --alpha 0.2 --sample 0.5")
    assert line is not None and line.policy == "ds2 --target 0.5"
    assert (line.manager.period, line.manager.dry_run, line.manager.cooldown) == (2.0, True, 3)
    assert line.monitor == {"alpha": "0.2", "period": "0.5"} and line.sample == 0.5
    made = line.make()
    assert made.policy.name == "ds2" and made.params.target == 0.5 and made.config == line.manager


def test_two_samples_fit_a_period_unless_it_is_said_otherwise() -> None:
    quick, slow = read_policy("thresholds --period 1"), read_policy("thresholds --period 60")
    assert quick is not None and slow is not None
    assert (quick.sample, slow.sample) == (0.5, 1.0)


@pytest.mark.parametrize("text", ["", "off", "  off "])
def test_no_policy(text: str) -> None:
    assert read_policy(text) is None and spell_policy(text) == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("threshold", "did you mean 'thresholds'"),
        ("thresholds --scale-uot 1", "--scale-uot"),
        ("thresholds --period 0", "--period"),
        ("thresholds --alpha 1", "--alpha"),
        ("thresholds --sample nought", "--sample"),
        ("thresholds --scale-in 0.6", "halved could be doubled"),
        ("off --period 2", "takes no parameters"),
        ("thresholds '", "cannot be read"),
    ],
)
def test_what_is_wrong_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        spell_policy(text)


def test_what_is_wrong_in_a_topology_names_it() -> None:
    def check(line: str | None) -> None:
        check_setting(TopologySpec(TopologyName("words"), (), 1, {"elastic": line}))

    with pytest.raises(
        ConfigError, match=r"Setting 'elastic' of topology 'words': there is no policy 'ds3'"
    ) as wrong:
        check("ds3")
    assert wrong.value.remedy == "did you mean 'ds2'? known are ds2, thresholds"
    for right in (None, "", "off", "ds2 --target 0.5"):
        check(right)


def test_a_line_is_written_down_without_defaults_and_reads_the_same() -> None:
    text = spell_policy("thresholds --scale-out 0.7 --period 5 --cooldown 2 --dry-run --alpha 0.3 --sample 2")
    assert text == "thresholds --dry-run true --cooldown 2 --alpha 0.3 --sample 2"
    assert spell_policy(text) == text
    again, first = read_policy(text), read_policy("thresholds --cooldown 2 --dry-run --alpha 0.3 --sample 2")
    assert again is not None and first is not None and again.manager == first.manager


def test_parameters_alone_change_the_line_that_is_in_use() -> None:
    before = spell_policy("thresholds --scale-out 0.8 --period 2 --dry-run")
    assert changed_policy(before, "--alpha 0.8 --period 3") == spell_policy(
        "thresholds --scale-out 0.8 --period 3 --dry-run --alpha 0.8"
    )
    assert changed_policy(before, "--dry-run=no") == spell_policy("thresholds --scale-out 0.8 --period 2")
    assert changed_policy(before, "ds2") == "ds2" and changed_policy(before, "off") == ""
    with pytest.raises(ConfigError, match="given twice"):
        changed_policy(before, "--period 3 --period 4")
    with pytest.raises(ConfigError, match="--speed"):
        changed_policy(before, "--speed 3")
    with pytest.raises(ConfigError, match="no policy whose --alpha"):
        changed_policy("", "--alpha 0.8")


def test_only_a_name_that_is_not_known_brings_all_that_are() -> None:
    with pytest.raises(ConfigError) as unknown:
        read_policy("thresholds --scale-uot 1")
    assert "with every policy: --alpha" in (unknown.value.remedy or "")
    with pytest.raises(ConfigError) as wrong:
        read_policy("thresholds --scale-out 2")
    assert wrong.value.remedy == "it must be at most 1. An executor above it is overloaded (ScaleOutThr)."


def test_nodes_change_by_parameters_and_are_forgotten_by_off() -> None:
    before = changed_nodes("", "--maximum 8 --minimum 2")
    assert before == "--enabled true --minimum 2 --maximum 8"
    assert changed_nodes(before, "--minimum 3") == "--enabled true --minimum 3 --maximum 8"
    assert changed_nodes(before, "--enabled") == before
    assert changed_nodes(before, "off") == "" == changed_nodes(before, "--enabled no")
    with pytest.raises(ConfigError, match="is above"):
        changed_nodes(before, "--minimum 9")


def test_nodes() -> None:
    assert not read_nodes("off").enabled and not read_nodes("").enabled
    params = read_nodes("--maximum 8 --minimum 2")
    assert params.enabled and (params.minimum, params.maximum) == (2, 8)
    with pytest.raises(ConfigError, match="is above"):
        read_nodes("--maximum 1 --minimum 2")
    with pytest.raises(ConfigError, match="--most"):
        read_nodes("--most 1")
    with pytest.raises(ConfigError, match="minimum"):
        # It would act as 1: without a node no topology is taken that could ask for one.
        read_nodes("--minimum 0")


def test_a_topology_comes_before_the_cluster() -> None:
    name = TopologyName("wc")
    assert policy_of(name, None, "ds2") == "ds2"
    assert policy_of(name, "thresholds", "ds2") == "thresholds"
    assert policy_of(name, "off", "ds2") == "" == policy_of(name, None, "")
