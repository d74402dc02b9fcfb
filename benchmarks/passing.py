"""Two bolts that several benchmarks measure an engine by: one passes words on, the other counts them."""

from __future__ import annotations

from typing import Any

from elastic import Bolt, Fields, KeyedState, StatefulBolt


class Pass(Bolt):
    """Passes each word on."""

    outputs = Fields(word=str)

    def execute(self, tup: Any) -> None:
        self.emit(tup.word)


class Count(StatefulBolt):
    """Counts the words."""

    counts = KeyedState[str, int](int)

    def execute(self, tup: Any) -> None:
        self.counts[tup.word] += 1
