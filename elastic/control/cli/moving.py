"""Moves followed while a request that causes them is under way: how far each task is, and at the end what it cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from elastic.control.cli.narration import Waiting, leaving
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.control.move_words import progress
from elastic.errors import ElasticError, NotFound, Unavailable
from elastic.model import whys
from elastic.model.events import Event
from elastic.model.views import PLANNED, MoveView, TaskMoveView

SETTLE = 6.0
"""Seconds that the last words of moves are waited for: Nimbus itself waits for those of workers (its option move_linger)."""

_ASKED_EACH = 0.2
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

    def so_far(self, client: Client) -> tuple[MoveView, ...]:
        """Those of `moves` that the request has caused, as far as they are."""
        self._look(client)
        return tuple(filter(self._ours, self.moves()))

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
            # What a worker says of a task that stands still, and why attempts come to nothing, is what people wait to hear.
            waits = [w for m in ours for w in m.waits][:1]
            self._waiting.update("; ".join([progress(ours, self._concerns), *waits]))
        elif under_way:  # whether it has to do with the request is not known
            said = "; ".join(f"move {m.epoch} of {m.topology} is under way ({m.why})" for m in under_way)
            self._waiting.update(f"{self._waiting.first}; {said}")
        else:
            self._waiting.update("")

    def _tell_stayed(self, seen: Iterable[MoveView]) -> None:
        """Why tasks of the request could not be moved: whether they are tried again shows later, and may take minutes."""
        for move in filter(self._ours, seen):
            for task in filter(self._concerns, move.tasks):
                # Not each attempt that comes to nothing by the same.
                key = str(move.topology), task.task, task.reason
                if not task.reason or not (task.phase == "rolled back" or task.came_back):
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
