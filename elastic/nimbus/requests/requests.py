"""What Nimbus is asked, each question by itself: who answers it is the reign of the moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from elastic.errors import Unavailable
from elastic.model.assignment import Assignment
from elastic.model.events import Event
from elastic.model.ids import NodeId, TopologyName
from elastic.model.load import NodeReport, WorkerReport
from elastic.model.records import TopologyState
from elastic.model.topology import TopologySpec
from elastic.model.views import ElasticityView, MoveView, NodeSummary, TopologyDetail, TopologySummary
from elastic.nimbus.balancing.balancing import Balancer
from elastic.nimbus.balancing.elastic_lines import check_setting
from elastic.nimbus.balancing.generators import Seat
from elastic.nimbus.ports import NodeGateway
from elastic.nimbus.reign import Reign
from elastic.nimbus.requests import (
    elasticity_requests,
    move_requests,
    node_requests,
    placement_requests,
    topology_requests,
)


class Requests(ABC):
    """See the module. All requests raise the errors of `elastic.errors`; Refused and Unavailable where this Nimbus does not lead.

    Args:
        gateway: How to ask a node's supervisor.
    """

    def __init__(self, gateway: NodeGateway) -> None:
        self._gateway = gateway

    @abstractmethod
    def _lead(self) -> Reign:
        """The reign, when it can answer.

        Raises:
            Refused: Another Nimbus leads.
            Unavailable: None does, or this one cannot answer yet.
        """

    @abstractmethod
    def _deciding(self) -> Balancer | None:
        """Who resizes and places, while this Nimbus leads."""

    def _balance(self) -> Balancer:
        if (balancer := self._deciding()) is None:
            raise Unavailable("no Nimbus leads at the moment", remedy="ask again in a moment")
        return balancer

    # --- topologies

    def submit(self, spec: TopologySpec, *, bundle: str, requires: Sequence[str] = ()) -> TopologyState:
        """Start a topology. It runs as far as there are slots; the rest waits for some.

        Args:
            bundle: Hash of its code, in `bundles`.
            requires: Top-level Python modules that its code needs and does not bring along.

        Raises:
            TopologyError: It is wrong in itself; NotShippable: a node lacks a module.
            ConfigError: It chooses a policy that there is not, or with a parameter that cannot be.
            AlreadyExists: One of that name runs.
            NotFound: There is no such bundle.
            Refused: The cluster has no nodes.
        """
        check_setting(spec)
        return topology_requests.submit(self._lead(), self._gateway, spec, bundle, requires)

    def topologies(self) -> tuple[TopologySummary, ...]:
        """Those that run, and those that ended and whose record is kept; by name."""
        return topology_requests.topologies(self._lead())

    def describe(self, name: str) -> TopologyDetail:
        """Everything about one. Raises NotFound."""
        reign = self._lead()
        found, balancer = topology_requests.describe(reign, name), self._deciding()
        t = reign.facts().topologies.get(found.spec.name)
        if balancer is None or t is None:
            return found
        decided = balancer.told_with_nodes(name, t.state.submitted)
        return replace(found, policy=balancer.policy(t) if t.running else "", decided=decided)

    def kill(self, name: str, *, wait: float) -> None:
        """Deactivate it, wait up to `wait` seconds until it has drained, then stop its workers. Returns when it is
        gone.

        Raises:
            NotFound: There is none of that name.
            DeadlineExceeded: Workers still live, `stop_timeout` seconds after `wait`.
        """
        topology_requests.kill(self._lead(), name, wait)

    def activate(self, name: str) -> None:
        """Let its spouts be asked for tuples. Raises NotFound, Refused (it has ended)."""
        topology_requests.activate(self._lead(), name)

    def deactivate(self, name: str, *, wait: float = 0) -> bool:
        """Let its spouts rest.

        Returns:
            Whether everything that was emitted has been worked off, within `wait` seconds.

        Raises:
            NotFound, Refused: It does not exist; it has ended.
        """
        return topology_requests.deactivate(self._lead(), name, wait)

    def rebalance(
        self,
        name: str,
        *,
        executors: Mapping[str, int] | None = None,
        workers: int | None = None,
        wait: float = 10,
        share: float | None = None,
    ) -> Assignment:
        """Change numbers of executors (by component) or of workers; returns when the workers have carried it out.

        Args:
            workers: None: as many as there are.
            wait: Seconds; 0 returns at once.
            share: Of a component's tasks that may be paused at once while they move, above 0 and up to 1.

        Raises:
            NotFound: No such topology or component.
            Refused: More executors than tasks, or fewer than one; slots are missing, or tasks could not be moved; the message says which.
            DeadlineExceeded: It goes on, and was not carried out in time; the message says what is missing.
        """
        return placement_requests.rebalance(self._lead(), name, executors or {}, workers, wait, share)

    def scale(
        self, name: str, component: str, executors: int, *, wait: float = 10, share: float | None = None
    ) -> Assignment:
        """Give a component another number of executors. Otherwise as `rebalance`."""
        return self.rebalance(name, executors={component: executors}, wait=wait, share=share)

    # --- moves

    def move(
        self, name: str, what: str, where: str, *, wait: float = 10, share: float | None = None
    ) -> Assignment:
        """Move running tasks with their state; returns when they run there.

        Args:
            what: Tasks (`7`, `3-5`), executors (`count[3-4]`) or components (`count`), with commas between.
            where: A worker (`wc@node-1/0`), a slot (`node-1/0`), or a node.
            wait: Seconds; 0 returns at once.
            share: See `rebalance`.

        Raises:
            NotFound: No such topology, task or place.
            Refused: The place cannot be had, or tasks could not be moved; the message says why.
            DeadlineExceeded: It goes on, and took longer.
        """
        return placement_requests.move(self._lead(), name, what, where, wait, share)

    def abort_move(
        self, name: str, epoch: int | None = None, why: str = "", *, force: bool = False
    ) -> tuple[int, ...]:
        """End a move of a topology early, or all: what is not saved goes back, and nothing is begun again by itself.

        Args:
            force: Whether states are given up that were saved, and that four attempts to restore them have not brought back.

        Returns:
            The numbers of the moves. They end soon; `moves` shows how far they are.

        Raises:
            NotFound: No such topology, or no such move under way.
            Refused: There is nothing to abort.
        """
        return move_requests.abort_move(self._lead(), name, epoch, why, force)

    def moves(self, name: str | None = None) -> tuple[MoveView, ...]:
        """Moves under way and the last that have ended, of a topology or of all: those that began last first; before
        them, for each topology, what is to move and is in no move yet (`PLANNED`).

        What has ended is in the memory of this leader. Raises NotFound.
        """
        return move_requests.moves(self._lead(), name)

    def changed_moves(
        self, seen: int, timeout: float, name: str | None = None
    ) -> tuple[int, tuple[MoveView, ...]]:
        """Moves that have changed, of a topology or of all; waits until there are some, but not longer than `timeout` seconds.

        Args:
            seen: The number that the call before has returned; 0 for all that are known.

        Returns:
            A number for the next call, and the moves: those that began first come first. Numbers of one leader mean nothing to the next.
        """
        return self._lead().move_log.changes(seen, timeout, None if name is None else TopologyName(name))

    # --- elasticity

    def elasticity(self) -> ElasticityView:
        """Who resizes and places topologies by load."""
        reign = self._lead()
        return elasticity_requests.elasticity(reign, self._balance())

    def set_elasticity(
        self,
        *,
        policy: str | None = None,
        scheduler: str | None = None,
        period: float | None = None,
        nodes: str | None = None,
    ) -> ElasticityView:
        """Change who resizes and places, from now on and also by the next leader. What is None stays.

        Args:
            policy: `thresholds --scale-out 0.8 --dry-run`, or `off`.
            scheduler: `tstorm --gamma 1.7`, or `off`.
            period: Seconds between two decisions of the scheduler.
            nodes: `--maximum 8`, or `off`.

        Raises:
            ConfigError: There is no such thing, or a parameter that cannot be.
        """
        reign = self._lead()
        return elasticity_requests.set_elasticity(reign, self._balance(), policy, scheduler, period, nodes)

    def attach_generator(self, name: str) -> Seat:
        """A seat for a schedule generator; it lasts as long as this reign. Raises Refused, Unavailable."""
        self._lead()
        return self._balance().generators.attach(name)

    # --- nodes

    def nodes(self) -> tuple[NodeSummary, ...]:
        """Those that are alive, wanted, or being drained."""
        return node_requests.nodes(self._lead())

    def add_nodes(
        self, count: int, *, slots: int | None = None, host: str = "", wait: float = 0
    ) -> tuple[NodeId, ...]:
        """Have the launcher start more nodes.

        Args:
            slots: Of each; None: the option `node_slots`.
            host: Kind of host, or "" for the launcher's default.
            wait: Seconds to wait until they are there; 0 returns at once.

        Raises:
            DeadlineExceeded: They are wanted, and not there in time.
        """
        return node_requests.add_nodes(self._lead(), count, slots, host, wait)

    def drain_node(self, node: str, *, wait: float, force: bool = False) -> None:
        """Move everything away from a node, with its state, and end it; returns when it is gone.

        Args:
            wait: Seconds; 0 returns at once.
            force: Also what finds no other place leaves, and waits for one; and what cannot be moved leaves without its state.

        Raises:
            NotFound: There is no such node.
            DeadlineExceeded: It is being drained, and that takes longer.
        """
        node_requests.drain_node(self._lead(), node, wait, force)

    def ingest(
        self,
        node: str,
        reports: Sequence[WorkerReport],
        events: Sequence[Event],
        nodes: Sequence[NodeReport] = (),
    ) -> None:
        """Take in what a supervisor reports."""
        reign = self._lead()
        facts = reign.facts()
        measured = [r for r in reports if TopologyName(r.topology) in facts.topologies]
        reign.reports.add_reports(measured)
        reign.reports.add_nodes(nodes, facts.nodes)
        if (balancer := self._deciding()) is not None:
            balancer.observe(measured, nodes)
        for event in events:
            reign.tell(event)
