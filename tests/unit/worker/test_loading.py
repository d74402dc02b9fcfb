"""What record batches need is loaded before a worker takes part: whoever imports pyarrow, and with it pandas, stands still for a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import sys
from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.model.ids import Incarnation, NodeId, worker_id
from elastic.worker.executing.components import LocalComponents
from elastic.worker.worker import Worker

class Numbers(Spout):
    outputs = Fields(word=str, n=int)
    def {next}(self):
        return False

class Sums(Bolt):
    def {execute}(self, given):
        pass

class Listener:
    def __getattr__(self, name):
        return lambda *a: None

b = TopologyBuilder("loading")
b.spout("numbers", Numbers(), tasks=1)
b.bolt("sums", Sums(), tasks=5).fields("numbers", "word", "n")
topology = b.build()
id = worker_id(topology.name, NodeId("here"), 0)
Worker(topology.spec, id, Incarnation("a"), LocalComponents(topology), Listener())
before = set(sys.modules)
print("pyarrow" in before, "pandas" in before, "numpy" in before)
"""
BATCHES = """
import pyarrow as pa
from elastic.worker.tuples import vector
stream = topology.spec.components[0].outputs[0]
class Row:
    word, n = "a", 1
record = vector.from_rows([Row] * 9, stream)
given = [pa.array(["a", None, "b"]).dictionary_encode(), pa.array([1, None, 2], pa.int8())]
record = vector.check_record(pa.record_batch(given, names=["word", "n"]), stream)
for _, part in vector.partition(record, vector.key_groups(record, ["word", "n"]), 5):
    for piece in vector.parts(part):
        vector.to_rows(vector.from_ipc(vector.to_ipc(piece)), lambda *values: values)
print(sorted(m for m in set(sys.modules) - before if m.partition(".")[0] in ("pyarrow", "pandas", "numpy", "pyiceberg_core")))
"""


def said(script: str) -> list[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()


def test_a_worker_of_a_topology_with_record_batches_loads_nothing_of_it_when_the_first_one_comes() -> None:
    for names in (("next_batch", "execute"), ("next_tuple", "execute_batch")):
        script = RUN.format(next=names[0], execute=names[1]) + BATCHES
        assert said(script) == ["True True True", "[]"]


def test_a_worker_of_a_topology_without_them_does_not_load_it() -> None:
    assert said(RUN.format(next="next_tuple", execute="execute")) == ["False False False"]
