"""Bolts in other languages."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from elastic.api.components import Bolt, Outputs, StatefulBolt
from elastic.api.context import Source, TopologyContext
from elastic.errors import ExecutionError, TopologyError
from elastic.multilang import carried, messages
from elastic.multilang.child import Child, Lost, Silent
from elastic.multilang.shell import Shell

_NOBODY = Source("", "default", 0)
_HEARTBEAT = messages.tuple_of("0", messages.SYSTEM, messages.HEARTBEAT, messages.SYSTEM_TASK, ())
_TICKS = 100
"""So many ticks may be acknowledged later than the heartbeats after them."""


class Given(NamedTuple):
    """A tuple that the process has and has not answered."""

    source: Source
    values: tuple[Any, ...]


class ShellBolt(Shell, Bolt):
    """A bolt in another language, over Storm's multilang protocol: `ShellBolt(["node", "split.js"], Fields(word=str), files="resources")`.

    Each task has a process, which gets one tuple after the other. The next comes when it has answered with `ack` or `fail`, so nothing is
    under way in it when the task moves: it ends where it was, and another one starts at the new place. One that ends while it has a
    tuple costs that tuple, as does a `fail`: they count as errors of `execute` do. Another one gets the next.

    Args:
        command, outputs, files, env, timeout: As of `Shell`.
        acks: Whether it acknowledges. One that never does is asked after each tuple whether it lives, and has worked the tuple off when
            it says so.

    Raises:
        TopologyError: As `Shell`.
    """

    def __init__(
        self,
        command: Sequence[str],
        outputs: Outputs = None,
        *,
        files: carried.Given = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        acks: bool = True,
    ) -> None:
        super().__init__(command, outputs, files=files, env=env, timeout=timeout)
        self.acks = acks
        self._synced = not acks  # the answer to a heartbeat is one to the tuple before it

    def prepare(self, context: TopologyContext) -> None:
        self._given: dict[str, Given] = {}
        self._number = 0
        self._asked = ""  # the tuple, or tick, that it is at
        self._failed: str | None = None  # why it has failed that
        self._ticked: deque[str] = deque(maxlen=_TICKS)
        super().prepare(context)

    def execute(self, tup: Any) -> None:
        given = Given(self.context.source or _NOBODY, tuple(tup.values))
        self._give(self._ready_for(given), given)
        self._raise_failed()

    def tick(self) -> None:
        """It gets a tick tuple, as in Storm: of component `__system` and stream `__tick`."""
        child, id = self._ready(), self._new_id()
        tick = Given(Source(messages.SYSTEM, messages.TICK, messages.SYSTEM_TASK), (self._ticks(),))
        message = messages.tuple_of(id, *tick.source, tick.values)
        self._given[id] = tick
        try:
            self._ask(child, id, message, synced=True)  # who does not know ticks need not acknowledge them
        finally:
            self._given.pop(id, None)
            self._ticked.append(id)
        self._raise_failed()

    def finish(self) -> None:
        # What it emits later than its answers is taken with the next tuple, and there is none.
        if (self._ticked or not self.acks) and self._child is not None and self._child.living:
            try:
                self._ask(self._child, "", b"", synced=True)
            except ExecutionError as e:  # all tuples have been answered
                self.context.warn("shell-ended", str(e))
        self._raise_refused()

    def _raise_failed(self) -> None:
        """Raise what went wrong with what it was told last."""
        failed, self._failed = self._failed, None
        if failed is None:
            self._raise_refused()
            return
        self._refused = None
        raise ExecutionError(f"{self._who} failed a tuple{failed and ': ' + failed}.")

    def _new_id(self) -> str:
        self._number += 1
        return str(self._number)

    def _ready_for(self, given: Given) -> Child:
        """The process that is to get a tuple."""
        return self._ready()

    def _give(self, child: Child, given: Given) -> None:
        """Have the process work on a tuple, until it has answered. Raises ExecutionError: it is lost, and the tuple with it."""
        id = self._new_id()
        message = messages.tuple_of(id, *given.source, given.values)
        self._given[id] = given
        try:
            self._ask(child, id, message, synced=self._synced)
            self._check()
        except BaseException:
            self._given.pop(id, None)
            raise
        if not self.acks:
            self._given.pop(id, None)

    def _check(self) -> None:
        """It has answered. Raises ExecutionError: that is no answer."""

    def _ask(self, child: Child, id: str, message: bytes, *, synced: bool) -> None:
        """Tell it something and then send a heartbeat, and listen until it has answered both: what it emits after an `ack` comes before the
        answer to the heartbeat, so nothing of it is left in the pipe when the task moves.

        Args:
            id: Of what is told: `ack` and `fail` are answers to it.
            synced: It is enough that the heartbeat is answered.
        """
        self._asked, self._failed, self._reported = id, None, ""
        self._beats += 1
        beat, given = self._beats, self._given
        try:
            child.send(message + _HEARTBEAT)
            self._listen(lambda: self._alive >= beat and (synced or id not in given))
        except Silent:
            raise self._lost(self._silence(acknowledged=id not in given)) from None
        except Lost as e:
            raise self._lost(str(e)) from None
        finally:
            self._asked = ""

    def _silence(self, *, acknowledged: bool) -> str:
        """What is to be said of one that has not answered."""
        if self._alive >= self._beats:
            return (
                f"answers heartbeats, but has neither acknowledged nor failed a tuple for {self.timeout:g} s"
            )
        but = " the heartbeat after a tuple that it has answered" if acknowledged else ""
        return f"has not answered{but} for {self.timeout:g} s"

    def _on_start(self) -> None:
        self._beats = self._alive = 0  # heartbeats, and answers to them

    def _on_sync(self) -> None:
        self._alive = min(self._alive + 1, self._beats)  # there are libraries that say it after each tuple

    def _on_ack(self, id: object) -> None:
        if self._given.pop(str(id), None) is None and self.acks:
            self._stray("acknowledges", id)

    def _on_fail(self, id: object) -> None:
        if self._given.pop(str(id), None) is None:
            self._stray("fails", id)
        elif str(id) == self._asked:
            self._failed = self._reported
        else:
            self._tell_failed()

    def _tell_failed(self) -> None:
        self.context.warn("shell-failed", f"{self._who} failed a tuple that it had kept. {self._reported}")

    def _stray(self, does: str, id: object) -> None:
        if str(id) in self._ticked:  # it has answered the heartbeat sooner
            return
        self.context.warn(
            "shell-stray-answer",
            f"{self._who} {does} tuple {messages.shown(id)}, which it has answered, or was never given.",
        )


class ShellBatchBolt(ShellBolt, StatefulBolt):
    """A `ShellBolt` whose process keeps tuples and acknowledges them later, as one does that works on batches of them.

    It gets the next tuple when it has answered a heartbeat that follows the last one. What it has not acknowledged goes along when the
    task moves, or when it has ended, and is given to the next process again: in the order in which it came, before anything else.

    Args:
        command, outputs, files, env, timeout: As of `Shell`.
        most: Tuples that it may keep. One that keeps more is ended.

    Raises:
        TopologyError: As `Shell`.
    """

    def __init__(
        self,
        command: Sequence[str],
        outputs: Outputs = None,
        *,
        files: carried.Given = (),
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        most: int = 1000,
    ) -> None:
        super().__init__(command, outputs, files=files, env=env, timeout=timeout)
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise TopologyError(
                f"{type(self).__name__}: most is a number of tuples, at least 1, not {most!r}."
            )
        self.most = most
        self._synced = True

    def prepare(self, context: TopologyContext) -> None:
        self._again: list[Given] = []
        super().prepare(context)

    def get_state(self) -> object:
        return [*self._kept(), *self._again]

    def set_state(self, state: Any) -> None:
        self._again = [Given(Source(*source), tuple(values)) for source, values in state]

    def finish(self) -> None:
        if self._ticks() is not None:
            self.tick()
        if self._kept() or self._again:
            self._ready()
            try:
                self._listen(lambda: not self._kept())
            except Silent:
                self.context.warn(
                    "shell-kept",
                    f"{self._who} has not acknowledged {len(self._kept())} tuples at the end of all input.",
                )
            except Lost as e:
                raise self._lost(str(e)) from None
        super().finish()

    def _kept(self) -> list[Given]:
        return list(self._given.values())

    def _ready_for(self, given: Given) -> Child:
        try:
            return self._ready()
        except ExecutionError:  # it is of those that were kept: this one comes after them
            if len(self._again) < self.most:
                self._again.append(given)
            raise

    def _ready(self) -> Child:
        child = self._child
        if child is None or not child.living:
            self._again = [*self._kept(), *self._again]
            self._given.clear()
        child = super()._ready()
        while self._again:
            self._give(child, self._again.pop(0))  # first: one of which it dies is not given again
            if self._failed is not None:
                self._tell_failed()
        return child

    def _check(self) -> None:
        if len(self._given) > self.most:
            raise self._lost(f"keeps more than {self.most} tuples without acknowledging them")
