"""What a round does: chosen from a seed and the round's number alone, so that it can be done again."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from chaos.watch import STEPS

INFRA = ("nimbus", "standby", "zookeeper", "store-source", "store-target", "store-bystander")
"""Whose crash costs nothing at any step."""
TARGETS = ("target", "target-supervisor", "target-node")
SOURCES = ("source", "source-supervisor", "source-node")
MEMBERS = ("member-source", "member-target")
LARGE = ("ahead", "fetched")
"""Steps that only large states come to."""


def _steps(first: str, last: str) -> tuple[str, ...]:
    return STEPS[STEPS.index(first) : STEPS.index(last) + 1]


FREE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*INFRA, *MEMBERS), STEPS),
    # `fetched` is not among them: nothing holds a large state for certain once its new side is ready.
    **dict.fromkeys(TARGETS, tuple(s for s in _steps("recorded", "restoring") if s != "fetched")),
    **dict.fromkeys(SOURCES, ("saved", "restoring", "restored", "committed")),
}
"""The steps at which a crash of each costs nothing (`docs/migration.md`, "What is decided when something fails")."""
COST: dict[str, tuple[str, ...]] = {
    "source": _steps("asked", "saved"),
    "target": ("fetched", "restored", "committed", "ended"),
    "bystander": STEPS,
    **dict.fromkeys(("source-node", "source-supervisor"), _steps("recorded", "saved")),
    "target-supervisor": ("restored", "committed", "ended"),
    **dict.fromkeys(("bystander-node", "bystander-supervisor"), STEPS[1:]),
    "both-nodes": ("saved", "restoring"),
}
"""Where it costs what a crash without a move would: the memory of the process's own tasks."""
FROZEN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("nimbus", "source", "bystander"), STEPS),
    "target": _steps("ahead", "ended"),
    **dict.fromkeys(("source-supervisor", "source-node"), _steps("recorded", "committed")),
    **dict.fromkeys(("target-supervisor", "target-node"), _steps("recorded", "ended")),
}
"""Who is frozen for longer than its session lasts, and goes on then: it costs what a crash would, and there are never two owners."""
ACTIONS = ("some", "worker", "rebalance", "scale", "drain", "abort")
HOLDS = {"preparing": "prepare", "saving": "get_state", "restoring": "set_state"}


@dataclass(frozen=True)
class Round:
    """One kill, or one freeze.

    Attributes:
        victim: Whom to kill, or to freeze.
        step: When.
        action: What to have moved: "some" tasks, all of a "worker", a "rebalance" to another number of workers, "scale" of executors,
            "drain" of a node while another is added, "abort" of some tasks' move.
        hold: The points at which moving tasks are held until after the kill ("prepare", "get_state", "set_state").
        after: Seconds that they are still held after it.
        delay: Seconds between the step and the kill.
        chance: Of what can only be chosen once it is known what runs where.
        flood: Whether the spouts emit so much meanwhile that windows and queues are full.
        frozen: The victim is not killed, but gets no processor for longer than its session lasts.
    """

    number: int
    cost: bool
    victim: str
    step: str
    action: str
    hold: tuple[str, ...]
    after: float
    delay: float
    chance: random.Random
    flood: bool = False
    frozen: bool = False

    def __str__(self) -> str:
        held = f", held in {'+'.join(self.hold)}" if self.hold else ""
        flood = ", in a flood" if self.flood else ""
        frozen = " frozen" if self.frozen else ""
        return f"round {self.number}: {self.victim}{frozen} at {self.step} of {self.action}{held}{flood}"


def floods(seed: int, number: int, share: float, *, cost: bool) -> bool:
    """Whether that round, or cut, is one of the share that floods."""
    return random.Random(f"{seed}/{number}/{cost}/flood").random() < share


def choose(
    seed: int,
    number: int,
    *,
    cost: bool,
    hazelcast: bool,
    only: Collection[str] = (),
    flooded: float = 0.0,
    frozen: bool = False,
) -> Round:
    """The round of that number.

    Args:
        cost: Whether the kill may cost what an unacknowledged crash costs.
        only: Victims and steps to choose among; without any of a sort, all of that sort.
        flooded: Share of the rounds that flood.
        frozen: The victim is frozen.
    """
    chance = random.Random(f"{seed}/{number}/{cost}" + ("/frozen" if frozen else ""))
    table = FROZEN if frozen else COST if cost else FREE
    pairs = [(v, s) for v, steps in table.items() for s in steps if hazelcast or v not in MEMBERS]
    victims = {v for v in only if v in table}
    steps = {s for s in only if s in STEPS}
    chosen = [(v, s) for v, s in pairs if (not victims or v in victims) and (not steps or s in steps)]
    # A victim first, then one of its steps: workers are not to be rare because they have few.
    victim = chance.choice(sorted({v for v, _ in chosen or pairs}))
    step = chance.choice([s for v, s in chosen or pairs if v == victim])
    infra = victim in INFRA or victim in MEMBERS or victim.startswith("bystander")
    action = chance.choice(ACTIONS) if infra else "worker" if victim in SOURCES else "some"
    hold: tuple[str, ...] = ()
    if step in HOLDS:
        hold = (HOLDS[step],)
    elif victim == "both-nodes":
        hold = ("set_state",)  # what is saved lies in the stores of these nodes, and nobody has it
    elif not cost and victim in TARGETS:
        # Nothing can be restored while this one is held: the kill comes in time for certain.
        hold = (
            ("set_state",)
            if step == "saved"
            else ("prepare",)
            if step in ("recorded", "ahead")
            else ("get_state",)
        )
    elif chance.random() < 0.3 and STEPS.index(step) < STEPS.index("restored"):
        hold = ("set_state",) if step == "saved" else ("get_state",) if step == "paused" else ()
    if hold and hold != ("prepare",) and action in ("rebalance", "scale"):
        action = "some"  # what those move may have no point to hold at
    after = chance.choice((0.0, 0.0, 0.3, 1.5))
    delay = 0.0 if hold else chance.choice((0.0, 0.0, chance.uniform(0, 0.03)))
    flood = floods(seed, number, flooded, cost=cost)
    return Round(number, cost, victim, step, action, hold, after, delay, chance, flood, frozen)
