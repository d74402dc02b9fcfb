r"""Log stream processing: what kinds of entries a log has, and which terms stand in them (T-Storm 2014, figure 7).

    elastic run examples/log_stream.py --input ssh.log --output counts.tsv --index index.tsv
    elastic submit examples/log_stream.py --input logs/ --output counts.tsv --workers 2

                     +-> indexer -> index-database
    log -> rules ----+
                     +-> counter -> count-database

The bolt `rules` gives each line of the log the first rule whose pattern it contains, whatever the case of its letters. `counter` counts
entries by rule; `indexer` finds their terms: runs of three or more of the letters a to z, in lower case. The two databases add up
what they are told, and give it to files when the input ends.

--output has a line for each rule that occurred: severity, rule, number of entries; --index one for each rule and term: rule, term,
number of entries that contain the term; values separated by tabs, lines sorted by code points. It works on any text. Own rules come
by --rules FILE: lines of severity, name and pattern (of those that Python and awk share), separated by tabs; the last one should be an
empty pattern, which takes everything. The counts by standard tools, with the rules in a file (--show-rules prints the built-in ones):

    LC_ALL=C awk -F '\t' 'NR == FNR { kind[++n] = $1 "\t" $2; pattern[n] = tolower($3); next }
        { for (i = 1; i <= n; i++) if (tolower($0) ~ pattern[i]) { count[kind[i]]++; break } }
        END { for (k in count) print k "\t" count[k] }' rules.tsv ssh.log | LC_ALL=C sort
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from options import Options, options

from elastic import Bolt, Fields, KeyedState, StatefulBolt, TextSink, Topology, TopologyBuilder
from elastic.errors import ConfigError

RULES = """\
alert	break-in	break-in|intrusion|attack
error	login-failed	authentication failure|failed password|invalid user
error	failure	error|fatal|severe|exception|fail
warning	warning	warn|denied|refused|time ?out|interrupted
info	connection	connect|session|socket
info	notice	notice|info
other	other	
"""
"""Severity, name, pattern: separated by tabs, as in a file of rules."""

Rule = tuple[str, str, str]
_TERM = re.compile("[A-Za-z]{3,}")


def parse(text: str) -> list[Rule]:
    """The rules in a text.

    Raises:
        ConfigError: A line is not severity, name and pattern, or a pattern is none.
    """
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split("\t")
        if len(parts) != 3:
            raise ConfigError(
                f"Line {number} of the rules has {len(parts)} values: {line!r}",
                remedy="Write severity, name and pattern, separated by tabs.",
            )
        severity, name, pattern = parts
        try:
            re.compile(pattern)
        except re.error as e:
            raise ConfigError(f"Line {number} of the rules: {pattern!r} is no pattern: {e}") from e
        rules.append((severity, name, pattern))
    return rules


class Rules(Bolt):
    """A line of the log to an entry: with the severity and the name of the first rule that it meets."""

    outputs = Fields(severity=str, rule=str, line=str)

    def __init__(self, rules: Sequence[Rule]) -> None:
        # Of the letters only a to z match whatever their case, as in awk's C locale.
        self.rules = [(s, n, re.compile(p, re.IGNORECASE | re.ASCII).search) for s, n, p in rules]

    def execute(self, tup: Any) -> None:
        line = tup.line
        for severity, name, found in self.rules:
            if found(line):
                self.emit(severity, name, line)
                return


class Indexer(Bolt):
    """Finds the terms of an entry, each once."""

    outputs = Fields(rule=str, term=str, more=int)

    def execute(self, tup: Any) -> None:
        for term in {found.lower() for found in _TERM.findall(tup.line)}:
            self.emit(tup.rule, term, 1)


class Counter(StatefulBolt):
    """Counts entries by rule; emits at each tick, and at the end, how many there were since the last one."""

    outputs = Fields(severity=str, rule=str, more=int)
    since = KeyedState[tuple[str, str], int](int)

    def execute(self, tup: Any) -> None:
        self.since[tup.severity, tup.rule] += 1

    def tick(self) -> None:
        for (severity, rule), more in self.since.items():
            self.emit(severity, rule, more)
        self.since.clear()

    def finish(self) -> None:
        self.tick()


class Database(StatefulBolt):
    """A table of numbers by key: adds what comes to what is there, and emits the whole table at the end."""

    table = KeyedState[tuple[str, ...], int](int)

    def execute(self, tup: Any) -> None:
        *key, more = tup.values
        self.table[tuple(key)] += more

    def finish(self) -> None:
        for key, number in self.table.items():
            self.emit(*key, number)


class CountDatabase(Database):
    """Entries by rule."""

    outputs = Fields(severity=str, rule=str, entries=int)


class IndexDatabase(Database):
    """Entries by rule and term."""

    outputs = Fields(rule=str, term=str, entries=int)


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology; `args` are the words after the file on the command line."""
    o: Options = options("log-stream", __doc__, args, _more)
    try:
        rules = parse(Path(o.extra.rules).read_text(encoding="utf-8") if o.extra.rules else RULES)
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"The rules in {o.extra.rules} cannot be read: {e}") from e
    b = TopologyBuilder(o.name, workers=o.workers)
    b.spout("log", o.lines(), rate=o.rate)
    b.bolt("rules", Rules(rules), tasks=8, executors=o.executors).shuffle("log")
    b.bolt("indexer", Indexer(), tasks=8, executors=o.executors).shuffle("rules")
    b.bolt("counter", Counter(), tasks=8, executors=o.executors, tick_interval=1.0).shuffle("rules")
    b.bolt("index-database", IndexDatabase(), tasks=8).fields("indexer", "rule", "term")
    b.bolt("count-database", CountDatabase(), tasks=2).fields("counter", "severity", "rule")
    if o.output:
        b.bolt("counts", TextSink(o.output)).all_to_one("count-database")
    if o.extra.index:
        b.bolt("index", TextSink(o.extra.index)).all_to_one("index-database")
    return b.build()


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--index", default="", help="write the index to this file: sorted, tab-separated")
    parser.add_argument("--rules", default="", help="a file of rules instead of the built-in ones")
    parser.add_argument("--show-rules", action=_Show, help="print the built-in rules, and end")


class _Show(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help=kwargs.get("help"))

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(RULES, end="")
        parser.exit()
