"""What really happened, kept outside everything that is tested: which tuples were emitted, which were applied, by whom, in which order,
and which of them were in the memory of a process that died. The promises are checked against this as the run goes on.
"""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """A tuple: the `number`th of spout task `root`, having come by `path`; the `n`th that the path's last emitted to its target."""

    root: int
    number: int
    path: tuple[int, ...]
    n: int


class Broken(AssertionError):
    """A promise was broken."""


Fold = dict[int, tuple[int, int]]
"""A task's state: per emitting task how many tuples, and a hash over them in order."""


def fold(state: Fold, source: int, item: Item) -> None:
    """Apply a tuple to a state."""
    count, value = state.get(source, (0, 0))
    state[source] = (count + 1, hash((value, item.root, item.number, item.path)))


class Truth:
    """See the module."""

    def __init__(self) -> None:
        self.emitted: dict[tuple[int, int], int] = {}
        self.last: dict[tuple[int, int], int] = {}
        self.missing: set[tuple[int, int, int]] = set()
        self.tainted: set[tuple[int, int, int]] = set()
        self.states: dict[int, Fold] = {}
        self.ticks: dict[int, int] = {}  # what a task has applied since it began without state
        self.owner: dict[int, int] = {}
        self.may_restart: set[int] = set()
        # What a task had emitted to another one when it was started anew last.
        self.before: dict[tuple[int, int], int] = {}
        self.crashed: set[int] = set()
        self.items: dict[int, set[tuple[int, int, tuple[int, ...]]]] = {}
        self.roots: dict[int, int] = {}
        self.applied = 0
        self.lost_states = 0

    def emit_root(self, spout: int, number: int) -> None:
        """A spout emits its next tuple."""
        self.roots[spout] = max(self.roots.get(spout, 0), number)

    def emit(self, source: int, target: int, root: int, number: int, path: tuple[int, ...]) -> Item:
        n = self.emitted[source, target] = self.emitted.get((source, target), 0) + 1
        return Item(root, number, path, n)

    def apply(self, task: int, serial: int, source: int, item: Item) -> None:
        """A task's incarnation number `serial` has applied a tuple."""
        if serial < self.owner.get(task, 0):
            raise Broken(f"one owner: a superseded incarnation of task {task} applied {item}")
        self.owner[task] = serial
        key = (source, task)
        last = self.last.get(key, 0)
        if item.n <= last:
            what = "order" if (source, task, item.n) in self.missing else "no duplication"
            raise Broken(f"{what}: task {task} applied tuple {item.n} of task {source} after {last}: {item}")
        for n in range(last + 1, item.n):
            if (source, task, n) not in self.tainted:
                raise Broken(
                    f"no loss: task {task} applied tuple {item.n} of task {source} and not {n}, which was in no process that died"
                )
            self.missing.add((source, task, n))
        self.last[key] = item.n
        self.applied += 1
        fold(self.states.setdefault(task, {}), source, item)
        self.ticks[task] = self.ticks.get(task, 0) + 1
        self.items.setdefault(task, set()).add((item.root, item.number, item.path))

    def taint(self, source: int, target: int, *items: Item) -> None:
        """They were in the memory of a process that died: they may be lost, but not doubled."""
        self.tainted.update((source, target, item.n) for item in items)

    def of_an_ended_life(self, source: int, target: int, item: Item) -> bool:
        """Whether it was emitted before the emitting task was started anew, without its state."""
        return item.n <= self.before.get((source, target), 0)

    def owner_died(self, task: int) -> None:
        """The process that held its state has died."""
        self.may_restart.add(task)
        self.crashed.add(task)

    def start(self, task: int, serial: int) -> None:
        """It starts without state."""
        if task in self.owner and task not in self.may_restart:
            raise Broken(
                f"state: task {task} was started without its state, and nobody who held that has died"
            )
        self.lost_states += task in self.owner
        self.before.update({key: n for key, n in self.emitted.items() if key[0] == task})
        self.may_restart.discard(task)
        self.states[task], self.ticks[task] = {}, 0
        self.owner[task] = serial

    def restore(self, task: int, serial: int, state: Fold, ticks: int, number: int) -> None:
        """It goes on from what was restored: its state, what the framework holds beside that, and where a spout is."""
        found, wanted = (
            (state, ticks, number),
            (self.states.get(task, {}), self.ticks.get(task, 0), self.roots.get(task, 0)),
        )
        if found != wanted:
            raise Broken(f"state travels whole: task {task} has {found}, should have {wanted}")
        if serial < self.owner.get(task, 0):
            raise Broken(f"one owner: task {task} was begun by a superseded incarnation")
        self.may_restart.discard(task)
        self.owner[task] = serial

    def lost(self) -> set[tuple[int, int, int]]:
        """What was emitted and not applied: (source, target, n)."""
        ends = {
            (s, t, n)
            for (s, t), count in self.emitted.items()
            for n in range(self.last.get((s, t), 0) + 1, count + 1)
        }
        return self.missing | ends

    def at_the_end(self) -> None:
        """Everything that was emitted has been applied, but for what died."""
        for (source, target), count in self.emitted.items():
            for n in range(self.last.get((source, target), 0) + 1, count + 1):
                if (source, target, n) not in self.tainted:
                    raise Broken(
                        f"no loss: tuple {n} of {count} from task {source} to task {target} was never applied"
                    )
