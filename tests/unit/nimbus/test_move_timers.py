"""How long is waited after the last batch of a move, and between attempts to restore a task."""

from __future__ import annotations

from typing import Any, cast

import pytest

from elastic.migration import actions as ac
from elastic.migration.decide import PAUSE, RESTORE, SETTLE, again_timer
from elastic.migration.record import AT_ONCE, MoveRecord, TaskMove
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName
from elastic.nimbus.moves import move_ports
from elastic.nimbus.moves.move_ports import SETTLE_FOR, MovePorts
from elastic.nimbus.observing.facts import MoveFacts

TASK = (TaskId(3), "count", Incarnation("t@n/0#1"), Incarnation("t@m/0#1"), NodeId("n"), NodeId("m"))


class _Leader:
    """Writes whatever it is asked to."""

    def commit(self, operations: object) -> None: ...

    def tell(self, event: object) -> None: ...


def test_each_timer_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(move_ports.time, "monotonic", lambda: now[0])
    record = MoveRecord(TopologyName("t"), Epoch(1), "", ())
    facts = cast(Any, type("Facts", (), {"nodes": {}}))
    ports = MovePorts(
        cast(Any, _Leader()),
        (cast(Any, None), MoveFacts(record, 0), facts),
        lambda event: None,
        lambda *_: None,
        {PAUSE: 60.0, RESTORE: 5.0},
    )

    ports.start(ac.StartTimer(SETTLE, 2))
    assert ports.timers[SETTLE, 2] == now[0] + SETTLE_FOR
    for attempt, seconds in ((AT_ONCE, 1.0), (AT_ONCE + 2, 4.0), (AT_ONCE + 3, 5.0), (AT_ONCE + 5000, 5.0)):
        again = again_timer(TaskMove(*TASK, attempt=attempt))
        ports.start(ac.StartTimer(*again))
        assert ports.timers[again] == now[0] + seconds, (
            "twice as long each time, and never longer than an attempt"
        )
    ports.start(ac.StartTimer(PAUSE, 1))
    assert ports.timers[PAUSE, 1] == now[0] + 60.0
