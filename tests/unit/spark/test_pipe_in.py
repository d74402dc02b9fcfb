"""From Spark into a topology: each committed row once and in the order of its partition, whatever Spark repeats and wherever tasks move."""

from __future__ import annotations

import io
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run
from pipe_parts import FOUND, QUICK, SCHEMA, Reading, context, log_of, part

from elastic import Fields
from elastic.errors import ConfigError, ExecutionError
from elastic.spark import DataFrameSpout, log
from elastic.spark.log import DATA, LOG, TAKEN, Ended, Entry, Log, Part, Taken
from elastic.spark.pipe import Pipe, place, wait_for_room

PARTITIONS = 3


class Handing(RuleBasedStateMachine):
    """One query writes, which may lose its way and commit again; some tasks read, which move at any time."""

    attempts = Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.log = log_of(self.directory.name)
        self.expected: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.next: dict[int, int] = defaultdict(int)
        self.batch = 0

    def teardown(self) -> None:
        try:
            for task in self.tasks:
                self.check(task, task.all())
            emitted = sum(len(t.all()) for t in self.tasks)
            assert emitted == sum(map(len, self.expected.values())), "lost"
            if self.log.newest() is not None:
                assert self.log.waiting() == 0
                self.log.sweep()
                assert len(self.log.numbers()) == 1
        finally:
            self.directory.cleanup()

    def check(self, task: Reading, found: list[tuple[int, int]]) -> None:
        """Each partition's rows are at one task, in order, from the first."""
        for partition in range(PARTITIONS):
            mine = [pair for pair in found if pair[0] == partition]
            theirs = self.expected[partition] if partition % len(self.tasks) == task.index else []
            assert mine == theirs[: len(mine)], "doubled, reordered or elsewhere"

    @initialize(tasks=st.integers(1, 3))
    def begin(self, tasks: int) -> None:
        self.tasks = [Reading(self.directory.name, i, tasks) for i in range(tasks)]

    def written(self, sizes: list[int]) -> tuple[list[Part], dict[int, list[tuple[int, int]]]]:
        parts, found = [], {}
        for partition, size in enumerate(sizes):
            if size:
                at = self.next[partition]
                found[partition] = [(partition, at + i) for i in range(size)]
                parts.append(part(self.log, partition, *found[partition]))
        return parts, found

    @rule(sizes=st.lists(st.integers(0, 5), min_size=PARTITIONS, max_size=PARTITIONS))
    def commit(self, sizes: list[int]) -> None:
        parts, found = self.written(sizes)
        assert self.log.commit(parts, "q", self.batch)
        self.batch += 1
        for partition, values in found.items():
            self.expected[partition] += values
            self.next[partition] += len(values)

    @precondition(lambda self: self.batch)
    @rule(sizes=st.lists(st.integers(0, 3), min_size=PARTITIONS, max_size=PARTITIONS), back=st.integers(1, 2))
    def commit_again(self, sizes: list[int], back: int) -> None:
        """After a restart of the query: other files with the same batch, or with one before."""
        parts, _ = self.written(sizes)
        assert not self.log.commit(parts, "q", max(0, self.batch - back))

    @rule(target=attempts, sizes=st.lists(st.integers(1, 3), min_size=1, max_size=PARTITIONS))
    def fail(self, sizes: list[int]) -> Any:
        """A batch that comes to nothing."""
        parts, _ = self.written(sizes)
        return multiple(parts)

    @rule(parts=attempts)
    def abort(self, parts: list[Part]) -> None:
        self.log.discard(parts)

    @rule(index=st.integers(0, 2), steps=st.integers(1, 8))
    def read(self, index: int, steps: int) -> None:
        task = self.tasks[index % len(self.tasks)]
        for _ in range(steps):
            task.step()

    @rule(index=st.integers(0, 2))
    def move(self, index: int) -> None:
        self.tasks[index % len(self.tasks)].move()

    @rule()
    def sweep(self) -> None:
        self.log.sweep()


def test_each_row_once_and_in_order() -> None:
    run(Handing, settings=QUICK)


