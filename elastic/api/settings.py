"""The settings of topologies and components: name, type, default, meaning. `docs/settings.md` is made from this table."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        default: What holds when nobody sets it; None means "off" or "no limit".
        kinds: The types that its value may have.
        minimum: The smallest value, for numbers.
        help: What it does, with the unit.
    """

    default: Any
    kinds: tuple[type, ...]
    help: str
    minimum: float | None = None


SETTINGS: dict[str, Setting] = {
    "rate": Setting(
        None, (int, float), "Tuples per second that a spout emits at most, over all its tasks.", 0.001
    ),
    "tick_interval": Setting(None, (int, float), "Seconds between calls of `tick()`.", 0.001),
    "queue_rows": Setting(
        2048, (int,), "Tuples that wait for one task at most; beyond it, emitters wait.", 1
    ),
    "batch_rows": Setting(512, (int,), "Tuples that are handed on together at most.", 1),
    "linger": Setting(
        0.005,
        (int, float),
        "Seconds that a tuple waits at most for others to be handed on with, while the emitter is busy.",
        0,
    ),
    "max_errors": Setting(
        100,
        (int,),
        "Tuples whose execution may raise, per task; with one more the topology fails. 0: the first fails it.",
        0,
    ),
    "watchdog": Setting(
        30.0,
        (int, float),
        "Seconds after which a call into user code that has not returned is reported with its stack.",
        0.05,
    ),
    "kill_delay": Setting(
        2.0,
        (int, float),
        "Seconds that a stateless task which went elsewhere still works off what arrives at the old place.",
        0,
    ),
    "idle_wait": Setting(
        0.001, (int, float), "Seconds until a spout that emitted nothing is asked again.", 0.0001
    ),
    "report_interval": Setting(1.0, (int, float), "Seconds between two measurements.", 0.05),
    "stop_grace": Setting(
        5.0, (int, float), "Seconds that executors have to end before their worker ends without them.", 0
    ),
}


def check_settings(config: Mapping[str, Any], *, where: str) -> None:
    """Check names, types and ranges.

    Names that contain a dot are the user's own and pass unchecked.

    Raises:
        ConfigError: An unknown name (the nearest known one is suggested) or an impossible value.
    """
    for name, value in config.items():
        if "." in name:
            continue
        known = SETTINGS.get(name)
        if known is None:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            raise ConfigError(
                f"Unknown setting {name!r} of {where}.",
                remedy=(f"Did you mean {near[0]!r}? " if near else "")
                + "Settings of your own have a dot in their name.",
            )
        if value is None and known.default is None:
            continue
        if isinstance(value, bool) or not isinstance(value, known.kinds):
            kinds = " or ".join(k.__name__ for k in known.kinds)
            raise ConfigError(f"Setting {name!r} of {where} must be {kinds}, not {value!r}.")
        if known.minimum is not None and value < known.minimum:  # type: ignore[operator]  # kinds says that it is a number
            raise ConfigError(
                f"Setting {name!r} of {where} must be at least {known.minimum:g}, not {value!r}."
            )


def setting(name: str, *configs: Mapping[str, Any]) -> Any:
    """The value of a setting: from the last of `configs` that has it, or the default."""
    for config in reversed(configs):
        if name in config:
            return config[name]
    return SETTINGS[name].default
