"""What a component's tuples cost, and what it makes of them: ratios of rates that are averaged over a longer past than loads are.

How much there is to do changes from one moment to the next. What a tuple takes is a property of the code and the data, whoever executes it:
so it is measured of components, not of executors, and when tasks are regrouped it goes on. That busy time and tuples are taken from
the same moments matters more than that they are new: otherwise, whenever the load changes, one would be of before and the other of after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elastic.elasticity.averages import Average, Sums
from elastic.model.ids import ComponentId
from elastic.model.loadview import ComponentRates, ExecutorKey

SLOWLY = 2
"""So many times as far back as the averages of executors go those of components."""
_RATES = ("busy", "cpu", "executed", "emitted")


@dataclass(slots=True)
class WorkerCosts:
    """Of the components in one life of a worker."""

    rates: dict[ComponentId, dict[str, Average]] = field(default_factory=dict)
    sent: dict[tuple[ComponentId, ComponentId], Average] = field(default_factory=dict)
    counted: dict[tuple[ComponentId, ComponentId], float] = field(default_factory=dict)
    """Tuples since the last sample."""
    blind: set[ComponentId] = field(default_factory=set)
    """Those that have sent something since then to who is not known yet: their sample would lack it."""

    def count(self, source: ExecutorKey, target: ExecutorKey, tuples: float) -> None:
        """Add what one executor has sent to another."""
        pair = source.executor.component, target.executor.component
        self.counted[pair] = self.counted.get(pair, 0.0) + tuples

    def sample(self, sums: Mapping[ExecutorKey, Sums], seconds: float, weight: float) -> None:
        """A period is full.

        Args:
            sums: What each executor did in it.
            weight: What is left of the past of an executor's average.
        """
        left = weight ** (1.0 / SLOWLY)
        # What has sent nothing yet has done so for as long as its source is known.
        known = {
            pair: Average(0.0, int(pair[0] in self.rates)) for pair in self.counted.keys() - self.sent.keys()
        }
        self.sent.update({pair: average for pair, average in known.items() if pair[0] not in self.blind})
        totals: dict[ComponentId, dict[str, float]] = {c: dict.fromkeys(_RATES, 0.0) for c in self.rates}
        for key, of in sums.items():
            total = totals.setdefault(key.executor.component, dict.fromkeys(_RATES, 0.0))
            for name in _RATES:
                total[name] += getattr(of, name)
        for component in totals.keys() - self.blind:
            total = totals[component]
            averages = self.rates.setdefault(component, {name: Average() for name in _RATES})
            for name, value in total.items():
                averages[name].take(value / seconds, left)
        for pair, average in self.sent.items():
            if pair[0] not in self.blind:
                average.take(self.counted.get(pair, 0.0) / seconds, left)
        self.counted, self.blind = {}, set()


def together(workers: Iterable[WorkerCosts]) -> dict[ComponentId, ComponentRates]:
    """What the components of a topology do in all its workers."""
    rates: dict[ComponentId, dict[str, float]] = {}
    sent: dict[ComponentId, dict[ComponentId, float]] = {}
    for worker in workers:
        for component, averages in worker.rates.items():
            total = rates.setdefault(component, dict.fromkeys(_RATES, 0.0))
            for name, average in averages.items():
                total[name] += average.value
        for (source, target), average in worker.sent.items():
            flows = sent.setdefault(source, {})
            flows[target] = flows.get(target, 0.0) + average.value
    return {c: ComponentRates(**total, sent=sent.get(c, {})) for c, total in rates.items()}
