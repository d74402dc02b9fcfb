"""Moves followed while a request that causes them is under way: how far each task is, and at the end what it cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import click

from elastic.control.cli import output, present
from elastic.control.cli.narration import Waiting, leaving
from elastic.control.cli.output import Column, Row
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.errors import ElasticError, NotFound, Refused, Unavailable
from elastic.model import whys
from elastic.model.events import Event
from elastic.model.views import PLANNED, MoveView, TaskMoveView
from elastic.model.words import counted

SETTLE = 6.0
"""Seconds that the last words of moves are waited for: Nimbus itself waits for those of workers (its option move_linger)."""

_ORDER = (
    *("resumed", "restored", "saved", "paused", "prepared", "preparing", "waiting"),
    *("came back", "stayed", "started anew", "lost"),
)
_ASKED_EACH = 0.2
_STILL = ("paused", "saved")
ANEW = ("lost", "started anew")
"""Phases of tasks that have not taken along what they had: see `TaskMoveView`."""
NAMED = 5
"""Tasks that an error names; the others are counted."""
_TOLD = 10
"""Attempts that came to nothing of which a request tells while it goes on."""
Key = tuple[str, int, float]


class Request:
    """How far a request that moves tasks has come: what is true when it is interrupted.

    Args:
        goes_on: What is so once Nimbus has taken it up, and what shows it.
        look: What shows whether Nimbus has.
    """

    def __init__(self, goes_on: str, look: str) -> None:
        self._goes_on, self._look = goes_on, look
        self._asked = self._taken = self._done = False

    def asked(self) -> None:
        """It is being sent."""
        self._asked = True

    def taken(self) -> None:
        """Nimbus has taken it up."""
        self._taken = True

    @property
    def is_taken(self) -> bool:
        """Whether it is known that Nimbus has."""
        return self._taken

    def done(self) -> None:
        """It is carried out."""
        self._done = True

    @contextmanager
    def told(self) -> Iterator[None]:
        """Around it: Ctrl-C, and an error by which Nimbus or what it needs is out of reach for now, say what they leave."""
        with leaving(self.left):
            try:
                yield
            except Unavailable as error:
                if self._taken:
                    error.add_note(self.left())
                raise

    def left(self) -> str:
        """What an interruption leaves."""
        if not self._asked:
            return "nothing was asked for yet."
        if self._done:
            return "it is done; only what it cost was still waited for."
        return (
            self._goes_on
            if self._taken
            else f"it is not known whether Nimbus took it up; {self._look} tells."
        )


class _Beside:
    """Follows something on a thread and a connection of its own, for as long as it is entered.

    When it cannot be followed any more, the request goes on; when it cannot be asked for at first, which is as the request itself would be,
    entering raises.
    """

    def __init__(self, settings: Settings, waiting: Waiting, name: str) -> None:
        self._settings, self._waiting = settings, waiting
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._client = self._settings.connect()
        self._client.on_lost(self._waiting.lost)
        try:
            self._begin(self._client)
        except BaseException:
            self._client.close()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._client is not None
        self._client.close()
        self._thread.join()

    def _run(self) -> None:
        assert self._client is not None
        with suppress(ElasticError):
            self._follow(self._client)

    def _begin(self, client: Client) -> None:
        """What is there already. Raises: ElasticError."""
        raise NotImplementedError

    def _follow(self, client: Client) -> None:
        """Until the connection is closed. On the thread; may raise ElasticError."""
        raise NotImplementedError


class Following(_Beside):
    """Follows moves, and has `waiting` say how far they are. Moves that had ended before are left out.

    Args:
        topology: Whose moves; "" for all.
        concerns: Which tasks of them count; by default all.
        ours: Whether a move is one that the request is known to have caused; by default each is.
        request: Told when such a move is seen. It is said then, too, what could not be moved, and why.
    """

    def __init__(
        self,
        settings: Settings,
        topology: str,
        waiting: Waiting,
        *,
        concerns: Callable[[TaskMoveView], bool] = lambda task: True,
        ours: Callable[[MoveView], bool] = lambda move: True,
        request: Request | None = None,
    ) -> None:
        super().__init__(settings, waiting, "moves")
        self._ours, self._request = ours, request
        self._topology, self._concerns = topology, concerns
        self._changed = threading.Condition()
        self._before: set[Key] = set()
        self._moves: dict[Key, MoveView] = {}
        self._over = False
        self._told: set[tuple[str, int, str]] = set()

    def settle(self, client: Client) -> tuple[MoveView, ...]:
        """Wait until what the request has caused has ended, and its last measurements are there; not for long.

        Returns:
            Those moves, oldest first. Where none is known to be the request's: those of which it is not known for whom they are.
        """

        def caused() -> tuple[MoveView, ...]:
            found = self.moves()
            ours = tuple(m for m in found if self._ours(m))
            return ours or tuple(m for m in found if whys.is_cut(m.why))

        self._await_ends(client, caused)
        return caused()

    def moves(self) -> tuple[MoveView, ...]:
        """What has been seen of moves that had not ended when this began; oldest first."""
        with self._changed:
            found = [m for m in self._moves.values() if any(map(self._concerns, m.tasks))]
        return tuple(sorted(found, key=lambda m: (m.began, m.topology, m.epoch)))

    def over(self, client: Client) -> tuple[MoveView, ...]:
        """Those of `moves` that the request has caused, and in which every task has its outcome by now; their last measurements are
        waited for, not for long."""

        def caused() -> tuple[MoveView, ...]:
            return tuple(m for m in self.moves() if m.state in ("closing", "ended") and self._ours(m))

        self._await_ends(client, caused)
        return caused()

    def _await_ends(self, client: Client, some: Callable[[], Sequence[MoveView]]) -> None:
        """Wait until these have ended, for `SETTLE` at most; when they cannot be followed any more, by asking."""

        def ended() -> bool:
            return all(m.state == "ended" for m in some())

        until = time.monotonic() + SETTLE
        self._look(client)
        with self._changed:
            self._changed.wait_for(lambda: self._over or ended(), SETTLE)
            over = self._over
        while over:
            self._look(client)
            if ended() or time.monotonic() >= until:
                return
            time.sleep(_ASKED_EACH)

    def wait_until(self, client: Client, true: Callable[[Sequence[MoveView]], bool], timeout: float) -> bool:
        """Wait until it is so of `moves`; when they cannot be followed any more, by asking. False when it is not in time."""
        until = time.monotonic() + timeout
        with self._changed:
            self._changed.wait_for(lambda: self._over or true(self.moves()), timeout)
        while not true(self.moves()):
            if time.monotonic() >= until:
                return False
            time.sleep(_ASKED_EACH)
            self._look(client)
        return True

    def _begin(self, client: Client) -> None:
        found = client.moves(self._topology, tasks=False)
        self._before = {_key(m) for m in found if m.state == "ended"}

    def _look(self, client: Client) -> None:
        """Ask for the moves that are followed, one by one: with their tasks, all that are kept may be more than an answer holds."""
        with self._changed:
            over = self._before | {key for key, m in self._moves.items() if m.state == "ended"}
        for move in client.moves(self._topology, tasks=False):
            if move.state != PLANNED and _key(move) not in over:
                with suppress(NotFound):  # its topology has just gone
                    self._take(client.moves(str(move.topology), epoch=move.epoch))

    def _follow(self, client: Client) -> None:
        try:
            for changed in client.follow_moves(self._topology):
                self._take(changed)
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def _take(self, changed: Iterable[MoveView]) -> None:
        with self._changed:
            for move in changed:
                known = self._moves.get(_key(move))
                if move.state == PLANNED or _key(move) in self._before:
                    continue
                if known is None or known.state != "ended":
                    self._moves[_key(move)] = move
            self._changed.notify_all()
        seen = self.moves()
        if self._request is not None:
            if any(map(self._ours, seen)):
                self._request.taken()
            self._tell_stayed(seen)
        under_way = [m for m in seen if m.state != "ended"]
        if ours := [m for m in under_way if self._ours(m)]:
            self._waiting.update(progress(ours, self._concerns))
        elif under_way:  # whether it has to do with the request is not known
            said = "; ".join(f"move {m.epoch} of {m.topology} is under way ({m.why})" for m in under_way)
            self._waiting.update(f"{self._waiting.first}; {said}")
        else:
            self._waiting.update("")

    def _tell_stayed(self, seen: Iterable[MoveView]) -> None:
        """Why tasks of the request could not be moved: whether they are tried again shows later, and may take minutes."""
        for move in filter(self._ours, seen):
            for task in filter(self._concerns, move.tasks):
                key = (
                    str(move.topology),
                    task.task,
                    task.reason,
                )  # not each attempt that comes to nothing by the same
                if task.phase != "rolled back" or not task.reason:
                    continue
                with self._changed:  # who waits for the end of all looks as well
                    if key in self._told or len(self._told) >= _TOLD:
                        continue
                    self._told.add(key)
                self._waiting.line(
                    f"task {task.task} of {move.topology} stays for now (move {move.epoch}): {task.reason}"
                )


class Telling(_Beside):
    """Has `waiting` write a line for each event that concerns a request.

    Args:
        seen: Told every event.
    """

    def __init__(
        self,
        settings: Settings,
        waiting: Waiting,
        concerns: Callable[[Event], bool],
        seen: Callable[[Event], None],
    ) -> None:
        super().__init__(settings, waiting, "events")
        self._concerns, self._seen = concerns, seen
        self._since = 0

    def _begin(self, client: Client) -> None:
        self._since = max((number for number, _ in client.events(tail=1)), default=0)

    def _follow(self, client: Client) -> None:
        for _, event in client.events(since=self._since, follow=True):
            self._seen(event)
            if self._concerns(event):
                self._waiting.line(event.message)


def _key(move: MoveView) -> Key:
    return str(move.topology), move.epoch, move.began


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
    return f"{_outcome(moves)}{waited}; {output.size(sum(m['size'] for m in moves))}"


def refuse_anew(
    settings: Settings,
    moves: Iterable[MoveView],
    counts: Callable[[MoveView, TaskMoveView], bool],
    where: Callable[[TaskMoveView], str],
) -> None:
    """Say of tasks that have not taken along what they had that they haven't.

    Args:
        moves: What a request has caused, and maybe others besides.
        counts: Whether a task of a move is one that the request was to move.
        where: Where the task is by now, e.g. `now in worker wc@node-1/0`.

    Raises:
        Refused: Some have begun anew, wherever that is: they were to move with their state. Of one topology it names some of its tasks;
            of several, only the first.
    """
    anew: dict[str, dict[int, TaskMoveView]] = {}
    for m in moves:
        for t in m.tasks:
            if t.phase in ANEW and counts(m, t):
                anew.setdefault(m.topology, {})[t.task] = t
    if not anew:
        return
    name, tasks = min(anew.items())
    said = [f"task {n} ({where(t)}): {t.reason or 'its state is lost'}" for n, t in sorted(tasks.items())]
    more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
    others = f"; and tasks of {', '.join(sorted(anew.keys() - {name}))}" if len(anew) > 1 else ""
    raise Refused(
        f"topology {name!r}: {counted(len(said), 'task')} began anew: {'; '.join(said[:NAMED])}{more}{others}",
        remedy=f"what is lost does not come back; {settings.command('events', name)} tells what ended, and when",
    )


TASK_COLUMNS = [
    Column("TASK", "task", right=True),
    Column("COMPONENT", "component"),
    Column("FROM", "source"),
    Column("TO", "target"),
    Column("OUTCOME", "step", status=True),
    Column("PAUSE", lambda r: pause([r], r["pause"]), right=True),
    Column("AT RECEIVERS", lambda r: milliseconds(r["gap"]) if r["gap"] else None, right=True),
    Column("SIZE", lambda r: output.size(r["size"]) if r["size"] else None, right=True),
]


def task_rows(moves: Sequence[MoveView]) -> list[dict[str, Any]]:
    """A row of `TASK_COLUMNS` for each task of some moves."""
    rows = []
    for move in moves:
        for task in move.tasks:
            word = "moved" if task.moved else step(task)
            of = {"topology": str(move.topology), "move": move.epoch}
            rows.append({**present.task_move(task), **of, "step": word})
    return rows


def show_tasks(settings: Settings, moves: Sequence[MoveView]) -> None:
    """A line for each task of some moves: where from and to, its pause, its bytes; then why some stayed.

    Of which move and topology it is, is said where there are several: numbers of moves are each topology's own.
    """
    rows = task_rows(moves)
    columns = TASK_COLUMNS
    several = len({row["topology"] for row in rows}) > 1
    if len(moves) > 1:
        columns = [Column("MOVE", "move", right=True), *columns]
    if several:
        columns = [Column("TOPOLOGY", "topology"), *columns]
    output.table(settings, columns, rows)
    reasons: dict[tuple[str, int, str], list[int]] = {}
    for row in rows:
        if row["reason"]:
            reasons.setdefault((row["topology"], row["task"], row["reason"]), []).append(row["move"])
    for (topology, task, reason), numbers in reasons.items():
        which = f", move {ranges(numbers)}" if len(moves) > 1 else ""
        whose = f" of {topology}" if several else ""
        click.echo(f"task {task}{whose}{which}: {reason}")
