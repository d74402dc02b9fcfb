"""The run: a cluster, a topology for kills that cost nothing, one for those that cost their own, and what came of them."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.account import GIVEN_UP, NEVER, judge
from chaos.cluster import LIMIT, SLOTS, Cluster, NotNow, Stuck
from chaos.findings import KINDS
from chaos.flow import Flow
from chaos.gate import Gate
from chaos.lag import Lag
from chaos.logs import RUN, ended, faults
from chaos.plan import choose
from chaos.rounds import Kill, Rounds
from chaos.shape import SPOUTS, Shape, set_pace
from chaos.watch import STEPS, Watch
from elastic.cluster.directory import LOG
from elastic.cluster.launcher import ClusterInfo, UpOptions, start_background
from elastic.errors import ElasticError
from elastic.migration.plan import AHEAD
from elastic.model.views import PLANNED, MoveView

RATE = 1500.0
FLOOD = 60_000.0
FLOODED = 0.5
WORKERS = 4
TITLES = {
    "free": "kills that cost nothing",
    "cost": "kills that cost their own tasks",
    "frozen": "frozen for longer than the session, and on again: what a kill would cost, and never two owners",
    "short": "cuts that are shorter than the session, and cost nothing",
    "long": "cuts that are longer than the session, and cost what ran beyond them",
}


@dataclass
class Options:
    """What a run is told.

    Attributes:
        seconds: How long the rounds go on, both accounts together; 0: as `kills` says.
        kills: How many kills; 0: as `seconds` says.
        account: "free", "cost", "both" of these (three of four are free), or "frozen".
        first: The number of the first round, to do one again.
        rate: Tuples per second, where a round does not flood.
        flood: Tuples per second where it does: more than goes through while some task is slow.
        flooded: Share of the rounds that flood.
        bound: Seconds in which a move has to end and everything to flow again.
    """

    seconds: float = 0.0
    kills: int = 0
    seed: int = 1
    store: str = "embedded"
    nodes: int = 3
    only: tuple[str, ...] = ()
    account: str = "both"
    first: int = 1
    keep: bool = False
    directory: str = ""
    rate: float = RATE
    flood: float = FLOOD
    flooded: float = FLOODED
    bound: float = 90.0
    session_timeout: float = 20.0


@dataclass
class Part:
    """One account: its topology, its kills, its record.

    Attributes:
        queued: Tuples that waited for tasks at the end of a round at most.
        blocked: Share of the time that the spouts had to wait for others, at most.
        given_up: Tasks of which the move was given up after all its tries.
    """

    name: str
    cost: bool
    place: Path
    kills: list[Kill] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    moves: dict[int, MoveView] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    lag: float = 0.0
    interrupted: bool = False
    queued: int = 0
    blocked: float = 0.0
    given_up: int = 0


class _Told(logging.Handler):
    """What the run's own sessions have to say, as lines of the run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(f"    chaos itself: {record.getMessage()}")


