"""A Nimbus that leads rules: what it stumbles over once does not end the thread that does so."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest
from move_harness import Moving, takes_over
from nimbus_harness import Cluster, spec

from elastic.coordination import paths
from elastic.nimbus.observing.followed import FollowedValue


def test_a_file_that_cannot_be_read_once_is_read_again(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, faults = Path.read_bytes, [OSError(errno.EIO, "Input/output error")]

    def reads(path: Path) -> bytes:
        if path.name == "events.jsonl" and faults:
            raise faults.pop()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", reads)
    nimbus = moving_in_memory.nimbus(wait=False)
    assert nimbus.wait_leading(30.0) and not faults


@pytest.mark.parametrize("retention", [float("inf"), 1e12])
def test_what_has_ended_may_be_kept_for_ever(moving_in_memory: Moving, retention: float) -> None:
    cluster: Cluster = moving_in_memory.cluster
    nimbus = moving_in_memory.nimbus(retention=retention)
    for node in "ab":
        cluster.node(node, 1)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    cluster.started(nimbus, spec(workers=2))
    for node in "ab":
        cluster.nodes[node].finish("wc")
    cluster.until(nimbus, lambda: nimbus.topologies()[0].status.name == "FINISHED")
    time.sleep(0.1)  # until it has looked when the next deadline is
    assert nimbus._thread.is_alive()
    nimbus.kill("wc", wait=0)
    cluster.until(nimbus, lambda: not nimbus.topologies())


def test_moves_of_a_topology_that_is_removed_are_gone_also_when_its_end_is_seen_late(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = moving_in_memory
    first = moving.started({"a": 1, "b": 1})
    first.move("wc", "count", "b", wait=20)
    moving.moves(first)
    on_value = FollowedValue._on_value

    def late(self: FollowedValue[Any], found: Any) -> None:
        if found is None and self._path == paths.state("wc"):
            time.sleep(0.3)  # word of this node comes later than of the others
        on_value(self, found)

    monkeypatch.setattr(FollowedValue, "_on_value", late)
    second = moving.nimbus("h:2", wait=False)
    takes_over(moving, second)
    assert [m.epoch for m in second.moves()] == [1]
    second.kill("wc", wait=0)
    moving.cluster.until(second, lambda: not second.topologies())
    moving.cluster.until(second, lambda: second.moves() == ())
    time.sleep(0.4)
    assert second.moves() == ()


@pytest.mark.parametrize("ends", ["killed soon", "replaced"])
def test_bundles_that_nobody_uses_any_more_are_removed(moving_in_memory: Moving, ends: str) -> None:
    """Also one that was too young when its topology went, and one whose topology was submitted anew with another."""
    moving = moving_in_memory
    cluster: Cluster = moving.cluster
    nimbus = moving.nimbus(bundle_grace=0.5)

    def stored(code: bytes) -> str:
        with nimbus.bundles.begin() as writing:
            writing.write(code)
            return writing.commit()

    for node in "ab":
        cluster.node(node, 1)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    first = stored(b"first")
    nimbus.submit(spec(workers=2), bundle=first)
    cluster.settled(nimbus, "wc")
    if ends == "killed soon":
        nimbus.kill("wc", wait=0)
    else:
        for node in "ab":
            cluster.nodes[node].finish("wc")
        cluster.until(nimbus, lambda: nimbus.topologies()[0].status.name == "FINISHED")
        nimbus.submit(spec(workers=2), bundle=stored(b"second"))
    end = time.monotonic() + 30
    while (nimbus.bundles.directory / f"{first}.zip").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
