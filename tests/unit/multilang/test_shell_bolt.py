"""Bolts in other languages, with real processes: what they are told, what is taken of them, how they end, and that a move loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic import (
    Bolt,
    Fields,
    LocalCluster,
    ShellBatchBolt,
    ShellBolt,
    Spout,
    TopologyBuilder,
)
from elastic.api.bundle import build_bundle, load_bundle
from elastic.errors import ExecutionError, TopologyError
from elastic.testing import BoltTester, collect

CHILDREN = Path(__file__).parent / "children"


def command(script: str, *arguments: object) -> list[str]:
    return [sys.executable, f"{script}.py", *map(str, arguments)]


def bolt(mode: str, outputs: Any = None, **options: Any) -> ShellBolt:
    return ShellBolt(command("bolt", mode), outputs or Fields("value"), files=CHILDREN, **options)


def batch(mode: str, **options: Any) -> ShellBatchBolt:
    return ShellBatchBolt(command("bolt", mode), Fields("value"), files=CHILDREN, **options)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where processes run. Nothing is left there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert not list(tmp_path.glob("elastic-shell-*"))


@pytest.fixture
def tested() -> Iterator[Any]:
    """Makes testers that are closed."""
    made: list[BoltTester] = []

    def make(bolt: Bolt, **more: Any) -> BoltTester:
        made.append(BoltTester(bolt, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def pid(tester: BoltTester) -> int:
    child = tester.component._child  # type: ignore[attr-defined]
    assert child is not None
    return int(child.pid)


def lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_tuple_goes_in_and_what_is_emitted_comes_out(tested: Any) -> None:
    tester = tested(bolt("echo"))
    for value in ("a\nend\nb", 1, 1.5, True, None, ["x", {"y": [1]}], "\u00e9\U0001f600"):
        assert tester.execute(value) == [(value,)]


def test_what_a_process_is_told(tested: Any) -> None:
    tester = tested(bolt("setup", env={"GIVEN": "yes"}), **{"my.setting": 3})
    ((told,),) = tester.execute("x", source="lines", stream="default")
    assert told["conf"]["my.setting"] == 3 and told["conf"]["topology.name"] == "test"
    assert told["context"]["task->component"] == {"1": "tested"} and told["context"]["taskid"] == 1
    assert told["context"]["componentid"] == "tested"
    assert (told["comp"], told["stream"], told["task"], told["tuple"]) == ("lines", "default", 1, ["x"])
    assert isinstance(told["id"], str) and told["env"] == "yes"
    assert {"bolt.py", "client.py", "split.js"} <= set(told["files"])


def test_what_is_emitted_after_the_acknowledgement_belongs_to_the_tuple(tested: Any) -> None:
    """Else it would be left in the pipe when the task moves, or at the end."""
    tester = tested(bolt("unanswered"))
    assert [tester.execute(n) for n in range(20)] == [[(n,)] for n in range(20)]


def test_one_that_never_acknowledges(tested: Any) -> None:
    tester = tested(bolt("never-acks", acks=False))
    assert [tester.execute(n) for n in range(3)] == [[(n,)] for n in range(3)]
    assert tester.component._given == {}  # type: ignore[attr-defined]
    tester = tested(bolt("never-acks"))
    tester.component.timeout = 2.0  # type: ignore[attr-defined]  # not for its start, which may take longer
    with pytest.raises(ExecutionError, match=r"answers heartbeats, but has neither acknowledged nor failed"):
        tester.execute("x")


def test_emits_on_streams_and_to_tasks(tested: Any) -> None:
    streams = {"default": Fields("value"), "other": Fields("value")}
    tester = tested(bolt("stream", streams))
    emitted = tester.execute("x")
    assert emitted.streams == {"other": [("x",)]}
    tester = tested(bolt("direct"))
    assert tester.execute(4) == [(4,)]


def test_values_are_converted_to_declared_types(tested: Any) -> None:
    tester = tested(bolt("echo", Fields(value=float)))
    ((value,),) = tester.execute(3)
    assert value == 3.0 and isinstance(value, float)
    with pytest.raises(ExecutionError, match="Expected `float`, got `str`"):
        tester.execute("x")
    assert tester.execute(4) == [(4.0,)], "the same process goes on"


def test_a_value_without_a_form_in_json(tested: Any) -> None:
    tester = tested(bolt("echo"))
    with pytest.raises(ExecutionError, match="cannot be written as JSON"):
        tester.execute(object())
    with pytest.raises(ExecutionError, match="cannot be written as JSON"):
        tester.execute("\ud800")
    assert tester.execute(1 << 80) == [(1 << 80,)]
    assert tester.execute(float("nan")) == [(None,)], "as Storm writes it"


def test_logs_errors_and_metrics(tested: Any, caplog: pytest.LogCaptureFixture) -> None:
    tester = tested(bolt("metrics"))
    tester.execute(None)
    tester.execute(4)
    assert tester.metrics["seen"] == 5
    tester.execute("text")
    assert ("WARNING", "tested/1: a log") in [(r.levelname, r.getMessage()) for r in caplog.records]
    assert {kind for kind, _ in tester.warnings} == {"shell-error", "shell-metric"}


def test_a_failed_tuple_raises_with_what_was_reported(tested: Any) -> None:
    tester = tested(bolt("fails"))
    first = pid(tester)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"'tested' \(task 1, .*\) failed a tuple: cannot do this"):
            tester.execute("x")
    assert pid(tester) == first


def test_an_answer_too_many_is_told_and_changes_nothing(tested: Any) -> None:
    tester = tested(bolt("twice"))
    tester.execute("x")
    tester.execute("y")
    assert {kind for kind, _ in tester.warnings} == {"shell-stray-answer"}


def test_a_process_that_writes_much_before_it_reads(tested: Any) -> None:
    """More than the pipes hold, of emits and of answers to them."""
    tester = tested(bolt("large-answer"))
    assert len(tester.execute("x")) == 20_000
    assert tester.component._child.living  # type: ignore[attr-defined]


def test_one_that_has_ended_in_between_costs_no_tuple(tested: Any) -> None:
    tester = tested(bolt("dies-later"))
    seen = set()
    for n in range(3):
        tester.execute(n)
        seen.add(pid(tester))
        tester.component._child._process.wait(10)  # type: ignore[attr-defined]
    assert len(seen) == 3
    ended = [message for kind, message in tester.warnings if kind == "shell-ended"]
    assert len(ended) == 2 and "ended with exit code 9" in ended[0]


def test_a_move_ends_the_process_and_starts_another(tested: Any) -> None:
    tester = tested(bolt("counts"))
    assert tester.execute("x") == [(1,)]
    assert tester.execute("x") == [(2,)]
    before = pid(tester)
    tester.move()
    assert not lives(before) and lives(pid(tester))
    assert tester.execute("x") == [(1,)]


def test_what_a_batching_process_keeps_moves_along(tested: Any) -> None:
    tester = tested(batch("batch"))
    assert [tester.execute(n) for n in range(4)] == [[], [], [([0, 1, 2],)], []]
    tester.execute(4)
    tester.move()
    assert tester.execute(5) == [([3, 4, 5],)], "first what it had, in its order"
    tester.execute(6)
    tester.move()
    tester.move()
    assert tester.execute(7) == []
    assert tester.execute(8) == [([6, 7, 8],)]
    assert tester.component.get_state() == []  # type: ignore[attr-defined]


def test_a_tick_reaches_the_process(tested: Any) -> None:
    tester = tested(batch("batch"), tick_interval=5.0)
    tester.execute(1)
    assert tester.tick() == [([1],)]
    tester.execute(2)
    assert tester.finish() == [([2],)], "the last tick"
    assert tester.warnings == []


def test_what_is_kept_when_a_batching_process_dies_is_given_to_the_next(tested: Any) -> None:
    tester = tested(batch("batch-dies"))
    tester.execute("a")
    tester.execute("b")
    with pytest.raises(ExecutionError, match="ended with exit code 7"):
        tester.execute("die")
    assert tester.execute("c") == [(["a"],), (["a", "b"],), (["a", "b", "c"],)]


def test_too_many_kept_tuples(tested: Any) -> None:
    tester = tested(batch("batch", most=2))
    tester.execute(1)
    tester.execute(2)
    assert tester.execute(3) == [([1, 2, 3],)]
    tester = tested(batch("batch", most=1))
    tester.execute(1)
    with pytest.raises(ExecutionError, match="keeps more than 1 tuples"):
        tester.execute(2)


def test_the_end_of_input_waits_for_what_is_kept(tested: Any) -> None:
    tester = tested(batch("batch"))
    tester.execute(1)
    tester.component.timeout = 0.1  # type: ignore[attr-defined]
    tester.finish()
    assert [kind for kind, _ in tester.warnings] == ["shell-kept"]


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(
        ExecutionError, match=r"'tested' \(task 1, 'no-such-program x'\) cannot be started: no such"
    ):
        BoltTester(ShellBolt(["no-such-program", "x"], Fields("value")))


def test_a_program_that_ends_before_it_has_told_its_pid() -> None:
    with pytest.raises(ExecutionError, match=r"(?s)ended with exit code 1\..*stderr:.*No such file"):
        BoltTester(ShellBolt([sys.executable, "-c", "open('nothing')"], Fields("value")))


def test_a_script_of_its_own_that_may_be_run(tested: Any, tmp_path: Path) -> None:
    script = tmp_path / "run"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} bolt.py echo\n")
    script.chmod(0o755)
    made = ShellBolt(["./run"], Fields("value"), files=[CHILDREN, script])
    script.unlink()
    assert tested(made).execute("x") == [("x",)], "it went along when the bolt was made"


def test_the_bundle_has_the_files(tmp_path: Path, tested: Any) -> None:
    b = TopologyBuilder("shipped")
    b.spout("numbers", Numbers())
    b.bolt("echo", bolt("echo")).shuffle("numbers")
    build_bundle(b.build(), None, tmp_path / "bundle.zip")
    shutil.unpack_archive(tmp_path / "bundle.zip", tmp_path / "unpacked")
    component = load_bundle(tmp_path / "unpacked").component("echo")
    assert tested(component).execute("x") == [("x",)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ShellBolt("node split.js"), "a program and its arguments"),  # type: ignore[arg-type]
        (lambda: ShellBolt([]), "a program and its arguments"),
        (lambda: ShellBolt(["x"], timeout=0), "timeout is a number of seconds"),
        (lambda: ShellBolt(["x"], files="no-such-place"), "cannot be read"),
        (lambda: ShellBolt(["x"], files=[CHILDREN, CHILDREN / "bolt.py"]), "Two of the files"),
        (lambda: ShellBatchBolt(["x"], most=0), "most is a number of tuples"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        make()


def test_files_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from elastic.multilang import carried

    monkeypatch.setattr(carried, "MOST", 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(TopologyError, match="more than 0 MiB"):
        ShellBolt(["x"], files=tmp_path / "large")


class Numbers(Spout):
    outputs = Fields("value")

    def tuples(self) -> Any:
        yield from range(300)


def test_in_a_topology_task_ids_say_where_a_tuple_went() -> None:
    out, one = collect(), collect()
    b = TopologyBuilder("ids")
    b.spout("numbers", Numbers())
    b.bolt("ids", bolt("ids")).shuffle("numbers")
    b.bolt("by-key", out, tasks=3).fields("ids", "value")
    b.bolt("one", one).all_to_one("ids")
    with LocalCluster() as cluster:
        run = cluster.submit(b).wait(60)
    assert run.failed_tuples == 0
    keyed, single = run.spec.tasks_of("by-key"), run.spec.tasks_of("one")[0]  # type: ignore[arg-type]
    ids = [json.loads(value) for (value,) in one.rows if isinstance(value, str)]
    assert len(ids) == 300
    assert all(len(i) == 2 and i[0] in keyed and i[1] == single for i in ids)
    assert len({i[0] for i in ids}) == 3


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_node_splits_lines(tested: Any) -> None:
    """It answers heartbeats before it has answered the tuple."""
    made = ShellBolt(["node", "split.js"], Fields(word=str, n=float), files=CHILDREN)
    tester = tested(made)
    assert tester.execute("a b  c") == [("a", 1.0), ("b", 1.0), ("", 1.0), ("c", 1.0)]
    tester.move()
    assert tester.execute("x") == [("x", 1.0)]
