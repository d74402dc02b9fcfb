"""Bundles, events, reports and views: the parts of Nimbus that need no coordination."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.errors import ConfigError, EnvironmentProblem, NotFound, Refused
from elastic.model import codec
from elastic.model.events import Event, Severity
from elastic.model.ids import TopologyName
from elastic.model.load import TaskLoad, WorkerReport
from elastic.nimbus import event_log
from elastic.nimbus.bundle_store import BundleStore
from elastic.nimbus.event_log import EventLog
from elastic.nimbus.line_file import LineFile
from elastic.nimbus.observing.reports import ReportStore
from elastic.nimbus.options import NimbusOptions
from elastic.nimbus.reign import Reign

T = TopologyName("t")


def event(kind: str, topology: str = "", severity: Severity = Severity.INFO) -> Event:
    return Event(1.0, kind, kind, severity, topology)


# --- bundles


def test_a_bundle_is_named_by_its_content(tmp_path: Path) -> None:
    store = BundleStore(tmp_path)
    with store.begin() as writer:
        writer.write(b"ab")
        writer.write(b"c")
        name = writer.commit()
    assert name == hashlib.sha256(b"abc").hexdigest() and store.path(name).read_bytes() == b"abc"
    with store.begin() as writer:
        writer.write(b"abc")
        assert writer.commit() == name
    assert len(list(tmp_path.iterdir())) == 1


def test_a_bundle_that_is_not_committed_leaves_nothing(tmp_path: Path) -> None:
    store = BundleStore(tmp_path, limit=3)
    with store.begin() as writer:
        writer.write(b"abc")
    with store.begin() as writer, pytest.raises(Refused, match="larger than 3 bytes"):
        writer.write(b"abcd")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "0" * 64, "A" * 64])
def test_what_is_no_bundle_is_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound, match="code bundle"):
        BundleStore(tmp_path).path(name)


def test_old_bundles_that_nobody_uses_go(tmp_path: Path) -> None:
    store = BundleStore(tmp_path)
    names = []
    for content in (b"used", b"old", b"new"):
        with store.begin() as writer:
            writer.write(content)
            names.append(writer.commit())
    for name in names[:2]:
        os.utime(store.path(name), (1, 1))
    assert store.prune({names[0]}, grace=60)[0] == (f"{names[1]}.zip",)
    assert store.path(names[0]) and store.path(names[2])


# --- events


def test_events_are_numbered_filtered_and_bounded() -> None:
    log = EventLog(None, capacity=3)
    first = log.append(event("a", "t"))
    for kind in "bcd":
        log.append(event(kind, "u"))
    assert [(n - first, e.kind) for n, e in log.since(0)] == [(1, "b"), (2, "c"), (3, "d")]
    assert log.since(0, "t") == [] and [e.kind for _, e in log.since(first + 2, "u")] == ["d"]


def test_who_asks_for_the_newest_events_does_not_look_at_all() -> None:
    class Looked(int):
        times = 0

        def __lt__(self, other: int) -> bool:
            Looked.times += 1
            return int(self) < other

    log = EventLog(None, capacity=1000)
    last = [log.append(event("a")) for _ in range(1000)][-1]
    assert [n for n, _ in log.since(Looked(last - 2))] == [last - 1, last]
    assert Looked.times == 3


def test_waiting_for_events_ends_with_one_or_with_the_log() -> None:
    log = EventLog(None)
    assert not log.wait(0, timeout=0)
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(log.wait(0, timeout=30)))
    waiting.start()
    seq = log.append(event("a"))
    waiting.join(30)
    assert heard == [True]
    waiting = threading.Thread(target=lambda: heard.append(log.wait(seq, timeout=30)))
    waiting.start()
    log.close()
    waiting.join(30)
    assert heard == [True, False] and log.closed


def test_the_next_leader_goes_on_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first = EventLog(path)
    numbers = [first.append(event(k)) for k in "ab"]
    first.close()
    with path.open("ab") as file:
        file.write(b'{"seq": 12, "eve')
    second = EventLog(path)
    second.load()
    numbers.append(second.append(event("c")))
    assert numbers == sorted(set(numbers)) == [n for n, _ in second.since(0)]
    assert [e.kind for _, e in second.since(0)] == ["a", "b", "c"]
    second.load()
    assert len(second.since(0)) == 3
    second.close()


def test_a_leader_decodes_only_what_it_keeps_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, decoded = tmp_path / "events.jsonl", []
    first = EventLog(path, file_limit=1000)
    numbers = [first.append(event("a")) for _ in range(20)]
    first.close()

    def decode(line: bytes, kind: type[Any]) -> Any:
        decoded.append(line)
        return codec.decode(line, kind)

    monkeypatch.setattr(event_log, "decode", decode)
    second = EventLog(path, capacity=3)
    second.load()
    assert [n for n, _ in second.since(0)] == numbers[-3:] and len(decoded) == 3
    second.close()


def test_the_event_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, file_limit=1000)
    for _ in range(50):
        log.append(event("a"))
    log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.jsonl", "events.jsonl.1"]
    assert all(p.stat().st_size <= 1000 for p in tmp_path.iterdir())


# --- reports


def report(time: float, executed: int, life: str = "w#1") -> WorkerReport:
    return WorkerReport("t", "w", life, time, 1, tasks=(TaskLoad(1, "c", "c[1-1]", executed=executed),))


def test_rates_are_between_two_reports_and_begin_anew_with_the_task() -> None:
    store = ReportStore(errors=2)

    def rate() -> float:
        return store.rated(T)[1].executed

    store.add_reports([report(10, 100)])
    assert rate() == 0
    store.add_reports([report(12, 300)])
    assert rate() == 100
    store.add_reports([report(12, 900)])
    assert rate() == 100, "the same moment twice"
    store.add_reports([report(13, 200)])
    assert rate() == 0, "a task that began anew has no negative rate"
    store.add_reports([report(14, 5, "w#2")])
    assert rate() == 0, "another life"
    store.forget(T)
    assert store.measured(T) == {} and store.rated(T) == {}


def test_errors_are_kept_up_to_a_bound() -> None:
    store = ReportStore(errors=2)
    for kind, severity in (("worker-started", Severity.INFO), ("tuple-failed", Severity.WARNING)):
        store.add_event(event(kind, "t", severity))
    for kind in ("x", "y"):
        store.add_event(event(kind, "t", Severity.ERROR))
    store.add_event(event("z", "", Severity.ERROR))
    assert [e.kind for e in store.errors(T)] == ["x", "y"]


def test_options_name_what_is_wrong() -> None:
    assert NimbusOptions().validate() == NimbusOptions()
    with pytest.raises(ConfigError, match="node_slots is 0"):
        NimbusOptions(node_slots=0).validate()
    with pytest.raises(ConfigError, match="retention is -1"):
        NimbusOptions(retention=-1).validate()
    with pytest.raises(ConfigError, match="move_pause is nan"):
        NimbusOptions(move_pause=float("nan")).validate()


def test_numbers_grow_from_a_leader_on_one_machine_to_one_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(event_log.time, "time", lambda: now[0])
    first, second = (EventLog(tmp_path / name / "events.jsonl") for name in "ab")
    first.load()
    last = [first.append(event("a")) for _ in range(300)][-1]
    now[0] += 1.0
    second.load()  # it leads from here on
    assert second.append(event("b")) > last
    for log in (first, second):
        log.close()


def test_a_line_after_half_a_one_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\nha")
    file = LineFile(path, 1000)
    file.append(b"two\n")
    file.append(b"three\n")
    file.close()
    assert list(LineFile(path, 1000).lines()) == [b"one", b"ha", b"two", b"three"]


def test_who_leads_again_writes_where_the_newest_lines_are(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    one, other = LineFile(path, 40), LineFile(path, 40)
    for leader, letter in ((one, "a"), (other, "b"), (one, "c")):
        list(leader.lines())
        for n in range(3):
            leader.append(f"{letter}{n:07}\n".encode())
    newest = [f"{x}{n:07}".encode() for x in "bc" for n in range(3)]
    assert list(one.lines())[-4:] == newest[-4:]
    one.close()
    other.close()


def test_a_disk_that_is_full_for_one_line_does_not_end_the_file(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "lines", 1000)
    file.append(b"one\n")
    real: Any = file._file

    class Full:
        def write(self, line: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            real.close()

    file._file = Full()  # type: ignore[assignment]
    for line in (b"two\n", b"three\n", b"four\n"):
        file.append(line)
    assert list(file.lines()) == [b"one", b"three", b"four"]
    file.close()


def test_a_line_that_does_not_fit_onto_the_disk_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write may do a part of what it is asked to, and say no more than how much that was."""
    file = LineFile(tmp_path / "lines", 1000)
    file.append(b"one\n")

    class Full:
        def __init__(self, real: Any) -> None:
            self.real = real

        def write(self, data: bytes) -> int:
            return int(self.real.write(data[:2]))

        def close(self) -> None:
            self.real.close()

    file._file = Full(file._file)  # type: ignore[assignment]
    file.append(b"two\n")
    file.append(b"three\n")
    assert list(file.lines()) == [b"one", b"tw", b"three"]


