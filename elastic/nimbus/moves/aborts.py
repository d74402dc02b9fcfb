"""What has been taken back of what was asked for: by an operator, or because it cannot be written. For those who wait for it."""

from __future__ import annotations

from elastic.model.ids import TopologyName


class Aborts:
    """Of each topology the last one, in memory: who waits for a request asks again when another Nimbus leads."""

    def __init__(self) -> None:
        self._last: dict[TopologyName, tuple[int, str]] = {}

    def note(self, topology: TopologyName, why: str) -> None:
        """All that is wanted of the topology and is not so has been taken back."""
        self._last[topology] = (self.times(topology) + 1, why)

    def times(self, topology: TopologyName) -> int:
        """How often that has happened."""
        return self._last.get(topology, (0, ""))[0]

    def why(self, topology: TopologyName) -> str:
        """Why, the last time; "" if it has not happened."""
        return self._last.get(topology, (0, ""))[1]

    def forget(self, topology: TopologyName) -> None:
        """The topology's record is gone."""
        self._last.pop(topology, None)
