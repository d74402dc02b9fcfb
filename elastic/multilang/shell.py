"""What `ShellBolt` and `ShellSpout` have in common: a process for the task, and how what it says is taken."""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from elastic.api.builder import output_specs
from elastic.api.components import Component, Outputs
from elastic.api.context import TopologyContext
from elastic.api.fields import type_of
from elastic.api.settings import setting
from elastic.errors import ExecutionError, TopologyError
from elastic.multilang import carried, messages
from elastic.multilang.child import Child, Lost, Silent

log = logging.getLogger("elastic.multilang")
_LONGEST = 8000
"""Characters of a text that a process has logged or reported."""
_MOST_METRICS = 100

Message = dict[str, Any]


class Shell(Component):
    """A component whose tasks are processes. Use `ShellBolt`, `ShellBatchBolt` or `ShellSpout`.

    Args:
        command: The program and its arguments. A program with a slash in its name is looked for in the working directory.
        outputs: As on the class of any component: `Fields(word=str)`, or by stream. What the process emits is converted to declared types.
        files: Files, and folders with all that is in them, that go along to wherever the tasks run: they are read when this is made, and
            the working directory has a copy. Without it the process runs in an empty directory.
        env: Variables over those of the worker.
        timeout: Seconds for which the process may say nothing while it is asked for something.

    Raises:
        TopologyError: These make no sense, or a file cannot be read.
    """

    def __init__(
        self,
        command: Sequence[str],
        outputs: Outputs = None,
        *,
        files: carried.Given = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        kind = type(self).__name__
        if isinstance(command, str) or not command or not all(isinstance(c, str) and c for c in command):
            raise TopologyError(
                f"{kind} takes a program and its arguments, not {command!r}.",
                remedy=f'{kind}(["node", "split.js"], Fields(word=str), files="resources")',
            )
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
            raise TopologyError(f"{kind}: timeout is a number of seconds, above 0, not {timeout!r}.")
        self.command = tuple(command)
        if outputs is not None:
            self.outputs = outputs  # type: ignore[misc]  # of this instance, where others have them on the class
        self.files = carried.read(files)
        self.env = {str(name): str(value) for name, value in (env or {}).items()}
        self.timeout = float(timeout)

    # ------------------------------------------------------------------ the process

    def prepare(self, context: TopologyContext) -> None:
        self._name = f"{context.component}/{context.task}"
        self._streams = {
            str(s.id): ([f.name for f in s.fields], tuple[*(type_of(f.type) for f in s.fields)])  # type: ignore[misc]
            for s in output_specs(self, context.component)
        }
        self._child: Child | None = None
        self._scratch: Path | None = None
        self._reported = ""  # the last error that it has told since it was asked
        self._refused: Exception | None = None  # the first emit since then that could not be
        self._start()

    def cleanup(self) -> None:
        self._end()

    def _start(self) -> None:
        """Start the process, and wait for its pid."""
        try:
            self._scratch = Path(tempfile.mkdtemp(prefix="elastic-shell-"))
            work, pids = self._scratch / "resources", self._scratch / "pids"
            work.mkdir()
            pids.mkdir()
            carried.write(self.files, work)
            self._child = child = Child(self.command, self.env, work, self._name)
        except OSError as e:
            self._end()
            raise ExecutionError(
                f"{self._who} cannot be started: {e}.",
                remedy="Its program has to be on each node, or in `files`.",
            ) from None
        self._on_start()
        try:
            child.send(messages.handshake(self.context, str(pids), self.timeout))
            until = time.monotonic() + self.timeout
            while True:
                message = child.receive(until)
                if "pid" in message:
                    break
                self._take(message)
        except (Lost, Silent) as e:
            raise self._lost(str(e) or f"has not told its pid for {self.timeout:g} s") from None
        except BaseException:
            self._end(0.0)
            raise
        log.info("%s has begun, pid %s", self._name, message["pid"])

    def _end(self, grace: float | None = None) -> None:
        """End the process, with what is on the disk for it."""
        child, self._child = self.__dict__.get("_child"), None
        if child is not None:
            child.end() if grace is None else child.end(grace)
        scratch, self._scratch = self.__dict__.get("_scratch"), None
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)

    def _ready(self) -> Child:
        """The process. One that has ended since it was last asked has another in its place, to which nothing was given yet."""
        child = self._child
        if child is not None and not child.living:
            error = self._lost(f"ended with exit code {child.exit_code} while it was asked for nothing")
            self.context.warn("shell-ended", f"{error.message}\n  Another one is started.")
        if self._child is None:
            self._start()
        assert self._child is not None
        return self._child

    @property
    def _who(self) -> str:
        """Whose process it is, to begin a sentence."""
        c = self.context
        return f"The process of {c.component!r} (task {c.task}, {' '.join(self.command)!r})"

    def _lost(self, why: str) -> ExecutionError:
        """It is of no more use: end it. Returns what there is to say."""
        child = self._child
        assert child is not None
        self._end(0.0)
        lines = child.last_lines()
        said = f" It reported: {self._reported}." if self._reported else ""
        self._reported, self._refused = "", None
        written = "".join(f"\n    {line}" for line in lines)
        return ExecutionError(
            f"{self._who} {why}.{said}" + (f"\n  The last that it wrote to stderr:{written}" if lines else "")
        )

    # ------------------------------------------------------------------ what it says

    def _listen(self, answered: Callable[[], bool], timeout: float | None = None) -> None:
        """Take what the process says, until that is so.

        Args:
            timeout: Seconds for which it may say nothing.

        Raises:
            Silent: It was so for too long.
            Lost: It has ended, or says what nobody understands.
        """
        child, limit = self._child, self.timeout if timeout is None else timeout
        assert child is not None
        heard = time.monotonic()
        while not answered():
            message = child.receive(heard + limit)
            self._take(message)
            heard = time.monotonic()  # after waiting for room for what it has emitted

    def _raise_refused(self) -> None:
        """Raise the first error of what it has emitted since it was asked."""
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    def _take(self, message: Message) -> None:
        command = message.get("command")
        if command == "emit":
            self._take_emit(message)
        elif command == "sync":
            self._on_sync()
        elif command == "ack":
            self._on_ack(message.get("id"))
        elif command == "fail":
            self._on_fail(message.get("id"))
        elif command == "log":
            level = message.get("level", 2)
            known = isinstance(level, int) and 0 <= level < len(messages.LEVELS)
            log.log(messages.LEVELS[level] if known else logging.INFO, "%s: %s", self._name, _text(message))
        elif command == "error":
            self._reported = _text(message)
            self.context.warn("shell-error", f"{self._who} reports: {self._reported}")
        elif command == "metrics":
            self._take_metric(message)
        else:
            raise Lost(f"wrote {messages.shown(message)}, which is no command")

    def _take_emit(self, message: Message) -> None:
        task, stream = message.get("task"), message.get("stream") or "default"
        told: list[int] = []
        try:
            values = self._values(stream, message.get("tuple"))
            if task:
                self.emit_direct(task, *values, stream=stream)
            elif stream == "default":
                self.emit(*values)
            else:
                self.emit_to(stream, *values)
            if not task and message.get("need_task_ids", True):
                told = messages.known_targets(
                    self.context, stream, dict(zip(self._streams[stream][0], values, strict=True))
                )
            self._on_emit(message, taken=True)
        except Lost:
            raise
        except Exception as e:  # noqa: BLE001 - the tuple is to blame, as where Python emits it; the process waits for an answer
            self._refused = self._refused or e
            self._on_emit(message, taken=False)
        if not task and message.get("need_task_ids", True) and self._child is not None:
            self._child.send(messages.encode(told))

    def _values(self, stream: object, given: object) -> tuple[Any, ...]:
        if stream not in self._streams:
            declared = ", ".join(self._streams) or "none"
            raise ExecutionError(
                f"{self._who} emits on stream {stream!r}, which is not declared (declared: {declared}).",
                remedy="Declare it in `outputs`.",
            )
        names, kind = self._streams[stream]
        if not isinstance(given, list) or len(given) != len(names):
            raise ExecutionError(
                f"{self._who} emits {messages.shown(given)} on stream {stream!r}, which takes a list of {len(names)} values"
                f" ({', '.join(names)})."
            )
        try:
            values: tuple[Any, ...] = msgspec.convert(given, kind)
        except msgspec.ValidationError as e:
            raise ExecutionError(
                f"{self._who} emits {messages.shown(given)} on stream {stream!r}, whose fields are {', '.join(names)}: {e}."
            ) from None
        return values

    def _take_metric(self, message: Message) -> None:
        """As Storm's metric that counts: by one, or by what is given."""
        name, by = message.get("name"), message.get("params")
        by = 1 if by is None else by
        metrics = self.context.metrics
        if (
            isinstance(name, str)
            and isinstance(by, int)
            and by >= 0
            and (name in metrics or len(metrics) < _MOST_METRICS)
        ):
            with contextlib.suppress(ValueError, TypeError):  # a name that is elastic's own
                self.context.counter(name).inc(by)
                return
        self.context.warn("shell-metric", f"{self._who} counts what cannot be: {messages.shown(message)}")

    def _on_start(self) -> None:
        """There is another process."""

    def _on_sync(self) -> None:
        """It has told all that it was asked for; or it answers a heartbeat."""

    def _on_ack(self, id: object) -> None:
        raise Lost(f"acknowledges tuple {id!r}, and was given none")

    def _on_fail(self, id: object) -> None:
        raise Lost(f"fails tuple {id!r}, and was given none")

    def _on_emit(self, message: Message, *, taken: bool) -> None:
        """It has emitted something, which was taken or could not be."""

    def _ticks(self) -> float | None:
        seconds: float | None = setting("tick_interval", self.context.config)
        return seconds


def _text(message: Message) -> str:
    text = str(message.get("msg", ""))
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