def no_memory_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Log.commit
    monkeypatch.setattr(
        Log,
        "commit",
        lambda self, parts, _="", __=-1, **more: true(self, parts, **more) and __ not in seen(self, __),
    )


def seen(log: Log, batch: int) -> set[int]:
    """Batches so far, beside the log: what a writer that forgets them would say."""
    before: set[int] = log.pipe.__dict__.setdefault("seen", set())
    found = set(before)
    before.add(batch)
    return found


def _state(monkeypatch: pytest.MonkeyPatch, **wrong: int) -> None:
    true = DataFrameSpout.get_state
    monkeypatch.setattr(DataFrameSpout, "get_state", lambda self: {**true(self), **wrong})  # type: ignore[dict-item]


def no_row_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    _state(monkeypatch, row=0)


def no_part_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    _state(monkeypatch, part=0)


def everything_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "done", lambda self: max((t.entry for t in self.taken()), default=-1))


def parts_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Entry, "of", lambda self, index, tasks: list(self.parts[index::tasks]))


def files_of_failed_attempts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Log.entry

    def entry(self: Log, number: int) -> Entry | None:
        found = true(self, number)
        if found is None:
            return None
        more = [n for n in self.pipe.files(DATA) if n not in {p.name for p in found.parts}]
        return msgspec.structs.replace(found, parts=found.parts + tuple(Part(n, 0, 0, 0) for n in more))

    monkeypatch.setattr(Log, "entry", entry)


@pytest.mark.parametrize(
    "plant",
    [
        no_memory_of_batches,
        no_row_in_the_state,
        no_part_in_the_state,
        everything_is_swept,
        parts_in_turn,
        files_of_failed_attempts_are_read,
    ],
)
def test_a_planted_fault_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ExecutionError)):
        run(Handing, settings=FOUND)


# --- what a machine does not say


def test_the_last_entry_ends_the_spout_and_nothing_comes_after_it(tmp_path: Path) -> None:
    log, task = log_of(str(tmp_path)), Reading(str(tmp_path))
    log.commit([part(log, 0, (0, 0))], last=True)
    assert task.all() == [(0, 0)]
    assert task.ended
    with pytest.raises(Ended):
        log.commit([part(log, 0, (0, 1))])


def test_who_finds_the_number_taken_takes_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, other, true = log_of(str(tmp_path)), log_of(str(tmp_path)), Log.newest

    def newest(self: Log) -> Entry | None:
        found = true(self)
        if self is log and other.newest() is None:
            other.commit([part(other, 0, (0, 0))], "theirs", 7)  # between the look and what follows from it
        return found

    monkeypatch.setattr(Log, "newest", newest)
    assert log.commit([part(log, 1, (1, 0))], "mine", 3)
    assert log.numbers() == [0, 1]
    last = true(log)
    assert last is not None and last.batches == {"theirs": 7, "mine": 3}
    assert not list((tmp_path / LOG).glob("*.part"))


def test_an_entry_that_is_swept_while_the_newest_is_looked_for_is_not_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, true = log_of(str(tmp_path)), Log.entry
    log.commit([part(log, 0, (0, 0))])
    Reading(str(tmp_path)).all()

    def entry(self: Log, number: int) -> Entry | None:
        monkeypatch.undo()  # once
        log.commit([part(log, 0, (0, 1))])
        log.sweep()
        return true(self, number)

    monkeypatch.setattr(Log, "entry", entry)
    assert log_of(str(tmp_path)).commit([part(log, 0, (0, 2))])
    assert log.numbers() == [1, 2]


def test_of_many_that_commit_at_once_each_has_an_entry(tmp_path: Path) -> None:
    logs = [log_of(str(tmp_path)) for _ in range(4)]

    def commit(number: int) -> None:
        for batch in range(10):
            logs[number].commit([Part(f"{number}-{batch}", 0, 0, 0)], str(number), batch)

    with ThreadPoolExecutor(len(logs)) as pool:
        list(pool.map(commit, range(len(logs))))
    entries = [logs[0].entry(n) for n in logs[0].numbers()]
    assert [e.number for e in entries if e is not None] == list(range(40))
    assert len({p.name for e in entries if e is not None for p in e.parts}) == 40


