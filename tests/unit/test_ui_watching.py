"""What the page keeps at hand: looks, moves and events, of whichever cluster there is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from cli_fake import detail, error, move, summary
from ui_fake import Living, Somewhere

from elastic.control.ui import watching
from elastic.control.ui.watching import Shown, Watcher, take
from elastic.errors import Unavailable
from elastic.model.records import TopologyStatus
from elastic.model.views import PLANNED

LIMIT = 30.0


def until(watcher: Watcher, so: Callable[[Shown], bool]) -> Shown:
    """Wait until what is shown is as it shall be."""
    seen = -1
    for _ in range(1000):
        shown = watcher.shown()
        if so(shown):
            return shown
        now = watcher.wait(seen, LIMIT)
        assert now != seen, f"nothing came any more; there was {shown}"
        seen = now
    raise AssertionError(f"it did not become so: {watcher.shown()}")


def test_a_look_has_all_that_runs_and_leaves_out_what_has_just_gone() -> None:
    ended = summary(name="old", status=TopologyStatus.FAILED)
    look = take(Living(topologies=[summary(), summary(name="gone"), ended]))
    assert [t.name for t in look.topologies] == ["word-count", "gone", "old"]
    assert list(look.details) == ["word-count"]
    assert [n.id for n in look.nodes] == ["node-1", "node-2"] and look.cluster.leader == "127.0.0.1:7000"


def test_moves_are_shown_as_they_change_and_the_newest_first() -> None:
    here = Somewhere(lambda: Living(moved=[move(2, began=20.0), move(1, began=10.0)]))
    with Watcher(here.connect) as watcher:
        until(watcher, lambda s: [m.epoch for m in s.moves] == [2, 1])
        for change in (move(3, began=30.0, state="running"), move(0, state=PLANNED), move(3, began=30.0)):
            for client in here.made:
                client.changed.put(change)
        shown = until(watcher, lambda s: len(s.moves) == 3 and s.moves[0].state == "ended")
        assert [m.epoch for m in shown.moves] == [3, 2, 1], "what is planned is no move yet"


def test_events_are_shown_as_they_come_and_the_newest_first() -> None:
    here = Somewhere(lambda: Living(happened=[error(1.0)]))
    with Watcher(here.connect) as watcher:
        until(watcher, lambda s: len(s.events) == 1)
        for client in here.made:
            client.happening.put(error(2.0))
        assert [e.time for e in until(watcher, lambda s: len(s.events) == 2).events] == [2.0, 1.0]


def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "KEPT_MOVES", 5)
    monkeypatch.setattr(watching, "KEPT_SAMPLES", 10)
    here = Somewhere()
    with Watcher(here.connect, interval=0.001) as watcher:
        for n in range(20):
            for client in list(here.made):
                client.changed.put(move(n, began=float(n)))
        shown = until(watcher, lambda s: bool(s.moves) and s.moves[0].epoch == 19)
        assert [m.epoch for m in shown.moves] == [19, 18, 17, 16, 15]
        first = watcher.shown().history["word-count"][0]
        shown = until(watcher, lambda s: s.history["word-count"][0] != first)
        assert len(shown.history["word-count"]) == 10
        assert shown.history["word-count"][-1].rates == {"lines": 1234.5, "count": 1230.0}


def test_the_history_of_what_has_ended_goes() -> None:
    client = Living()
    with Watcher(Somewhere(lambda: client).connect, interval=0.001) as watcher:
        assert "word-count" in watcher.shown().history
        client.topologies = [summary(status=TopologyStatus.FINISHED)]
        shown = until(watcher, lambda s: not s.history)
        assert not shown.reports and not shown.look.details


def test_another_topology_with_the_same_name_has_its_own_history() -> None:
    client = Living()
    with Watcher(Somewhere(lambda: client).connect, interval=0.001) as watcher:
        until(watcher, lambda s: len(s.history["word-count"]) > 2)
        other = summary(id="word-count-2")
        client.details = {"word-count": detail(summary=other)}
        shown = until(watcher, lambda s: s.look.details["word-count"].summary.id == "word-count-2")
        assert len(shown.history["word-count"]) == 1


def test_that_nobody_answers_is_shown_and_the_next_cluster_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "AGAIN_SECONDS", 0.001)
    here = Somewhere(lambda: Living(moved=[move(9)], happened=[error(9.0)]))
    with Watcher(here.connect, interval=0.001) as watcher:
        until(watcher, lambda s: bool(s.moves and s.events))
        here.there = None
        for client in here.made:
            client.fail = Unavailable("No Nimbus answers.")
            client.close()
        shown = until(watcher, lambda s: s.trouble == "No cluster is here.")
        assert shown.look.details, "what was known last stays"
        here.there = lambda: Living(moved=[move(1)], topologies=[], happened=[])
        shown = until(watcher, lambda s: not s.trouble and [m.epoch for m in s.moves] == [1] and not s.events)
        assert not shown.look.topologies


def test_a_nimbus_that_is_away_is_told_before_the_look_gives_up() -> None:
    client = Living()
    with Watcher(Somewhere(lambda: client).connect) as watcher:
        until(watcher, lambda s: client.lost.__name__ == "_lost")
        client.lost("no Nimbus leads")
        assert watcher.shown().trouble == "no Nimbus leads"


def test_who_cannot_be_reached_at_first_is_an_error() -> None:
    before = set(threading.enumerate())
    with pytest.raises(Unavailable, match="No cluster is here"), Watcher(Somewhere(None).connect):
        pytest.fail("entered")
    assert set(threading.enumerate()) <= before


def test_nothing_is_left_when_it_is_closed() -> None:
    before = set(threading.enumerate())
    here = Somewhere()
    with Watcher(here.connect) as watcher:
        waiting = threading.Thread(target=watcher.wait, args=(watcher.wait(-1, 0), LIMIT))
        waiting.start()
    waiting.join(LIMIT)
    assert watcher.ended and all(client.closed for client in here.made)
    assert set(threading.enumerate()) <= before


def test_rates_of_tasks_come_from_the_looks() -> None:
    client = Living(details={"word-count": replace(detail(), reports=())})
    with Watcher(Somewhere(lambda: client).connect) as watcher:
        rows = watcher.shown().reports["word-count"].rows(client.details["word-count"])
        assert [row["task"] for row in rows] == [1, 2, 3, 4, 5]
