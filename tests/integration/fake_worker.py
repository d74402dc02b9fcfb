"""A worker that follows the contract of docs/design.md and runs nothing. What it should do is in its bundle.

It says each allocation that it reads as an event `fake-allocation`, and registers with a real ZooKeeper.
The file `behaviour` in the bundle holds words: `unloadable`, `deaf` (to SIGTERM), `babble` (reports nonsense), `quit`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from elastic import procs
from elastic.coordination import paths
from elastic.model import codec
from elastic.model.events import Event
from elastic.model.ids import Epoch, Incarnation, TopologyName, WorkerId
from elastic.model.load import WorkerReport
from elastic.model.records import Allocation, WorkerInfo
from elastic.nodestore import keys
from elastic.nodestore.lmdb_store import open_reader
from elastic.supervisor.messages import Stacks, encode
from elastic.supervisor.ports import CANNOT_LOAD


def main() -> int:
    procs.die_with_parent()
    parser = argparse.ArgumentParser()
    for name in ("topology", "worker", "incarnation", "store", "zookeeper", "bundle", "run-dir", "log-level"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--report-fd", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--cycle", type=float, default=0.0)
    parser.add_argument("--session-timeout", type=float, default=6.0)
    args = parser.parse_args()
    signal.signal(signal.SIGUSR1, lambda *_: tell(args.report_fd, Stacks("".join(traceback.format_stack()))))
    print(f"I am {args.incarnation}")
    behaviour = (Path(args.bundle) / "behaviour").read_text().split()
    if "unloadable" in behaviour:
        raise_in_user_code()
    if "quit" in behaviour:
        return 7
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in behaviour else lambda *_: os._exit(0))
    if args.zookeeper != "none":
        register(args)
    if "babble" in behaviour:
        os.write(args.report_fd, b"\0\0\0\4nope")
    store = open_reader(args.store)
    worker = WorkerId(args.worker)
    seen = 0

    def look() -> None:
        nonlocal seen
        entry = store.latest(keys.allocation(worker))
        assert entry is not None
        if entry.version == seen:
            return
        seen = entry.version
        allocation = codec.decode(entry.data, Allocation)
        assert allocation.version == entry.version
        tell(
            args.report_fd,
            Event(
                time.time(),
                "fake-allocation",
                f"version {entry.version}",
                component=",".join(f"{c}:{a}-{b}" for c, a, b in allocation.executors),
                details={"pid": os.getpid(), "version": entry.version, "peers": len(allocation.peers)},
            ),
        )
        report = WorkerReport(args.topology, worker, args.incarnation, time.time(), allocation.epoch)
        tell(args.report_fd, report)

    look()
    if args.cycle:
        threading.Thread(target=watch_stdin, daemon=True).start()
        while True:
            time.sleep(args.cycle)
            look()
    for _line in sys.stdin:
        look()
    return 0


def watch_stdin() -> None:
    for _ in sys.stdin:
        pass
    os._exit(0)


def tell(fd: int, message: Event | WorkerReport | Stacks) -> None:
    os.write(fd, encode(message))


def register(args: argparse.Namespace) -> None:
    from elastic.coordination.zookeeper import connect

    session = connect(args.zookeeper, session_timeout=args.session_timeout)
    info = WorkerInfo(
        WorkerId(args.worker), Incarnation(args.incarnation), "127.0.0.1:1", "", "boot", os.getpid(), Epoch(1)
    )
    path = paths.worker(TopologyName(args.topology), WorkerId(args.worker))
    session.create(path, codec.encode(info), ephemeral=True)
    main.session = session  # type: ignore[attr-defined]


def raise_in_user_code() -> None:
    try:
        raise ModuleNotFoundError("No module named 'their_module'")
    except ModuleNotFoundError:
        traceback.print_exc()
        sys.exit(CANNOT_LOAD)


if __name__ == "__main__":
    sys.exit(main())
