"""The supervisor between coordination and pretended workers: what it starts, stops and says, and when it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from supervisor_harness import NODE, Bench, T, W, bundle, until

from elastic.coordination import paths
from elastic.errors import NotFound, Refused, Superseded
from elastic.model import codec
from elastic.model.assignment import NodeInfo
from elastic.model.events import Severity
from elastic.model.ids import WorkerId
from elastic.model.records import Held, Progress, TopologyStatus
from elastic.nodestore import keys
from elastic.nodestore import memory as memory_store
from elastic.supervisor.memory import MemoryLauncher
from elastic.supervisor.ports import CANNOT_LOAD
from elastic.supervisor.supervisor import Supervisor


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_an_assignment_becomes_an_allocation_and_a_worker(bench: Bench) -> None:
    bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    allocation = bench.allocation()
    assert allocation.executors == (("bolt", 1, 2), ("bolt", 3, 4))
    assert allocation.places == ((1, 2, W), (3, 4, W))
    assert (allocation.epoch, allocation.status) == (1, TopologyStatus.ACTIVE)
    assert worker.launch.incarnation == f"{W}#1"
    assert (worker.launch.bundle / "behaviour").exists()
    assert worker.launch.log == bench.directory / "workers" / "t" / "0" / "worker.log"


def test_changes_are_written_and_told_to_the_same_process(bench: Bench) -> None:
    bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    before = bench.allocation().version
    bench.world.register(worker.launch.incarnation)
    bench.world.assign((1, 4))
    bench.wait(lambda: bench.allocation().executors == (("bolt", 1, 4),) and bool(bench.allocation().peers))
    assert [p.incarnation for p in bench.allocation().peers] == [worker.launch.incarnation]
    bench.world.set_state(TopologyStatus.INACTIVE, bench.sha)
    bench.wait(lambda: bench.allocation().status is TopologyStatus.INACTIVE)
    # It is told once that is written.
    bench.wait(lambda: worker.told == list(range(before + 1, bench.allocation().version + 1)))
    assert len(bench.launcher.started) == 1


def test_a_dead_worker_is_unregistered_and_started_again(bench: Bench) -> None:
    bench.start()
    bench.run_topology()
    first = bench.launcher.wait_for(W)
    bench.world.register(first.launch.incarnation)
    first.end(-signal.SIGSEGV, "Segmentation fault")
    second = bench.launcher.wait_for(W, 2)
    assert second.launch.incarnation == f"{W}#2"
    assert bench.world.registered() == ""  # before the new life began
    restarted = bench.reporter.wait_for("worker-restarted")
    assert restarted.details["incarnation"] == f"{W}#2"
    kinds = [k for k in bench.reporter.kinds() if k.startswith("worker-")]
    assert kinds == ["worker-started", "worker-lost", "worker-restarted"]
    lost = bench.reporter.wait_for("worker-lost")
    assert lost.details["signal"] == "SIGSEGV"
    assert lost.details["tail"] == "Segmentation fault"


def test_somebody_elses_registration_is_left_alone(bench: Bench) -> None:
    bench.start()
    bench.run_topology()
    first = bench.launcher.wait_for(W)
    bench.world.register(f"{W}#77")
    first.end(1)
    lost = bench.reporter.wait_for("worker-lost")
    assert lost.details["exit_code"] == 1
    assert bench.world.registered() == f"{W}#77"
    bench.world.coordination.delete(paths.worker(T, W))
    assert bench.launcher.wait_for(W, 2).launch.incarnation == f"{W}#2"


def test_a_worker_that_keeps_dying_is_started_with_growing_pauses(bench: Bench) -> None:
    bench.start(restart_pauses=(0.0, 0.01, 0.02))
    bench.run_topology()
    for life in range(1, 6):
        bench.launcher.wait_for(W, life).end(7)
    said = [bench.reporter.wait_for("worker-lost", n) for n in range(1, 6)]
    assert [e.details["failures"] for e in said] == [1, 2, 3, 4, 5]
    assert ["at once" in e.message for e in said] == [True, False, False, False, False]


def test_a_worker_without_executors_is_dismissed_and_may_be_recalled(bench: Bench) -> None:
    bench.start(kill_delay=600.0)
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.world.assign()
    bench.wait(lambda: not bench.allocation().executors)
    assert bench.allocation().places == ((1, 4, WorkerId("t@elsewhere/0")),)  # where to forward to
    bench.world.assign((1, 4))
    bench.wait(lambda: bool(bench.allocation().executors))
    assert not worker.ended and not worker.signals
    bench.world.assign()
    bench.wait(lambda: not bench.allocation().executors)
    worker.end(0)
    bench.reporter.wait_for("worker-stopped")
    assert bench.launcher.started == [worker]


def test_a_dismissed_worker_is_stopped_after_the_delay(bench: Bench) -> None:
    bench.start(kill_delay=0.0)
    bench.world.submit(bench.sha)
    spec = codec.decode(bench.world.coordination.get(paths.spec(T)).data, dict)  # type: ignore[union-attr]
    spec["config"]["kill_delay"] = 0.0
    bench.world.coordination.put(paths.spec(T), codec.encode(spec))
    bench.world.set_state(TopologyStatus.ACTIVE, bench.sha, "t-2")
    bench.world.assign((1, 4))
    worker = bench.launcher.wait_for(W)
    bench.world.assign()
    bench.reporter.wait_for("worker-stopped")
    assert worker.signals == [signal.SIGTERM]


@pytest.mark.parametrize("status", [TopologyStatus.KILLED, TopologyStatus.FINISHED, TopologyStatus.FAILED])
def test_the_end_of_a_topology_stops_its_workers_and_cleans_up(bench: Bench, status: TopologyStatus) -> None:
    bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    unpacked = worker.launch.bundle
    bench.world.set_state(status, bench.sha)
    bench.reporter.wait_for("worker-stopped")
    assert worker.signals == [signal.SIGTERM]
    bench.wait(lambda: keys.allocation(W) not in bench.store.keys())  # noqa: SIM118
    bench.wait(lambda: not unpacked.exists() and not unpacked.with_suffix(".zip").exists())


def test_a_removed_topology_is_stopped_and_a_new_one_of_its_name_is_another(bench: Bench) -> None:
    bench.start()
    bench.run_topology()
    first = bench.launcher.wait_for(W)
    bench.world.coordination.delete(paths.topology(T), recursive=True)
    other = bench.reporter.add_bundle(bundle("another"))
    bench.world.submit(other, "t-2")
    bench.world.assign((1, 1))
    second = bench.launcher.wait_for(W, 2)
    assert first.ended
    assert (second.launch.bundle / "behaviour").read_text() == "another"
    assert bench.allocation().executors == (("bolt", 1, 1),)
    assert "worker-lost" not in bench.reporter.kinds()


def test_a_worker_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    bench.launcher.obedient = False
    bench.start(grace=0.0)
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.world.set_state(TopologyStatus.KILLED, bench.sha)
    bench.reporter.wait_for("worker-stopped")
    assert worker.signals == [signal.SIGTERM, signal.SIGUSR1, signal.SIGKILL]
    assert "traceback" not in bench.reporter.wait_for("worker-killed").details


def test_what_a_worker_that_does_not_end_was_at_is_told(bench: Bench) -> None:
    bench.launcher.obedient = False
    started = bench.start(grace=1.5)
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.world.set_state(TopologyStatus.KILLED, bench.sha)
    bench.wait(lambda: worker.signals == [signal.SIGTERM, signal.SIGUSR1])
    started.on_stacks(worker.launch.incarnation, "waits for somebody")
    assert bench.reporter.wait_for("worker-killed").details["traceback"] == "waits for somebody"
    bench.reporter.wait_for("worker-stopped")


def test_a_worker_that_never_registers_is_started_again(bench: Bench) -> None:
    bench.start(start_timeout=0.05)
    bench.run_topology()
    first = bench.launcher.wait_for(W)
    second = bench.launcher.wait_for(W, 2)
    bench.world.register(second.launch.incarnation)
    assert first.signals == [signal.SIGKILL]
    assert "not registered" in bench.reporter.wait_for("worker-killed").message


def test_an_unloadable_bundle_fails_the_topology(bench: Bench) -> None:
    bench.start()
    bench.run_topology()
    done = Progress(f"{W}#1", 1, held=(Held(f"{W}#1", 7, (1,)),), finished=(2,), drained=3)  # type: ignore[arg-type]
    bench.world.coordination.put(paths.worker_progress(T, W), codec.encode(done))
    bench.launcher.wait_for(W).end(
        CANNOT_LOAD, "Traceback\n  ...\nModuleNotFoundError: No module named 'x'\n"
    )
    path = paths.worker_progress(T, W)
    until(bench.world.coordination, path, lambda v: bool(v and codec.decode(v, Progress).failed))
    told = codec.decode(bench.world.coordination.get(path).data, Progress)  # type: ignore[union-attr]
    assert told.failed == f"{W}: ModuleNotFoundError: No module named 'x'"
    assert (told.held, told.finished, told.drained) == (done.held, (2,), 3)
    failed = bench.reporter.wait_for("bundle-failed")
    assert "Traceback" in str(failed.details["traceback"])
    assert len(bench.launcher.started) == 1
    bench.world.set_state(TopologyStatus.ACTIVE, bench.sha, "t-2")  # submitted again: worth another try
    bench.launcher.wait_for(W, 2)


def test_a_process_that_user_code_has_ended_says_nothing_of_its_bundle(bench: Bench) -> None:
    """Whatever number that gives it: small ones are anybody's."""
    bench.start()
    bench.run_topology()
    for code in (1, 2, 3, 4, 5):
        bench.launcher.wait_for(W, code).end(code, "no reason")
    bench.launcher.wait_for(W, 6)
    kinds = bench.reporter.kinds()
    assert "bundle-failed" not in kinds and kinds.count("worker-lost") == 5


