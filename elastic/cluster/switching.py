"""How often the threads of a worker process give way to each other."""

from __future__ import annotations

from elastic.migration.record import Phase
from elastic.migration.view import View

SWITCH = 0.005
STANDING_STILL = (Phase.PAUSED, Phase.SAVED)
SWITCH_MOVING = 0.0005
SWITCH_PAUSED = 0.00005
SWITCH_MANY = 0.002
"""Seconds after which a computing thread gives way to another one (`sys.setswitchinterval`): always; while a move is under way; while a
task stands still, or has just begun to run again, and others wait for it; and in moves of more than `FEW` tasks or batches."""
FEW = 4
FEW_STILL = 8
"""As many as stand still together where a move of many is divided (`NimbusOptions.move_at_once`): not for long."""


def switch_interval(view: View) -> float:
    """A thread that wants the interpreter waits for this long while another one computes: when a few tasks stand still that is most of the
    pause. A move of many lasts, and whoever gives way so often does less: then the stream falls behind by more than the pauses."""
    if not view.moves:
        return SWITCH
    if any(m.record.batches > FEW for m in view.moves):
        return SWITCH_MANY
    phases = [at.phase for at in view.standing.values()]
    still = sum(phase in STANDING_STILL for phase in phases)
    if still or Phase.RESTORED in phases:
        return SWITCH_PAUSED if still <= FEW_STILL else SWITCH_MANY
    return SWITCH_MOVING if sum(len(m.record.tasks) for m in view.moves) <= FEW else SWITCH_MANY
