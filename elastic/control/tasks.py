"""A topology task by task: what each does, from the reports of its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic.control.present import Plain
from elastic.model.load import TaskLoad
from elastic.model.rates import Rated, rated
from elastic.model.views import TopologyDetail


@dataclass(frozen=True, slots=True)
class Reports:
    """What somebody who looks at a topology again and again has seen of its workers' reports.

    Attributes:
        newest: Which report of each worker was seen last: of which life, and when it was made.
        tasks: What is known of tasks, by number.
    """

    newest: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    tasks: Mapping[int, Rated] = field(default_factory=dict)

    def then(self, detail: TopologyDetail) -> Reports:
        """With what the next look shows."""
        tasks = dict(self.tasks)
        for report in sorted(detail.reports, key=lambda r: r.time):
            if self.newest.get(report.worker) != (report.incarnation, report.time):
                tasks.update(rated(report, tasks))
        return Reports({r.worker: (r.incarnation, r.time) for r in detail.reports}, tasks)

    def rows(self, detail: TopologyDetail) -> list[Plain]:
        """A row for each task of the topology, by its number: where it is and what it does.

        Rates are per second, between the two newest reports that have the task, and 0 while there is only one, or its worker has ended.
        Counters begin at 0 with every life of a worker; when a task moves they go along.
        """
        there = {r.incarnation for r in detail.reports}
        rows = []
        for executor in detail.executors:
            for task in range(executor.first, executor.last + 1):
                known = self.tasks.get(task) if executor.worker else None
                load = known.load if known else TaskLoad(task, str(executor.component), executor.id)
                does = known if known and known.incarnation in there else None
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
                        "executed_rate": round(does.executed, 3) if does else 0.0,
                        "emitted_rate": round(does.emitted, 3) if does else 0.0,
                        "state": load.state,
                        "finished": load.finished,
                    }
                )
        return sorted(rows, key=lambda row: int(row["task"]))
