"""The port: somebody who can start, watch and end the supervisor process of a node, somewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from elastic.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """What to run as a node.

    Attributes:
        node: The node's name.
        arguments: For the Python interpreter there: `("-P", "-m", "elastic.cluster.supervisor_main", ...)`.
        environment: Set over the environment found there.
        log: File that takes stdout and stderr, or "" to inherit.
    """

    node: NodeId
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    log: str = ""


class NodeHandle(Protocol):
    """A node that was started."""

    @property
    def node(self) -> NodeId: ...

    def alive(self) -> bool: ...

    def stop(self, grace: float) -> None:
        """Ask it to end, wait `grace` seconds, then make it.

        Returns when it has ended. Safe to call twice.
        """


class Host(Protocol):
    """Where nodes run."""

    @property
    def kind(self) -> str: ...

    def start(self, command: NodeCommand, on_exit: Callable[[NodeId, str], None]) -> NodeHandle:
        """Start a node; returns when it is on its way, not when it is ready.

        Args:
            on_exit: Called once, from any thread, when the node has ended, with a sentence that says why; ""
                when it was asked to.

        Raises:
            EnvironmentProblem: It cannot be started here.
            Unavailable: It cannot be started now.
        """

    def close(self) -> None:
        """Stop all nodes and whatever they ran on. Safe to call twice."""
