"""The text, the right answer, and how a contender says what it found."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path


def lines(path: str | None) -> list[str]:
    """The lines of a text; without a path those of the documentation that every Python has with it.

    Args:
        path: A UTF-8 text file; what cannot be decoded is replaced.
    """
    if path is None:
        from pydoc_data.topics import topics

        return "\n".join(topics.values()).split("\n")
    return Path(path).read_text(encoding="utf-8", errors="replace").split("\n")


def digest(counts: Mapping[str, int]) -> str:
    """A hash of the counts, whatever their order."""
    text = "\n".join(f"{word}\t{count}" for word, count in sorted(counts.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def expected(text: list[str], copies: int) -> tuple[int, str]:
    """The number of words and the digest of the counts of `copies` times that text, by a plain loop."""
    counts: Counter[str] = Counter()
    for line in text:
        counts.update(line.split())
    return counts.total() * copies, digest({word: count * copies for word, count in counts.items()})


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that every contender has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--input", help="a text file; default: the documentation that comes with Python")
    parser.add_argument("--copies", type=int, default=10, help="how often the text is gone through")
    parser.add_argument("--processes", type=int, default=1, choices=(1, 2))
    parser.add_argument("--hashed", action="store_true", help="a counter in each process, not just one")
    return parser


def say(counts: Mapping[str, int], seconds: float) -> None:
    """Print the result for the one who started this contender."""
    result = {"words": sum(counts.values()), "seconds": seconds, "digest": digest(counts)}
    print(json.dumps(result), flush=True)
