"""The part of the demonstration in which tasks move between nodes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from elastic.cluster.launcher import ClusterInfo
from elastic.control.client import Client
from elastic.errors import Refused
from elastic.model.views import MoveView, TaskMoveView

from .watch import Watch, placement

ROW = 4
"""How many tasks are told of in one line."""


class Moving:
    """Moves tasks, and tells of each how long it paused.

    Args:
        say: Tells a line of the story.
        patience: Seconds that any one step may take.
    """

    def __init__(self, info: ClusterInfo, watch: Watch, say: Callable[[str], None], patience: float) -> None:
        self._address = info.nimbus
        self._watch = watch
        self._say = say
        self._patience = patience

    def move(self, component: str) -> str:
        """Move the first executor of a component to another node on which the topology runs; returns that node."""
        watch = self._watch
        with Client(self._address) as client:
            detail = client.describe(watch.name)
            executor = next(e for e in detail.executors if e.component == component)
            node = next(str(w.node) for w in detail.workers if w.node != executor.node)
            self._say("")
            self._say(
                f"Moving {executor.id} from {executor.node} to {node}, with what it has counted, while it counts."
            )
            since = time.time()
            client.move(watch.name, executor.id, node, wait=self._patience)
            self._tell(client, since)
        return node

    def replace(self, node: str) -> None:
        """Add a node, and drain another one."""
        with Client(self._address) as client:
            self._say("")
            began = time.monotonic()
            self._say("Adding a node.")
            (new,) = client.add_nodes(1, wait=self._patience)
            self._say(f"{new} is there after {time.monotonic() - began:.1f} s.")
            self._say(f"Draining {node}: all its tasks move elsewhere, then it ends.")
            since, began = time.time(), time.monotonic()
            client.drain_node(node, wait=self._patience)
            self._tell(client, since)
            left = ", ".join(f"{n.id} ({n.kind})" for n in client.nodes() if n.alive)
            self._say(f"{node} is gone after {time.monotonic() - began:.1f} s. There are {left}.")

    def _tell(self, client: Client, since: float) -> None:
        """Tell of the moves that have begun since then, when they have ended.

        Raises:
            ConfigError: The text was at its end before.
            Refused: A task has not come where it was to go.
        """
        watch = self._watch

        def ended() -> bool:
            watch.not_over()
            made = {e.details["epoch"] for e in watch.since("move-began", since)}
            return bool(made) and made <= {e.details["epoch"] for e in watch.since("move-ended", since)}

        watch.wait("the end of the moves", ended, self._patience)
        moves = [m for m in client.moves(watch.name) if m.began >= since]
        for move in sorted(moves, key=lambda m: m.epoch):
            self._tell_of(move)
        detail = client.describe(watch.name)
        self._say(f"  {placement(detail)}")

    def _tell_of(self, move: MoveView) -> None:
        stayed = [t for t in move.tasks if t.phase != "committed"]
        if stayed:
            raise Refused(f"Task {stayed[0].task} has not moved: {stayed[0].phase}. {stayed[0].reason}")
        for first in range(0, len(move.tasks), ROW):
            self._say("  " + "   ".join(_pause(t) for t in move.tasks[first : first + ROW]))
        pauses = [1e3 * t.pause for t in move.tasks]
        size = sum(t.size for t in move.tasks)
        gaps = [1e3 * t.gap for t in move.tasks if t.gap]
        behind = f" Those behind them got nothing from one for {max(gaps):.0f} ms at most." if gaps else ""
        self._say(
            f"{len(move.tasks)} tasks moved, {size / 1024:,.0f} KiB in all; tuples for one were held for"
            f" {statistics.median(pauses):.0f} ms (median), {max(pauses):.0f} ms at most.{behind} The others went on."
        )


def _pause(task: TaskMoveView) -> str:
    return f"{task.component} {task.task}: {1e3 * task.pause:.0f} ms"
