"""The result of `frequent_patterns.py` computed otherwise: in one thread, one loop, without anything of elastic.

    python examples/frequent_patterns_reference.py --input a.txt --output expected.tsv
    python examples/frequent_patterns_reference.py --input a.txt --compare patterns.tsv

The options are those of `frequent_patterns.py` that the result depends on (--flat-out is none), and must be the same. With --compare
the exit code is 0 only if that file has the same lines.

The rules. Let c be a `random.Random(seed)`. The first transaction is due at c.expovariate(r), and each other one c.expovariate(r) after
the one before it; r is the mean rate of the phase in which the one before it (the first: time 0) was due. Those due at 5 phases or later
do not happen. Transaction n is line n of the input, which begins again when it is at its end. Pane k lasts from k to k + 1 lengths of a
pane. At the end of each pane, and not between, it is looked which patterns occurred more often than the threshold in the panes of the
window that ends there; the pane in which the fifth phase ends is the last.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data import topics

Row = tuple[str, int, int, int, int]
"""Pattern, first pane, last pane, most occurrences in a window, occurrences in the panes from the first to the last."""


def lines(source: Path) -> Iterator[str]:
    """The lines of a file, or of all files below a folder in the order of their names; without end."""
    files = sorted(f for f in source.rglob("*") if f.is_file()) if source.is_dir() else [source]
    while True:
        for file in files:
            with file.open("rb") as opened:
                for raw in opened:
                    yield raw.decode("utf-8", "replace").rstrip("\r\n")


def times(rate: float, phase: float, seed: int) -> Iterator[float]:
    """When the transactions are due, in seconds."""
    chance = random.Random(seed)
    rates = [rate, rate * 350 / 120, rate * 900 / 120, rate * 250 / 120, rate * 120 / 120]
    now = chance.expovariate(rates[0])
    while now < 5 * phase:
        yield now
        now += chance.expovariate(rates[int(now / phase)])


def patterns(line: str, items: int, length: int) -> list[str]:
    """All sets of up to `length` of the first `items` different words."""
    words: list[str] = []
    for word in line.split():
        if word not in words and len(words) < items:
            words.append(word)
    words.sort()
    sizes = range(1, length + 1)
    return [" ".join(c) for size in sizes for c in itertools.combinations(words, size)]


def detect(options: argparse.Namespace) -> Iterator[Row]:
    """Each time that a pattern was frequent."""
    pane = (options.window or options.phase / 3) / options.panes
    arrivals = zip(times(options.rate, options.phase, options.seed), lines(options.input), strict=False)
    due, line = next(arrivals, (float("inf"), ""))
    ignored = set(options.ignore.split(","))
    window: deque[list[str]] = deque()  # for each pane, every occurrence
    counts: Counter[str] = Counter()
    since: dict[str, int] = {}
    most: dict[str, int] = {}
    total: Counter[str] = Counter()
    number = 0
    while number * pane < 5 * options.phase:
        window.append([])
        while due < (number + 1) * pane:
            for pattern in patterns(line, options.items, options.length):
                if ignored.isdisjoint(pattern.split()):
                    window[-1].append(pattern)
            due, line = next(arrivals, (float("inf"), ""))
        counts.update(window[-1])
        if len(window) > options.panes:
            counts.subtract(window.popleft())
            counts = +counts
        frequent = {p: n for p, n in counts.items() if n > options.more_than}
        for gone in since.keys() - frequent.keys():
            yield gone, since.pop(gone), number - 1, most.pop(gone), total.pop(gone)
        for pattern, n in frequent.items():
            since.setdefault(pattern, number)
            most[pattern] = max(n, most.get(pattern, 0))
        total.update(p for p in window[-1] if p in since)
        number += 1
    for pattern, first in since.items():
        yield pattern, first, number - 1, most[pattern], total[pattern]


def compare(expected: Sequence[str], found: Sequence[str]) -> str:
    """What differs, for people; "" when nothing does."""
    lacking, wrong = Counter(expected), Counter(found)
    lacking, wrong = lacking - wrong, wrong - lacking
    if not lacking and not wrong:
        return ""
    shown = [f"  expected, not found: {row}" for row in sorted(lacking)[:10]]
    shown += [f"  found, not expected: {row}" for row in sorted(wrong)[:10]]
    return "\n".join([f"{lacking.total():,} lines lack, {wrong.total():,} are wrong.", *shown])


def main(argv: Sequence[str] | None = None) -> int:
    """Compute, write and compare; returns the exit code."""
    options = parse(argv)
    expected = sorted("\t".join(map(str, row)) for row in detect(options))
    text = "".join(row + "\n" for row in expected)
    if options.output:
        options.output.write_text(text, encoding="utf-8", newline="\n")
    elif not options.compare:
        sys.stdout.write(text)
    if options.compare:
        found = options.compare.read_text(encoding="utf-8").split("\n")
        differences = compare(expected, [row for row in found if row])
        print(differences or f"Equal: {len(expected):,} times that a pattern was frequent.")
        return 1 if differences else 0
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; those of `frequent_patterns.py` that the result does not depend on are not known."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", type=Path, default=Path(topics.__file__))
    parser.add_argument("--output", type=Path, help="write the result there, instead of printing it")
    parser.add_argument("--compare", type=Path, help="compare with this file")
    parser.add_argument("--rate", type=float, default=120.0)
    parser.add_argument("--phase", type=float, default=12.0)
    parser.add_argument("--window", type=float)
    parser.add_argument(
        "--ignore", default="", help="as of pattern_service.py: items whose patterns are not watched"
    )
    for name, usual in (("panes", 8), ("more-than", 20), ("items", 6), ("length", 3), ("seed", 0)):
        parser.add_argument("--" + name, type=int, default=usual)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
