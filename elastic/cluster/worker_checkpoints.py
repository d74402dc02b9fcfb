"""How a worker process follows its topology's checkpoints: which generation it is of, and what the newest checkpoint has of its tasks.

A topology goes back as a whole. Whoever finds that a task it is about to begin was in a process that is no more says so in coordination,
with one write that fails if somebody else has: the generation grows, every process of the one before ends at the word of that, and those
that follow begin with the newest complete checkpoint. What is under way between processes of two generations is taken by nobody: neither
knows of the other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Collection
from typing import NoReturn

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Versioned, Watch
from elastic.errors import Conflict, NotFound
from elastic.model import codec
from elastic.model.checkpoints import Checkpoints, snapshot_key
from elastic.model.ids import Incarnation, TopologyName, WorkerId
from elastic.model.records import Progress
from elastic.model.words import counted
from elastic.supervisor.ports import WORKER_WENT_BACK
from elastic.worker.moving.stores import LOT, StateStores, StoredState
from elastic.worker.snapshots import Snapshots

log = logging.getLogger("elastic.worker")


class WorkerCheckpoints:
    """Of one life of a worker whose topology takes checkpoints.

    Args:
        record: What coordination had when it began.
    """

    def __init__(self, coordination: Coordination, topology: TopologyName, record: Checkpoints) -> None:
        self._coordination = coordination
        self._topology = topology
        self._record = record
        self._snapshots: Snapshots | None = None
        self._watch: Watch | None = None

    @property
    def generation(self) -> int:
        """The one that this process is of."""
        return self._record.generation

    def follow(self, snapshots: Snapshots) -> None:
        """Have it follow what coordination says from now on."""
        snapshots.see(self._record)
        self._snapshots = snapshots
        self._watch = self._coordination.watch_value(paths.checkpoint(self._topology), self._on_value)

    def close(self) -> None:
        """Hear of nothing any more. Safe to call twice."""
        if self._watch is not None:
            self._watch.cancel()

    def _on_value(self, found: Versioned | None) -> None:
        if found is None:
            return  # the topology is being removed
        record = codec.decode(found.data, Checkpoints)
        if record.generation != self.generation or record.id != self._record.id:
            leave(record.back)
        if self._snapshots is not None:
            self._snapshots.see(record)

    def go_back(self, why: str) -> NoReturn:
        """Have all tasks begin anew with the newest complete checkpoint; ends this process.

        Raises:
            Unavailable: It may not have been written.
        """
        path = paths.checkpoint(self._topology)
        while True:
            found = self._coordination.get(path)
            if found is None:
                leave("the topology is being removed")
            record = codec.decode(found.data, Checkpoints)
            if record.generation != self.generation:
                leave(record.back)
            if _went_back(self._coordination, path, found, why) is not None:
                leave(why)

    def fetch(self, tasks: Collection[int], stores: StateStores) -> dict[int, StoredState]:
        """What the newest complete checkpoint has of these tasks; nothing while there is none: then all begin with what `prepare` makes.

        Raises:
            NotFound: Of a task no store has it any more.
            Unavailable: It cannot be had now.
        """
        complete = self._record.complete
        if complete is None:
            return {}
        found: dict[int, StoredState] = {}
        missing: list[Exception] = []
        for stored in complete.stored:
            wanted = sorted(set(stored.tasks).intersection(tasks))
            for begin in range(0, len(wanted), LOT):
                lot = wanted[begin : begin + LOT]
                keys = [snapshot_key(self._topology, self._record.id, complete.ticket, t) for t in lot]
                answers = stores.fetch_many([(key, complete.ticket) for key in keys], stored.nodes)
                for task, answer in zip(lot, answers, strict=True):
                    if isinstance(answer, Exception):
                        missing.append(answer)
                    else:
                        found[task] = answer
        if missing:
            raise next((e for e in missing if isinstance(e, NotFound)), missing[0])
        return found


def begin(
    coordination: Coordination, topology: TopologyName, worker: WorkerId, me: Incarnation
) -> WorkerCheckpoints | None:
    """What a process that begins has to know. If an earlier life of this worker had tasks, and is no more, the topology goes back.

    Returns:
        None: The topology takes no checkpoints.

    Raises:
        Unavailable: There is no connection.
    """
    path = paths.checkpoint(topology)
    while True:
        found = coordination.get(path)
        if found is None:
            return None
        record = codec.decode(found.data, Checkpoints)
        stored = coordination.get(paths.worker_progress(topology, worker))
        earlier = codec.decode(stored.data, Progress) if stored is not None else None
        lost = {
            t
            for h in (earlier.held if earlier is not None and earlier.generation == record.generation else ())
            for t in h.tasks
            if h.incarnation != me
        }
        if lost:
            why = f"a process of worker {worker} ended with {counted(len(lost), 'task')}"
            back = _went_back(coordination, path, found, why)
            if back is None:
                continue
            record = back
        return WorkerCheckpoints(coordination, topology, record)


def _went_back(coordination: Coordination, path: str, found: Versioned, why: str) -> Checkpoints | None:
    """Write that the topology goes back, over what was found; None: something else has been written since."""
    record = codec.decode(found.data, Checkpoints).gone_back(why, time.time())
    try:
        coordination.set(path, codec.encode(record), version=found.version)
    except (Conflict, NotFound):
        return None
    return record


def leave(why: str) -> NoReturn:
    """End this process, whatever its threads are at: all that it has is given up."""
    log.warning("The topology goes back to a checkpoint: %s", why)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # user code may have closed or replaced it
            stream.flush()
    os._exit(WORKER_WENT_BACK)
