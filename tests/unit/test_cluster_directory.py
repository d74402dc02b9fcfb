"""A cluster's directory: what is its own and is removed, what is somebody else's and stays, and who owns it."""

from __future__ import annotations

import errno
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from elastic import procs
from elastic.cluster import launcher, launcher_main
from elastic.cluster.directory import (
    FILE,
    LAUNCHER,
    LOCK,
    LOG,
    OLD_LOG,
    OPTIONS,
    ClusterInfo,
    Owner,
    clean,
    handed_on,
    launcher_of,
    owned,
    read_cluster,
    stored,
    write,
)
from elastic.cluster.launcher import start_background, stop
from elastic.cluster.options import UpOptions
from elastic.cluster.running import Launcher
from elastic.control.cli import checks
from elastic.control.cli.settings import Settings
from elastic.errors import AlreadyExists, EnvironmentProblem, NotFound
from elastic.model.codec import encode

MADE = (
    *("zookeeper/data/version-2/log.1", "nimbus/bundles/0.zip", "nodes/node-1/store/data.mdb", "run/x.sock"),
    *("spark/blockmgr/0", f".{FILE}-half", FILE),
)
LOGS = ("zookeeper/zookeeper.log", "nimbus-1.log", "nodes/node-1/supervisor.log", "nodes/node-1/store.log.1")
OF_LAUNCHERS = (LOG, OLD_LOG)
FOREIGN = ("raw/my.csv", "raw/nodes/my.csv", "thesis.tex", "my.log", ".lock.old")

HOLDER = """
import signal, sys
from pathlib import Path
from elastic.cluster.directory import owned
with owned(Path(sys.argv[1]), launcher=True):
    print("owned", flush=True)
    signal.pause()
"""


LINGERER = """
import ctypes, os, platform, sys, threading
from pathlib import Path
from elastic.cluster.directory import owned
def last():
    main = Path(f"/proc/self/task/{os.getpid()}/stat")
    print("owned", flush=True)
    sys.stdin.readline()
    while main.read_text().rpartition(")")[2].split()[0] != "Z":
        pass
    print("last", flush=True)
    sys.stdin.readline()
    os._exit(0)
with owned(Path(sys.argv[1]), launcher=True):
    threading.Thread(target=last).start()
    ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # of this thread alone
"""


def quiet(_text: str) -> None:
    pass


