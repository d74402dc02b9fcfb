"""The transitions of all roles, as data: what is legal in which state, and where it may lead.

An event that a state's row does not name is illegal there, and raises. The same tables make the exhaustive test and the diagrams
in `docs/migration.md` (`python -m elastic.migration.table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from elastic.migration import events as ev


class EmitterState(StrEnum):
    FLOWING = "flowing"
    """What is emitted is sent."""
    HOLDING = "holding"
    """It goes to the output buffer."""
    FLUSHING = "flushing"
    """The buffer goes out first, as the link has room; what is emitted goes behind it."""


class ReceiverState(StrEnum):
    UNKNOWN = "unknown"
    """Nothing is known of the source's positions: what comes waits for `Opened`."""
    OPEN = "open"
    """What comes next is taken."""
    EARLY = "early"
    """Something has come that is not next: it waits in its input buffer."""


class OldState(StrEnum):
    IDLE = "idle"
    PREPARING = "preparing"
    """Runs; the stores are asked for room, big state is copied ahead."""
    READY = "ready"
    DRAINING = "draining"
    """Paused; runs on until the fences of its emitters are here."""
    STOPPING = "stopping"
    """Told to stop between two tuples."""
    CONFIRMING = "confirming"
    """Stopped; waits until its receivers have what it sent, and for fences that are not here."""
    SAVING = "saving"
    MARKING = "marking"
    """The stores have it; the `saved` mark is being written."""
    SAVED = "saved"
    """The point of no return; or the new side has restored it already."""
    FAILED = "failed"
    """Said so; waits for Nimbus to roll it back. Holds everything."""
    DONE = "done"


class NewState(StrEnum):
    IDLE = "idle"
    PREPARING = "preparing"
    READY = "ready"
    FETCHING = "fetching"
    INSTALLING = "installing"
    MARKING = "marking"
    """The state is in; the `restored` mark is being written. Runs only when that is accepted."""
    RUNNING = "running"
    FAILED = "failed"
    DONE = "done"


class NotifierState(StrEnum):
    WATCHING = "watching"
    """Decides on what it observes."""
    WRITING = "writing"
    """A decision is on its way to coordination."""
    CLEANING = "cleaning"
    """Every task has its outcome; the stores are emptied."""
    CLOSING = "closing"
    """Waits until every worker life that took part, and lives, has read the outcomes."""
    REMOVING = "removing"
    ENDED = "ended"


Row = tuple[StrEnum, ...]


@dataclass(frozen=True)
class Table:
    """One role's transitions.

    Attributes:
        rows: (state, kind of event) -> the states it may lead to.
    """

    role: str
    initial: StrEnum
    rows: Mapping[tuple[StrEnum, type], Row]

    @property
    def states(self) -> tuple[StrEnum, ...]:
        return tuple(type(self.initial))

    @property
    def events(self) -> tuple[type, ...]:
        """Every kind of event that the role knows, by name."""
        return tuple(sorted({e for _, e in self.rows}, key=lambda e: e.__name__))

    def mermaid(self) -> str:
        """The diagram; events that leave the state as it is are left out."""
        arrows: dict[tuple[str, str], list[str]] = {}
        for (state, event), after in self.rows.items():
            for to in after:
                if to is not state:
                    arrows.setdefault((state, to), []).append(event.__name__)
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {a} --> {b}: {', '.join(names)}" for (a, b), names in arrows.items()]
        return "\n".join(lines)


def _rows(
    *groups: tuple[tuple[StrEnum, ...] | StrEnum, type, tuple[StrEnum, ...] | StrEnum | None],
) -> dict[tuple[StrEnum, type], Row]:
    """(states, event, next states); None: stays as it is."""
    result: dict[tuple[StrEnum, type], Row] = {}
    for states, event, after in groups:
        for state in (states,) if isinstance(states, StrEnum) else states:
            assert (state, event) not in result, (state, event)
            result[state, event] = (
                (state,) if after is None else (after,) if isinstance(after, StrEnum) else after
            )
    return result


_E, _R, _O, _N, _M = EmitterState, ReceiverState, OldState, NewState, NotifierState

EMITTER = Table(
    "emitter",
    _E.HOLDING,
    _rows(
        (_E.FLOWING, ev.Emitted, None),
        ((_E.HOLDING, _E.FLUSHING), ev.Emitted, None),
        ((_E.FLOWING, _E.HOLDING), ev.Room, None),
        (_E.FLUSHING, ev.Room, (_E.FLUSHING, _E.FLOWING)),
        (tuple(_E), ev.Pause, _E.HOLDING),
        (tuple(_E), ev.Detach, _E.HOLDING),
        (_E.HOLDING, ev.Resume, (_E.FLUSHING, _E.FLOWING)),
        ((_E.FLUSHING, _E.FLOWING), ev.Resume, None),
    ),
)

RECEIVER = Table(
    "receiver",
    _R.UNKNOWN,
    _rows(
        ((_R.UNKNOWN, _R.EARLY), ev.Opened, (_R.OPEN, _R.EARLY)),
        (_R.OPEN, ev.Opened, None),
        (_R.UNKNOWN, ev.Arrived, None),
        ((_R.OPEN, _R.EARLY), ev.Arrived, (_R.OPEN, _R.EARLY)),
        (tuple(_R), ev.FenceArrived, None),
    ),
)

