"""What is said to a process and what it says, as JSON; and the place of a task in its topology, as Storm describes it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from elastic.api.context import TopologyContext
from elastic.errors import ExecutionError
from elastic.model.grouping import Grouping, GroupingKind

HEARTBEAT, TICK = "__heartbeat", "__tick"
SYSTEM, SYSTEM_TASK = "__system", -1
LEVELS = (5, 10, 20, 30, 40)
"""Of logging, by Storm's: trace, debug, info, warn, error."""
_SHOWN = 200
_TYPES = {
    GroupingKind.FIELDS: "FIELDS",
    GroupingKind.SHUFFLE: "SHUFFLE",
    GroupingKind.ALL: "ALL",
    GroupingKind.GLOBAL: "GLOBAL",
    GroupingKind.NONE: "NONE",
    GroupingKind.DIRECT: "DIRECT",
    GroupingKind.LOCAL_OR_SHUFFLE: "LOCAL_OR_SHUFFLE",
    GroupingKind.PARTIAL_KEY: "CUSTOM_SERIALIZED",
    GroupingKind.CUSTOM: "CUSTOM_SERIALIZED",
}


class NotAMessage(Exception):
    """A process wrote what the protocol does not know. Says what."""


def encode(message: object) -> bytes:
    """A message with the line that ends it.

    Raises:
        ExecutionError: A value of it has no form in JSON.
    """
    try:
        return msgspec.json.encode(message) + b"\nend\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as e:
        raise ExecutionError(
            f"A tuple cannot be written as JSON for a process: {e}.",
            remedy="Emit text, numbers, booleans, None, times, or lists and dictionaries of these.",
        ) from e


def decode(data: bytes) -> dict[str, Any]:
    """What a process wrote before a line `end`.

    Raises:
        NotAMessage: It is no JSON object.
    """
    try:
        message = msgspec.json.decode(data)
    except msgspec.DecodeError:
        try:
            message = json.loads(data)  # this one takes NaN, which Python's own writes
        except (ValueError, RecursionError):
            raise NotAMessage(f"wrote {shown(data)}, which is no JSON") from None
    except RecursionError:
        raise NotAMessage(f"wrote {shown(data)}, which is nested too deeply") from None
    if not isinstance(message, dict):
        raise NotAMessage(f"wrote {shown(data)}, which is no message")
    return message


def shown(data: object) -> str:
    """What was written, cut, for people."""
    text = repr(data.decode("utf-8", "replace") if isinstance(data, bytes | bytearray) else data)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def tuple_of(id: str, component: str, stream: str, task: int, values: Sequence[Any]) -> bytes:
    """A tuple for a bolt. Raises as `encode`."""
    return encode({"id": id, "comp": component, "stream": stream, "task": task, "tuple": values})


def handshake(context: TopologyContext, pids: str, timeout: float) -> bytes:
    """The first message: settings, the directory for the file that is named by the pid, and the task's place.

    Args:
        timeout: Seconds in which the process has to answer.
    """
    spec = context._spec
    own = spec.component(context.component)  # type: ignore[arg-type]
    conf = {
        **context.config,
        "topology.name": context.topology,
        "topology.workers": spec.workers,
        "topology.debug": False,
        "topology.acker.executors": 0,
        "topology.message.timeout.secs": 30,
        "topology.subprocess.timeout.secs": timeout,
        "topology.tick.tuple.freq.secs": context.config.get("tick_interval"),
    }
    targets: dict[str, dict[str, object]] = {}
    for consumer, given in spec.consumers(own.id):
        targets.setdefault(given.stream, {})[consumer.id] = _grouping(given.grouping)
    sources: dict[str, dict[str, object]] = {}
    fields: dict[str, dict[str, list[str]]] = {}
    for taken in own.inputs:
        sources.setdefault(taken.source, {})[taken.stream] = _grouping(taken.grouping)
        output = spec.component(taken.source).output(taken.stream)
        if output is not None:
            fields.setdefault(taken.source, {})[taken.stream] = [f.name for f in output.fields]
    place = {
        "task->component": {str(t): str(c.id) for c in spec.components for t in spec.tasks_of(c.id)},
        "taskid": context.task,
        "componentid": context.component,
        "streams": [str(s.id) for s in own.outputs],
        "stream->outputfields": {str(s.id): [f.name for f in s.fields] for s in own.outputs},
        "stream->target->grouping": targets,
        "source->stream->grouping": sources,
        "source->stream->fields": fields,
    }
    return encode({"conf": conf, "pidDir": pids, "context": place})


def _grouping(grouping: Grouping) -> dict[str, object]:
    made: dict[str, object] = {"type": _TYPES[grouping.kind]}
    if grouping.kind in (GroupingKind.FIELDS, GroupingKind.PARTIAL_KEY):
        made["fields"] = list(grouping.fields)
    return made


def known_targets(context: TopologyContext, stream: str, values: Mapping[str, Any]) -> list[int]:
    """The tasks that get a tuple, as far as the grouping alone says which: where tasks take turns, or user code chooses, none is named.

    Args:
        values: The tuple's, by field.
    """
    from elastic.worker.tuples.hashing import hash_values, task_index

    found: list[int] = []
    spec = context._spec
    for consumer, given in spec.consumers(context.component):  # type: ignore[arg-type]
        kind, tasks = given.grouping.kind, spec.tasks_of(consumer.id)
        if given.stream != stream or kind in (GroupingKind.DIRECT, GroupingKind.CUSTOM):
            continue
        if kind == GroupingKind.ALL:
            found += tasks
        elif kind == GroupingKind.GLOBAL or len(tasks) == 1:
            found.append(tasks[0])
        elif kind == GroupingKind.FIELDS:
            key = tuple(values[f] for f in given.grouping.fields)
            found.append(tasks[task_index(hash_values(key), len(tasks))])
    return found
