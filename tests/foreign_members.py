"""Hazelcast members as somebody else runs them: with maps set as that somebody likes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from statestore.hazelcast.member import HazelcastMember, MemberOptions

KEPT = """\
  map:
    "statestore.*":
      backup-count: {backups}
      merge-policy:
        class-name: DiscardMergePolicy
"""
"""What docs/statestore.md tells them to set."""


class ForeignMember(HazelcastMember):
    """A member.

    Args:
        maps: The part of its configuration that says how maps are kept; "" for Hazelcast's own defaults.
        more: Further parts.
    """

    def __init__(
        self, cluster: str, directory: Path, java: Path, maps: str = "", more: str = "", heap: int = 128 << 20
    ) -> None:
        super().__init__(MemberOptions(cluster, heap=heap), directory, java=java)
        self._maps = maps + more

    def _config(self, others: Sequence[str]) -> str:
        text, replaced = re.subn(r"(?s)  map:\n.*(?=  properties:)", self._maps, super()._config(others))
        assert replaced == 1
        return text
