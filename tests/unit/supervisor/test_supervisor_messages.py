"""What a worker has said reaches whoever listens, also beside something that cannot be passed on."""

from __future__ import annotations

import functools
import tempfile
import threading
from pathlib import Path

from elastic.model.events import Event
from elastic.model.ids import Incarnation, TopologyName, WorkerId
from elastic.model.load import WorkerReport
from elastic.reporting.codec import EVENT
from elastic.supervisor.ports import WorkerExit, WorkerLaunch
from elastic.supervisor.worker_process import ProcessLauncher
from elastic.transport.addresses import unix_path

W = WorkerId("t@n/0")
PROGRAM = """
import os, sys
from elastic.model.events import Event
from elastic.supervisor.messages import encode
events = Event(1.0, "first", ""), Event(1.0, "odd-id", "", details={"id": 2**63}), Event(1.0, "executor-failed", "")
os.write(int(sys.argv[sys.argv.index("--report-fd") + 1]), b"".join(map(encode, events)))
"""


class Listener:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.malformed: list[str] = []
        self.ended = threading.Event()

    def on_event(self, incarnation: Incarnation, event: Event) -> None:
        EVENT.encode(event)  # as the line to Nimbus does
        self.events.append(event.kind)

    def on_report(self, incarnation: Incarnation, report: WorkerReport) -> None: ...

    def on_stacks(self, incarnation: Incarnation, text: str) -> None: ...

    def on_malformed(self, incarnation: Incarnation, what: str) -> None:
        self.malformed.append(what)

    def on_exit(self, incarnation: Incarnation, exit: WorkerExit) -> None:
        self.ended.set()


def test_one_that_cannot_be_passed_on_does_not_cost_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    launcher = ProcessLauncher(
        zookeeper="none", store=tmp_path, run_dir=tmp_path, program=(str(tmp_path / "program.py"),)
    )
    listener, log = Listener(), tmp_path / "worker.log"
    launcher.start(WorkerLaunch(TopologyName("t"), W, Incarnation(f"{W}#1"), tmp_path, log), listener)
    assert listener.ended.wait(30)
    launcher.close()
    assert listener.events == ["first", "executor-failed"], log.read_text()
    assert [what.startswith("it cannot be passed on: ") for what in listener.malformed] == [True]


KILLED = """
import os, signal, sys
from pathlib import Path
from elastic.transport.addresses import listen_unix, unix_path
path = unix_path(Path(sys.argv[sys.argv.index("--run-dir") + 1]), sys.argv[sys.argv.index("--incarnation") + 1])
listener = listen_unix(path)
print(path.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_worker_that_was_killed_no_socket_is_left(tmp_path: Path) -> None:
    """Each life has another: a cluster whose workers crash for weeks would fill its directory."""
    run = Path(tempfile.mkdtemp())  # short
    (tmp_path / "program.py").write_text(KILLED)
    launcher = ProcessLauncher(
        zookeeper="none",
        store=tmp_path,
        run_dir=run,
        program=(str(tmp_path / "program.py"),),
        socket=functools.partial(unix_path, run),
    )
    listener, log = Listener(), tmp_path / "worker.log"
    launcher.start(WorkerLaunch(TopologyName("t"), W, Incarnation(f"{W}#1"), tmp_path, log), listener)
    assert listener.ended.wait(30)
    launcher.close()
    assert ".sock" in log.read_text()
    run.rmdir()
