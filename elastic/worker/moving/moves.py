"""Moves as one worker process takes part in them: its `Participant`, and the links between tasks.

Everything that the participant is told goes through `feed`, one event at a time, from whatever thread it comes. The data path
does not: while nothing moves, an executor puts its batches on a link under the gate of the emitting task alone, and a batch that
is the next of its link goes into the queue under the receiving task's lock alone. What is not so simple comes here.

Locks, in the order in which they may be taken: this one, a task's gate (`Outputs.gate`), a task's queue (`Task.guard`). Executors never
wait for this one while they hold one of the others.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from elastic.errors import ElasticError
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.driver import participant_driver
from elastic.migration.emitter import Emitter as LinkEnd
from elastic.migration.participant import Participant
from elastic.migration.plan import Wiring
from elastic.migration.ports import OwnMarks, Store, Tasks
from elastic.migration.view import View
from elastic.model.ids import Incarnation, worker_of
from elastic.model.topology import TopologySpec
from elastic.transport.base import Link
from elastic.worker.emitting.ways import Ways
from elastic.worker.executing.gaps import Gaps
from elastic.worker.moving.held import Held, Pause
from elastic.worker.moving.rests import Rests
from elastic.worker.moving.words import Words, tell
from elastic.worker.tuples import wire
from elastic.worker.tuples.batch import Item

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task

log = logging.getLogger("elastic.worker")

_IN = (ev.Opened, ev.Arrived, ev.FenceArrived)
_NOTHING: AbstractContextManager[object] = nullcontext()
HELD_QUEUES = 8
"""Times `queue_rows` tuples that a link holds for a task that stands still, before its emitter has to wait and with it all else that that
one emits: as many as may be on their way to a task of another worker. They are bytes."""
PASSED = 4
"""Times what a link holds that is handed to a task of the same worker as its queue has room, once it goes on: its emitter need not wait
for that. From then on it waits as always: what is held is bytes, and costs both of them more than what is handed over by reference."""
_TOGETHER = 256
"""Events after which marks are written although more wait."""


def _nothing() -> None:
    """For the queue of what was posted."""


class Moves:
    """See the module.

    Args:
        tasks: Those that run here, kept up to date by the worker.
        ways: The links to other worker processes.
        consumed: Gives the room of an item back to where it came from.
        on_fatal: Told of an error that no rollback can mend: the process has to end.
        on_resumed: Told of a task that moved, and for how long its emitters here held what was for it.
        on_received: Told the same of the seconds that those here got nothing from it (`executing.gaps`); None: nobody here would have.
    """

    def __init__(
        self,
        me: Incarnation,
        spec: TopologySpec,
        ways: Ways,
        *,
        tasks: Mapping[int, Task],
        consumed: Callable[[Item, int], None],
        on_fatal: Callable[[BaseException], None],
        on_resumed: Callable[[int, Pause], None],
        on_received: Callable[[int, int, float | None], None],
        buffer_rows: int,
    ) -> None:
        self.me = me
        self._ways = ways
        self._tasks = tasks
        self._consumed = consumed
        self._on_fatal = on_fatal
        self._on_resumed = on_resumed
        self._leaving = False  # somebody has left, and what was held by its links is to be looked at
        self._lock = threading.RLock()
        self._posted: deque[Any] = deque()
        self._busy = self._gathering = False
        self._broken = False
        self._early: dict[int, list[Any]] = {}
        self._room_asked: dict[int, set[int]] = {}  # target -> sources with something held back for it
        self._asking = threading.Lock()
        self._passed: dict[
            tuple[int, int], int
        ] = {}  # link -> tuples that it has handed on since its task goes on
        self._offered: tuple[int, int] | None = None
        self.participant = Participant(me, Wiring.of(spec), buffer_rows, self._gate)
        self.link = ways.link
        part = self.participant
        self._held = Held(part.wiring)
        self._rests = Rests(lambda epoch, batch: self.feed(ev.Rested(epoch, batch)))
        self.words = Words(me, lambda: part.view, ways.link)
        self._gaps = Gaps(part.wiring, tasks, part.receivers, on_received, self._posted.append)

    def join(self, tasks: Tasks, store: Store, marks: OwnMarks) -> None:
        """Give it the other ports: they need it, and it needs them."""
        self._driver = participant_driver(
            self.participant, links=self, tasks=tasks, store=store, marks=marks, on_fatal=self._fatal
        )

    # ------------------------------------------------------------------ what happens

    def feed(self, event: Any) -> None:
        """Tell the participant of something, and have done what it wants. From any thread that holds no gate and no task's lock.

        Done when it returns only within `exclusive`; else another thread may be at it still.
        """
        self._posted.append(event)
        self.work()

    def feed_all(self, events: Iterable[Any]) -> None:
        """The same for several that come together."""
        self._posted.extend(events)
        self.work()

    def work(self) -> None:
        """Go on with what was posted; see `feed`. If another thread is at it, it does this too, and nobody waits for it."""
        while self._posted and not self._broken:
            if not self._lock.acquire(blocking=False):
                return  # whoever has it looks again when it has let go
            try:
                if self._busy:
                    return
                self._drain()
            finally:
                self._lock.release()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """What is done and fed within is one step to all others; what is fed has been answered when `feed` returns."""
        try:
            with self._lock:
                yield
        finally:
            self.work()

    @contextmanager
    def together(self) -> Iterator[None]:
        """As `exclusive`; marks of what is fed within are written together."""
        with self.exclusive():
            self._gathering = True
            try:
                yield
            finally:
                self._gathering = False
                self._posted.append(_nothing)  # marks are written when that has been worked off

    def _drain(self) -> None:
        self._busy = True
        try:
            while self._posted:
                for _ in range(min(len(self._posted), _TOGETHER)):
                    event = self._posted.popleft()
                    with self._guard(event):
                        if callable(event):
                            event()
                        else:
                            self._driver.feed(event, more=True)
                if not self._gathering:
                    self._driver.settle()
        except Exception as error:  # a `ProtocolViolation`, or a defect: what follows would be built on sand
            self._broken = True
            log.exception("the worker cannot take part in moves any more")
            self._on_fatal(error)
        finally:
            self._busy = False

    def see(self, view: View) -> None:
        """Coordination was read: everything follows it, and whoever waits for a way looks again."""
        with self.exclusive():
            before, place = self.participant.view, worker_of(self.me)
            for task in list(self._early):
                # It was to come, and goes elsewhere. What is too early only from this view on was said by who knows more.
                if before.stands(task).owner == self.me and view.places.get(task) != place:
                    self._forget_early(task)
            self._held.see(view)
            self._rests.keep({m.record.epoch for m in view.moves})
            self.feed(ev.ViewRead(view))
            self._gaps.see(view)
            changed = self.participant.view.changed(before.standing)
        for task in changed:
            self._ways.signal(task)

    def started(self, task: Task, life: int) -> None:
        """The task starts here without what a move brings."""
        with self.exclusive():
            self.feed(ev.TaskStarted(task.id, life))
            self.attach(task)
            self.hand_in(task.id)

    def attach(self, task: Task) -> None:
        """Links of the task begin and end here from now on."""
        emitters, receivers = self.participant.emitters, self.participant.receivers
        wiring = self.participant.wiring
        task.receivers = self._gaps.over({s: receivers[s, task.id] for s in wiring.emitters_of(task.id)})
        task.outputs.attach({t: emitters[task.id, t] for t in wiring.targets_of(task.id)})

    def left(self, task: int) -> None:
        """The task is somebody else's: what its links alone have held here is held no more. With the lock."""
        self._gaps.left(task)
        if self._held and not self._leaving:
            self._leaving = True
            self.feed(self._forget_held)

    def _forget_held(self) -> None:
        self._leaving = False
        # Links begin anew elsewhere, and nobody opens them here.
        for target in self._held.left(self.participant.tasks):
            self._on_resumed(target, self._held.end(target, elsewhere=True))

    def hand_in(self, task: int) -> None:
        """What has come too early for the task comes now, and what was held back for it until it is here."""
        for event in self._early.pop(task, ()):
            self.feed(event)
        self.room(task)

    def _gate(self, source: int) -> AbstractContextManager[object]:
        task = self._tasks.get(source)
        return task.outputs.gate if task is not None else _NOTHING

    def _guard(self, event: Any) -> AbstractContextManager[object]:
        kind = event.__class__
        if kind in _IN:
            task = self._tasks.get(event.target)
            return task.guard if task is not None else _NOTHING
        return self._gate(event.source) if kind is ev.Room or kind is ev.Emitted else _NOTHING

    def _fatal(self, action: Any, error: ElasticError) -> None:
        log.error("cannot be done: %s: %s", action, error)
        self._broken = True
        self._on_fatal(error)

    # ------------------------------------------------------------------ from the data path

    def arrived(self, target: int, life: int, first: int, item: Item) -> None:
        """See `Crossing.arrived`."""
        self._gaps.came(item.source)
        self._posted.append(ev.Arrived(item.source, target, life, first, item.weight, item))

    def told(self, target: int, told: wire.Told, life: int, position: int, place: Incarnation) -> None:
        """A link says something about itself, from that place. On the transport's thread."""
        if told.kind == wire.OPENED:
            self._gaps.opened(told.source, place)
            self.feed(ev.Opened(told.source, target, life, position, told.epoch))
        else:
            self.feed(ev.FenceArrived(told.source, target, told.epoch, life, position))

    def room(self, target: int) -> None:
        """There may be room on the way to that task."""
        with self._asking:
            sources = self._room_asked.pop(target, None)
        if sources:
            for source in sorted(sources):
                self._posted.append(lambda s=source: self._flush(s, target))
            self.work()

    # ------------------------------------------------------------------ Links

    def open(self, action: ac.Open) -> None:
        """See `elastic.migration.ports.Links`."""
        if not action.epoch and action.target in self._held:
            self._on_resumed(action.target, self._held.end(action.target))
        self._passed.pop((action.source, action.target), None)
        if action.where == self.me:
            self._gaps.opened(action.source, self.me)
            self._posted.append(
                ev.Opened(action.source, action.target, action.life, action.position, action.epoch)
            )
        else:
            frame = wire.opened(action.source, action.life, action.position, action.epoch)
            tell(self.link(action.where), action.target, frame)
        self._ways.signal(action.target)

    def send(self, action: ac.Send) -> None:
        """See `elastic.migration.ports.Links`."""
        key = (action.source, action.target)
        if self._offered == key:  # the transport has taken it already: that was the room
            self._offered = None
        else:
            where = self.participant.emitters[key].where
            if where == self.me:
                self._gaps.came(action.source)
                self._posted.append(ev.Arrived(*key, action.life, action.first, action.count, action.item))
            elif not self._offer(where, action.target, action.item, action.life, action.first):
                log.info("%s has ended: what was sent to it is lost", where)
        self._ways.signal(action.target)

    def fence(self, action: ac.SendFence) -> None:
        """See `elastic.migration.ports.Links`."""
        self._held.begin(action.target, action.epoch)
        self._rests.holds(action.epoch)
        where = self.participant.emitters[action.source, action.target].where
        if where == self.me:
            self._posted.append(
                ev.FenceArrived(action.source, action.target, action.epoch, action.life, action.position)
            )
        else:
            frame = wire.fence(action.source, action.life, action.position, action.epoch)
            tell(self.link(where), action.target, frame)
        self._ways.signal(action.target)

    def ask_room(self, action: ac.AskRoom) -> None:
        """See `elastic.migration.ports.Links`."""
        self._posted.append(lambda: self._flush(action.source, action.target))

    def block(self, action: ac.Block) -> None:
        """See `elastic.migration.ports.Links`: the emitter finds that out by itself."""

    def unblock(self, action: ac.Unblock) -> None:
        """See `elastic.migration.ports.Links`."""
        self._ways.signal(action.target)

    def accept(self, action: ac.Accept) -> None:
        """See `elastic.migration.ports.Links`."""
        self._tasks[action.target].force(action.item)

    def drop(self, action: ac.Drop) -> None:
        """See `elastic.migration.ports.Links`."""
        self._consumed(action.item, action.target)

    def not_here(self, action: ac.NotHere) -> None:
        """See `elastic.migration.ports.Links`."""
        self._early.setdefault(action.target, []).append(action.event)

    def tell_again(self, action: ac.TellAgain) -> None:
        """See `elastic.migration.ports.Links`."""
        self._posted.append(action.event)

    def tell_restored(self, action: ac.TellRestored) -> None:
        """See `elastic.migration.ports.Links`."""
        self.words.restored(action.where, action.epoch, action.tasks)

    def rest(self, action: ac.Rest) -> None:
        """See `elastic.migration.ports.Links`."""
        self._rests.begin(action.epoch, action.batch)

    def close(self) -> None:
        """Nothing moves any more. Safe to call twice."""
        self._rests.close()

    def confirm_output(self, action: ac.ConfirmOutput) -> None:
        """See `elastic.migration.ports.Links`."""
        task, epoch = action.task, action.epoch
        ends = [self.participant.emitters[task, t] for t in self.participant.wiring.targets_of(task)]
        ways = [w for where in {e.where for e in ends} if where != self.me and (w := self.link(where))]
        left = len(ways)
        if not left:
            self._posted.append(ev.Delivered(task, epoch))
            return
        lock = threading.Lock()

        def received() -> None:
            nonlocal left
            with lock:
                left -= 1
                if left:
                    return
            self.feed(ev.Delivered(task, epoch))

        for way in ways:
            way.when_received(received)

    def _offer(self, where: Incarnation, target: int, item: Item, life: int, first: int) -> bool:
        way: Link | None = self.link(where)
        if way is None:
            return False
        (frame,) = wire.encode(item)
        if not way.offer(target, frame.at(life, first), rows=frame.rows):
            return False
        way.flush()
        return True

    def _flush(self, source: int, target: int) -> None:
        """Send what was held back for the target, as much of it as there is room for."""
        while True:
            with self._gate(source):
                if not self.participant.may_flush(source, target):
                    return
                link = self.participant.emitters[source, target]
                here = link.where == self.me
                if link.buffer:
                    item, first = link.buffer[0].item, link.sent + 1
                    # Asked for before it is tried: room that comes meanwhile is not missed.
                    with self._asking:
                        self._room_asked.setdefault(target, set()).add(source)
                    if not (
                        self._fits(link, item)
                        if here
                        else self._offer(link.where, target, item, link.life, first)
                    ):
                        return
                    with self._asking:
                        self._room_asked.get(target, set()).discard(source)
                    if not here:
                        self._offered = (source, target)
                self._driver.feed(ev.Room(source, target))
                if here:
                    return  # it is in the queue only when what was posted has been worked off; `ask_room` comes after that

    def _fits(self, link: LinkEnd, item: Item) -> bool:
        """Whether what is held for a task of this process is to be handed to it now."""
        task, key = self._tasks.get(link.target), (link.source, link.target)
        passed = self._passed.get(key, 0)
        if task is None or not task.keeps_up(link):
            return False  # it is to start here and has not, or waits for what is before this
        if passed < PASSED * link.limit and not task.has_room(item):
            return False
        self._passed[key] = passed + item.count
        return True

    def _forget_early(self, task: int) -> None:
        for event in self._early.pop(task, ()):
            if event.__class__ is ev.Arrived:
                self._consumed(event.item, task)

    # ------------------------------------------------------------------ for people

    def held(self) -> dict[int, int]:
        """How many tuples tasks of this worker hold for tasks that stand still; without those that hold none. On any thread."""
        result: Counter[int] = Counter()
        for target in self._held.targets():
            for source in self.participant.wiring.emitters_of(target):
                link = self.participant.emitters.get((source, target))
                if link is not None and link.rows:
                    result[source] += link.rows
        return result

    @property
    def waited_for(self) -> bool:
        """Whether a task that moves has a part here, or something is held for one."""
        return bool(self._held or self.participant.old or self.participant.new)

    def moving(self) -> Iterable[int]:
        """Tasks that have a part in a move here."""
        return self.participant.old.keys() | self.participant.new.keys()
