"""A cluster in a few lines for the tests of the command line: it remembers what was asked of it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from elastic.control.cli.app import app
from elastic.control.cli.settings import Connector
from elastic.errors import NotFound
from elastic.model import whys
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.events import Event, Severity
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import ComponentId, Epoch, NodeId, StreamId, TaskId, TopologyName, WorkerId
from elastic.model.records import TopologyState, TopologyStatus
from elastic.model.topology import ComponentSpec, InputSpec, TopologySpec
from elastic.model.views import (
    ComponentView,
    ElasticityView,
    ExecutorView,
    MoveTotals,
    MoveView,
    NodeSummary,
    PairView,
    SizedView,
    TaskMoveView,
    TopologyDetail,
    TopologySummary,
    TrafficView,
    WorkerView,
)
from elastic.scheduler.question import Answer, Question

WC = TopologyName("word-count")
W0 = WorkerId("word-count@node-1/0")
W1 = WorkerId("word-count@node-2/0")


@dataclass(frozen=True)
class Line:
    worker: str
    node: str
    text: str


@dataclass(frozen=True)
class Info:
    cluster: str = "default"
    version: str = "0.1.0"
    leader: str = "127.0.0.1:7000"
    address: str = "127.0.0.1:7000"
    leading: bool = True
    uptime: float = 12.5
    python: str = "3.11.9"


def summary(**changes: Any) -> TopologySummary:
    made = TopologySummary(WC, "word-count-1", TopologyStatus.ACTIVE, 1_700_000_000.0, 75.0, 6, 3, 2)
    return replace(made, **changes)


def detail(**changes: Any) -> TopologyDetail:
    lines = ComponentSpec(ComponentId("lines"), "spout", 1, 1)
    count = ComponentSpec(
        ComponentId("count"),
        "bolt",
        4,
        2,
        stateful=True,
        inputs=(
            InputSpec(ComponentId("lines"), StreamId("default"), Grouping(GroupingKind.FIELDS, ("word",))),
        ),
    )
    spec = TopologySpec(WC, (lines, count), workers=2)
    ids = [_executor("lines", 1, 1), _executor("count", 2, 3), _executor("count", 4, 5)]
    assignment = Assignment(
        WC,
        Epoch(7),
        {W0: WorkerSlot(NodeId("node-1"), 0), W1: WorkerSlot(NodeId("node-2"), 0)},
        ((ids[0], W0), (ids[1], W0), (ids[2], W1)),
    )
    made = TopologyDetail(
        summary(),
        spec,
        TopologyState(TopologyStatus.ACTIVE, "word-count-1", "ab" * 32, 1_700_000_000.0),
        assignment,
        components=(
            ComponentView(
                ComponentId("lines"), "spout", False, 1, 1, emitted=5000, emitted_rate=1234.5, busy=0.5
            ),
            ComponentView(
                ComponentId("count"),
                "bolt",
                True,
                4,
                2,
                executed=4990,
                executed_rate=1230.0,
                queued=10,
                held=77,
                busy=0.95,
            ),
        ),
        executors=(
            ExecutorView(
                "count[2-3]",
                ComponentId("count"),
                2,
                3,
                str(W0),
                "node-1",
                0.9,
                0.0,
                0.1,
                0.8,
                10,
                615.0,
                0,
                3 << 19,
            ),
            ExecutorView(
                "count[4-5]", ComponentId("count"), 4, 5, str(W1), "node-2", 0.9, 0.0, 0.1, 0.8, 0, 615.0, 0
            ),
            ExecutorView(
                "lines[1-1]", ComponentId("lines"), 1, 1, str(W0), "node-1", 0.5, 0.1, 0.4, 0.4, 0, 0, 1234.5
            ),
        ),
        workers=(
            WorkerView(
                W0, NodeId("node-1"), 0, True, f"{W0}#1", 101, "127.0.0.1:1", 7, 0, 2, 70.0, 0, 90 << 20, 0.7
            ),
            WorkerView(W1, NodeId("node-2"), 0, False),
        ),
        errors=(error(1.0),),
        waits=("worker word-count@node-2/0 has not registered yet",),
        traffic=TrafficView(
            1230.0,
            615.0,
            492.0,
            12_300.0,
            (
                PairView("lines[1-1]", "count[2-3]", 615.0),
                PairView("lines[1-1]", "count[4-5]", 615.0, 12_300.0),
            ),
        ),
    )
    return replace(made, **changes)


STEPS = ("prepared", "paused", "stopped", "saved", "restored", "begun", "resumed", "received")


def task_move(task: int, phase: str = "committed", **changes: Any) -> TaskMoveView:
    times = {s: 1_700_000_100.0 + 0.004 * (i - 1) for i, s in enumerate(STEPS)}
    made = TaskMoveView(task, ComponentId("count"), W0, W1, phase, 1, "", 2048, times, 0.0125, 0.015)
    return replace(made, **changes)


USUAL = "move count[2-3] to node-2"
"""Why things move where a test says nothing else: because of the request that is made."""


def move(epoch: int = 3, **changes: Any) -> MoveView:
    """A move that has ended well."""
    tasks = (task_move(2), task_move(3, pause=0.02))
    made = MoveView(WC, epoch, USUAL, "ended", 1_700_000_099.0, 1_700_000_101.0, tasks)
    return replace(made, **changes)


def under_way(epoch: int = 3) -> MoveView:
    """The same, half way."""
    times = {"prepared": 1_700_000_099.5}
    tasks = (
        task_move(2, "paused", times={**times, "paused": 1_700_000_100.0}, size=0, pause=0.0, gap=0.0),
        task_move(3, "preparing", times=times, size=0, pause=0.0, gap=0.0),
    )
    waits = ("task 2 waits for fences",)
    return move(epoch, state="running", ended=0.0, tasks=tasks, waits=waits)


TOTALS = MoveTotals(
    1,
    2,
    0,
    0,
    4096,
    {"0.01": 0, "0.025": 2, "+Inf": 2},
    0.0325,
    0.02,
    {"0.01": 0, "0.025": 2, "+Inf": 2},
    0.03,
    0.015,
)


def _executor(component: str, first: int, last: int) -> ExecutorId:
    return ExecutorId(ComponentId(component), TaskId(first), TaskId(last))


def error(time: float, value: str = "7") -> Event:
    trace = (
        'Traceback (most recent call last):\n  File "job.py", line 9, in execute\n    1 / 0\n'
        f"ZeroDivisionError: {value}"
    )
    return Event(
        time,
        "tuple-failed",
        f"execute raised ZeroDivisionError: {value}",
        Severity.ERROR,
        topology="word-count",
        component="count",
        task=3,
        worker=str(W0),
        details={"traceback": trace},
    )


@dataclass
class FakeClient:
    """Answers from its fields; `calls` is what was asked. `fail` is raised by the next call."""

    topologies: list[TopologySummary] = field(default_factory=lambda: [summary()])
    details: dict[str, TopologyDetail] = field(default_factory=lambda: {"word-count": detail()})
    log: list[Line] = field(default_factory=list)
    happened: list[Event] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    drained: bool = True
    fail: BaseException | None = None
    on_event: Callable[[Event], None] | None = None
    lost: Callable[[str], None] = lambda why: None
    why: str = USUAL
    closed: int = 0
    moved: list[MoveView] = field(default_factory=list)
    """Moves that are known already, the newest first."""
    coming: list[MoveView] = field(default_factory=list)
    """Moves as they change once something that moves tasks is asked for; each is then known."""
    asked: threading.Event = field(default_factory=threading.Event)
    questions: list[Question] = field(default_factory=list)
    elastic: ElasticityView = field(
        default_factory=lambda: ElasticityView(
            "thresholds --scale-out 0.8",
            topologies=(SizedView(WC, "thresholds --scale-out 0.8"),),
            policies=("ds2", "thresholds"),
            schedulers=("otd", "roundrobin", "tstorm"),
        )
    )

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def _asked(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fail is not None:
            raise self.fail

    def close(self) -> None:
        self.closed += 1
        self.asked.set()

    def on_lost(self, told: Callable[[str], None]) -> None:
        self.lost = told

    def _moves_now(self) -> None:
        for changed in self.coming:
            known = [m for m in self.moved if m.epoch != changed.epoch]
            self.moved = [changed, *known]
        self.asked.set()

    def move(
        self, name: str, what: str, where: str, *, wait: float, share: float | None = None
    ) -> Assignment:
        self._asked("move", name, what, where, wait, share)
        self.why = whys.to_move(what, where)
        self._moves_now()
        return self.details[name].assignment

    def abort_move(
        self, name: str, epoch: int | None = None, *, why: str = "", force: bool = False
    ) -> tuple[int, ...]:
        self._asked("abort_move", name, epoch, why, force)
        self._moves_now()
        return tuple(dict.fromkeys(m.epoch for m in self.coming))

    def moves(
        self, topology: str = "", *, limit: int = 0, epoch: int | None = None, tasks: bool = True
    ) -> tuple[MoveView, ...]:
        self._asked("moves", topology, limit)
        found = [m for m in self.moved if epoch in (None, m.epoch) and topology in ("", m.topology)]
        made = map(self.made_for, found[:limit] if limit else found)
        return tuple(m if tasks else replace(m, tasks=(), waits=()) for m in made)

    def follow_moves(self, topology: str = "") -> Iterator[tuple[MoveView, ...]]:
        yield tuple(reversed(self.moved))
        assert self.asked.wait(30)
        for changed in self.coming:
            yield (self.made_for(changed),)

    def made_for(self, move: MoveView) -> MoveView:
        """With what was asked for as its reason, unless it has another one."""
        return replace(move, why=self.why) if move.why == USUAL else move

    def elasticity(self) -> ElasticityView:
        self._asked("elasticity")
        return self.elastic

    def set_elasticity(self, **changes: Any) -> ElasticityView:
        self._asked("set_elasticity", {k: v for k, v in changes.items() if v is not None})
        self.elastic = replace(self.elastic, **{k: v for k, v in changes.items() if v is not None})
        return self.elastic

    def generate(self, name: str, decide: Callable[[Question], Answer]) -> Iterator[tuple[Question, Answer]]:
        self._asked("generate", name)
        for question in self.questions:
            yield question, decide(question)

    def info(self) -> Info:
        self._asked("info")
        return Info()

    def submit(
        self,
        spec: TopologySpec,
        bundle: Path,
        *,
        requires: Sequence[str] = (),
        progress: Callable[[int, int], None] | None = None,
    ) -> TopologyState:
        data = bundle.read_bytes()
        self._asked("submit", spec, data, tuple(requires))
        if progress:
            progress(len(data), len(data))
        self.topologies.append(summary(name=spec.name, id=f"{spec.name}-9", submitted=100.0))
        return TopologyState(TopologyStatus.ACTIVE, f"{spec.name}-9", hashlib.sha256(data).hexdigest(), 100.0)

    def list(self) -> tuple[TopologySummary, ...]:
        self._asked("list")
        return tuple(self.topologies)

    def describe(self, name: str) -> TopologyDetail:
        self._asked("describe", name)
        if name not in self.details:
            raise NotFound(f"There is no topology {name}.", remedy="elastic list shows those that are.")
        return self.details[name]

    def kill(self, name: str, *, wait: float) -> None:
        self._asked("kill", name, wait)

    def activate(self, name: str) -> None:
        self._asked("activate", name)

    def deactivate(self, name: str, *, wait: float = 0) -> bool:
        self._asked("deactivate", name, wait)
        return self.drained

    def rebalance(
        self,
        name: str,
        *,
        executors: Mapping[str, int],
        workers: int | None,
        wait: float,
        share: float | None = None,
    ) -> Assignment:
        self._asked("rebalance", name, dict(executors), workers, wait, share)
        self.why = whys.to_rebalance(executors, workers)
        self._moves_now()
        return self.details[name].assignment

    def nodes(self) -> tuple[NodeSummary, ...]:
        self._asked("nodes")
        return (
            NodeSummary(
                *(
                    NodeId("node-1"),
                    True,
                    True,
                    False,
                    2,
                    1,
                    (W0,),
                    "127.0.0.1",
                    "process",
                    1,
                    "127.0.0.1:9",
                    55,
                ),
                *(2.0, 0.5, 90 << 20),
            ),
            NodeSummary(NodeId("node-2"), False, True, False, 2, 0),
        )

    def add_nodes(self, count: int, *, slots: int | None, host: str, wait: float) -> tuple[str, ...]:
        self._asked("add_nodes", count, slots, host, wait)
        return tuple(f"node-{3 + n}" for n in range(count))

    def drain_node(self, node: str, *, wait: float, force: bool = False) -> None:
        self._asked("drain_node", node, wait, force)
        self._moves_now()

    def events(
        self, *, since: int = 0, topology: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[tuple[int, Event]]:
        self._asked("events", since, topology, follow, tail)
        for number, event in enumerate(self.happened, start=1):
            if topology in ("", event.topology):
                if self.on_event:
                    self.on_event(event)
                yield number, event

    def logs(
        self, topology: str, *, worker: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[Line]:
        self._asked("logs", topology, worker, follow, tail)
        yield from (line for line in self.log if worker in ("", line.worker))

    def stacks(self, topology: str, *, worker: str = "") -> tuple[Line, ...]:
        self._asked("stacks", topology, worker)
        return (
            Line(str(W0), "node-1", "thread count[2-3]\n  job.py:9 in execute"),
            Line(str(W1), "node-2", ""),
        )

    def errors(self, topology: str = "", *, limit: int = 0) -> tuple[Event, ...]:
        self._asked("errors", topology, limit)
        return tuple(
            e for e in self.happened if e.severity is Severity.ERROR and topology in ("", e.topology)
        )


def invoke(client: FakeClient | None, *words: str, input: str | None = None) -> Result:
    """Run the command line in this process; `client` is what it connects to."""
    connector = Connector(lambda settings, timeout: client or _none())
    runner = CliRunner(env=dict.fromkeys(("ELASTIC_HOME", "ELASTIC_CLUSTER", "ELASTIC_ADDRESS", "NO_COLOR")))
    return runner.invoke(app, list(words), prog_name="elastic", obj=connector, input=input)


def _none() -> FakeClient:
    raise AssertionError("this command must not connect")
