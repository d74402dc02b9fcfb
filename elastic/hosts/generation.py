"""How each start of a node gets a higher generation than all before it, also those that its host makes by itself.

Whoever starts a node gives it `--generation G`, with a G that grows with every start. A host that restarts a node
on its own (Spark runs a lost task again) can't ask for the next G, so it multiplies: attempt `a` of start `G` is
`G * 1000 + a`. Attempts of one start are ordered, and all of them lie between those of the starts `G - 1` and `G + 1`.

A name may go from one kind of host to the other: `of_start` counts on from whatever the last one had.
"""

from __future__ import annotations

from collections.abc import Sequence

ATTEMPTS = 1000
"""More attempts than any host makes of one start."""

OPTION = "--generation"


def of_attempt(generation: int, attempt: int) -> int:
    """The generation of the attempt with that number (from 0) of the start `generation`."""
    return generation * ATTEMPTS + min(attempt, ATTEMPTS - 1)


def of_start(highest: int, restarts: bool) -> range:
    """The generations of a node's next start, which are above the highest that one of its name may have had: one, or, where its host
    restarts it on its own, as many as that makes."""
    if not restarts:
        return range(highest + 1, highest + 2)
    start = highest // ATTEMPTS + 1
    return range(of_attempt(start, 0), of_attempt(start + 1, 0))


def start_of(generation: int, restarts: bool) -> range:
    """The generations of the start of which this is one."""
    return of_start(generation - (ATTEMPTS if restarts else 1), restarts)


def with_attempt(arguments: Sequence[str], attempt: int) -> tuple[str, ...]:
    """The arguments with the value of `--generation` replaced by that of the attempt; unchanged where there is none."""
    result = list(arguments)
    for i, argument in enumerate(result):
        if argument == OPTION and i + 1 < len(result) and result[i + 1].isdecimal():
            result[i + 1] = str(of_attempt(int(result[i + 1]), attempt))
            break
        name, sign, value = argument.partition("=")
        if name == OPTION and sign and value.isdecimal():
            result[i] = f"{OPTION}={of_attempt(int(value), attempt)}"
            break
    return tuple(result)
