"""How much is tried: `PROTOCOL_TESTS=quick` (the default, in `make test`), `ci` or `soak`."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """Attributes:
    runs: Seeded runs.
    examples, steps: Of the state machine that Hypothesis drives.
    stride: Every how many steps of a move a process is killed in the sweep.
    timeout: Seconds that one test may take: several times what it takes on two cores.
    """

    runs: int
    examples: int
    steps: int
    stride: int
    timeout: int


PROFILES = {
    "quick": Profile(runs=250, examples=120, steps=30, stride=1, timeout=120),
    "ci": Profile(runs=6_000, examples=1_000, steps=50, stride=1, timeout=1_800),
    "soak": Profile(runs=200_000, examples=20_000, steps=80, stride=1, timeout=36_000),
}
PROFILE = PROFILES[os.environ.get("PROTOCOL_TESTS", "quick")]
