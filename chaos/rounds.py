"""One round: have something moved, kill somebody at a step of it, wait until all is as it should be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chaos.aims import Aim, aim
from chaos.cluster import SLOTS, Cluster, Process, Stuck
from chaos.flow import Flow
from chaos.gate import Gate, Reached
from chaos.plan import HOLDS, TARGETS, Round
from chaos.shape import Shape
from chaos.watch import Seen, Watch, reached, stage
from elastic.errors import ElasticError
from elastic.migration.record import Phase
from elastic.model.ids import WorkerId, node_of, worker_of

FROZEN = (2.0, 7.0)
"""Seconds that somebody stays frozen after its session is over: meanwhile others start what it ran."""
STEP = 25.0
"""Seconds until a round gives up waiting for its step."""
_AS_IT_IS = ("; there are slots for ", "; it is tried again when somebody asks for it")
"""In waits that nothing more follows from: tasks were gathered in fewer workers, as asked; a move was given up after its tries. What is
tried again is on its way, and where it comes to is not to be killed meanwhile for what runs elsewhere."""


@dataclass
class Kill:
    """A kill that was done.

    Attributes:
        at: Monotonic nanoseconds, before the signal.
        done: After the process was gone; one that was frozen goes when it has gone on.
        clock: `at` as seconds since 1970.
        step: What coordination said when it was done, or the point at which tasks were held.
        owned: Tasks that a killed worker ran, and had not given up before: what the kill may cost.
        surely: Those of them that were in no move: their loss has to be said.
        unheard: The run was interrupted before what it cost had to be said.
        workers: The killed workers.
    """

    round: Round
    at: int = 0
    done: int = 0
    clock: float = 0.0
    step: str = ""
    pids: list[int] = field(default_factory=list)
    owned: set[int] = field(default_factory=set)
    surely: set[int] = field(default_factory=set)
    workers: set[str] = field(default_factory=set)
    unheard: bool = False


class Rounds:
    """Runs rounds on one topology.

    Args:
        say: Told what happens.
        bound: Seconds in which it has to be over after a kill, and everything to flow.
        session: Seconds that a session lasts without a sign of life.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        shape: Shape,
        watch: Watch,
        gate: Gate,
        flow: Flow,
        say: Callable[[str], None],
        bound: float,
        session: float = 0.0,
    ) -> None:
        self.shape = shape
        self.bound = bound
        self._session = session
        self._cluster = cluster
        self._name = name
        self.watch = watch
        self._gate = gate
        self._flow = flow
        self._say = say
        self.kills: list[Kill] = []
        self.missed: list[str] = []
        self.unsettled = ""
        self.wanted = 0
        """How many kills there are to be; 0: as many as there is time for."""
        self._open: tuple[Kill, Aim] | None = None
        self._doing: tuple[Kill, Aim] | None = None
        self._killing = threading.Lock()
        self._over = False

    # ------------------------------------------------------------------ what runs where

    def places(self) -> dict[int, str]:
        return {int(t): str(w) for t, w in self.watch.now.view.places.items()}

    def by_worker(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for task, worker in sorted(self.places().items()):
            found.setdefault(worker, []).append(task)
        return found

    def nodes(self) -> list[str]:
        return sorted(
            str(n.id) for n in self._cluster.client.nodes() if n.alive and n.wanted and not n.draining
        )

    def free_slots(self) -> list[str]:
        """Slots in which nothing runs, as `node/slot`."""
        used = {w.partition("@")[2] for n in self._cluster.client.nodes() for w in n.workers}
        used |= {str(w).partition("@")[2] for w in self.watch.now.workers}
        return [f"{n}/{s}" for n in self.nodes() for s in range(SLOTS) if f"{n}/{s}" not in used]

    # ------------------------------------------------------------------ a round

    def settle(self, limit: float = 0.0) -> float:
        """Until nothing moves, everybody lives, and everything flows.

        Args:
            limit: Seconds for the one and for the other; 0: as long as this run allows.

        Returns:
            When nothing moved any more (monotonic seconds).
        """
        try:
            return self._settle(limit or self.bound)
        finally:
            # Only now: a mark may be accepted after the death of who wrote it.
            self._close_round()

    def interrupted(self) -> None:
        """No round follows: what a kill may have cost counts, whether or not it was said by now."""
        with self._killing:  # whoever is about to kill on another thread has done it, or does not
            self._over = True
        if self._doing is not None and self._doing[0].pids:
            self._done(*self._doing)
        pending = self._open[0] if self._open is not None else None
        self._close_round()
        if pending is not None:
            pending.unheard = True

    def _close_round(self) -> None:
        pending, self._open = self._open, None
        if pending is not None:
            self._account(*pending, self.watch.disarm())
            if pending[0].owned:
                self._say(f"    may have cost tasks {sorted(pending[0].owned)}")

    def _settle(self, limit: float) -> float:
        try:
            self._cluster.until("nothing moves and everybody lives", self._settled, limit)
        except Stuck as e:
            raise Stuck(f"{e}: {self.unsettled}") from None
        moved = time.monotonic()
        since = Flow.now()
        try:
            self._cluster.until("everything flows", lambda: not self._flow.standing(since), limit)
        except Stuck as e:
            raise Stuck(f"{e}; not come: {self._flow.standing(since)[:12]}") from None
        return moved

    def _settled(self) -> bool:
        self.unsettled = self._unsettled()
        return not self.unsettled

    def _unsettled(self) -> str:
        """What is not as it should be; "" when all is."""
        view = self.watch.refresh().view
        if view.moves:
            return f"moves {[int(m.record.epoch) for m in view.moves]} are under way"
        without = set(self.shape.tasks) - set(map(int, view.places))
        if without:
            return f"tasks {sorted(without)} have no place"
        dead = {str(w) for w in view.places.values()} - {str(w) for w in view.living}
        if dead:
            return f"workers {sorted(dead)} do not live"
        nodes = self._cluster.client.nodes()
        odd = [str(n.id) for n in nodes if n.alive != n.wanted or n.draining]
        if odd:
            return f"nodes {odd} come or go"
        if unsafe := [*self._storeless(str(n.id) for n in nodes), *self.watch.unsafe()]:
            return f"stores are not as they should be: {'; '.join(unsafe)}"
        detail = self._cluster.client.describe(self._name)
        waits = on_the_way(detail.waits)
        if detail.moves or waits or detail.assignment.unassigned:
            return f"{len(detail.moves)} moves, waits {waits}, without a place {detail.assignment.unassigned}"
        return ""

    def _storeless(self, nodes: Iterable[str]) -> Iterator[str]:
        """Of whom the store has died and nobody has noticed that yet: coordination says that it serves until its supervisor has."""
        for node in nodes:
            try:
                self._cluster.store(node)
            except Stuck as e:
                yield str(e)

    def run(self, round: Round) -> Kill | None:
        """One round; None when its step did not come."""
        aim = self._aim(round)
        base = int(self.watch.now.view.latest)
        kill = Kill(round)
        self._doing = (kill, aim)
        killed = threading.Event()
        victims = aim.victims(self.watch.now) if round.victim not in TARGETS else []  # those begin to live
        self._say(f"{round}: {aim.what}")

        def fire(seen: Seen, step: str) -> None:
            with self._killing:
                if killed.is_set() or self._over:
                    return
                if round.delay:
                    time.sleep(round.delay)
                found = victims or aim.victims(seen)
                kill.at, kill.clock = time.monotonic_ns(), time.time()
                for p in found:
                    hurt.append(p)
                    if p.freeze() if round.frozen else p.kill():
                        kill.pids.append(p.pid)
                kill.step = step
                killed.set()

        def on_reached(r: Reached) -> None:
            if HOLDS.get(round.step) == r.point and self._due(round, aim, self.watch.now, base, round.step):
                fire(self.watch.now, round.step)

        def on_view(seen: Seen) -> bool:
            if killed.is_set():
                return True
            if round.step in HOLDS:
                # What has to be there before may come later than the hold: a source, for one, is killed within `restoring` only when all
                # of it is saved; and what is read of a state may be put in before it is written that it is saved.
                if held and self._due(round, aim, seen, base, round.step):
                    fire(seen, round.step)
                return killed.is_set()
            if round.step != "asked" and self._due(round, aim, seen, base, round.step):
                fire(seen, stage(seen.view, base))
            return killed.is_set()

        held: list[Reached] = []
        hurt: list[Process] = []

        def wanted(r: Reached) -> bool:
            if r.point == "prepare":
                return True
            # `get_state` is also called ahead of the pause.
            try:
                return self.watch.paused(base)
            except ElasticError:
                return False

        def told(r: Reached) -> None:
            held.append(r)
            on_reached(r)

        error: list[str] = []

        def act() -> None:
            try:
                aim.act()
            except (ElasticError, Stuck) as e:
                error.append(str(e).replace("\n", " "))

        actor = threading.Thread(target=act, name="act", daemon=True)
        try:
            if round.hold:
                self._gate.hold(round.hold, aim.moving, wanted, told)
            self.watch.arm(on_view)
            actor.start()
            if round.step == "asked":
                actor.join(STEP)
                fire(self.watch.now, "asked")
            killed.wait(STEP)
            # From here on nobody is killed: who was until now counts, however late it was.
            with self._killing:
                hit = killed.is_set()
                killed.set()
            if hit and round.after:
                time.sleep(round.after)
            if hit and round.victim in TARGETS and not round.frozen:
                # Whoever is let on before its process has ended may restore what it is held in, and that would cost something.
                _await_end({*kill.pids, *self._ends_too(round, aim)})
            count = self._gate.release()
            if round.frozen and kill.pids:
                # This is the fault itself: their sessions end, and others have the time to take over.
                time.sleep(self._session + round.chance.uniform(*FROZEN))
        finally:
            with self._killing:
                killed.set()
            if round.frozen:
                for p in hurt:
                    p.thaw()
        actor.join(60.0)
        self.watch.disarm()
        if error:
            self._say(f"    the request: {error[0][:200]}")
        if not hit or not kill.pids:
            why = (
                "nobody was there to kill"
                if hit
                else f"its step did not come ({stage(self.watch.now.view, base)})"
            )
            self._say(f"    missed: {why}")
            self.missed.append(f"{round}: {why}")
            self._doing = None
            return None
        self._done(kill, aim)
        done = f"{len(self.kills)} of {self.wanted}" if self.wanted else str(len(self.kills))
        how = "froze" if round.frozen else "killed"
        self._say(f"    {how} {kill.pids} at {kill.step}, {count} held ({done})")
        return kill

    def _done(self, kill: Kill, aim: Aim) -> None:
        """The kill counts from now on. An interruption on the way has it done again, and counted once."""
        self._await_death(kill)
        if not any(k is kill for k in self.kills):
            self.kills.append(kill)
        self._open = (kill, aim)
        self._doing = None

    def _due(self, round: Round, aim: Aim, seen: Seen, base: int, step: str) -> bool:
        if round.victim in TARGETS and not round.cost and reached("restored", seen.view, base):
            return False  # what was to be held was not, for whatever reason: now it would cost something
        if step in HOLDS:
            before = {"preparing": "recorded", "saving": "paused", "restoring": "saved"}[step]
            if round.victim.startswith("source") and not round.cost:
                return self._all_saved(aim, seen, base)
            return step == "preparing" or reached(before, seen.view, base)
        if not reached(step, seen.view, base):
            return False
        if round.victim == "target" and WorkerId(aim.target) not in seen.workers:
            return False
        if round.victim.startswith("source") and not round.cost:
            return self._all_saved(aim, seen, base)
        return True

    @staticmethod
    def _all_saved(aim: Aim, seen: Seen, base: int) -> bool:
        """Whether everything that the round moves is in the stores or beyond, and nothing runs at its old place any more."""
        standing = seen.view.standing
        parts = [standing[t] for t in aim.moving if t in standing]
        return len(parts) == len(aim.moving) and all(
            p.epoch > base and p.phase in (Phase.SAVED, Phase.RESTORED, Phase.COMMITTED) for p in parts
        )

    # ------------------------------------------------------------------ what a kill may cost

    def _ends_too(self, round: Round, aim: Aim) -> set[int]:
        """Workers that do not outlive their supervisor."""
        if round.victim not in ("target-node", "target-supervisor"):
            return set()
        return {i.pid for w, i in self.watch.now.workers.items() if str(node_of(w)) == aim.node}

    @staticmethod
    def _await_death(kill: Kill) -> None:
        _await_end(kill.pids)
        kill.done = time.monotonic_ns()

    def _account(self, kill: Kill, aim: Aim, history: list[Seen]) -> None:
        """By the views before the kill and until everything had settled: what was the killed workers' own."""
        at = kill.at / 1e9
        before = [s for s in history if s.at <= at] or history[:1]
        near = [s for s in history if s.at <= at + 1.0]
        nodes = {aim.node, aim.other} if kill.round.victim.endswith(("node", "nodes", "supervisor")) else ()
        dead = {
            i.incarnation
            for seen in before
            for i in seen.workers.values()
            if i.pid in kill.pids or str(node_of(i.worker)) in nodes
        }
        kill.workers = {str(worker_of(i)) for i in dead}
        rest = [before[-1], *(s for s in history if s.at > at)]
        # By whom: what one of the dead has saved, and another of them has restored since, is that one's own.
        saved = {
            (life, int(task))
            for seen in history
            for move in seen.view.moves
            for life, marked in move.marks.items()
            for task in marked.marks.saved
        }
        first = rest[0].view.standing
        for task, at_first in first.items():
            if at_first.owner in dead and (at_first.owner, int(task)) not in saved:
                kill.owned.add(int(task))
                if not any(task == t.task for s in near for m in s.view.moves for t in m.record.tasks):
                    kill.surely.add(int(task))
        for seen in rest:
            for task, standing in seen.view.standing.items():
                # Restored by the dead: theirs, whether or not its saved mark was another's.
                if standing.owner in dead and standing.phase is Phase.RESTORED:
                    kill.owned.add(int(task))
                if aim.forgotten and int(task) in aim.moving and standing.phase is Phase.SAVED:
                    kill.owned.add(int(task))
                for move in seen.view.moves:
                    for t in move.record.tasks:
                        own = move.marks.get(t.target) if t.target in dead else None
                        if own is not None and own.marks.has_restored(t.task, t.attempt):
                            kill.owned.add(int(t.task))

    # ------------------------------------------------------------------ aims

    def _aim(self, round: Round) -> Aim:
        return aim(self, self._cluster, self._name, self.watch, round)


def on_the_way(waits: Sequence[str]) -> list[str]:
    """Those of the sentences of `describe` about what is waited for from which something more follows by itself."""
    return [w for w in waits if all(x not in w for x in _AS_IT_IS)]


def _await_end(pids: Collection[int]) -> None:
    deadline = time.monotonic() + 10
    while any(_there(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)


def _there(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
