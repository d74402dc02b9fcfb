"""Which task gets which rows of a record batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from elastic.errors import ExecutionError
from elastic.model.grouping import GroupingKind
from elastic.worker.emitting.crossing import Out, Subscription


class Division:
    """Of what one task emits.

    Args:
        task: The emitting task's number: where it begins with those that take turns.
        component: Its component's name.
        outs: What it has for each of its targets.
    """

    def __init__(self, task: int, component: str, outs: Mapping[int, Out]) -> None:
        self._task, self._component, self._outs = task, component, outs
        self._turns: dict[tuple[str, int], itertools.count[int]] = {}

    def of(self, s: Subscription, record: Any) -> Iterable[tuple[int, Any]]:
        """The parts of a record batch for the tasks of one consumer.

        Raises:
            ExecutionError: Its grouping names tasks tuple by tuple.
        """
        from elastic.worker.tuples import vector

        kind = s.spec.grouping.kind
        if kind == GroupingKind.FIELDS and len(s.targets) > 1:
            groups = vector.key_groups(record, s.spec.grouping.fields)
            return [(s.targets[i], part) for i, part in vector.partition(record, groups, len(s.targets))]
        if kind == GroupingKind.ALL:
            return [(t, record) for t in s.targets]
        # Direct and custom groupings name the tasks of each tuple, also where there is only one that could be named.
        if kind == GroupingKind.GLOBAL or (
            len(s.targets) == 1 and kind not in (GroupingKind.DIRECT, GroupingKind.CUSTOM)
        ):
            return [(s.targets[0], record)]
        if kind in (GroupingKind.SHUFFLE, GroupingKind.NONE, GroupingKind.LOCAL_OR_SHUFFLE):
            key = (s.consumer.id, s.number)
            turn = self._turns.get(key)
            if turn is None:
                turn = self._turns[key] = itertools.count(self._task)
            targets = s.targets
            if kind == GroupingKind.LOCAL_OR_SHUFFLE:
                targets = tuple(t for t in targets if self._outs[t].destination.local is not None) or targets
            return [(targets[next(turn) % len(targets)], record)]
        raise ExecutionError(
            f"emit_batch cannot divide stream {s.spec.stream!r} of {self._component!r} by the grouping {s.spec.grouping}.",
            remedy="Use shuffle, fields, all, all_to_one or local_or_shuffle with record batches, or emit tuples.",
        )
