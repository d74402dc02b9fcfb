"""The policy of Elastic Storm: two thresholds. (Elastic Storm (2016), section IV.B.)

Scale-out: one executor more for each whose measure is above the upper threshold, so at most twice as many. Scale-in: half as many (rounded
up, so that utilisation at most doubles) when all are below the lower threshold and none is above the upper. So that what was halved is not
doubled at once, the thresholds must keep a stability gap S: out > 2 in + S.

The measure is `busy` (share of wall time) or `cpu` (CPU time of the thread, the paper's). In CPython threads of a process share one lock,
and a thread that waits for a service uses no CPU: `cpu` is for components that compute, one to a process.

Beyond the paper, because it has no bounded queues and no such lock: an executor that is blocked does not count as idle for that; what
comes after an overloaded component gets more soon, and is not halved now (`--hold-starved no` does); of an executor that computes where
CPU is scarce, waiting for its turn is not busy; computing components get no more executors than there are cores for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elastic.elasticity.base import Policy, Reason, Room, Sizing, Subject
from elastic.elasticity.kinds import ComponentLoad, Kind
from elastic.errors import ConfigError
from elastic.model.ids import ComponentId
from elastic.model.parameters import parameter
from elastic.model.topology import TopologySpec

WORTH = 0.25
"""A free part of a core that is smaller is not worth another executor."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """See the module. The defaults are those of Elastic Storm (2016), section VI.A; of the gap it says no number."""

    scale_out: float = parameter(
        0.7, minimum=0.0, maximum=1.0, help="An executor above it is overloaded (ScaleOutThr)."
    )
    scale_in: float = parameter(
        0.2, minimum=0.0, maximum=1.0, help="Executors that are all below it are too many (ScaleInThr)."
    )
    gap: float = parameter(
        0.2, minimum=0.0, maximum=1.0, help="The stability gap S: scale-out must exceed 2 scale-in + S."
    )
    measure: str = parameter("busy", choices=("busy", "cpu"), help="What is compared with the thresholds.")
    hold_starved: bool = parameter(
        True, help="No scale-in behind a component that is overloaded: it gets more when that one has room."
    )


def check(params: Thresholds) -> None:
    """The stability condition of Elastic Storm (2016), section IV.B.

    Raises:
        ConfigError: It does not hold.
    """
    least = 2 * params.scale_in + params.gap
    if not params.scale_out > least:
        highest = max(0.0, (params.scale_out - params.gap) / 2)
        raise ConfigError(
            f"policy 'thresholds': --scale-out {params.scale_out:g} is not above 2 x --scale-in {params.scale_in:g} "
            f"+ --gap {params.gap:g} = {least:g}: what was halved could be doubled at once",
            remedy=f"raise --scale-out above {least:g}, or lower --scale-in below {highest:g}, or lower --gap",
        )


def size(
    loads: Mapping[ComponentId, ComponentLoad], subject: Subject, room: Room, params: Thresholds
) -> Sizing:
    """One run of the policy. See `elastic.elasticity.base`."""
    wanted: dict[ComponentId, int] = {}
    cores: dict[ComponentId, float] = {}
    reasons: list[Reason] = []
    free, lacking = room.free, 0.0
    overloaded = {c for c, load in loads.items() if _over(load, params)}
    for id in sorted(overloaded):
        load, now = loads[id], subject.executors[id]
        _, most = subject.limits(id)
        over = _over(load, params)
        more = min(over, most - now)
        kind, why = "scale-out", ""
        if more <= 0:
            kind, why = "at-maximum", f"it has {now} executors, as many as it may"
        elif load.kind is Kind.COMPUTING:
            fits = more if math.isinf(free) else max(0, math.ceil(free - WORTH))
            if fits < more:
                lacking += (more - fits) * max(WORTH, load.cpu / now)
                why = f"only {free:.1f} cores are free, and it computes"
                more = fits
                kind = kind if more else "no-cores"
            free -= more
        if kind != "at-maximum":
            cores[id] = load.cpu * (now + min(over, most - now)) / now
        if more > 0:
            wanted[id] = now + more
        reasons.append(_reason(kind, subject, load, params, over, wanted.get(id, now), why))
    starved = _behind(subject.spec, overloaded) if params.hold_starved else set()
    for id in sorted(set(loads) - overloaded):
        load, now = loads[id], subject.executors[id]
        least, _ = subject.limits(id)
        target = max(math.ceil(now / 2), least)
        if target >= now or not all(v < params.scale_in for v in _unblocked(load, params)):
            continue
        if id in starved:
            reasons.append(
                _reason("held", subject, load, params, now, now, "what feeds it is overloaded: it gets more")
            )
            continue
        wanted[id] = target
        reasons.append(_reason("scale-in", subject, load, params, now, target, ""))
    return Sizing(wanted, cores, tuple(reasons), lacking)


def _values(load: ComponentLoad, params: Thresholds) -> list[float]:
    """The measure of each executor."""
    if params.measure == "busy":
        return [load.use[k] for k in load.loads]
    return [x.cpu for x in load.loads.values()]


def _unblocked(load: ComponentLoad, params: Thresholds) -> list[float]:
    """The measure as it would be if nobody further down held them up."""
    values = zip(_values(load, params), load.loads.values(), strict=True)
    return [min(1.0, value / max(1e-6, 1.0 - x.blocked)) for value, x in values]


def _over(load: ComponentLoad, params: Thresholds) -> int:
    return sum(value > params.scale_out for value in _values(load, params))


def _behind(spec: TopologySpec, sources: Iterable[ComponentId]) -> set[ComponentId]:
    """All components that get something from them, directly or not."""
    found: set[ComponentId] = set()
    todo = list(sources)
    while todo:
        for consumer, _ in spec.consumers(todo.pop()):
            if consumer.id not in found:
                found.add(consumer.id)
                todo.append(consumer.id)
    return found


def _reason(
    kind: str,
    subject: Subject,
    load: ComponentLoad,
    params: Thresholds,
    crossed: int,
    after: int,
    why: str,
) -> Reason:
    before = subject.executors[load.id]
    up = kind not in ("scale-in", "held")
    values = _values(load, params) if up else _unblocked(load, params)
    value, threshold = max(values), params.scale_out if up else params.scale_in
    seen = (
        f"{crossed} of {before} executors of {load.id} are above {threshold:g} {params.measure} (the highest at {value:.2f})"
        if up
        else f"all {before} executors of {load.id} are below {threshold:g} {params.measure} (the highest at {value:.2f})"
    )
    done = f"{before} -> {after} executors" if after != before else "nothing is changed"
    return Reason(
        kind,
        f"{seen}: {done}" + (f"; {why}" if why else ""),
        topology=subject.name,
        component=load.id,
        warning=kind in ("at-maximum", "no-cores"),
        details={
            "policy": "thresholds",
            "measure": params.measure,
            "value": round(value, 4),
            "threshold": threshold,
            "crossed": crossed,
            "before": before,
            "after": after,
            "kind": load.kind.value,
        },
    )


POLICY = Policy(
    "thresholds",
    "one executor more for each overloaded one, half of them when all are underused (Elastic Storm (2016))",
    Thresholds,
    size,
    check,
)
