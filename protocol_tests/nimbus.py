"""A simulated Nimbus: a notifier for each move, rebuilt from the records by whoever leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elastic.errors import ElasticError, Refused
from elastic.migration import actions as ac
from elastic.migration import decide
from elastic.migration import events as ev
from elastic.migration.driver import Driver, notifier_driver
from elastic.migration.notifier import Notifier
from elastic.migration.plan import Seat, changes_between, plan_move
from elastic.migration.record import MoveRecord
from elastic.migration.table import NotifierState
from elastic.migration.view import View
from elastic.model.codec import decode, encode
from elastic.model.ids import TaskId, WorkerId

if TYPE_CHECKING:
    from protocol_tests.world import World

LIMITS = {"prepare": 60.0, "pause": 120.0, "restore": 200.0, "rest": 5.0, "settle": 5.0}


class Nimbus:
    """One that leads, for a while."""

    def __init__(self, world: World, term: int) -> None:
        self.world, self.clock = world, world.clock
        self.term = term
        self.alive = True
        self.notifiers: dict[int, tuple[Notifier, Driver]] = {}
        self._seen: dict[int, tuple[Any, ...]] = {}
        self.timers: list[tuple[_Ports, ev.TimerFired]] = []
        world.coordination.leader = term
        self.session = world.coordination.open(f"nimbus-{term}", self.on_view)
        self.clock.after(5, self._begin)

    def _begin(self) -> None:
        if not self.alive:
            return
        if self.session.connected:
            self.on_view(self.world.coordination.sync(self.session))
        else:
            self.clock.after(5, self._begin)

    def forget(self) -> None:
        """The connection was lost: what became of what was under way is not known. It is in the records."""
        self.notifiers.clear()
        self.session.again.append(self._begin)

    def die(self) -> None:
        self.alive = False
        self.world.coordination.close(self.session)

    def on_view(self, view: View, *, again: bool = False) -> None:
        if not self.alive or not self.session.connected:
            return
        hosts = tuple(
            ev.Host(w, i, self.world.shape.workers[w], sum(p == w for p in view.places.values()))
            for w, i in sorted(view.living.items())
        )
        for epoch in [e for e, (n, _) in self.notifiers.items() if n.state is NotifierState.ENDED]:
            del self.notifiers[epoch]
        for move in view.moves:
            epoch = move.record.epoch
            seen = (move.record, move.marks, view.living)
            if (
                not again
                and epoch in self.notifiers
                and all(a is b for a, b in zip(seen, self._seen.get(epoch, (None,) * 3), strict=True))
            ):
                continue
            self._seen[epoch] = seen
            if epoch not in self.notifiers:
                node = self.world.coordination.moves.get(epoch)
                if node is None:
                    continue
                self.notifiers[epoch] = self._make(decode(encode(node.record), MoveRecord), node.version)
            self.feed(epoch, ev.Observed(move.marks, hosts))

    def _make(self, record: MoveRecord, version: int) -> tuple[Notifier, Driver]:
        notifier = Notifier.from_record(record, version)
        port = _Ports(self, notifier)
        driver = notifier_driver(
            notifier, records=port, cleaning=port, timers=port, voice=port, on_fatal=_fatal
        )
        return notifier, driver

    def feed(self, epoch: int, event: Any) -> None:
        if not self.alive or not self.session.connected or epoch not in self.notifiers:
            return
        notifier, driver = self.notifiers[epoch]
        if self.world.trace is not None and not isinstance(event, ev.Observed):
            self.world.tell(f"nimbus-{self.term}, move {epoch} <- {event}")
        driver.feed(event)
        self.world.states.add(("notifier", notifier.state))

    def look(self) -> None:
        """Decide again, on what is so now."""
        if self.alive and self.session.connected:
            self.on_view(self.world.coordination.sync(self.session), again=True)

    # ------------------------------------------------------------------ what it is asked

    def move(self, wanted: dict[int, WorkerId], share: float, why: str) -> bool:
        """Begin a move; False when nothing of it is possible now."""
        coordination, shape = self.world.coordination, self.world.shape
        if not self.alive or not self.session.connected:
            return False
        view = coordination.now
        busy = {t.task for m in view.moves for t in m.record.tasks if not t.outcome}
        seats = {w: Seat(i, shape.workers[w]) for w, i in view.living.items()}
        before = {TaskId(t): w for t, w in view.places.items()}
        after = {TaskId(t): w for t, w in wanted.items()}
        try:
            record = plan_move(
                shape.spec,
                coordination.next_epoch(),
                why,
                changes_between(before, after),
                seats,
                busy=busy,
                share=share,
            )
        except Refused:
            return False
        return coordination.create_move(self.term, record)

    def reassign(self) -> int:
        """Give the tasks of workers that don't live to others; those in a move wait for its end."""
        coordination = self.world.coordination
        view = coordination.now
        busy = {t.task for m in view.moves for t in m.record.tasks if not t.outcome}
        workers = sorted(view.living)
        if not workers or not self.alive or not self.session.connected:
            return 0
        places = {
            t: workers[t % len(workers)]
            for t, w in view.places.items()
            if w not in view.living and t not in busy
        }
        if places:
            coordination.place(self.term, coordination.places_version, places)
        return len(places)

    def abort(self, epoch: int, *, force: bool = False) -> None:
        coordination = self.world.coordination
        node = coordination.moves.get(epoch)
        if not self.alive or not self.session.connected or node is None:
            return
        asked = node.record.ending("an operator aborted the move", force=force)
        wanted = not node.record.settled and asked is not node.record
        if wanted and coordination.commit(self.term, ac.Commit(asked, node.version)):
            self.feed(epoch, ev.AbortAsked(node.record, node.version))
        self.look()


