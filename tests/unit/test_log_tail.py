"""Log files as lines: from the end or the beginning, growing, replaced, truncated, with very long lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.reporting.log_tail import LINE_LIMIT, LogTail
from elastic.supervisor.logs import trim


def tail_of(files: dict[str, Path], tail: int | None = None) -> LogTail:
    return LogTail(lambda: list(files.items()), tail=tail)


def texts(tail: LogTail) -> list[str]:
    found: list[str] = []
    while lines := tail.read():
        found += [text for _, text in lines]
    return found


def test_from_the_beginning_and_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthr")
    tail = tail_of({"w": path})
    assert tail.read() == [("w", "one"), ("w", "two")]
    assert tail.read() == []
    assert tail.rest() == [("w", "thr")]
    with path.open("a") as file:
        file.write("ee\r\n\nfour\n")
    assert texts(tail) == ["three", "", "four"]
    assert tail.rest() == []


@settings(max_examples=60)
@given(st.lists(st.text("ab ", max_size=5), max_size=12), st.integers(0, 15), st.booleans())
def test_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], count: int, ended: bool
) -> None:
    path = tmp_path_factory.mktemp("tail") / "log"
    path.write_text("\n".join(lines) + ("\n" if ended and lines else ""))
    expected = path.read_text().split("\n")
    if expected[-1] == "":
        expected.pop()
    tail = tail_of({"w": path}, count)
    assert [*texts(tail), *(text for _, text in tail.rest())] == (expected[-count:] if count else [])


def test_the_last_lines_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(200_000)))
    assert texts(tail_of({"w": path}, 60_000)) == [f"line {n}" for n in range(140_000, 200_000)]
    assert len(texts(tail_of({"w": path}, 10**6))) == 200_000


@settings(max_examples=60)
@given(st.lists(st.text("ab", max_size=3), max_size=9), st.integers(0, 9), st.integers(0, 12), st.booleans())
def test_the_last_lines_of_a_log_that_was_moved_aside(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cut: int, count: int, ended: bool
) -> None:
    path = tmp_path_factory.mktemp("aside") / "worker.log"
    before, now = lines[:cut], lines[cut:]
    path.with_name("worker.log.1").write_text("".join(f"{line}\n" for line in before))
    path.write_text("".join(f"{line}\n" for line in now) + ("" if ended else "c"))
    expected = lines if ended else [*lines, "c"]
    for wanted in (count, None):
        tail = tail_of({"w": path}, wanted)
        found = [*texts(tail), *(text for _, text in tail.rest())]
        assert found == (expected if wanted is None else expected[-wanted:] if wanted else [])
        with path.open("a") as file:
            file.write("\nmore\n")
        assert texts(tail)[-1] == "more"
        path.write_text("".join(f"{line}\n" for line in now) + ("" if ended else "c"))


def test_what_is_moved_aside_before_it_was_read_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\nth")
    tail = tail_of({"w": path}, 1)
    with path.open("a") as file:  # as a worker writes
        assert texts(tail) == []
        file.write("ree\nfour\n")
        file.flush()
        assert trim(path, limit=1)
        file.write("5\n")
        file.flush()
        assert texts(tail) == ["three", "four", "5"]
        file.write("six\n" * 9)
        file.flush()
        assert texts(tail) == ["six"] * 9
        assert trim(path, limit=1)
        assert texts(tail) == [], "all of that was read"
        file.write("7\n")
    assert texts(tail) == ["7"]


def test_what_was_moved_aside_is_read_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.with_name("log.1").write_text("".join(f"line {n}\n" for n in range(100_000)) + "cut")
    path.write_text("now\n")
    assert texts(tail_of({"w": path})) == [*(f"line {n}" for n in range(100_000)), "cut", "now"]
    assert texts(tail_of({"w": path}, 50_000))[0] == "line 50002"


def test_a_line_without_end_comes_in_pieces_and_memory_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (5 * LINE_LIMIT + 7))
    tail = tail_of({"w": path})
    found = texts(tail)
    assert [len(t) for t in found] == [LINE_LIMIT] * 5
    assert [len(t) for _, t in tail.rest()] == [7]
    path.write_bytes(b"y" * (2 * LINE_LIMIT + 1) + b"\nz\n")
    assert [len(t) for t in texts(tail_of({"w": path}))] == [LINE_LIMIT, LINE_LIMIT, 1, 1]


def test_a_truncated_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a long first line\nhalf")
    tail = tail_of({"w": path})
    assert texts(tail) == ["a long first line"]
    path.write_text("new\n")
    assert texts(tail) == ["new"]


def test_a_replaced_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    tail = tail_of({"w": path})
    assert texts(tail) == ["old"]
    other = tmp_path / "other"
    other.write_text("new one\nnew two\n")
    other.replace(path)
    assert texts(tail) == ["new one", "new two"]


def test_files_come_and_go(tmp_path: Path) -> None:
    files = {"w0": tmp_path / "0", "w1": tmp_path / "1"}
    (tmp_path / "0").write_text("first\nsecond\n")
    tail = tail_of(files, 1)
    assert tail.read() == [("w0", "second")]
    (tmp_path / "1").write_text("x\ny\n")
    assert tail.read() == [("w1", "x"), ("w1", "y")]
    files["w2"] = tmp_path / "2"
    (tmp_path / "2").write_text("late\nlater\n")
    tail.refresh()
    assert tail.read() == [("w2", "late"), ("w2", "later")]
    (tmp_path / "0").unlink()
    assert tail.read() == []
    del files["w0"]
    tail.refresh()
    assert tail.read() == []


def test_bytes_that_are_no_utf8_do_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"caf\xe9\nnext\n")
    assert texts(tail_of({"w": path})) == ["caf�", "next"]