def test_a_batch_that_comes_again_after_the_last_is_still_known(tmp_path: Path) -> None:
    log = log_of(str(tmp_path))
    log.commit([], "q", 4)
    log.commit([], last=True)
    assert not log.commit([part(log, 0, (0, 1))], "q", 4)
    assert not list((tmp_path / DATA).iterdir())


def test_a_task_that_knows_nothing_begins_behind_what_it_has_taken(tmp_path: Path) -> None:
    log, task = log_of(str(tmp_path)), Reading(str(tmp_path))
    log.commit([part(log, 0, (0, 0), (0, 1), (0, 2), (0, 3))])
    assert task.all() == [(0, 0), (0, 1), (0, 2), (0, 3)]
    log.commit([part(log, 0, (0, 4), (0, 5), (0, 6), (0, 7))])
    task.step()
    task.crash()  # takes the entry that was being read from its beginning
    assert task.all()[4:] == [(0, 4), (0, 5), (0, 4), (0, 5), (0, 6), (0, 7)]


def test_another_number_of_tasks_goes_on_where_all_have_come_equally_far(tmp_path: Path) -> None:
    log = log_of(str(tmp_path))
    log.commit([part(log, 0, (0, 0)), part(log, 1, (1, 0))])
    assert [Reading(str(tmp_path), i, 2).all() for i in range(2)] == [[(0, 0)], [(1, 0)]]
    log.commit([part(log, 0, (0, 1)), part(log, 1, (1, 1)), part(log, 2, (2, 0))])
    assert [Reading(str(tmp_path), i, 3).all() for i in range(3)] == [[(0, 1)], [(1, 1)], [(2, 0)]]
    log.commit([part(log, 0, (0, 2)), part(log, 1, (1, 2))])
    assert [Reading(str(tmp_path), i, 2).all() for i in range(2)] == [[(0, 2)], [(1, 2)]]
    assert log.done() == 2 and log.waiting() == 0, "those who read before wait for nothing"
    assert Reading(str(tmp_path), 0, 2).all() == [], "nor do they take those who know nothing back"


def test_another_number_of_tasks_is_refused_where_they_have_not(tmp_path: Path) -> None:
    log = log_of(str(tmp_path))
    log.commit([part(log, 0, (0, 0)), part(log, 1, (1, 0))])
    Reading(str(tmp_path), 0, 2).all()
    with pytest.raises(
        ConfigError, match="was read by 2 tasks, which have not all come equally far: 3 cannot"
    ):
        Reading(str(tmp_path), 0, 3).step()
    Reading(str(tmp_path), 1, 2).all()
    log.commit([part(log, 0, (0, 1)), part(log, 1, (1, 1))])
    Reading(str(tmp_path), 1, 2).all()
    with pytest.raises(ConfigError, match="was read by 2 tasks"):
        Reading(str(tmp_path), 0, 3).step()


def test_what_waits_is_what_not_every_task_has_taken(tmp_path: Path) -> None:
    log = log_of(str(tmp_path))
    parts = [part(log, 0, (0, 0)), part(log, 1, (1, 0))]
    log.commit(parts)
    both = sum(p.bytes for p in parts)
    assert log.waiting() == both
    Reading(str(tmp_path), 0, 2).all()
    assert log.waiting() == both
    Reading(str(tmp_path), 1, 2).all()
    assert log.waiting() == 0


def test_files_of_nobody_go_after_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_ = log_of(str(tmp_path))
    lost, named = part(log_, 0, (0, 0)), part(log_, 0, (0, 0))
    killed = tmp_path / DATA / f"{lost.name}.1.part"
    killed.touch()
    log_.commit([named])
    log_.sweep()
    assert {p.name for p in (tmp_path / DATA).iterdir()} == {lost.name, named.name, killed.name}
    now = log.time.time()
    monkeypatch.setattr(log.time, "time", lambda: now + 90_000)
    log_.sweep()
    assert [p.name for p in (tmp_path / DATA).iterdir()] == [named.name]


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path: Path) -> None:
    log = log_of(str(tmp_path))

    def broken() -> Any:
        yield pa.RecordBatch.from_pylist([{"key": 1, "n": 1}], SCHEMA)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        log.write(0, SCHEMA, broken())
    assert not list((tmp_path / DATA).iterdir())


