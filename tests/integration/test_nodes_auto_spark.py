"""Nodes come and go by themselves where Spark provides them: more one-task jobs when workers no longer fit, as far as Spark has room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_harness import wait_until

from elastic.api.bundle import build_bundle
from elastic.cluster.launcher import UpOptions, start_background, stop
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.model.events import Event

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

JOB = """
from elastic import Bolt, Fields, Spout, TopologyBuilder


class Beat(Spout):
    outputs = Fields(n=int)

    def next_tuple(self):
        self.emit(1)
        return 0.02


class Take(Bolt):
    def execute(self, tup):
        pass


def topology(args):
    name, workers = args
    b = TopologyBuilder(name, workers=int(workers), report_interval=0.25)
    b.spout("beat", Beat())
    b.bolt("take", Take(), tasks=8, executors=8).shuffle("beat")
    return b.build()
"""


def submit(client: Client, folder: Path, name: str, workers: int) -> None:
    job = folder / "job.py"
    job.write_text(JOB)
    loaded = load(str(job), (name, str(workers)))
    bundle = build_bundle(loaded.topology, loaded.entry, folder / f"{name}.zip")
    client.submit(loaded.topology.spec, bundle.path, requires=bundle.requires)


def until(
    client: Client, kind: str, since: int, true: Callable[[Event], bool] = lambda e: True
) -> tuple[int, Event]:
    """The next event of a kind; the test's timeout bounds it."""
    for number, event in client.events(since=since, follow=True):
        if event.kind == kind and true(event):
            return number, event
    raise AssertionError("the events ended")


def test_nodes_follow_on_spark_up_to_what_it_has_room_for(tmp_path: Path) -> None:
    """`local[2,4]` has room for two nodes."""
    home = tmp_path / "h"
    options = UpOptions(home=str(home), host="spark", master="local[2,4]", nodes=1, slots=2)
    info = start_background(options, lambda _: None)
    try:
        with Client(info.nimbus, timeout=60) as client:
            line = "--maximum 3 --patience 0.5 --cooldown-out 1 --cooldown-in 1"
            assert client.set_elasticity(nodes=line).nodes
            submit(client, tmp_path, "three", 3)
            at, asked = until(client, "node-request", 0)
            assert asked.details["workers"] == 3 and asked.details["maximum"] == 3
            assert "3 workers are wanted, and a node has 2 slots: 1 -> 2 nodes (at most 3" in asked.message
            at, joined = until(client, "node-joined", at)
            assert joined.details["kind"] == "spark", "another one-task job"
            client.rebalance("three", workers=3, wait=60)
            used = {
                w.partition("@")[2].partition("/")[0] for w in client.describe("three").assignment.workers
            }
            assert used == {"node-1", joined.node}

            # Six workers need three nodes, and Spark has room for two: nobody need wait for the third for long.
            assert client.set_elasticity(nodes="--overdue 5").nodes
            submit(client, tmp_path, "more", 3)
            at, asked = until(client, "node-request", at)
            at, late = until(client, "node-overdue", at)
            assert late.details["node"] == "node-3" and "is given up" in late.message
            assert "node-3" in (home / "default" / "launcher.log").read_text()
            until(client, "node-request", at)
            until(client, "node-draining", 0, lambda e: e.node == "node-3")  # both are wanted until then
            wait_until(
                "what Spark cannot run does not pile up",
                lambda: sum(not n.alive for n in client.nodes()) <= 1,
            )
            assert {"node-request", "node-overdue"} <= {e.kind for e in client.elasticity().decided}

            for name in ("three", "more"):
                client.kill(name, wait=0)
            at, returned = until(client, "node-return", at)
            assert "it is empty and goes" in returned.message
            at, _ = until(client, "node-drained", at)
            until(client, "node-left", at, lambda e: e.node == returned.details["node"])
            assert [n.id for n in client.nodes() if n.alive] != [] and client.elasticity().nodes
    finally:
        stop(home, "default", purge=True)
