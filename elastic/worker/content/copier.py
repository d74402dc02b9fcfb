"""A component's state as bytes in pieces, copied ahead while its task runs."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, TypeGuard

from elastic import timeslice
from elastic.api.components import Component
from elastic.api.state import KeyedState, StateMap, all_states, declared_states
from elastic.errors import ExecutionError
from elastic.worker.content import whole
from elastic.worker.content.keyed import KeyedCopier
from elastic.worker.content.layout import VERSION, Meta, StateMeta, write_meta
from elastic.worker.shown import shown

PIECE = 256 << 10
"""Bytes of a piece, about. One large value makes a larger one."""
LARGE_PIECE = 1 << 20
"""That of a large state: who has which of them is said with every commit and every look."""
PIECES = 256
"""So many pieces before they become larger."""
_GIVE_WAY_EVERY = 0.005
_GIVE_WAY_FOR = 1e-4


@dataclass(frozen=True, slots=True)
class Content:
    """What a task's state consists of, of one moment.

    Attributes:
        pieces: Those that `Copier.ahead` has not handed out: (number, bytes).
        order: The numbers of all pieces that make up the state, in the order in which `install` wants them.
        meta: A note for `install`.
    """

    pieces: tuple[tuple[int, bytes], ...]
    order: tuple[int, ...]
    meta: bytes

    def in_order(self) -> list[bytes]:
        """All pieces, as `install` wants them, where none was handed out ahead."""
        made = dict(self.pieces)
        return [made[number] for number in self.order]


class Copier:
    """Copies the state of one task.

    `size`, `ahead` and `cancel` are called by the executor's thread, between two tuples of the task. All else is called by threads of
    whoever saves it, never two at a time: `make_ready`, `so_far`, `done`, `busy` and `outrun` while tuples run, but not beside `ahead`;
    `rest` when the task has stopped, and `cancel` as well then, but not beside `rest`, which would give less than all; `end` at any time.

    Args:
        component: The task's copy of its component.
        piece: Bytes of a piece, about.

    Attributes:
        said_all: What `so_far` has given last says that all is there but for what changes.
    """

    def __init__(self, component: Component, *, piece: int = PIECE) -> None:
        self._component = component
        self._piece = self._each = piece
        self._owner = owner_of(component)
        self._ended = False
        self.said_all = False
        self._first = -1  # the state that the last `ahead` began with
        numbers = itertools.count()
        self._number = numbers.__next__
        self._grid = True
        # What has been assigned in the place of a state is for `_follow` to take.
        self._keyed = [self._new(name, state) for name, state in states_of(component)]

    def _new(self, name: str, state: StateMap[Any, Any]) -> KeyedCopier:
        made = KeyedCopier(name, state, self._owner, self._number, self._each)
        made.grid = self._grid
        return made

    def size(self) -> int:
        """The bytes that the state takes, about: a quick estimate from a few entries of each state.

        Raises:
            ExecutionError: The state cannot be pickled.
        """
        self._follow()
        total = sum(k.size() for k in self._keyed)
        if whole.has_own(self._component):
            total += whole.size(self._component, self._owner)
        return total

    def read_at_once(self, size: int = 0) -> None:
        """What is copied will be put in ahead: nothing of it has to be such that it can stay bytes there. Before the first `ahead`.

        Args:
            size: Of all, in bytes, as far as known.
        """
        self._grid, self._each = False, max(self._piece, min(size // PIECES, LARGE_PIECE))
        for keyed in self._keyed:
            keyed.grid, keyed.piece = False, self._each

    def make_ready(self) -> None:
        """Have the memory made that the first `ahead` needs at once. Beside the tuples of the task, for some milliseconds; before that."""
        for keyed in self._keyed:
            keyed.make_ready()

    def ahead(self, until: float) -> list[tuple[int, bytes]]:
        """Copy some more of the keyed states. From the first call on their changes are remembered.

        To be called again and again, with other work in between, until the task stops: also when `done`, because what changes then
        can be copied ahead as well. It returns at once when there is nothing to do.

        Args:
            until: The monotonic time to stop at, if nobody else has anything to do; it may take a millisecond more. The time for which
                others go first meanwhile does not count.

        Returns:
            (number, bytes) of the pieces that have become ready.

        Raises:
            ExecutionError: The state cannot be pickled. The copy is given up; the task can go on.
        """
        made: list[tuple[int, bytes]] = []
        try:
            self._follow()
            # Another one comes first each time: one that changes as fast as it is copied would leave nothing to those behind it.
            first = self._first = (self._first + 1) % max(1, len(self._keyed))
            for keyed in self._keyed[first:] + self._keyed[:first]:
                while keyed.busy and not self._ended:
                    piece = keyed.step()
                    if piece is not None:
                        made.append(piece)
                    if keyed.many:
                        until += timeslice.give_way()
                    if time.monotonic() >= until:
                        return made
                keyed.settle()
            return made
        except BaseException:
            if self._ended:  # it was cancelled in the midst of it
                return []
            self.cancel()
            raise
        finally:
            if self._ended:
                self.cancel()

    @property
    def done(self) -> bool:
        """Whether everything was copied ahead that can be, and little has changed since (or it changes too fast to catch up)."""
        return all(k.done for k in self._keyed)

    @property
    def caught_up(self) -> bool:
        """Whether everything was copied ahead, and what has changed since is little, or does not become less."""
        return all(k.caught_up for k in self._keyed)

    @property
    def busy(self) -> bool:
        """Whether there is more to copy at present than what is left to the pause."""
        return any(k.busy for k in self._keyed)

    @property
    def outrun(self) -> bool:
        """Whether the state changes about as fast as it is copied at present."""
        return any(k.outrun for k in self._keyed)

    @property
    def in_vain(self) -> int:
        """How often in a row what has changed was copied, and had not become less by half."""
        return sum(k.in_vain for k in self._keyed)

    def so_far(self) -> Content:
        """What the pieces that `ahead` has handed out make up: a state of which something may be out of date. Nothing else is in it; what
        was removed may be."""
        metas = [m for keyed in self._keyed if (m := keyed.so_far()) is not None]
        order: list[int] = []
        self.said_all = self.caught_up
        note = _in_order(Meta(VERSION, metas, None, [], last=False, caught_up=self.said_all), order)
        return Content((), tuple(order), note)

    def rest(self) -> Content:
        """When the task has stopped: what is still missing. Gives way to other threads every few milliseconds.

        Raises:
            ExecutionError: The state cannot be pickled, or `get_state` raised. The copy is given up; the task can go on.
        """
        pieces: list[tuple[int, bytes]] = []
        give_way = GivingWay()
        try:
            custom: list[int] | None = None
            buffers: list[list[int]] = []
            # First: `get_state` may put into keyed states what it had kept elsewhere.
            if whole.has_own(self._component):
                made, custom, buffers = whole.take(
                    self._component, self._owner, self._number, self._piece, give_way
                )
                pieces += made
            self._follow()
            states = []
            for keyed in self._keyed:
                made, meta = keyed.rest(give_way)
                pieces += made
                states.append(meta)
        except BaseException:
            self.cancel()
            raise
        order: list[int] = []
        note = _in_order(Meta(VERSION, states, custom, buffers, last=True), order)
        return Content(tuple(pieces), tuple(order), note)

    def _follow(self) -> None:
        """A state may have been assigned anew, to another dictionary or to that of another state: of that one nothing is copied yet.

        Between two tuples of the task: within one, somebody may have what was assigned in hand.
        """
        there = self._component.__dict__
        keyed = {k.name: k for k in self._keyed}
        names = declared_states(type(self._component))
        known = all(n in keyed and there.get(n) is keyed[n].state for n in names)
        if known and len({id(there[n]) for n in names}) == len(names):
            return
        states = dict(present_states(self._component, self._owner))
        anew = {n for n, state in states.items() if n not in keyed or keyed[n].state is not state}
        for n in anew & keyed.keys():  # all before any other: two may have changed places
            keyed[n].cancel()
        self._keyed = [self._new(n, states[n]) if n in anew else keyed[n] for n in states]

    def end(self) -> None:
        """Nothing more is copied: `cancel` follows as soon as the task is between two tuples. From any thread."""
        self._ended = True

    def cancel(self) -> None:
        """The task stays: stop remembering, forget the copy.

        Not in the midst of a tuple: the state becomes of another class, and a call into it that is under way would fail.
        """
        self._ended = True
        for keyed in self._keyed:
            keyed.cancel()


class GivingWay:
    """Lets other threads run every few milliseconds. A thread that never sleeps can starve others for long."""

    def __init__(self) -> None:
        self._at = time.monotonic() + _GIVE_WAY_EVERY

    def __call__(self) -> None:
        if time.monotonic() >= self._at:
            time.sleep(_GIVE_WAY_FOR)
            self._at = time.monotonic() + _GIVE_WAY_EVERY


def _in_order(meta: Meta, order: list[int]) -> bytes:
    """The note, with places in the order instead of the copier's numbers; the order is put into `order`."""

    def at(number: int) -> int:
        if number < 0:
            return number
        order.append(number)
        return len(order) - 1

    def all_at(numbers: list[int]) -> list[int]:
        return [at(n) for n in numbers]

    states = [
        StateMeta(
            s.name,
            s.bits,
            s.split,
            [all_at(layer) for layer in s.layers],
            all_at(s.whole),
            all_at(s.gone),
            s.copy,
            s.count,
            s.alike,
        )
        for s in meta.states
    ]
    custom = None if meta.custom is None else all_at(meta.custom)
    buffers = [all_at(b) for b in meta.buffers]
    return write_meta(Meta(meta.version, states, custom, buffers, meta.last, meta.caught_up))


