"""Who resizes and places topologies by load while they run: measurements in, decisions out, carried out as moves.

One thread of a reign. It sleeps for ever while nobody has asked for a policy, a scheduler or automatic nodes; then nothing is measured
either. What was chosen lies in coordination, and so does what was decided, with what policies remember of it: the next leader goes on with
both. It begins to measure anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable

from elastic.elasticity.guards import Memory
from elastic.elasticity.infrastructure import Infrastructure
from elastic.elasticity.monitor import MonitorConfig
from elastic.errors import ConfigError, Conflict, Superseded, Unavailable
from elastic.model.events import Event, Severity
from elastic.model.ids import TopologyName
from elastic.model.load import NodeReport, WorkerReport
from elastic.model.records import ElasticitySettings
from elastic.nimbus.balancing import remembering
from elastic.nimbus.balancing.balance_port import Ruler
from elastic.nimbus.balancing.elastic_lines import PolicyLine, policy_of, read_nodes, read_policy
from elastic.nimbus.balancing.extending import Extending
from elastic.nimbus.balancing.generators import Generators
from elastic.nimbus.balancing.measuring import Measuring
from elastic.nimbus.balancing.remembering import KEPT, TopologyMemory
from elastic.nimbus.balancing.rescheduling import Rescheduling
from elastic.nimbus.balancing.resizing import Resizing
from elastic.nimbus.balancing.telling import MOST, Teller
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.scheduler.registry import choose

log = logging.getLogger(__name__)
_TICK = 1.0
_LEAST = 0.05
"""Seconds that a sample covers at least, however often the scheduler is asked (`MonitorConfig.period`)."""
_JOIN = 10.0


class Balancer:
    """See the module. Thread-safe."""

    def __init__(self, ruler: Ruler) -> None:
        self._ruler = ruler
        self._closed = threading.Event()
        self._active = False
        self._measuring = Measuring()
        self._teller = Teller(ruler)
        self._resizing = Resizing(ruler, self._teller)
        self._extending = Extending(ruler, self._teller)
        self.generators = Generators(ruler.tell)
        self._rescheduling = Rescheduling(ruler, self._teller, self.generators)
        self._lines: dict[str, PolicyLine | None] = {}
        self._broken: dict[str, str] = {}
        self._chosen = ElasticitySettings()
        self._written: set[TopologyName] = set()
        self._recalled = False
        self._ids: dict[TopologyName, str] = {}
        self._thread = threading.Thread(target=self._run, name="nimbus-balancer", daemon=True)

    # --- from any thread

    def start(self) -> None:
        """Begin; once only."""
        self._thread.start()

    def close(self) -> None:
        """End, after the reign is over. Returns at once; safe to call twice."""
        self._closed.set()
        self.generators.close()

    def join(self) -> None:
        """Wait until it has ended, after `close`."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)

    def observe(self, reports: Iterable[WorkerReport], nodes: Iterable[NodeReport]) -> None:
        """Take in measurements; costs nothing while nobody asks for them."""
        if self._active:
            self._measuring.observe(reports, nodes)

    def told(self, topology: str = "", newest: int = MOST) -> tuple[Event, ...]:
        """See `Teller.told`."""
        return self._teller.told(topology, newest)

    def told_with_nodes(self, topology: str, since: float) -> tuple[Event, ...]:
        """What was decided about a topology, and since then about nodes: both are why it is where it is; oldest first.

        Args:
            since: Seconds since 1970.
        """
        nodes = (e for e in self.told() if e.kind.startswith("node-") and e.time >= since)
        return tuple(sorted((*self.told(topology), *nodes), key=lambda e: e.time))

    def policy(self, t: TopologyFacts) -> str:
        """The line of the policy that resizes a topology; "": none."""
        return policy_of(t.name, t.spec.config.get("elastic"), self._ruler.settings().policy)

    # --- its thread

    def _run(self) -> None:
        seen = asked = -1
        while True:
            if not self._active:
                asked = self._ruler.wait_asked(asked)
            elif self._resizing.begun:
                seen = self._ruler.wait_changed(seen, self._tick())  # to notice when it is carried out
            else:
                self._closed.wait(self._tick())
            if self._closed.is_set():
                return
            try:
                self.look(time.monotonic())
            except (Superseded, Unavailable, Conflict) as error:
                log.info("the load is not looked at now: %s", error)
            except Exception:  # whatever a plug-in does must not end the loop
                log.exception("looking at the load failed")

    def _tick(self) -> float:
        periods = [line.manager.period for line in self._resizing.lines().values()]
        # Else a run that comes to be due just after a look would wait for the next one.
        periods.append(self._resizing.due_in(time.monotonic()))
        if self._chosen.scheduler and self._chosen.period:
            periods.append(self._chosen.period / 2)
        return max(0.05, min([_TICK, *periods]))

    def look(self, now: float) -> None:
        """Look at the load once, and do what follows from it.

        Args:
            now: Seconds, by `time.monotonic`.
        """
        facts, settings = self._ruler.facts(), self._ruler.settings()
        lines = {t.name: line for t in facts.in_order() if t.running and (line := self.policy(t))}
        self._choose(settings, set(lines.values()))
        in_use, idle = self._resizing.lines(), not self._active
        self._active = bool(in_use or self._rescheduling.choice is not None or self._extending.params.enabled)
        if self._active and idle:
            self._measuring.anew()
        if not self._recalled:  # also what is to be forgotten, of topologies that have gone since
            self._recall(facts, now)
        self._forget(facts)
        self._active = self._active or bool(self._resizing.begun)  # the end of it is told in any case
        if not self._active:
            return
        view = self._measuring.view(facts, now)
        self._resizing.results(facts)
        changed = self._resizing.run(
            facts, view, lines, self._extending.asked, self._rescheduling.choice, now
        )
        self._extending.run(facts, view, self._resizing.sized(), self._resizing.outcomes(), now)
        if not changed:
            measured = self._measuring
            self._rescheduling.run(facts, view, settings.period, measured.sample, now, measured.heard())
        self._write(facts, lines, now)

    # --- what is chosen

    def _choose(self, settings: ElasticitySettings, texts: Collection[str]) -> None:
        """Use what was set."""
        wanted = {*texts, *([settings.policy] if settings.policy else [])}
        self._lines = {text: self._lines.get(text) or self._read(text) for text in wanted}
        lines = {text: line for text, line in self._lines.items() if line is not None}
        self._resizing.use(lines)
        if settings.scheduler != self._chosen.scheduler:
            self._rescheduling.use(None)
            if settings.scheduler:
                try:
                    self._rescheduling.use(choose(settings.scheduler))
                except ConfigError as error:
                    self._complain(settings.scheduler, error)
        elif settings.period != self._chosen.period:
            self._rescheduling.paced()
        if settings.nodes != self._chosen.nodes:
            try:
                self._extending.params = read_nodes(settings.nodes)
            except ConfigError as error:
                self._extending.params = Infrastructure()
                self._complain(settings.nodes, error)
        self._chosen = settings
        own = lines.get(settings.policy)
        placing = _TICK
        if settings.scheduler and settings.period:
            placing = max(_LEAST, min(_TICK, settings.period / 2))
        values: dict[str, object] = {"period": min((x.sample for x in lines.values()), default=placing)}
        # The cluster's line says how all is averaged. Without one, the topology that wants it quickest.
        quickest = min((x.alpha for x in lines.values() if x.alpha is not None), default=None)
        alpha = own.alpha if own is not None and own.alpha is not None else quickest
        values["alpha"] = MonitorConfig().alpha if alpha is None else alpha
        self._measuring.configure(**values)

    def _read(self, text: str) -> PolicyLine | None:
        try:
            return read_policy(text)
        except ConfigError as error:
            self._complain(text, error)
            return None

    def _complain(self, text: str, error: ConfigError) -> None:
        """What was set cannot be used here: a package that offers it may be missing since."""
        if self._broken.get(text) != error.message:
            self._broken[text] = error.message
            self._ruler.tell(
                Event(
                    time.time(),
                    "elasticity-refused",
                    f"{text!r} cannot be used: {error.message}",
                    Severity.WARNING,
                    details={"line": text},
                )
            )

    # --- what is remembered

    def _recall(self, facts: Facts, now: float) -> None:
        """Go on with what a leader before has written down."""
        written, nodes = self._ruler.recall()
        wall = time.time()
        for name, found in written.items():
            self._written.add(name)
            t = facts.topologies.get(name)
            if t is None or t.state.id != found.id:
                continue
            self._resizing.memories[name] = remembering.recalled(found, now, wall)
            if found.begun is not None:
                self._resizing.begun[name] = found.begun
            self._teller.recall(name, found.told)
        self._extending.past = remembering.past_of(nodes, now, wall)
        self._teller.recall("", nodes.told)
        self._recalled = True

    def _forget(self, facts: Facts) -> None:
        """Of topologies that have gone, or in whose place there is another one of that name."""
        ids = {name: t.state.id for name, t in facts.topologies.items()}
        same = {name for name, id in ids.items() if self._ids.get(name, id) == id}
        self._ids = ids
        self._teller.forget(same)
        self._resizing.forget(same)
        gone = self._written - facts.topologies.keys()
        if gone:
            self._ruler.forget(sorted(gone))
            self._written -= gone

    def _write(self, facts: Facts, lines: dict[TopologyName, str], now: float) -> None:
        """Write down what was decided since it was written last: rarely, as a decision always says something."""
        news = set(self._teller.news)
        if not news:
            return
        wall = time.time()
        topologies = {}
        for name in map(TopologyName, news - {""}):
            t, memory = facts.topologies.get(name), self._resizing.memories.get(name)
            line = self._lines.get(lines.get(name, ""))
            if t is None:
                continue
            topologies[name] = TopologyMemory(
                t.state.id,
                wall,
                line.manager.period if line is not None else 0.0,
                remembering.lasting(memory, now, wall) if memory is not None else Memory(),
                self._resizing.begun.get(name),
                self._teller.told(name, KEPT),
            )
        nodes = None
        if "" in news:
            nodes = remembering.nodes_memory(self._extending.past, self._teller.told(newest=KEPT), now, wall)
        self._ruler.remember(topologies, nodes)
        self._written |= topologies.keys()
        self._teller.news -= news
