"""What this machine has, and how much of it is in use. Linux; elsewhere as much as Python's own library says."""

from __future__ import annotations

import contextlib
import errno
import os
import resource  # now: when it is asked, there may be no file left to import it from
import threading
import time
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STEAL = 7
"""The place, among the numbers that `/proc/stat` has of a processor, of the last one that counts."""


def cores() -> float:
    """CPUs that this process may use: those of its affinity, or the quota of its control group when that is less."""
    try:
        found = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        found = float(os.cpu_count() or 1)
    quota = _quota()
    return min(found, quota) if quota else found


def _quota() -> float:
    """The control group's limit in CPUs; 0.0: none, or unknown."""
    try:
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return float(most) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such file; "max" is no number
        return 0.0


def limit_reached(error: BaseException | None, *, starting: bool = False) -> str:
    """Which limit an error tells of without naming it, with its remedy, in a sentence; "" for any other error.

    Args:
        starting: It came when a process was started: then "try again" means that there may be no more of them.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        return (
            f"this process may have {_limit('RLIMIT_NOFILE')} files and sockets open:"
            " start what started it where `ulimit -n` says more"
        )
    if number == errno.ENFILE:
        return "this machine may have no more files open: raise fs.file-max (sysctl)"
    no_thread = isinstance(error, RuntimeError) and str(error).startswith("can't start new thread")
    if no_thread or (starting and number == errno.EAGAIN):
        return (
            f"there may be no more threads and processes: of this user (`ulimit -u` says {_limit('RLIMIT_NPROC')}), or in this"
            f" control group (pids.max{_most_tasks()}; TasksMax of a service, --pids-limit of a container), or memory has run out"
        )
    return ""


def with_limit(text: str, error: BaseException | None, *, starting: bool = False) -> str:
    """What is said of an error, and after it the limit that it tells of, if any: see `limit_reached`."""
    limit = limit_reached(error, starting=starting)
    return f"{text} ({limit})" if limit else text


def _limit(name: str) -> str:
    soft, _ = resource.getrlimit(getattr(resource, name))
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def _most_tasks() -> str:
    """What the control group says, where it says something."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kind, path = line.split(":", 2)
            if kind in ("", "pids"):
                for below in (path, "/"):  # in a container its own group is the root
                    with contextlib.suppress(OSError):
                        most = Path(f"/sys/fs/cgroup/{kind}/{below}/pids.max").read_text().strip()
                        return f" is {most}"
    return ""


def boot() -> str:
    """Identifies the machine as long as it runs; "" where the system does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class MachineMeter:
    """Measures the cores in use by everything on this machine, between one call and the next. Not thread-safe."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._busy = busy_seconds()

    def read(self) -> float:
        """Cores in use since the call before, or since it was made; 0.0 when unknown."""
        now, busy = time.monotonic(), busy_seconds()
        seconds, used = now - self._at, busy - self._busy
        self._at, self._busy = now, busy
        return max(0.0, used / seconds) if seconds > 0 else 0.0


def ready_seconds(thread: int | None) -> float:
    """Seconds in which a thread of this process could have run and got no core; 0.0 where the system does not say.

    Args:
        thread: Its number, as the system counts them.
    """
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # no such file, or the thread has ended
        return 0.0


class ThreadMeter:
    """Processor time of one thread of this process.

    Args:
        thread: It need not have begun.
    """

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._clock: int | None = None
        self._seconds = 0.0

    def begin(self) -> None:
        """Called by the thread itself: to ask for the clock of one that has ended brings the process down."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())

    def seconds(self) -> float:
        """So far, also when it has ended; 0 where the system doesn't say."""
        if self._clock is not None and self._thread.is_alive():
            with contextlib.suppress(OSError):  # it has just ended
                self._seconds = time.clock_gettime(self._clock)
        return self._seconds


def busy_seconds() -> float:
    """CPU seconds of all processors since the machine was started that were not idle; 0.0 where the system does not say."""
    ticks = _ticks().get("cpu")
    return _busy(ticks) if ticks else 0.0


def busy_by_core() -> dict[int, float]:
    """The same of each processor, by its number, without what the host of a virtual machine took: that is nobody's here. Empty where the
    system does not say."""
    return {int(n.removeprefix("cpu")): _busy(t[:_STEAL]) for n, t in _ticks().items() if n != "cpu"}


def _ticks() -> dict[str, list[int]]:
    """What processors have done, by their names: "cpu" is all of them. What guests use is in the first number already."""
    found = {}
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if not name.startswith("cpu") or len(fields) <= _STEAL:
                break
            found[name] = [int(x) for x in fields[: _STEAL + 1]]
    except (OSError, ValueError):
        return {}
    return found


def _busy(ticks: list[int]) -> float:
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
