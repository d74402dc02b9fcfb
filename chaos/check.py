"""The checker: `python -m chaos.check [--json] FILE...`. Reads what the sinks and spouts noted down, and nothing else.

It imports nothing of elastic, and nothing of the run: whether every number of every key arrived once and in order is said by the
record alone. With `--follow DIRECTORY` it reads while that is being written, and puts aside what it has seen: see `follow`.

What a sink's task noted in one life is a row of files `record-TASK-STARTED-PROCESS-SEGMENT.bin`, each of them of a header and arrivals:

    "SINK", sink task, process, segment, already (i64), started (i64)        `already`: arrivals that its state knows of, and those before
    key (i64), n, count, task, held, time (i64)                             number n of a key arrived, by way of that task, whose state had
                                                                            counted so many of the key, and held what has that sum

(numbers of four bytes without a sign where nothing is said, in the machine's order). `time` and `started` are of the machine's monotonic
clock in nanoseconds. What has no time is not there: the rest of the file, or whoever wrote it was killed meanwhile. A life that ends
otherwise cuts its last file to what is in it. A key is its spout's task (11 bits), the life of that (40) and a number (12). What a spout
wrote at its end, `ends-*.txt`, is lines of text:

    E <key> <numbers>                        the numbers 0 to numbers - 1 of the key were emitted

What it finds, per key, in the order of arrival:

    lost        a number that never came, before a later one did or before the end that the spout wrote
    doubled     a number that came again
    reordered   a number that came after a later one
    forgotten   the count that came along is not the number of arrivals before: the state of the task was not that of the tuples before
    mixed       what the state held besides is not what belongs to that count: it is not of one time, or came in pieces

and over all: `overlaps` (two lives of a sink task wrote at the same time), `recounts` (a sink's life began with another count of arrivals
than there are in the record), `strayed` (a key came by two sinks, or by two tasks before them), `invented` (numbers came that the spout has
not emitted, by the end that it wrote), `open` (keys whose spout never wrote an end: lost tuples at their end cannot be seen), `unknown`
(what is none of these; `torn` are arrivals that were not written whole).
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import json
import os
import select
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from chaos.findings import Recount, Report
from chaos.keys import Follow, name_of

HEADER = struct.Struct("=4sIIIqq")
ARRIVAL = struct.Struct("=qIIIIq")
CHUNK = ARRIVAL.size << 12
EVERY = 0.2
"""Seconds between two looks at a record that is being written."""
KEPT = 128
"""Files that are kept when something is wrong, those that were read at the time."""


class _Life:
    """One life of a sink's task."""

    def __init__(self, task: int, started: int, process: int) -> None:
        self.task, self.started, self.process = task, started, process
        self.files: dict[int, Path] = {}
        self.segment = 0  # that is being read
        self.offset = 0
        self.already = 0
        self.count = 0
        self.first = self.last = 0
        self.overlapped = False

    @property
    def name(self) -> str:
        return f"record-{self.task}-{self.started}-{self.process}"


