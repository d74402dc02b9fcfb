"""Schedule generators: who is asked, what happens when one goes, and that Nimbus always has a decision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from balance_harness import APART, Clock, Reign, T, topology

from benchmarks.placements import chain
from elastic.model.events import Event
from elastic.model.records import ElasticitySettings
from elastic.nimbus.balancing.generators import Generators, Seat
from elastic.scheduler.decision import Reason
from elastic.scheduler.question import Answer, Question, answer, ask
from elastic.scheduler.registry import choose

FOR_EVER = 600.0
LINE = "tstorm --gamma 6 --worker-cores 0"


def question(number: int) -> Question:
    case = chain((1, 2), 2)
    return ask(number, choose("otd"), case.demands, case.cluster, case.load, case.current)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


class Told:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [e.kind for e in self.events]


def test_the_first_is_asked_and_the_next_when_it_has_gone(pool: ThreadPoolExecutor) -> None:
    told = Told()
    all_of = Generators(told, FOR_EVER)
    assert all_of.ask(question(1)) is None, "nobody is there"
    first, second = all_of.attach("a"), all_of.attach("b")
    asking = pool.submit(all_of.ask, question(2))
    asked = first.next(FOR_EVER)
    assert asked is not None and asked.number == 2
    assert second.next(0.0) is None and first.next(0.0) is None, "it is asked once, and nobody else"
    second.answer(Answer(1))
    first.answer(Answer(2, reasons=(Reason("kept", "as it is"),)))
    found = asking.result(FOR_EVER)
    assert found is not None and found[0].number == 2 and found[1] is first
    first.leave("killed")
    first.leave("again")
    assert all_of.names() == ("b",)
    assert told.kinds() == ["generator-joined", "generator-joined", "generator-left"]
    assert "b decides from now on" in told.events[-1].message
    asking = pool.submit(all_of.ask, question(3))
    assert second.next(FOR_EVER) is not None
    second.leave("killed")
    assert asking.result(FOR_EVER) is None, "who waits for it knows at once"
    assert "Nimbus decides itself" in told.events[-1].message and first.next(FOR_EVER) is None


def test_who_does_not_answer_in_time_is_not_asked_again() -> None:
    told = Told()
    all_of = Generators(told, 0.01)
    seat = all_of.attach("slow")
    assert all_of.ask(question(1)) is None and "has not answered" in seat.gone
    assert all_of.names() == () and told.kinds()[-1] == "generator-left"


def test_an_answer_to_an_earlier_question_is_none(pool: ThreadPoolExecutor) -> None:
    all_of = Generators(Told(), 0.05)
    seat = all_of.attach("late")
    asking = pool.submit(all_of.ask, question(2))
    assert seat.next(FOR_EVER) is not None
    seat.answer(Answer(1, reasons=(Reason("kept", "late"),)))
    assert asking.result(FOR_EVER) is None


def test_a_late_answer_that_were_taken_would_be_found(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(all_of: Generators, seat: Seat, found: Answer) -> None:
        with all_of._changed:
            seat.answered = found
            all_of._changed.notify_all()

    monkeypatch.setattr(Generators, "answer", careless)
    with pytest.raises(AssertionError):
        test_an_answer_to_an_earlier_question_is_none(pool)


def test_the_end_of_a_reign_ends_all_seats_and_waits(pool: ThreadPoolExecutor) -> None:
    all_of = Generators(Told(), FOR_EVER)
    seat = all_of.attach("a")
    asking = pool.submit(all_of.ask, question(1))
    assert seat.next(FOR_EVER) is not None
    all_of.close()
    assert asking.result(FOR_EVER) is None and "does not lead" in seat.gone
    assert "does not lead" in all_of.attach("b").gone


def serve(seat: Seat, decide: Callable[[Question], Answer]) -> threading.Thread:
    def run() -> None:
        while not seat.gone:
            asked = seat.next(FOR_EVER)
            if asked is not None:
                seat.answer(decide(asked))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_nimbus_adopts_what_a_generator_decides_and_decides_itself_without_one() -> None:
    reign = Reign(APART, scheduler=LINE, period=1.0)
    clock = Clock(reign)
    seat = clock.balancer.generators.attach("host:7")
    numbers: list[int] = []

    def decide(asked: Question) -> Answer:
        numbers.append(asked.number)
        assert asked.scheduler == LINE
        return answer(asked)

    thread = serve(seat, decide)
    clock.go(7, 0.3)
    assert "rescheduled" in reign.kinds()
    desired, why, _, _ = reign.adopted[0]
    assert len({w for _, w in desired.executors}) == 1 and why.startswith("tstorm by host:7: ")
    asked = len(numbers)
    assert asked > 0
    seat.leave("killed")
    thread.join(FOR_EVER)
    reign.adopted.clear()
    reign.seen = replace(reign.seen, topologies={T: topology(APART)})
    clock.go(7, 0.3)
    assert reign.adopted[0][1].startswith("tstorm: ") and len(numbers) == asked


@pytest.mark.parametrize("wrong", ["failure", "stranger", "nothing"])
def test_an_answer_that_cannot_be_costs_the_seat_and_no_decision(wrong: str) -> None:
    reign = Reign(APART, scheduler=LINE, period=1.0)
    clock = Clock(reign)
    seat = clock.balancer.generators.attach("host:7")

    def decide(asked: Question) -> Answer:
        found = answer(asked)
        if wrong == "failure":
            return Answer(asked.number, failure="no such plug-in here")
        if wrong == "nothing":
            return Answer(asked.number)
        stranger = replace(asked.current[0], topology="other")  # type: ignore[arg-type]
        return replace(found, assignments=(stranger,))

    thread = serve(seat, decide)
    clock.go(7, 0.3)
    thread.join(FOR_EVER)
    assert seat.gone and "generator-left" in reign.kinds()
    assert reign.adopted[0][1].startswith("tstorm: "), "Nimbus decides itself"
    reign.said = ElasticitySettings()
