"""A cluster whose nodes are Spark's: on a standalone master as on several machines, and on this machine alone."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import psutil
import pytest
from families import family, left_of
from spark_standalone import standalone
from test_launcher_bind import BIND, listening, submit

from elastic.cluster.directory import is_log
from elastic.cluster.launcher import UpOptions, start_background, stop
from elastic.control.client import Client
from elastic.errors import NotFound

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_nodes_of_a_master_that_is_not_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their directories are among the temporary files of their machine, and gone afterwards; they listen where they should."""
    there, home = tmp_path / "there", tmp_path / "home"
    there.mkdir()
    with monkeypatch.context() as elsewhere:
        # Spark's machines have another place for them than the launcher's.
        elsewhere.setenv("TMPDIR", str(there))
        spark = standalone(tmp_path, workers=1, cores=2)
        cluster = spark.__enter__()
    told: list[str] = []
    try:
        options = UpOptions(
            cluster="c",
            home=str(home),
            host="spark",
            master=cluster.url,
            spark_conf=("spark.executorEnv.ELASTIC_TEST=told", "spark.executor.memory=600m"),
            bind=BIND,
            slots=1,
        )
        info = start_background(options, told.append)
        try:
            assert not [t for t in told if "warning" in t], "that master is on this machine"
            with Client(info.nimbus[0]) as client:
                nodes = client.nodes()
            assert {(n.kind, n.host) for n in nodes} == {("spark", BIND)} and len(nodes) == 2
            for node in nodes:
                assert set(listening(node.pid)) == {BIND}
                assert psutil.Process(node.pid).environ()["ELASTIC_TEST"] == "told"
            own = sorted(p.name for p in there.glob("elastic-*"))
            (launcher,) = {name.rpartition("-node-")[0] for name in own}
            assert own == [f"{launcher}-node-{n}" for n in (1, 2)]
            assert launcher.startswith(f"elastic-c-{info.pid}-"), "and more: in containers numbers come again"
            text, output = tmp_path / "text.txt", tmp_path / "counts.tsv"
            text.write_text("to be or not to be\n" * 500)
            words = ["--input", str(text), "--output", str(output), "--workers", "2"]
            done = submit(home, "--wait", str(ROOT / "examples" / "word_count.py"), *words)
            assert done.returncode == 0, done.stderr
            assert output.read_text() == "be\t1000\nnot\t500\nor\t500\nto\t1000\n"
        finally:
            stop(home, "c")
        assert list(there.glob("elastic-*")) == []
        assert list(Path(tempfile.gettempdir()).glob(f"elastic-c-{info.pid}-*")) == []
    finally:
        spark.__exit__(None, None, None)


def test_down_removes_the_files_of_a_spark_whose_launcher_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('not meant for elastic, nor for Spark')\n")
    monkeypatch.chdir(tmp_path)  # modules of the folder where it is started are none of its business
    info = start_background(
        UpOptions(cluster="c", home=str(tmp_path), host="spark", nodes=1, slots=1), lambda _: None
    )
    scratch = tmp_path / "c" / "spark"
    try:
        assert any(scratch.rglob("*")), "Spark's temporary files are there"
        started = family(info.pid)
        os.kill(info.pid, signal.SIGKILL)
        assert not left_of(started, SECONDS)
        assert scratch.exists(), "nobody was left to remove them"
    finally:
        with pytest.raises(NotFound):
            stop(tmp_path, "c")
    (tmp_path / "queue.py").unlink()
    assert not scratch.exists()
    assert [p for p in tmp_path.rglob("*") if p.is_file() and not is_log(p.name)] == []
