"""What has come ahead of a task is used by the attempt that it came for, when nobody is at it any more, and unless it was given up."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.errors import NotFound, Unavailable
from elastic.migration import events as ev
from elastic.worker.content import Arrival
from elastic.worker.content.layout import VERSION, Meta, write_meta
from elastic.worker.moving import along, fetching
from elastic.worker.moving.coming import Coming
from elastic.worker.moving.fetching import Fetching
from elastic.worker.moving.moving import Side
from elastic.worker.moving.stores import GROWN, SmallState
from tests.unit.worker.test_looks_ahead import Window

TASK, EPOCH, ATTEMPT = 1, 7, 2


class World:
    """One task of which something has come ahead; what is to be done on another thread is only noted."""

    def __init__(self, attempt: int = ATTEMPT) -> None:
        self.submitted: list[Any] = []
        self.fed: list[Any] = []
        moving = SimpleNamespace(comes=lambda task, epoch: True, prepared=self._prepared)
        worker: Any = SimpleNamespace(
            moving=moving, moves=SimpleNamespace(feed=self.fed.append), generation=0
        )
        stores: Any = SimpleNamespace()
        self.fetching = Fetching(worker, stores, lambda *what: self.submitted.append(what))
        self.coming = Coming(Side(TASK, EPOCH, attempt), ())
        self.arrival = self.coming.arrival = Arrival(Window())
        self.coming.busy = self.coming.queued = False
        self.fetching._coming[TASK] = self.coming
        self.action: Any = SimpleNamespace(
            task=TASK, epoch=EPOCH, attempt=ATTEMPT, nodes=(), size=GROWN + 1, heard=True
        )

    def fetch(self) -> list[Arrival | None]:
        """With what comes ahead the rest is fetched; None: all of it."""
        self.fetching.fetch(self.action)
        return self.fetched

    @property
    def fetched(self) -> list[Arrival | None]:
        assert all(
            what == self.fetching._fetch and action is self.action for what, action, _ in self.submitted
        )
        return [arrival for _, _, arrival in self.submitted]

    def _prepared(self, side: Side) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(SimpleNamespace(component=Window(), executor=SimpleNamespace()))
        return done

    def along(self, epoch: int = EPOCH) -> None:
        """All of it comes along."""
        state = SmallState("key", epoch, "writer", (b"piece",), b"")
        self.fetching._along.keep(TASK, epoch, memoryview(along.small(state, 0)))

    def line_up(self) -> None:
        """It waits for a thread, as others do."""
        self.coming.busy = self.coming.queued = True
        self.fetching._lined_up = 2

    def turn(self, monkeypatch: pytest.MonkeyPatch) -> list[Coming]:
        """Who is looked for when it is its turn."""
        looked: list[Coming] = []
        monkeypatch.setattr(self.fetching, "_look_on", looked.append)
        self.fetching._look_when_its_turn(self.coming)
        return looked


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Any:
    world = World(*getattr(request, "param", ()))
    yield world
    world.fetching.close()


def test_the_rest_is_fetched_when_nobody_is_at_it(world: World) -> None:
    assert world.fetch() == [world.arrival] and world.arrival.over


@pytest.mark.parametrize("world", [(ATTEMPT - 1,)], indirect=True)
def test_what_came_for_another_attempt_is_not_used(world: World) -> None:
    assert world.fetch() == [None] and not world.arrival.over


def test_it_waits_for_whoever_is_at_it(world: World) -> None:
    world.coming.busy = True
    assert world.fetch() == [] and world.coming.last.is_set()
    assert not world.fetching._is_more(world.coming)
    assert world.fetched == [world.arrival]
    assert not world.fetching._is_more(world.coming) and len(world.fetched) == 1, "it is answered once"


def test_what_was_given_up_meanwhile_is_not_used(world: World) -> None:
    """Some of it may be in, and some not."""
    world.coming.busy = True
    assert world.fetch() == []
    world.fetching._not_ahead(world.coming, ValueError("it cannot be read"))
    assert not world.fetching._is_more(world.coming)
    assert world.fetched == [None] and world.arrival.over


def test_what_comes_along_is_not_all_while_pieces_are_going_in(world: World) -> None:
    world.along()
    world.coming.busy = True
    assert not world.fetching._is_whole(TASK, EPOCH) and world.coming.whole is None
    world.coming.busy = False
    assert world.fetching._is_whole(TASK, EPOCH)
    assert world.coming.whole is not None and list(world.coming.whole.pieces) == [b"piece"]


def test_a_word_of_another_move_changes_nothing(world: World) -> None:
    world.along(EPOCH - 1)
    assert not world.fetching._is_whole(TASK, EPOCH - 1) and world.coming.whole is None
    world.fetching._look_again(TASK, EPOCH - 1, last=True)
    assert not (world.coming.last.is_set() or world.coming.more or world.coming.busy or world.submitted)


def test_whoever_is_at_it_hears_that_the_task_stands_still(world: World) -> None:
    hurried: list[bool] = []
    world.coming.busy, world.coming.going_in = True, SimpleNamespace(hurry=lambda: hurried.append(True))  # type: ignore[assignment]
    world.fetching._look_again(TASK, EPOCH, last=True)
    assert hurried and world.coming.last.is_set() and world.coming.news.is_set() and world.coming.more
    assert not world.submitted, "two would be at it"


@pytest.mark.parametrize("last", [False, True])
def test_what_goes_in_is_known_to_who_hurries_it(
    world: World, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    happened: list[str] = []

    class PuttingIn:
        def __init__(self, *_: Any) -> None:
            self.done = Future[None]()

        def begin(self, *, urgent: bool) -> None:
            happened.append("urgent" if urgent else "by and by")

        def hurry(self) -> None:
            happened.append("hurry")

    monkeypatch.setattr(fetching, "PuttingIn", PuttingIn)
    world.coming.busy = True
    if last:
        world.coming.last.set()
    world.fetching._put_in(world.coming, iter(()))  # type: ignore[arg-type]
    world.fetching._look_again(TASK, EPOCH, last=True)
    assert happened == ["urgent" if last else "by and by", "hurry"]


def test_that_a_task_stands_still_is_not_left_to_its_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.line_up()
    world.fetching._look_again(TASK, EPOCH, last=False)
    assert not world.submitted and world.fetching._lined_up == 2, "it waits already"
    world.fetching._look_again(TASK, EPOCH, last=True)
    assert world.submitted == [(world.fetching._look_on, world.coming)]
    assert not world.fetching._others_first(world.coming)
    assert world.turn(monkeypatch) == [], "somebody else is at it"


def test_what_is_whole_or_wanted_is_looked_for_by_nobody_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.line_up()
    world.along()
    assert world.fetching._is_whole(TASK, EPOCH)
    assert not world.coming.busy and world.turn(monkeypatch) == []
    world.coming.whole = None
    world.line_up()
    assert world.fetch() == [world.arrival] and world.turn(monkeypatch) == []
    world.coming.more = True
    assert not world.fetching._is_more(world.coming), "nothing is put in any more"


def test_what_is_whole_is_used_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should it be of no use the stores are asked."""
    world.along()
    assert world.fetching._is_whole(TASK, EPOCH)
    whole = world.coming.whole
    monkeypatch.setattr(world.fetching, "_fetched", lambda action, found, arrival: (found, arrival))
    assert world.fetch() == [] and world.fed == [(whole, world.arrival)]
    assert world.fetch() == [world.arrival] and len(world.fed) == 1


