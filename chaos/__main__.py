"""The command: `python -m chaos`."""

from __future__ import annotations

import argparse
import sys

from chaos.plan import COST, FREE
from chaos.run import Options, Run
from chaos.watch import STEPS
from elastic.procs import interrupt_once


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description="Random moves and kills on a real cluster."
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="how long")
    parser.add_argument("--kills", type=int, default=0, help="how many kills; 20 when nothing is said")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", default="embedded", help="embedded or hazelcast")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--only", default="", metavar="STEP,VICTIM,...", help="only these steps and victims")
    parser.add_argument("--account", choices=("free", "cost", "both"), default="both")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="begin with round N of the seed")
    parser.add_argument("--rate", type=float, default=1500.0, help="tuples per second")
    parser.add_argument(
        "--session-timeout",
        type=float,
        default=20.0,
        help="of ZooKeeper's sessions: longer than a busy machine keeps a process waiting",
    )
    parser.add_argument("--directory", default="", help="where everything is written; a new one by default")
    parser.add_argument("--keep", action="store_true", help="keep it also when all is well")
    o = parser.parse_args()
    only = tuple(x for x in o.only.split(",") if x)
    unknown = set(only) - {*STEPS, *FREE, *COST}
    if unknown:
        parser.error(
            f"--only: {', '.join(sorted(unknown))}; there are {', '.join((*STEPS, *sorted({*FREE, *COST})))}"
        )
    kills = o.kills or (0 if o.seconds else 20)
    options = Options(
        seconds=o.seconds,
        kills=kills,
        seed=o.seed,
        store=o.store,
        nodes=o.nodes,
        only=only,
        account=o.account,
        first=o.first,
        keep=o.keep,
        directory=o.directory,
        rate=o.rate,
        session_timeout=o.session_timeout,
    )
    return 0 if Run(options).run() else 1


if __name__ == "__main__":
    interrupt_once()  # the cluster ends with the run, also by SIGTERM
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
