"""What is measured, in the text format of Prometheus. `docs/metrics.md` lists the names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from elastic.control.ui.measured import (
    COUNTER,
    GAUGE,
    OF_COMPONENTS,
    OF_EXECUTORS,
    OF_MOVES,
    OF_NODES,
    OF_TOPOLOGIES,
    OF_WORKERS,
    Kind,
    Table,
)
from elastic.control.ui.watching import Shown
from elastic.model.views import TopologyDetail

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Sequence[str]
Entry = tuple[Labels, Any]
"""The values of the labels, and what there is to say."""


def exposition(shown: Shown) -> bytes:
    """All that is known now, as Prometheus scrapes it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(families(shown)))
    return generate_latest(registry)


def families(shown: Shown) -> Iterator[Metric]:
    """All metrics, each with its samples."""
    look = shown.look
    yield _one(GAUGE, "elastic_up", "Whether the cluster answers: 1 or 0.", 0 if shown.trouble else 1)
    yield _one(
        GAUGE,
        "elastic_look_timestamp_seconds",
        "When all that follows was so, in seconds since 1970.",
        look.at,
    )
    if shown.trouble:
        return  # what was so before is not what is: a gap in a chart says that
    yield _info("elastic_cluster", "The cluster, and the Nimbus that leads it.", ("cluster", "leader", "version"), [
        (look.cluster.cluster, look.cluster.leader, look.cluster.version)
    ])  # fmt: skip
    yield _info("elastic_topology", "A topology, and what is the matter with it.", ("topology", "id", "status"), [
        (str(t.name), t.id, t.status.value) for t in look.topologies
    ])  # fmt: skip
    details = list(look.details.values())
    for table, labels, entries in (
        (OF_NODES, ("node",), [((str(n.id),), n) for n in look.nodes]),
        (OF_TOPOLOGIES, ("topology",), [((_of(d),), d) for d in details]),
        (OF_COMPONENTS, ("topology", "component"), [((_of(d), str(c.id)), c) for d in details for c in d.components]),
        (OF_EXECUTORS, ("topology", "executor", "worker", "node"), [
            ((_of(d), e.id, e.worker, e.node), e) for d in details for e in d.executors
        ]),
        (OF_WORKERS, ("topology", "worker", "node"), [
            ((_of(d), str(w.worker), str(w.node)), w) for d in details for w in d.workers
        ]),
    ):  # fmt: skip
        yield from _table(table, labels, entries)
    yield _many(
        GAUGE,
        "elastic_component_metric",
        "A metric of the component's own, summed over its tasks.",
        ("topology", "component", "metric"),
        (
            ((_of(d), str(c.id), k), v)
            for d in details
            for c in d.components
            for k, v in sorted(c.custom.items())
        ),
    )
    yield from _of_moves(details)


def _of_moves(details: Sequence[TopologyDetail]) -> Iterator[Metric]:
    yield from _table(OF_MOVES, ("topology",), [((_of(d),), d.moved) for d in details])
    yield _many(
        COUNTER,
        "elastic_moved_tasks",
        "Tasks of moves that have ended, by outcome: committed, rolled_back or lost.",
        ("topology", "outcome"),
        (
            ((_of(d), outcome), getattr(d.moved, outcome))
            for d in details
            for outcome in ("committed", "rolled_back", "lost")
        ),
    )
    yield _histogram(
        "elastic_move_pause_seconds",
        "For how long senders held tuples for tasks that moved.",
        ((_of(d), d.moved.pauses, d.moved.pause_sum) for d in details),
    )
    yield _histogram(
        "elastic_move_gap_seconds",
        "For how long those behind tasks that moved got nothing from them.",
        ((_of(d), d.moved.gaps, d.moved.gap_sum) for d in details),
    )


class _Once(Collector):
    """Families that are there already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _of(detail: TopologyDetail) -> str:
    return str(detail.summary.name)


def _one(kind: Kind, name: str, text: str, value: float) -> Metric:
    return _many(kind, name, text, (), [((), value)])


def _many(
    kind: Kind, name: str, text: str, labels: Labels, entries: Iterable[tuple[Labels, float]]
) -> Metric:
    family = kind(name, text, labels=labels)
    for values, value in entries:
        family.add_metric(list(values), float(value))
    return family


def _info(name: str, text: str, labels: Labels, entries: Iterable[Labels]) -> Metric:
    """What is text stands in labels, beside a 1."""
    return _many(GAUGE, f"{name}_info", text, labels, ((values, 1) for values in entries))


def _table(table: Table, labels: Labels, entries: Sequence[Entry]) -> Iterator[Metric]:
    for kind, name, text, where in table:
        value = attrgetter(where) if isinstance(where, str) else where
        yield _many(kind, name, text, labels, ((values, value(view)) for values, view in entries))


def _histogram(name: str, text: str, entries: Iterable[tuple[str, Mapping[str, int], float]]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=("topology",))
    for topology, counts, total in entries:
        by_bound = {bound: float(counts.get(bound, 0)) for bound in (*counts, "+Inf")}
        family.add_metric([topology], sorted(by_bound.items(), key=lambda item: float(item[0])), total)
    return family