def test_nothing_comes_ahead_of_what_is_fetched_as_a_whole(world: World) -> None:
    """It was wanted before anything was here, and another thread is about to begin with that."""
    world.coming.arrival, world.coming.busy = None, True
    assert world.fetch() == [None] and world.coming.news.is_set()
    assert not world.fetching._arrives(world.coming) and world.coming.arrival is None


def test_what_is_forgotten_wakes_who_waits_for_it_and_keeps_nothing(world: World) -> None:
    world.along()
    world.fetching.forget_ahead(Side(TASK, EPOCH, ATTEMPT - 1))
    assert world.fetching._coming == {TASK: world.coming} and not world.coming.last.is_set(), (
        "a former attempt"
    )
    world.along()
    world.coming.more = True
    world.fetching.forget_ahead(world.coming.side)
    assert world.coming.last.is_set() and world.coming.news.is_set() and not world.fetching._coming
    assert world.fetching._along.take(TASK, EPOCH, {}) is None
    assert not world.fetching._is_more(world.coming), "it does not come"


def test_nobody_waits_when_the_worker_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LONGEST", 0.0)
    never: Any = SimpleNamespace(result=lambda seconds: Future[None]().result(0))
    with pytest.raises(Unavailable, match="the executor of task 1 has been busy for 0 s"):
        world.fetching._wait(world.coming.side, never)
    world.fetching.close()
    assert world.coming.last.is_set() and world.coming.news.is_set()
    with pytest.raises(Unavailable, match="the worker is about to end"):
        world.fetching._wait(world.coming.side, never)


def test_the_way_to_the_stores_is_opened_once_and_waited_for_only_until_it_has_failed(world: World) -> None:
    def fails() -> None:
        raise OSError("no way")

    world.fetching._stores.get_ready = fails  # type: ignore[method-assign]
    ready = world.fetching.get_ready()
    assert world.fetching.get_ready() is ready and not ready.done()
    ((make, *given),) = world.submitted
    make(*given)
    assert ready.done() and ready.exception() is None


def test_what_was_only_heard_of_has_to_say_that_it_is_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = SimpleNamespace(generation=0)
    monkeypatch.setattr(fetching, "decode_engine", lambda pieces, streams: (decoded, decoded, 1))
    monkeypatch.setattr(fetching.move_errors, "tell", lambda *_: None)
    world.fetching._worker.streams = {}  # type: ignore[assignment]
    for last in (False, True):
        meta = write_meta(Meta(VERSION, [], None, [], last=last, caught_up=True))
        found: Any = SimpleNamespace(meta=meta, named=["engine", "own"], pieces=[b"e", b"o"], more=0)
        came = world.fetching._fetched(world.action, found, None)
        assert isinstance(came, ev.Fetched if last else ev.NewFailed)
    assert isinstance(came, ev.Fetched) and (came.payload.names, came.payload.pieces) == (["own"], [b"o"])
    gone = world.fetching._fetched(world.action, NotFound("no store has it"), None)
    away = world.fetching._fetched(world.action, Unavailable("no store answers"), None)
    assert isinstance(gone, ev.NewFailed) and gone.gone and isinstance(away, ev.NewFailed) and not away.gone
