"""What can be asked about moves themselves."""

from __future__ import annotations

import time
from dataclasses import replace

from elastic.coordination import paths
from elastic.coordination.base import Set
from elastic.errors import NotFound, Refused
from elastic.migration.record import REASON
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.ids import Epoch, TopologyName
from elastic.model.views import MoveView
from elastic.model.words import plain
from elastic.nimbus.lookup import find, running
from elastic.nimbus.reign import Reign

ABORTED = "an operator aborted the move"


def abort_move(reign: Reign, name: str, epoch: int | None, why: str) -> tuple[int, ...]:
    """See `Nimbus.abort_move`."""
    why = plain(why or ABORTED, REASON)  # the reason of every task that goes back
    with reign.deciding() as facts:
        t = running(facts, name)
        under_way = [e for e, m in t.moves.items() if not m.record.settled]
        if epoch is not None and epoch not in under_way:
            known = ", ".join(map(str, under_way)) or "none"
            raise NotFound(f"topology {name!r} has no move {epoch} under way", remedy=f"under way: {known}")
        epochs = under_way if epoch is None else [Epoch(epoch)]
        if not epochs and (t.plan is None or t.plan.halted):
            raise Refused(f"no move of topology {name!r} is under way", remedy=f"see `elastic moves {name}`")
        also = []
        if t.plan is not None and not t.plan.halted:
            also = [Set(paths.plan(t.name), encode(replace(t.plan, halted=why)), t.plan_version)]
        reign.moves.abort(t, epochs, why, also)
        if also and t.plan is not None and t.plan.request:
            reign.note_aborted(t.plan.request, why)
        reign.tell(
            Event(
                time.time(),
                "move-abort-asked",
                f"topology {name}: what has not been saved of its moves goes back: {why}",
                topology=name,
                details={"epochs": " ".join(map(str, epochs)), "why": why},
            )
        )
        reign.moves.run(reign.facts())
        reign.note_moves()
    return tuple(int(e) for e in epochs)


def moves(reign: Reign, name: str | None) -> tuple[MoveView, ...]:
    """See `Nimbus.moves`."""
    if name is None:
        return reign.move_log.views()
    found = reign.move_log.views(TopologyName(name))
    if not found:
        find(reign.facts(), name)
    return found