def test_telling_of_a_broken_bundle_does_not_bring_a_removed_topology_back(bench: Bench) -> None:
    bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.server.suspend(bench.session)
    worker.end(CANNOT_LOAD, "ImportError")
    bench.world.coordination.delete(paths.topology(T), recursive=True)
    bench.server.resume(bench.session)
    bench.wait(lambda: not bench.store.keys() or keys.allocation(W) not in bench.store.keys())  # noqa: SIM118
    assert bench.world.coordination.children(paths.TOPOLOGIES) == ()


def test_a_broken_bundle_does_not_fail_the_next_topology_of_that_name(bench: Bench) -> None:
    """The node was cut off while its code was mended and submitted again."""
    bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.server.suspend(bench.session)
    worker.end(CANNOT_LOAD, "ImportError: old code")
    bench.world.coordination.delete(paths.topology(T), recursive=True)
    bench.world.submit(bench.sha, "t-2")
    bench.world.assign((1, 2), (3, 4))
    bench.server.resume(bench.session)
    bench.launcher.wait_for(W, 2)
    said = bench.world.coordination.get(paths.worker_progress(T, W))
    assert said is None or not codec.decode(said.data, Progress).failed


def test_nothing_new_is_begun_without_a_connection(bench: Bench) -> None:
    started = bench.start()
    bench.run_topology()
    first = bench.launcher.wait_for(W)
    bench.server.suspend(bench.session)
    first.end(-9)
    bench.reporter.wait_for("worker-lost")
    assert started.wait(0.05) is None
    assert bench.launcher.started == [first]
    bench.server.resume(bench.session)
    bench.launcher.wait_for(W, 2)


