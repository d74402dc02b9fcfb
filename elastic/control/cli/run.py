"""run: a topology in this process, without any service."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from elastic.control.cli import output
from elastic.control.cli.arguments import SECONDS, TOPOLOGY_CONTEXT
from elastic.control.cli.base import command
from elastic.control.cli.failures import INTERRUPTED, Interrupted, Outcome
from elastic.control.cli.loading import load, remove_unpacked
from elastic.control.cli.narration import PATIENCE, StatusLine, Waiting, note
from elastic.control.cli.output import duration, number
from elastic.control.cli.settings import Settings
from elastic.control.cli.troubles import Troubles
from elastic.errors import DeadlineExceeded, ExecutionError

if TYPE_CHECKING:
    from elastic.local import LocalRun

STOP_SECONDS = 10.0
"""How long what is under way may take after the first Ctrl-C."""

Metrics = Mapping[str, Mapping[str, float]]


@command(
    "run",
    context_settings=TOPOLOGY_CONTEXT,
    examples=[
        (
            "elastic run examples/word_count.py --input a.txt --output counts.tsv",
            "words after the file go to it",
        ),
        ("elastic run examples/word_count.py --help", "what the topology itself takes"),
        ("elastic run --timeout 30 mypackage.jobs:build", "a function of a module, for at most 30 s"),
    ],
    see=("submit", "doctor"),
)
@click.option("--timeout", type=SECONDS, help="Stop after this time; exit code 8.")
@click.argument("target", metavar="FILE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def run(settings: Settings, timeout: float | None, target: str, arguments: tuple[str, ...]) -> None:
    """Run a topology in this process, without any service.

    FILE is a Python file, module:function, a package directory or a wheel; its function topology(args) makes
    the topology and gets everything that follows FILE. It runs until its spouts are exhausted and everything
    is worked off. The first Ctrl-C (or SIGTERM) stops the spouts and lets what is under way be worked off; the
    second ends it at once.

    The exit code is 0, or 10 when user code failed. With -o json or yaml, the numbers go to standard output, and what
    the topology's code prints to standard error.
    """
    with output.apart(settings):
        name, seconds, metrics = _run(target, arguments, timeout)
    _sum_up(settings, name, seconds, metrics)
    failed = round(sum(m["failed"] for m in metrics.values()))
    if failed:
        raise Outcome(ExecutionError.exit_code)


def _run(target: str, arguments: tuple[str, ...], timeout: float | None) -> tuple[str, float, Metrics]:
    """The topology's name, how long it took, and its numbers at its end."""
    topology = load(target, arguments).topology
    from elastic.local import LocalCluster

    troubles = Troubles()
    began = time.monotonic()
    with LocalCluster() as cluster:
        running = cluster.submit(topology, troubles.on_event)
        try:
            _watch(running, began, timeout, troubles)
        except KeyboardInterrupt:
            _stop(running, began)
        except ExecutionError as error:
            troubles.tell()
            raise troubles.explain(running.name, error) from None
        seconds = time.monotonic() - began
        metrics = running.metrics()
    troubles.tell()
    return topology.name, seconds, metrics


def _watch(running: LocalRun, began: float, timeout: float | None, troubles: Troubles) -> None:
    """Wait for the end; from two seconds on say how it goes."""
    terminal = sys.stderr.isatty()
    pause = 1.0 if terminal else 5.0
    before: tuple[float, Metrics] = (began, {})
    look = PATIENCE
    with StatusLine() as line:
        while True:
            left = None if timeout is None else began + timeout - time.monotonic()
            try:
                running.wait(look if left is None else max(0.0, min(look, left)))
                return
            except DeadlineExceeded:
                if left is not None and left <= look:
                    raise DeadlineExceeded(
                        f"{running.name} had not finished after {duration(timeout or 0.0)}, and was stopped."
                    ) from None
            now, metrics = time.monotonic(), running.metrics()
            text = f"{running.name} {duration(now - began)}: {rates(before[1], metrics, now - before[0])}"
            line.clear()
            troubles.tell()
            if terminal:
                line.show(text)
            else:
                note(text)
            before, look = (now, metrics), pause


def rates(before: Metrics, now: Metrics, seconds: float) -> str:
    """What each component did per second between two measurements."""
    parts = []
    for name, values in now.items():
        key = "executed" if values["executed"] else "emitted"
        done = values[key] - before.get(name, {}).get(key, 0.0)
        queued = f" ({number(values['queued'])} queued)" if values["queued"] else ""
        parts.append(f"{name} {number(round(done / max(seconds, 1e-6)))}/s{queued}")
    return ", ".join(parts)


def _stop(running: LocalRun, began: float) -> None:
    """After the first Ctrl-C: stop the spouts, work off what is under way, end with 130."""
    left = ""
    try:
        note(f"\nStopping {running.name}: working off what is under way. Ctrl-C again ends it at once.")
        with Waiting(f"working off what is under way in {running.name}"):
            drained = running.deactivate(STOP_SECONDS)
        with Waiting(f"ending {running.name}"):
            left = _ended(running)
    except KeyboardInterrupt:
        note("Ended at once.")
        sys.stdout.flush()
        remove_unpacked()
        # User code may hold threads that never return: nobody waits for them any more.
        os._exit(INTERRUPTED)
    how = "everything emitted was worked off" if drained else "some of what was emitted was not worked off"
    raise Interrupted(f"{running.name} was stopped after {duration(time.monotonic() - began)}; {how}.{left}")


def _ended(running: LocalRun) -> str:
    try:
        running.stop()
    except ExecutionError as error:  # says where user code is
        return f"\n{error}"
    return ""


def _sum_up(settings: Settings, name: str, seconds: float, metrics: Metrics) -> None:
    data: dict[str, Any] = {
        "topology": name,
        "seconds": round(seconds, 3),
        "components": {c: {k: _whole(v) for k, v in values.items()} for c, values in metrics.items()},
    }

    def show() -> None:
        note(f"{name} finished in {duration(seconds)}.")
        rows = [{"component": c, **values} for c, values in metrics.items()]
        columns = [
            output.Column("COMPONENT", "component"),
            output.Column("EXECUTED", lambda r: number(r["executed"]), right=True),
            output.Column("EMITTED", lambda r: number(r["emitted"]), right=True),
            output.Column(
                "PER SECOND", lambda r: number(round(max(r["executed"], r["emitted"]) / seconds)), right=True
            ),
        ]
        if any(r["failed"] for r in rows):
            columns.append(output.Column("FAILED", lambda r: number(r["failed"]), right=True))
        for line in output.lines_of(columns, rows):
            note("  " + line)

    output.show(settings, data, show)


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value
