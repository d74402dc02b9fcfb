"""Spouts in other languages."""

from __future__ import annotations

from collections import deque
from typing import Any

from elastic.api.components import Spout
from elastic.api.context import TopologyContext
from elastic.multilang import messages
from elastic.multilang.child import Lost, Silent
from elastic.multilang.shell import Message, Shell

_PATIENCE = 5.0
"""Seconds for the answer to `activate` and `deactivate`, which not every library knows."""
_MOST = 100_000
"""Tuples with an id that one answer may have."""


class ShellSpout(Shell, Spout):
    """A spout in another language, over Storm's multilang protocol: `ShellSpout(["node", "read.js"], Fields(line=str), files="resources")`.

    Each task has a process, which is asked with `next` and answers with what it emits, and `sync`. What it emits with an id is
    acknowledged at once, as Storm does where a topology has no ackers: it has been taken, and is not waited for. When the process ends
    with exit code 0 and has reported no error, there is nothing more to come.

    Where its task moves to another process starts, which begins as it does.

    Args:
        command, outputs, files, env, timeout: As of `Shell`.

    Raises:
        TopologyError: As `Shell`.
    """

    def prepare(self, context: TopologyContext) -> None:
        self._answers: deque[tuple[str, Any]] = deque()  # to what it has emitted: `ack` or `fail`, and the id
        self._synced = False
        self._deaf = False  # it does not answer to `activate`
        super().prepare(context)
        try:
            self._tell("activate")
        except BaseException:  # who is not prepared is not cleaned up
            self._end(0.0)
            raise

    def next_tuple(self) -> float | None:
        if self._child is None:
            self._ready()
            self._tell("activate")
            if self._child is None:
                return None
        self._reported = ""
        try:
            self._ask({"command": "next"})
            for _ in range(len(self._answers)):
                answer, id = self._answers.popleft()
                self._ask({"command": answer, "id": id})
        except Silent:
            raise self._lost(f"has not answered for {self.timeout:g} s") from None
        except Lost as e:
            self._come_to_its_end(e)
        self._raise_refused()
        return None

    def activate(self) -> None:
        self._tell("activate")

    def deactivate(self) -> None:
        self._tell("deactivate")

    def _tell(self, command: str) -> None:
        if self._child is None or self._deaf:
            return
        try:
            self._ask({"command": command}, min(_PATIENCE, self.timeout))
        except Silent:
            self._deaf = True
            self.context.warn(
                "shell-deaf",
                f"{self._who} does not answer {command!r}, and is told no more when the topology is activated or deactivated.",
            )
        except Lost as e:
            self._come_to_its_end(e)
        self._raise_refused()

    def _come_to_its_end(self, error: Lost) -> None:
        """It has no more to say. Raises ExecutionError: that was no orderly end."""
        if self._child is None or self._child.exit_code != 0 or self._reported:
            raise self._lost(str(error)) from None
        self._end()
        self.exhausted()

    def _ask(self, message: Message, timeout: float | None = None) -> None:
        assert self._child is not None
        self._synced = False
        self._child.send(messages.encode(message))
        self._listen(lambda: self._synced, timeout)

    def _on_start(self) -> None:
        self._answers.clear()

    def _on_sync(self) -> None:
        self._synced = True

    def _on_emit(self, message: Message, *, taken: bool) -> None:
        id = message.get("id")
        if id is None:
            return
        if len(self._answers) >= _MOST:
            raise Lost(f"emits more than {_MOST:,} tuples with an id without an end")
        self._answers.append(("ack" if taken else "fail", id))
