"""What Nimbus needs from outside beside coordination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class NodeGateway(Protocol):
    """How Nimbus asks a node's supervisor. Thread-safe."""

    def missing_modules(self, address: str, modules: Sequence[str], timeout: float) -> tuple[str, ...]:
        """Those of `modules` that the node's Python cannot find.

        Args:
            address: `NodeInfo.address`.
            modules: Names of top-level modules.
            timeout: Seconds.

        Raises:
            Unavailable: The node did not answer in time.
        """


class MemoryNodeGateway:
    """A gateway for tests and for everything in one process: knows what each address lacks.

    Args:
        lacking: Modules that cannot be found, by address; an address that is not named lacks nothing.
    """

    def __init__(self, lacking: Mapping[str, Sequence[str]] | None = None) -> None:
        self.lacking = dict(lacking or {})

    def missing_modules(self, address: str, modules: Sequence[str], timeout: float) -> tuple[str, ...]:
        lacks = self.lacking.get(address, ())
        return tuple(m for m in modules if m in lacks)