def test_what_cannot_be_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe(str(tmp_path))

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(true, name)

        def move(self, *_: str) -> None:
            raise OSError("no room")

    true = pipe._fs
    monkeypatch.setattr(pipe, "_fs", Full())
    with pytest.raises(OSError, match="no room"):
        pipe.write("a/b", b"x")
    assert not list((tmp_path / "a").iterdir())


def test_a_file_that_somebody_has_removed_is_named(tmp_path: Path) -> None:
    log, task = log_of(str(tmp_path)), Reading(str(tmp_path))
    gone = part(log, 0, (0, 0))
    log.commit([gone])
    log.discard([gone])
    with pytest.raises(ExecutionError, match=f"lacks {gone.name}, which entry 0 of its log names"):
        task.step()


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    log, task = log_of(str(tmp_path)), Reading(str(tmp_path))
    batch = pa.RecordBatch.from_pylist([{"key": 1, "other": 1}])
    log.commit([log.write(0, batch.schema, [batch])])
    with pytest.raises(ExecutionError, match="has no column 'n'; it has key, other"):
        task.step()


def test_columns_that_nobody_declared_are_left_out(tmp_path: Path) -> None:
    log, task = log_of(str(tmp_path)), Reading(str(tmp_path))
    batch = pa.RecordBatch.from_pylist([{"n": 2, "other": "x", "key": 1}])
    log.commit([log.write(0, batch.schema, [batch])])
    assert task.all() == [(1, 2)]


def test_a_pipe_that_cannot_be_read_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, task = log_of(str(tmp_path)), Reading(str(tmp_path))
    log.commit([part(log, 0, (0, 0))])
    told: list[str] = []
    task.spout.context.on_warning = lambda kind, message, _: told.append(f"{kind} {message}")
    with monkeypatch.context() as broken:
        broken.setattr(Pipe, "read", lambda *_: (_ for _ in ()).throw(OSError("gone away")))
        assert task.spout.next_batch() == 1.0
    assert "pipe-unreadable" in told[0] and "gone away" in told[0]
    assert task.all() == [(0, 0)]


def test_what_cannot_be_read_to_its_end_is_gone_on_with_where_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, task = log_of(str(tmp_path)), Reading(str(tmp_path))
    found = [(0, n) for n in range(8)]
    written = part(log, 0, *found)
    log.commit([written, part(log, 0, (0, 8))])

    class Torn(io.BytesIO):
        def read(self, *size: int | None) -> bytes:
            if self.tell() > 0.6 * written.bytes:
                raise OSError("gone away")
            return super().read(*size)

    task.spout.context.on_warning = lambda *_: None
    with monkeypatch.context() as broken:
        broken.setattr(Pipe, "open", lambda *_: Torn((tmp_path / DATA / written.name).read_bytes()))
        assert 0 < len(task.all()) < len(found)
    assert task.all() == [*found, (0, 8)]


def test_fields_without_types_are_refused_where_they_are_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"The columns of a pipe need types\. Field 'a'"):
        DataFrameSpout(tmp_path, Fields("a"))
    with pytest.raises(ConfigError, match="declared by Fields with types, not by 'a'"):
        DataFrameSpout(tmp_path, "a")  # type: ignore[arg-type]


def test_other_columns_than_before_are_refused(tmp_path: Path) -> None:
    Reading(str(tmp_path))
    other = DataFrameSpout(tmp_path, Fields(key=int, text=str))
    with pytest.raises(ConfigError, match="has the columns key int64, n int64, not key int64, text string"):
        other.prepare(context("in", 0, 1))