def test_lines_that_cannot_be_read_keep_nobody_from_going_on(tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    file = LineFile(tmp_path / "lines", 1000)
    assert list(file.lines()) == []
    file.append(b"one\n")
    file.close()


def test_what_is_given_up_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    writer = BundleStore(tmp_path).begin()
    real = writer._file

    class Full:
        def close(self) -> None:
            real.close()
            raise OSError(28, "No space left on device")

    writer._file = Full()  # type: ignore[assignment]
    writer.abort()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("late", [False, True])
def test_whoever_submits_is_told_that_the_disk_is_full(tmp_path: Path, late: bool) -> None:
    writer = BundleStore(tmp_path).begin()
    real = writer._file

    class Full:
        def write(self, data: bytes) -> None:
            if not late:
                raise OSError(errno.ENOSPC, "No space left on device")

        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            real.close()

    writer._file = Full()  # type: ignore[assignment]
    with writer, pytest.raises(EnvironmentProblem, match=f"in {tmp_path}: No space left on device"):
        writer.write(b"x")
        writer.commit()
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_that_comes_after_a_look_and_is_not_used_goes_as_well(tmp_path: Path) -> None:
    reign: Any = SimpleNamespace(
        _prune_at=0.0, bundles=BundleStore(tmp_path), options=NimbusOptions(bundle_grace=60.0)
    )
    now = time.time()
    nothing: Any = SimpleNamespace(now=now, elsewhere=frozenset(), topologies={})
    Reign._prune_bundles(reign, nothing)
    assert reign._prune_at == now + 60.0
    with reign.bundles.begin() as writer:
        writer.write(b"of a submission that is refused")
        name = writer.commit()
    os.utime(reign.bundles.path(name), (now - 100.0, now - 100.0))
    Reign._prune_bundles(reign, SimpleNamespace(now=now + 61.0, elsewhere=frozenset(), topologies={}))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
