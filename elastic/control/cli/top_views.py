"""What `top` shows of each look: by executor, or by task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elastic.control import present
from elastic.control.cli.output import Column, number, share
from elastic.control.cli.topologies import (
    COMPONENT_COLUMNS,
    COUNTS,
    EXECUTOR_COLUMNS,
    FAILED,
    RATES,
    STATE,
    WAITING,
    WORKER_COLUMNS,
)
from elastic.control.tasks import Reports
from elastic.model.views import TopologyDetail

Tables = list[tuple[list[Column], list[dict[str, Any]]]]
TASK_COLUMNS = [
    Column("TASK", "task", right=True),
    Column("COMPONENT", "component"),
    Column("WORKER", lambda r: r["worker"] or "waiting for a slot"),
    *RATES,
    *COUNTS,
    *WAITING,
    FAILED,
    STATE,
]


class View:
    """What is shown of each look: components, executors and workers."""

    def see(self, details: Sequence[TopologyDetail]) -> None:
        """There is a new look. Called with each, before it is shown."""

    def tables(self, detail: TopologyDetail) -> Tables:
        """For people: the most important first."""
        return [
            (COMPONENT_COLUMNS, [present.component(c) for c in detail.components]),
            (EXECUTOR_COLUMNS, [present.executor(e) for e in detail.executors]),
            (WORKER_COLUMNS, [present.worker(w) for w in detail.workers]),
        ]

    def data(self, detail: TopologyDetail) -> present.Plain:
        """For programs."""
        return present.description(detail)

    def lines(self, detail: TopologyDetail) -> list[str]:
        """For logs."""
        return [
            f"{c.id}  in/s {number(c.executed_rate)}  out/s {number(c.emitted_rate)}  queued {number(c.queued)}"
            f"  busy {share(c.busy)}  blocked {share(c.blocked)}  failed {number(c.failed)}"
            for c in detail.components
        ]


class ByTask(View):
    """What is shown of each look: components, and tasks one by one."""

    def __init__(self) -> None:
        self._reports: dict[str, Reports] = {}

    def see(self, details: Sequence[TopologyDetail]) -> None:
        names = {str(d.summary.name): d for d in details}
        self._reports = {n: self._reports.get(n, Reports()).then(d) for n, d in names.items()}

    def tables(self, detail: TopologyDetail) -> Tables:
        components = [present.component(c) for c in detail.components]
        return [(COMPONENT_COLUMNS, components), (TASK_COLUMNS, self._rows(detail))]

    def data(self, detail: TopologyDetail) -> present.Plain:
        return {**super().data(detail), "task_list": self._rows(detail)}

    def lines(self, detail: TopologyDetail) -> list[str]:
        return [
            f"task {r['task']}  {r['component']}  in/s {number(r['executed_rate'])}  out/s {number(r['emitted_rate'])}"
            f"  queued {number(r['queued'])}  failed {number(r['failed'])}"
            for r in self._rows(detail)
        ]

    def _rows(self, detail: TopologyDetail) -> list[present.Plain]:
        return self._reports[str(detail.summary.name)].rows(detail)
