"""Where the tuples of a stream go: for each grouping, a few lines of the generated `emit` and what they choose by."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any

from elastic.errors import ExecutionError
from elastic.model.grouping import GroupingKind
from elastic.model.words import counted
from elastic.worker.emitting.crossing import Out, Subscription
from elastic.worker.emitting.emits import BUILTINS, Emits, compiled, functions
from elastic.worker.shown import MADE, shown
from elastic.worker.tuples.batch import Stream
from elastic.worker.tuples.hashing import hash_values, task_index

if TYPE_CHECKING:
    from elastic.worker.emitting.outputs import Outputs

_SEVERAL = frozenset({GroupingKind.ALL, GroupingKind.CUSTOM})
"""Groupings that give a tuple to any number of tasks."""
MEMO_KEYS = 1 << 17
"""A key memo with more entries than this begins anew."""


class Routes:
    """Makes the functions of a task's streams.

    Args:
        outputs: Has the buffers; full ones are handed to it.
        emit_all: Emits many tuples on the stream that is named.
    """

    def __init__(self, outputs: Outputs, emit_all: Callable[[Iterable[Any], str], None]) -> None:
        self._outputs = outputs
        self._emit_all = emit_all

    def make(self, stream: Stream, consumers: Sequence[Subscription]) -> Emits:
        """Generate a stream's functions: the fields are parameters or what the loop assigns, each subscription a few lines of the body.

        A tuple is put into no buffer before all of them have been chosen: what cannot be routed for one consumer is emitted to none.
        """
        names = [f.name for f in stream.spec.fields]
        scope: dict[str, Any] = {
            **BUILTINS,
            "_T": stream.kind,
            "_full": self._outputs.full,
            "_limit": self._outputs.limit,
            "_misfit": self._misfit(stream),
            "_self": self._outputs,
            "_starmap": itertools.starmap,
        }
        subscriptions = [s for s in consumers if s.spec.grouping.kind != GroupingKind.DIRECT]
        make = f"_T({', '.join(names)})"
        body = [line for n, s in enumerate(subscriptions) for line in self._choice(s, n, names, scope)]
        if len(subscriptions) == 1 and subscriptions[0].spec.grouping.kind not in _SEVERAL:
            value = make
        else:
            body.append(f"_t = {make}")
            value = "_t"
        for n, s in enumerate(subscriptions):
            body += _put(s.spec.grouping.kind, n, value)
        if not subscriptions and consumers:
            scope["_refuse"] = self._for_direct(stream)
            body = ["_refuse()"]
        elif not subscriptions:
            body.append("_self.unrouted += 1")
        only = "_one0" if len(subscriptions) == 1 and "_one0" in scope else ""
        code = functions(str(stream.spec.id), names, body, only)
        exec(compiled(code, f"{MADE}{self._outputs.component.id}.{stream.spec.id}>"), scope)
        one: Callable[..., None] = scope["emit"]
        one.__doc__ = f"Emit a tuple ({', '.join(names)}) on stream {stream.spec.id!r} of {self._outputs.component.id!r}."
        # Python puts this name before what it says of a call that does not fit: no call costs more for that.
        one.__qualname__ = (
            f"stream {str(stream.spec.id)!r} of {str(self._outputs.component.id)!r} takes"
            f" {counted(len(names), 'value')} ({', '.join(names)}): emit"
        )
        scope["_emit"], scope["_other"] = one, self._emit_all
        return Emits(one, scope["emit_all"], scope["emit_each"])

    def _misfit(self, stream: Stream) -> Callable[[Iterable[Any]], None]:
        """Raises for the first of some values that is not as many as the stream has fields."""
        names = [f.name for f in stream.spec.fields]

        def refuse(values: Iterable[Any]) -> None:
            for value in values:
                if isinstance(value, Sized):
                    given = "" if len(value) == len(names) else str(len(value))
                else:  # what an iterator gave is gone
                    given = "" if isinstance(value, Iterable) else f"the value {shown(value)}"
                if given:
                    raise TypeError(
                        f"emit_all() takes {counted(len(names), 'value')} ({', '.join(names)}) for each tuple of stream {stream.spec.id!r} "
                        f"of {str(self._outputs.component.id)!r}, not {given}"
                    ) from None

        return refuse

    def _for_direct(self, stream: Stream) -> Callable[[], None]:
        """What is emitted on a stream that is subscribed to by direct grouping alone would go to nobody."""

        def refuse() -> None:
            raise ExecutionError(
                f"Stream {stream.spec.id!r} of {str(self._outputs.component.id)!r} is subscribed to by direct grouping alone: "
                "emit() names no task.",
                remedy="Use emit_direct(task, ...), or subscribe to it by another grouping as well.",
            )

        return refuse

    def _choice(self, s: Subscription, n: int, names: list[str], scope: dict[str, Any]) -> list[str]:
        """The lines that choose the buffer of the n-th subscription, `_r{n}`; its buffers, where the grouping is one of `_SEVERAL`."""
        kind, fields = s.spec.grouping.kind, s.spec.grouping.fields
        lists = [self._outputs.outs[t].rows for t in s.targets]
        if kind == GroupingKind.ALL:
            scope[f"_r{n}"] = lists
            return []
        if kind == GroupingKind.CUSTOM:
            scope[f"_choose{n}"] = self._custom(s)
            return [f"_r{n} = _choose{n}(({', '.join(names)},))"]
        if kind == GroupingKind.GLOBAL or len(lists) == 1:
            scope[f"_one{n}"] = lists[0]
            return [f"_r{n} = _one{n}"]
        if kind == GroupingKind.FIELDS:
            memo, miss = _memo(lists, len(fields))
            scope[f"_memo{n}"], scope[f"_miss{n}"] = memo, miss
            key = fields[0] if len(fields) == 1 else f"({', '.join(fields)})"
            # A key that cannot be hashed by Python is routed without the memo; one that has no stable hash raises from there.
            return [f"try: _r{n} = _memo{n}[{key}]", f"except _missing: _r{n} = _miss{n}({key})"]
        if kind == GroupingKind.PARTIAL_KEY:
            scope[f"_choose{n}"] = _partial(lists, len(fields))
            return [f"_r{n} = _choose{n}({', '.join(fields)})"]
        if kind == GroupingKind.LOCAL_OR_SHUFFLE:
            chooser = LocalFirst([self._outputs.outs[t] for t in s.targets], self._outputs.task)
            self._outputs.local_first.append(chooser)
            scope[f"_next{n}"] = chooser
            return [f"_r{n} = _step(_next{n}.turn)"]
        # Different tasks begin at different targets, so that the first tuples of all don't go to the same one.
        start = self._outputs.task % len(lists)
        scope[f"_next{n}"] = itertools.cycle(lists[start:] + lists[:start]).__next__
        return [f"_r{n} = _next{n}()"]

    def _custom(self, s: Subscription) -> Callable[[tuple[Any, ...]], list[list[Any]]]:
        grouping = s.custom
        if grouping is None:
            raise ExecutionError(
                f"The custom grouping {s.spec.grouping.name!r} of {str(s.consumer.id)!r} did not come with the code."
            )
        grouping.prepare(s.targets)
        rows = _Choosable(type(grouping).__name__, str(s.consumer.id))
        rows.update((t, self._outputs.outs[t].rows) for t in s.targets)

        def choose(values: tuple[Any, ...]) -> list[list[Any]]:
            chosen = grouping.choose(values)
            try:
                return [rows[t] for t in chosen]
            except TypeError as e:
                raise ExecutionError(
                    f"The custom grouping {type(grouping).__name__} chose {shown(chosen)}, which is no sequence of tasks.",
                    remedy="Return a list of tasks from `choose`, also of one, or of none.",
                ) from e

        return choose


class _Choosable(dict[int, list[Any]]):
    """The buffers that a custom grouping can choose, by task. A `KeyError` in its `choose` is none of these, and stays what it is."""

    def __init__(self, grouping: str, consumer: str) -> None:
        self._grouping = grouping
        self._consumer = consumer

    def __missing__(self, task: object) -> list[Any]:
        raise ExecutionError(
            f"The custom grouping {self._grouping} chose task {task!r}, which is not one of {self._consumer!r}.",
            remedy="Choose among the tasks that `prepare` is given.",
        )


def _put(kind: GroupingKind, n: int, value: str) -> list[str]:
    """The lines that put a tuple into what was chosen for the n-th subscription."""
    rows = "_r" if kind in _SEVERAL else f"_r{n}"
    lines = [f"{rows}.append({value})", f"if _len({rows}) >= _limit: _full({rows})"]
    return [f"for _r in _r{n}:", *("    " + line for line in lines)] if kind in _SEVERAL else lines


def _memo(lists: list[list[Any]], fields: int) -> tuple[dict[Any, list[Any]], Callable[[Any], list[Any]]]:
    memo: dict[Any, list[Any]] = {}

    def miss(key: Any) -> list[Any]:
        try:
            hashed = hash_values((key,) if fields == 1 else key)
        except Exception as e:
            raise e from None  # that it is not in the memo is nothing that the user could mend
        rows = lists[task_index(hashed, len(lists))]
        try:
            if len(memo) >= MEMO_KEYS:
                memo.clear()
            memo[key] = rows
        except TypeError:
            pass
        return rows

    return memo, miss


def _partial(lists: list[list[Any]], fields: int) -> Callable[..., list[Any]]:
    """The power of two choices: of the two tasks that a key hashes to, the one that this emitter has given less."""
    sent = [0] * len(lists)

    def choose(*key: Any) -> list[Any]:
        hashed = hash_values(key)
        a = task_index(hashed, len(lists))
        b = task_index(hash_values((hashed, 0x5BD1E995)), len(lists))
        if a == b:
            b = (a + 1) % len(lists)
        chosen = a if sent[a] <= sent[b] else b
        sent[chosen] += 1
        return lists[chosen]

    return choose


class LocalFirst:
    """Turns among the targets in this worker, or among all when there is none."""

    def __init__(self, outs: list[Out], start: int) -> None:
        self._outs = outs
        self._start = start
        self.turn = itertools.cycle([o.rows for o in outs])
        self.refresh()

    def refresh(self) -> None:
        here = [o.rows for o in self._outs if o.destination.local is not None] or [o.rows for o in self._outs]
        start = self._start % len(here)
        self.turn = itertools.cycle(here[start:] + here[:start])