class Checker:
    """Reads a record, also while it is being written.

    Args:
        clear: What was read, and nobody writes any more, is removed, or gets another name (`.seen`) when something was wrong in it.
        keep: It gets another name whatever is in it.
    """

    def __init__(self, *, clear: bool = False, keep: bool = False) -> None:
        self._clear = clear
        self._keep = keep
        self._kept = 0
        self._report = Report()
        self._lives: dict[int, list[_Life]] = {}
        self._known: set[str] = set()
        self._follows: dict[int, Follow] = {}
        self._totals: dict[int, int] = {}
        self._newest: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._wrong = 0
        self._torn: set[str] = set()

    # ------------------------------------------------------------------ reading

    def look(self, files: Iterable[Path]) -> None:
        """Read what is new in these files: every one that there is of the record."""
        for path in sorted(files):
            if path.name in self._known:
                continue
            if path.suffix == ".txt":
                self._known.add(path.name)
                self._report.files += 1
                self._read_ends(path)
            elif path.suffix == ".bin" or path.name.endswith(".bin.seen"):
                self._known.add(path.name)
                self._report.files += 1
                self._found(path)
        # All that there is of a life was written before the next one's first file was there: what comes later overlaps.
        for task in sorted(self._lives):
            lives = self._lives[task]
            for n, life in enumerate(lives):
                # Those that have arrivals: one that came to none may lie between two that write at once.
                before = next((x for x in reversed(lives[:n]) if x.count), None)
                after = next((x for x in lives[n + 1 :] if x.count), None)
                self._read(life, before, after)

    def report(self) -> Report:
        """What can be said by now."""
        r = self._report
        for key, emitted in self._ends.items():
            self._of(key).key.emitted = emitted
        follows = self._follows.values()
        r.keys = {f.key.key: f.now() for f in follows}
        r.strayed = [said for f in follows if (said := f.strayed())]
        r.invented = [said for f in follows if (said := f.invented())]
        r.lives = sum(1 for lives in self._lives.values() for x in lives if x.count)
        r.torn = len(self._torn)
        return r

    def flow(self) -> dict[str, Any]:
        """When each key of the newest life of each spout's task arrived last, and by whom."""
        last = {
            f.key.key: (f.key.last, f.task, f.sink)
            for key, f in self._follows.items()
            if self._newest.get(key >> 52) == key >> 12 and f.key.arrived
        }
        return {"arrived": self._report.arrived, "last": last}

    def _of(self, key: int) -> Follow:
        found = self._follows.get(key)
        if found is None:
            found = self._follows[key] = Follow(key)
            self._newest[key >> 52] = max(self._newest.get(key >> 52, 0), key >> 12)
        return found

    def _found(self, path: Path) -> None:
        try:
            _, task, started, process, segment = path.name.split(".")[0].split("-")
            numbers = int(task), int(started), int(process)
            number = int(segment)
        except ValueError:
            self._report.unknown.append(f"{path.name}: no such file is written")
            return
        lives = self._lives.setdefault(numbers[0], [])
        life = next((x for x in lives if (x.started, x.process) == numbers[1:]), None)
        if life is None:
            life = _Life(*numbers)
            lives.append(life)
            lives.sort(key=lambda x: (x.started, x.process))
        life.files[number] = path

    def _read(self, life: _Life, before: _Life | None, after: _Life | None) -> None:
        if not life.files:
            return
        # Seen before it is read: then nothing is written any more that is not read.
        over = self._clear and _is_gone(life.process)
        while (path := self._next(life)) is not None:
            wrong = self._wrong
            whole = self._read_file(life, path, before, after)
            last = life.segment == max(life.files)
            if last and not (whole or over):
                return
            if not whole and not last:
                self._report.unknown.append(f"{path.name}: is not full, and there is another one after it")
                self._wrong += 1
            del life.files[life.segment]
            life.segment += 1
            life.offset = 0
            self._done_with(path, self._wrong > wrong)

    def _next(self, life: _Life) -> Path | None:
        """The file of a life that is to be read now. One that is missing before others is named, and what follows is read."""
        path = life.files.get(life.segment)
        if path is not None or not life.files:
            return path
        first = min(life.files)
        missing = life.files[first].with_name(f"{life.name}-{life.segment:06}.bin")
        # Names are read while files come: it may be there although its name was not.
        if first < life.segment or missing.exists():
            return None
        # Of a record that is looked at afterwards, what was good at the beginning was removed.
        if life.count:
            self._report.unknown.append(f"{missing.name}: is missing, and there are others after it")
            self._wrong += 1
        life.segment = first
        return life.files[first]

    def _read_file(self, life: _Life, path: Path, before: _Life | None, after: _Life | None) -> bool:
        """What is new in it; whether it is full."""
        size = path.stat().st_size
        with path.open("rb", buffering=0) as file:
            if not life.offset:
                head = file.read(HEADER.size)
                if len(head) < HEADER.size or not any(head):
                    return False  # it is being made
                if not HEADER.unpack(head)[-1]:
                    return False
                file.seek(0)  # now that it is there: see `read_whole`
                magic, task, process, segment, already, started = HEADER.unpack(file.read(HEADER.size))
                expected = (b"SINK", life.task, life.process, life.segment, life.started)
                if (magic, task, process, segment, started) != expected:
                    self._report.unknown.append(f"{path.name}: {head!r} is not its header")
                    self._wrong += 1
                if not life.count:
                    life.already = already
                elif already != life.already + life.count:
                    self._report.unknown.append(
                        f"{path.name}: begins with {already} instead of {life.already + life.count}"
                    )
                    self._wrong += 1
                life.offset = HEADER.size
            self._torn.discard(path.name)
            while True:
                data, there, torn = read_whole(file, life.offset)
                if torn:
                    self._torn.add(path.name)
                if data:
                    self._arrivals(life, data, before, after)
                    life.offset += len(data)
                if len(data) < there:
                    return False
                if not there:
                    return life.offset + ARRIVAL.size > size

    def _arrivals(self, life: _Life, data: bytes, before: _Life | None, after: _Life | None) -> None:
        """Take in arrivals."""
        follows, sink = self._follows, life.task
        taken = wrong = 0
        at = life.last
        for key, n, count, task, held, at in ARRIVAL.iter_unpack(data):
            if not life.count and not taken:
                self._begin(life, before, at)
            follow = follows.get(key) or self._of(key)
            if not follow.arrival(at, n, task, count, held, sink):
                wrong += 1
            taken += 1
        life.count += taken
        life.last = at
        self._totals[sink] = self._totals.get(sink, 0) + taken
        self._report.arrived += taken
        self._wrong += wrong
        if after is not None and after.first and at >= after.first:
            self._overlap(life, after)

    def _begin(self, life: _Life, before: _Life | None, at: int) -> None:
        life.first = at
        total = self._totals.get(life.task, 0)
        if before is not None and before.count and at <= before.last:
            self._overlap(before, life)
        if life.already != total:
            last = before.last if before is not None else 0
            self._report.recounts.append(Recount(life.task, life.name, life.already, total, last, at))
            self._totals[life.task] = life.already
            self._wrong += 1

    def _overlap(self, one: _Life, other: _Life) -> None:
        if not one.overlapped:
            one.overlapped = True
            self._report.overlaps.append(f"sink {one.task}: {one.name} and {other.name}")
            self._wrong += 1

    def _read_ends(self, path: Path) -> None:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                kind, key, emitted = line.split(" ")
                if kind != "E":
                    raise ValueError("no such line is written")
                if self._ends.setdefault(int(key), int(emitted)) != int(emitted):
                    raise ValueError(f"{name_of(int(key))} has ended twice")
            except ValueError as e:
                self._report.unknown.append(f"{path.name}:{number}: {line[:100]!r}: {e}")

    def _done_with(self, path: Path, wrong: bool) -> None:
        """All of it was read."""
        if not self._clear:
            return
        if self._keep or (wrong and self._kept < KEPT):
            self._kept += 1
            seen = path.with_name(f"{path.name}.seen")
            self._known.add(seen.name)
            path.rename(seen)
        else:
            path.unlink()
        self._known.discard(path.name)


