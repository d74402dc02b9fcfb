"""One run of the topology on a cluster: submitted, followed to its end, its result compared."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from elastic.api.bundle import build_bundle
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import DeadlineExceeded, ExecutionError, NotFound, Unavailable
from elastic.model.ids import ComponentId
from elastic.model.records import TopologyStatus

from .recording import Panes, Recording, look
from .view import View

EXAMPLES = Path(__file__).resolve().parents[2]
LOOK = 0.25
"""Seconds between two looks: how busy executors were is known of the time since the measurement before, and none is to be missed."""
PATIENCE = 120.0
"""Seconds that a run may take longer than three times its phases: what is not elastic works off a backlog at the end."""
DECISIONS = frozenset({"scale-out", "scale-in", "more-workers", "fewer-workers", "crowded"})


@dataclass(frozen=True)
class Plan:
    """What both runs have in common.

    Attributes:
        given: Options of `frequent_patterns.py` that its result depends on.
        more: Those that it does not depend on.
        ignore: Items that the service ignores, as its option says it; "".
    """

    given: tuple[str, ...]
    more: tuple[str, ...]
    phase: float
    ignore: str = ""


def run(client: Client, plan: Plan, name: str, title: str, policy: str, home: Path, view: View) -> Recording:
    """Run the topology once.

    Args:
        name: Of the topology.
        title: Of the recording.
        policy: As `elastic policy set` takes it, or "off".
        home: Where its files go.

    Raises:
        ExecutionError: It has failed.
        DeadlineExceeded: It takes much too long.
    """
    client.set_elasticity(policy=policy)
    out, latency = home / f"{name}.tsv", home / f"{name}.latency"
    files = ("--name", name, "--output", str(out), "--latency", str(latency))
    loaded = load(str(EXAMPLES / "frequent_patterns.py"), [*plan.given, *plan.more, *files])
    bundle = build_bundle(loaded.topology, loaded.entry, home / f"{name}.zip")
    client.submit(loaded.topology.spec, bundle.path, requires=bundle.requires)
    module = sys.modules["frequent_patterns"]
    pane = loaded.topology.components["input"].length  # type: ignore[attr-defined]
    generators = loaded.topology.spec.component(ComponentId("generator")).tasks
    recording = Recording(title, plan.phase, pane, module.BOUNDS)
    with view.live():
        _follow(client, name, recording, Panes(latency), generators / pane, view)
    recording.equal = _compare(plan, out, view)
    return recording


def _follow(client: Client, name: str, recording: Recording, panes: Panes, ends: float, view: View) -> None:
    """Look at it until it has ended."""
    deadline = time.monotonic() + 3 * 5 * recording.phase + PATIENCE
    never = threading.Event()  # a wait on it ends at once by Ctrl-C
    seen = 0
    while True:
        if time.monotonic() > deadline:
            raise DeadlineExceeded(f"{name} has not ended in time.", remedy="Give a lower --rate.")
        try:
            detail = client.describe(name)
            for number, event in client.events(since=seen, topology=name):
                seen = number
                if event.kind in DECISIONS:
                    recording.decisions.append(event)
                elif event.kind == "topology-resized":
                    recording.resized.append(event)
        except Unavailable:  # Nimbus is started again
            never.wait(LOOK)
            continue
        recording.panes += panes.more()
        if detail.summary.status is TopologyStatus.FINISHED:
            return
        if detail.summary.status is not TopologyStatus.ACTIVE:
            raise ExecutionError(f"{name} is {detail.summary.status.value}: {detail.summary.reason}")
        inputs = next(c for c in detail.components if c.id == "input")
        if inputs.executed:
            recording.samples.append(look(detail, time.time(), ends))
            view.show(recording, inputs.custom.get("late", 0.0))
        never.wait(LOOK)


def _compare(plan: Plan, out: Path, view: View) -> bool:
    """Whether the patterns are those of the reference, which runs in a process of its own."""
    if not out.exists():
        raise NotFound(f"The topology has written no {out}.")
    program = [sys.executable, str(EXAMPLES / "frequent_patterns_reference.py"), *plan.given]
    program += ["--ignore", plan.ignore, "--compare", str(out)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    view.say("  " + (done.stdout or done.stderr).strip().replace("\n", "\n  "))
    return done.returncode == 0
