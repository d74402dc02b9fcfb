"""Chance as an input: the same seed gives the same run."""

from __future__ import annotations

import math

_MASK = (1 << 64) - 1


class Noise:
    """A stream of random numbers (SplitMix64), and what load needs of them.

    Args:
        seed: Any whole number.
    """

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0xD1342543DE82EF95 + 1) & _MASK
        # Or neighbouring seeds would give the same numbers, shifted.
        self._state = int(self.uniform() * _MASK)

    def uniform(self) -> float:
        """Between 0 and 1, both excluded."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) + 0.5) / (_MASK + 1)

    def normal(self) -> float:
        """From the standard normal distribution."""
        return math.sqrt(-2.0 * math.log(self.uniform())) * math.cos(2.0 * math.pi * self.uniform())

    def count(self, mean: float) -> float:
        """How many events happen of which that many are expected: Poisson, and near its normal limit from 30 on."""
        if mean <= 0:
            return 0.0
        if mean >= 30:
            return max(0.0, round(mean + math.sqrt(mean) * self.normal()))
        limit, product, n = math.exp(-mean), self.uniform(), 0
        while product > limit:
            product *= self.uniform()
            n += 1
        return float(n)