@pytest.mark.parametrize("cycle", [0.0, 3600.0], ids=["watching", "looking"])
def test_a_worker_that_is_wanted_again_is_not_stopped_when_the_connection_comes_back(
    bench: Bench, cycle: float
) -> None:
    """It was dismissed before the connection broke, and its time was over before that was back."""
    started = bench.start(cycle=cycle, kill_delay=600.0)
    driver = started._driver
    bench.run_topology()
    if cycle:
        driver._look_at = 0.0
        driver.note_changed()
    worker = bench.launcher.wait_for(W)
    bench.world.assign()
    if cycle:
        driver._look_at = 0.0
        driver.note_changed()
    bench.wait(lambda: driver._lives[W].dismiss_at is not None)
    bench.server.suspend(bench.session)
    bench.world.assign((1, 1))
    bench.wait(lambda: not driver._connected)
    with driver._wake:  # it stands still: its time is over now, however long all this has taken
        driver._change(W, dismiss_at=0.0)
    driver.note_changed()
    assert started.wait(0.1) is None
    read, slow = bench.session._watches._read, threading.Event()
    with patch.object(bench.session._watches, "_read", lambda *key: slow.wait(0.1) or read(*key)):
        bench.server.resume(bench.session)
        assert started.wait(0.3) is None
    bench.wait(lambda: driver._lives[W].dismiss_at is None)
    assert not worker.signals


