"""The process of one Nimbus: `python -m elastic.control.nimbus_main --zookeeper HOST:PORT/ROOT --listen HOST:PORT ...`.

It ends with 0 on SIGTERM or SIGINT, with 4 when its ZooKeeper session is lost (whoever started it starts it again), and
with the `exit_code` of the error when it cannot start.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from elastic.cluster.nimbus_wiring import open_nimbus
from elastic.cluster.own_log import log_to_stderr
from elastic.control.server import ControlServer
from elastic.errors import ConfigError, ElasticError
from elastic.nimbus.options import NimbusOptions
from elastic.priority import behind_streams
from elastic.procs import die_with_parent
from elastic.rpc.server import Server
from elastic.signals import insist

SESSION_LOST = 4
_GRACE = 3.0
"""Seconds for calls and streams to end: its launcher kills it after 5."""
_END_WITHIN = 15.0
_log = logging.getLogger("elastic.nimbus")


def main(arguments: list[str] | None = None) -> int:
    """Run until told to end. Returns the exit code."""
    given = _parser().parse_args(arguments)
    log_to_stderr(given.log_level, given.directory.parent.glob("nimbus-*.log"))
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    die_with_parent()
    behind_streams()
    end, lost, owns = threading.Event(), threading.Event(), threading.Event()

    def asked(*_: object) -> None:
        if not owns.is_set():
            raise _Ended  # out of the wait for ZooKeeper: nothing has been begun

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked)
    insist({signal.SIGTERM: end.set, signal.SIGINT: end.set})

    def on_lost() -> None:
        lost.set()
        end.set()

    try:
        _run(given, end, on_lost, owns)
    except _Ended:
        _log.info("told to end before there was a connection to ZooKeeper")
        return 0
    except ElasticError as e:
        _log.error("%s", e)
        return e.exit_code
    if lost.is_set():
        _log.error("the ZooKeeper session is lost: this Nimbus ends")
        return SESSION_LOST
    return 0


class _Ended(BaseException):
    """A signal came while this Nimbus owned nothing yet."""


def _run(
    given: argparse.Namespace, end: threading.Event, on_lost: Callable[[], None], owns: threading.Event
) -> None:
    options = _options(given.option)
    if given.allow_remote and not given.advertise and given.listen.rpartition(":")[0] in ("0.0.0.0", "[::]"):
        raise ConfigError(
            f"nobody can reach a Nimbus by {given.listen}",
            remedy="Say by --advertise HOST:PORT how others reach it.",
        )
    listening = Server(given.listen, name="nimbus", allow_remote=given.allow_remote)
    try:
        opened = open_nimbus(
            zookeeper=given.zookeeper,
            address=given.advertise or listening.address,
            directory=given.directory,
            session_timeout=given.session_timeout,
            connect_timeout=given.connect_timeout,
            own_zookeeper=given.own_zookeeper,
            options=options,
            on_lost=on_lost,
        )
        owns.set()
    except BaseException:
        listening.close(0)
        raise
    server = ControlServer(
        opened.nimbus, listening, nodes=opened.nodes, cluster=given.cluster, max_bundle=options.max_bundle
    )
    try:
        server.start()
        opened.nimbus.start()
        if given.address_file is not None:
            partial = given.address_file.with_name(f".{given.address_file.name}.{os.getpid()}")
            partial.write_text(server.address)
            partial.replace(given.address_file)
        _log.info("Nimbus of cluster %s listens at %s", given.cluster, server.address)
        end.wait()
    finally:
        _end_in_time()
        if opened.over():
            listening.end_streams(f"cluster {given.cluster} has ended")
        opened.close()
        server.close(_GRACE)
        opened.end_session()


def _end_in_time() -> None:
    """A call that hangs must not keep the process from ending."""

    def end() -> None:
        _log.error("not everything ended within %g s", _END_WITHIN)
        os._exit(1)

    timer = threading.Timer(_END_WITHIN, end)
    timer.daemon = True
    timer.start()


def _options(given: list[str]) -> NimbusOptions:
    """NimbusOptions with `name=value` over the defaults.

    Raises:
        ConfigError: There is no such option, or it cannot have that value.
    """
    known = {f.name: f.type for f in dataclasses.fields(NimbusOptions)}
    values: dict[str, int | float] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or name not in known:
            raise ConfigError(f"{item!r} is no option of Nimbus", remedy=f"Known: {', '.join(known)}.")
        try:
            values[name] = int(value) if known[name] == "int" else float(value)
        except ValueError as e:
            raise ConfigError(f"option {name} cannot be {value!r}: {e}") from e
    return dataclasses.replace(NimbusOptions(), **values)  # type: ignore[arg-type]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m elastic.control.nimbus_main", description="One Nimbus.")
    parser.add_argument("--zookeeper", required=True, help="host:port[,host:port...][/root]")
    parser.add_argument(
        "--own-zookeeper",
        action="store_true",
        help="that is the one server that the cluster's launcher runs, and nothing is between",
    )
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port; port 0 takes a free one")
    parser.add_argument("--advertise", default="", help="host:port that others reach it by, if another")
    parser.add_argument(
        "--allow-remote", action="store_true", help="let --listen be reachable from elsewhere"
    )
    parser.add_argument("--directory", required=True, type=Path, help="for code bundles and events")
    parser.add_argument("--cluster", default="default", help="the cluster's name")
    parser.add_argument("--session-timeout", type=float, default=6.0, help="seconds")
    parser.add_argument("--connect-timeout", type=float, default=10.0, help="seconds to wait for ZooKeeper")
    parser.add_argument("--address-file", type=Path, help="write the address there once it answers")
    parser.add_argument("--option", action="append", default=[], help="name=value, of NimbusOptions")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