def test_what_a_task_has_read_goes_when_that_is_written_down_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, task = log_of(str(tmp_path)), Reading(str(tmp_path))
    log.commit([part(log, 0, (0, 0))])
    task.spout.context.on_warning = lambda *_: None
    with monkeypatch.context() as broken:
        broken.setattr(Pipe, "write", lambda *_: (_ for _ in ()).throw(OSError("no room")))
        assert task.all() == [(0, 0)]
    assert len(list((tmp_path / DATA).iterdir())) == 1 and log.done() == -1
    task.crash()
    assert task.all() == [(0, 0), (0, 0)], "it is read again from its beginning"
    assert not list((tmp_path / DATA).iterdir()) and log.done() == 0


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    log = log_of(str(tmp_path))
    log.commit([])
    (tmp_path / DATA).mkdir()
    (tmp_path / DATA / "README").touch()
    log.sweep()
    assert (tmp_path / DATA / "README").exists()


def test_columns_of_other_types_are_refused(tmp_path: Path) -> None:
    Pipe(str(tmp_path)).declare(SCHEMA)
    with pytest.raises(ConfigError, match="has the columns key int64, n int64, not key int64, n string"):
        Pipe(str(tmp_path)).declare(pa.schema([("key", pa.int64()), ("n", pa.string())]))


def test_what_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    """Also that of somebody who was killed over it, and of two who write the same."""
    log = log_of(str(tmp_path))
    log.took(Taken(0, 1, 3), [])
    (tmp_path / TAKEN / "0-of-1.json.x.part").write_bytes(b"{")
    assert log.done() == 3 and len(log.taken()) == 1
    with log.pipe.writing("a/b") as first:
        with log.pipe.writing("a/b") as second:
            second.write(b"2")
        assert log.pipe.read("a/b") == b"2"
        first.write(b"1")
    assert log.pipe.read("a/b") == b"1" and list(log.pipe.files("a")) == ["b"]
    assert not log.pipe.unfinished("a")


def test_where_nothing_can_be_linked_a_number_that_is_taken_stays_taken(tmp_path: Path) -> None:
    pipe = Pipe(str(tmp_path))
    pipe._local = False
    assert pipe.create("log/0", b"first") and not pipe.create("log/0", b"second")
    assert pipe.read("log/0") == b"first"


def test_a_folder_that_is_made_while_it_is_looked_at_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = Pipe(str(tmp_path))
    pipe.write("a/b", b"x")
    true, asked = pipe._fs, []

    def get_file_info(selector: Any) -> Any:
        asked.append(selector)
        if len(asked) == 1:
            raise FileNotFoundError
        return true.get_file_info(selector)

    monkeypatch.setattr(pipe, "_fs", SimpleNamespace(get_file_info=get_file_info))
    assert pipe.files("a") == {"b": 1}


def test_a_place_is_the_same_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert DataFrameSpout("p", Fields(key=int)).pipe == str(tmp_path / "p")
    assert place("~/p") == str(Path.home() / "p") and place("s3://p") == "s3://p"


def test_as_much_as_may_wait_is_not_waited_for() -> None:
    asked: list[int] = []
    assert wait_for_room(lambda: asked.append(1) or 10, 10, 5.0) == 10  # type: ignore[func-returns-value]
    assert len(asked) == 1
    assert wait_for_room(lambda: 11, 10, 0.0) == 11


def test_a_pipe_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        Pipe(str(tmp_path / "f"))


def test_a_place_that_nobody_can_open_is_refused() -> None:
    with pytest.raises(ConfigError, match="The pipe nothing://x cannot be opened"):
        Pipe("nothing://x")


def test_a_uri_is_a_place(tmp_path: Path) -> None:
    log, task = log_of(f"file://{tmp_path}/p"), Reading(f"file://{tmp_path}/p")
    log.commit([part(log, 0, (0, 0))])
    assert task.all() == [(0, 0)]
    assert (tmp_path / "p" / LOG).is_dir()


def test_records_are_as_they_are_written() -> None:
    entry = Entry(3, (Part("a", 1, 2, 3),), {"q": 4}, last=True)
    assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry
    assert Taken(1, 4, 7).name == "taken/1-of-4.json"
