"""The states of tasks that move away, on their way into the nodes' stores; and the port that `fetching` is a part of.

Encoding happens on a thread of this module once a task stands still, and everything that waits for a store as well: a few threads, kept
while there are moves.

A large state has a write of its own, which is begun, and copied, ahead of the pause (`copying`). Small ones go together: room for many is
asked for at once, and what stands still at the same time is saved, and fetched, with one message.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from elastic import timeslice
from elastic.errors import ExecutionError, Unavailable, Unmovable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.worker.content import Copier
from elastic.worker.content.engine import EngineState, encode_engine
from elastic.worker.moving import along, move_errors
from elastic.worker.moving.copying import Copying
from elastic.worker.moving.fetching import Fetching, key_of
from elastic.worker.moving.going import Going, why_unmovable
from elastic.worker.moving.stopping import Stopping
from elastic.worker.moving.stores import GROWN, LOT, SMALL, Commit, Nodes, SmallState, StateStores
from elastic.worker.moving.together import Together
from elastic.worker.pools import have_done
from elastic.worker.shown import described, why

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task
    from elastic.worker.worker import Worker

log = logging.getLogger("elastic.worker")
THREADS = 8
PART = 512 << 10
"""Bytes of small states that are saved with one message, about."""


class Saving:
    """The port `elastic.migration.ports.Store` of a worker."""

    def __init__(self, worker: Worker, stores: StateStores) -> None:
        self._worker = worker
        self._stores = stores
        self._old: dict[int, Going] = {}
        self._reading: dict[int, Going] = {}  # given back, and not gone on yet: its state is still being read
        self._stopping = Stopping()
        self._pool = ThreadPoolExecutor(THREADS, "states", timeslice.usual)
        self._copying = Copying(worker, stores, self._failed)
        self._submit = functools.partial(have_done, self._pool)
        self._asks: Together[Nodes, tuple[Going, int]] = Together(self._submit, self._ask_many, LOT)
        self._saves: Together[Nodes, tuple[Going, ac.Save, EngineState]] = Together(
            self._submit, self._save_many, LOT, self._stopping.gather
        )
        self._rests: Together[Nodes, tuple[Going, ac.Save, EngineState]] = Together(
            self._submit, self._save_rests, LOT, self._stopping.gather
        )
        fetching = self.fetching = Fetching(worker, stores, self._submit)
        self.fetch, self.fetch_ahead = fetching.fetch, fetching.fetch_ahead

    def close(self) -> None:
        """End its threads; what is under way ends with an error or comes to nothing."""
        self.fetching.close()
        self._copying.close()
        for old in list(self._old.values()):
            old.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

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
                    self._submit(old.use)  # whoever is the last to use it closes it
            if not encoded:
                return
            if old.copier is not None and then is not None:
                self._forget_copy(old, old.copier)
        if then is not None:
            self._when_gone_on(task.id, then)

    def goes(self, task: int) -> bool:
        """Whether the task is about to move away: its state is being copied for that, or read."""
        return task in self._old or task in self._reading

    def _forget_copy(self, old: Going, copier: Copier) -> None:
        """Of a task that stays. It may be within a tuple at this very moment: then after that."""
        copier.end()
        try:
            old.task.call(copier.cancel)
        except ExecutionError:  # nobody runs it
            copier.cancel()

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
            raise Unmovable(unmovable)
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
        self._worker.snapshots.give_way(old.task)
        try:
            size = 4096 + 256 * old.task.queued  # the engine's part, about
            if old.copier is not None:
                content = old.copier.size()
                self._worker.sizes.note(old.task, content)
                size += content
            if size <= SMALL or old.copier is None:
                self._asks.add(nodes, (old, size))
            else:
                self._copying.begin(old, nodes, size)
        except BaseException as e:  # of user code, on the executor of others
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
            self._stopping.add(task.id)

    def save(self, action: ac.Save) -> None:
        """See the port."""
        old = self._old[action.task]
        engine = old.task.export()  # now: what comes from here on is not part of it
        with old.lock:
            old.encoding = True
        together = self._saves if old.write is None else self._rests
        together.add(action.nodes, (old, action, engine))
        self._stopping.remove(action.task)

    def _save_rests(self, nodes: Nodes, lot: list[tuple[Going, ac.Save, EngineState]]) -> None:
        """What is left of states that were copied ahead. As below: in parts, which are confirmed together."""
        with ExitStack() as used:
            part: list[tuple[Going, Commit]] = []
            size = 0
            for old, action, engine in lot:
                used.enter_context(old.used())
                try:
                    made = self._rest(old, action, engine)
                except BaseException as e:  # what user code raises while it is encoded may be anything
                    self._failed(old, e)
                    continue
                if made is not None:
                    commit, more = made
                    part.append((old, commit))
                    size += more
                if size >= PART:
                    self._commit_part(nodes, part)
                    part, size = [], 0
            if part:
                self._commit_part(nodes, part)

    def _rest(self, old: Going, action: ac.Save, engine: EngineState) -> tuple[Commit, int] | None:
        """Write it, and send it along: from then on nobody reads the state.

        Returns:
            What is left to be done, and the bytes that were written; None when the move is over.
        """
        write, size, meta = old.write, 0, b""
        assert write is not None
        try:
            # What was being copied ahead is on its way: nobody hastens while that is waited for.
            with old.writing, self._worker.haste:
                if old.ended:
                    return None
                order = []
                for piece in encode_engine(engine, action.links, self._worker.generation):
                    order.append(old.put(write, piece))
                    size += len(piece)
                if old.copier is not None:
                    rest = old.copier.rest()
                    for id, data in rest.pieces:
                        old.numbers[id] = old.put(write, data)
                        size += len(data)
                    meta = rest.meta
                    order += [old.numbers[id] for id in rest.order]
        finally:
            old.encoded(self._reading)
        if old.ended:
            return None
        left = old.recent.along(order, write.named(order), meta)
        self._worker.moves.words.along(old.task.id, old.epoch, left)
        return (write, order, meta), size

    def _commit_part(self, nodes: Nodes, part: list[tuple[Going, Commit]]) -> None:
        """Of each of them it is said how it ended: nothing is raised, which would cost those that come after them in the lot."""
        sizes: Sequence[int | None] = [None]
        try:
            if len(part) > 1:
                sizes = self._stores.commit_many([commit for _, commit in part])
            outcome = list(zip(part, sizes, strict=True))
        except Exception as e:
            for old, _ in part:
                self._failed(old, e)
            return
        if saved := [(old, size) for (old, _), size in outcome if size is not None]:
            self._saved(saved, nodes)
        alone = [one for one, size in outcome if size is None]
        for at, (old, commit) in enumerate(alone):
            try:
                if at == len(alone) - 1:
                    self._commit_alone(old, nodes, commit)
                else:  # what one of them waits for, the others do not
                    self._submit(old.use, self._commit_alone, nodes, commit)
            except Exception as e:
                self._failed(old, e)

    def _commit_alone(self, old: Going, nodes: Nodes, commit: Commit) -> None:
        write, order, meta = commit
        try:
            size = write.commit(order, meta)
        except Exception as e:
            self._failed(old, e)
            return
        self._saved([(old, size)], nodes)

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
                    self._submit(old.use, self._save_grown, nodes, state)
                elif not old.ended:
                    part.append((old, state))
            except BaseException as e:
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
            pieces, meta = encode_engine(engine, action.links, self._worker.generation), b""
            if old.copier is not None:
                with old.writing:
                    rest = old.copier.rest()
                pieces += rest.in_order()
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

    def _failed(self, old: Going, error: BaseException) -> None:
        if not old.ends_now():
            return
        reason = why(error)
        if old.copier is not None:
            # Its state may be read at this very moment: nothing is said any more of what comes of that.
            self._forget_copy(old, old.copier)
        if not old.ended:  # before a store is told that may not answer: the task stands still, mostly
            # All of it: its mark takes less.
            log.warning("task %d is not saved: %s", old.task.id, reason, exc_info=error)
            self._worker.moves.feed(ev.OldFailed(old.task.id, old.epoch, reason))
            move_errors.tell(self._worker, old.task.id, old.epoch, error)
        with old.writing:
            if old.write is not None:
                try:
                    old.write.abort()
                except Exception as e:  # the stores give up what belongs to no move
                    log.info("what was copied of task %d was not given up: %s", old.task.id, described(e))
