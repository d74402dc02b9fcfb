"""The states of tasks that are about to come: fetched from the nodes' stores, before the pause as far as they were copied ahead.

What is copied ahead is fetched while more is being copied, and put in at once, between two slices of the executor that the task is to run
on. The old side says when there is more, and it is looked again, until everything was copied and next to nothing is new. Also what was
saved when the task stood still is fetched as soon as the old side says that the stores have it, while coordination is still being told
of that.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from elastic import timeslice
from elastic.errors import ExecutionError, NotFound, Unavailable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.record import state_key
from elastic.worker.content import Arrival, Step
from elastic.worker.content.engine import decode_engine, engine_pieces
from elastic.worker.content.layout import comes_in_parts, has_caught_up, is_last
from elastic.worker.moving import move_errors
from elastic.worker.moving.along import CameAlong
from elastic.worker.moving.coming import Coming
from elastic.worker.moving.moving import Payload, Side
from elastic.worker.moving.putting_in import PuttingIn
from elastic.worker.moving.stores import GROWN, LOT, Nodes, StateStores, StoredState
from elastic.worker.moving.together import Together
from elastic.worker.pools import have_done
from elastic.worker.shown import why
from elastic.worker.tuples import wire

if TYPE_CHECKING:
    from elastic.worker.worker import Worker

log = logging.getLogger("elastic.worker")
THREADS = 2
"""For what comes ahead: it must not keep from a thread what comes in a pause."""
ROUNDS = 12
OUTRUN = 2
"""Looks at what was copied ahead once all of it was, at most. One that has not taken less than half as long as the one before counts as so
many: a state may change as fast as it can be put in."""
PART = 16 << 20
"""Bytes that are read at a time, while what was read before is put in: memory that is used again is there already."""
REPLACED = 3
"""So often it is looked again when what was found is not there any more: the next version has just been committed in its place."""
UNTOLD = 1.0
UNTOLD_OTHERS = 0.05
"""Seconds after which it is looked also when nobody has said that there is more: hints may get lost. The same while others wait for the
thread: then it is theirs."""
LONG_ENOUGH = 10.0
"""Seconds for which it is looked after all was copied, at most, also when ever more changes than both sides can take: a stream that has
fallen behind may do that for good. The rest is left to the pause."""
SOON = 0.03
"""Seconds: when a look and what it brought have taken no longer, what changes in the meantime is left to the pause."""
FOLLOW_REST = 2
"""Times as long as a look has taken that nothing is looked at after it, unless the task stands still: executors have a stream to
work off."""
AT_FIRST = 16
"""Looks after the first ones until it is that long. The pause comes soon, mostly, and what nobody has looked at by then is put in within
it; a batch that waits for others takes less of the executors."""
LONGEST = 300.0
"""Seconds that what is being put in is waited for; the move's own time ends it before."""


def key_of(worker: Worker, task: int) -> str:
    """What the state of a task is stored under."""
    return state_key(worker.spec.name, task)


