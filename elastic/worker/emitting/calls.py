"""What a component calls to emit: the functions made for its task's streams, and those that find one of these by its name.

`emit` is the hottest line of the system, so it is generated for each stream: one function that makes the tuple, finds the
buffer of its target (memoised for groupings by key) and appends. Counting, positions and sending happen once a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elastic.errors import ExecutionError, NotFound
from elastic.model.grouping import GroupingKind
from elastic.model.words import counted
from elastic.worker.emitting.crossing import Subscription
from elastic.worker.emitting.division import Division
from elastic.worker.emitting.routes import Routes
from elastic.worker.emitting.stack import need_stack
from elastic.worker.tuples.batch import Stream

if TYPE_CHECKING:
    from elastic.worker.emitting.outputs import Outputs


class Calls:
    """Of one task.

    Args:
        outputs: Has the buffers; full ones are handed to it.
        subscriptions: Who gets what, by stream.

    Attributes:
        emits: The generated functions by the stream's name; see `Emits`.
        emits_all: The same for many tuples.
        emits_each: The same for a generator's values.
    """

    def __init__(self, outputs: Outputs, subscriptions: Mapping[Stream, Sequence[Subscription]]) -> None:
        self._outputs = outputs
        self._subscriptions = {str(s.spec.id): (s, consumers) for s, consumers in subscriptions.items()}
        routes = Routes(outputs, self.emit_all)
        made = {name: routes.make(*of) for name, of in self._subscriptions.items()}
        self.emits = {name: one.emit for name, one in made.items()}
        self.emits_all = {name: one.emit_all for name, one in made.items()}
        self.emits_each = {name: one.emit_each for name, one in made.items()}
        self._division = Division(outputs.task, str(outputs.component.id), outputs.outs)

    def emit_to(self, stream: str, *values: Any) -> None:
        """Emit on a named stream."""
        emit = self.emits.get(stream)
        if emit is None:
            raise self._no_stream(stream)
        emit(*values)

    def emit_all(self, values: Iterable[Any], stream: str = "default") -> None:
        """Emit many tuples on a stream."""
        emit = self.emits_all.get(stream)
        if emit is None:
            raise self._no_stream(stream)
        emit(values)

    def emit_direct(self, task: int, *values: Any, stream: str = "default") -> None:
        """Emit to one task."""
        found, subscriptions = self._found(stream)
        for s in subscriptions:
            if s.spec.grouping.kind == GroupingKind.DIRECT and task in s.targets:
                if len(values) != len(fields := found.spec.fields):
                    names = ", ".join(f.name for f in fields)
                    raise TypeError(
                        f"emit_direct() takes {counted(len(fields), 'value')} ({names}) after the task, not {len(values)}"
                    )
                rows = self._outputs.outs[task].rows
                rows.append(found.kind(*values))
                if len(rows) >= self._outputs.limit:
                    self._outputs.full(rows)
                return
        raise NotFound(
            f"Task {task} does not take tuples of stream {stream!r} of {str(self._outputs.component.id)!r} by direct grouping.",
            remedy="Use a number from context.tasks_of(consumer), and subscribe the consumer with .direct(...).",
        )

    def emit_batch(self, record: Any, stream: str = "default") -> None:
        """Emit the rows of an Arrow record batch: to all consumers, or, where it cannot be divided for one of them, to none."""
        from elastic.worker.tuples import vector

        found, subscriptions = self._found(stream)
        need_stack()
        record = vector.check_record(record, found.spec)
        if not record.num_rows:
            return
        if not subscriptions:
            self._outputs.unrouted += record.num_rows
        elif self._outputs.on_another_thread():
            raise self._outputs.not_its_thread()
        self._outputs.send_parts(
            found, [part for s in subscriptions for part in self._division.of(s, record)]
        )

    def _found(self, stream: str) -> tuple[Stream, Sequence[Subscription]]:
        try:
            return self._subscriptions[stream]
        except (KeyError, TypeError):
            raise self._no_stream(stream) from None

    def _no_stream(self, stream: str) -> ExecutionError:
        names = ", ".join(sorted(self.emits)) or "none"
        return ExecutionError(
            f"Component {str(self._outputs.component.id)!r} emits on stream {stream!r}, which it does not declare (declared: {names}).",
            remedy="Declare it in `outputs` on the class.",
        )
