"""The settings of topologies and components: name, type, default, meaning. `docs/settings.md` is made from this table."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from elastic.errors import ConfigError
from elastic.model.topology import ComponentSpec
from elastic.model.words import counted


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        default: What holds when nobody sets it; None means "off" or "no limit".
        kinds: The types that its value may have.
        minimum, maximum: The smallest and the largest value, for numbers; without one, the largest is `MOST` or `MOST_COUNTED`.
        help: What it does, with the unit.
        whole: It holds for a topology as a whole; a component cannot have its own.
    """

    default: Any
    kinds: tuple[type, ...]
    help: str
    minimum: float | None = None
    maximum: float | None = None
    whole: bool = False


SETTINGS: dict[str, Setting] = {
    "rate": Setting(
        None,
        (int, float),
        "How often per second a spout is asked at most, over all its tasks: for a tuple of a generator, or by a call.",
        0.001,
    ),
    "tick_interval": Setting(None, (int, float), "Seconds between calls of `tick()`.", 0.001),
    "queue_rows": Setting(
        4096,
        (int,),
        "Tuples that wait for the tasks of one executor together, 32 times as many as record batches; beyond it, emitters wait, but those "
        "of which nothing waits: with several sources it may be up to twice as many. From each task of another worker 8 times as many may "
        "be under way.",
        1,
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
    "elastic": Setting(
        None,
        (str,),
        "The policy that resizes it by load, with its parameters, as `elastic policy set` takes them: `thresholds --scale-out 0.8`;"
        " `off`: never. Without it, the cluster's policy if it has one.",
        whole=True,
    ),
    "min_executors": Setting(None, (int,), "Executors that a policy leaves a component at least.", 1),
    "max_executors": Setting(None, (int,), "Executors that a policy gives a component at most.", 1),
    "watchdog": Setting(
        30.0,
        (int, float),
        "Seconds after which a call into user code that has not returned is reported with its stack.",
        0.05,
        whole=True,
    ),
    "kill_delay": Setting(
        2.0,
        (int, float),
        "Seconds that a worker without any task left goes on before it is stopped.",
        0,
        whole=True,
    ),
    "idle_wait": Setting(
        0.001, (int, float), "Seconds until a spout that emitted nothing is asked again.", 0.0001
    ),
    "checkpoint_interval": Setting(
        None,
        (int, float),
        "Seconds from one checkpoint of all tasks to the next. After a crash all tasks go back to the newest one, states and spouts alike."
        " None: there are none, and what was in a process that crashes is lost.",
        0.1,
        whole=True,
    ),
    "checkpoint_timeout": Setting(
        60.0,
        (int, float),
        "Seconds after which a checkpoint that is not complete is given up.",
        0.1,
        whole=True,
    ),
    "checkpoint_copies": Setting(
        2,
        (int,),
        "Nodes whose stores keep a task's snapshot, as far as there are so many: its own, and others on which the topology runs.",
        1,
        16,
        whole=True,
    ),
    "report_interval": Setting(1.0, (int, float), "Seconds between two measurements.", 0.05, whole=True),
    "keep_core": Setting(
        2,
        (int,),
        "When a worker on the launcher's machine keeps to a core that no other worker keeps to, if there is one and no component takes"
        " record batches: its threads then hand the interpreter on sooner. 0: never. 1: always; for a machine that has its cores for these"
        " workers, as programs and threads that components start keep to that core, too. 2: while it computes on one core and nobody else"
        " wants that one, and while something moves.",
        0,
        2,
        whole=True,
    ),
    "stop_grace": Setting(
        5.0,
        (int, float),
        "Seconds that executors have to end before their worker ends without them; half a one at least.",
        0,
        60,
        whole=True,
    ),
}


MOST = 1_000_000_000
"""No time or rate may be greater: nobody can wait for more than some thirty years, and it has to be computed with."""
MOST_COUNTED = 2**63 - 1
"""No other number, as messages carry none."""
_ARGUMENTS = ("tasks", "executors")
"""What the builder takes for a component beside settings."""


def check_settings(config: Mapping[str, Any], *, where: str, component: bool = False) -> None:
    """Check names, types and ranges.

    Names that contain a dot are the user's own: only whether their values reach a worker as they are is checked.

    Args:
        config: The settings by name.
        where: What they are of, for the message.
        component: They are one component's own.

    Raises:
        ConfigError: An unknown name (the nearest known one is suggested), an impossible value, or one for a component
            that only a whole topology can have.
    """
    for name, value in config.items():
        if "." in name:
            odd = _changed(value)
            if odd:
                raise ConfigError(
                    f"Setting {name!r} of {where} is or holds {_shown(odd[0])}, which would not reach a worker as it is.",
                    remedy="Give finite numbers, strings, booleans, None, or lists and dictionaries of these, with strings as keys.",
                )
            continue
        known = SETTINGS.get(name)
        if known is None:
            near = difflib.get_close_matches(name, (*_ARGUMENTS, *SETTINGS) if component else SETTINGS, n=1)
            raise ConfigError(
                f"Unknown setting {name!r} of {where}.",
                remedy=(f"Did you mean {near[0]!r}? " if near else "")
                + "Settings of your own have a dot in their name.",
            )
        if known.whole and component:
            raise ConfigError(
                f"Setting {name!r} cannot be set for {where} alone: it holds for a whole topology.",
                remedy=f"Give it to the TopologyBuilder: TopologyBuilder(name, {name}=...).",
            )
        if value is None and known.default is None:
            continue
        if isinstance(value, bool) or not isinstance(value, known.kinds):
            kinds = " or ".join(k.__name__ for k in known.kinds)
            raise ConfigError(f"Setting {name!r} of {where} must be {kinds}, not {value!r}.")
        if isinstance(value, float) and not math.isfinite(value):  # `nan` would pass every bound
            raise ConfigError(f"Setting {name!r} of {where} must be a finite number, not {value!r}.")
        if known.minimum is not None and value < known.minimum:  # type: ignore[operator]  # kinds says that it is a number
            raise ConfigError(
                f"Setting {name!r} of {where} must be at least {known.minimum:g}, not {_shown(value)}."
            )
        most = known.maximum
        if most is None:
            most = MOST if float in known.kinds else MOST_COUNTED
        if not isinstance(value, str) and value > most:  # type: ignore[operator]  # as above
            raise ConfigError(f"Setting {name!r} of {where} must be at most {most:,}, not {_shown(value)}.")


def _changed(value: object) -> list[object]:
    """What in a value would be something else in a worker, or would not get there: specifications are JSON, and messages. The first such
    thing, if there is one."""
    kind = type(value)
    inner: Iterable[object] = ()
    if kind is list:
        same, inner = True, cast(list[object], value)
    elif kind is dict:
        items = cast(dict[object, object], value)
        same, inner = all(type(key) is str for key in items), itertools.chain(items, items.values())
    elif kind is str:
        same = _is_text(cast(str, value))
    elif kind is int:
        same = -MOST_COUNTED <= cast(int, value) <= MOST_COUNTED
    else:
        same = value is None or kind is bool or (kind is float and math.isfinite(cast(float, value)))
    return next((odd for v in inner if (odd := _changed(v))), []) if same else [value]


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "one of thousands of digits"


def check_component(spec: ComponentSpec, config: Mapping[str, Any]) -> None:
    """Check that a component's settings, each possible by itself, go together with each other and with what it is.

    Args:
        spec: The component.
        config: The settings of its topology.

    Raises:
        ConfigError: They do not.
    """
    where = f"component {str(spec.id)!r}"
    if spec.kind == "bolt" and spec.config.get("rate") is not None:
        raise ConfigError(
            f"Setting 'rate' cannot be set for {where}: it is a bolt, and only spouts are asked.",
            remedy="Give it to the spouts that its tuples come from.",
        )
    least, most = setting("min_executors", config, spec.config), setting("max_executors", config, spec.config)
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"Setting 'min_executors' of {where} is {least}, above its 'max_executors', {most}."
        )
    if (own := spec.config.get("min_executors")) is not None and own > spec.tasks:
        raise ConfigError(
            f"Setting 'min_executors' of {where} is {own}, and it has {counted(spec.tasks, 'task')}: an executor"
            " without a task does nothing.",
            remedy="Raise tasks (they cost next to nothing, and are fixed at submit) or lower min_executors.",
        )


def setting(name: str, *configs: Mapping[str, Any]) -> Any:
    """The value of a setting.

    Args:
        name: One of `SETTINGS`.
        configs: Where to look: the last that has it wins.

    Returns:
        The value found, or the default.
    """
    for config in reversed(configs):
        if name in config:
            return config[name]
    return SETTINGS[name].default
