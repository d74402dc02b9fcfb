"""Every example, by `elastic run` and by `elastic submit --wait`, against the same computed by standard tools or a plain loop."""

from __future__ import annotations

import contextlib
import os
import pydoc_data.topics
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DATA = ROOT.parent / "shared" / "data"
LIMIT = 90.0
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="GNU tools, and a cluster"),
    pytest.mark.skipif(shutil.which("awk") is None, reason="compares with awk"),
]

Expected = Callable[[Path], str]


def shell(command: str, *files: Path) -> str:
    """What a shell command prints; the files are its $1, $2, ..."""
    done = subprocess.run(
        ["sh", "-c", command, "sh", *map(str, files)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    return done.stdout


def rows(counts: Counter[tuple[str, ...]]) -> str:
    return "".join(sorted("\t".join((*key, str(n))) + "\n" for key, n in counts.items()))


def words(text: Path) -> str:
    return shell(
        "tr -s '[:space:]' '\\n' < $1 | grep . | sort | uniq -c | awk '{ print $2 \"\\t\" $1 }' | sort", text
    )


def strings(text: Path) -> str:
    return shell(
        """awk '{ sub(/\\r+$/, ""); bytes += length } END { print "bytes\\t" bytes; print "tuples\\t" NR }' $1""",
        text,
    )


def newest(text: Path) -> str:
    return shell("tail -n 100 $1 | tr -d '\\r' | sed 's/\\t/\\\\t/g' | sort", text)


def windows(text: Path, example: str = "word_windows.py") -> str:
    """The awk program in the example's own description."""
    described = (EXAMPLES / example).read_text()
    (program,) = re.findall(r"LC_ALL=C awk '(.*?)' \|", described, re.DOTALL)
    return shell(f"tr -d '\\r' < $1 | awk '{program}' | sort", text)


def shares(text: Path) -> str:
    """Likewise."""
    return windows(text, "flow_words.py")


def kinds(text: Path) -> str:
    """The awk program in the example's own description."""
    rules = text.with_name("rules.tsv")
    asked = elastic("run", "log_stream.py", "--show-rules")
    rules.write_text(asked.stdout)
    described = (EXAMPLES / "log_stream.py").read_text()
    (program,) = re.findall(r"LC_ALL=C awk -F '\\t' '(.*?)' rules.tsv", described, re.DOTALL)
    return shell(f"awk -F '\\t' '{program}' $1 $2 | sort", rules, text)


def index(text: Path) -> str:
    """By a plain loop; each line's rule by the built-in ones."""
    rules = [line.split("\t") for line in elastic("run", "log_stream.py", "--show-rules").stdout.splitlines()]
    counts: Counter[tuple[str, ...]] = Counter()
    for line in text.read_bytes().decode("utf-8", "replace").split("\n"):
        rule = next(name for _, name, pattern in rules if re.search(pattern, line, re.ASCII | re.IGNORECASE))
        counts.update((rule, term) for term in {t.lower() for t in re.findall("[A-Za-z]{3,}", line)})
    return rows(counts)


PATTERNS = ("--phase", "2", "--rate", "100")


def patterns(text: Path, *given: str) -> str:
    """By the reference, which has nothing of elastic."""
    program = [sys.executable, str(EXAMPLES / "frequent_patterns_reference.py"), "--input", str(text)]
    return subprocess.run([*program, *(given or PATTERNS)], capture_output=True, text=True, check=True).stdout


def elastic(
    command: str, example: str, *words: str, home: Path | None = None
) -> subprocess.CompletedProcess[str]:
    given = [command, *(["--wait"] if command == "submit" else []), str(EXAMPLES / example), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | ({"ELASTIC_HOME": str(home)} if home else {})
    return subprocess.run(
        [sys.executable, "-m", "elastic.control.cli", *given],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment,
    )


@dataclass(frozen=True)
class Example:
    file: str
    text: str
    expected: dict[str, Expected]
    """Option that names a file -> what is to stand in it."""
    more: tuple[str, ...] = ()

    def check(self, text: Path, command: str, *words: str, home: Path | None = None) -> None:
        results = {option: text.with_name(f"{option}.tsv") for option in self.expected}
        given = [part for option, path in results.items() for part in (f"--{option}", str(path))]
        done = elastic(command, self.file, "--input", str(text), *given, *self.more, *words, home=home)
        assert done.returncode == 0, done.stderr
        for option, path in results.items():
            assert path.read_text() == self.expected[option](text), option


CASES = [
    Example("word_count.py", "alice.txt", {"output": words}),
    Example("throughput_test.py", "alice.txt", {"output": strings}),
    Example("rolling_sort.py", "alice.txt", {"output": newest}),
    Example("word_windows.py", "alice.txt", {"output": windows}),
    Example("frequent_patterns.py", "alice.txt", {"output": patterns}, (*PATTERNS, "--flat-out")),
    *(
        Example("log_stream.py", f"{log}.log", {"output": kinds, "index": index})
        for log in ("apache", "hdfs", "openssh", "zookeeper")
    ),
    Example("flow_words.py", "alice.txt", {"output": shares}),
    Example("multilang.py", "alice.txt", {"output": words}),
]


def take(name: str, into: Path) -> Path:
    """A text: the one of that name, or Python's help topics where it is not there."""
    text = DATA / name
    target = into / "text"
    target.write_bytes((text if text.is_file() else Path(pydoc_data.topics.__file__)).read_bytes())
    return target


@pytest.mark.parametrize("example", CASES, ids=lambda e: f"{e.file}-{e.text}")
def test_run(example: Example, tmp_path: Path) -> None:
    example.check(take(example.text, tmp_path), "run", "--executors", "2")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_run_with_node(tmp_path: Path) -> None:
    example = Example("multilang.py", "alice.txt", {"output": words}, ("--language", "node"))
    example.check(take("alice.txt", tmp_path), "run", "--executors", "2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from elastic.cluster.launcher import UpOptions, start_background, stop

    home = tmp_path_factory.mktemp("up")
    start_background(UpOptions(home=str(home), nodes=2, slots=2), lambda _: None)
    yield home
    stop(home, "default", purge=True)


@pytest.mark.parametrize("example", CASES[:6], ids=lambda e: f"{e.file}-{e.text}")
def test_submit(example: Example, tmp_path: Path, cluster: Path) -> None:
    example.check(take(example.text, tmp_path), "submit", "--workers", "2", "--executors", "2", home=cluster)


def moved(
    cluster: Path,
    scratch: Path,
    file: str,
    given: Sequence[str],
    resized: dict[str, int],
    *,
    together: bool = False,
) -> None:
    """Run an example on two workers; meanwhile all its components go to the other one, one by one or at once, and some are resized."""
    from elastic.api.bundle import build_bundle
    from elastic.cluster.directory import read_cluster
    from elastic.control.cli.loading import load
    from elastic.control.client import Client

    name = f"moved-{Path(file).stem}"
    loaded = load(str(EXAMPLES / file), [*given, "--name", name, "--workers", "2"])
    bundle = build_bundle(loaded.topology, loaded.entry, scratch / "bundle.zip")
    with Client(read_cluster(cluster, "default").nimbus) as client:
        client.submit(loaded.topology.spec, bundle.path, requires=bundle.requires)
        events = (e for _, e in client.events(topology=name, follow=True))
        for _ in range(2):
            assert any(e.kind == "worker-started" for e in events)
        # What no process runs yet is placed elsewhere without a move: this waits until all have begun.
        client.rebalance(name, workers=2, wait=LIMIT)
        places: dict[str, set[str]] = {}
        for e in client.describe(name).executors:
            places.setdefault(str(e.component), set()).add(e.worker)
        one, other = sorted(set().union(*places.values()))
        wanted: dict[str, list[str]] = {}
        for component in (str(c.id) for c in loaded.topology.spec.components if c.stateful):
            wanted.setdefault(other if one in places[component] else one, []).append(component)
        for where, components in wanted.items():
            for what in [",".join(components)] if together else components:
                client.move(name, what, where, wait=LIMIT)
        client.rebalance(name, executors=resized, wait=LIMIT)
        # What a move came to is told when workers have said what they measured of it.
        newest: dict[int, str] = {}
        with contextlib.closing(client.follow_moves(name)) as stream:  # type: ignore[type-var]
            for views in stream:
                newest.update((v.epoch, v.state) for v in views)
                if newest and set(newest.values()) == {"ended"}:
                    break
        moves = client.describe(name).moved
        assert moves.committed >= 8 and not moves.rolled_back and not moves.lost
        assert any(e.kind == "topology-finished" for e in events)


def test_patterns_are_the_same_after_tasks_have_moved(tmp_path: Path, cluster: Path) -> None:
    """In their own time, through the five phases: the input and others go to another worker, and the detector is resized."""
    text, out = take("alice.txt", tmp_path), tmp_path / "out.tsv"
    given = ["--input", str(text), "--phase", "3", "--output", str(out)]
    moved(cluster, tmp_path, "frequent_patterns.py", given, {"detector": 6})
    assert out.read_text() == patterns(text, "--phase", "3")


def test_windows_are_the_same_after_tasks_have_moved(tmp_path: Path, cluster: Path) -> None:
    """The spout and open windows go to another worker, and those who split lines are twice as many."""
    text, out = take("alice.txt", tmp_path), tmp_path / "out.tsv"
    text.write_bytes(b"".join(text.read_bytes().splitlines(keepends=True)[:2000]))
    given = ["--input", str(text), "--rate", "150", "--output", str(out)]
    moved(cluster, tmp_path, "word_windows.py", given, {"split": 2, "count": 4})
    assert out.read_text() == windows(text)


def test_a_flow_gives_the_same_after_tasks_have_moved(tmp_path: Path, cluster: Path) -> None:
    """Its source, open windows and what waits to be joined go to another worker, and words are counted by twice as many executors."""
    text, out = take("alice.txt", tmp_path), tmp_path / "out.tsv"
    text.write_bytes(b"".join(text.read_bytes().splitlines(keepends=True)[:1500]))
    given = ["--input", str(text), "--rate", "100", "--output", str(out)]
    moved(cluster, tmp_path, "flow_words.py", given, {"count": 4, "join": 2}, together=True)
    assert out.read_text() == shares(text)


def test_the_comparison_finds_a_difference(tmp_path: Path) -> None:
    """A planted fault: a word more in the text than was counted."""
    text = take("alice.txt", tmp_path)
    CASES[0].check(text, "run")
    text.write_bytes(text.read_bytes() + b"\nAlice\n")
    assert (tmp_path / "output.tsv").read_text() != words(text)


def test_the_default_is_the_text_of_pythons_help(tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    assert elastic("run", "word_count.py", "--output", str(out)).returncode == 0
    words = Path(pydoc_data.topics.__file__).read_text().split()
    assert out.read_text() == rows(Counter((w,) for w in words))


def test_a_folder_at_a_rate(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for n in range(3):
        (folder / f"{n}.txt").write_text(f"line of {n}\n" * 50)
    out = tmp_path / "out.tsv"
    done = elastic(
        "run", "word_count.py", "--input", str(folder), "--rate", "300", "--once", "--output", str(out)
    )
    assert done.returncode == 0, done.stderr
    assert out.read_text() == "0\t50\n1\t50\n2\t50\nline\t150\nof\t150\n"


def test_made_up_strings_and_messages(tmp_path: Path) -> None:
    out = tmp_path / "out.tsv"
    given = ("--count", "500", "--output", str(out))
    assert elastic("run", "throughput_test.py", *given, "--size", "777").returncode == 0
    assert out.read_text() == f"bytes\t{500 * 777}\ntuples\t500\n"
    assert elastic("run", "rolling_sort.py", *given, "--tick", "0.01").returncode == 0
    first = out.read_text()
    assert re.fullmatch("([0-8]{100}\n){100}", first) and first.splitlines() == sorted(first.splitlines())
    assert elastic("run", "rolling_sort.py", *given, "--executors", "3").returncode == 0
    assert out.read_text() == first, "however many tasks sort"


def test_own_rules(tmp_path: Path) -> None:
    rules, text, out = (tmp_path / name for name in ("rules.tsv", "text", "out.tsv"))
    rules.write_text("high\tfire\tfire|smoke\nlow\trest\t\n")
    text.write_text("a fire\nwater\nSMOKE\nfire\n")
    given = ("--input", str(text), "--output", str(out), "--rules", str(rules))
    assert elastic("run", "log_stream.py", *given).returncode == 0
    assert out.read_text() == "high\tfire\t3\nlow\trest\t1\n"
    rules.write_text("high fire\n")
    wrong = elastic("run", "log_stream.py", *given)
    assert wrong.returncode == 2 and "Line 1 of the rules" in wrong.stderr


def test_the_smallest_word_count(tmp_path: Path) -> None:
    text = take("alice.txt", tmp_path)
    text.rename(tmp_path / "a.txt")
    done = subprocess.run(
        [sys.executable, "-m", "elastic.control.cli", "run", str(EXAMPLES / "smallest.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "counts.tsv").read_text() == words(tmp_path / "a.txt")


def test_undecodable_input_is_a_warning_to_whoever_runs_it(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"good line\nbad \xff line\nworse \xfe\xfe\n")
    done = elastic("run", "word_count.py", "--input", str(text))
    assert done.returncode == 0
    assert "the line at byte 10 is not UTF-8" in done.stderr and "2 lines of the input" in done.stderr


def test_undecodable_input_is_a_warning_to_whoever_waits_for_it(tmp_path: Path, cluster: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"good line\nbad \xff line\nworse \xfe\xfe\n")
    done = elastic("submit", "word_count.py", "--input", str(text), "--name", "undecodable", home=cluster)
    assert done.returncode == 0
    assert "the line at byte 10 is not UTF-8" in done.stderr and "2 lines of the input" in done.stderr
