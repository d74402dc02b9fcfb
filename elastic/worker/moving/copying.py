"""Large states of tasks that are about to move, copied into the nodes' stores while their tasks run.

What is copied is committed again and again, so that the other side can take it before the pause; after that what has changed is, until the
pause comes. Copying happens on the task's executor, a slice at a time between tuples, and all that waits for a store on threads of this
module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING

from elastic import timeslice
from elastic.migration import events as ev
from elastic.worker.content import Copier
from elastic.worker.moving.fetching import key_of
from elastic.worker.moving.going import LONGEST, Going
from elastic.worker.moving.one_by_one import OneByOne
from elastic.worker.moving.stores import Nodes, StateStores, StateWrite
from elastic.worker.pools import have_done

if TYPE_CHECKING:
    from elastic.worker.worker import Worker

COPYING = 8
"""Threads: others than those that save. Tasks of one move may be copied while those of another stand still, one state after the other, and
as long as an executor is within a tuple: what stands still must not wait for that."""
SLICE, SLICE_LARGE = 0.002, 0.001
"""Seconds that copying ahead takes from an executor at a time, and gives back to it at least: of others, and of a large state, of which
copying lasts."""
RESTS, RESTS_LARGE = 5, 1
"""Times as long that it gives back, at most, for as long as much waits for the task: a stream that has fallen behind by the time of the
pause takes what waits along, and has it to work off afterwards. Of a large state as much changes meanwhile, and would be copied again."""
LASTS = 10.0
"""Seconds of copying after which a state counts as large, whatever it takes: what its stream has left of processors so far was not enough,
and will not be."""
SHARE, LONGEST_SLICE = 4, 0.008
"""One part in so many of the time for which an executor was waited for is copying's at least, in seconds at most: where streams are held
up, it comes only between two tuples that wait for room, and what changes meanwhile would be more than is copied in a slice."""
HARDER = 4
"""Times as long that copying takes an executor at a time, and gives nothing back but what writing takes anyway, while a large state changes
as fast as it is copied: its task has short turns then (`Brake`), and does not need the executor in between."""
WAITING = 8
"""Part of what may wait for the task that is much."""
KEEP_UP = 0.01
KEEP_UP_FIRST = 0.0003
"""Seconds between two looks at what has changed since, at most; the first ones follow one another so much closer, each by so much less
than the one before: the pause comes soon, mostly."""
COMMIT_EVERY = 0.05
"""Seconds of copying everything once after which what there is by then is committed: the other side fetches and puts it in meanwhile."""
TURN = 0.1
"""Seconds that a state waits for its turn, at most: the one before it may be of a task that is within a tuple for long."""
SMALLER = 1 << 20
"""Bytes of a state that has a turn for all of it (`OneByOne`)."""
PATIENCE, AWAY = 0.05, 0.5
"""Seconds that what changes of a state waits for the task's executor, so that others' need not wait along; and for which it is not asked
again then."""
KEEP_UP_LONGEST, CATCH_UP_LONGEST = 0.01, 0.05
"""Seconds of copying after which what was copied is committed: the other side takes what it can see for all there is, before the pause.
The second where that was not all, the last time: each commit takes time as well, in which more changes."""


class Copying:
    """Of one worker.

    Args:
        failed: Told of a state that cannot be copied, and why.
    """

    def __init__(
        self, worker: Worker, stores: StateStores, failed: Callable[[Going, BaseException], None]
    ) -> None:
        self._worker = worker
        self._stores = stores
        self._failed = failed
        self._lock = threading.Lock()
        self._kept: list[Going] = []
        self._keeping = False
        self._closing = threading.Event()
        self._turn = threading.Lock()  # one state at a time, slice by slice
        self._small = OneByOne(self._closing)
        self._pool = ThreadPoolExecutor(COPYING, "states-copied", timeslice.usual)
        # Not behind states that are yet to be copied: what changes of the first one meanwhile may be all of it.
        self._keeper = ThreadPoolExecutor(1, "states-kept-up", timeslice.usual)

    def close(self) -> None:
        """End its threads; what is under way ends with an error or comes to nothing."""
        self._closing.set()
        for pool in (self._pool, self._keeper):
            pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, old: Going, nodes: Nodes, size: int) -> None:
        """Begin a write for it, and copy.

        Args:
            size: Bytes of the state, about.

        Raises:
            Unavailable: The worker is about to end.
        """
        have_done(self._pool, old.use, self._begin, nodes, size)

    def _begin(self, old: Going, nodes: Nodes, size: int) -> None:
        copier = old.copier
        assert copier is not None
        try:
            with self._small.turn(self._share_of(old.epoch)) if size < SMALLER else nullcontext():
                if old.ended or self._closing.is_set():
                    return
                self._copy_all(old, copier, nodes, size)
        except BaseException as e:  # what user code raises while it is copied may be anything
            self._failed(old, e)
            return
        if not old.ended:
            self._keep_up(old)

    def _share_of(self, epoch: int) -> float:
        """Batches of the move for each of its tasks."""
        move = self._worker.moves.participant.view.move(epoch)
        return move.record.batches / len(move.record.tasks) if move is not None else 0.0

    def _copy_all(self, old: Going, copier: Copier, nodes: Nodes, size: int) -> None:
        old.write = self._stores.begin(
            key_of(self._worker, old.task.id), old.epoch, self._worker.incarnation, nodes, size
        )
        old.brake.size, old.began = size, time.monotonic()
        if old.brake.large:
            self._brake(old)
        copier.read_at_once(size)
        copier.make_ready()
        self._copy_ahead(old, copier, old.write)
        self._commit_ahead(old, copier, old.write)

    def _brake(self, old: Going) -> None:
        """From now on its task can be made to go slower."""
        old.brake.rate = old.task.pace.rate(time.monotonic(), old.task.executed)
        with old.lock:
            if not old.ended:
                old.task.brake = old.brake

    def _copy_ahead(self, old: Going, copier: Copier, write: StateWrite) -> None:
        due = time.monotonic() + COMMIT_EVERY
        while not (copier.done or old.ended or old.pausing or self._closing.is_set()):
            mine = self._turn.acquire(timeout=TURN)
            try:
                self._copy_some(old, copier, write)
                self._give_back(old, copier)
            finally:
                if mine:
                    self._turn.release()
            if time.monotonic() >= due:
                self._commit_ahead(old, copier, write)
                due = time.monotonic() + COMMIT_EVERY

    def _give_back(self, old: Going, copier: Copier) -> None:
        """The executor has a stream to work off, and does so already while what was copied is written."""
        for n in range(1, (RESTS_LARGE if old.brake.large else RESTS) + 1):
            left = old.gave + n * _slice_of(old) - time.monotonic()
            if left > 0 and self._closing.wait(left):
                return
            if old.pausing or old.hurries or WAITING * old.task.queued <= old.task.capacity:
                return

    def _copy_some(self, old: Going, copier: Copier, write: StateWrite, patience: float = LONGEST) -> bool:
        with old.writing:
            if old.pausing or old.ended:
                return False
            asked = time.monotonic()
            if not old.brake.large and asked > old.began + LASTS and not copier.caught_up:
                old.brake.lasts = True
                self._brake(old)
            try:
                pieces = old.on_task(lambda: self._slice(old, copier, time.monotonic() - asked), patience)
            except CancelledError:
                old.away = time.monotonic() + AWAY
                return False
            for id, data in pieces:
                old.numbers[id] = old.put(write, data)
            return bool(pieces)

    def _slice(self, old: Going, copier: Copier, waited: float) -> list[tuple[int, bytes]]:
        vain = copier.in_vain
        slice_ = (HARDER if old.hurries else 1) * _slice_of(old)
        pieces = copier.ahead(time.monotonic() + max(slice_, min(waited / SHARE, LONGEST_SLICE)))
        # So that less changes meanwhile; later on it is the other side that asks for it.
        if copier.outrun or not old.kept_up:
            old.brake.press()
        if copier.in_vain > vain:
            old.brake.harder()
        old.gave = time.monotonic()
        return pieces

    def _commit_ahead(self, old: Going, copier: Copier, write: StateWrite) -> None:
        """What is there by now can be fetched already. Nobody restores from it: that is done after the last commit only."""
        with old.writing:
            if old.pausing or old.ended:
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
        have_done(self._keeper, self._keep_up_all)

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
                if time.monotonic() >= old.away:
                    old.use(self._keep_up_one)
            looks += 1
            rest = SLICE if any(o.behind for o in kept) else KEEP_UP
            self._closing.wait(min(rest, looks * KEEP_UP_FIRST))

    def _keep_up_one(self, old: Going) -> None:
        assert old.copier is not None and old.write is not None
        try:
            if old.copier.said_all and not old.copier.busy:
                old.behind = False
                return  # the executor need not be asked: of many tasks that wait for their turn that would be all the time
            until = time.monotonic() + (CATCH_UP_LONGEST if old.behind else KEEP_UP_LONGEST)
            some = old.behind = False
            while self._copy_some(old, old.copier, old.write, PATIENCE):
                some = True
                if time.monotonic() >= until:
                    old.behind = True
                    break
            # Also when nothing was copied because what had changed is gone: nobody would hear that all is there.
            if some or (old.copier.caught_up and not old.copier.said_all):
                self._commit_ahead(old, old.copier, old.write)
        except BaseException as e:
            self._failed(old, e)
            old.ended = True


def _slice_of(old: Going) -> float:
    """Seconds that copying takes an executor at a time, and gives it back."""
    return SLICE_LARGE if old.brake.large else SLICE