_DRAIN = (_O.DRAINING, _O.STOPPING)
_CONFIRM = (_O.CONFIRMING, _O.SAVING)
_UNSAVED = (_O.DRAINING, _O.STOPPING, _O.CONFIRMING, _O.SAVING)

MOVER_OLD = Table(
    "mover, old side",
    _O.IDLE,
    _rows(
        (_O.IDLE, ev.PrepareOld, _O.PREPARING),
        (_O.PREPARING, ev.StoreAsked, _O.READY),
        (_O.READY, ev.PauseTask, _DRAIN),
        (_O.DRAINING, ev.PauseTask, _DRAIN),
        (_O.DRAINING, ev.Fenced, _DRAIN),
        (_O.DRAINING, ev.EmitterGone, _DRAIN),
        (_O.STOPPING, ev.Fenced, None),
        (_O.STOPPING, ev.EmitterGone, None),
        (_O.STOPPING, ev.Stopped, _O.CONFIRMING),
        (_O.CONFIRMING, ev.Fenced, _CONFIRM),
        (_O.CONFIRMING, ev.EmitterGone, _CONFIRM),
        (_O.CONFIRMING, ev.Delivered, _CONFIRM),
        (_O.SAVING, ev.SaveDone, _O.MARKING),
        ((_O.SAVING, _O.MARKING), ev.SaveAccepted, _O.SAVED),
        (_O.SAVED, ev.SaveDone, None),
        (_O.SAVED, ev.OldFailed, None),
        ((_O.PREPARING, _O.READY, *_UNSAVED), ev.OldFailed, _O.FAILED),
        (_O.FAILED, ev.OldFailed, None),
        (_O.FAILED, ev.Stopped, None),
        (_O.FAILED, ev.Delivered, None),
        (_O.FAILED, ev.SaveDone, None),
        ((_O.PREPARING, _O.READY, *_UNSAVED, _O.MARKING, _O.SAVED, _O.FAILED), ev.Settled, _O.DONE),
        (_O.SAVED, ev.TakenBack, _O.DONE),
    ),
)

_LIVE = (_N.PREPARING, _N.READY, _N.FETCHING, _N.INSTALLING, _N.MARKING, _N.RUNNING, _N.FAILED)

MOVER_NEW = Table(
    "mover, new side",
    _N.IDLE,
    _rows(
        (_N.IDLE, ev.PrepareNew, _N.PREPARING),
        (_N.IDLE, ev.StillHere, _N.MARKING),
        (_N.PREPARING, ev.Prepared, (_N.READY, _N.FETCHING)),
        (_LIVE, ev.AheadSeen, None),
        (_LIVE, ev.AheadFetched, None),
        (_N.PREPARING, ev.SavedSeen, None),
        (_N.READY, ev.SaveHeard, _N.FETCHING),
        (tuple(s for s in _LIVE if s is not _N.READY), ev.SaveHeard, None),
        (_N.READY, ev.SavedSeen, _N.FETCHING),
        ((_N.FETCHING, _N.INSTALLING, _N.MARKING, _N.RUNNING, _N.FAILED), ev.SavedSeen, None),
        (_N.FETCHING, ev.Fetched, _N.INSTALLING),
        (_N.INSTALLING, ev.Installed, _N.MARKING),
        (_N.MARKING, ev.RestoreAccepted, _N.RUNNING),
        ((_N.PREPARING, _N.INSTALLING), ev.NewFailed, _N.FAILED),
        (_N.FETCHING, ev.NewFailed, (_N.READY, _N.FETCHING, _N.FAILED)),
        (_N.FAILED, ev.NewFailed, None),
        (_N.FAILED, ev.Prepared, None),
        (_N.FAILED, ev.Fetched, None),
        (_N.FAILED, ev.Installed, None),
        (_LIVE, ev.Settled, _N.DONE),
    ),
)

NOTIFIER = Table(
    "notifier",
    _M.WATCHING,
    _rows(
        (_M.WATCHING, ev.Observed, (_M.WATCHING, _M.WRITING, _M.CLEANING)),
        ((_M.WRITING, _M.CLEANING, _M.REMOVING, _M.ENDED), ev.Observed, None),
        (_M.CLOSING, ev.Observed, (_M.CLOSING, _M.REMOVING)),
        (tuple(_M), ev.AbortAsked, None),
        (tuple(_M), ev.TimerFired, None),
        (_M.WRITING, ev.RecordWritten, (_M.WATCHING, _M.CLEANING)),
        (_M.WRITING, ev.RecordConflict, _M.WATCHING),
        (_M.CLEANING, ev.StoresCleaned, (_M.CLOSING, _M.REMOVING)),
        (_M.REMOVING, ev.RecordRemoved, _M.ENDED),
        (_M.REMOVING, ev.RecordConflict, None),
    ),
)

ALL = (EMITTER, RECEIVER, MOVER_OLD, MOVER_NEW, NOTIFIER)


def diagrams() -> str:
    """All diagrams, as they stand in docs/migration.md."""
    return "\n\n".join(f"### {t.role[0].upper()}{t.role[1:]}\n\n```mermaid\n{t.mermaid()}\n```" for t in ALL)


if __name__ == "__main__":
    import sys

    sys.stdout.write(diagrams() + "\n")
