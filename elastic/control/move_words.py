"""Moves in words: how far their tasks are, what became of them, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from elastic.control import present
from elastic.model.views import MoveView, TaskMoveView
from elastic.model.words import counted, size

Row = Mapping[str, Any]
"""A move or a task of one as plain values: see `elastic.control.present`."""

_ORDER = (
    *("resumed", "restored", "saved", "paused", "prepared", "preparing", "waiting"),
    *("came back", "stayed", "started anew", "lost"),
)
_STILL = ("paused", "saved")
ANEW = ("lost", "started anew")
"""Phases of tasks that have not taken along what they had: see `TaskMoveView`."""


def step(task: TaskMoveView) -> str:
    """How far a task is, in a word. Nobody resumes sending to a spout: it has begun."""
    if task.came_back:
        return "came back"
    if task.phase == "committed":
        return "resumed" if {"resumed", "begun"} & task.times.keys() else "restored"
    if task.phase == "preparing" and "prepared" in task.times:
        return "prepared"
    return "stayed" if task.phase == "rolled back" else task.phase


def progress(moves: Sequence[MoveView], concerns: Callable[[TaskMoveView], bool] = lambda task: True) -> str:
    """How far each task of some moves is, in a line: `moving 5 tasks of wc: resumed 3; paused 4, 5; prepared 6-7`."""
    parts = []
    for name in dict.fromkeys(str(m.topology) for m in moves):
        tasks = {t.task: t for m in moves if m.topology == name for t in m.tasks if concerns(t)}
        parts.append(f"moving {counted(len(tasks), 'task')} of {name}: {steps(tuple(tasks.values()))}")
    return " | ".join(parts)


def steps(tasks: Iterable[TaskMoveView]) -> str:
    """How far each of some tasks is: `resumed 3; paused 4, 5`."""
    by: dict[str, list[int]] = {}
    for task in tasks:
        by.setdefault(step(task), []).append(task.task)
    return "; ".join(f"{word} {ranges(by[word])}" for word in _ORDER if word in by)


def ranges(numbers: Iterable[int]) -> str:
    """Task numbers, short: `3, 5-7`."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def milliseconds(seconds: float) -> str:
    """A pause, for people."""
    ms = 1000 * seconds
    return f"{ms:,.1f} ms" if ms < 100 else f"{ms:,.0f} ms"


def pause(tasks: Sequence[Row], told: float) -> str | None:
    """The longest of some tasks, as it was told of those that go on; of what stands still, for how long it has so far."""
    now = time.time()
    still = (t["times"].get("paused", now) for t in tasks if t["phase"] in _STILL)
    so_far = max((now - at for at in still), default=0.0)
    if so_far > told:
        return f"{milliseconds(so_far)} so far"
    return milliseconds(told) if told or any("resumed" in t["times"] for t in tasks) else None


def at_receivers(gap: float) -> str:
    """What is said of the longest gap beside the longest pause."""
    return f", at receivers {milliseconds(gap)}" if gap else ""


def outcome(move: Row) -> str:
    """What became of a move's tasks, in a few words; or how far it is."""
    return _outcome([move])


def _outcome(moves: Sequence[Row]) -> str:
    """What became of the tasks of some moves. What was tried more than once is one task; what it has lost stays lost, though it has
    moved since."""
    last: dict[tuple[str, int], str] = {}
    anew: dict[str, set[tuple[str, int]]] = {phase: set() for phase in ANEW}
    for m in sorted(moves, key=lambda m: (m["began"], m["epoch"])):
        for t in m["tasks"]:
            key, phase = (m["topology"], t["task"]), t["phase"]
            back = phase == "committed" and t["source"] == t["target"]
            last[key] = "came back" if back else phase
            if phase in anew:
                anew[phase].add(key)
    phases = list(last.values())
    moved = phases.count("committed")
    unhappy = (
        (phases.count("came back"), "came back"),
        (phases.count("rolled back"), "stayed"),
        (len(anew["started anew"] - anew["lost"]), "started anew"),
        (len(anew["lost"]), "lost their state"),
    )
    of = counted(moved, "task") if moved == len(last) else f"{moved} of {counted(len(last), 'task')}"
    return ", ".join([f"{of} moved", *(f"{n} {words}" for n, words in unhappy if n)])


def cost(moves: Sequence[Row]) -> str:
    """What moves did, in one sentence: tasks, the longest pause, bytes. What was tried more than once is one task."""
    longest = max((m["pause"] for m in moves), default=0.0)
    parts = [f"longest pause {milliseconds(longest)}"] if longest else []
    # Of a task that nobody says has resumed, the pause may only not be known.
    if not longest and all("resumed" in t["times"] for m in moves for t in m["tasks"]):
        parts = ["nobody had to wait"]
    if gap := max((m["gap"] for m in moves), default=0.0):
        parts.append(f"at receivers {milliseconds(gap)}")
    waited = f"; {', '.join(parts)}" if parts else ""
    return f"{_outcome(moves)}{waited}; {size(sum(m['size'] for m in moves))}"


def task_rows(moves: Sequence[MoveView]) -> list[dict[str, Any]]:
    """A row for each task of some moves: what `present` says of it, with its topology, its move and how far it is."""
    rows = []
    for move in moves:
        for task in move.tasks:
            word = "moved" if task.moved else step(task)
            of = {"topology": str(move.topology), "move": move.epoch}
            rows.append({**present.task_move(task), **of, "step": word})
    return rows
