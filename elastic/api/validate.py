"""Is a topology's description sound? Used by the builder, and again by Nimbus for what it is sent."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from elastic.errors import (
    CyclicTopology,
    InvalidParallelism,
    TopologyError,
    UnknownComponent,
    UnknownField,
    UnknownStream,
)
from elastic.model.grouping import GroupingKind
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.model.words import counted

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
MAX_TASKS = 100_000


def validate(spec: TopologySpec) -> None:
    """Check a topology.

    Raises:
        TopologyError: One of its subclasses says what is wrong, and where.
    """
    check_name(spec.name, "a topology")
    if not _positive(spec.workers):
        raise InvalidParallelism(
            f"Topology {spec.name!r} wants {spec.workers!r} workers; it needs a whole number of them, at least one."
        )
    if not any(c.kind == "spout" for c in spec.components):
        raise TopologyError(f"Topology {spec.name!r} has no spout: nothing would ever flow.")
    by_name: dict[str, ComponentSpec] = {}
    for c in spec.components:
        check_name(c.id, "a component")
        _parallelism(c)
        if c.id in by_name:
            raise TopologyError(f"Topology {spec.name!r} has two components called {str(c.id)!r}.")
        by_name[c.id] = c
    if spec.task_count > MAX_TASKS:
        raise InvalidParallelism(
            f"Topology {spec.name!r} has {spec.task_count} tasks; at most {MAX_TASKS} are possible."
        )
    for c in spec.components:
        if c.kind == "bolt" and not c.inputs:
            raise TopologyError(
                f"Bolt {str(c.id)!r} is not subscribed to anything.",
                remedy='Subscribe it, for instance .shuffle("source").',
            )
        for s in c.outputs:
            if not s.fields:
                raise TopologyError(
                    f"Stream {str(s.id)!r} of component {str(c.id)!r} has no fields: there is nothing to emit.",
                    remedy="Declare one, for instance Fields(at=float), also where its tuples are only signals.",
                )
        for i in c.inputs:
            _subscription(c, i.source, i.stream, i.grouping.kind, i.grouping.fields, by_name)
    _acyclic(spec)


def check_name(name: object, of: str) -> None:
    """Check the name of a topology or component.

    Args:
        name: Should be a string.
        of: Whose name it is, for the error.

    Raises:
        TopologyError: It cannot be one.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise TopologyError(
            f"{name!r} cannot be the name of {of}.",
            remedy="Use a string of letters, digits, '-', '_' and '.', beginning with a letter or digit; at most 100.",
        )


def _positive(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _parallelism(c: ComponentSpec) -> None:
    for what, number in (("tasks", c.tasks), ("executors", c.executors)):
        if not _positive(number):
            raise InvalidParallelism(
                f"Component {str(c.id)!r} has {number!r} {what}; it needs a whole number of them, at least one."
            )
    if c.executors > c.tasks:
        raise InvalidParallelism(
            f"Component {str(c.id)!r} has {counted(c.executors, 'executor')} for {counted(c.tasks, 'task')}: "
            "an executor without a task does nothing.",
            remedy="Raise tasks (they cost next to nothing, and are fixed at submit) or lower executors.",
        )


def _hint(name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known) or 'none'}."


def _subscription(
    c: ComponentSpec,
    source: str,
    stream: str,
    kind: GroupingKind,
    fields: tuple[str, ...],
    by_name: dict[str, ComponentSpec],
) -> None:
    origin = by_name.get(source)
    if origin is None:
        raise UnknownComponent(
            f"Bolt {str(c.id)!r} subscribes to component {source!r}, which does not exist.",
            remedy=_hint(source, by_name),
        )
    declared = {str(s.id): s for s in origin.outputs}
    if stream not in declared:
        raise UnknownStream(
            f"Bolt {str(c.id)!r} subscribes to stream {stream!r} of {source!r}, which does not declare it.",
            remedy=_hint(stream, declared)
            + f" Streams are declared by `outputs` on the class of {source!r}.",
        )
    if kind in (GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY):
        names = {f.name for f in declared[stream].fields}
        if not fields:
            raise UnknownField(
                f"Bolt {str(c.id)!r} groups {source!r} by fields, but names none.",
                remedy=f"Name some of: {', '.join(sorted(names))}.",
            )
        for f in fields:
            if f not in names:
                raise UnknownField(
                    f"Bolt {str(c.id)!r} groups stream {stream!r} of {source!r} by field {f!r}, which it does not have.",
                    remedy=_hint(f, names),
                )


def _acyclic(spec: TopologySpec) -> None:
    """Bounded queues with back-pressure would stand still on a circle, and its end could not be recognised."""
    try:
        TopologicalSorter({str(c.id): [str(i.source) for i in c.inputs] for c in spec.components}).prepare()
    except CycleError as e:
        raise CyclicTopology(
            f"The streams of topology {spec.name!r} form a circle: {' <- '.join(reversed(e.args[1]))}.",
            remedy="Queues are bounded, so a circle could block itself; feed results back through a spout instead.",
        ) from None