class Fetching:
    """The new side's part of the port `elastic.migration.ports.Store`.

    Args:
        submit: Has something done on another thread, soon.
    """

    def __init__(self, worker: Worker, stores: StateStores, submit: Callable[..., None]) -> None:
        self._worker = worker
        self._stores = stores
        self._submit = submit
        self._ready: Future[None] | None = None
        self._lock = threading.Lock()
        self._coming: dict[int, Coming] = {}
        self._lined_up = 0  # tasks that wait for a thread of the pool
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, "states-ahead", timeslice.usual)
        # Whoever puts in waits for its memory: were it made by the same threads, all might wait for it.
        self._memory = ThreadPoolExecutor(1, "states-memory", timeslice.usual)
        self._along = CameAlong(lambda task, epoch: worker.moving.comes(task, epoch))
        self._fetches: Together[Nodes, ac.Fetch] = Together(submit, self._fetch_many, LOT)

    def close(self) -> None:
        """End its threads; what is under way ends with an error or comes to nothing."""
        self._closing.set()
        with self._lock:
            coming = list(self._coming.values())
        for each in coming:
            each.stop()
        for pool in (self._pool, self._memory):
            pool.shutdown(wait=False, cancel_futures=True)

    def get_ready(self) -> Future[None]:
        """A task is about to come. Done when stores can be asked at once: in a new process that takes longer than a pause.

        Raises:
            Unavailable: The worker is about to end.
        """
        with self._lock:
            ready, first = self._ready or Future(), self._ready is None
            self._ready = ready
        if first:
            self._submit(self._make_ready, ready)
        return ready

    def _make_ready(self, ready: Future[None]) -> None:
        try:
            self._stores.get_ready()
        except Exception:  # each fetch says by itself what is wrong
            log.exception("the way to the state stores could not be prepared")
        finally:
            ready.set_result(None)

    # ------------------------------------------------------------------ before the pause

    def fetch_ahead(self, action: ac.FetchAhead) -> None:
        """See the port."""
        side = Side(action.task, action.epoch, action.attempt)
        coming = Coming(side, action.nodes)
        with self._lock:
            self._coming[side.task] = coming
        try:
            # Not waited for by a thread that others need: users' code may take long for that.
            self._worker.moving.prepared(side).add_done_callback(lambda _: self._begin(coming))
        except Unavailable:  # whoever looks finds that, too
            self._begin(coming)

    def _begin(self, coming: Coming) -> None:
        with self._lock:
            self._line_up(coming)

    def told(self, told: wire.Told, payload: memoryview) -> None:
        """The stores have more of a task that may come here, or all of some; or what is left of one comes along. From any thread."""
        if told.kind == wire.STORED:
            self._look_again(told.source, told.epoch, last=False)
            return
        if told.kind == wire.ALONG:
            self._along.keep(told.source, told.epoch, wire.along_in(payload))
            return
        saved = wire.told_in(payload)
        for task, _ in saved:
            if not self._is_whole(task, told.epoch):
                self._look_again(task, told.epoch, last=True)
        self._worker.moves.feed_all([ev.SaveHeard(task, told.epoch, size) for task, size in saved])

    def _is_whole(self, task: int, epoch: int) -> bool:
        """All of a task has been saved: whether nobody need look for it, because what has not come ahead has come along."""
        with self._lock:
            coming = self._coming.get(task)
            if coming is None or coming.side.epoch != epoch or coming.arrival is None or coming.over:
                return False
            if coming.busy and not coming.queued:
                return False  # pieces are going in at this very moment
            whole = self._along.take(task, epoch, coming.arrival.here)
            if whole is None:
                return False
            coming.whole, coming.busy, coming.queued, coming.more = whole, False, False, False
            return True

    def _look_again(self, task: int, epoch: int, *, last: bool) -> None:
        """Comes to nothing when nobody looks for it.

        Args:
            last: That is all: the task stands still, and is waited for.
        """
        with self._lock:
            coming = self._coming.get(task)
            if coming is None or coming.side.epoch != epoch:
                return
            coming.more = True
            if last:
                self._hurry(coming)
            coming.news.set()
            if coming.arrival is None or (coming.busy and not (last and coming.queued)):
                return
            coming.busy = True
            if last:
                coming.queued = False
            else:
                self._line_up(coming)
        if last:  # what comes ahead of other tasks may take the threads for that as long as those run
            with contextlib.suppress(Unavailable):  # nothing is to come any more
                self._submit(self._look_on, coming)

    def _line_up(self, coming: Coming) -> None:
        """Have it looked for when it is its turn. Under the lock."""
        coming.queued = True
        self._lined_up += 1
        with contextlib.suppress(Unavailable):  # nothing is to come any more
            have_done(self._pool, self._look_when_its_turn, coming)

    def _others_first(self, coming: Coming) -> bool:
        """Whether others wait for this thread: then it lines up behind them. A state may change all the time, and there would be no end."""
        with self._lock:
            if not self._lined_up or coming.last.is_set() or coming is not self._coming.get(coming.side.task):
                return False
            self._line_up(coming)
            return True

    def _hurry(self, coming: Coming) -> None:
        """The task stands still, and is waited for. Under the lock."""
        coming.last.set()
        if coming.going_in is not None:
            coming.going_in.hurry()

    def _look_when_its_turn(self, coming: Coming) -> None:
        with self._lock:
            self._lined_up -= 1
            queued, coming.queued = coming.queued, False
        if queued:  # else somebody else has done it
            self._look_on(coming)

    def _look_on(self, coming: Coming) -> None:
        if coming.fetched:
            self._go_on_looking(coming)
        else:
            self._fetch_ahead(coming)

    def _fetch_ahead(self, coming: Coming) -> None:
        """Look until next to nothing is new, by turns with others."""
        try:
            if coming.arrival is None and not self._arrives(coming):
                return  # it does not come any more, or has come as a whole
            if not self._catch_up(coming):
                return
        except BaseException as e:  # what user code raises while it is put in may be anything
            self._not_ahead(coming, e)
        coming.fetched = True
        self._worker.moves.feed(ev.AheadFetched(*coming.side))
        if not (coming.more and self._others_first(coming)):
            self._go_on_looking(coming)

    def _arrives(self, coming: Coming) -> bool:
        task = self._worker.moving.prepared(coming.side).result(0.0)
        arrival = Arrival(task.component)
        with self._lock:
            if self._coming.get(coming.side.task) is coming:
                coming.arrival = arrival
        return coming.arrival is not None

    def _catch_up(self, coming: Coming) -> bool:
        """False: others wait for this thread, and it goes on after them."""
        while coming.looks < ROUNDS and time.monotonic() < coming.until:
            coming.more = False
            coming.news.clear()
            outrun = coming.caught_up and coming.took > max(SOON, coming.before / 2)
            coming.before = coming.took or LONGEST
            # Then executors rest between two slices: streams fall behind a little, or the pause would last for as long as this look.
            with self._worker.haste if outrun else contextlib.nullcontext():
                self._look_and_say(coming)
            if coming.whole is not None:
                return True
            if not coming.caught_up:
                coming.news.wait(UNTOLD_OTHERS if self._lined_up else UNTOLD)
            elif coming.took < SOON:
                return True
            else:
                coming.looks += OUTRUN if coming.took > coming.before / 2 else 1
                coming.until = min(coming.until, time.monotonic() + LONG_ENOUGH)
            if self._others_first(coming):
                return False
        return True

    def _go_on_looking(self, coming: Coming) -> None:
        """Whenever the old side has said that there is more, until the pause has come."""
        while self._is_more(coming):
            try:
                rest = 0.0 if self._lined_up else FOLLOW_REST * min(1.0, coming.followed / AT_FIRST)
                waited_for = coming.last.wait(min(UNTOLD, rest * coming.took))
                coming.followed += 1
                coming.more = False  # what has been told of by now is looked at now
                if not waited_for:
                    self._look_and_say(coming)
                elif not coming.over:
                    self._look(coming)
            except BaseException as e:
                self._not_ahead(coming, e)
            if coming.more and self._others_first(coming):
                return

    def _is_more(self, coming: Coming) -> bool:
        """Whether it is to be looked again. If not, nobody is at it any more, and what was wanted meanwhile is answered."""
        with self._lock:
            coming.busy = coming.more and not coming.over and coming is self._coming.get(coming.side.task)
            coming.more = False
            if coming.busy:
                return True
            wanted, coming.wanted = coming.wanted, None
        if wanted is not None:
            self._answer(wanted, coming)
        return False

    def _not_ahead(self, coming: Coming, error: BaseException) -> None:
        """What is in by now is of no use, unless the pause has come."""
        if not coming.over:
            self.forget_ahead(coming.side)
            if coming.arrival is not None:
                coming.arrival.over = True  # the executor may be at a part of it
            log.info("task %d is fetched as a whole in its pause: %s", coming.side.task, why(error))

    def _look_and_say(self, coming: Coming) -> None:
        """Look, and say to the old side when that takes long: what changes meanwhile takes as long."""
        coming.took = self._look(coming)
        if coming.took >= SOON and not coming.over and not coming.last.is_set():
            self._worker.moves.words.behind(coming.side.task, coming.side.epoch, coming.took)

    def _look(self, coming: Coming) -> float:
        """Put in what is new; returns how long that has taken, in seconds."""
        began, side, arrival = time.monotonic(), coming.side, coming.arrival
        assert arrival is not None
        key, most = key_of(self._worker, side.task), PART
        going_in: Future[None] | None = None
        under_way: dict[Hashable, bytes] = {}
        left, whole = 1, None
        while left > 0 and not arrival.over:
            here = dict(arrival.here)  # a copy: what was read before may be going in at this very moment
            here.update(under_way)
            found = self._find(key, coming, here, most)
            if found.more and not comes_in_parts(found.meta):
                found = self._find(key, coming, here, None)
            if going_in is not None:
                self._wait(side, going_in)
            # When the task has stopped meanwhile that is all of it, and what the engine knows of it comes first.
            own = engine_pieces(found.pieces) if is_last(found.meta) else 0
            if own and not under_way and not found.more and coming.last.is_set():
                # It is waited for, and what is still missing goes in with all else that the task needs: one turn less on its executor.
                coming.whole, coming.caught_up = found, has_caught_up(found.meta)
                break
            names = found.named[own:]
            new = sum(map(len, found.pieces[own:]))
            if not new and found.more:
                break  # what the engine knows of it is as much as may come at once: the rest comes with that, in the pause
            # As much as was there when it began: what has come since is left to the next one, or it might come to no end.
            left = min(found.more, (left if under_way else new + found.more) - new)
            whole = found if own and not under_way and not found.more else None
            steps = arrival.ahead(found.meta, names, found.pieces[own:])
            going_in = self._put_in(coming, steps)
            under_way = dict.fromkeys(names, b"")
            coming.caught_up = has_caught_up(found.meta)
            del found, steps
        else:
            coming.whole = whole
        if going_in is not None:
            self._wait(side, going_in)
        return time.monotonic() - began

    def _find(
        self, key: str, coming: Coming, here: Mapping[Hashable, bytes], most: int | None
    ) -> StoredState:
        if coming.last.is_set():
            along = self._along.take(coming.side.task, coming.side.epoch, here)
            if along is not None:
                return along
        for left in range(REPLACED, -1, -1):
            try:
                return self._stores.fetch(key, coming.side.epoch, coming.nodes, here, most)
            except NotFound:
                if not left:
                    raise
        raise AssertionError

    def _put_in(self, coming: Coming, steps: Generator[Step, None, None]) -> Future[None]:
        """Have all steps done on the executor that the task is to run on, slice by slice."""
        moving, side = self._worker.moving, coming.side
        home = moving.prepared(side).result(0).executor
        assert home is not None
        aside = functools.partial(have_done, self._memory)
        going_in = PuttingIn(home, lambda: moving.check(side), steps, aside)
        with self._lock:
            coming.going_in = going_in
        going_in.begin(urgent=coming.last.is_set())
        return going_in.done

    def _wait(self, side: Side, done: Future[None]) -> None:
        deadline = time.monotonic() + LONGEST
        while not self._closing.is_set():
            try:
                return done.result(1.0)
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise Unavailable(
                        f"the executor of task {side.task} has been busy for {LONGEST:g} s"
                    ) from None
        raise Unavailable("the worker is about to end")

    def forget_ahead(self, side: Side) -> None:
        """The task is here, or does not come."""
        self._along.forget(side.task)
        with self._lock:
            coming = self._coming.get(side.task)
            if coming is None or coming.side != side:
                return
            del self._coming[side.task]
        coming.stop()

    # ------------------------------------------------------------------ in the pause

    def fetch(self, action: ac.Fetch) -> None:
        """See the port."""
        ahead: Coming | None = None
        with self._lock:
            coming = self._coming.get(action.task)
            if coming is not None and coming.side == (action.task, action.epoch, action.attempt):
                if coming.arrival is None:
                    # Nothing is here of it, and nothing is to come any more but all of it.
                    del self._coming[action.task]
                    coming.stop()
                elif coming.busy and not coming.queued:
                    # What is being put in is what would have to come now: it would be fetched twice.
                    coming.wanted = action
                    self._hurry(coming)
                    coming.news.set()
                    return
                else:
                    ahead, coming.busy, coming.queued = coming, False, False
        if ahead is not None:
            self._answer(action, ahead)
        elif (along := self._along.take(action.task, action.epoch, {})) is not None:
            self._worker.moves.feed(self._fetched(action, along, None))
        elif action.size <= GROWN:
            self._fetches.add(action.nodes, action)
        else:
            self._submit(self._fetch, action, None)

    def _answer(self, action: ac.Fetch, coming: Coming) -> None:
        """Nobody looks for what comes ahead any more."""
        with self._lock:
            given_up = self._coming.get(action.task) is not coming
        arrival = coming.arrival
        if given_up or arrival is None:
            self._submit(self._fetch, action, None)
            return
        arrival.over = True
        whole, coming.whole = coming.whole, None  # should it be of no use, the stores are asked the next time
        if whole is not None:
            self._worker.moves.feed(self._fetched(action, whole, arrival))
        else:
            self._submit(self._fetch, action, arrival)

    def _fetch(self, action: ac.Fetch, arrival: Arrival | None) -> None:
        found: StoredState | Exception
        try:
            # A copy: what a look has brought may be going in at this very moment.
            here = dict(arrival.here) if arrival else {}
            found = self._along.take(action.task, action.epoch, here) or self._stores.fetch(
                key_of(self._worker, action.task), action.epoch, action.nodes, here
            )
        except Exception as e:
            found = e
        self._worker.moves.feed(self._fetched(action, found, arrival))

    def _fetch_many(self, nodes: Nodes, lot: list[ac.Fetch]) -> None:
        found: Sequence[StoredState | Exception]
        try:
            found = self._stores.fetch_many([(key_of(self._worker, a.task), a.epoch) for a in lot], nodes)
        except Exception as e:
            found = [e] * len(lot)
        self._worker.moves.feed_all([self._fetched(a, f, None) for a, f in zip(lot, found, strict=True)])

    def _fetched(
        self, action: ac.Fetch, found: StoredState | Exception, arrival: Arrival | None
    ) -> ev.Fetched | ev.NewFailed:
        side = (action.task, action.epoch, action.attempt)
        try:
            if isinstance(found, Exception):
                raise found
            if not found.pieces or (action.heard and not is_last(found.meta)):
                raise ExecutionError("what was saved of it is not all there")
            engine, links, own = decode_engine(found.pieces, self._worker.streams)
            if engine.generation != self._worker.generation:
                # The task begins with what the checkpoint has of it.
                raise NotFound("it was saved before the topology went back to a checkpoint")
        except Exception as e:
            # By itself a lack of memory says neither of what nor where.
            reason = (
                f"worker {self._worker.id} has no memory left for its state"
                if isinstance(e, MemoryError)
                else why(e)
            )
            # All of it: its mark takes less.
            log.warning("task %d is not fetched: %s", action.task, reason, exc_info=True)
            if not isinstance(found, Exception):
                move_errors.tell(self._worker, action.task, action.epoch, e, action.attempt)
            return ev.NewFailed(*side, reason, isinstance(e, NotFound))
        payload = Payload(engine, found.meta, found.named[own:], found.pieces[own:], arrival)
        return ev.Fetched(*side, links, payload)
