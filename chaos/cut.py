"""`python -m chaos.cut`: nodes in two network namespaces, the link between them cut and mended during moves.

A short cut, less than the session's time, costs nothing. A long one is the death of the nodes beyond it, as far as the others can tell:
what those nodes ran is started anew here, and by then nothing of it may run there. That is checked by what the sinks write: the clock is
one, the files are one, and two lives of a task whose arrivals overlap are a violation.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos.aims import drain, node_in, numbers
from chaos.cluster import NotNow, Stuck
from chaos.namespaces import HERE, Namespaces, starter, why_not
from chaos.plan import Round, floods
from chaos.rounds import Kill, Rounds
from chaos.run import FLOOD, FLOODED, RATE, Options, Part, Run
from chaos.watch import Seen, Watch, reached, stage
from elastic.cluster.launcher import UpOptions
from elastic.errors import ElasticError
from elastic.interrupts import forget
from elastic.model.ids import node_of, worker_of
from elastic.procs import interrupt_once

BEYOND = ("node-3",)
KINDS = ("some", "worker", "spout", "rebalance", "drain")
"""What moves: some tasks of a worker, all of it, or a spout's task, to or from the other side; what another number of workers brings about;
all of a node on this side, of which as much as is right goes to the other one."""
SESSION = 10.0
"""Seconds, when nothing else is said: shorter than in `python -m chaos`, since a long cut has to outlast it."""


class Cuts(Run):
    """Rounds of cuts instead of kills."""

    def __init__(self, options: Options, spaces: Namespaces) -> None:
        super().__init__(options)
        self._spaces = spaces
        self.beyond = BEYOND

    def run(self) -> bool:
        """See `Run.run`."""
        o = self.options
        up = UpOptions(
            cluster="c",
            home=str(self.directory / "h"),
            nodes=3,
            slots=3,
            nimbus=2,
            bind=HERE,
            store=o.store,
            session_timeout=o.session_timeout,
        )
        start, end = starter(self._spaces, BEYOND)
        return self.with_cluster(up, (("short", False, 0.5), ("long", True, 0.5)), start, end)

    def rounds(self, rounds: Rounds, part: Part, share: float) -> None:
        """See `Run.rounds`."""
        rounds.wanted = count = max(1, round(self.options.kills * share))
        number = self.options.first
        while len(part.kills) < count:
            if number - self.options.first >= 3 * count + 10:
                raise Stuck("too many cuts did not come to their step")
            chance = random.Random(f"{self.options.seed}/{number}/{part.name}")
            flood = floods(self.options.seed, number, self.options.flooded, cost=part.cost)
            self.pace(part, flood=flood)
            try:
                self.enough()
                self.spread(rounds, part)
                self._round(rounds, part, number, chance, flood)
            except (ElasticError, NotNow) as e:
                self.say(f"    {e}")
                part.missed.append(f"cut {number}: {e}")
            number += 1
            rounds.settle(120.0)
            self.after_round(part)

    def _round(self, rounds: Rounds, part: Part, number: int, chance: random.Random, flood: bool) -> None:
        watch = rounds.watch
        kind = chance.choice(self.options.only or KINDS)
        what, act = self._move(rounds, part.name, kind, chance)
        step = chance.choice(("recorded", "prepared", "paused", "saved", "restored", "committed"))
        session = self.options.session_timeout
        away = chance.uniform(0.2, 1.5) if not part.cost else chance.uniform(session + 1, session + 6)
        kill = Kill(Round(number, part.cost, f"cut in {kind}", step, kind, (), 0.0, 0.0, chance, flood))
        base = int(watch.now.view.latest)
        how = ", in a flood" if flood else ""
        self.say(f"cut {number} at {step} for {away:.1f} s: {what}{how}")

        def on_view(seen: Seen) -> bool:
            if kill.at or not reached(step, seen.view, base):
                return bool(kill.at)
            kill.at, kill.clock = time.monotonic_ns(), time.time()
            self._spaces.cut()
            kill.step = stage(seen.view, base)
            return True

        watch.arm(on_view)
        try:
            act()
            if not watch.wait("the step", lambda _: bool(kill.at), 30.0):
                raise NotNow("its step did not come")
            time.sleep(away)  # this is the fault itself: how long the link is away
        finally:
            self._spaces.mend()
            history = watch.disarm()
            if kill.at:
                self._account(part, kill, history, watch)
        costs = f"; may cost tasks {sorted(kill.owned)}" if kill.owned else ""
        self.say(f"    cut at {kill.step}{costs} ({len(part.kills)} of {rounds.wanted})")

    def _move(
        self, rounds: Rounds, name: str, kind: str, chance: random.Random
    ) -> tuple[str, Callable[[], object]]:
        """What is asked for, in words, and what asks for it. Raises NotNow."""
        client, by_worker = self.cluster.client, rounds.by_worker()
        nodes = rounds.nodes()
        if kind == "rebalance":
            count = chance.choice([n for n in (2, 3, 4, 5, 6) if n != len(by_worker)])
            share = chance.choice((0.3, 0.5, 1.0))
            what = f"rebalance from {len(by_worker)} to {count} workers"
            return what, lambda: client.rebalance(name, workers=count, wait=0, share=share)
        if kind == "drain":
            full = sorted({node_in(w) for w in by_worker} - set(BEYOND))
            if not full or len(nodes) < 3:
                raise NotNow(f"no node can be drained: {nodes} with {sorted(by_worker)}")
            gone = chance.choice(full)
            return f"drain of {gone}, and another node", lambda: drain(self.cluster, gone)
        fit = set(rounds.shape.spout_tasks if kind == "spout" else rounds.shape.tasks)
        pools = {
            w: sorted(fit.intersection(tasks)) for w, tasks in by_worker.items() if fit.intersection(tasks)
        }
        there = [w for w in sorted(pools) if node_in(w) in BEYOND]
        here = [w for w in sorted(pools) if node_in(w) not in BEYOND]
        outward = not there or (bool(here) and chance.random() < 0.5)
        source = chance.choice(here if outward else there)
        target = chance.choice(BEYOND if outward else [n for n in nodes if n not in BEYOND])
        most = len(pools[source]) if kind == "worker" else 1 if kind == "spout" else chance.choice((1, 3, 6))
        moving = chance.sample(pools[source], min(len(pools[source]), most))
        what = f"tasks {numbers(moving)} of {source} to {target}"
        return what, lambda: client.move(name, numbers(moving), target, wait=0)

    @staticmethod
    def _account(part: Part, kill: Kill, history: list[Seen], watch: Watch) -> None:
        """What the cut may cost: all that ran beyond it at the time."""
        kill.done = time.monotonic_ns()
        kill.pids = [0]
        part.kills.append(kill)
        if not part.cost:
            return
        with contextlib.suppress(ElasticError):
            history.append(watch.refresh())
        for seen in history:
            for task, standing in seen.view.standing.items():
                owner = standing.owner
                if owner and str(node_of(worker_of(owner))) in BEYOND:
                    kill.owned.add(int(task))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.cut", description="Cuts of the link between nodes, during moves."
    )
    parser.add_argument("--kills", type=int, default=10, help="how many cuts, half of them short")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, metavar="N", help="begin with cut N of the seed")
    parser.add_argument(
        "--only", default="", metavar="KIND,...", help=f"only these moves: {', '.join(KINDS)}"
    )
    parser.add_argument("--store", default="embedded", help="embedded or hazelcast")
    parser.add_argument(
        "--rate", type=float, default=RATE, help="tuples per second when it is no flood (%(default)g)"
    )
    parser.add_argument("--flood", type=float, default=FLOOD, help="when it is one (%(default)g)")
    parser.add_argument(
        "--flooded",
        type=float,
        default=FLOODED,
        metavar="SHARE",
        help="of the cuts: in a flood (%(default)g)",
    )
    parser.add_argument("--session-timeout", type=float, default=SESSION, help="of ZooKeeper's sessions")
    parser.add_argument("--directory", default="")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--inside", nargs=2, metavar=("HERE", "THERE"), help=argparse.SUPPRESS)
    o = parser.parse_args(argv)
    only = tuple(x for x in o.only.split(",") if x)
    if unknown := set(only) - set(KINDS):
        parser.error(f"--only: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if o.inside:
        spaces = Namespaces.__new__(Namespaces)
        spaces.here, spaces.there = o.inside
        options = Options(
            kills=o.kills,
            seed=o.seed,
            first=o.first,
            only=only,
            store=o.store,
            rate=o.rate,
            flood=o.flood,
            flooded=o.flooded,
            directory=o.directory,
            keep=o.keep,
            session_timeout=o.session_timeout,
        )
        return 0 if Cuts(options, spaces).run() else 1
    why = why_not()
    if why:
        sys.stdout.write(f"cuts between network namespaces are skipped: {why}\n")
        return 0
    made = Namespaces()
    try:
        argv = list(sys.argv[1:] if argv is None else argv)
        command = ["ip", "netns", "exec", made.here, sys.executable, "-m", "chaos.cut", *argv]
        inside = subprocess.Popen(
            [*command, "--inside", made.here, made.there],
            cwd=Path.cwd(),
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    p for p in (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")) if p
                ),
            },
        )
        try:
            return inside.wait()
        except KeyboardInterrupt:
            inside.terminate()  # it ends its cluster
            inside.wait()
            raise
    finally:
        made.close()


if __name__ == "__main__":
    interrupt_once()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        forget()
        sys.exit(130)
