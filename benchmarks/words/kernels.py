"""Splitting and counting Arrow columns of text; shared by the hand-written loop and the topology on the batch API."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def split_column(lines: Any) -> Any:
    """The words of a column of lines, as a column; an empty line gives an empty word."""
    return pc.list_flatten(pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lines)))


class ColumnCounts:
    """Counts by word, up to date after every column that was added."""

    def __init__(self) -> None:
        self.known: Any = pa.array([], pa.string())
        self.counts: Any = np.zeros(0, np.int64)

    def add(self, words: Any) -> None:
        """Count a column of words."""
        places = pc.index_in(words, value_set=self.known)
        if places.null_count:
            new = pc.unique(words.filter(pc.is_null(places)))
            self.known = pa.concat_arrays([self.known, new])
            self.counts = np.concatenate([self.counts, np.zeros(len(new), np.int64)])
            places = pc.index_in(words, value_set=self.known)
        self.counts += np.bincount(places.to_numpy(zero_copy_only=False), minlength=len(self.counts))

    def result(self) -> dict[str, int]:
        """Word -> count, without the empty word."""
        found = dict(zip(self.known.to_pylist(), self.counts.tolist(), strict=True))
        found.pop("", None)
        return found