def fill(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("precious")


def files(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if not p.is_dir()}


def info(directory: Path, pid: int, options: UpOptions) -> ClusterInfo:
    where = ("127.0.0.1:1/e", ("127.0.0.1:2",))
    return ClusterInfo(directory.name, str(directory), pid, procs.identity(pid), *where, options, 0.0, True)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UpOptions:
    monkeypatch.setenv("ELASTIC_JAVA", "none")  # what is to be refused does not start when it isn't
    return UpOptions(cluster="c", home=str(tmp_path), nodes=0)


@pytest.fixture
def directory(options: UpOptions) -> Path:
    options.directory.mkdir()
    return options.directory


@pytest.fixture
def holder(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A launcher's process, as far as the directory knows of it."""
    argv = [sys.executable, "-c", HOLDER, str(directory)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "owned\n"
        yield process
        process.kill()


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize("names", [FOREIGN, ("nodes/my.csv",), (FILE,), ()])
def test_down_touches_no_directory_that_is_no_clusters(
    directory: Path, purge: bool, names: tuple[str, ...]
) -> None:
    fill(directory, *names)
    with pytest.raises(NotFound, match="no cluster named c"):
        stop(directory.parent, "c", purge=purge)
    assert directory.is_dir() and files(directory) == set(names)


@pytest.mark.parametrize("names", [FOREIGN, (*FOREIGN, LOCK), ("nodes/my.csv",)])
def test_up_takes_no_directory_that_is_no_clusters(
    directory: Path, options: UpOptions, names: tuple[str, ...]
) -> None:
    fill(directory, *names)
    with pytest.raises(EnvironmentProblem, match=r"/c is not empty") as caught:
        start_background(options, quiet)
    assert "another --home or --cluster" in caught.value.remedy
    with pytest.raises(EnvironmentProblem, match=r"/c is not empty"):
        Launcher(options, quiet, lambda _: None).run()
    assert files(directory) == set(names)


@pytest.mark.parametrize(
    ("logs", "purge", "left"),
    [
        (False, False, {*LOGS, *OF_LAUNCHERS}),
        (True, False, set(OF_LAUNCHERS)),
        (False, True, set()),
    ],
)
def test_what_a_cluster_makes_is_removed_and_nothing_else(
    directory: Path, tmp_path: Path, logs: bool, purge: bool, left: set[str]
) -> None:
    fill(tmp_path / "elsewhere", "my.csv")
    fill(directory, *MADE, *LOGS, *OF_LAUNCHERS, *FOREIGN)
    (directory / "nodes" / "link").symlink_to(tmp_path / "elsewhere")
    with owned(directory):
        clean(directory, logs=logs, purge=purge)
    assert files(directory) == left | set(FOREIGN)
    assert files(tmp_path / "elsewhere") == {"my.csv"}


def test_what_is_left_behind_goes_and_the_directory_with_it_when_it_is_empty(directory: Path) -> None:
    fill(directory, *MADE, *LOGS, *OF_LAUNCHERS, LOCK)
    with pytest.raises(NotFound):
        stop(directory.parent, "c")
    assert files(directory) == {*LOGS, *OF_LAUNCHERS}
    with pytest.raises(NotFound):
        stop(directory.parent, "c", purge=True)
    assert not directory.exists()


@pytest.mark.parametrize("purge", [False, True])
def test_down_leaves_alone_the_cluster_that_has_begun_meanwhile(
    directory: Path, options: UpOptions, monkeypatch: pytest.MonkeyPatch, purge: bool
) -> None:
    gone = launcher._wait_gone
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as old:
        write(info(directory, old.pid, options))
        argv = [sys.executable, "-c", HOLDER, str(directory)]
        begun: list[subprocess.Popen[str]] = []

        def next_one(ended: ClusterInfo, timeout: float) -> bool:
            assert gone(ended, timeout)
            new = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
            begun.append(new)
            assert new.stdout is not None and new.stdout.readline() == "owned\n"
            write(info(directory, new.pid, options))
            fill(directory, "zookeeper/data/x", LOG)
            return True

        monkeypatch.setattr(launcher, "_wait_gone", next_one)
        try:
            stop(directory.parent, "c", purge=purge)
            assert files(directory) == {LOCK, FILE, LOG, "zookeeper/data/x"}
        finally:
            old.kill()
            for new in begun:
                new.kill()
                new.communicate()


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="ends a thread by the system's number for that",
)
def test_a_launcher_of_which_threads_are_left_has_not_ended(directory: Path) -> None:
    """They hold its files open, and with them the lock: whoever cleaned up now would be refused."""
    argv = [sys.executable, "-c", LINGERER, str(directory)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "owned\n"
        owner = Owner(process.pid, procs.identity(process.pid))
        for line in ("last\n", ""):
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == line
            assert launcher._wait_gone(owner, 0.0 if line else 60.0) is not bool(line)


def test_that_a_cluster_had_to_be_killed_is_said(directory: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGSTOP)
    os.waitpid(holder.pid, os.WUNTRACED)  # else it could be asked to end before it stands still, and do so
    said: list[str] = []
    stop(directory.parent, "c", timeout=0.1, on_killed=said.append)
    assert said == ["it has not ended within 0.1 s, and is killed"]
    assert holder.wait() == -signal.SIGKILL


def test_a_lost_lock_lets_nobody_into_the_directory_of_a_cluster_that_runs(
    directory: Path, options: UpOptions
) -> None:
    write(info(directory, os.getpid(), options))
    fill(directory, "zookeeper/data/x", LOG)
    with pytest.raises(AlreadyExists, match=f"process {os.getpid()}"):
        Launcher(options, quiet, lambda _: None).run()
    with pytest.raises(AlreadyExists, match=f"process {os.getpid()}"):
        start_background(options, quiet)
    assert files(directory) == {FILE, LOG, "zookeeper/data/x"}


def test_a_launcher_is_found_and_ended_without_its_cluster_json(
    directory: Path, holder: subprocess.Popen[str]
) -> None:
    found = launcher_of(directory)
    assert isinstance(found, Owner) and found.pid == holder.pid and stored(directory) is None
    (check,) = checks.clusters(Settings(home=directory.parent))
    assert check.status == "warning" and f"launcher {holder.pid}" in check.message and "down" in check.remedy
    with pytest.raises(AlreadyExists, match=f"process {holder.pid}") as caught, owned(directory):
        pass
    assert caught.value.remedy == f"End it with: elastic down --home {directory.parent} --cluster c"
    stop(directory.parent, "c")
    assert holder.wait() == -signal.SIGTERM
    assert launcher_of(directory) is None


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_launcher_whose_directory_was_removed_is_found_and_ended(
    directory: Path, options: UpOptions
) -> None:
    assert launcher_of(directory) is None
    code = "import signal; print(flush=True); signal.pause()"
    argv = [sys.executable, "-c", code, LAUNCHER, "--options"]
    for where in (options, replace(options, cluster="other")):
        with subprocess.Popen([*argv, encode(where)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            found = launcher_of(directory)
            if where is options:
                assert found == Owner(process.pid, procs.identity(process.pid))
                with owned(directory):
                    assert launcher_of(directory) is None, "it is somebody else's by now"
                stop(directory.parent, "c")
                assert process.wait() == -signal.SIGTERM
            else:
                assert found is None
                process.kill()


def test_a_lock_that_is_anothers_by_now_is_not_removed(directory: Path) -> None:
    with owned(directory):
        (directory / LOCK).unlink()
        fill(directory, LOCK)
    assert files(directory) == {LOCK}


@pytest.mark.parametrize("another", [True, False])
def test_a_cluster_whose_directory_was_removed_leaves_alone_the_one_that_has_begun_there(
    directory: Path, options: UpOptions, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    def begin(self: Launcher) -> None:
        shutil.rmtree(directory)
        if another:
            fill(directory, LOCK)
            write(info(directory, os.getpid(), options))
        fill(directory, LOG, "zookeeper/data/x")
        self.ask_stop()

    monkeypatch.setattr(Launcher, "_begin", begin)
    Launcher(options, quiet, lambda _: None).run()
    if another:
        assert files(directory) == {LOCK, FILE, LOG, "zookeeper/data/x"}
        found = stored(directory)
        assert found is not None and not found.ending
    else:
        assert files(directory) == {LOG}


def test_while_it_is_cleaned_up_it_is_just_ending(directory: Path) -> None:
    fill(directory, LOG)
    with owned(directory), pytest.raises(AlreadyExists, match="just being started or ended"):
        stop(directory.parent, "c")


def test_one_older_log_of_the_launcher_is_kept_and_one_in_use_is_left_alone(directory: Path) -> None:
    for text in (b"oldest", b"older"):
        with launcher._new_log(directory) as log:
            log.write(text)
    with launcher._new_log(directory) as log, owned(directory):
        log.write(b"first")
        clean(directory, logs=True)
    assert (directory / LOG).read_text() == "first" and (directory / OLD_LOG).read_text() == "older"


def test_two_at_once_the_second_leaves_alone_what_the_first_has_begun(
    directory: Path, options: UpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the first one's launcher has come as far as to own the directory itself."""
    seen: list[set[str]] = []

    def follow(_reports: int, process: subprocess.Popen[bytes], *_: object) -> ClusterInfo:
        process.send_signal(signal.SIGSTOP)
        (directory / LOG).write_text("the first one's")
        monkeypatch.setattr(launcher, "_follow", lambda *_: pytest.fail("started a second time"))
        with pytest.raises(AlreadyExists):
            start_background(options, quiet)
        seen.append(files(directory))
        process.kill()
        process.wait()
        return info(directory, process.pid, options)

    monkeypatch.setattr(launcher, "_follow", follow)
    start_background(options, quiet)
    assert seen == [{LOG, LOCK}]


def test_a_token_is_in_no_list_of_processes_and_reaches_the_launcher(
    directory: Path, options: UpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = ("spark.connect.authenticate.token=hush",)
    given = replace(options, host="spark", master="sc://127.0.0.1:1/;token=hush", spark_conf=secret)
    seen: list[UpOptions] = []

    def start(argv: list[str], *, env: dict[str, str], **_: object) -> None:
        line = argv[argv.index(LAUNCHER) + 1 :]
        assert "hush" not in str(argv) and "sc://127.0.0.1:1/;..." in str(argv)
        assert UpOptions(**msgspec.json.decode(line[1])).directory == directory
        monkeypatch.setenv(OPTIONS, env[OPTIONS])
        launcher_main.main(line[:2])
        assert OPTIONS not in os.environ, "none of its children gets it"
        raise FileExistsError

    monkeypatch.setattr(Launcher, "run", lambda launcher: seen.append(launcher.options))
    monkeypatch.setattr(launcher_main, "insist", lambda _: None)
    monkeypatch.setattr(launcher.subprocess, "Popen", start)
    with pytest.raises(FileExistsError):
        start_background(given, quiet)
    assert seen == [given]


def test_a_launcher_owns_the_directory_by_the_lock_that_it_was_handed(directory: Path) -> None:
    with handed_on(directory) as given:
        lock = os.dup(given)
    with owned(directory, launcher=True, lock=lock):
        found = launcher_of(directory)
        assert isinstance(found, Owner) and found.pid == os.getpid() and not os.get_inheritable(lock)
        with pytest.raises(AlreadyExists, match=f"process {os.getpid()}"), owned(directory):
            pass
    assert not files(directory)
    with pytest.raises(KeyError), handed_on(directory):
        raise KeyError
    assert not files(directory), "nobody was started"


def test_a_directory_of_a_cluster_in_the_foreground_is_known_again(
    directory: Path, options: UpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(self: Launcher) -> None:
        fill(directory, "nimbus-1.log")
        self.ask_stop()

    monkeypatch.setattr(Launcher, "_begin", begin)
    for _ in range(2):
        Launcher(options, quiet, lambda _: None).run()
        assert files(directory) == {LOG, "nimbus-1.log"}


def test_a_name_that_is_too_long_is_said(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 256)
    with pytest.raises(EnvironmentProblem, match="too long"):
        start_background(UpOptions(home=str(home)), quiet)
    with pytest.raises(NotFound):
        stop(home, "default")


def test_where_no_room_is_left_it_is_said_and_where(directory: Path, options: UpOptions) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(EnvironmentProblem, match="json: File too large") as caught:
            write(info(directory, os.getpid(), options))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "Make room" in caught.value.remedy


def test_of_a_cluster_that_another_user_runs_it_is_not_said_that_there_is_none(
    directory: Path, options: UpOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(info(directory, os.getpid(), options))
    assert read_cluster(directory.parent, "c").pid == os.getpid()

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # of root's, nothing is refused
    with pytest.raises(EnvironmentProblem, match=r"json: Permission denied") as caught:
        read_cluster(directory.parent, "c")
    assert "another user's" in caught.value.remedy


def test_down_makes_no_directory_that_has_gone_while_the_cluster_ran(
    directory: Path, holder: subprocess.Popen[str]
) -> None:
    def gone(text: str) -> None:
        assert text == "ending cluster c"
        (directory / LOCK).unlink()
        directory.rmdir()

    stop(directory.parent, "c", on_progress=gone)
    assert holder.wait() == -signal.SIGTERM and not directory.exists()
