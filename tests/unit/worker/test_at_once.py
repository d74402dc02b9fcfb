"""The short way of a batch to another worker: the same frame as by the long way, or nothing is done at all."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.migration import events as ev
from elastic.migration.emitter import Emitter
from elastic.model.ids import Incarnation
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.tuples import wire
from elastic.worker.tuples.batch import Batch
from tests.unit.worker.test_wire_exact import KINDS, VALUES, stream_of

ME, THERE = Incarnation("w#1"), Incarnation("v#1")
SOURCE, TARGET = 3, 7


class _Way:
    """To another worker."""

    def __init__(self, room: bool = True) -> None:
        self.room = room
        self.taken: list[tuple[int, bytes, int]] = []

    def offer(self, target: int, payload: Any, *, rows: int = 0) -> bool:
        if self.room:
            self.taken.append((target, b"".join(payload), rows))
        return self.room


def outputs_to(way: _Way | None, where: Incarnation = THERE) -> tuple[Any, Any]:
    """The outputs of a task, and that to its only target; what has left is 4 tuples."""
    outputs: Any = Outputs.__new__(Outputs)
    outputs.task, outputs.emitted, outputs.gate = SOURCE, 4, threading.RLock()
    outputs.me, outputs._on_emit = ME, None
    outputs._crossing = SimpleNamespace(link=lambda incarnation: way if incarnation == THERE else None)
    outputs.emitter = SimpleNamespace(written=lambda link: None)
    link = Emitter(SOURCE, TARGET, 5, 100)
    link.handle(ev.Resume(SOURCE, TARGET, where))
    link.left(4)
    out = SimpleNamespace(link=link, destination=SimpleNamespace(task=TARGET), tuples=4, bytes=0)
    return outputs, out


def goes_at_once(kinds: list[Any], values: list[tuple[Any, ...]]) -> bool:
    """Whether it goes the short way; checks that what goes is what goes the long way, and counted."""
    stream, way = stream_of(*kinds), _Way()
    rows = [stream.kind(*v) for v in values]
    outputs, out = outputs_to(way)
    gone: bool = outputs._at_once(out, stream, rows)
    count = len(rows)
    if gone:
        (frame,) = wire.encode(Batch(stream, SOURCE, count, rows))
        assert way.taken == [(TARGET, b"".join(frame.at(5, 5)), count)]
    assert (out.link.sent, outputs.emitted, out.tuples) == ((4 + count,) * 3 if gone else (4,) * 3)
    return gone


@given(st.data())
def test_the_short_way_sends_what_the_long_way_does(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(KINDS, min_size=1, max_size=3))
    goes_at_once(
        kinds,
        data.draw(st.lists(st.tuples(*[VALUES for _ in kinds]), min_size=1, max_size=4), label="values"),
    )


def test_plain_values_go_the_short_way() -> None:
    assert goes_at_once([int, str], [(1, "a"), (2, "b")])


@pytest.mark.parametrize("case", ["misfits", "holds", "is here", "unknown", "no room", "moved away", "large"])
def test_all_else_is_left_to_the_long_way(case: str) -> None:
    """Nothing of it is counted: it is all still to be sent."""
    stream, way = stream_of(int, str), _Way(room=case != "no room")
    outputs, out = outputs_to(None if case == "unknown" else way, ME if case == "is here" else THERE)
    if case == "holds":
        out.link.handle(ev.Detach(SOURCE, TARGET))
    elif case == "moved away":  # just as it was about to go
        link = out.link
        out = _Leaving(out, link)
    text = "x" * (wire.SPLIT + 1) if case == "large" else "a"
    rows = [stream.kind(True if case == "misfits" else 1, text)]
    assert not outputs._at_once(out, stream, rows)
    assert not way.taken and (outputs.emitted, out.tuples) == (4, 4)


class _Leaving:
    """An output whose link is taken away after the first look at it."""

    def __init__(self, out: Any, link: Emitter) -> None:
        self.__dict__.update(vars(out))
        self._links = [link]
        del self.__dict__["link"]

    @property
    def link(self) -> Emitter | None:
        return self._links.pop() if self._links else None


def test_a_short_way_that_trusts_declarations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: nobody looks at the values."""
    monkeypatch.setattr(wire, "packed", lambda stream, rows: wire._encoder.encode(rows))
    with pytest.raises(AssertionError):
        test_all_else_is_left_to_the_long_way("misfits")
