"""What can be asked about moves themselves."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from elastic.coordination import paths
from elastic.coordination.base import Set
from elastic.errors import NotFound, Refused, Superseded, Unavailable
from elastic.migration.record import REASON
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.ids import Epoch, TopologyName, WorkerId
from elastic.model.views import PLANNED, MoveView, TaskMoveView
from elastic.model.words import plain
from elastic.nimbus.deciding import draining, placing
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.nimbus.reign import Reign, stopped
from elastic.nimbus.requests.lookup import find, running

ABORTED = "an operator aborted the move"


def abort_move(reign: Reign, name: str, epoch: int | None, why: str, force: bool) -> tuple[int, ...]:
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
            raise _nothing(t, facts)
        also = []
        if t.plan is not None and not t.plan.halted:
            also = [Set(paths.plan(t.name), encode(replace(t.plan, halted=why)), t.plan_version)]
        reign.moves.abort(t, epochs, why, also, force=force)
        if also:
            reign.aborted.note(t.name, why)
        given_up = ", and states that nobody could restore are given up" if force else ""
        reign.tell(
            Event(
                time.time(),
                "move-abort-asked",
                f"topology {name}: what has not been saved of its moves goes back{given_up}: {why}",
                topology=name,
                details={"epochs": " ".join(map(str, epochs)), "why": why},
            )
        )
        try:
            reign.moves.run(reign.facts())
            reign.note_moves()
        except Superseded as error:
            # It has been asked for: whoever leads now sees to it, and must not be asked once more.
            raise stopped("moves were being aborted") from error
    return tuple(int(e) for e in epochs)


def _nothing(t: TopologyFacts, facts: Facts) -> Refused:
    """There is nothing to abort. What is `planned` then is so because of a drain, which is asked of a node and not of a topology."""
    said = f"no move of topology {str(t.name)!r} is under way"
    if not (kept := draining.kept(t, facts)):
        return Refused(said, remedy=f"see `elastic moves {t.name}`")
    return Refused(
        f"{said}, and what is planned an abort does not take back: {'; '.join(draining.waits(t, facts))}",
        remedy=f"nothing takes the draining of {', '.join(kept)} back; what is there runs on until it has another place",
    )


def moves(reign: Reign, name: str | None) -> tuple[MoveView, ...]:
    """See `Nimbus.moves`."""
    facts = reign.facts()
    wanted = None if name is None else TopologyName(name)
    found = reign.move_log.views(wanted)
    if wanted is not None and not found:
        find(facts, wanted)
    if _planned(facts, wanted, reign.rules):
        # The mirror may show a plan that a move has just carried out. Without a connection what it shows is what is known.
        with contextlib.suppress(Unavailable), reign.lock:
            found, facts = reign.move_log.views(wanted), reign.refresh()
    return (*_planned(facts, wanted, reign.rules), *found)


def _planned(facts: Facts, wanted: TopologyName | None, rules: placing.Rules) -> list[MoveView]:
    """What is to move and is in no move, of one topology or of all."""
    some = (t for t in facts.in_order() if wanted in (None, t.name))
    return [view for t in some if (view := _planned_of(t, facts, rules)) is not None]


def _planned_of(t: TopologyFacts, facts: Facts, rules: placing.Rules) -> MoveView | None:
    """It waits for its turn, or for a place. What was given up is not to move any more."""
    if not t.running or t.assignment is None:
        return None
    kept, coming, places = draining.kept(t, facts), placing.to_come(t, rules), t.assignment.place_of()
    staying = {w for workers in kept.values() for w in workers}
    target = {n: WorkerId("") for n, w in places.items() if w in staying and n not in t.moving}
    if t.plan is not None:
        to = t.plan.assignment.place_of()
        target.update((n, to[n]) for n in coming if n in to)
    if not target:
        return None
    waits = [*draining.waits(t, facts), *placing.waits(t, facts, rules, coming)]
    drained = "; ".join(f"node {n} is being drained" for n in kept)
    why = t.plan.why_of(coming) if t.plan is not None and coming else drained
    tasks = (
        TaskMoveView(n, t.spec.component_of(n).id, places[n], w, "waiting")
        for n, w in sorted(target.items())
        if n in places
    )
    return MoveView(t.name, 0, why, PLANNED, 0.0, 0.0, tuple(tasks), tuple(waits))
