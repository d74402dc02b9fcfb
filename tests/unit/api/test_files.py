"""Text in and out."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic import Fields, TextSink, TextSpout
from elastic.errors import ConfigError
from elastic.testing import BoltTester, SpoutTester


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.text(alphabet="ab \r", max_size=12), max_size=20), min_size=1, max_size=3),
    st.integers(1, 5),
    st.booleans(),
)
def test_tasks_share_files_without_losing_or_doubling_a_line(
    files: list[list[str]], tasks: int, newline_at_end: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        expected = []
        for n, lines in enumerate(files):
            content = "\n".join(lines) + ("\n" if newline_at_end else "")
            (Path(name) / f"{n}.txt").write_bytes(content.encode())
            whole = content.split("\n")
            expected += [x.rstrip("\r") for x in (whole[:-1] if whole[-1] == "" else whole)]
        spout = TextSpout(name)
        got = [r[0] for i in range(tasks) for r in SpoutTester(spout, index=i, parallelism=tasks).run()]
        assert sorted(got) == sorted(expected)


def test_a_spout_goes_on_where_its_state_says(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("".join(f"{n}\n" for n in range(10)))
    first = SpoutTester(TextSpout(file))
    assert [r[0] for r in first.run(4)] == ["0", "1", "2", "3"]
    second = TextSpout(file)
    second.set_state(first.component.get_state())  # type: ignore[attr-defined]
    assert [r[0] for r in SpoutTester(second).run()] == [str(n) for n in range(4, 10)]


def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"ok\n\xff\xfe x\n\x00\n")
    tester = SpoutTester(TextSpout(tmp_path / "a.bin"))
    assert [r[0] for r in tester.run()] == ["ok", "\ufffd\ufffd x", "\x00"]
    assert tester.metrics["undecodable_lines"] == 1
    (warning,) = tester.warnings
    assert warning[0] == "input-undecodable" and "a.bin: the line at byte 3 is not UTF-8" in warning[1]


def test_many_lines_that_are_not_utf8_are_told_at_the_first_and_in_sum(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\n" * 1500)
    tester = SpoutTester(TextSpout(tmp_path / "a.bin"))
    tester.run(2000)
    first, last = tester.warnings
    assert "the line at byte 0" in first[1] and "1,500 lines" in last[1]


def test_an_empty_file_is_no_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    tester = SpoutTester(TextSpout(tmp_path / "a"))
    assert tester.run() == []
    assert tester.exhausted


@pytest.mark.parametrize(("content", "tasks"), [("", 1), ("a\n", 2), ("\n", 3)])
def test_a_task_without_lines_does_not_go_round_for_ever(tmp_path: Path, content: str, tasks: int) -> None:
    (tmp_path / "a").write_text(content)
    spout = TextSpout(tmp_path / "a", loop=True)
    testers = [SpoutTester(spout, index=i, parallelism=tasks) for i in range(tasks)]
    got = [t.run(5) for t in testers]
    assert sorted(map(len, got)) == [0] * (tasks - 1) + [5 if content else 0]
    assert [t.exhausted for t in testers] == [not rows for rows in got]


def test_a_loop_goes_on_after_a_move_at_the_end_of_a_round(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    first = SpoutTester(TextSpout(tmp_path / "a", loop=True))
    first.run(2)
    second = TextSpout(tmp_path / "a", loop=True)
    second.set_state(first.component.get_state())  # type: ignore[attr-defined]
    assert SpoutTester(second).run(3) == [("1",), ("2",), ("1",)]


def test_a_file_that_grows_is_divided_as_it_was(tmp_path: Path) -> None:
    """Tasks open it one after another, and one goes on elsewhere: none of its lines is lost, none comes twice."""
    file, old, new = tmp_path / "a", [f"{n:04d}" for n in range(100)], [f"{n:04d}" for n in range(100, 200)]
    file.write_text("".join(f"{line}\n" for line in old))
    spout = TextSpout(file)
    first, middle, last = (SpoutTester(spout, index=i, parallelism=3) for i in range(3))
    got = [*first.run(10), *middle.run()]
    with file.open("a") as opened:
        opened.writelines(f"{line}\n" for line in new)
    moved = SpoutTester(spout, index=0, parallelism=3)
    moved.component.set_state(first.component.get_state())  # type: ignore[attr-defined]
    got += [*moved.run(), *last.run()]
    assert sorted(line for (line,) in got) == old + new


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no file"):
        TextSpout(tmp_path / "missing")
    with pytest.raises(ConfigError, match="no files"):
        TextSpout(tmp_path)
    with pytest.raises(ConfigError, match="nothing"):
        TextSpout([])


def test_the_sink_sorts_escapes_and_writes_all_or_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    tester = BoltTester(TextSink(out), Fields(word=str, n=int))
    for row in [("b", 2), ("a\tb\\", 1), ("ä", 3), ("a\n", 4)]:
        tester.execute(*row)
    assert not out.exists()
    tester.finish()
    assert out.read_text() == "a\\n\t4\na\\tb\\\t1\nb\t2\nä\t3\n"
    assert [p.name for p in tmp_path.iterdir()] == ["out.tsv"]


def test_what_utf8_does_not_have_costs_no_rows(tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    tester = BoltTester(TextSink(out), Fields(word=str))
    for word in ["fine", "\udcff\ud800\udfff", "\udcfe"]:
        tester.execute(word)
    tester.finish()
    assert sorted(out.read_bytes().splitlines()) == [b"fine", b"\xfe", b"\xff\\ud800\\udfff"]


def test_the_sink_keeps_the_newest_of_each_key(tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    tester = BoltTester(TextSink(out, key=[0]), Fields(word=str, n=int))
    for row in [("b", 2), ("a", 1), ("b", 3)]:
        tester.execute(*row)
    tester.finish()
    assert out.read_text() == "a\t1\nb\t3\n"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        TextSpout(tmp_path / "pipe")


def test_a_file_of_a_folder_that_cannot_be_read_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)

    def as_nobody(self: Path, *args: Any) -> Any:
        if self.name == "b.txt":
            raise PermissionError(13, "Permission denied")
        return opened(self, *args)

    opened = Path.open
    monkeypatch.setattr(Path, "open", as_nobody)
    with pytest.raises(ConfigError, match=r"Cannot read .*b\.txt: Permission denied"):
        TextSpout(tmp_path)


def test_a_sink_says_before_it_works_that_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"there is no folder {tmp_path}/no"):
        BoltTester(TextSink(tmp_path / "no" / "out.tsv"), Fields(word=str))
    with pytest.raises(ConfigError, match="it is a folder"):
        BoltTester(TextSink(tmp_path), Fields(word=str))
    assert not list(tmp_path.iterdir())
