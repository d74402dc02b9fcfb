"""A process that goes wrong: each way is an error of its tuple that says whose process it was, which command, and what it wrote last; the
next tuple has another process, and nothing of it outlives its task."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic import Fields, LocalCluster, ShellBolt, Spout, TopologyBuilder
from elastic.errors import ExecutionError
from elastic.multilang import child as module
from elastic.multilang.child import Child, Lost, Silent
from elastic.testing import BoltTester, collect

CHILDREN = Path(__file__).parent / "children"
WAYS = {
    "dies": "ended with exit code 3",
    "killed": "was ended by SIGSEGV",
    "junk": "wrote 'what is that', which is no JSON: what it prints for people belongs to stderr",
    "no-object": r"wrote '\[1, 2\]', which is no message",
    "unknown": "which is no command",
    "huge": "writes a message of more than 16 MiB without its end",
    "silent": "has not answered for 2 s",
    "closes": "has closed its output and runs on",
    "half": """ended with exit code 0 within a message, '{"command": "em'""",
    "error": r"ended with exit code 0\. It reported: lost my way",
    "deep": "which is (nested too deeply|no JSON)",
}
GOES_ON = {
    "wrong-number": r"emits \['one', 'two'\] on stream 'default', which takes a list of 1 values \(value\)",
    "wrong-stream": r"emits on stream 'nowhere', which is not declared \(declared: default\)",
    "fails": "failed a tuple",
}


def misbehaving() -> ShellBolt:
    return ShellBolt([sys.executable, "misbehaves.py"], Fields("value"), files=CHILDREN)


def process(tester: BoltTester) -> subprocess.Popen[bytes] | None:
    child = tester.component._child  # type: ignore[attr-defined]
    return None if child is None else child._process


@pytest.fixture
def tester(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BoltTester]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = BoltTester(misbehaving())
    yield made
    made.close()
    assert not list(tmp_path.iterdir())
    assert not [t for t in threading.enumerate() if t.name.startswith("stderr-")]


@pytest.mark.parametrize("how", WAYS)
def test_a_process_that_is_lost_costs_its_tuple(how: str, tester: BoltTester) -> None:
    assert tester.execute("before") == [("before",)]
    lost = process(tester)
    if how == "silent":
        tester.component.timeout = 2.0  # type: ignore[attr-defined]  # not for its start, which may take longer
    with pytest.raises(ExecutionError, match=WAYS[how]) as caught:
        tester.execute(how)
    text = str(caught.value)
    assert text.startswith("The process of 'tested' (task 1, ") and "misbehaves.py" in text
    assert f"stderr:\n    at before\n    at {how}" in text
    assert lost is not None and lost.returncode is not None, "it is over, and was waited for"
    tester.component.timeout = 30.0  # type: ignore[attr-defined]
    assert tester.execute("after") == [("after",)]


@pytest.mark.parametrize("how", GOES_ON)
def test_a_wrong_answer_costs_its_tuple_and_no_process(how: str, tester: BoltTester) -> None:
    before = process(tester)
    with pytest.raises(ExecutionError, match=GOES_ON[how]):
        tester.execute(how)
    assert tester.execute("after") == [("after",)] and process(tester) is before


QUICK = sorted({*WAYS, *GOES_ON} - {"silent", "huge", "closes"})


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(QUICK), st.text(min_size=1, max_size=5), st.just("move")), max_size=8)
)
def test_whatever_goes_wrong_all_others_come_out_in_order(values: list[str]) -> None:
    """Against the plain reference: a bolt that raises for some values and emits the others."""
    tester = BoltTester(misbehaving())
    try:
        for value in values:
            if value == "move":
                assert tester.move() == []
            elif value in WAYS or value in GOES_ON:
                with pytest.raises(ExecutionError):
                    tester.execute(value)
                assert tester.take() == []
            else:
                assert tester.execute(value) == [(value,)]
    finally:
        tester.close()


class Values(Spout):
    outputs = Fields("value")

    def __init__(self, *values: str) -> None:
        self.values = values

    def tuples(self) -> Any:
        yield from self.values


def test_in_a_topology_they_count_as_errors_of_a_component() -> None:
    def topology(**config: Any) -> TopologyBuilder:
        b = TopologyBuilder("misbehaving")
        b.spout("values", Values("a", "dies", "b", "fails", "c"))
        b.bolt("odd", misbehaving(), **config).shuffle("values")
        b.bolt("out", out).all_to_one("odd")
        return b

    out = collect()
    with LocalCluster() as cluster:
        run = cluster.submit(topology()).wait(60)
        assert run.failed_tuples == 2 and out.rows == [("a",), ("b",), ("c",)]
        assert [e.kind for e in run.events if e.severity.value == "error"] == ["tuple-failed"] * 2
        with pytest.raises(ExecutionError, match="ended with exit code 3"):
            cluster.submit(topology(max_errors=0)).wait(60)


ENDS_BY_ITSELF = "import sys; sys.stdin.read(); sys.stderr.write('the end'); sys.exit(0)"
IGNORES_ITS_INPUT = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def made(code: str, tmp_path: Path) -> Child:
    return Child([sys.executable, "-c", code], {}, tmp_path, "test")


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_end_of_its_input_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = made(ENDS_BY_ITSELF, tmp_path)
    child.end(30.0)
    assert child._process.returncode == 0
    assert capsys.readouterr().err == "test: the end\n"
    child.end()


def test_one_that_ignores_it_is_killed(tmp_path: Path) -> None:
    child = made(IGNORES_ITS_INPUT, tmp_path)
    child.end(0.2)
    assert child._process.returncode == -9


def test_what_it_has_started_is_killed_with_it(tmp_path: Path) -> None:
    child = Child(["sh", "-c", "sleep 600 & echo $! >&2; wait"], {}, tmp_path, "test")
    until(child._errors.last.__len__)
    (number,) = child.last_lines()
    child.end(0.0)
    until(lambda: not Path(f"/proc/{number}").exists() or "Z" in Path(f"/proc/{number}/stat").read_text())


WRITES_ON = """
import os
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    while True:
        os.write(2, b"x\\n")
