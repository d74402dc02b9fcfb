"""A topology task by task: what each does, from the reports of its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic.control.present import Plain
from elastic.model.load import TaskLoad, WorkerReport
from elastic.model.views import TopologyDetail


@dataclass(frozen=True, slots=True)
class Reports:
    """The two newest reports of each worker of a topology, as far as somebody who looks at it again and again has seen them.

    Attributes:
        newest: By worker.
        before: What the same life of the worker had reported before that.
    """

    newest: Mapping[str, WorkerReport] = field(default_factory=dict)
    before: Mapping[str, WorkerReport] = field(default_factory=dict)

    def then(self, detail: TopologyDetail) -> Reports:
        """With what the next look shows."""
        newest = {r.worker: r for r in detail.reports}
        before = {}
        for worker, report in newest.items():
            last = self.newest.get(worker)
            if last is not None and last.incarnation == report.incarnation and last.time < report.time:
                before[worker] = last
            elif last is not None and last == report and worker in self.before:
                before[worker] = self.before[worker]  # nothing new of it
        return Reports(newest, before)

    def rows(self, detail: TopologyDetail) -> list[Plain]:
        """A row for each task of the topology, by its number: where it is and what it does.

        Rates are per second, between the two reports; 0 until there are two from where the task is. Counters begin at 0 with every life
        of a worker, and where a task comes to.
        """
        rows = []
        for executor in detail.executors:
            report = self.newest.get(executor.worker)
            before = self.before.get(executor.worker)
            now = {t.task: t for t in report.tasks} if report else {}
            then = {t.task: t for t in before.tasks} if before else {}
            seconds = report.time - before.time if report and before else 0.0
            for task in range(executor.first, executor.last + 1):
                load = now.get(task) or TaskLoad(task, str(executor.component), executor.id)
                last = then.get(task)
                rows.append(
                    {
                        "task": task,
                        "component": str(executor.component),
                        "executor": executor.id,
                        "worker": executor.worker,
                        "node": executor.node,
                        "executed": load.executed,
                        "emitted": load.emitted,
                        "failed": load.failed,
                        "queued": load.queued,
                        "held": load.held,
                        "executed_rate": _rate(load.executed, last.executed if last else None, seconds),
                        "emitted_rate": _rate(load.emitted, last.emitted if last else None, seconds),
                        "state": load.state,
                        "finished": load.finished,
                    }
                )
        return sorted(rows, key=lambda row: int(row["task"]))


def _rate(now: int, then: int | None, seconds: float) -> float:
    return round(max(0, now - then) / seconds, 3) if then is not None and seconds > 0 else 0.0