def test_a_lost_session_kills_the_workers_at_once(bench: Bench) -> None:
    bench.launcher.obedient = False
    started = bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.server.expire(bench.session)
    assert started.wait(30) == 4
    assert worker.signals == [signal.SIGKILL]
    assert "node-session-lost" in bench.reporter.kinds()


def test_a_newer_generation_takes_the_node_over(bench: Bench) -> None:
    old = bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.world.register(worker.launch.incarnation)
    second = MemoryLauncher()
    new = bench.start(2, bench.server.connect(), second)
    assert old.wait(30) == 9
    assert bench.reporter.wait_for("node-superseded").severity is Severity.WARNING
    assert worker.signals == [signal.SIGKILL]
    replaced = second.wait_for(W)
    assert second.strays == [f"{W}#1"]  # it died with its supervisor: seen to before the new life began
    assert replaced.launch.incarnation == f"{W}#1001"
    assert new.wait(0) is None
    with pytest.raises(Superseded, match="generation 2"):
        bench.start(1, bench.server.connect(), MemoryLauncher())
    assert _node(bench).generation == 2


def test_a_worker_of_an_earlier_generation_on_another_machine_is_waited_for(bench: Bench) -> None:
    bench.run_topology()
    bench.world.register(f"{W}#1")
    bench.start(2)
    bench.reporter.wait_for("node-started")
    bench.wait(lambda: bench.store.latest(keys.allocation(W)) is not None)
    assert not bench.launcher.started and not bench.launcher.strays
    bench.world.coordination.delete(paths.worker(T, W))
    bench.launcher.wait_for(W)


def test_an_entry_that_somebody_removed_is_made_again(bench: Bench) -> None:
    bench.start()
    bench.world.coordination.delete(paths.node(NODE))
    until(bench.world.coordination, paths.node(NODE), lambda v: v is not None)
    assert _node(bench).address == "127.0.0.1:7"


def test_draining_is_shown_in_the_entry(bench: Bench) -> None:
    started = bench.start()
    bench.world.coordination.put(paths.drain(NODE), b"")
    until(
        bench.world.coordination,
        paths.node(NODE),
        lambda v: bool(v) and codec.decode(v or b"", NodeInfo).draining,
    )
    bench.world.coordination.delete(paths.drain(NODE))
    until(bench.world.coordination, paths.node(NODE), lambda v: not codec.decode(v or b"", NodeInfo).draining)
    assert started.wait(0) is None


def test_a_node_that_starts_before_anything_was_said_waits_for_it(bench: Bench) -> None:
    """A cluster's nodes start beside its launcher, and may be there first."""
    world = bench.world.coordination
    world.delete(paths.wanted(NODE))
    started = bench.start()
    # Told after that it is not in what is wanted.
    until(bench.session, paths.node(NODE), lambda v: v is not None)
    bench.world.want_node()
    world.set(paths.WANTED, paths.WANTED_SAID)
    bench.run_topology()
    bench.launcher.wait_for(W)
    assert started.wait(0) is None


def test_a_node_that_was_never_wanted_ends(bench: Bench) -> None:
    world = bench.world.coordination
    world.delete(paths.wanted(NODE))
    world.set(paths.WANTED, paths.WANTED_SAID)
    assert bench.start().wait(30) == 0


def test_nobody_waits_for_ever_to_be_wanted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic.supervisor.supervisor._FIRST", 0.1)
    bench.world.coordination.delete(paths.wanted(NODE))
    assert bench.start().wait(30) == 0


def test_a_node_that_is_not_wanted_any_more_stops_politely(bench: Bench) -> None:
    started = bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.world.coordination.delete(paths.wanted(NODE))
    assert started.wait(30) == 0
    assert worker.signals == [signal.SIGTERM]
    assert bench.world.coordination.get(paths.node(NODE)) is None
    assert bench.reporter.kinds()[-2:] == ["worker-stopped", "node-stopped"]


