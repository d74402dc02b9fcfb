"""The right parallelism of all components in one step, from true processing rates.

After DS2 (Kalavri, Liagouris, Hoffmann, Dimitrova, Forshaw, Roscoe: "Three steps is all you need", OSDI 2018). An executor's *true* rate
is tuples per second of useful time: what it could do if it never waited for input or output. Beginning with what the sources offer, each
component's demand follows from those before it and from how many tuples they make of one; demand times seconds per tuple, over the
utilisation aimed at, is its number of executors (rounded so that the one with the most tasks is not overloaded).

What sources offer is the metric `offered` of a spout, if it has one. Otherwise it is what they emit; of one that is held up, what it would
emit if it were not, at most `--growth` times as much.

Useful time leaves out waiting for the interpreter's lock or a core: of components that compute in a full process only CPU time counts,
so that adding executors where they cannot help is never the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from elastic.elasticity.base import Policy, Reason, Room, Sizing, Subject
from elastic.elasticity.kinds import WORKS, ComponentLoad, Kind
from elastic.errors import ConfigError
from elastic.model.grouping import GroupingKind
from elastic.model.ids import ComponentId
from elastic.model.parameters import parameter
from elastic.model.topology import TopologySpec
from elastic.model.words import counted

_WORTH = 0.05
"""Share of the demand from which on it is worth saying that it is for what waits."""


@dataclass(frozen=True, slots=True)
class Ds2:
    """See the module. Hysteresis: nothing changes while every component's utilisation is between `scale_in` and `scale_out`.

    Between the defaults the time in an M/M/1 queue, service / (1 - utilisation), differs by less than three times; and half as much again
    as is aimed at, or half of it, is needed before anything changes: a load that varies by chance does not come so far.
    """

    target: float = parameter(0.5, minimum=0.05, maximum=1.0, help="Utilisation that executors get.")
    scale_out: float = parameter(0.75, minimum=0.05, maximum=1.0, help="Utilisation above which it acts.")
    scale_in: float = parameter(0.3, minimum=0.0, maximum=1.0, help="Utilisation below which it acts.")
    growth: float = parameter(
        4.0, minimum=1.0, help="A spout that is held up offers at most so many times what it emits."
    )
    drain: float = parameter(
        5.0,
        minimum=0.0,
        help="Seconds in which what waits in queues is to be worked off; 0: it does not count.",
    )
    settle: float = parameter(
        0.2, minimum=0.0, help="By how much the newest sample may differ from the average; beyond, it waits."
    )


def check(params: Ds2) -> None:
    """Raises ConfigError unless scale-in < target < scale-out, and what one executor fewer gives is not overload."""
    if not params.scale_in < params.target < params.scale_out:
        raise ConfigError(
            f"policy 'ds2': --scale-in {params.scale_in:g}, --target {params.target:g} and --scale-out "
            f"{params.scale_out:g} are not ascending: it would undo what it has done",
            remedy="choose them so that scale-in < target < scale-out",
        )


def size(loads: Mapping[ComponentId, ComponentLoad], subject: Subject, room: Room, params: Ds2) -> Sizing:
    """One run of the policy. See `elastic.elasticity.base`."""
    demand = demands(loads, subject.spec, params.growth, params.drain)
    need = {
        id: demand[id] * load.service
        for id, load in loads.items()
        if id in demand and (load.service > 0 or _idle(load))
    }
    bolts = [c.id for c in subject.spec.components if c.kind != "spout" and c.id in need]
    cores = {id: demand[id] * loads[id].compute for id in need}
    fit, lacking = _fit(loads, cores, room, params)
    wanted: dict[ComponentId, int] = {}
    reasons: dict[ComponentId, Reason] = {}
    crossed = False
    for id in bolts:
        now, load = subject.executors[id], loads[id]
        least, most = subject.limits(id)
        tasks = subject.spec.component(id).tasks
        right = max(least, min(most, _right(need[id], tasks, params.target)))
        if load.kind is Kind.COMPUTING and right > now:
            right = max(now, min(right, math.ceil(right * fit)))
        use = need[id] * _largest(tasks, now)
        if right > now:
            wanted[id] = right
            crossed = crossed or use > params.scale_out
        elif right < now and use < params.scale_in:
            wanted[id] = right
            crossed = True
        reasons[id] = _reason(subject, load, params, demand[id], use, right)
    if not crossed:
        short = [id for id in bolts if reasons[id].details["value"] > params.scale_out]  # type: ignore[operator]  # a number
        return Sizing({}, {}, tuple(_short(reasons[id]) for id in short), lacking, False)
    changing = any(
        _changing(loads[c.id], params.settle)
        for c in subject.spec.components
        if c.kind == "spout" and c.id in loads
    )
    return Sizing(wanted, cores, tuple(reasons[id] for id in bolts if id in wanted), lacking, changing)


def _idle(load: ComponentLoad) -> bool:
    """Whether what a tuple takes is unknown because there are none: then it needs nothing."""
    return load.tuples == 0 and load.queued == 0 and load.busy < WORKS


def _largest(tasks: int, executors: int) -> float:
    """The share of all tasks that the executor with the most of them has."""
    return math.ceil(tasks / executors) / tasks


def _right(need: float, tasks: int, target: float) -> int:
    """The fewest executors of which none is used more than is aimed at. Load comes in tasks: of 20, 18 executors do no more than 10."""
    each = math.floor(target * tasks / need + 1e-9) if need > 0 else tasks
    return math.ceil(tasks / max(1, min(tasks, each)))


def demands(
    loads: Mapping[ComponentId, ComponentLoad], spec: TopologySpec, growth: float, drain: float = 0.0
) -> dict[ComponentId, float]:
    """Tuples per second that each component would get (a spout: emit) if nothing held anything up, and what waits were worked off.

    A component is not in it when something before it is not measured.
    """
    result: dict[ComponentId, float] = {}
    for component in _in_order(spec):
        load = loads.get(component)
        if load is None:
            continue
        c = spec.component(component)
        if c.kind == "spout":
            result[component] = _offered(load, growth)
            continue
        sources = sorted({i.source for i in c.inputs})
        if all(s in result for s in sources):
            result[component] = sum(result[s] * _ratio(loads[s], load, spec) for s in sources)
            if drain > 0:
                result[component] += load.queued / drain
    return result


def _offered(load: ComponentLoad, growth: float) -> float:
    if load.offered > 0:
        return load.offered
    return load.emitted * min(growth, 1.0 / max(1e-6, 1.0 - load.blocked))


def _ratio(source: ComponentLoad, target: ComponentLoad, spec: TopologySpec) -> float:
    """Tuples that the target gets for each that the source works on."""
    if source.tuples <= 0:
        return 0.0
    if target.id in source.makes:
        return source.makes[target.id]
    # Pairs are not measured: every stream of the source is taken to go to it once, or to each of its tasks.
    groupings = [i.grouping.kind for i in spec.component(target.id).inputs if i.source == source.id]
    copies = spec.component(target.id).tasks if GroupingKind.ALL in groupings else 1
    return source.emitted * copies / source.tuples


def _in_order(spec: TopologySpec) -> list[ComponentId]:
    """Sources first."""
    done: list[ComponentId] = []
    left = {c.id: {i.source for i in c.inputs} for c in spec.components}
    while left:
        ready = [id for id, sources in left.items() if not sources & left.keys()]
        if not ready:
            return [*done, *left]
        done += ready
        for id in ready:
            del left[id]
    return done


def _fit(
    loads: Mapping[ComponentId, ComponentLoad], cores: Mapping[ComponentId, float], room: Room, params: Ds2
) -> tuple[float, float]:
    """The share of the computing that the cores allow, and the cores that lack."""
    wanted = sum(cores.values())
    offered = room.free + sum(load.cpu for load in loads.values())
    if math.isinf(offered) or wanted <= offered * params.scale_out:
        return 1.0, 0.0
    return min(1.0, offered / max(wanted, 1e-9)), max(0.0, wanted - offered)


def _changing(load: ComponentLoad, settle: float) -> bool:
    """Whether the load has just changed: the average is between what was and what is."""
    if load.offered > 0 or load.tuples <= 0:
        return False
    noise = 2.0 / math.sqrt(max(1.0, load.tuples))
    return abs(load.newest - load.tuples) > (settle + noise) * load.tuples


def _reason(
    subject: Subject, load: ComponentLoad, params: Ds2, demand: float, use: float, right: int
) -> Reason:
    now = subject.executors[load.id]
    threshold = params.scale_out if right >= now else params.scale_in
    late = load.queued / params.drain if params.drain > 0 else 0.0
    waits = f", {late:.1f} of them to work off {load.queued:.0f} that wait," if late > _WORTH * demand else ""
    return Reason(
        "scale-out" if right > now else "scale-in",
        f"{load.id} is to take {demand:.1f} tuples/s{waits} of {load.service * 1000:.3f} ms each ({load.kind}): its "
        f"{counted(now, 'executor')} would be {use:.2f} utilised, {params.target:g} is aimed at: {now} -> {counted(right, 'executor')}",
        topology=subject.name,
        component=load.id,
        details={
            "policy": "ds2",
            "measure": "utilisation",
            "value": round(use, 4),
            "threshold": threshold,
            "demand": round(demand, 3),
            "service": round(load.service, 9),
            "queued": load.queued,
            "before": now,
            "after": right,
            "kind": load.kind.value,
        },
    )


def _short(reason: Reason) -> Reason:
    """It would need more, and cannot have it: its bound, or the cores."""
    return Reason(
        "at-maximum",
        f"{reason.message}; it may have no more, or there are no cores for them",
        reason.topology,
        reason.component,
        True,
        reason.details,
    )


POLICY = Policy(
    "ds2", "the right number for every component in one step, from true processing rates", Ds2, size, check
)
