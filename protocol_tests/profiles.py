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
    """

    runs: int
    examples: int
    steps: int
    stride: int


PROFILES = {
    "quick": Profile(runs=250, examples=120, steps=30, stride=1),
    "ci": Profile(runs=6_000, examples=1_000, steps=50, stride=1),
    "soak": Profile(runs=200_000, examples=20_000, steps=80, stride=1),
}
PROFILE = PROFILES[os.environ.get("PROTOCOL_TESTS", "quick")]
