"""`python -m elastic.simulation --policy thresholds --profile fivephase`: what a policy would do, as a table."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence

from elastic.elasticity.infrastructure import Infrastructure
from elastic.elasticity.processes import ManagerConfig
from elastic.elasticity.registry import names
from elastic.errors import ConfigError
from elastic.model.parameters import parse
from elastic.simulation.model import Model, fpd, large, waiting_service
from elastic.simulation.profile import named
from elastic.simulation.result import Result
from elastic.simulation.run import Simulation, SimulationOptions
from elastic.simulation.scheduled import Scheduled

_MODELS: dict[str, Callable[[], Model]] = {
    "fpd": fpd,
    "waiting": waiting_service,
    "large": lambda: large(10),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m elastic.simulation", description="What a policy would do with a load."
    )
    parser.add_argument(
        "--policy",
        default="thresholds",
        help=f"one of {', '.join(names())}, with its parameters: 'ds2 --target 0.5'",
    )
    parser.add_argument("--profile", default="fivephase", help="fivephase, waitingwave, square or steady")
    parser.add_argument(
        "--model",
        default="fpd",
        choices=sorted(_MODELS),
        help="fpd: frequent pattern detection, computes; waiting: asks a service; large: 10,000 executors",
    )
    parser.add_argument("--phase", type=float, default=180.0, help="seconds of each phase")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all rates")
    parser.add_argument(
        "--manager", default="", help="parameters of the manager: '--period 10 --cooldown 12'"
    )
    parser.add_argument(
        "--infrastructure", default="", help="parameters of the nodes' policy: '--enabled --maximum 8'"
    )
    parser.add_argument(
        "--scheduler",
        default="",
        help="what places executors, as `elastic scheduler set` takes it: 'tstorm --gamma 2'; without it a plain placer, "
        "and only when their number changes",
    )
    parser.add_argument(
        "--scheduler-period",
        type=float,
        default=0.0,
        help="seconds between two of its decisions; 0: as suits it",
    )
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--cores", type=float, default=4.0, help="of each node")
    parser.add_argument("--slots", type=int, default=6, help="of each node")
    parser.add_argument("--step", type=float, default=0.1, help="seconds of a step of the queueing model")
    parser.add_argument("--report", type=float, default=1.0, help="seconds between two reports of a worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixed", action="store_true", help="change nothing, for comparison")
    parser.add_argument("--why", action="store_true", help="also print every reason")
    given = parser.parse_args(arguments)
    for name in ("phase", "scale", "nodes", "cores", "slots", "step", "report"):
        if not 0 < getattr(given, name) < math.inf:
            parser.error(f"argument --{name}: give more than 0")
    if given.scheduler_period < 0:
        parser.error("argument --scheduler-period: give 0 or more")
    try:
        simulation = Simulation(
            _MODELS[given.model](),
            named(given.profile, given.phase, given.scale),
            policy=given.policy,
            manager=parse("the elasticity manager", ManagerConfig, given.manager.split()),
            infrastructure=parse("infrastructure", Infrastructure, given.infrastructure.split()),
            options=SimulationOptions(
                given.nodes,
                given.cores,
                given.slots,
                given.step,
                given.report,
                pairs=given.model != "large" or bool(given.scheduler),
                elastic=not given.fixed,
                seed=given.seed,
            ),
            scheduler=Scheduled(given.scheduler, given.scheduler_period) if given.scheduler else None,
        )
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    result = simulation.run()
    sys.stdout.write(table(result))
    if given.why:
        lines = [(at, r.kind, r.message) for at, r in result.reasons]
        lines += [(p.time, r.kind, r.message) for p in result.placed for r in p.reasons]
        sys.stdout.writelines(f"{at:8.1f} s  {kind:13} {text}\n" for at, kind, text in sorted(lines))
    return 0


def table(result: Result) -> str:
    """A line per phase, and what the whole run came to."""
    lines = [
        "   tuples/s  decisions  unsettled  executors  workers  nodes  in use  between   p95 latency  degraded    late",
    ]
    lines += [
        f"{p.rate:11.0f}{p.decisions:11}{p.unsettled:11}{p.executors:11}{p.workers:9}{p.nodes:7}{p.use:8.0%}{p.between:9.0%}"
        f"{p.p95 * 1000:11.1f} ms{p.degraded:10.1%}{p.late:8.1%}"
        for p in result.phases()
    ]
    lines.append(
        f"{len(result.decisions)} decisions; {result.degraded:.2%} of the time 60 % of throughput or more was lost, "
        f"{result.late:.2%} of it the latency was above three times that of the settled first phase"
    )
    if result.placed:
        lines.append(
            f"placed anew {len(result.placed)} times, {sum(p.moved for p in result.placed)} tasks moved by that; "
            f"the longest decision took {max(p.took for p in result.placed):.2f} s of CPU time"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
