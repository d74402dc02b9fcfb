"""What a supervisor knows of topologies: watched and read at once, it is the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.coordination import paths
from elastic.coordination.base import SessionState, Versioned
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import Unavailable
from elastic.model import codec
from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import ComponentId, Epoch, Incarnation, TaskId, TopologyName, WorkerId
from elastic.model.records import Progress, TopologyState, TopologyStatus, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.supervisor.observe import Observer, Views, read_all

T = TopologyName("t")
U = TopologyName("u")
W = WorkerId("t@n/0")


class Watching:
    """An observer, and a way to wait until it knows something."""

    def __init__(self, server: MemoryZooKeeper) -> None:
        self.session = server.connect()
        self.changed = threading.Condition()
        self.told = 0
        self.observer = Observer(self.session, self.tell)
        self.observer.start()

    def tell(self) -> None:
        with self.changed:
            self.told += 1
            self.changed.notify_all()

    def until(self, condition: Callable[[Views], bool], timeout: float = 30.0) -> Views:
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.observer.views()), timeout), (
                self.observer.views()
            )
            return self.observer.views()

    def close(self) -> None:
        self.observer.close()
        self.session.close()


@pytest.fixture
def server() -> Iterator[MemoryZooKeeper]:
    made = MemoryZooKeeper()
    session = made.connect()
    for path in paths.ALL:
        session.create(path)
    yield made
    made.close()


@pytest.fixture
def watching(server: MemoryZooKeeper) -> Iterator[Watching]:
    made = Watching(server)
    yield made
    made.close()


def state(id: str = "1") -> bytes:
    return codec.encode(TopologyState(TopologyStatus.ACTIVE, id, "b", 0.0))


def assignment(epoch: int) -> bytes:
    executor = ExecutorId(ComponentId("c"), TaskId(1), TaskId(1))
    return codec.encode(Assignment(T, Epoch(epoch), executors=((executor, W),)))


def info(number: int) -> bytes:
    return codec.encode(WorkerInfo(W, Incarnation(f"{W}#{number}"), "a", "", "b", number, Epoch(1)))


def test_a_new_topology_is_seen_with_all_its_parts_at_once(
    server: MemoryZooKeeper, watching: Watching
) -> None:
    nimbus = server.connect()
    nimbus.put(paths.spec(T), codec.encode(TopologySpec(T, (), config={"kill_delay": 9})))
    nimbus.put(paths.assignment(T), assignment(1))
    nimbus.put(paths.worker(T, W), info(1))
    nimbus.put(paths.state(T), state())
    first = watching.until(lambda v: T in v and v[T].state is not None)[T]
    # The very first view that has a state has everything: nobody starts a worker beside a living one.
    assert first.assignment is not None and len(first.workers) == 1
    assert first.config == {"kill_delay": 9}


def test_a_worker_that_goes_before_it_is_watched_is_not_seen_for_ever(
    server: MemoryZooKeeper, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus, worker = server.connect(), server.connect()
    get = watching.session.get

    def then_it_goes(path: str) -> Versioned | None:
        value = get(path)
        if path == paths.worker(T, W) and value is not None:
            worker.delete(path)
        return value

    monkeypatch.setattr(watching.session, "get", then_it_goes)
    nimbus.put(paths.worker(T, W), info(1))
    nimbus.put(paths.state(T), state())
    watching.until(lambda v: T in v and v[T].state is not None and not v[T].workers)


def test_another_topology_of_the_same_name_starts_from_nothing(
    server: MemoryZooKeeper, watching: Watching
) -> None:
    nimbus = server.connect()
    nimbus.put(paths.assignment(T), assignment(1))
    nimbus.put(paths.worker(T, W), info(1))
    nimbus.put(paths.state(T), state())
    watching.until(lambda v: T in v and v[T].state is not None)
    server.suspend(watching.session)
    nimbus.delete(paths.topology(T), recursive=True)
    nimbus.put(paths.state(T), state("2"))
    server.resume(watching.session)
    second = watching.until(lambda v: T in v and v[T].state is not None and v[T].state.id == "2")[T]
    assert second.assignment is None and second.workers == ()


def test_with_a_connection_again_nothing_old_is_acted_on(
    server: MemoryZooKeeper, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus = server.connect()
    nimbus.put(paths.state(T), state())
    nimbus.put(paths.assignment(T), assignment(1))
    watching.until(lambda v: T in v and v[T].assignment is not None)
    get, refused = watching.session.get, [Unavailable("not yet"), Unavailable("not yet")]

    def reluctant(path: str) -> Versioned | None:
        if refused:
            raise refused.pop()
        return get(path)

    before: list[Views] = []
    after: list[Views] = []
    done = threading.Event()

    def refreshed() -> None:
        after.append(watching.observer.views())
        done.set()

    def on_session(now: SessionState) -> None:
        if now is SessionState.CONNECTED:
            before.append(watching.observer.views())
            monkeypatch.setattr(watching.session, "get", reluctant)
            watching.observer.refresh(refreshed)

    server.suspend(watching.session)
    watching.session.watch_session(on_session)
    nimbus.put(paths.assignment(T), assignment(2))
    nimbus.put(paths.state(U), state())
    server.resume(watching.session)
    assert done.wait(30.0)
    first, second = before[0][T].assignment, after[0][T].assignment
    assert first is not None and first.epoch == 1 and U not in before[0], "what it would have acted on"
    assert second is not None and second.epoch == 2 and after[0][U].state is not None and not refused


def test_a_new_life_under_the_same_path_is_seen(server: MemoryZooKeeper, watching: Watching) -> None:
    nimbus = server.connect()
    nimbus.put(paths.state(T), state())
    for number in range(1, 20):
        nimbus.put(paths.worker(T, W), info(number))
        watching.until(lambda v, n=number: T in v and any(w.pid == n for w in v[T].workers))  # type: ignore[misc]
        nimbus.delete(paths.worker(T, W))


def test_what_cannot_be_read_is_as_if_it_were_not_there(server: MemoryZooKeeper, watching: Watching) -> None:
    nimbus = server.connect()
    nimbus.put(paths.state(T), b"nonsense")
    nimbus.put(paths.assignment(T), b"\xff")
    nimbus.put(paths.state(U), state())
    views = watching.until(lambda v: U in v and v[U].state is not None and T in v)
    assert views[T].state is None
    assert read_all(nimbus)[T].assignment is None


STEPS = ["state", "state2", "assignment", "info", "infogone", "remove", "suspend", "resume"]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from([T, U]), st.integers(1, 5)), max_size=20))
def test_watching_and_reading_agree_in_the_end(steps: list[tuple[str, TopologyName, int]]) -> None:
    server = MemoryZooKeeper()
    nimbus = server.connect()
    watching = Watching(server)
    for step, name, number in steps:
        match step:
            case "state":
                nimbus.put(paths.state(name), state())
            case "state2":
                nimbus.put(paths.state(name), state(str(number)))
            case "assignment":
                nimbus.put(paths.assignment(name), assignment(number))
            case "info":
                nimbus.put(paths.worker(name, W), info(number))
            case "infogone":
                nimbus.delete(paths.worker(name, W))
            case "remove":
                if nimbus.get(paths.topology(name)) is not None:
                    nimbus.delete(paths.topology(name), recursive=True)
            case "suspend":
                server.suspend(watching.session)
            case "resume":
                server.resume(watching.session)
    server.resume(watching.session)
    expected = {n: v for n, v in read_all(nimbus).items() if v.state is not None}
    watching.until(lambda v: {n: x for n, x in v.items() if x.state is not None} == expected)
    watching.close()
    server.close()


def test_what_workers_write_down_of_their_progress_is_not_followed(
    server: MemoryZooKeeper, watching: Watching
) -> None:
    """In a move it changes all the time, and every node would read that of all workers."""
    nimbus = server.connect()
    nimbus.put(paths.spec(T), codec.encode(TopologySpec(T, (), config={})))
    nimbus.put(paths.assignment(T), assignment(1))
    nimbus.put(paths.worker(T, W), info(1))
    nimbus.put(paths.worker_progress(T, W), codec.encode(Progress(Incarnation("x"), Epoch(1))))
    nimbus.put(paths.state(T), state())
    watching.until(lambda v: T in v and len(v[T].workers) == 1 and v[T].assignment is not None)
    followed = {path for _, path in watching.session._watches._subscriptions}
    assert paths.worker(T, W) in followed and not any(p.startswith(paths.progress(T)) for p in followed)
