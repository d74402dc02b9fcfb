"""The small parts by themselves: records as JSON, plans, the gate, the scribe, the driver."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.errors import ElasticError, ProtocolViolation, Refused, Unavailable, Unmovable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.driver import Driver, failure, notifier_driver, participant_driver
from elastic.migration.emitter import Emitter
from elastic.migration.gate import Gate
from elastic.migration.mover_new import MoverNew
from elastic.migration.participant import Participant
from elastic.migration.plan import Bound, Change, Seat, Wiring, batches, changes_between, plan_move
from elastic.migration.receiver import Receiver
from elastic.migration.record import (
    FailedMark,
    Marked,
    Marks,
    MoveRecord,
    Outcome,
    SavedMark,
    TaskMove,
    decode_marks,
    encode_marks,
)
from elastic.migration.scribe import Scribe
from elastic.migration.snapshot import InLink, TaskLinks
from elastic.model.codec import decode, encode
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName
from elastic.model.topology import TopologySpec
from protocol_tests.situations import A, B, C, line

ME = Incarnation(f"{A}#1")
numbers = st.integers(1, 1 << 40)
names = st.text(max_size=8)
nodes = st.lists(names.map(NodeId), max_size=3).map(tuple)
marks = st.builds(
    Marks,
    names.map(Incarnation),
    st.lists(numbers).map(tuple),
    st.lists(numbers).map(tuple),
    st.dictionaries(numbers, st.builds(SavedMark, nodes, numbers)),
    st.dictionaries(numbers, numbers),
    st.dictionaries(numbers, numbers),
    st.dictionaries(numbers, numbers),
    st.dictionaries(numbers, st.builds(FailedMark, numbers, names, st.booleans())),
    st.lists(numbers).map(tuple),
    st.dictionaries(numbers, numbers),
    st.booleans(),
)
task_moves = st.builds(
    TaskMove, numbers.map(TaskId), names, names.map(Incarnation), names.map(Incarnation), names.map(NodeId), names.map(NodeId),
    numbers, numbers, st.sampled_from(Outcome), names,
)  # fmt: skip
records = st.builds(
    MoveRecord,
    names.map(TopologyName),
    numbers.map(Epoch),
    names,
    st.lists(task_moves, max_size=3).map(tuple),
    numbers,
    names,
)


@settings(max_examples=50, deadline=None)
@given(marks)
def test_marks_survive_as_json(value: Marks) -> None:
    assert decode_marks(encode_marks(value)) == value


@settings(max_examples=50, deadline=None)
@given(records)
def test_records_survive_as_json(value: MoveRecord) -> None:
    assert decode(encode(value), MoveRecord) == value


def test_a_plan_leaves_out_what_cannot_be_moved_now() -> None:
    shape = line((1, 4), {1: C, 2: A, 3: A, 4: A, 5: A})
    before = {TaskId(t): w for t, w in shape.places.items()}
    changes = changes_between(before, {TaskId(t): B for t in (2, 3, 4, 5)})
    assert changes == tuple(Change(TaskId(t), A, B) for t in (2, 3, 4, 5))
    seats = {w: Seat(Incarnation(f"{w}#1"), n) for w, n in shape.workers.items()}
    record = plan_move(shape.spec, Epoch(3), "why", changes, seats, busy={4}, share=0.5)
    assert [(t.task, t.batch) for t in record.tasks] == [(2, 0), (3, 0), (5, 1)]
    with pytest.raises(Refused):
        plan_move(shape.spec, Epoch(3), "why", changes, {}, share=0.5)


def test_batches_keep_to_the_share_of_each_component() -> None:
    spec = line((2, 8, 3)).spec
    result = batches(spec, [TaskId(t) for t in range(1, 14)], 0.4)
    for batch in set(result):
        paused = [t for t, b in zip(range(1, 14), result, strict=True) if b == batch]
        for component, most in (("c0", 1), ("c1", 3), ("c2", 1)):
            assert (
                len(
                    set(paused) & set(spec.tasks_of(next(c.id for c in spec.components if c.id == component)))
                )
                <= most
            )
    with pytest.raises(Refused):
        batches(spec, [TaskId(1)], 0.0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=13, max_size=13),
    st.integers(1, 6),
    st.integers(1, 100),
    st.sampled_from([0.1, 0.4, 0.5, 1.0]),
)
def test_a_batch_keeps_to_its_bound_and_to_the_share(
    sizes: list[int], most: int, size: int, share: float
) -> None:
    spec = line((2, 8, 3)).spec
    tasks = [TaskId(t) for t in range(1, 14)]
    known = dict(zip(tasks, sizes, strict=True))
    result = batches(spec, tasks, share, Bound(most, size, known))
    assert result == sorted(result) and set(result) == set(range(result[-1] + 1))
    taken = [[t for t, b in zip(tasks, result, strict=True) if b == n] for n in range(result[-1] + 1)]
    for lot, following in zip(taken, [*taken[1:], []], strict=True):
        assert _fits(spec, lot, most, size, share, known) or len(lot) == 1
        if following:  # no smaller than it has to be
            assert not _fits(spec, [*lot, following[0]], most, size, share, known)


def _fits(
    spec: TopologySpec, lot: list[TaskId], most: int, size: int, share: float, known: dict[TaskId, int]
) -> bool:
    counts = Counter(spec.component_of(t).id for t in lot)
    return (
        len(lot) <= most
        and sum(known[t] for t in lot) <= size
        and all(
            n <= max(1, int(spec.component_of(TaskId(spec.tasks_of(c)[0])).tasks * share))
            for c, n in counts.items()
        )
    )


def test_wiring_is_that_of_the_topology() -> None:
    wiring = Wiring.of(line((2, 2, 1)).spec)
    assert wiring.targets_of(1) == (3, 4) and wiring.emitters_of(5) == (3, 4) and wiring.emitters_of(1) == ()


def test_the_gate_admits_nothing_older() -> None:
    gate = Gate()
    assert gate.admits("x", (3, 1)) and gate.admits("x", (3, 1)) and not gate.admits("x", (2, 9))
    gate.close("x", (3, 1))
    assert not gate.admits("x", (3, 1)) and gate.admits("x", (3, 2)) and gate.admits("y", (1,))


def test_marks_gather_while_a_write_is_under_way() -> None:
    scribe = Scribe(1)
    scribe.add(ac.Mark(1, 1, "asked"))
    assert scribe.write() == ()  # nothing is known of what there is
    scribe.seen(Marked(Marks(ME), 0))
    (write,) = scribe.write()
    assert write.marks.asked == (1,) and write.version == 0
    scribe.add(ac.Mark(1, 3, "saved"))
    scribe.add(ac.Mark(1, 2, "asked"))
    assert scribe.write() == () and scribe.urgent
    assert [m.task for m in scribe.read(Marked(write.marks, 1))] == [1]
    (write,) = scribe.write()
    assert write.marks.asked == (1, 2) and set(write.marks.saved) == {3} and write.version == 1
    assert scribe.urgent and len(scribe.read(Marked(write.marks, 2))) == 2 and scribe.idle
    assert not scribe.urgent, "each task that is ready from now on is a write of its own"


def test_a_mark_that_nimbus_refused_is_not_written_again() -> None:
    scribe = Scribe(1)
    scribe.seen(Marked(Marks(ME), 0))
    scribe.add(ac.Mark(1, 4, "prepared", 1))
    assert scribe.write()
    scribe.add(ac.Mark(1, 1, "saved"))
    scribe.add(ac.Mark(1, 2, "restored", 1))
    scribe.add(ac.Mark(1, 3, "asked"))
    assert scribe.read(Marked(Marks(ME, prepared={4: 1}).bar(1).revoke(2, 1), 4)) == [
        ac.Mark(1, 4, "prepared", 1)
    ]
    (write,) = scribe.write()
    assert not write.marks.saved and not write.marks.restored and write.marks.asked == (3,)
    assert scribe.read(Marked(write.marks, 5)) == [ac.Mark(1, 3, "asked")]
    assert scribe.idle and not scribe.write(), "what was refused is written for ever"
    scribe.add(ac.Mark(1, 5, "asked"))
    assert scribe.read(None) == [] and scribe.idle and not scribe.write()


def test_only_that_a_task_is_ready_waits_for_others_to_be() -> None:
    for what in ("asked", "ahead", "prepared", "fetched", "saved", "restored", "failed", "closed"):
        scribe = Scribe(1)
        scribe.add(ac.Mark(1, 1, what, 1))
        assert scribe.urgent is (what in ("saved", "restored", "failed", "closed")), what


def test_that_it_has_failed_before_does_not_say_that_it_has_now() -> None:
    scribe = Scribe(1)
    scribe.seen(Marked(Marks(ME), 0))
    scribe.add(ac.Mark(1, 1, "failed", 2, reason="now"))
    assert scribe.write()
    assert not scribe.read(Marked(Marks(ME, failed={1: FailedMark(1, "before")}, revoked={1: 1}), 4))
    (write,) = scribe.write()
    assert write.version == 4 and write.marks.failed == {1: FailedMark(2, "now")}


def test_marks_of_events_that_come_together_are_one_write() -> None:
    done: list[str] = []

    def answers(event: Any) -> tuple[tuple[Any, ...], ...]:
        scribe.add(ac.Mark(1, event, "asked"))
        return ()

    scribe = Scribe(1)
    scribe.seen(Marked(Marks(ME), 0))
    driver = Driver(
        answers,
        {ac.WriteMarks: lambda a: done.append(f"{a.marks.asked}")},
        failure,
        lambda: tuple((w,) for w in scribe.write()),
    )
    driver.feed(1, more=True)
    driver.feed(2, more=True)
    assert done == []
    driver.settle()
    driver.settle()
    assert done == ["(1, 2)"]


def test_what_stands_behind_a_failed_action_of_an_answer_does_not_happen() -> None:
    done: list[Any] = []

    def save(action: ac.Save) -> None:
        raise Unavailable("the store does not answer")

    def answers(event: Any) -> tuple[tuple[Any, ...], ...]:
        if isinstance(event, ev.OldFailed):
            return ((ac.Say("failed", 2, event.reason),),)
        first = (ac.Say("first", 2, ""), ac.Save(2, 1, (), TaskLinks(0)), ac.Say("never", 2, ""))
        return (first, (ac.Say("another role", 3, ""),))

    driver = Driver(answers, {ac.Say: lambda a: done.append(a.kind), ac.Save: save}, failure)
    driver.feed(ev.Stopped(2, 1))
    assert done == ["first", "another role", "failed"]


def test_an_answer_at_once_waits_until_the_actions_are_done() -> None:
    told: list[str] = []
    driver: Driver

    def answers(event: Any) -> tuple[tuple[Any, ...], ...]:
        told.append(f"event {event}")
        return ((ac.Say("a", 0, ""), ac.Say("b", 0, "")),) if event == 1 else ()

    def say(action: ac.Say) -> None:
        told.append(action.kind)
        if action.kind == "a":
            driver.feed(2)

    driver = Driver(answers, {ac.Say: say}, failure)
    driver.feed(1)
    assert told == ["event 1", "a", "b", "event 2"]


def test_answers_at_once_are_taken_in_their_order_behind_what_follows_from_a_failure() -> None:
    taken: list[Any] = []
    driver: Driver

    def answers(event: Any) -> tuple[tuple[Any, ...], ...]:
        taken.append(event if isinstance(event, int) else "failed")
        return ((ac.Say("answers", 0, ""), ac.StopTask(2, 1)),) if event == 1 else ()

    def say(action: ac.Say) -> None:
        driver.feed(2)
        driver.feed(3)

    def stop(action: ac.StopTask) -> None:
        raise Unavailable("it cannot be begun")

    driver = Driver(answers, {ac.Say: say, ac.StopTask: stop}, failure)
    driver.feed(1)
    assert taken == [1, "failed", 2, 3]


def test_what_is_answered_to_a_write_at_once_is_taken_and_may_want_a_write_of_its_own() -> None:
    taken: list[int] = []
    driver: Driver

    def answers(event: int) -> tuple[tuple[Any, ...], ...]:
        taken.append(event)
        return ()

    def rest() -> tuple[tuple[Any, ...], ...]:
        return ((ac.Say("write", len(taken), ""),), (ac.Say("another", 9, ""),)) if len(taken) < 3 else ()

    def write(action: ac.Say) -> None:
        driver.feed(action.task)

    driver = Driver(answers, {ac.Say: write}, failure, rest)
    driver.feed(0)
    assert taken == [0, 1, 9]


def test_who_is_told_of_a_violation_may_go_on() -> None:
    taken: list[int] = []

    def answers(event: int) -> tuple[tuple[Any, ...], ...]:
        if event == 1:
            raise ProtocolViolation("broken")
        taken.append(event)
        return ()

    driver = Driver(answers, {}, failure)
    with pytest.raises(ProtocolViolation):
        driver.feed(1)
    driver.feed(2)
    assert taken == [2]


class Fails:
    """Ports that can begin nothing."""

    def __getattr__(self, name: str) -> Any:
        def port(action: Any) -> None:
            raise Unavailable(f"no {name}")

        return port


def test_a_worker_is_told_of_what_no_event_follows_from_and_of_nothing_else() -> None:
    told: list[Any] = []
    wanted: list[Any] = [ac.Block(1, 2), ac.Rest(1, 0), ac.FetchAhead(2, 1, 1, ()), ac.BeginTask(2, 1, 1)]
    write = ac.WriteMarks(1, Marks(ME), 0)
    taken: list[Any] = []

    def answers(event: Any) -> tuple[tuple[Any, ...], ...]:
        taken.append(event)
        return tuple((a,) for a in wanted) if event == 1 else ()

    participant: Any = SimpleNamespace(answers=answers, writes=iter([((write,),), ()]).__next__)
    ports: Any = Fails()
    driver = participant_driver(
        participant, links=ports, tasks=ports, store=ports, marks=ports,
        on_fatal=lambda action, error: told.append((action, error.message)),
    )  # fmt: skip
    driver.feed(1)
    assert told == [(wanted[0], "no block"), (wanted[3], "no begin"), (write, "no write")]
    assert sorted(map(str, taken[1:])) == sorted(map(str, [ev.Rested(1, 0), ev.AheadFetched(2, 1, 1)]))


def test_a_nimbus_is_told_of_what_cannot_be_begun() -> None:
    told: list[str] = []
    notifier: Any = SimpleNamespace(handle=lambda event: (ac.Say("a", 0, ""),))
    ports: Any = Fails()
    driver = notifier_driver(
        notifier, records=ports, cleaning=ports, timers=ports, voice=ports,
        on_fatal=lambda action, error: told.append(error.message),
    )  # fmt: skip
    driver.feed(1)
    assert told == ["no say"]


def test_a_violation_is_not_taken_for_a_failure() -> None:
    def broken(action: Any) -> None:
        raise ProtocolViolation("broken")

    driver = Driver(lambda event: ((ac.Say("a", 0, ""),),), {ac.Say: broken}, failure)
    with pytest.raises(ProtocolViolation):
        driver.feed(1)


def test_what_follows_from_a_failed_action() -> None:
    error = ElasticError("why")
    assert failure(ac.AskStore(2, 1, ()), error) == ev.OldFailed(2, 1, "why")
    assert failure(ac.AskStore(2, 1, ()), Unmovable("why")) == ev.OldFailed(2, 1, "why", final=True)
    assert failure(ac.Fetch(2, 1, 3, ()), error) == ev.NewFailed(2, 1, 3, "why")
    for old in (
        ac.NotePause(2, 1),
        ac.StopTask(2, 1),
        ac.ConfirmOutput(2, 1),
        ac.Save(2, 1, (), TaskLinks(0)),
    ):
        assert failure(old, error) == ev.OldFailed(2, 1, "why")
    for new in (ac.PrepareTask(2, 1, 3), ac.Install(2, 1, 3, TaskLinks(0), None)):
        assert failure(new, error) == ev.NewFailed(2, 1, 3, "why")
    assert failure(ac.FetchAhead(2, 1, 3, ()), error) == ev.AheadFetched(2, 1, 3)
    assert failure(ac.Rest(1, 4), error) == ev.Rested(1, 4)
    assert failure(ac.Block(1, 2), error) is None


def test_a_buffer_that_was_full_is_full_no_more_when_it_is_sent() -> None:
    link, where = Emitter(1, 2, 7, 2), Incarnation("t@a/0#1")
    assert link.kept("a", 2) and link.full and not link.kept("b", 1)
    link.handle(ev.Resume(1, 2, where))
    assert link.handle(ev.Room(1, 2))[1:] == (ac.Unblock(1, 2),) and link.flowing
    link.handle(ev.Pause(1, 2, 1, where))
    assert not link.full and link.kept("b", 1)


def test_what_is_early_of_a_life_that_has_ended_is_dropped_once_and_stops_nothing() -> None:
    link = Receiver(1, 2, InLink(1, 3, 0))
    assert not link.handle(ev.Arrived(1, 2, 3, 2, 1, "old")) and link.waiting
    (drop,) = link.handle(ev.Opened(1, 2, 4, 0))
    assert isinstance(drop, ac.Drop) and drop.item == "old" and not link.waiting
    assert not link.handle(ev.Arrived(1, 2, 4, 2, 1, "second"))
    came = link.handle(ev.Arrived(1, 2, 4, 1, 1, "first"))
    assert [x.item for x in came if isinstance(x, ac.Accept)] == ["first", "second"] and len(came) == 2


@pytest.mark.parametrize("order", list(permutations((2, 3, 4))))
def test_what_is_early_is_taken_in_the_order_of_emission(order: tuple[int, ...]) -> None:
    """By several ways, as its source has moved more than once. What a fence says is reached after all of that, and not before it."""
    link = Receiver(1, 2, InLink(1, 3, 0))
    for n in order:
        assert not link.handle(ev.Arrived(1, 2, 3, n, 1, n))
    assert not link.handle(ev.FenceArrived(1, 2, 7, 3, 4)) and not link.reached(7)
    *came, reached = link.handle(ev.Arrived(1, 2, 3, 1, 1, 1))
    assert [x.item for x in came if isinstance(x, ac.Accept)] == [1, 2, 3, 4]
    assert reached == ac.FenceReached(1, 2, 7) and link.reached(7)


@pytest.mark.parametrize(("life", "position"), [(3, 4), (4, 0)])
def test_a_fence_is_reached_when_the_link_is_opened_there_or_for_another_life(
    life: int, position: int
) -> None:
    """What the life before that has sent, and has not come, never will."""
    link = Receiver(1, 2) if life == 3 else Receiver(1, 2, InLink(1, 3, 2))
    assert not link.handle(ev.FenceArrived(1, 2, 7, 3, 4))
    assert link.handle(ev.Opened(1, 2, life, position)) == (ac.FenceReached(1, 2, 7),) and link.reached(7)


def test_nothing_is_discarded_where_the_task_has_never_left() -> None:
    new = MoverNew(2, 1, 2)
    assert new.handle(ev.StillHere(2, 1, 2)) == (ac.Mark(1, 2, "restored", 2),)
    assert not new.handle(ev.Settled(2, 1, False))


@pytest.mark.parametrize("gone", [True, False])
def test_what_is_early_gives_its_room_back_when_its_task_goes(gone: bool) -> None:
    """Else the way to a task that comes back is narrower by that for ever."""
    source, target = 1, 2
    participant = Participant(ME, line().wiring, 100)
    participant.handle(ev.TaskStarted(target, 1))
    participant.handle(ev.Opened(source, target, 5, 0))
    assert not participant.handle(ev.Arrived(source, target, 5, 3, 2, "early")), "two are missing before it"
    answer = participant.handle(ev.TaskGone(target) if gone else ev.TaskStarted(target, 2))
    assert [a.item for a in answer if isinstance(a, ac.Drop)] == ["early"]
