"""The launcher's process: `python -m elastic.cluster.launcher_main --options JSON [--report-fd N] [--lock-fd N]`.

What happens while the cluster starts goes to the file descriptor, one JSON object a line: {"tell": "..."}, and at
last {"ready": ClusterInfo} or {"error": {...}}. If nobody reads there any more before the cluster is ready, whoever
wanted it has gone, and the cluster ends.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence

from elastic import procs
from elastic.cluster.directory import LOG, OPTIONS, ClusterInfo
from elastic.cluster.options import UpOptions
from elastic.cluster.own_log import log_to_stderr
from elastic.errors import ElasticError, EnvironmentProblem, Refused
from elastic.machine import limit_reached
from elastic.model.codec import decode, encode
from elastic.signals import insist

log = logging.getLogger("elastic.launcher")


class Report:
    """The way to whoever started the launcher."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def send(self, message: object) -> bool:
        """Returns False when nobody is there any more."""
        if self._descriptor is None:
            return True
        try:
            os.write(self._descriptor, encode(message) + b"\n")
        except OSError:
            self.close()
            return False
        return True

    def close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def main(argv: Sequence[str] | None = None) -> int:
    """Run a cluster until told to end. Returns the exit code."""
    os.environ.pop(procs.PARENT_VARIABLE, None)  # it outlives its parent, and its children have another
    given = _parser().parse_args(argv)
    # Not for its children either.
    options = decode(os.environ.pop(OPTIONS, given.options).encode(), UpOptions)
    log_to_stderr(options.log_level, [options.directory / LOG])
    report = Report(given.report_fd)
    from elastic.cluster.running import Launcher

    def tell(text: str) -> None:
        log.info("%s", text)
        if not report.send({"tell": text}):
            launcher.ask_stop()

    def ready(info: ClusterInfo) -> None:
        log.info("cluster %s is ready", info.name)
        if not report.send({"ready": info}):
            launcher.ask_stop()
        report.close()

    try:
        launcher = Launcher(options, tell, ready, lock=given.lock_fd)
        insist(dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), launcher.ask_stop))
        launcher.run()
        # Once it was ready, nobody listens any more.
        ended = Refused(f"cluster {options.cluster} was ended before it was ready")
        report.send({"error": {"kind": "Refused", "message": ended.message, "remedy": ""}})
    except ElasticError as error:
        log.error("%s", error)
        report.send(
            {"error": {"kind": type(error).__name__, "message": error.message, "remedy": error.remedy}}
        )
        return error.exit_code
    except Exception as error:
        log.exception("the launcher failed")
        problem = EnvironmentProblem(f"the launcher failed: {error!r}", remedy=limit_reached(error))
        report.send(
            {"error": {"kind": "EnvironmentProblem", "message": problem.message, "remedy": problem.remedy}}
        )
        return 1
    finally:
        report.close()
    log.info("cluster %s has ended", options.cluster)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elastic.cluster.launcher_main", description="Run a cluster.")
    parser.add_argument("--options", required=True, help=f"UpOptions as JSON; those of {OPTIONS} win")
    parser.add_argument("--report-fd", type=int, help="file descriptor to report on")
    parser.add_argument("--lock-fd", type=int, help="file descriptor of the lock on the cluster's directory")
    return parser


if __name__ == "__main__":
    sys.exit(main())
