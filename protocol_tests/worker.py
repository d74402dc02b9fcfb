"""A simulated worker process: the product's participant and driver, over simulated links, tasks, stores and coordination."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from elastic.errors import ElasticError, Unavailable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.driver import participant_driver
from elastic.migration.participant import Participant
from elastic.migration.record import Marked, Marks, Phase
from elastic.migration.table import NewState
from elastic.migration.view import EMPTY, View
from elastic.model.ids import Incarnation, NodeId, WorkerId
from protocol_tests.starting import Starting
from protocol_tests.store import DOWN, GONE, Part
from protocol_tests.tasks import PIECE, Items, Piece, Task, Waiting

if TYPE_CHECKING:
    from protocol_tests.world import World


_WORDS = (ev.SaveHeard, ev.RestoreHeard)
"""Of these nothing but speed depends: they may get lost, come late, or twice."""


LATE = 0.02
"""How often, of the times that a view is read, somebody looks afterwards who finds that a task is late."""


def read_by(me: Incarnation, view: View) -> View:
    """What a worker reads of that: of each move the marks of those whom the record names, and its own."""
    moves = []
    for move in view.moves:
        wanted = {*move.record.participants, me}
        few = {i: m for i, m in move.marks.items() if i in wanted}
        moves.append(move if len(few) == len(move.marks) else replace(move, marks=few))
    return (
        view
        if all(a is b for a, b in zip(moves, view.moves, strict=True))
        else replace(view, moves=tuple(moves))
    )


def _joined(one: Items, other: Items) -> Items | None:
    """One batch of two that are held one after the other, as long as that is not too large."""
    return one + other if len(one) + len(other) <= PIECE else None


def is_whole(value: Any) -> bool:
    """Whether what lies in a store says of itself that it is all of a stopped task."""
    return not isinstance(value, Part)


class Worker:
    """One life of one worker."""

    def __init__(self, world: World, id: WorkerId, node: NodeId, life: int) -> None:
        self.world, self.clock = world, world.clock
        self.id, self.node = id, node
        self.me = Incarnation(f"{id}#{life}")
        self.alive = True
        self.tasks: dict[int, Task] = {}
        self.prepared: dict[int, Task] = {}
        self.early: dict[int, list[Any]] = {}
        self.again: deque[Any] = deque()
        self.begun: list[int] = []  # what has come early for them comes when the present event is answered
        self.blocked: set[tuple[int, int]] = set()
        self.wants_room: set[tuple[int, int]] = set()
        self.outstanding: dict[tuple[int, int], int] = {}
        self.ways: dict[tuple[int, int], int] = {}
        self.unconfirmed: dict[int, int] = {}
        self.confirming: dict[int, int] = {}
        self._starting = Starting(self)
        self._late = Random(f"{world.seed} {self.me}")  # of its own: else nothing would happen as without it
        self._way = 0
        self._fail_next = 0
        self._last = EMPTY
        self.participant = Participant(self.me, world.shape.wiring, world.shape.buffer)
        self.driver = participant_driver(
            self.participant,
            links=self,
            tasks=_Tasks(self),
            store=_Store(self),
            marks=self,
            on_fatal=self._fatal,
        )
        world.network.processes[self.me] = self
        self.session = world.coordination.open(self.me, self.on_view)
        world.coordination.register(id, self.me)
        self.clock.after(2, self._boot)

    def _boot(self) -> None:
        if self.alive and self.session.connected:
            self.on_view(self.world.coordination.sync(self.session))
        elif self.alive:
            self.clock.after(5, self._boot)

    def feed(self, event: Any) -> None:
        if not self.alive or self._takes(event):
            return
        if self.world.trace is not None:
            self.world.tell(
                f"{self.me} <- {event if not isinstance(event, ev.ViewRead) else f'ViewRead {event.view.number}'}"
            )
        self.driver.feed(event)
        self.world.saw(self.participant, event)
        while self.begun:
            self._hand_in(self.begun.pop())
        while self.again:
            self.feed(self.again.popleft())

    def _takes(self, event: Any) -> bool:
        """Take what is next by the data path's shortcut, which is asked first for all that comes to a task that runs."""
        if (
            not isinstance(event, ev.Arrived)
            or not (task := self.tasks.get(event.target))
            or not task.running
        ):
            return False
        receiver = self.participant.receivers.get((event.source, event.target))
        if receiver is None or not receiver.takes(event.life, event.first, event.count):
            return False
        self.world.meet("taken by the shortcut")
        self.accept(ac.Accept(event.source, event.target, event.count, event.item))
        return True

    def later(self, longest: float, event: Any) -> None:
        self.clock.after(longest, self.feed, event)

    def _fatal(self, action: Any, error: ElasticError) -> None:
        raise error

    # ------------------------------------------------------------------ coordination

    def on_view(self, view: View) -> None:
        if not self.alive:
            return
        before = self.participant.view
        view = self._read(view)
        for task in list(self.early):
            if before.stands(task).owner == self.me and view.places[task] != self.id:
                del self.early[task]  # it was to come, and goes elsewhere
        self.feed(ev.ViewRead(view))
        if self._late.random() < LATE:
            for move in view.moves:
                at = self.clock.now + 30 * self._late.random()
                self.clock.at(at, self.feed, ev.ReadyLate(move.record.epoch))
        self._starting.follow(view)
        for key in self.participant.emitters:
            if key[0] in self.tasks:
                self.tasks[key[0]].wake()

    def _read(self, shown: View) -> View:
        view = read_by(self.me, shown)
        view.follows(self._last)
        self._last = view
        return view

    def read_anew(self) -> View | None:
        """Everything as it is now; None: it cannot be read."""
        if not self.alive or not self.session.connected:
            return None
        view = self._read(self.world.coordination.sync(self.session))
        self.feed(ev.ViewRead(view))
        return view

    def start(self, task: int, life: int) -> None:
        """A task that nobody has a state for."""
        made = self.tasks[task] = Task(self, task, self.world.next_serial())
        self.world.truth.start(task, made.serial)
        self.feed(ev.TaskStarted(task, life))
        made.budget = self.world.unspent.pop(task, 0)
        made.number = self.world.truth.roots.get(task, 0)
        made.running = True
        self._hand_in(task)
        made.wake()

    def write(self, action: ac.WriteMarks) -> None:
        def done(marked: Marked | None) -> None:
            self.feed(ev.MarksRead(action.epoch, marked))

        def accepted() -> None:
            if not self.alive:
                self.restored_after_death(action.marks)

        write = self.world.coordination.write_marks
        write(self.session, action.epoch, self.me, action.marks, action.version, done, accepted)

    # ------------------------------------------------------------------ links, out

    def emit(self, source: int, target: int, items: Items) -> bool:
        """A task emits a batch; False when it is blocked."""
        link = self.participant.emitters[source, target]
        key = (source, target)
        if link.flowing:
            if self.outstanding.get(key, 0) >= self.world.shape.window:
                return False
            if items[0].number % 2:
                self.send(ac.Send(source, target, link.life, link.left(len(items)), len(items), items))
            else:
                self.feed(ev.Emitted(source, target, items, len(items)))
            return True
        if link.full:
            return False
        if not (items[0].number % 2 and link.kept(items, len(items), _joined)):
            self.feed(ev.Emitted(source, target, items, len(items)))
        if link.rows >= self.world.shape.buffer + len(items):
            raise AssertionError(f"the output buffer of {key} holds {link.rows}")
        return True

    def open(self, action: ac.Open) -> None:
        key = (action.source, action.target)
        self._way += 1
        self.ways[key], self.outstanding[key] = self._way, 0
        self._transmit(
            action.source, action.where, ev.Opened(*key, action.life, action.position, action.epoch)
        )

    def send(self, action: ac.Send) -> None:
        key = (action.source, action.target)
        self.outstanding[key] += action.count
        frame = ev.Arrived(*key, action.life, action.first, action.count, (action.item, self.ways[key]))
        where = self.participant.emitters[key].where
        if where not in self.world.network.processes and action.target in self.world.truth.crashed:
            self.world.truth.taint(*key, *action.item)
        self._transmit(action.source, where, frame)

    def fence(self, action: ac.SendFence) -> None:
        key = (action.source, action.target)
        where = self.participant.emitters[key].where
        self._transmit(
            action.source, where, ev.FenceArrived(*key, action.epoch, action.life, action.position)
        )

    def say_stored(self, task: int, epoch: int) -> None:
        """The old side has the new one look into the stores: a word that may get lost, come late, or twice."""
        part, rnd = self.participant.view.part(task, epoch), self.clock.rnd
        if part is None or part.target == self.me:
            return
        for _ in range(rnd.choice((0, 1, 1, 1, 2)) if self.world.shape.hints else 0):
            word = ev.SaveHeard(task, epoch)
            self.clock.after(rnd.choice((0.0, 0.0, 0.0, 20.0)), self._say, part.target, word)

    def tell_restored(self, action: ac.TellRestored) -> None:
        rnd, word = self.clock.rnd, ev.RestoreHeard(action.epoch, action.tasks)
        for _ in range(rnd.choice((0, 1, 1, 1, 2)) if self.world.shape.hints else 0):
            self.clock.after(rnd.choice((0.0, 0.0, 0.0, 20.0)), self._say, action.where, word)

    def rest(self, action: ac.Rest) -> None:
        longest = self._late.choice((0.0, 0.0, 2.0, 20.0))
        self.clock.at(
            self.clock.now + longest * self._late.random(), self.feed, ev.Rested(action.epoch, action.batch)
        )

    def _say(self, where: Incarnation, word: Any) -> None:
        if self.alive:
            self.world.network.send(self, where, word)

    def _transmit(self, source: int, where: Incarnation, frame: Any) -> None:
        self.unconfirmed[source] = self.unconfirmed.get(source, 0) + 1
        self.world.network.send(self, where, frame)

    def on_confirmed(self, frame: Any) -> None:
        if isinstance(frame, _WORDS):
            return
        task = frame.source
        self.unconfirmed[task] -= 1
        self._if_delivered(task)

    def confirm_output(self, action: ac.ConfirmOutput) -> None:
        self.confirming[action.task] = action.epoch
        self._if_delivered(action.task)

    def _if_delivered(self, task: int) -> None:
        if self.alive and task in self.confirming and not self.unconfirmed.get(task):
            self.later(0.1, ev.Delivered(task, self.confirming.pop(task)))

    def ask_room(self, action: ac.AskRoom) -> None:
        key = (action.source, action.target)
        if self.outstanding.get(key, 0) < self.world.shape.window:
            self.later(0.1, ev.Room(*key))
        else:
            self.wants_room.add(key)

    def credit(self, key: tuple[int, int], way: int) -> None:
        if not self.alive or self.ways.get(key) != way:
            return
        self.outstanding[key] -= 1
        if key in self.wants_room:
            self.wants_room.discard(key)
            self.feed(ev.Room(*key))
        if key[0] in self.tasks:
            self.tasks[key[0]].wake()

    def block(self, action: ac.Block) -> None:
        self.blocked.add((action.source, action.target))
        self.world.meet("output buffer full")

    def unblock(self, action: ac.Unblock) -> None:
        self.blocked.discard((action.source, action.target))
        if action.source in self.tasks:
            self.tasks[action.source].wake()

    # ------------------------------------------------------------------ links, in

    def on_frame(self, origin: Incarnation, frame: Any, again: bool) -> None:
        if isinstance(frame, _WORDS):
            self.feed(frame)
            return
        if again and (frame.source, frame.target) not in self.participant.receivers:
            return
        if isinstance(frame, ev.Arrived):
            items, way = frame.item
            if frame.count > 1:
                self.world.meet("batches of several")
            frame = ev.Arrived(
                frame.source,
                frame.target,
                frame.life,
                frame.first,
                frame.count,
                Piece(frame.source, items, origin, way),
            )
        self.feed(frame)

    def accept(self, action: ac.Accept) -> None:
        task, piece = self.tasks[action.target], action.item
        task.queue += (Waiting(piece.source, item, piece.origin, piece.way) for item in piece.items)
        task.wake()

    def drop(self, action: ac.Drop) -> None:
        if action.why == "taken before":
            return
        truth, piece = self.world.truth, action.item
        for item in piece.items:
            if truth.of_an_ended_life(action.source, action.target, item):
                truth.taint(action.source, action.target, item)
            self.consumed(action.target, Waiting(piece.source, item, piece.origin, piece.way))

    def not_here(self, action: ac.NotHere) -> None:
        self.early.setdefault(action.target, []).append(action.event)

    def tell_again(self, action: ac.TellAgain) -> None:
        self.again.append(action.event)

    def _hand_in(self, task: int) -> None:
        for event in self.early.pop(task, ()):
            self.feed(event)

    def consumed(self, task: int, waiting: Waiting) -> None:
        sender = self.world.network.processes.get(Incarnation(waiting.origin))
        if sender is not None:
            self.clock.after(0.5, sender.credit, (waiting.source, task), waiting.way)

    def stopped(self, task: Task) -> None:
        self.later(0.1, ev.Stopped(task.id, task.stopping))

    # ------------------------------------------------------------------ its end

    def die(self) -> None:
        """The process ends, without a word."""
        world, view = self.world, self.world.coordination.now
        mine = {t for t in view.places if view.stands(t).owner == self.me}
        for t in sorted(mine):
            self._taint(t)
        self._taint_ends(mine)
        for frame in world.network.frames(lambda c: c.source is self):
            if isinstance(frame, ev.Arrived) and frame.source in mine:
                self.world.truth.taint(frame.source, frame.target, *frame.item[0])
        for frame in world.network.frames(lambda c: c.target == self.me):
            if isinstance(frame, ev.Arrived) and frame.target in mine:
                self.world.truth.taint(frame.source, frame.target, *frame.item[0])
        self.alive = False
        world.network.died(self.me)

    def may_go_on(self) -> None:
        """It would get a processor again, after its session is over: the kernel has ended it (`elastic.procs.end_at`)."""

    def restored_after_death(self, marks: Marks) -> None:
        """A write that was on its way when the process died has made it the owner of these."""
        for t, attempt in marks.restored.items():
            new = self.participant.new.get(t)
            if new is not None and new.attempt == attempt and new.state is NewState.MARKING:
                self.world.meet("restored after death")
                self._taint(t)
                if new.back:  # what its old side has: it has come from nowhere
                    self._taint_ends({t})

    def _taint_ends(self, mine: Collection[int]) -> None:
        """What was held for others by these tasks, and for these, at the ends of their links."""
        for (source, target), emitter in self.participant.emitters.items():
            if source in mine:
                for unsent in emitter.buffer:
                    self.world.truth.taint(source, target, *unsent.item)
        for (source, target), receiver in self.participant.receivers.items():
            if target in mine:
                for early in receiver.export().early:
                    self.world.truth.taint(source, target, *early.item.items)
        for t in mine:
            for event in (*self.early.get(t, ()), *self.participant.kept_for_later(t)):
                if isinstance(event, ev.Arrived):
                    self.world.truth.taint(event.source, t, *event.item.items)

    def _taint(self, t: int) -> None:
        """A task that this process held died with it."""
        truth = self.world.truth
        truth.owner_died(t)
        for link in self.participant.arriving(t):
            for unsent in link.buffer:
                self.world.truth.taint(t, link.target, *unsent.item)
        brought = self.participant._arriving.get(t)
        for came in brought.inputs if brought is not None else ():
            for early in came.early:
                self.world.truth.taint(came.source, t, *early.item.items)
        task = self.tasks.get(t) or self.prepared.get(t)
        if task is None:
            return
        for waiting in task.queue:
            truth.taint(waiting.source, t, waiting.item)
        for target, items in task.pending:
            self.world.truth.taint(t, target, *items)
        for source in self.participant.wiring.emitters_of(t):
            receiver = self.participant.receivers.get((source, t))
            for early in receiver.export().early if receiver is not None else ():
                self.world.truth.taint(source, t, *early.item.items)
        self.world.keep_budget(task)


