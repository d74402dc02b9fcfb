"""How a task of a worker is put together: its component, context, hooks, outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from elastic.api.context import TopologyContext
from elastic.api.settings import setting
from elastic.model.ids import ComponentId, WorkerId
from elastic.model.topology import TopologySpec
from elastic.worker.emitting.crossing import Crossing, Subscription
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.emitting.ways import Ways
from elastic.worker.executing.components import ComponentSource
from elastic.worker.executing.failures import Failures
from elastic.worker.executing.task import Task
from elastic.worker.executing.user_calls import UserCalls
from elastic.worker.executing.wiring import TaskListener
from elastic.worker.tuples.batch import Streams


def config_of(spec: TopologySpec, component: ComponentId) -> dict[str, Any]:
    """The settings of a component: its own before those of the topology."""
    return {**spec.config, **spec.component(component).config}


class TaskMaker:
    """See the module. What it makes runs nowhere yet.

    Args:
        calls: Where it is noted as long as a task is being made: a custom grouping's `prepare`, what makes hooks, and a component's
            `__setstate__` are user code.
    """

    def __init__(
        self,
        spec: TopologySpec,
        worker: WorkerId,
        streams: Streams,
        components: ComponentSource,
        ways: Ways,
        crossing: Crossing,
        listener: TaskListener,
        calls: UserCalls,
    ) -> None:
        self._spec = spec
        self._worker = worker
        self._streams = streams
        self._components = components
        self._ways = ways
        self._crossing = crossing
        self._listener = listener
        self._calls = calls

    def make(self, number: int, component: ComponentId) -> Task:
        """A new task. Raises what user code raises."""
        with self._calls.to("make", number, component):
            return self._make(number, component)

    def _make(self, number: int, component: ComponentId) -> Task:
        spec = self._spec.component(component)
        config = config_of(self._spec, component)
        context = TopologyContext(self._spec, component, number, self._worker, config)
        hooks = list(self._components.hooks(component))
        on_emit: Callable[[str, int], None] | None = None
        failures: list[Failures] = []  # what is told of here: the task is made later, and is not kept by this
        if hooks:

            def tell(stream: str, count: int) -> None:
                for hook in hooks:
                    try:
                        hook.on_emit(context, stream, count)
                    except Exception as e:
                        failures[0].hook_failed("on_emit", e)

            def on_emit(stream: str, count: int) -> None:
                failures[0].watched(functools.partial(tell, stream, count))

        def room() -> None:
            self._ways.signal(number)
            self._crossing.room(number)

        outputs = Outputs(
            number,
            spec,
            self._streams,
            self._subscriptions(component),
            self._ways.to,
            setting("batch_rows", config),
            self._crossing,
            on_emit,
        )
        task = Task(
            number,
            spec,
            self._components.component(component),
            context,
            outputs,
            frozenset(t for i in spec.inputs for t in self._spec.tasks_of(i.source)),
            hooks,
            self._listener,
            room,
            config,
        )
        failures.append(task.failures)
        outputs.on_unsendable = task.failures.unsendable
        return task

    def _subscriptions(self, component: ComponentId) -> dict[Any, list[Subscription]]:
        """Who gets what of it, by stream."""
        named = self._streams.named
        found: dict[Any, list[Subscription]] = {
            named(component, s.id): [] for s in self._spec.component(component).outputs
        }
        for consumer, i in self._spec.consumers(component):
            n = consumer.inputs.index(i)
            found[named(component, i.stream)].append(
                Subscription(
                    consumer,
                    n,
                    i,
                    self._spec.tasks_of(consumer.id),
                    self._components.grouping(consumer.id, n),
                )
            )
        return found
