"""How soon it is noticed that tuples take long of which many were fast.

How many tuples make a slice is known from those before: thousands, where each takes a microsecond. If each takes 10 ms from then on, as a
service that is asked has become slow, a slice of as many is half a minute, in which its task neither stops for a move nor ticks, and hands
on nothing. So in the course of it the clock is looked at: seldom enough not to be noticed where all are fast (a part of a hundredth).
"""

from __future__ import annotations

FIRST = 16
"""Tuples before the first look; twice as many before each next one, up to `MOST`."""
MOST = 64
LATE = 0.05
"""Seconds after which a slice ends at such a look. Not those that a slice is meant to last: a thread that waits for the interpreter, or
for a core, takes a multiple of these for tuples that are as fast as ever."""
