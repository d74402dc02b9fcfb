"""A schedule that another process decides is the one that would have been decided in place, also after its way over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.placements import Case, chain, large
from elastic.control.codec import ANSWER, QUESTION
from elastic.model.ids import TaskId
from elastic.model.loadview import WorkerLoad
from elastic.scheduler.decision import Decision, same_places
from elastic.scheduler.question import Answer, Question, answer, ask, decision
from elastic.scheduler.registry import Choice, choose

LINES = ("tstorm --gamma 1.7", "otd --share 0 --low 0.6", "roundrobin")


def cases() -> Iterator[Case]:
    yield chain((2, 3, 3), 3, skew=1)
    yield chain((1, 4), 2, cpu=0.3)
    case = large(120, 12, 600, topologies=3)
    (first, *rest) = case.demands
    yield replace(case, demands=(replace(first, finished=frozenset({TaskId(3)}), movable=True), *rest))


def away(case: Case, line: str) -> Decision | None:
    """What a generator decides."""
    asked = ask(7, choose(line), case.demands, case.cluster, case.load, case.current)
    question = QUESTION.decode(QUESTION.encode(asked))
    return decision(ANSWER.decode(ANSWER.encode(answer(question))), case.demands, case.current)


def same(here: Decision, there: Decision) -> bool:
    assert here.assignments.keys() == there.assignments.keys()
    return here.reasons == there.reasons and all(
        same_places(a, there.assignments[n]) and a.epoch == there.assignments[n].epoch
        for n, a in here.assignments.items()
    )


@pytest.mark.parametrize("line", LINES)
def test_the_answer_is_the_one_that_is_found_in_place(line: str) -> None:
    for case in cases():
        there = away(case, line)
        assert there is not None and same(case.ask(choose(line)), there)


def test_nothing_of_the_question_is_lost_on_its_way() -> None:
    case = chain((1, 2), 2)
    keys = tuple(case.load.executors)
    load = replace(
        case.load, workers={w: WorkerLoad(0.5, 7.0, keys[:2]) for w in case.current["chain"].workers}
    )
    asked = ask(1, choose("otd"), case.demands, case.cluster, load, case.current)
    assert QUESTION.decode(QUESTION.encode(asked)) == asked
    assert asked.workers[0].executors == (0, 1)


def test_a_question_without_its_traffic_is_answered_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above finds what is left out."""
    whole = Question.__init__

    def forgetful(self: Question, *args: object) -> None:
        whole(self, *args[:9], (), (), ())  # type: ignore[arg-type]

    monkeypatch.setattr(Question, "__init__", forgetful)
    with pytest.raises((AssertionError, TypeError)):
        for line in LINES:
            test_the_answer_is_the_one_that_is_found_in_place(line)


def test_what_cannot_be_decided_is_said_and_what_was_not_asked_is_refused() -> None:
    case = chain((1, 2), 2)
    asked = ask(1, choose("otd"), case.demands, case.cluster, case.load, case.current)
    unknown = answer(replace(asked, scheduler="tsturm"))
    assert "no scheduler 'tsturm'" in unknown.failure and not unknown.assignments
    assert decision(unknown, case.demands, case.current) is None
    found = answer(asked)
    other = replace(case.current["chain"], topology="other")  # type: ignore[arg-type]
    assert decision(Answer(1, (other,), found.reasons), case.demands, case.current) is None


def test_whatever_a_scheduler_raises_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may come from anybody's package. What ended the process would be told to Nimbus as a broken connection."""
    case = chain((1, 2), 2)
    asked = ask(3, choose("otd"), case.demands, case.cluster, case.load, case.current)

    def broken(*_: object) -> Decision:
        raise ZeroDivisionError("division by zero")

    for decide, said in (
        (broken, "ZeroDivisionError: division by zero"),
        (lambda *_: None, "AttributeError"),
    ):
        monkeypatch.setattr(Choice, "decide", decide)
        answered = answer(asked)
        assert answered.number == 3 and not answered.assignments
        assert "scheduler otd" in answered.failure and said in answered.failure