def test_a_damaged_bundle_is_fetched_again(bench: Bench) -> None:
    good = bench.reporter.bundles[bench.sha]
    bench.reporter.bundles[bench.sha] = good[:-1]
    bench.start()
    bench.run_topology()
    said = bench.reporter.wait_for("bundle-unavailable")
    assert "damaged" in said.message
    assert not bench.launcher.started
    bench.reporter.bundles[bench.sha] = good
    bench.launcher.wait_for(W)


def test_an_archive_damaged_on_disk_is_fetched_again(bench: Bench) -> None:
    archive = bench.directory / "bundles" / f"{bench.sha}.zip"
    archive.parent.mkdir()
    archive.write_bytes(b"rubbish")
    bench.start()
    bench.run_topology()
    bench.launcher.wait_for(W)
    assert bench.reporter.fetched == 1
    assert archive.read_bytes() == bench.reporter.bundles[bench.sha]


def test_fetching_waits_for_a_nimbus(bench: Bench) -> None:
    bench.reporter.reachable = False
    bench.start()
    bench.run_topology()
    assert bench.reporter.wait_for("bundle-unavailable", 3).details["failures"] == 3
    bench.reporter.reachable = True
    bench.launcher.wait_for(W)


def test_a_worker_that_cannot_be_started_is_tried_again(bench: Bench) -> None:
    bench.launcher.failing = "no memory"
    bench.start(restart_pauses=(0.01,))
    bench.run_topology()
    said = bench.reporter.wait_for("worker-lost", 2)
    assert "no memory" in str(said.details["tail"]) and "exit_code" not in said.details
    assert said.message.startswith(f"worker {W} could not be started (") and "no memory" in said.message
    bench.launcher.failing = ""
    bench.launcher.wait_for(W)


def test_with_a_cycle_it_looks_instead_of_being_told(bench: Bench) -> None:
    bench.start(cycle=0.05, worker_cycle=0.05)
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    bench.world.assign((1, 4))
    bench.wait(lambda: bench.allocation().executors == (("bolt", 1, 4),))
    assert worker.told == []  # the worker looks for itself
    worker.end(-9)
    bench.launcher.wait_for(W, 2)  # its own children's ends are noticed at once all the same
    bench.world.set_state(TopologyStatus.KILLED, bench.sha)
    bench.reporter.wait_for("worker-stopped")


def test_a_store_in_use_is_refused(bench: Bench) -> None:
    with pytest.raises(Refused):
        memory_store.open_writer(bench.directory)


def test_what_others_may_ask(bench: Bench) -> None:
    started = bench.start()
    bench.run_topology()
    worker = bench.launcher.wait_for(W)
    assert started.missing_modules(["os.path", "no_such_module", "msgspec", "no_such.sub", ""]) == [
        "no_such_module",
        "no_such.sub",
        "",
    ]
    assert started.log_files("t", "") == []
    worker.launch.log.parent.mkdir(parents=True)
    worker.launch.log.write_text("x")
    assert started.log_files("t", "") == [(W, worker.launch.log)] == started.log_files("t", W)
    assert (
        started.log_files("t", "t@n1/5")
        == started.log_files("../workers/t", "")
        == started.log_files("..", "")
        == []
    )
    bench.wait(lambda: _try_stacks(started))
    assert worker.signals == [signal.SIGUSR1]
    first, *others = [started.request_stacks(W) for _ in range(70)]
    assert first.result(0) == ""  # nobody waits for ever, nor do they become more and more
    started.on_stacks(worker.launch.incarnation, "stacks")
    assert [f.result(0) for f in others][-64:] == ["stacks"] * 64
    last = started.request_stacks(W)
    worker.end(7)
    assert last.result(0) == ""


def _try_stacks(started: Supervisor) -> bool:
    with pytest.raises(NotFound):
        started.request_stacks("t@n1/9")
    try:
        started.request_stacks(W)
    except NotFound:
        return False
    return True


def _node(bench: Bench) -> NodeInfo:
    value = bench.world.coordination.get(paths.node(NODE))
    assert value is not None
    return codec.decode(value.data, NodeInfo)
