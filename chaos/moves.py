"""`python -m chaos --no-kills`: nobody is killed, and much moves while windows and queues are full.

Tasks go back and forth between workers of different nodes: all at once, eight at a time, one by one; what emits to them and what they
emit to along with them; spouts; again before the last move is over; to more workers and to fewer. Each move has a bound. A round in which
nothing moved is no round, and a kind without a round that moved anything is a violation: nothing is known of it.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.aims import node_in, numbers
from chaos.cluster import NotNow, Stuck
from chaos.plan import floods
from chaos.rounds import Rounds
from chaos.run import Part, Run
from chaos.shape import Shape
from elastic.cluster.launcher import UpOptions
from elastic.errors import ElasticError

COUNTS = 128
WORKERS = 4
BEGIN = 10.0
"""Seconds until what was asked for begins to move."""


@dataclass(frozen=True)
class Asked:
    """What one round asks for.

    Attributes:
        what: For people.
        ask: Asks for it, without waiting.
    """

    what: str
    ask: Callable[[], object]


@dataclass
class Done:
    """What became of the rounds of one kind.

    Attributes:
        seconds: Until nothing moved any more, of each in which something did.
        flows: From then until everything flowed.
        missed: Why nothing, or not everything, moved in the others.
    """

    seconds: list[float] = field(default_factory=list)
    flows: list[float] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)


class Moves(Run):
    """Rounds of moves alone."""

    shape = Shape(COUNTS, 64)
    title = "moves, and no kills"

    def run(self) -> bool:
        """See `Run.run`."""
        o = self.options
        self.done: dict[str, Done] = {}
        up = UpOptions(
            cluster="c",
            home=str(self.directory / "h"),
            nodes=o.nodes,
            slots=3,
            store=o.store,
            session_timeout=o.session_timeout,
            log_level="info",
        )
        return self.with_cluster(up, (("moves", False, 1.0),))

    def rounds(self, rounds: Rounds, part: Part, share: float) -> None:
        """See `Run.rounds`."""
        o = self.options
        until = time.monotonic() + o.seconds if o.seconds else float("inf")
        count = o.kills or sys.maxsize
        number = o.first
        while number < o.first + count and time.monotonic() < until:
            chance = random.Random(f"{o.seed}/{number}/moves")
            flood = floods(o.seed, number, o.flooded, cost=False)
            kinds = sorted(KINDS)
            kind = kinds[(number + o.seed) % len(kinds)] if not o.only else chance.choice(sorted(o.only))
            self.pace(part, flood=flood)
            self._round(rounds, part, kind, KINDS[kind](self, rounds, part.name, chance), number, flood)
            self.after_round(part)
            number += 1

    def _round(self, rounds: Rounds, part: Part, kind: str, asked: Asked, number: int, flood: bool) -> None:
        self.say(f"round {number}, {kind}{', in a flood' if flood else ''}: {asked.what}")
        done = self.done.setdefault(kind, Done())
        began = time.monotonic()
        missed = ""
        try:
            self._begin(rounds, asked.ask)
        except (ElasticError, NotNow) as e:
            missed = str(e).replace("\n", " ")
        moved = rounds.settle()
        given_up = [
            e["message"]
            for e in self.cluster.events()
            if e.get("topology") == part.name and e["kind"] == "move-given-up"
        ]
        if given_up:
            raise Stuck(f"a move was given up though nobody was killed: {given_up[-1]}")
        if missed:
            self.say(f"    missed: {missed}")
            done.missed.append(f"round {number}: {missed}")
            return
        done.seconds.append(moved - began)
        done.flows.append(time.monotonic() - moved)
        self.say(
            f"    nothing moves after {moved - began:.1f} s, everything flows {time.monotonic() - moved:.1f} s later"
        )

    @staticmethod
    def _begin(rounds: Rounds, ask: Callable[[], object]) -> None:
        """Ask, and wait until something begins to move. Raises ElasticError, NotNow."""
        base = int(rounds.watch.now.view.latest)
        ask()
        if not rounds.watch.wait("a move", lambda s: int(s.view.latest) > base, BEGIN):
            raise NotNow("nothing began to move")

    def not_done(self, part: Part) -> list[str]:
        """See `Run.not_done`."""
        return [
            f"{kind}: nothing was moved as asked in any of {len(d.missed)} rounds; {d.missed[-1]}"
            for kind, d in sorted(self.done.items())
            if not d.seconds and d.missed
        ]

    def print_rounds(self, part: Part) -> None:
        """See `Run.print_rounds`."""
        for kind, done in sorted(self.done.items()):
            if done.seconds:
                self.say(
                    f"   {len(done.seconds):>4} {kind}: over after {statistics.median(done.seconds):.1f} s,"
                    f" {max(done.seconds):.1f} s at most; everything flows {max(done.flows):.1f} s later at most"
                )
            if done.missed:
                self.say(f"   {len(done.missed):>4} {kind} missed; {done.missed[-1]}")
        self.say(f"   each had {self.options.bound:g} s")

    # ------------------------------------------------------------------ kinds of rounds

    def _pairs(self, rounds: Rounds, chance: random.Random) -> tuple[list[int], str, str]:
        """Tasks of the middle of one worker, and two workers: where they are, and another one on another node."""
        by_worker = rounds.by_worker()
        middle = {w: [t for t in ts if t in rounds.shape.count_tasks] for w, ts in by_worker.items()}
        source = max(sorted(middle), key=lambda w: len(middle[w]))
        others = [w for w in sorted(by_worker) if node_in(w) != node_in(source)]
        if not others:
            others = [f"{n}/0" for n in rounds.nodes() if n != node_in(source)]
        target = chance.choice(others)
        return middle[source], source, target.partition("@")[2] or target

    def _ask(self, name: str, tasks: list[int], target: str, share: float) -> Callable[[], object]:
        return lambda: self.cluster.client.move(name, numbers(tasks), target, wait=0, share=share)

    def at_once(self, rounds: Rounds, name: str, chance: random.Random) -> Asked:
        tasks, source, target = self._pairs(rounds, chance)
        return Asked(f"{len(tasks)} tasks of {source} to {target}", self._ask(name, tasks, target, 1.0))

    def eight(self, rounds: Rounds, name: str, chance: random.Random) -> Asked:
        tasks, source, target = self._pairs(rounds, chance)
        return Asked(
            f"{len(tasks)} tasks of {source} to {target}", self._ask(name, tasks, target, 8 / COUNTS)
        )

    def one_by_one(self, rounds: Rounds, name: str, chance: random.Random) -> Asked:
        tasks, source, target = self._pairs(rounds, chance)
        return Asked(
            f"{len(tasks)} tasks of {source} to {target}", self._ask(name, tasks, target, 1 / COUNTS)
        )

    def neighbours(self, rounds: Rounds, name: str, chance: random.Random) -> Asked:
        """Everything of a worker: what emits to one another moves at the same time."""
        by_worker = rounds.by_worker()
        source = chance.choice(sorted(by_worker))
        slots = [w.partition("@")[2] for w in sorted(by_worker) if node_in(w) != node_in(source)]
        target = chance.choice(slots or rounds.nodes())
        return Asked(f"all of {source} to {target}", self._ask(name, by_worker[source], target, 1.0))

    def spout(self, rounds: Rounds, name: str, chance: random.Random) -> Asked:
        places = rounds.places()
        task = chance.choice(list(rounds.shape.spout_tasks))
        target = chance.choice([n for n in rounds.nodes() if n != node_in(places[task])])
        return Asked(f"task {task} of {places[task]} to {target}", self._ask(name, [task], target, 1.0))

    def again(self, rounds: Rounds, name: str, chance: random.Random) -> Asked:
        """Twice, the second time when the first is under way."""
        tasks, source, target = self._pairs(rounds, chance)
        some = sorted(chance.sample(tasks, min(len(tasks), 16)))

        def ask() -> None:
            self._begin(rounds, self._ask(name, some, target, 0.5))
            self._ask(name, some, source.partition("@")[2], 0.5)()

        return Asked(f"tasks {numbers(some)} of {source} to {target} and back", ask)

    def workers(self, rounds: Rounds, name: str, chance: random.Random) -> Asked:
        now = len(rounds.by_worker())
        count = chance.choice([n for n in (2, 3, 4, 5, 6) if n != now])
        client = self.cluster.client
        return Asked(
            f"from {now} to {count} workers",
            lambda: client.rebalance(name, workers=count, wait=0, share=chance.choice((0.1, 0.5, 1.0))),
        )


KINDS: dict[str, Callable[[Moves, Rounds, str, random.Random], Asked]] = {
    "at-once": Moves.at_once,
    "eight": Moves.eight,
    "one-by-one": Moves.one_by_one,
    "neighbours": Moves.neighbours,
    "spout": Moves.spout,
    "again": Moves.again,
    "workers": Moves.workers,
}
