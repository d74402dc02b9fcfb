"""What a node keeps while Nimbus is away is bounded, and events outlive measurements."""

from __future__ import annotations

from elastic.model.events import Event
from elastic.model.load import WorkerReport
from elastic.reporting.codec import EVENT, REPORT
from elastic.reporting.outbox import Outbox
from elastic.reporting.v1 import measurements_pb2 as pb


def report(number: int, worker: str = "w") -> pb.WorkerReport:
    return REPORT.encode(WorkerReport("t", worker, f"{worker}#1", float(number), number))


def event(number: int, size: int = 10) -> pb.Event:
    return EVENT.encode(Event(float(number + 1), "kind", "m" * size))


def drain(outbox: Outbox) -> tuple[list[float], list[str], int]:
    reports, events, batches = [], [], 0
    while outbox:
        batch = outbox.take()
        assert batch.reports or batch.events
        reports += [r.time for r in batch.reports]
        events += [e.kind if e.kind != "kind" else str(int(e.time) - 1) for e in batch.events]
        batches += 1
    return reports, events, batches


def test_all_comes_out_in_order_events_first() -> None:
    outbox = Outbox("n")
    assert not outbox
    outbox.add([report(1), report(2)], [])
    assert not outbox.urgent
    outbox.add([report(3)], [event(1), event(2)])
    assert outbox.urgent
    assert drain(outbox) == ([1, 2, 3], ["1", "2"], 1)
    assert not outbox


def test_the_oldest_measurements_go_and_no_event_for_their_sake() -> None:
    size = report(150).ByteSize()
    outbox = Outbox("n", report_bytes=10 * size)
    outbox.add([], [event(0)])
    for number in range(100, 200):
        outbox.add([report(number)], [])
    reports, events, _ = drain(outbox)
    assert reports == list(range(190, 200))
    assert outbox.dropped_reports == 90
    assert events == ["0"]


def test_a_worker_with_large_measurements_leaves_room_for_those_of_others() -> None:
    outbox = Outbox("n", report_bytes=report(150).ByteSize())
    for number in range(100, 200, 2):
        outbox.add([report(number, "a"), report(number + 1, "b")], [])
    assert drain(outbox)[0] == [198, 199], "the newest of each"
    outbox.add([report(200, "b"), report(201, "a"), report(202, "b")], [])
    assert drain(outbox)[0] == [201, 202], "the oldest of who has a newer one"


def test_dropped_events_are_counted_and_said() -> None:
    outbox = Outbox("n", event_bytes=10 * event(10).ByteSize())
    for number in range(10, 40):
        outbox.add([], [event(number)])
    batch = outbox.take()
    assert batch.events[0].kind == "events-dropped"
    assert EVENT.decode(batch.events[0]).details == {"count": 20}
    assert [int(e.time) - 1 for e in batch.events[1:]] == list(range(30, 40))
    outbox.add([], [event(41)])
    assert [e.kind for e in outbox.take().events] == ["kind"]


def test_batches_are_bounded_but_a_large_item_goes_alone() -> None:
    outbox = Outbox("n", batch_bytes=1000)
    outbox.add(
        [report(n) for n in range(1, 100)], [event(1, 5000), event(2, 400), event(3, 400), event(4, 400)]
    )
    sizes = []
    while outbox:
        batch = outbox.take()
        items = [*batch.events, *batch.reports]
        sizes.append(sum(i.ByteSize() for i in items))
        assert sizes[-1] <= 1000 or len(items) == 1
    assert len(sizes) > 4


def test_bounds_hold_for_a_single_item_that_is_too_large() -> None:
    outbox = Outbox("n", event_bytes=100)
    outbox.add([], [event(1, 10_000)])
    assert drain(outbox)[1] == ["1"]