def read_whole(file: BinaryIO, offset: int) -> tuple[bytes, int, bool]:
    """Arrivals from there on that have been written whole.

    Reading is not one step for who writes meanwhile: of the last ones something may be from before, and the time, which is written last,
    from after. So how many there are is seen at first, and what they are at a second reading.

    Returns:
        These; how many bytes there are for arrivals, up to a bound, written or not; and whether there is a part of one.
    """
    file.seek(offset)
    seen = file.read(CHUNK)
    rest = len(seen) % ARRIVAL.size
    there = len(seen) - rest
    # Those that have a time come first.
    count = bisect.bisect_left(
        range(there // ARRIVAL.size),
        1,
        key=lambda i: 0 if ARRIVAL.unpack_from(seen, i * ARRIVAL.size)[-1] else 1,
    )
    end = count * ARRIVAL.size
    file.seek(offset)
    return file.read(end) if end else b"", there, bool(rest) or any(seen[end : end + ARRIVAL.size])


def _is_gone(process: int) -> bool:
    """Whether there is no such process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def check(files: Iterable[Path]) -> Report:
    """Read the files, and say what they say."""
    checker = Checker()
    checker.look(files)
    return checker.report()


def follow(place: Path, *, keep: bool) -> None:
    """Read a record while it is being written, and answer what is asked on standard input, with a line of JSON each.

    `flow`: what arrived last; `report`: all that can be said by now. The end of the input is the end.

    Args:
        keep: See `Checker`.
    """
    checker = Checker(clear=True, keep=keep)
    asked = b""
    while True:
        checker.look(place.iterdir())
        ready, _, _ = select.select([0], [], [], EVERY)
        if not ready:
            continue
        data = os.read(0, 4096)
        if not data:
            return
        *lines, asked = (asked + data).split(b"\n")
        for line in lines:
            checker.look(place.iterdir())
            answer = checker.flow() if line == b"flow" else checker.report().full()
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.check", description="Did every number arrive once and in order?"
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="files of the record, or directories of them"
    )
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument(
        "--follow",
        type=Path,
        metavar="DIRECTORY",
        help="read while it is being written, and answer questions",
    )
    parser.add_argument("--keep", action="store_true", help="do not remove what was read meanwhile")
    options = parser.parse_args()
    if options.follow is not None:
        with contextlib.suppress(KeyboardInterrupt):  # who asks ends it
            follow(options.follow, keep=options.keep)
        return 0
    if not options.files:
        parser.error("there has to be a FILE, or --follow")
    files = [f for p in options.files for f in (p.iterdir() if p.is_dir() else [p])]
    report = check(files)
    if options.json:
        sys.stdout.write(json.dumps(report.full()) + "\n")
    else:
        tell(report)
    return 0 if report.good else 1


def tell(report: Report) -> None:
    """Print it, for people."""
    for name, value in report.summary().items():
        sys.stdout.write(f"{name:10} {value}\n")
    for key in report.keys.values():
        for hole in key.lost[:20]:
            sys.stdout.write(
                f"lost: {key.key} {hole.first}-{hole.last} (by tasks {key.tasks} and sinks {key.sinks})\n"
            )
        for what, found in (
            ("doubled", key.doubled),
            ("reordered", key.reordered),
            ("mixed", key.mixed),
        ):
            for again in found[:20]:
                sys.stdout.write(f"{what}: {key.key} {again.n} at {again.at}\n")
        for f in key.forgotten[:20]:
            sys.stdout.write(f"forgotten: {key.key}: {f.count} counted instead of {f.expected} at {f.at}\n")
    for line in (
        *report.overlaps,
        *report.recounts,
        *report.strayed,
        *report.invented,
        *report.unknown,
    ):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
