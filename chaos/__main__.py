"""The command: `python -m chaos`."""

from __future__ import annotations

import argparse
import sys

from chaos.moves import KINDS, Moves
from chaos.plan import COST, FREE, FROZEN
from chaos.run import FLOOD, FLOODED, RATE, Options, Run
from chaos.watch import STEPS
from elastic.interrupts import forget
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
    parser.add_argument(
        "--account",
        choices=("free", "cost", "both", "frozen"),
        default="both",
        help="whose kills: see docs/chaos.md (%(default)s); frozen: nobody is killed, but frozen for longer than its session",
    )
    parser.add_argument("--first", type=int, default=1, metavar="N", help="begin with round N of the seed")
    parser.add_argument(
        "--rate", type=float, default=RATE, help="tuples per second in rounds that do not flood (%(default)g)"
    )
    parser.add_argument(
        "--flood",
        type=float,
        default=FLOOD,
        help="tuples per second in rounds that do, in which tasks are slow now and then: windows and queues are full (%(default)g)",
    )
    parser.add_argument(
        "--flooded",
        type=float,
        default=None,
        metavar="SHARE",
        help=f"of the rounds that flood: 0 none, 1 all ({FLOODED:g}, or 1 with --no-kills)",
    )
    parser.add_argument(
        "--no-kills",
        action="store_true",
        help="nobody is killed: 128 tasks, their neighbours and the spouts move back and forth, for --seconds (120) or --kills rounds",
    )
    parser.add_argument(
        "--bound",
        type=float,
        default=None,
        help="seconds in which each move has to end and everything to flow again (90; with sessions of more than 20 s as much more: "
        "a killed node begins anew when its own is over)",
    )
    parser.add_argument(
        "--session-timeout",
        type=float,
        default=None,
        help="of ZooKeeper's sessions: longer than a busy machine keeps a process waiting (20, or 10 when somebody is frozen that long)",
    )
    parser.add_argument("--directory", default="", help="where everything is written; a new one by default")
    parser.add_argument("--keep", action="store_true", help="keep it also when all is well")
    o = parser.parse_args()
    only = tuple(x for x in o.only.split(",") if x)
    session = o.session_timeout or (10.0 if o.account == "frozen" else 20.0)
    there_are = tuple(KINDS) if o.no_kills else (*STEPS, *sorted({*FREE, *COST, *FROZEN}))
    unknown = set(only) - set(there_are)
    if unknown:
        parser.error(f"--only: {', '.join(sorted(unknown))}; there are {', '.join(there_are)}")
    seconds = o.seconds or (120.0 if o.no_kills and not o.kills else 0.0)
    kills = o.kills or (0 if seconds else 20)
    flooded = o.flooded if o.flooded is not None else (1.0 if o.no_kills else FLOODED)
    options = Options(
        seconds=seconds,
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
        flood=o.flood,
        flooded=flooded,
        bound=o.bound or max(90.0, 70.0 + session),
        session_timeout=session,
    )
    return 0 if (Moves if o.no_kills else Run)(options).run() else 1


if __name__ == "__main__":
    interrupt_once()  # the cluster ends with the run, also by SIGTERM
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        forget()
        sys.exit(130)
