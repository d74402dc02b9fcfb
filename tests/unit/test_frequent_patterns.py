"""Frequent pattern detection against its reference, in one process; and the reference against what can be counted by hand."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from elastic import LocalCluster, Topology
from elastic.control.cli.loading import load
from elastic.errors import ConfigError
from elastic.testing import BoltTester, SpoutTester
from examples import frequent_patterns_reference as reference

EXAMPLE = Path(__file__).parents[2] / "examples" / "frequent_patterns.py"
SHORT = ("--phase", "2", "--rate", "60")


def example(*words: str) -> Topology:
    return load(str(EXAMPLE), words).topology


def module() -> Any:
    example()
    return sys.modules["frequent_patterns"]


@pytest.fixture
def baskets(tmp_path: Path) -> Path:
    """Transactions whose items come and go, so that patterns become frequent and cease to be."""
    path = tmp_path / "baskets.txt"
    rows = (f"{n % 7} {n % 11} {n // 100 % 5} {n * n % 13} {n // 40 % 3}" for n in range(3000))
    path.write_text("".join(row + "\n" for row in rows) + "\n \r\nlast line has no end")
    return path


def rows(path: Path) -> list[str]:
    return path.read_text().splitlines()


def expected(*words: str) -> list[str]:
    return sorted("\t".join(map(str, row)) for row in reference.detect(reference.parse(words)))


def test_it_finds_what_the_reference_finds_while_it_is_regrouped(baskets: Path, tmp_path: Path) -> None:
    out, measured = tmp_path / "out.tsv", tmp_path / "latency"
    given = ("--input", str(baskets), "--rate", "300", "--phase", "0.5", "--more-than", "10")
    with LocalCluster() as cluster:
        run = cluster.submit(example(*given, "--output", str(out), "--latency", str(measured)))
        for executors in (5, 20, 3):  # whenever it is in its work
            run.rebalance(detector=executors, generator=1 + executors % 2)
        run.wait(timeout=60)
        assert not run.failed_tuples
    wanted = expected(*given)
    assert rows(out) == wanted and len(wanted) > 50
    panes = [json.loads(line) for line in measured.read_text().splitlines()]
    assert [p["pane"] for p in panes] == list(range(120)), "24 panes in a phase"
    patterns = sum(count for p in panes for _, count in p["latencies"])
    arrivals = zip(reference.times(300, 0.5, 0), reference.lines(baskets), strict=False)
    assert patterns == sum(len(reference.patterns(line, 6, 3)) for _, line in arrivals)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--seed", "7"),
        ("--items", "2", "--length", "1", "--more-than", "0"),
        ("--window", "9", "--panes", "2"),
        ("--window", "0.1", "--panes", "1", "--more-than", "5"),
        ("--rate", "0.2", "--more-than", "0"),
    ],
    ids=" ".join,
)
def test_flat_out_it_finds_the_same(more: tuple[str, ...], baskets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    given = ("--input", str(baskets), *SHORT, *more)
    with LocalCluster() as cluster:
        cluster.submit(example(*given, "--flat-out", "--executors", "3", "--output", str(out))).wait(
            timeout=60
        )
    assert rows(out) == expected(*given)


def test_a_transaction_that_is_not_counted_is_found(baskets: Path, tmp_path: Path, capsys: Any) -> None:
    """A planted fault: the detector forgets a single occurrence of a pattern."""
    out = tmp_path / "out.tsv"
    given = ("--input", str(baskets), *SHORT)
    topology = example(*given, "--flat-out", "--output", str(out))
    kind = type(topology.components["detector"])

    class Forgetful(kind):  # type: ignore[misc,valid-type]
        def execute(self, tup: Any) -> None:
            if getattr(tup, "pattern", "") == "0" and tup.pane == 70 and not self.reached["forgotten"]:
                self.reached["forgotten"] = 1
            else:
                super().execute(tup)

    topology.components["detector"].__class__ = Forgetful
    with LocalCluster() as cluster:
        cluster.submit(topology).wait(timeout=60)
    assert reference.main([*given, "--compare", str(out)]) == 1
    assert "1 lines lack, 1 are wrong" in capsys.readouterr().out
    out.write_text("".join(row + "\n" for row in expected(*given)))
    assert reference.main([*given, "--compare", str(out)]) == 0
    assert "Equal: " in capsys.readouterr().out
    out.write_text("".join(row + "\n" for row in expected(*given) * 2))
    assert reference.main([*given, "--compare", str(out)]) == 1, "each line once"


def test_what_is_computed_about_each_occurrence_changes_nothing(baskets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    given = ("--input", str(baskets), "--phase", "0.2")
    began = time.process_time()
    with LocalCluster() as cluster:
        more = ("--compute", "0.001", "--measure", "0.5", "--flat-out", "--output", str(out))
        made = example(*given, *more)
        assert made.spec.config["report_interval"] == 0.5
        done = cluster.submit(made).wait(timeout=60).metrics()["detector"]["executed"]
    assert rows(out) == expected(*given)
    arrivals = zip(reference.times(120, 0.2, 0), reference.lines(baskets), strict=False)
    patterns = sum(len(reference.patterns(line, 6, 3)) for _, line in arrivals)
    assert done > patterns and time.process_time() - began >= 0.001 * patterns


def test_what_a_service_is_asked_about(baskets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    given = ("--input", str(baskets), "--phase", "0.4")
    program = [
        sys.executable,
        str(EXAMPLE.with_name("pattern_service.py")),
        "--delay",
        "0",
        "--ignore",
        "3,5",
    ]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdin is not None and service.stdout is not None
        asked = ("--flat-out", "--ask", service.stdout.readline().strip(), "--executors", "4")
        with LocalCluster() as cluster:
            cluster.submit(example(*given, *asked, "--output", str(out))).wait(timeout=60)
        service.stdin.close()
        assert service.wait(30) == 0, "it ends with its input"
    assert rows(out) == expected(*given, "--ignore", "3,5")
    assert 0 < len(rows(out)) < len(expected(*given))


def test_the_reference_by_hand(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("b a b c\n")
    given = reference.parse(["--input", str(text), "--phase", "1", "--rate", "30", "--items", "2"])
    count = [sum(1 for t in reference.times(30, 1, 0) if low <= t < low + 1) for low in range(5)]
    assert count[0] < count[1] < count[2] > count[3] > count[4], "the five phases"
    found = list(reference.detect(given))
    times = list(reference.times(30, 1, 0))
    ends = [(n + 1) / 24 for n in range(120)]
    inside = [sum(1 for t in times if end - 1 / 3 <= t < end) for end in ends]
    assert {row[0] for row in found} == {"a", "b", "a b"}
    spans = {row[1:] for row in found}
    for first, last, most, total in spans:
        assert all(inside[n] > 20 for n in range(first, last + 1)) and max(inside[first : last + 1]) == most
        assert first == 0 or inside[first - 1] <= 20
        assert total == sum(first / 24 <= t < (last + 1) / 24 for t in times)
    assert sum(last - first + 1 for first, last, *_ in spans) == sum(n > 20 for n in inside)


def test_the_input_goes_on_anywhere_as_if_it_had_stayed(baskets: Path) -> None:
    spout: Any = example("--input", str(baskets), *SHORT, "--flat-out").components["input"]
    whole = SpoutTester(spout).run(100_000)
    for cut in (0, 1, 37, 500):
        before = SpoutTester(spout)
        first = before.run(cut)
        after = SpoutTester(spout)
        after.component.set_state(pickle.loads(pickle.dumps(before.component.get_state())))  # type: ignore[attr-defined]
        both = [*first, *after.run(100_000)]
        assert [t[:-1] for t in both] == [t[:-1] for t in whole], "all but the clock on the wall"
    wanted = list(zip(reference.times(60, 2, 0), reference.lines(baskets), strict=False))
    assert [t[0] for t in whole.streams["default"]] == [line for _, line in wanted]
    assert [t[0] for t in whole.streams["over"]] == list(range(120))


def test_the_input_waits_for_what_is_due_and_says_what_it_is_offered(baskets: Path) -> None:
    tester = SpoutTester(
        example("--input", str(baskets), "--rate", "120", "--phase", "100").components["input"]
    )
    spout: Any = tester.component
    ends = 2 / spout.length
    assert dict(tester.metrics)["offered"] == 120 + ends and dict(tester.metrics)["late"] == 0
    wait = spout.next_tuple()
    assert 0 < wait <= spout.next and not tester.take()
    spout.began = time.time() - 250
    for _ in range(300):
        assert spout.next_tuple() is None
    assert 245 < tester.metrics["late"] < 260
    assert tester.metrics["offered"] == 900 + ends
    spout.began -= 260
    assert tester.metrics["offered"] == 0
    emitted = tester.take().streams["default"]
    due = [d - spout.began - 260 for *_, d in emitted]
    assert due == pytest.approx(list(islice(reference.times(120, 100, 0), len(due))), abs=1e-5)


def test_the_phases_again_and_again(baskets: Path) -> None:
    spout: Any = example("--input", str(baskets), "--loop", "--phase", "1").components["input"]
    assert [spout.schedule.rate(n + 0.5) for n in range(7)] == [120, 350, 900, 250, 120, 120, 350]


def test_the_reporter_says_how_late_the_slowest_are() -> None:
    frequent_patterns = module()
    counts = [0] * (len(frequent_patterns.BOUNDS) + 1)
    assert frequent_patterns.quantile(counts, 0.95) == 0.0
    counts[0], counts[4] = 95, 5
    assert frequent_patterns.quantile(counts, 0.95) == 0.001
    counts[4] += 1
    assert frequent_patterns.quantile(counts, 0.95) == pytest.approx(0.002)
    counts[-1] = 1000
    assert frequent_patterns.quantile(counts, 0.95) == frequent_patterns.BOUNDS[-1]


def test_patterns_are_sets_of_the_first_different_words() -> None:
    tester = BoltTester(module().Generator(3, 2))
    made = tester.execute(line="b a b\tc d", pane=4, due=1.0)
    assert made == [(p, 4, 1.0) for p in ("a", "b", "c", "a b", "a c", "b c")]
    assert tester.execute(line="", pane=4, due=1.0) == []
    assert tester.execute(pane=4, due=1.0, stream="over").streams == {"over": [(4, 1.0)]}


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    with pytest.raises(ConfigError, match="is empty"):
        example("--input", str(empty))
    with pytest.raises(ConfigError, match="--rate is 0"):
        example("--rate", "0")