def owner_of(component: Component) -> str:
    """Whose state it is, for errors."""
    context = component.__dict__.get("context")
    if context is None:
        return type(component).__name__
    return f"{context.component!r} (task {context.task})"


def present_states(component: Component, owner: str) -> list[tuple[str, StateMap[Any, Any]]]:
    """All states that are declared. A dictionary that was assigned in the place of one becomes one.

    Raises:
        ExecutionError: There is something else in the place of one, of which nobody could say what it is to be, or a dictionary
            that can do, or does, what it would no longer as a state; or one dictionary in the place of two, which would be two.
    """
    found: list[tuple[str, StateMap[Any, Any]]] = []
    first: dict[int, str] = {}
    for name, declared in all_states(type(component)).items():
        state = component.__dict__.get(name)
        if (other := first.setdefault(id(state), name)) != name and isinstance(state, dict):
            raise ExecutionError(
                f"States {other!r} and {name!r} of {owner} are one and the same dictionary by now; after a move they would be two.",
                remedy=f"Assign a copy, as in self.{name} = dict(self.{other}).",
            )
        if not isinstance(state, StateMap):
            if not _is_plain(state, declared):
                raise ExecutionError(
                    f"State {name!r} of {owner} is of class {type(state).__name__} by now, and no dictionary as it was declared: "
                    f"{shown(state)}",
                    remedy="Assign only plain dictionaries to a state, or empty it with clear(). Its default is that of KeyedState(...).",
                )
            state = component.__dict__[name] = StateMap(declared.default, state)
        found.append((name, state))
    return found


def _is_plain(state: object, declared: KeyedState[Any, Any]) -> TypeGuard[dict[Any, Any]]:
    """Whether nothing of a dictionary is lost when it becomes a state: no methods of its own, and no other default."""
    if isinstance(state, defaultdict):
        return type(state) is defaultdict and state.default_factory == declared.default
    return type(state) is dict


def states_of(component: Component) -> list[tuple[str, StateMap[Any, Any]]]:
    found = ((name, component.__dict__.get(name)) for name in declared_states(type(component)))
    return [(name, state) for name, state in found if isinstance(state, StateMap)]