"""


def test_one_that_left_its_stderr_to_others_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a session of its own, and writes without an end."""
    monkeypatch.setattr(module, "_MOMENT", 0.05)
    child = made(WRITES_ON, tmp_path)
    until(lambda: not child.living)
    number = int(os.read(child._from, 100))
    try:
        child.end()
    finally:
        os.kill(number, 9)
    assert not child._errors._thread.is_alive()


def test_one_that_never_reads_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 1 << 20)
    child = made(IGNORES_ITS_INPUT, tmp_path)
    with pytest.raises(Lost, match="has not read for so long"):
        for _ in range(100):
            child.send(b"x" * (1 << 16))
    with pytest.raises(Silent):
        child.receive(time.monotonic() + 0.05)
    child.end(0.0)


def test_a_line_without_end_on_stderr_is_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = made("import sys, time; sys.stderr.write('x' * 1_000_000); time.sleep(600)", tmp_path)
    until(child.last_lines)
    child.end(0.0)
    assert max(map(len, child._errors.last)) <= module.LONGEST_LINE + 3
    assert len(capsys.readouterr().err) < 100_000


def test_messages_in_pieces_and_with_other_line_ends(tmp_path: Path) -> None:
    code = """
import sys, time
for part in ['{"a":', '\\n1}\\nen', 'd\\n{"b": 2}\\r\\nend\\r\\n{"c"', ': NaN}\\nend\\n']:
    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.05)
"""
    child = made(code, tmp_path)
    far = time.monotonic() + 30
    assert child.receive(far) == {"a": 1} and child.receive(far) == {"b": 2}
    assert list(child.receive(far)) == ["c"]
    with pytest.raises(Lost, match="ended with exit code 0"):
        child.receive(far)
    child.end()


KILLED = """
import os, sys, time
from pathlib import Path
from elastic.multilang.child import Child
child = Child([sys.executable, "-c", "import time; time.sleep(600)"], {}, Path("."), "test")
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_it_does_not_outlive_a_worker_that_is_killed(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", KILLED],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert worker.stdout is not None
    number = int(worker.stdout.readline())
    assert Path(f"/proc/{number}").exists()
    worker.kill()
    worker.wait()
    worker.stdout.close()
    until(lambda: not Path(f"/proc/{number}").exists() or "Z" in Path(f"/proc/{number}/stat").read_text())
