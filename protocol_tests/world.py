"""One simulated cluster with one topology: what can be done to it, what is always checked, and what must hold at the end."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from elastic.migration.actions import Commit
from elastic.migration.events import Rested, RestoreHeard, ViewRead
from elastic.migration.participant import Participant
from elastic.migration.record import AT_ONCE, STANDING_STILL, MoveRecord, Outcome, Phase, TaskMove
from elastic.migration.table import EmitterState
from elastic.migration.view import NOBODY
from elastic.model.ids import NodeId, WorkerId
from protocol_tests.clock import Clock
from protocol_tests.coordination import Coordination, Session
from protocol_tests.network import Network
from protocol_tests.nimbus import Nimbus
from protocol_tests.shape import Shape, make_shape
from protocol_tests.store import Part, Stores
from protocol_tests.tasks import Task
from protocol_tests.truth import Broken, Truth
from protocol_tests.worker import Worker

Op = tuple[Any, ...]

FREE = (
    *(
        "break link",
        "partition",
        "suspend worker",
        "suspend nimbus",
        "crash nimbus",
        "store down",
        "store full",
        "store not reached",
    ),
    *("prepare fails", "install fails", "save fails", "abort", "timer early"),
)
COSTLY = ("crash worker", "expire session", "lose node", "reassign", "give up")
_MAY_PAUSE = (ViewRead, RestoreHeard, Rested)
END_LIMIT = 400_000
"""Steps in which everything has to come to rest once faults have stopped."""


class World:
    """See the module. `trace`: a list that gets every step as a line, or None.

    Attributes:
        outcomes, reasons: Of tasks in moves, as Nimbus has written them: how often, and in their order.
    """

    def __init__(self, seed: int, *, shape: Shape | None = None, trace: list[str] | None = None) -> None:
        self.seed = seed
        self.trace = trace
        self.rnd = Random(seed)
        self.clock = Clock(self.rnd)
        self.shape = shape or make_shape(self.rnd)
        self.truth = Truth()
        self.counts: Counter[str] = Counter()  # faults
        self.met: Counter[str] = Counter()  # what does not happen in each run, and has to happen in some
        self.states: set[tuple[str, str]] = set()
        self.outcomes: Counter[Outcome] = Counter()
        self.reasons: list[str] = []
        self._ended: set[tuple[int, int]] = set()
        self.moves = 0
        self.unspent: dict[int, int] = {}
        self._faults: Counter[str] = Counter()
        self._serial = 0
        self._life = 0
        self._term = 0
        self._calm = False
        self.network = Network(self.clock)
        self.coordination = Coordination(self.clock, self.shape.places)
        self.coordination.lag = self.rnd.choice((0.0, 0.3, 0.3, 0.9))
        self.coordination.delay = self.rnd.choice((1.0, 2.0, 2.0, 8.0))
        nodes = sorted(set(self.shape.workers.values()))
        self.stores = Stores(self.clock, nodes, lambda: set(self.coordination.moves))
        self.coordination.on_removed = self.stores.record_gone
        self.workers: dict[WorkerId, Worker | None] = dict.fromkeys(sorted(self.shape.workers))
        self._down: set[NodeId] = set()
        self.nimbus: Nimbus | None = None
        self._start_nimbus()
        for worker in self.workers:
            self._start_worker(worker)
        self.run(60)

    # ------------------------------------------------------------------ small things

    def tell(self, line: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.clock.now:10.2f}  {line}")

    def count(self, what: str) -> None:
        """A fault has happened."""
        self.counts[what] += 1

    def meet(self, what: str) -> None:
        """Something has come about that is no fault."""
        self.met[what] += 1

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def takes_fault(self, kind: str) -> bool:
        """Whether a planned failure of that kind happens now."""
        if self._faults[kind] <= 0:
            return False
        self._faults[kind] -= 1
        self.tell(f"fault: {kind}")
        return True

    def saw(self, participant: Participant, event: Any) -> None:
        """Roles may have changed their states because of that."""
        if isinstance(event, ViewRead):
            self.states.update(("emitter", e.state) for e in participant.emitters.values())
            self.states.update(("receiver", r.state) for r in participant.receivers.values())
        else:
            link = getattr(event, "source", 0), getattr(event, "target", 0)
            if link in participant.emitters:
                self.states.add(("emitter", participant.emitters[link].state))
            if link in participant.receivers:
                self.states.add(("receiver", participant.receivers[link].state))
        if isinstance(event, _MAY_PAUSE):
            self._check_turns(participant)
            self._check_flow(participant)
        for old in participant.old.values():
            self.states.add(("old side", old.state))
        for new in participant.new.values():
            self.states.add(("new side", new.state))

    def _check_turns(self, participant: Participant) -> None:
        """Nobody holds what is for a task before all are restored whose turn is before its."""
        now = self.coordination.now
        for link in participant.emitters.values():
            if not (link.fenced and link.state is EmitterState.HOLDING):
                continue
            part = now.part(link.target, link.epoch)
            if part is not None and part.batch > now.turns[link.epoch]:
                raise Broken(
                    f"turns: {participant.me} holds what is for task {part.task}, of batch {part.batch}, in the turn of batch "
                    f"{now.turns[link.epoch]}"
                )

    def _check_flow(self, participant: Participant) -> None:
        """Only what must stop, stops: what is held is for a task that stands still or that nobody runs, or from one that is about to go."""
        view = participant.view
        for link in participant.emitters.values():
            if link.state is not EmitterState.HOLDING or link.source in participant.old:
                continue
            at = view.stands(link.target)
            # A link may have been told of a move, at its task's former place, that has not been read of here.
            known = link.epoch <= at.epoch or view.ended(link.target, link.epoch)
            if known and at.owner != NOBODY and at.phase not in STANDING_STILL:
                raise Broken(
                    f"only what must stop: {participant.me} holds what is for task {link.target}, which runs"
                )

    def committed(self, commit: Commit) -> None:
        """Nimbus has decided."""
        for task in commit.record.tasks:
            key = (commit.record.epoch, task.task)
            if not task.outcome or key in self._ended:
                continue
            self._ended.add(key)
            self.outcomes[task.outcome] += 1
            self.reasons.append(task.reason)
            if task.outcome is Outcome.LOST:
                if self._is_given_up(task, commit.record):
                    self._give_up(task.task, commit.record.epoch)
                elif not self._is_really_lost(task.task, commit.record.epoch):
                    raise Broken(f"state: task {task.task} was given up although a store has its state")
                self.truth.owner_died(task.task)

    def _is_given_up(self, task: TaskMove, record: MoveRecord) -> bool:
        """An operator has asked for that, many have tried in vain, and who had it is gone."""
        gone = task.source not in self.coordination.now.living.values()
        return record.forced and task.attempt >= AT_ONCE and gone

    def _give_up(self, task: int, epoch: int) -> None:
        """Nothing of what was saved with it is owed any more."""
        self.meet("given up")
        found = (s.data.get((epoch, task)) for s in self.stores.at.values())
        for links, content in (value for value in found if value is not None and not isinstance(value, Part)):
            self.unspent[task] = content.budget
            for waiting in content.queue:
                self.truth.taint(waiting.source, task, waiting.item)
            for link in links.inputs:
                for early in link.early:
                    self.truth.taint(link.source, task, *early.item.items)
            for link in links.outputs:
                for unsent in link.buffer:
                    self.truth.taint(task, link.target, *unsent.item)

    def _is_really_lost(self, task: int, epoch: int) -> bool:
        return all((epoch, task) not in s.data for s in self.stores.at.values())

    def keep_budget(self, task: Task) -> None:
        """A spout that starts anew still has this to emit."""
        self.unspent[task.id] = task.budget

    def run(self, steps: int) -> None:
        """Let things happen."""
        for _ in range(steps):
            if not self.clock.step():
                return

    # ------------------------------------------------------------------ processes

    def _start_nimbus(self) -> None:
        if self.nimbus is None or not self.nimbus.alive:
            self._term += 1
            self.nimbus = Nimbus(self, self._term)

    def _start_worker(self, id: WorkerId) -> None:
        worker = self.workers[id]
        node = self.shape.workers[id]
        if (worker is None or not worker.alive) and node not in self._down:
            self._life += 1
            self.workers[id] = Worker(self, id, node, self._life)
            self.tell(f"worker {self.workers[id].me} starts")  # type: ignore[union-attr]

    def _kill_worker(self, worker: Worker, *, notice: float, restart: float) -> None:
        if not worker.alive:
            return
        worker.die()
        self.coordination.suspend(worker.session)
        self.clock.after(notice, self._noticed, worker, restart)

    def _noticed(self, worker: Worker, restart: float) -> None:
        self.coordination.close(worker.session)
        self.coordination.unregister(worker.id, worker.me)
        self.clock.after(restart, self._start_worker, worker.id)

    def living(self) -> list[Worker]:
        return [w for w in self.workers.values() if w is not None and w.alive]

    # ------------------------------------------------------------------ what can be done

    def apply(self, op: Op) -> None:
        """Do one operation: a name and numbers; what does not apply now does nothing."""
        self.tell(f"-- {op}")
        name, *arguments = op
        getattr(self, "do_" + name.replace(" ", "_"))(*arguments)

    def do_run(self, steps: int) -> None:
        self.run(steps)

    def do_emit(self, which: int, count: int) -> None:
        """A spout gets more to emit."""
        spout = self.shape.spouts[which % len(self.shape.spouts)]
        for worker in self.living():
            task = worker.tasks.get(spout)
            if task is not None:
                task.budget += count
                task.wake()

    def do_move(self, first: int, count: int, to: int, share: float) -> None:
        """Move some tasks to a worker; those that are there already, to the next."""
        ids = sorted(self.shape.places)
        workers = sorted(self.workers)
        places = self.coordination.places
        wanted = {}
        for k in range(count):
            task = ids[(first + k) % len(ids)]
            target = workers[to % len(workers)]
            wanted[task] = target if places[task] != target else workers[(to + 1) % len(workers)]
        if self.nimbus is not None and self.nimbus.move(wanted, share, "asked for"):
            self.moves += 1

    def do_break_link(self, which: int, longest: float) -> None:
        links = sorted(k for k in self.network.connections if k[0] != k[1])
        if links:
            self.count("break link")
            self.network.connections[links[which % len(links)]].cut(longest)

    def do_partition(self, which: int, longest: float) -> None:
        """All connections of a worker, both ways."""
        workers = self.living()
        if workers:
            self.count("partition")
            me = workers[which % len(workers)].me
            for key, connection in sorted(self.network.connections.items()):
                if me in key and key[0] != key[1]:
                    connection.cut(longest)

    def do_suspend_worker(self, which: int, longest: float) -> None:
        workers = self.living()
        if workers:
            self._suspend("suspend worker", workers[which % len(workers)].session, longest)

    def _suspend(self, kind: str, session: Session, longest: float) -> None:
        if session.connected:
            self.count(kind)
            self.coordination.suspend(session)
            self.clock.after(longest, self.coordination.reconnect, session)

    def do_suspend_nimbus(self, _: int, longest: float) -> None:
        if self.nimbus is not None and self.nimbus.alive and self.nimbus.session.connected:
            self.nimbus.forget()
            self._suspend("suspend nimbus", self.nimbus.session, longest)

    def do_crash_nimbus(self, _: int, longest: float) -> None:
        if self.nimbus is not None and self.nimbus.alive:
            self.count("crash nimbus")
            self.nimbus.die()
            self.clock.after(longest, self._start_nimbus)

    def do_store_down(self, which: int, longest: float) -> None:
        nodes = sorted(n for n in self.stores.at if n not in self._down)
        if nodes:
            self.count("store down")
            self.stores.down(nodes[which % len(nodes)], longest)

    def do_store_full(self, which: int, longest: float) -> None:
        store = self.stores.at[sorted(self.stores.at)[which % len(self.stores.at)]]
        if not store.full:
            self.count("store full")
            store.full = True
            self.clock.after(longest, self._not_full, store.node)

    def _not_full(self, node: NodeId) -> None:
        self.stores.at[node].full = False

    def do_store_not_reached(self, which: int, longest: float) -> None:
        """By Nimbus, when it empties the stores."""
        store = self.stores.at[sorted(self.stores.at)[which % len(self.stores.at)]]
        if store.reached:
            self.count("store not reached")
            store.reached = False
            self.clock.after(longest, setattr, store, "reached", True)

    def _plan_failure(self, kind: str) -> None:
        self.count(kind)
        self._faults[kind] = 1

    def do_prepare_fails(self, *_: float) -> None:
        self._plan_failure("prepare fails")

    def do_install_fails(self, *_: float) -> None:
        self._plan_failure("install fails")

    def do_save_fails(self, *_: float) -> None:
        self._plan_failure("save fails")

    def do_abort(self, which: int, _: float) -> None:
        self._abort("abort", which)

    def do_give_up(self, which: int, _: float) -> None:
        """What nobody can restore, too."""
        self._abort("give up", which, force=True)

    def _abort(self, kind: str, which: int, *, force: bool = False) -> None:
        epochs = sorted(self.coordination.moves)
        if epochs and self.nimbus is not None:
            self.count(kind)
            self.nimbus.abort(epochs[which % len(epochs)], force=force)

    def do_timer_early(self, which: int, _: float) -> None:
        """A limit runs out at once."""
        if self.nimbus is not None and self.nimbus.alive and self.nimbus.timers:
            port, event = self.nimbus.timers[which % len(self.nimbus.timers)]
            self.count("timer early")
            port.fire(event)

    def do_crash_worker(self, which: int, longest: float) -> None:
        workers = self.living()
        if workers:
            self.count("crash worker")
            self._kill_worker(workers[which % len(workers)], notice=2, restart=longest)

    def do_expire_session(self, which: int, longest: float) -> None:
        """The worker stands still; its session ends, and others begin what it ran. Later it would go on."""
        workers = self.living()
        if workers:
            self.count("expire session")
            worker = workers[which % len(workers)]
            self._kill_worker(worker, notice=10, restart=longest)
            self.clock.at(self.clock.now + 10 + self.rnd.random() * (longest + 60), worker.may_go_on)

    def do_lose_node(self, which: int, longest: float) -> None:
        """Its workers and its store, for a while."""
        nodes = sorted(n for n in self.stores.at if n not in self._down)
        if len(nodes) < 2:
            return
        self.count("lose node")
        node = nodes[which % len(nodes)]
        self._down.add(node)
        held = {key for s in self.stores.at.values() for key in s.data}
        self.stores.lose(node)
        kept = {key for s in self.stores.at.values() for key in s.data}
        self._lost_saved(held - kept)
        for worker in self.living():
            if worker.node == node:
                self._kill_worker(worker, notice=5, restart=1)
        self.clock.after(longest, self._node_back, node)

    def _lost_saved(self, gone: set[tuple[int, int]]) -> None:
        """The last copies of states went: nothing of what was in them is owed any more."""
        for epoch, task in sorted(gone):
            at = self.coordination.now.stands(task)
            if (at.epoch, at.phase) == (epoch, Phase.SAVED):
                self.meet("saved state lost")
                for source in self.shape.wiring.emitters_of(task):
                    self._taint_up_to(source, task)
                for target in self.shape.wiring.targets_of(task):
                    self._taint_up_to(task, target)
                self.truth.crashed.add(task)

    def _taint_up_to(self, source: int, target: int) -> None:
        done, count = self.truth.last.get((source, target), 0), self.truth.emitted.get((source, target), 0)
        self.truth.tainted.update((source, target, n) for n in range(done + 1, count + 1))

    def _node_back(self, node: NodeId) -> None:
        self._down.discard(node)
        self.stores.start(node)
        for worker, place in self.shape.workers.items():
            if place == node:
                self._start_worker(worker)

    def do_reassign(self, *_: float) -> None:
        if self.nimbus is not None and self.nimbus.reassign():
            self.count("reassign")

    # ------------------------------------------------------------------ the end

    def finish(self) -> None:
        """Faults stop; everything comes to rest, and every promise is checked."""
        self.tell("-- faults stop")
        self._faults.clear()
        self.coordination.lag = 0.0
        for node in sorted(self._down):
            self._node_back(node)
        for node, store in self.stores.at.items():
            store.full = False
            if not store.up:
                self.stores.start(node)
        for session in list(self.coordination.sessions):
            self.coordination.reconnect(session)
        limit = self.clock.steps + END_LIMIT
        while self.clock.steps < limit:
            self._start_nimbus()
            for worker in self.workers:
                if self.workers[worker] is None:
                    self._start_worker(worker)
            if not self.clock.step():
                break
            for session in list(self.coordination.sessions):
                if not session.connected and not session.dead and not session.name.startswith("gone"):
                    self._mend(session)
        else:
            raise Broken("it ends: faults have stopped long ago, and things still happen")
        self.check_rest()

    def _mend(self, session: Session) -> None:
        if any(w.session is session for w in self.living()) or (
            self.nimbus is not None and self.nimbus.session is session
        ):
            self.coordination.reconnect(session)

    def check_rest(self) -> None:
        """Nothing is left behind, everybody runs, everything has arrived."""
        view = self.coordination.now
        if self.coordination.moves:
            waits = {w.me: dict(w.participant.waits()) for w in self.living()}
            raise Broken(
                f"it ends: moves {sorted(self.coordination.moves)} have a record still; waiting for {waits}"
            )
        for node, store in self.stores.at.items():
            if store.data:
                raise Broken(f"it ends: the store of {node} holds {sorted(store.data)}")
        for task, worker in view.places.items():
            running = [w for w in self.living() if task in w.tasks]
            if [w.id for w in running] != [worker]:
                raise Broken(
                    f"it ends: task {task} belongs to {worker} and runs in {[w.me for w in running]}"
                )
            found = running[0].tasks[task]
            if found.queue or found.pending or found.stopped or found.stopping or found.budget:
                raise Broken(f"it ends: task {task} has not gone on: {vars(found)}")
            if found.state != self.truth.states.get(task, {}):
                raise Broken(
                    f"state: task {task} has {found.state}, should have {self.truth.states.get(task)}"
                )
        for w in self.living():
            if not w.participant.quiet or w.blocked or w.prepared or w.confirming:
                raise Broken(f"it ends: worker {w.me} still holds something of a move")
            # As long as one is remembered no tuple of that link takes the shortcut.
            if fences := [r._fence for r in w.participant.receivers.values() if r._fence is not None]:
                raise Broken(f"it ends: worker {w.me} remembers {fences}")
        self.truth.at_the_end()
        if not self.truth.tainted and not self.truth.lost_states:
            expected = self.shape.reference(self.truth.roots)
            for task in view.places:
                if self.truth.items.get(task, set()) != expected.get(task, set()):
                    raise Broken(
                        f"reference: task {task} has not applied what it does when all runs in one process"
                    )
