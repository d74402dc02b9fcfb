"""Measuring a worker: counters of tasks, shares of executors, memory and CPU of the process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from elastic import machine
from elastic.model.load import ExecutorLoad, PairLoad, TaskLoad, WorkerReport

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor
    from elastic.worker.executing.task import Task
    from elastic.worker.worker import Worker


class Measurer:
    """Makes reports of a worker; shares are those of the time since the report before."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._cores = machine.cores()
        self._at = time.monotonic()
        self._process = time.process_time()
        self._before: dict[Executor, tuple[float, float, float, float]] = {}

    def report(self) -> WorkerReport:
        """Measure now."""
        worker = self._worker
        now, process = time.monotonic(), time.process_time()
        wall = max(now - self._at, 1e-6)
        executors = []
        before, self._before = self._before, {}
        for id, executor in sorted(worker.executors.named.copy().items()):
            idle, blocked = executor.shares()
            cpu = executor.cpu.seconds()
            ready = machine.ready_seconds(executor.thread.native_id)
            old = before.get(executor, (0.0, 0.0, 0.0, 0.0))  # its range may change, the object does not
            self._before[executor] = (idle, blocked, cpu, ready)
            idle_share, blocked_share = (
                min(1.0, max(0.0, (n - o) / wall)) for n, o in ((idle, old[0]), (blocked, old[1]))
            )
            executors.append(
                ExecutorLoad(
                    str(id),
                    max(0.0, 1.0 - idle_share - blocked_share),
                    blocked_share,
                    idle_share,
                    max(0.0, cpu - old[2]) / wall,
                    max((t.capacity for t in executor.tasks.copy().values()), default=0),
                    max(0.0, ready - old[3]) / wall,
                )
            )
        tasks, pairs = [], []
        held = sorted(worker.tasks.copy().items())
        sizes = worker.sizes.of([task for _, task in held])
        holding = worker.moves.held()
        for number, task in held:
            owner = task.executor
            tasks.append(
                TaskLoad(
                    number,
                    str(task.spec.id),
                    str(owner.id) if owner is not None else "",
                    task.executed,
                    task.outputs.emitted + task.outputs.unrouted,
                    task.failures.count,
                    task.queued,
                    task.marks.finished,
                    self._custom(task),
                    sizes.get(number, 0),
                    holding.get(number, 0),
                )
            )
            pairs += [
                PairLoad(number, target, out.tuples, out.bytes)
                for target, out in task.outputs.outs.items()
                if out.tuples
            ]
        cpu_share = (process - self._process) / wall
        self._at, self._process = now, process
        return WorkerReport(
            topology=str(worker.spec.name),
            worker=worker.id,
            incarnation=worker.incarnation,
            time=time.time(),
            epoch=worker.assigned.epoch,
            drained=worker.drained(),
            rss=resident_bytes(),
            cpu=cpu_share,
            tasks=tuple(tasks),
            executors=tuple(executors),
            cores=self._cores,
            pairs=tuple(pairs),
        )

    def _custom(self, task: Task) -> dict[str, float]:
        if not task.context.metrics:
            return {}
        try:
            with self._worker.calls.to("read the metrics of", task.id, task.spec.id):
                return task.context.metric_values()
        except Exception:  # a gauge is a user's function: that it raises must not cost the report
            return {}


def resident_bytes() -> int:
    """The resident memory of this process in bytes; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
