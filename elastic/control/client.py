"""A client of a running cluster: typed requests to whichever Nimbus leads."""

from __future__ import annotations

import hashlib
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elastic.control.asking import Asking, sendable
from elastic.control.codec import (
    ANSWER,
    ASSIGNMENT,
    DETAIL,
    ELASTICITY,
    MOVE,
    NODE,
    QUESTION,
    SPEC,
    STATE,
    SUMMARY,
)
from elastic.control.connection import Link
from elastic.control.types import ClusterInfo, LogLine, WorkerStacks
from elastic.control.v1 import control_pb2 as pb
from elastic.errors import EnvironmentProblem
from elastic.model.assignment import Assignment
from elastic.model.events import Event
from elastic.model.ids import NodeId
from elastic.model.records import TopologyState
from elastic.model.topology import TopologySpec
from elastic.model.views import ElasticityView, MoveView, NodeSummary, TopologyDetail, TopologySummary
from elastic.model.words import counted
from elastic.reporting.codec import EVENT
from elastic.rpc.channels import CHUNK
from elastic.scheduler.question import Answer, Question

_SLOW = 1 << 20


class Client(Asking):
    """Requests to a cluster.

    Connects when first used. A Nimbus that doesn't lead names the one that does; one that is gone is replaced by the
    next address. Every call has a deadline of `timeout` seconds, plus the time that it is told to wait; the streams of
    `events` and `logs` have none while they follow, and end when their iterator is closed or the client is.

    All methods raise the errors of `elastic.errors`: what Nimbus raised, in the same class; `Unavailable`, naming the
    addresses, when none answers; `DeadlineExceeded`.

    Args:
        addresses: `host:port` of one Nimbus, or of several.
        timeout: Seconds.
        patience: Seconds to go on when none of the addresses answers at first: a Nimbus that has died is started again.
        explain: Says what has become of the cluster, asked when something goes wrong; "": nothing that would explain it.
    """

    def info(self) -> ClusterInfo:
        """Version, leader, uptime; also answered while nobody leads."""
        found = self._connection.info(time.monotonic() + self._timeout)
        return ClusterInfo(
            cluster=found.cluster,
            version=found.version,
            leader=found.leader,
            address=found.address,
            leading=found.leading,
            uptime=found.uptime,
            python=found.python,
        )

    def submit(
        self,
        spec: TopologySpec,
        bundle: Path,
        *,
        requires: Sequence[str] = (),
        progress: Callable[[int, int], None] | None = None,
        timeout: float | None = None,
    ) -> TopologyState:
        """Start a topology.

        Args:
            spec: The topology.
            bundle: The file with its code.
            requires: Top-level modules that every node must have.
            progress: Called with (bytes sent, bytes of the bundle) as pieces go out, on another thread.
            timeout: Seconds; by default those of the client, and one more for each MiB of the bundle.

        Raises:
            AlreadyExists: One with that name is running.
            Refused: A node lacks a module that it requires, or the bundle is too large.
            EnvironmentProblem: The bundle cannot be read.
        """
        message, (digest, size) = SPEC.encode(spec), _measure(bundle)
        header = pb.SubmitHeader(spec=message, bundle_sha256=digest, bundle_size=size, requires=requires)

        def pieces() -> Iterator[pb.SubmitRequest]:
            yield pb.SubmitRequest(header=header)
            sent = 0
            with bundle.open("rb") as file:
                while chunk := file.read(CHUNK):
                    yield pb.SubmitRequest(chunk=chunk)
                    sent += len(chunk)
                    if progress is not None:
                        progress(min(sent, size), size)

        def ask(link: Link, left: float) -> TopologyState:
            return STATE.decode(link.stub.Submit(pieces(), timeout=left).state)

        allowed = self._timeout + size / _SLOW if timeout is None else timeout
        return self._ask(f"submit {spec.name}", ask, allowed, once=True)

    def list(self) -> tuple[TopologySummary, ...]:
        """All topologies that are running, and those that ended lately."""

        def ask(link: Link, left: float) -> tuple[TopologySummary, ...]:
            found = link.stub.ListTopologies(pb.ListTopologiesRequest(), timeout=left)
            return tuple(map(SUMMARY.decode, found.topologies))

        return self._ask("list topologies", ask)

    def describe(self, name: str) -> TopologyDetail:
        """Everything about one topology. Raises NotFound."""

        def ask(link: Link, left: float) -> TopologyDetail:
            found = link.stub.DescribeTopology(pb.DescribeTopologyRequest(name=name), timeout=left)
            return DETAIL.decode(found.topology)

        return self._ask(f"describe {name}", ask)

    def kill(self, name: str, *, wait: float = 10.0) -> None:
        """Stop a topology; returns when it is gone.

        Args:
            wait: Seconds to let what is under way be worked off.
        """

        def ask(link: Link, left: float) -> None:
            link.stub.Kill(pb.KillRequest(name=name, wait=wait), timeout=left)

        self._ask(f"kill {name}", ask, self._timeout + wait, once=True)

    def activate(self, name: str) -> None:
        """Let its spouts emit again."""

        def ask(link: Link, left: float) -> None:
            link.stub.Activate(pb.ActivateRequest(name=name), timeout=left)

        self._ask(f"activate {name}", ask)

    def deactivate(self, name: str, *, wait: float = 0) -> bool:
        """Stop its spouts from emitting.

        Args:
            wait: Seconds to wait until what was emitted has been worked off.

        Returns:
            Whether it has.
        """

        def ask(link: Link, left: float) -> bool:
            found = link.stub.Deactivate(pb.DeactivateRequest(name=name, wait=wait), timeout=left)
            return found.drained

        return self._ask(f"deactivate {name}", ask, self._timeout + wait)

    def rebalance(
        self,
        name: str,
        *,
        executors: Mapping[str, int] | None = None,
        workers: int | None = None,
        wait: float = 10.0,
        share: float | None = None,
    ) -> Assignment:
        """Change the numbers of executors or workers; returns when the workers have carried it out.

        Args:
            executors: New numbers, by component; the others stay.
            workers: A new number, or None.
            wait: Seconds to wait for the workers.
            share: Of a component's tasks that may be paused at once while they move, above 0 and up to 1.
        """

        def ask(link: Link, left: float) -> Assignment:
            request = pb.RebalanceRequest(
                name=name, executors=executors, workers=workers, wait=wait, share=share
            )
            return ASSIGNMENT.decode(link.stub.Rebalance(request, timeout=left).assignment)

        return self._ask(f"rebalance {name}", ask, self._timeout + wait)

    def move(
        self, name: str, what: str, where: str, *, wait: float = 10.0, share: float | None = None
    ) -> Assignment:
        """Move running tasks with their state; returns when they run at their new place.

        Args:
            what: Tasks (`7`, `3-5`), executors (`count[3-4]`) or components (`count`), with commas between.
            where: A worker (`wc@node-1/0`), a slot (`node-1/0`), or a node.
            wait: Seconds to wait for that; 0 returns at once.
            share: See `rebalance`.

        Raises:
            NotFound: No such topology, task or place.
            Refused: The place cannot be had, or tasks could not be moved.
        """

        def ask(link: Link, left: float) -> Assignment:
            request = pb.MoveRequest(name=name, what=what, where=where, wait=wait, share=share)
            return ASSIGNMENT.decode(link.stub.Move(request, timeout=left).assignment)

        # Asked twice it comes to the same: who is there or on the way stays so.
        return self._ask(f"move tasks of {name}", ask, self._timeout + wait)

    def abort_move(
        self, name: str, epoch: int | None = None, *, why: str = "", force: bool = False
    ) -> tuple[int, ...]:
        """End moves of a topology early: what is not saved goes back, and nothing is begun again by itself.

        Args:
            epoch: The number of a move; None: all that are under way.
            why: For people.
            force: Whether states are given up that were saved, and that four attempts to restore them have not brought back: their tasks
                begin anew, without them.

        Returns:
            The numbers of the moves. They end soon.
        """

        def ask(link: Link, left: float) -> tuple[int, ...]:
            request = pb.AbortMoveRequest(name=name, epoch=epoch, why=why, force=force)
            return tuple(link.stub.AbortMove(request, timeout=left).epochs)

        return self._ask(f"abort moves of {name}", ask, once=True)

    def moves(
        self, topology: str = "", *, limit: int = 0, epoch: int | None = None, tasks: bool = True
    ) -> tuple[MoveView, ...]:
        """Moves under way and the last that have ended, of one topology or of all: those that began last first; before
        them, for each topology, what is to move and is in no move yet: its state is "planned", its epoch 0.

        Args:
            limit: How many of the newest; those that have not ended come besides. 0: all that are kept.
            epoch: Only those of this number; None: of all.
            tasks: Whether they come with their tasks and what they wait for. Of all that are kept these may be more than an answer holds.

        Raises:
            Refused: They are.
        """

        def ask(link: Link, left: float) -> tuple[MoveView, ...]:
            request = pb.ListMovesRequest(
                topology=topology, limit=limit, epoch=epoch, without_tasks=not tasks
            )
            return tuple(map(MOVE.decode, link.stub.ListMoves(request, timeout=left).moves))

        return self._ask("list moves", ask)

    def follow_moves(self, topology: str = "") -> Iterator[tuple[MoveView, ...]]:
        """Moves as they change, until the iterator is closed: first all that are known, perhaps none; then those that have changed.
        When the leader changes, it begins anew with those that the new one knows.

        Args:
            topology: Only that topology's, or all.
        """
        with sendable("follow moves"):
            request = pb.StreamMovesRequest(topology=topology)

        def ask(link: Link, left: float | None) -> Any:
            return link.stub.StreamMoves(request, timeout=left)

        found: list[MoveView] = []
        for message in self._stream("follow moves", ask, follow=True):
            found += map(MOVE.decode, message.moves)
            if not message.more:
                yield tuple(found)
                found.clear()

    def elasticity(self) -> ElasticityView:
        """Who resizes and places topologies by load."""

        def ask(link: Link, left: float) -> ElasticityView:
            answer = link.stub.GetElasticity(pb.GetElasticityRequest(), timeout=left)
            return ELASTICITY.decode(answer.elasticity)

        return self._ask("show elasticity", ask)

    def set_elasticity(
        self,
        *,
        policy: str | None = None,
        scheduler: str | None = None,
        period: float | None = None,
        nodes: str | None = None,
    ) -> ElasticityView:
        """Change who resizes and places, from now on; what is None stays. See `elastic.nimbus.nimbus.Nimbus.set_elasticity`."""

        def ask(link: Link, left: float) -> ElasticityView:
            request = pb.SetElasticityRequest(policy=policy, scheduler=scheduler, period=period, nodes=nodes)
            return ELASTICITY.decode(link.stub.SetElasticity(request, timeout=left).elasticity)

        return self._ask("set elasticity", ask)

    def generate(self, name: str, decide: Callable[[Question], Answer]) -> Iterator[tuple[Question, Answer]]:
        """Compute schedules for Nimbus, until the iterator is closed; gives each question with the answer that was sent.

        When the leader changes it goes on with the next one.

        Args:
            name: Who this is, for people.
            decide: `elastic.scheduler.question.answer`, or what does as much.

        Raises:
            Refused: Nimbus does not ask it any more: it did not answer in time, or not as it should.
        """
        mine: list[queue.SimpleQueue[pb.GenerateSchedulesRequest | None]] = []

        def ask(link: Link, left: float | None) -> Any:
            for before in mine:
                before.put(None)
            mine[:] = [queue.SimpleQueue()]
            mine[0].put(pb.GenerateSchedulesRequest(name=name))
            return link.stub.GenerateSchedules(iter(mine[0].get, None), timeout=left)

        try:
            for message in self._stream("generate schedules", ask, True):
                question = QUESTION.decode(message.question)
                answer = decide(question)
                mine[0].put(pb.GenerateSchedulesRequest(answer=ANSWER.encode(answer)))
                yield question, answer
        finally:
            for last in mine:
                last.put(None)  # gRPC reads them on a thread, which ends with that

    def nodes(self) -> tuple[NodeSummary, ...]:
        """All nodes, wanted or there."""

        def ask(link: Link, left: float) -> tuple[NodeSummary, ...]:
            return tuple(map(NODE.decode, link.stub.ListNodes(pb.ListNodesRequest(), timeout=left).nodes))

        return self._ask("list nodes", ask)

    def add_nodes(
        self, count: int, *, slots: int | None = None, host: str = "", wait: float = 30.0
    ) -> tuple[NodeId, ...]:
        """Have more nodes; returns their names when they have joined.

        Args:
            slots: Workers that each may run; None: as usual in this cluster.
            host: The kind of host; "" for the cluster's own.
            wait: Seconds to wait for them.
        """

        def ask(link: Link, left: float) -> tuple[NodeId, ...]:
            request = pb.AddNodesRequest(count=count, slots=slots, host=host, wait=wait)
            return tuple(map(NodeId, link.stub.AddNodes(request, timeout=left).nodes))

        return self._ask(f"add {counted(count, 'node')}", ask, self._timeout + wait, once=True)

    def drain_node(self, node: str, *, wait: float = 30.0, force: bool = False) -> None:
        """Empty a node and give it up; returns when it is gone.

        Args:
            wait: Seconds to wait for that.
            force: Also when stateful tasks there lose their state, or something finds no other place.

        Raises:
            Refused: It holds state, and `force` is not given.
        """

        def ask(link: Link, left: float) -> None:
            link.stub.DrainNode(pb.DrainNodeRequest(node=node, wait=wait, force=force), timeout=left)

        self._ask(f"drain node {node}", ask, self._timeout + wait, once=True)

    def events(
        self, *, since: int = 0, topology: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[tuple[int, Event]]:
        """What happened, as (number, event), oldest first. When the leader changes, it goes on with the new one's.

        Args:
            since: Only what came after this number.
            topology: Only that topology's, or all.
            follow: Go on with what comes.
            tail: Of what is kept, only so many of the last.
        """
        if follow and tail == 0:
            # Without a number to go on from, what happens until another one leads would be left out.
            since, tail = max((since, *(number for number, _ in self.events(tail=1)))), None
        with sendable("read events"):
            request = pb.StreamEventsRequest(since=since, topology=topology, follow=follow, tail=tail)

        def ask(link: Link, left: float | None) -> Any:
            return link.stub.StreamEvents(request, timeout=left)

        for message in self._stream("read events", ask, follow):
            # Where to go on, should the stream break here.
            request.since = message.sequence
            request.ClearField("tail")
            yield message.sequence, EVENT.decode(message.event)

    def logs(
        self, topology: str, *, worker: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[LogLine]:
        """The log lines of a topology's workers; in order for each worker. When the leader changes while it follows, it
        goes on with what is written from then on.

        Args:
            worker: One worker (`wc@node-1/0` or short `node-1/0`), or "" for all.
            follow: Go on with what is added.
            tail: Begin with so many of the last lines of each worker; None: with all.
        """
        doing = f"read the logs of {topology}"
        with sendable(doing):
            request = pb.StreamLogsRequest(topology=topology, worker=worker, follow=follow, tail=tail)

        def ask(link: Link, left: float | None) -> Any:
            return link.stub.StreamLogs(request, timeout=left)

        for message in self._stream(doing, ask, follow):
            request.tail = 0
            for line in message.lines:
                yield LogLine(worker=line.worker, node=line.node, text=line.text)

    def stacks(self, topology: str, *, worker: str = "") -> tuple[WorkerStacks, ...]:
        """What all threads of its workers (or of one, `wc@node-1/0` or short `node-1/0`) are doing."""

        def ask(link: Link, left: float) -> tuple[WorkerStacks, ...]:
            found = link.stub.Stacks(pb.StacksRequest(topology=topology, worker=worker), timeout=left)
            return tuple(WorkerStacks(worker=w.worker, node=w.node, text=w.text) for w in found.workers)

        return self._ask(f"get the stacks of {worker or topology}", ask)

    def errors(self, topology: str = "", *, limit: int = 0) -> tuple[Event, ...]:
        """The newest errors of one topology or of all, oldest first.

        Args:
            limit: How many at most; 0: all that are kept.

        Raises:
            Refused: They are more than an answer holds.
        """

        def ask(link: Link, left: float) -> tuple[Event, ...]:
            found = link.stub.Errors(pb.ErrorsRequest(topology=topology, limit=limit), timeout=left)
            return tuple(map(EVENT.decode, found.errors))

        return self._ask("list errors", ask)


def _measure(bundle: Path) -> tuple[str, int]:
    """SHA-256 and size of the bundle's file."""
    digest = hashlib.sha256()
    try:
        with bundle.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
            return digest.hexdigest(), file.tell()
    except OSError as e:
        raise EnvironmentProblem(f"the code bundle {bundle} cannot be read: {e}") from e