class _Tasks:
    """The port of that name."""

    def __init__(self, worker: Worker) -> None:
        self.w = worker

    def note_pause(self, action: ac.NotePause) -> None:
        """See the port."""

    def stop(self, action: ac.StopTask) -> None:
        self.w.tasks[action.task].stop(action.epoch)

    def go_on(self, action: ac.ContinueTask) -> None:
        self.w.confirming.pop(action.task, None)
        self.w.tasks[action.task].go_on()

    def release(self, action: ac.ReleaseTask) -> None:
        self.w.confirming.pop(action.task, None)
        self.w.tasks.pop(action.task).closed = True
        self.w.blocked = {k for k in self.w.blocked if k[0] != action.task}

    def prepare(self, action: ac.PrepareTask) -> None:
        w = self.w
        w.prepared[action.task] = Task(w, action.task, w.world.next_serial())
        if w.world.takes_fault("prepare fails"):
            w.later(3, ev.NewFailed(action.task, action.epoch, action.attempt, "prepare() raised"))
        else:
            w.later(3, ev.Prepared(action.task, action.epoch, action.attempt))

    def install(self, action: ac.Install) -> None:
        w = self.w
        if w.world.takes_fault("install fails"):
            raise ElasticError("the state cannot be read")
        w.prepared[action.task].install(action.payload)

        w.clock.after(1, lambda: w.feed(ev.Installed(action.task, action.epoch, action.attempt)))

    def begin(self, action: ac.BeginTask) -> None:
        w = self.w
        task = w.tasks[action.task] = w.prepared.pop(action.task)
        w.world.truth.restore(task.id, task.serial, task.state, task.timer, task.number)
        task.running = True
        task.wake()
        w.begun.append(task.id)

    def discard(self, action: ac.DiscardTask) -> None:
        self.w.prepared.pop(action.task, None)


