"""The states of tasks that move away, on their way into the nodes' stores; and the port that `fetching` is a part of.

Encoding happens on the task's executor while the task runs (a slice at a time, between tuples), and on a thread of this module once it
stands still. Everything that waits for a store happens on threads of this module: a few, kept while there are moves.

A large state has a write of its own, which is begun ahead of the pause and copied ahead; what is copied is committed again and again, so
that the other side can take it before the pause. Small ones go together: room for many is asked for at once, and what stands still
at the same time is saved, and fetched, with one message.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from elastic.errors import ElasticError, ExecutionError, Unavailable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.plan import AHEAD
from elastic.model.ids import NodeId
from elastic.worker import along
from elastic.worker.content import Copier
from elastic.worker.content.engine import EngineState, encode_engine
from elastic.worker.failures import described
from elastic.worker.fetching import Fetching, key_of
from elastic.worker.going import Going, why_unmovable
from elastic.worker.stopping import Stopping
from elastic.worker.stores import GROWN, LOT, SMALL, SmallState, StateStores, StateWrite
from elastic.worker.together import Together

if TYPE_CHECKING:
    from elastic.worker.task import Task
    from elastic.worker.worker import Worker

log = logging.getLogger("elastic.worker")
Nodes = tuple[NodeId, ...]
THREADS = 8
COPYING = 8
"""Threads that copy ahead: others than those that save. Tasks of one move may be copied while those of another stand still, one
state after the other, and as long as an executor is within a tuple: what stands still must not wait for that."""
PART = 512 << 10
"""Bytes of small states that are saved with one message, about."""
SLICE = 0.002
"""Seconds that copying ahead takes from an executor at a time, and gives back to it at least."""
RESTS = 5
"""Times as long that it gives back, at most, for as long as much waits for the task: a stream that has fallen behind by the time of the
pause takes what waits along, and has it to work off afterwards."""
HARDER = 8
"""Times as long that copying takes an executor at a time, and gives nothing back but what writing takes anyway, while a large state changes
as fast as it is copied: the stream falls behind by some milliseconds and changes less, and little is left to the pause."""
WAITING = 8
"""Part of what may wait for the task that is much."""
KEEP_UP = 0.01
KEEP_UP_FIRST = 0.0003
"""Seconds between two looks at what has changed since, at most; the first ones follow one another so much closer, each by so much less
than the one before: the pause comes soon, mostly."""
COMMIT_EVERY = 0.05
"""Seconds of copying everything once after which what there is by then is committed: the other side fetches and puts it in meanwhile."""
KEEP_UP_LONGEST = 0.01
"""Seconds of copying after which what was copied is committed: the other side takes what it can see for all there is, before the pause."""


class Saving:
    """The port `elastic.migration.ports.Store` of a worker."""

    def __init__(self, worker: Worker, stores: StateStores) -> None:
        self._worker = worker
        self._stores = stores
        self._old: dict[int, Going] = {}
        self._reading: dict[int, Going] = {}  # given back, and not gone on yet: its state is still being read
        self._lock = threading.Lock()
        self._kept: list[Going] = []
        self._keeping = False
        self._held_back: dict[int, float] = {}  # when threads of executors have held a task back last
        self._closing = threading.Event()
        self._turn = threading.Lock()  # one state at a time
        self._stopping = Stopping()
        self._pool = ThreadPoolExecutor(THREADS, "states")
        self._copying = ThreadPoolExecutor(COPYING, "states-copied")
        self._submit = functools.partial(self._have_done, self._pool)
        self._copy = functools.partial(self._have_done, self._copying)
        self._asks: Together[Nodes, tuple[Going, int]] = Together(self._submit, self._ask_many, LOT)
        self._saves: Together[Nodes, tuple[Going, ac.Save, EngineState]] = Together(
            self._submit, self._save_many, LOT, self._stopping.gather
        )
        fetching = self.fetching = Fetching(worker, stores, self._submit)
        self.fetch, self.fetch_ahead = fetching.fetch, fetching.fetch_ahead

    def close(self) -> None:
        """End its threads; what is under way ends with an error or comes to nothing."""
        self._closing.set()
        self.fetching.close()
        for pool in (self._pool, self._copying):
            pool.shutdown(wait=False, cancel_futures=True)

    def let_go(self, task: Task, then: Callable[[], None] | None = None) -> None:
        """Nothing of the task is needed here any more; `then` is called as soon as nobody reads its state (at once, mostly).

        Args:
            then: None: it does not go on, and what was remembered of its state goes with that (`Leaving`).
        """
        old = self._old.pop(task.id, None)
        self._stopping.remove(task.id)
        if old is not None:
            encoded = old.end(then, self._reading)
            if old.write is not None and then is not None:
                with suppress(Unavailable):  # the worker is about to end, and all of it goes
                    self._submit(self._use, old)  # whoever is the last to use it closes it
            if not encoded:
                return
            if old.copier is not None and then is not None:
                old.copier.cancel()
        if then is not None:
            self._when_gone_on(task.id, then)

    def _when_gone_on(self, task: int, then: Callable[[], None]) -> None:
        """Call it: after the task has gone on, if that was given back before and its state is still being read. It would go on in the
        midst of its next move.
        """
        earlier = self._reading.get(task)
        if earlier is None or not earlier.follow(then):
            then()

    # ------------------------------------------------------------------ old side

    def ask(self, action: ac.AskStore) -> None:
        """See the port."""
        task = self._worker.tasks[action.task]
        old = self._old[action.task] = Going(task, action.epoch)
        if unmovable := why_unmovable(task):
            raise ExecutionError(unmovable)
        self._when_gone_on(action.task, functools.partial(self._ask, old, action.nodes))

    def _ask(self, old: Going, nodes: Nodes) -> None:
        if old.ended:
            return
        task = old.task
        if task.spec.stateful:
            old.copier = Copier(task.component)
        measure = functools.partial(self._measure, old, nodes)
        holder = task.holder
        if task.executor is not None or holder is None:
            self._call(old, measure)
        else:  # it is about to begin: what its executor is given now comes after that
            holder.call(functools.partial(self._call, old, measure))

    def _call(self, old: Going, what: Callable[[], None]) -> None:
        try:
            old.task.call(what)
        except ExecutionError as e:
            self._failed(old, e)

    def _measure(self, old: Going, nodes: Nodes) -> None:
        """On the task's executor, between two tuples of it."""
        if old.ended:
            return
        try:
            size = 4096 + 256 * old.task.queued  # the engine's part, about
            if old.copier is not None:
                content = old.copier.size()
                self._worker.sizes.note(old.task, content)
                size += content
            if size <= SMALL or old.copier is None:
                self._asks.add(nodes, (old, size))
            else:
                self._copy(self._use, old, self._begin, nodes, size)
        except Exception as e:
            self._failed(old, e)

    def _ask_many(self, nodes: Nodes, lot: list[tuple[Going, int]]) -> None:
        sizes: dict[int, dict[str, int]] = {}
        for old, size in lot:
            sizes.setdefault(old.epoch, {})[self._key(old.task.id)] = size
        refused: dict[int, Exception] = {}
        for epoch, some in sizes.items():
            try:
                self._stores.reserve(epoch, some, nodes)
            except Exception as e:
                refused[epoch] = e
        done = []
        for old, _ in lot:
            if old.epoch in refused:
                self._failed(old, refused[old.epoch])
            elif not old.ended:
                done.append(ev.StoreAsked(old.task.id, old.epoch))
        self._worker.moves.feed_all(done)

    def _key(self, task: int) -> str:
        return key_of(self._worker, task)

    def _use(self, old: Going, what: Callable[..., None] | None = None, *arguments: Any) -> None:
        """Do something with its write."""
        with old.in_use():
            if what is not None:
                what(old, *arguments)

    def _begin(self, old: Going, nodes: Nodes, size: int) -> None:
        copier = old.copier
        assert copier is not None
        if old.ended:
            return
        try:
            old.write = self._stores.begin(
                self._key(old.task.id), old.epoch, self._worker.incarnation, nodes, size
            )
            old.brake.size = size
            old.ahead = size >= AHEAD
            if old.ahead:
                copier.read_at_once(size)
            self._copy_ahead(old, copier, old.write)
            self._commit_ahead(old, copier, old.write)
        except Exception as e:
            self._failed(old, e)
            return
        if not old.ended:
            if old.ahead:
                self._keep_up(old)
            else:
                self._worker.moves.feed(ev.StoreAsked(old.task.id, old.epoch))

    def _copy_ahead(self, old: Going, copier: Copier, write: StateWrite) -> None:
        due = time.monotonic() + COMMIT_EVERY
        while not (copier.done or old.ended or old.pausing):
            with self._turn:
                self._copy_some(old, copier, write)
                self._give_back(old, copier)
                self._brake(old)
            if time.monotonic() >= due:
                self._commit_ahead(old, copier, write)
                due = time.monotonic() + COMMIT_EVERY

    def _give_back(self, old: Going, copier: Copier) -> None:
        """The executor has a stream to work off, and does so already while what was copied is written."""
        for n in range(1, RESTS + 1):
            left = old.gave + n * SLICE - time.monotonic()
            if left > 0 and self._closing.wait(left):
                return
            if old.pausing or old.hurries or WAITING * old.task.queued <= old.task.capacity:
                return

    def _copy_some(self, old: Going, copier: Copier, write: StateWrite) -> bool:
        with old.writing:
            if old.pausing or old.ended:
                return False
            pieces = old.on_task(lambda: self._slice(old, copier))
            for id, data in pieces:
                old.numbers[id] = old.put(write, data)
            return bool(pieces)

    def _slice(self, old: Going, copier: Copier) -> list[tuple[int, bytes]]:
        pieces = copier.ahead(time.monotonic() + (HARDER * SLICE if old.hurries else SLICE))
        if copier.outrun:  # here as well, so that less is left to be copied
            old.brake.press()
        old.gave = time.monotonic()
        return pieces

    def _commit_ahead(self, old: Going, copier: Copier, write: StateWrite) -> None:
        """What is there by now can be fetched already. Nobody restores from it: that is done after the last commit only."""
        with old.writing:
            if not old.ahead or old.pausing or old.ended:
                return
            content = copier.so_far()
            write.commit([old.numbers[n] for n in content.order], content.meta)
            old.recent.committed()
            self._worker.moves.words.stored(old.task.id, old.epoch)
            told, old.told = old.told, True
        if not told:
            self._worker.moves.feed(ev.StoreAsked(old.task.id, old.epoch, ahead=True))

    def _keep_up(self, old: Going) -> None:
        """Copy what changes until the pause comes: what is left then is sent within it. One thread does that for all tasks."""
        old.kept_up = True
        with self._lock:
            self._kept.append(old)
            if self._keeping:
                return
            self._keeping = True
        self._copy(self._keep_up_all)

    def _keep_up_all(self) -> None:
        looks = 0  # since there is somebody
        while True:
            with self._lock:
                self._kept = [o for o in self._kept if not (o.pausing or o.ended)]
                if not self._kept or self._closing.is_set():
                    self._keeping = False
                    return
                kept = list(self._kept)
            for old in kept:
                self._use(old, self._keep_up_one)
            looks += 1
            self._closing.wait(min(KEEP_UP, looks * KEEP_UP_FIRST))

    def _keep_up_one(self, old: Going) -> None:
        assert old.copier is not None and old.write is not None
        try:
            until, some = time.monotonic() + KEEP_UP_LONGEST, False
            while self._copy_some(old, old.copier, old.write):
                some = True
                if time.monotonic() >= until:
                    break
            if some:
                self._commit_ahead(old, old.copier, old.write)
            self._brake(old)
        except Exception as e:
            self._failed(old, e)
            old.ended = True

    def _brake(self, old: Going) -> None:
        """Hold the task back before anything more of it is copied, if that is wanted: what copies waits for its turn behind that."""
        if old.brake.on:
            with suppress(ExecutionError):  # nobody runs it any more
                old.task.call(functools.partial(self._hold_back, old))

    def _hold_back(self, old: Going) -> None:
        """On the task's executor, between two tuples of it."""
        executor = threading.get_ident()
        old.brake.hold(time.monotonic() - max(old.gave, self._held_back.get(executor, 0.0)))
        self._held_back[executor] = old.gave = time.monotonic()

    def let_catch_up(self, task: int, epoch: int, took: float) -> None:
        """What changes of a task's state takes its new side that long to put in, in seconds. From any thread; a hint."""
        old = self._old.get(task)
        if old is not None and old.epoch == epoch and old.kept_up:
            old.brake.press(took)

    def pausing(self, task: Task) -> None:
        """The task is about to stand still: what is not copied by now is saved then."""
        old = self._old.get(task.id)
        if old is not None:
            old.pausing = True
            old.brake.release()
            if old.write is None:
                self._stopping.add(task.id)

    def save(self, action: ac.Save) -> None:
        """See the port."""
        old = self._old[action.task]
        engine = old.task.export()  # now: what comes from here on is not part of it
        with old.lock:
            old.encoding = True
        if old.write is None:
            self._saves.add(action.nodes, (old, action, engine))
            self._stopping.remove(action.task)
        else:
            self._submit(self._use, old, self._save, action, engine, old.write)

    def _save(self, old: Going, action: ac.Save, engine: EngineState, write: StateWrite) -> None:
        try:
            try:
                with self._worker.haste, old.writing:  # what was being copied ahead is on its way
                    if old.ended:
                        return
                    meta = b""
                    order = [old.put(write, piece) for piece in encode_engine(engine, action.links)]
                    if old.copier is not None:
                        rest = old.copier.rest()
                        for id, data in rest.pieces:
                            old.numbers[id] = old.put(write, data)
                        meta = rest.meta
                        order += [old.numbers[id] for id in rest.order]
            finally:
                old.encoded(self._reading)
            if old.ended:
                return
            left = old.recent.along(order, write.named(order), meta)
            self._worker.moves.words.along(old.task.id, old.epoch, left)
            size = write.commit(order, meta)
        except Exception as e:
            self._failed(old, e)
            return
        self._saved([(old, size)], action.nodes)

    def _save_many(self, nodes: Nodes, lot: list[tuple[Going, ac.Save, EngineState]]) -> None:
        """In parts: what is encoded is on its way while what follows is being encoded, on this side and on the other."""
        part: list[tuple[Going, SmallState]] = []
        for old, action, engine in lot:
            if old.ended:
                old.encoded(self._reading)
                continue
            try:
                state = self._small(old, action, engine)
                if state.size > GROWN:
                    self._submit(self._use, old, self._save_grown, nodes, state)
                elif not old.ended:
                    part.append((old, state))
            except Exception as e:
                self._failed(old, e)
            if sum(s.size for _, s in part) >= PART:
                self._save_part(nodes, part)
                part = []
        if part:
            self._save_part(nodes, part)

    def _save_part(self, nodes: Nodes, states: list[tuple[Going, SmallState]]) -> None:
        """Of each of them it is said how it ended: nothing is raised, which would cost those that come after them in the lot."""
        outcome: list[tuple[tuple[Going, SmallState], Exception | None]]
        together = sum(state.size for _, state in states)
        for old, state in states:
            self._worker.moves.words.along(old.task.id, old.epoch, along.small(state, together))
        try:
            outcomes = self._stores.save_many([state for _, state in states], nodes)
            outcome = list(zip(states, outcomes, strict=True))
        except Exception as e:
            outcome = [(state, e) for state in states]
        self._saved([(old, state.size) for (old, state), wrong in outcome if wrong is None], nodes)
        for (old, _), wrong in outcome:
            if wrong is not None:
                self._failed(old, wrong)

    def _small(self, old: Going, action: ac.Save, engine: EngineState) -> SmallState:
        """Everything that is to be saved of a task. From here on nobody reads its state."""
        try:
            pieces, meta = encode_engine(engine, action.links), b""
            if old.copier is not None:
                with old.writing:
                    rest = old.copier.rest()
                made = dict(rest.pieces)
                pieces += [made[id] for id in rest.order]
                meta = rest.meta
        finally:
            old.encoded(self._reading)
        return SmallState(self._key(old.task.id), old.epoch, self._worker.incarnation, tuple(pieces), meta)

    def _save_grown(self, old: Going, nodes: Nodes, state: SmallState) -> None:
        if old.ended:
            return
        try:
            write = old.write = self._stores.begin(state.key, state.epoch, state.writer, nodes, state.size)
            size = write.commit([write.put(piece) for piece in state.pieces], state.meta)
        except Exception as e:
            self._failed(old, e)
            return
        self._saved([(old, size)], nodes)

    def _saved(self, states: list[tuple[Going, int]], nodes: Nodes) -> None:
        """The stores have confirmed them. The new sides hear of it first: they are what others wait for."""
        moves, now = self._worker.moves, time.time()
        states = [s for s in states if s[0].ends_now()]  # copying ahead may have failed meanwhile
        try:
            moves.words.saved((old.task.id, old.epoch, size) for old, size in states)
            for old, size in states:
                self._worker.moving.step(old.task, old.epoch, "saved", bytes=size, at=now)
        except Exception:  # hints, to new sides and to people: nobody's save fails for that
            log.exception("that %d tasks were saved is said by their marks alone", len(states))
        moves.feed_all([ev.SaveDone(old.task.id, old.epoch, nodes, size) for old, size in states])

    def _failed(self, old: Going, error: Exception) -> None:
        if not old.ends_now():
            return
        reason = error.message if isinstance(error, ElasticError) else described(error)
        with old.writing:  # not while what is left is being copied: that would be less than all then, and nobody would see it
            if old.copier is not None:
                old.copier.cancel()
        if not old.ended:  # before a store is told that may not answer: the task stands still, mostly
            # All of it: its mark takes less.
            log.warning("task %d is not saved: %s", old.task.id, reason, exc_info=error)
            self._worker.moves.feed(ev.OldFailed(old.task.id, old.epoch, reason))
        with old.writing:
            if old.write is not None:
                try:
                    old.write.abort()
                except Exception as e:  # the stores give up what belongs to no move
                    log.info("what was copied of task %d was not given up: %s", old.task.id, described(e))

    def _have_done(self, pool: ThreadPoolExecutor, what: Callable[..., None], *arguments: Any) -> None:
        try:
            pool.submit(what, *arguments)
        except RuntimeError as e:  # the pool is closed
            raise Unavailable("the worker is about to end") from e
