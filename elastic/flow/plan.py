"""What a component of a flow does with each element that it gets or makes: a tree of steps without state, and what their results are
emitted on.

It is data, which travels with the component; each task makes functions of it (`Plan.compile`). So steps that follow one another cost a
call each, and no tuple between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from elastic.api.components import Component
from elastic.api.context import TopologyContext
from elastic.model.ids import DEFAULT_STREAM

Give = Callable[[Any], None]


class Out(NamedTuple):
    """An output stream of a step.

    Attributes:
        stream: Its name.
        fields: How many values it takes: of several, an element is a sequence.
    """

    stream: str
    fields: int = 1


class Step:
    """One step.

    Attributes:
        kind: `same` (what a component has made itself), `map`, `filter`, `flat_map` or `key_by`.
        function: The user's; None for `same`.
        then: The steps that get its results, by label.
        outs: The streams that its results are emitted on; those of `key_by` together with their keys.
    """

    def __init__(self, kind: str, function: Callable[..., Any] | None) -> None:
        self.kind = kind
        self.function = function
        self.then: list[str] = []
        self.outs: list[Out] = []


class Plan:
    """The steps of a component, each as an attribute named by its label: an error of pickling then names the one whose function it is.

    Attributes:
        root: The label of the first one.
    """

    def __init__(self, root: str, steps: dict[str, Step]) -> None:
        self.root = root
        self.__dict__.update(steps)

    def step(self, label: str) -> Step:
        """The step of that label."""
        found: Step = self.__dict__[label]
        return found

    def compile(self, component: Component) -> Give:
        """Make the function that takes an element through all steps.

        Args:
            component: A task's copy, wired: it emits.

        Returns:
            To be called with each element.
        """
        return self._compiled(self.step(self.root), component)

    def _compiled(self, step: Step, component: Component) -> Give:
        function = step.function
        assert function is not None or step.kind == "same"
        if step.kind == "flat_map":
            return self._many(step, component)
        if step.kind == "key_by":
            return _keyed(step, component)
        give = self._after(step, component)
        if function is None:
            return give
        if step.kind == "map":
            return lambda value: give(function(value))

        def filtered(value: Any) -> None:
            if function(value):
                give(value)

        return filtered

    def _after(self, step: Step, component: Component) -> Give:
        """What takes a step's results."""
        gives = [self._compiled(self.step(label), component) for label in step.then]
        gives += [_emit(out, component) for out in step.outs]
        if len(gives) == 1:
            return gives[0]

        def each(value: Any) -> None:
            for give in gives:
                give(value)

        return each

    def _many(self, step: Step, component: Component) -> Give:
        """Of a `flat_map`: without branches up to where it is emitted, all results are handed over by one call."""
        function = step.function
        assert function is not None
        way: list[Step] = []
        last = step
        while len(last.then) == 1 and not last.outs:
            last = self.step(last.then[0])
            way.append(last)
        if last.then or len(last.outs) != 1:
            give = self._after(step, component)

            def each(value: Any) -> None:
                for result in function(value):
                    give(result)

            return each
        emit_all, stream = component.emit_all, last.outs[0].stream

        def all_at_once(value: Any) -> None:
            results: Iterable[Any] = function(value)
            for later in way:
                results = _apply(later, results)
            emit_all(results, stream)

        return all_at_once


def _apply(step: Step, values: Iterable[Any]) -> Iterable[Any]:
    function = step.function
    assert function is not None
    if step.kind == "map":
        return map(function, values)
    if step.kind == "filter":
        return filter(function, values)
    if step.kind == "flat_map":
        return (result for value in values for result in function(value))
    return ((function(value), value) for value in values)


def _keyed(step: Step, component: Component) -> Give:
    key, emit_to = step.function, component.emit_to
    assert key is not None
    streams = [out.stream for out in step.outs]
    if streams == [DEFAULT_STREAM]:
        emit = component.emit
        return lambda value: emit(key(value), value)

    def emit_keyed(value: Any) -> None:
        found = key(value)
        for stream in streams:
            emit_to(stream, found, value)

    return emit_keyed


def _emit(out: Out, component: Component) -> Give:
    stream, emit_to = out.stream, component.emit_to
    if out.fields > 1:
        return lambda value: emit_to(stream, *value)
    if stream == DEFAULT_STREAM:
        return component.emit
    return lambda value: emit_to(stream, value)


class Planned(Component):
    """A component of a flow: gives elements to the steps that are chained to it.

    Attributes:
        plan: The steps; set where the flow is built.
    """

    plan: Plan
    _give: Give

    def prepare(self, context: TopologyContext) -> None:
        super().prepare(context)
        self._give = self.plan.compile(self)
