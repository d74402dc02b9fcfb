"""A node's state store as a process: `python -m statestore.server --backend embedded --directory DIR`.

When it is ready it prints one line of JSON, {"address": "host:port", "pid": ...}. It ends by SIGTERM or SIGINT, and with its
parent. Exit codes: 0 asked to end; 2 wrong arguments; 5 the Hazelcast cluster is not the one
that this store saw before; 1 anything else, as that the cluster was out of reach for so long that its client gave up. The log says more.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from statestore.base import BackEnd
from statestore.errors import Lost, StateStoreError
from statestore.lifetime import die_with_parent

log = logging.getLogger("statestore")

LIMIT = 1 << 30

EXIT_LOST = 5
EXIT_CUT_OFF = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run a state store until it is asked to end.

    Returns:
        The exit code.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    if options.backend == "embedded" and options.directory is None:
        parser.error("--backend embedded needs --directory")
    if options.backend == "hazelcast" and not options.members:
        parser.error("--backend hazelcast needs --members")
    die_with_parent(options.parent)
    logging.basicConfig(
        stream=sys.stderr,
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        return _run(options)
    except StateStoreError as error:
        log.error("%s", error)
        return EXIT_LOST if isinstance(error, Lost) else 1


def _run(options: argparse.Namespace) -> int:
    # Python calls its handlers between two steps of the main thread: one that came just before that waits would be heard when the wait is
    # over. What it writes to a pipe is there at once.
    read, write = os.pipe()
    os.set_blocking(write, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    codes: list[int] = []

    def on_end(code: int) -> None:
        codes.append(code)
        with suppress(OSError):  # it has ended
            os.write(write, b"\0")

    try:
        _serve(options, on_end, lambda: os.read(read, 1))
    finally:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)
    return max(codes, default=0)


def _serve(options: argparse.Namespace, on_end: Callable[[int], None], wait: Callable[[], object]) -> None:
    from statestore.near_server import NearServer
    from statestore.service import StoreServer

    store = _store(options, on_end)
    try:
        server = StoreServer(store, options.listen, allow_remote=options.allow_remote, unix=options.unix)
        near = None
        try:
            if options.near is not None:
                keeps = options.backend == "embedded"
                near = NearServer(store, options.near, str(options.directory.absolute()) if keeps else "")
                near.start()
            server.start()
            print(json.dumps({"address": server.address, "pid": os.getpid()}), flush=True)  # noqa: T201  the answer
            log.info("the state store (%s) serves at %s", options.backend, server.address)
            wait()
        finally:
            if near is not None:
                near.close()
            server.close()
    finally:
        store.close()


def _store(options: argparse.Namespace, on_end: Callable[[int], None]) -> BackEnd:
    if options.backend == "memory":
        from statestore.memory import MemoryStore

        return MemoryStore(options.limit or LIMIT)
    if options.backend == "embedded":
        from statestore.embedded import EmbeddedStore

        return EmbeddedStore(options.directory, options.limit or LIMIT, sync=options.sync)
    from statestore.hazelcast.options import LIMIT as GRID_LIMIT
    from statestore.hazelcast.options import HazelcastOptions
    from statestore.hazelcast.store import HazelcastStore

    return HazelcastStore(
        HazelcastOptions(
            members=tuple(options.members.split(",")),
            cluster=options.cluster,
            local=options.local,
            backups=options.backups,
            foreign=options.foreign,
            limit=options.limit or GRID_LIMIT,
            heap=options.heap or 0,
            incarnation=options.incarnation,
            directory=options.directory,
        ),
        partial(on_end, EXIT_LOST),
        partial(on_end, EXIT_CUT_OFF),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="statestore.server", description="Run the state store of a node.")
    parser.add_argument("--backend", choices=("embedded", "hazelcast", "memory"), default="embedded")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--allow-remote", action="store_true", help="listen elsewhere than on loopback")
    parser.add_argument("--unix", type=Path, metavar="PATH", help="a Unix socket to listen on as well")
    parser.add_argument(
        "--near", type=Path, metavar="PATH", help="a Unix socket for the calls of moves on this machine"
    )
    parser.add_argument("--directory", type=Path, help="its own; made when missing")
    parser.add_argument("--limit", type=size, metavar="BYTES", help="what it may hold, e.g. 512M")
    parser.add_argument("--sync", action="store_true", help="embedded: a commit waits for the disk")
    parser.add_argument("--members", metavar="HOST:PORT,...", help="hazelcast: members to connect to")
    parser.add_argument("--local", default="", metavar="HOST:PORT", help="hazelcast: the member of this node")
    parser.add_argument("--cluster", default="statestore", help="hazelcast: name of the cluster")
    parser.add_argument(
        "--backups", type=int, default=1, help="hazelcast: synchronous backups of the members"
    )
    parser.add_argument(
        "--heap",
        type=size,
        metavar="BYTES",
        help="hazelcast: of each member; what it may hold follows from it",
    )
    parser.add_argument(
        "--foreign",
        action="store_true",
        help="hazelcast: somebody else runs the members: end where they would drop what is stored, or keep fewer backups",
    )
    parser.add_argument(
        "--incarnation", default="", help="hazelcast: must be that of the cluster, when it has one"
    )
    parser.add_argument("--parent", type=int, help="process id: end at once when the parent is another one")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    return parser


def size(text: str) -> int:
    """Bytes, from "1048576", "512M" or "4G"."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if found is None or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 512M, 4G, or bytes")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


if __name__ == "__main__":
    sys.exit(main())