class Run:
    """See the module."""

    shape = Shape()
    title = ""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.directory = Path(options.directory or tempfile.mkdtemp(prefix="chaos-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self._began = time.monotonic()
        self._log = (self.directory / RUN).open("a", buffering=1)
        self.parts: list[Part] = []
        self.wrong: list[str] = []
        """What is of no account alone."""
        self._alarmed: dict[str, int] = {}
        self.beyond: tuple[str, ...] = ()
        """Nodes whose sessions may end."""

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:8.2f} {text}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        self._log.write(f"{time.strftime('%H:%M:%S')} {line}\n")

    def run(self) -> bool:
        """Everything; whether all promises were kept."""
        o = self.options
        up = UpOptions(
            cluster="c",
            home=str(self.directory / "h"),
            nodes=o.nodes,
            slots=SLOTS,
            nimbus=2,
            store=o.store,
            session_timeout=o.session_timeout,
            log_level="info",
        )
        if o.account == "both":
            return self.with_cluster(up, (("free", False, 0.75), ("cost", True, 0.25)))
        return self.with_cluster(up, ((o.account, o.account != "free", 1.0),))

    def with_cluster(
        self,
        up: UpOptions,
        accounts: Iterable[tuple[str, bool, float]],
        start: Callable[[UpOptions, Callable[[str], None]], ClusterInfo] = start_background,
        end: Callable[[], object] | None = None,
    ) -> bool:
        """Start it, go through the accounts, end it, and print.

        Args:
            accounts: Of each its name, whether its kills may cost something, and its share of the kills or the time.
        """
        self._lag = Lag()
        told = _Told(self.say)
        logging.getLogger("elastic").addHandler(told)
        self.cluster = cluster = Cluster(self.directory, up, self.say, start, end)
        interrupted = False
        try:
            for name, cost, share in accounts:
                self._part(cluster, name, cost, share)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            with (self.directory / "events.jsonl").open("w") as file:
                file.writelines(json.dumps(e) + "\n" for e in cluster.events())
            cluster.close()
            logging.getLogger("elastic").removeHandler(told)
            self._lag.close()
        self._look_through(cluster)
        self._print()
        good = all(not p.wrong for p in self.parts) and bool(self.parts) and not self.wrong
        if good and not self.options.keep:
            self._log.close()
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            self.say(f"the record, the logs and what happened are kept in {self.directory}")
        if interrupted and good:
            raise KeyboardInterrupt
        return good

    # ------------------------------------------------------------------ one account

    def _part(self, cluster: Cluster, name: str, cost: bool, share: float) -> None:
        place = self.directory / name
        place.mkdir()
        part = Part(name, cost, place)
        self.parts.append(part)
        began = time.monotonic()
        self.pace(part, flood=False)
        gate = Gate(place)
        flow = Flow(place, SPOUTS, self.shape.keys, keep=self.options.keep)
        try:
            cluster.submit(name, place, workers=WORKERS, shape=self.shape)
            watch = Watch(cluster.info.zookeeper, name)
            try:
                self._rounds(cluster, part, share, watch, gate, flow)
            finally:
                watch.close()
                part.seconds, part.lag = time.monotonic() - began, self._lag.take()
                self._judge(cluster, part, flow)
        finally:
            flow.close()
            gate.close()

    def _rounds(
        self, cluster: Cluster, part: Part, share: float, watch: Watch, gate: Gate, flow: Flow
    ) -> None:
        rounds = Rounds(
            cluster,
            part.name,
            self.shape,
            watch,
            gate,
            flow,
            self.say,
            self.options.bound,
            self.options.session_timeout,
        )
        part.kills, part.missed = rounds.kills, rounds.missed
        try:
            rounds.settle(LIMIT)  # stores and workers have to start first
            self.rounds(rounds, part, share)
            self._nothing_left(cluster, watch)
            self._finish(cluster, part)
        except Stuck as e:
            part.wrong.append(str(e))
            self.say(f"STUCK: {e}")
            self._dump(cluster, part, watch)
            with contextlib.suppress(ElasticError):
                cluster.client.kill(part.name, wait=0)  # the next account is not to suffer from it
        except KeyboardInterrupt:
            self.say("interrupted: what has arrived by now is checked")
            part.interrupted = True
            rounds.interrupted()
            raise

    def pace(self, part: Part, *, flood: bool) -> None:
        """How much is emitted from now on, and whether some tasks are slow now and then."""
        o = self.options
        set_pace(part.place, o.flood if flood else o.rate, slow=flood)

    def rounds(self, rounds: Rounds, part: Part, share: float) -> None:
        """All rounds of one account."""
        o = self.options
        until = time.monotonic() + o.seconds * share if o.seconds else float("inf")
        count = max(1, round(o.kills * share)) if o.kills else sys.maxsize
        rounds.wanted = count if o.kills else 0
        number = o.first
        tries = 0
        while len(rounds.kills) < count and time.monotonic() < until:
            planned = choose(
                o.seed,
                number,
                cost=part.cost,
                hazelcast=o.store.startswith("hazelcast"),
                only=o.only,
                flooded=o.flooded,
                frozen=part.name == "frozen",
            )
            number += 1
            tries += 1
            if o.kills and tries > 3 * count + 10:
                raise Stuck("too many rounds did not come to their step")
            try:
                self.enough()
                self.spread(rounds, part)
                self.pace(part, flood=planned.flood)
                rounds.run(planned)
            except (ElasticError, NotNow) as e:
                self.say(f"    {planned}: {e}")
                rounds.missed.append(f"{planned}: {e}")
            rounds.settle()
            self.after_round(part)

    def spread(self, rounds: Rounds, part: Part) -> None:
        """Rounds empty workers and nodes: when everything is crowded in few, it is spread again."""
        if len(rounds.by_worker()) < WORKERS - 1:
            self.say("    spread again")
            self.cluster.client.rebalance(part.name, workers=WORKERS, wait=60)
            rounds.settle()

    def after_round(self, part: Part) -> None:
        """Take down the moves, and tell bad news beside the round that it belongs to."""
        with contextlib.suppress(ElasticError):
            for move in self.cluster.client.moves(part.name):
                if move.state != PLANNED:
                    part.moves[move.epoch] = move
            components = self.cluster.client.describe(part.name).components
            part.queued = max(part.queued, sum(c.queued for c in components))
            part.blocked = max([part.blocked, *(c.blocked for c in components if c.kind == "spout")])
        events = [
            e
            for e in self.cluster.events()
            if e.get("topology") == part.name and e["kind"] in (*NEVER, GIVEN_UP, "state-lost")
        ]
        for event in events[self._alarmed.get(part.name, 0) :]:
            self.say(f"    {event['kind']}: {event['message'][:160]}")
        self._alarmed[part.name] = len(events)

    def enough(self) -> None:
        """Nodes that were drained while nobody could add another."""
        client = self.cluster.client
        nodes = [n for n in client.nodes() if n.wanted]
        if len(nodes) < self.options.nodes:
            client.add_nodes(self.options.nodes - len(nodes), wait=30)

    def _nothing_left(self, cluster: Cluster, watch: Watch) -> None:
        """Once faults have stopped nothing of a move stays: no record, no plan, no saved state."""
        left: list[str] = []

        def nothing() -> bool:
            left[:] = watch.left()
            return not left

        try:
            cluster.until("nothing is left of moves", nothing, 45.0)
        except Stuck as e:
            raise Stuck(f"{e}: {'; '.join(left[:10])}") from None

    def _finish(self, cluster: Cluster, part: Part) -> None:
        """Let the spouts end and everything be worked off."""
        self.pace(part, flood=False)
        (part.place / "stop").touch()

        def finished() -> bool:
            (found,) = [t for t in cluster.client.list() if t.name == part.name]
            return found.status.value == "finished"

        cluster.until("the topology ends", finished)

    def _judge(self, cluster: Cluster, part: Part, flow: Flow) -> None:
        try:
            part.report = flow.report()
        except Stuck as e:
            part.wrong.append(str(e))
            return
        (self.directory / f"{part.name}.json").write_text(json.dumps(part.report))
        events = [e for e in cluster.events() if e.get("topology") == part.name]
        part.given_up = sum(int(e["details"]["count"]) for e in events if e["kind"] == GIVEN_UP)
        stuck = bool(part.wrong) or part.interrupted
        wrong = judge(
            part.report, events, part.kills, cost=part.cost, beyond=self.beyond if part.cost else ()
        )
        # What has not come to its end has no end in the record.
        part.wrong += [w for w in wrong if not (stuck and "its spout began anew" in w)]
        if not stuck:
            part.wrong += self.not_done(part)
        for line in part.wrong[:40]:
            self.say(f"WRONG ({part.name}): {line}")

    def _look_through(self, cluster: Cluster) -> None:
        """What the cluster's processes have noted down, once all of them have ended."""
        kills = [k for p in self.parts for k in p.kills]
        # Where the launcher is no process of its own, what it says is in the run's log.
        launcher = cluster.options.directory / LOG
        log = launcher if launcher.exists() else self.directory / RUN
        self.wrong += ended(log, cluster.events(), kills, self.beyond)
        self.wrong += faults(self.directory)
        for line in self.wrong[:40]:
            self.say(f"WRONG: {line}")

    def _dump(self, cluster: Cluster, part: Part, watch: Watch) -> None:
        """What can be said of a cluster that does not go on."""
        found: dict[str, Callable[[], Any]] = {
            "describe": lambda: cluster.client.describe(part.name),
            "moves": lambda: cluster.client.moves(part.name),
            "nodes": lambda: cluster.client.nodes(),
            "view": lambda: watch.refresh(),
            "stacks": lambda: "\n\n".join(f"{s.worker}\n{s.text}" for s in cluster.client.stacks(part.name)),
        }
        for what, ask in found.items():
            try:
                text = ask()
            except Exception as e:  # noqa: BLE001 - whatever can be had is of use
                text = repr(e)
            (self.directory / f"stuck-{part.name}-{what}.txt").write_text(str(text))

    # ------------------------------------------------------------------ what came of it

    def _print(self) -> None:
        for part in self.parts:
            self.say("")
            title = self.title or TITLES.get(part.name, "")
            self.say(
                f"== {part.name}: {title} ({part.seconds:.0f} s, seed {self.options.seed}, store {self.options.store})"
            )
            self.print_rounds(part)
            tasks = [t for m in part.moves.values() for t in m.tasks]
            outcomes = Counter(t.phase for t in tasks)
            self.say(
                f"   {len(part.moves)} moves of {len(tasks)} tasks: "
                + ", ".join(f"{n} {p}" for p, n in sorted(outcomes.items()))
            )
            self.say("   " + pauses([t.pause for t in tasks if t.phase == "committed" and t.pause > 0]))
            large = [t.size for t in tasks if t.phase == "committed" and t.size >= AHEAD]
            self.say(
                f"   {len(large)} of the moved tasks had {AHEAD >> 10} KB or more, copied ahead of the pause;"
                f" {max(large, default=0) / 1e6:.1f} MB at most, {sum(large) / 1e6:.0f} MB in all"
            )
            summary = part.report.get("summary", {})
            self.say("   " + ", ".join(f"{summary.get(x, '?')} {x}" for x in ("arrived", *KINDS)))
            self.say(
                f"   tuples that waited for tasks: {part.queued} at most; the spouts waited {100 * part.blocked:.0f} % of the time at most"
            )
            self.say(
                f"   the machine kept this process waiting {part.lag:.1f} s at most; sessions last {self.options.session_timeout:g} s"
            )
            so_far = " as far as it came: it was interrupted" if part.interrupted else ""
            self.say(f"   kept{so_far}" if not part.wrong else f"   {len(part.wrong)} VIOLATIONS")
        if self.wrong:
            self.say(f"{len(self.wrong)} VIOLATIONS beside these")

    def not_done(self, part: Part) -> list[str]:
        """What the run was to try, and has not: then it says nothing of it."""
        if part.kills or not part.missed:
            return []
        return [f"nobody was killed in any of {len(part.missed)} rounds; {part.missed[-1]}"]

    def print_rounds(self, part: Part) -> None:
        """What was done in its rounds."""
        table = Counter((k.round.victim, k.step) for k in part.kills)
        steps = [s for s in STEPS if any(s == step for _, step in table)]
        self.say(
            "   "
            + "".join(f"{h:>18}" if not i else f"{h:>11}" for i, h in enumerate(("kills", *steps, "all")))
        )
        for victim in sorted({v for v, _ in table}):
            counts = [table[victim, s] for s in steps]
            self.say("   " + f"{victim:>18}" + "".join(f"{c or '-':>11}" for c in (*counts, sum(counts))))
        if part.given_up:
            self.say(f"   given up after all tries: {part.given_up} tasks")
        flooded = sum(k.round.flood for k in part.kills)
        self.say(
            f"   {len(part.kills)} kills, {flooded} of them in a flood; {len(part.missed)} rounds without one (their step did not come)"
        )


def pauses(seconds: Sequence[float]) -> str:
    """Median, p95 and maximum, for people."""
    if not seconds:
        return "no pauses"
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    ms = [f"{1000 * s:.0f}" for s in (statistics.median(ordered), p95, ordered[-1])]
    return f"pauses of {len(ordered)} moved tasks: median {ms[0]} ms, p95 {ms[1]} ms, max {ms[2]} ms"
