"""What can be asked and said about policies, schedulers and automatic nodes."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from elastic.coordination import paths
from elastic.coordination.base import Set
from elastic.elasticity import registry as policies
from elastic.errors import ConfigError, Unavailable
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.records import ElasticitySettings
from elastic.model.views import ElasticityView, SizedView
from elastic.nimbus.balancing.balancing import Balancer
from elastic.nimbus.balancing.elastic_lines import OFF, changed_nodes, changed_policy
from elastic.nimbus.observing.followed import read_value
from elastic.nimbus.reign import Reign
from elastic.scheduler import registry as schedulers

_LONGEST = 86400.0
_DECIDED = 20
"""Decisions about nodes that are shown, and as many about placements."""


def elasticity(reign: Reign, balancer: Balancer) -> ElasticityView:
    """See `Nimbus.elasticity`."""
    facts, settings = reign.facts(), reign.mirror.elasticity
    sized = [SizedView(t.name, balancer.policy(t)) for t in facts.in_order() if t.running]
    period = settings.period
    if settings.scheduler and not period:
        with contextlib.suppress(ConfigError):  # the package that offers it is missing since; that was said
            period = schedulers.choose(settings.scheduler).kind.period
    return ElasticityView(
        policy=settings.policy,
        scheduler=settings.scheduler,
        period=period,
        nodes=settings.nodes,
        topologies=tuple(sorted(sized, key=lambda s: s.name)),
        policies=policies.names(),
        schedulers=schedulers.names(),
        generators=balancer.generators.names(),
        decided=balancer.told(newest=_DECIDED),
    )


def set_elasticity(
    reign: Reign,
    balancer: Balancer,
    policy: str | None,
    scheduler: str | None,
    period: float | None,
    nodes: str | None,
) -> ElasticityView:
    """See `Nimbus.set_elasticity`."""
    changes: dict[str, str | float] = {}
    if scheduler is not None:
        chosen = "" if scheduler.strip() in ("", OFF) else str(schedulers.choose(scheduler))
        changes |= {"scheduler": chosen, "period": 0.0}
    if period is not None:
        if not 0 < period <= _LONGEST:
            raise ConfigError(
                f"{period:g} s is no period of a scheduler",
                remedy="give seconds, more than 0 and up to a day",
            )
        changes["period"] = period
    with reign.deciding():
        found = reign.coordination.get(paths.ELASTICITY)
        if found is None:
            raise Unavailable("coordination has no place for settings of elasticity", remedy="ask again")
        before = read_value(paths.ELASTICITY, found.data, ElasticitySettings) if found.data else None
        if policy is not None:
            changes["policy"] = changed_policy(before.policy if before is not None else "", policy)
        if nodes is not None:
            changes["nodes"] = changed_nodes(before.nodes if before is not None else "", nodes)
        settings = replace(before or ElasticitySettings(), **changes)  # type: ignore[arg-type]
        if period is not None and not settings.scheduler:
            raise ConfigError(
                "there is no scheduler whose period could be changed",
                remedy=f"name one: {', '.join(schedulers.names())}",
            )
        if settings != before:
            reign.commit([Set(paths.ELASTICITY, encode(settings), found.version)])
            said = ", ".join(
                f"{name} {getattr(settings, name) or OFF}" for name in sorted(changes) if name != "period"
            )
            reign.tell(
                Event(
                    time.time(),
                    "elasticity-set",
                    f"from now on: {said or f'the scheduler decides every {settings.period:g} s'}",
                    details={
                        "policy": settings.policy,
                        "scheduler": settings.scheduler,
                        "period": settings.period,
                        "nodes": settings.nodes,
                    },
                )
            )
    reign.wait_for(
        lambda _: reign.mirror.elasticity == settings,
        reign.options.answer_timeout,
        "elasticity was set",
    )
    return elasticity(reign, balancer)