class _Ports:
    """Of one notifier."""

    def __init__(self, nimbus: Nimbus, notifier: Notifier) -> None:
        self.n, self.notifier = nimbus, notifier
        self.epoch = notifier.record.epoch

    def _answer(self, event: Any) -> None:
        found = self.n.notifiers.get(self.epoch)
        if found is not None and found[0] is self.notifier:
            self.n.feed(self.epoch, event)
            self.n.clock.after(1, self.n.look)

    def commit(self, action: ac.Commit) -> None:
        world = self.n.world

        def apply() -> None:
            done = world.coordination.commit(self.n.term, action)
            if done:
                world.committed(action)
            node = world.coordination.moves.get(self.epoch)
            if node is not None:
                answer = (
                    ev.RecordWritten(node.version) if done else ev.RecordConflict(node.record, node.version)
                )
                self.n.clock.after(2, self._answer, answer)

        self.n.clock.after(2, apply)

    def remove(self, action: ac.RemoveRecord) -> None:
        coordination = self.n.world.coordination

        def apply() -> None:
            if coordination.remove(self.n.term, action):
                self._answer(ev.RecordRemoved())
            else:
                node = coordination.moves.get(self.epoch)
                if node is not None and self.n.term == coordination.leader:
                    self._answer(ev.RecordConflict(node.record, node.version))

        self.n.clock.after(2, apply)

    def clean(self, action: ac.CleanStores) -> None:
        self.n.world.stores.clean(action.epoch, action.nodes, lambda: self._answer(ev.StoresCleaned()))

    def start(self, action: ac.StartTimer) -> None:
        event = ev.TimerFired(action.kind, action.number)
        self.n.timers.append((self, event))
        again = action.kind == decide.AGAIN
        limit = decide.again_after(action.number, LIMITS["restore"]) if again else LIMITS[action.kind]
        self.n.clock.at(self.n.clock.now + limit, self.fire, event)

    def fire(self, event: ev.TimerFired) -> None:
        if (self, event) in self.n.timers:
            self.n.timers.remove((self, event))
            self._answer(event)

    def say(self, action: ac.Say) -> None:
        self.n.world.tell(f"nimbus-{self.n.term} says {action.kind}: {action.message}")


def _fatal(action: Any, error: ElasticError) -> None:
    raise error
