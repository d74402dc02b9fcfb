"""A node: `python -m elastic.cluster.supervisor_main`. Ends by itself when the node is not wanted any more.

Exit codes: 0 asked to end, or not wanted any more; 2 wrong arguments; 4 the session with coordination is lost; 6 the
node's directory is in use; 7 coordination cannot be reached; 9 a newer generation of the node runs; 1 anything else.
After 4 the host starts the node again, with a new generation.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from elastic import procs
from elastic.cluster import network
from elastic.cluster.directory import NODE_LOG
from elastic.cluster.own_log import log_to_stderr
from elastic.errors import ElasticError
from elastic.priority import behind_streams
from elastic.signals import insist

log = logging.getLogger("elastic.supervisor")

NO_STORE = "none"

_STORE_WAIT = 10.0
"""Seconds for a supervisor of this node that is just ending."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a node until it ends.

    Returns:
        The exit code.
    """
    procs.die_with_parent()
    behind_streams()
    # Workers inherit this, and say what their threads do as soon as they can: one that is just starting must not end by being asked.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    options = _parser().parse_args(argv)
    log_to_stderr(options.log_level, [_directory(options) / NODE_LOG])
    with contextlib.ExitStack() as last:
        try:
            code = _run(options, last)
        except ElasticError as error:
            log.error("node %s: %s", options.node, error)
            return error.exit_code
        if code == 0 and options.remove_directory:
            _remove(_directory(options))
        return code


def _remove(directory: Path) -> None:
    """Remove the node's directory, as long as its store is this process's: another life of the node may begin at any moment, and makes its
    own at once."""
    aside = directory.with_name(f"{directory.name}.{os.getpid()}")
    try:
        directory.rename(aside)
        shutil.rmtree(aside)
    except OSError as error:
        log.warning("not all of %s could be removed: %s", directory, error)


def _run(options: argparse.Namespace, last: contextlib.ExitStack) -> int:
    """Returns when all has ended but what `last` is to end."""
    # Only now, so that a wrong argument is answered at once.
    from elastic.cluster.node_store import NodeStore
    from elastic.coordination.zookeeper import connect
    from elastic.model.assignment import NodeInfo
    from elastic.model.ids import NodeId
    from elastic.nodestore.lmdb_store import open_writer
    from elastic.reporting.grpc_client import GrpcReporter
    from elastic.reporting.node_server import NodeServer
    from elastic.supervisor.options import SupervisorOptions
    from elastic.supervisor.supervisor import Supervisor
    from elastic.supervisor.worker_process import WORKER_MAIN, ProcessLauncher
    from elastic.transport.addresses import unix_path

    directory = _directory(options)
    host = network.own_address(options.zookeeper) if options.host == network.AUTO else options.host
    run_dir = _below_temporary(options.run_dir) if options.run_dir else _run_dir(directory)
    settings = SupervisorOptions(cycle=options.cycle, worker_cycle=options.worker_cycle, cores=options.cores)
    node = NodeInfo(
        NodeId(options.node),
        host,
        options.slots,
        options.generation,
        options.kind,
        pid=os.getpid(),
    )
    with contextlib.ExitStack() as stack:
        store = open_writer(directory / "store", wait=_STORE_WAIT)
        last.callback(store.close)
        coordination = connect(
            options.zookeeper, session_timeout=options.session_timeout, own_server=options.own_zookeeper
        )
        stack.callback(coordination.close)
        reporter = GrpcReporter(coordination, options.node)
        stack.callback(reporter.close)
        launcher = ProcessLauncher(
            zookeeper=options.zookeeper,
            store=directory / "store",
            run_dir=run_dir,
            host=host,
            log_level=options.log_level,
            cycle=options.worker_cycle,
            session_timeout=options.session_timeout,
            own_zookeeper=options.own_zookeeper,
            program=(options.worker_program,) if options.worker_program else WORKER_MAIN,
            socket=functools.partial(unix_path, run_dir),
        )
        supervisor = Supervisor(coordination, store, reporter, launcher, node, directory, settings)
        stack.callback(supervisor.close)
        server = NodeServer(supervisor, f"{host}:0", allow_remote=options.allow_remote)
        stack.callback(server.close)

        insist({signal.SIGTERM: supervisor.stop, signal.SIGINT: supervisor.stop})
        server.start()
        supervisor.start(server.address)
        if options.store != NO_STORE:
            # Only now: the node is there without it, and nobody waits for it but moves.
            states = NodeStore(
                options, supervisor, coordination, host=host, directory=directory, run_dir=run_dir
            )
            stack.callback(states.close)
            states.start()
        log.info("node %s runs: %d slots, generation %d", options.node, options.slots, options.generation)
        code = supervisor.wait()
        log.info("node %s ends with %s", options.node, code)
        return 1 if code is None else code


def _directory(options: argparse.Namespace) -> Path:
    """The node's own."""
    return _below_temporary(options.directory)


def _below_temporary(path: Path) -> Path:
    # Asked for only then: where nothing but the cluster's directory can be written there is none.
    return path if path.is_absolute() else Path(tempfile.gettempdir()).absolute() / path


def _run_dir(directory: Path) -> Path:
    """`run/` of the cluster, when the node lies in a cluster's directory; short, for Unix sockets."""
    return directory.parent.parent / "run" if directory.parent.name == "nodes" else directory / "run"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elastic.cluster.supervisor_main", description="Run a node.")
    parser.add_argument("--node", required=True, help="its name, unique in the cluster")
    parser.add_argument("--generation", type=int, required=True, help="grows with every start of this node")
    parser.add_argument("--slots", type=_positive, required=True, help="how many workers it may run")
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT/ROOT")
    parser.add_argument(
        "--own-zookeeper",
        action="store_true",
        help="that is the one server that the cluster's launcher runs, and nothing is between",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        required=True,
        help="the node's own, made when missing; a relative one is below this machine's for temporary files",
    )
    parser.add_argument(
        "--remove-directory", action="store_true", help="remove it when the node ends as it was asked to"
    )
    parser.add_argument("--run-dir", type=Path, help="for Unix sockets; a short path; as --directory")
    parser.add_argument("--kind", default="process", help="what hosts it")
    parser.add_argument(
        "--host",
        default=network.LOOPBACK,
        metavar="ADDRESS",
        help="where the node's service and its workers listen and are reached; "
        "auto: the address by which this machine reaches ZooKeeper",
    )
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        help="let that be more than loopback; there is no authentication: only in a private network",
    )
    parser.add_argument(
        "--cycle", type=float, default=0.0, metavar="T_S", help="seconds; 0: be told of changes"
    )
    parser.add_argument("--worker-cycle", type=float, default=0.0, metavar="T_W", help="the same for workers")
    parser.add_argument(
        "--cores",
        type=float,
        default=0.0,
        help="CPUs that its workers may use together; 0: those of the machine",
    )
    parser.add_argument("--worker-program", metavar="FILE", help="run instead of elastic.cluster.worker_main")
    parser.add_argument(
        "--store",
        default=NO_STORE,
        metavar="KIND",
        help="its state store: none, embedded, hazelcast or hazelcast:[NAME@]HOST:PORT,...",
    )
    parser.add_argument("--store-memory", type=int, default=0, metavar="BYTES", help="see `elastic up`")
    parser.add_argument("--store-backups", type=int, default=1, help="of what is in Hazelcast")
    parser.add_argument("--session-timeout", type=float, default=6.0, metavar="SECONDS")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