class _Store:
    """The port of that name."""

    def __init__(self, worker: Worker) -> None:
        self.w = worker

    def ask(self, action: ac.AskStore) -> None:
        self.w.tasks[action.task].when_gone_on(lambda: self._ask(action))

    def _ask(self, action: ac.AskStore) -> None:
        if not self.w.alive:
            return
        stores = self.w.world.stores
        full = [n for n in action.nodes if stores.at[n].full]
        if full:
            self.w.later(2, ev.OldFailed(action.task, action.epoch, f"the store of node {full[0]} is full"))
        else:
            ahead = action.task % 2 == 0
            if ahead:
                me, task = self.w.participant, action.task
                part = Part(me._ends.export(task, me.tasks[task]), self.w.tasks[task].content())
                for node in action.nodes:
                    stores.put_part(node, action.epoch, action.task, part)
                self.w.say_stored(action.task, action.epoch)
            self.w.later(2, ev.StoreAsked(action.task, action.epoch, ahead=ahead))

    def save(self, action: ac.Save) -> None:
        w = self.w
        if w.world.takes_fault("save fails"):
            raise Unavailable("the store does not answer")
        value = (action.links, w.tasks[action.task].content())
        answers: list[str] = []

        def done(error: str) -> None:
            answers.append(error)
            w.say_stored(action.task, action.epoch)  # earlier than it has to be: when one store has it
            if len(answers) == len(action.nodes):
                bad = [a for a in answers if a]
                if bad:
                    w.feed(ev.OldFailed(action.task, action.epoch, bad[0]))
                else:
                    w.feed(ev.SaveDone(action.task, action.epoch, action.nodes, 1))

        def put() -> None:
            for node in action.nodes:
                w.world.stores.put(node, action.epoch, action.task, value, done)

        w.tasks[action.task].read(put)

    def fetch_ahead(self, action: ac.FetchAhead) -> None:
        if self.w.world.takes_fault("fetching ahead fails"):
            raise Unavailable("the store does not answer")
        self.w.later(3, ev.AheadFetched(action.task, action.epoch, action.attempt))

    def fetch(self, action: ac.Fetch) -> None:
        w = self.w
        nodes = sorted(action.nodes, key=lambda n: (n != w.node, n))
        self._try(action, nodes, [], 6)

    def _try(self, action: ac.Fetch, left: list[NodeId], answers: list[str], tries: int) -> None:
        w = self.w
        if not left:
            if DOWN in answers and tries and not action.heard:
                nodes = sorted(action.nodes, key=lambda n: (n != w.node, n))
                w.clock.after(20, self._try, action, nodes, [], tries - 1)
                return
            gone = DOWN not in answers
            at = w.world.coordination.now.stands(action.task)
            if (
                gone
                and GONE not in answers
                and (at.epoch, at.phase, at.attempt) == (action.epoch, Phase.SAVED, action.attempt)
            ):
                raise AssertionError(f"no store has the state of task {action.task}, and no node was lost")
            w.feed(ev.NewFailed(action.task, action.epoch, action.attempt, "no store has the state", gone))
            return

        def done(error: str, value: Any) -> None:
            if error:
                self._try(action, left[1:], [*answers, error], tries)
            elif not is_whole(value):
                if not action.heard:
                    raise AssertionError(f"task {action.task} is called saved, and a part of it lies there")
                w.feed(ev.NewFailed(action.task, action.epoch, action.attempt, "only a part is there"))
            else:
                if action.heard:
                    w.world.meet("fetched by word")
                w.feed(ev.Fetched(action.task, action.epoch, action.attempt, *value))

        w.world.stores.get(left[0], action.epoch, action.task, done)
