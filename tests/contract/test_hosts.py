"""What every host promises: nodes start, their end is noticed, with a reason, they stop, and leave nothing behind."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts_harness import Exits, Nodes, nodes

from elastic.cluster.java import java_environment
from elastic.hosts.base import Host
from elastic.hosts.process import ProcessHost
from elastic.hosts.spark import SparkHost

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are watched by pidfd")


@pytest.fixture(scope="module", params=["process", pytest.param("spark", marks=pytest.mark.spark)])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    spark = request.param == "spark"
    made = SparkHost("local[4]", java_environment=java_environment()) if spark else ProcessHost()
    yield made
    made.close()


@pytest.fixture
def around(tmp_path: Path) -> Iterator[Nodes]:
    with nodes(tmp_path) as made:
        yield made


@pytest.mark.timeout(300)  # the first one starts Spark
def test_a_node_runs_what_it_was_told_and_stops_when_asked(host: Host, around: Nodes) -> None:
    exits = Exits()
    handle = host.start(around.command("a", "--generation", "3", COLOUR="blue"), exits)
    running = around.next()
    assert (handle.node, handle.alive()) == ("a", True)
    assert running.environment["COLOUR"] == "blue"
    assert Path(running.executable).samefile(sys.executable)
    assert running.generation in (3, 3000)
    handle.stop(20.0)
    assert not handle.alive()
    assert running.gone()
    assert exits.next() == ("a", "")
    assert around.log("a").read_text() == "asked\n"
    handle.stop(20.0)
    assert exits.queue.empty()


def test_an_end_that_nobody_asked_for_is_noticed_with_its_reason(host: Host, around: Nodes) -> None:
    exits = Exits()
    handle = host.start(around.command("a", "--exit", "7"), exits)
    assert exits.next() == ("a", "it ended with exit code 7")
    assert not handle.alive()
    assert around.next().gone()
    handle.stop(1.0)
    assert exits.queue.empty()


def test_nothing_survives_a_node_that_is_killed(host: Host, around: Nodes) -> None:
    exits = Exits()
    host.start(around.command("a"), exits)
    running = around.next()
    running.kill()
    assert running.gone()
    assert exits.next() == ("a", "it was ended by SIGKILL")


def test_a_node_that_takes_no_notice_is_made_to_end(host: Host, around: Nodes) -> None:
    exits = Exits()
    handle = host.start(around.command("a", "--stubborn"), exits)
    running = around.next()
    handle.stop(0.1)
    assert running.gone()
    assert exits.next() == ("a", "")


def test_a_node_is_added_while_two_run_and_each_ends_alone(host: Host, around: Nodes) -> None:
    exits = Exits()
    first, second = (host.start(around.command(name), exits) for name in ("a", "b"))
    running = [around.next(), around.next()]
    third = host.start(around.command("c"), exits)
    running.append(around.next())
    assert len({r.pid for r in running}) == 3
    second.stop(20.0)
    assert exits.next() == ("b", "")
    assert (first.alive(), second.alive(), third.alive()) == (True, False, True)
    for handle in (first, third):
        handle.stop(20.0)
    assert {exits.next(), exits.next()} == {("a", ""), ("c", "")}
    assert all(r.gone() for r in running)


def test_who_is_told_may_fail(host: Host, around: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    def fails(node: str, reason: str) -> None:
        raise RuntimeError("no")

    handle = host.start(around.command("a"), fails)
    running = around.next()
    handle.stop(20.0)
    assert running.gone()


def test_a_process_that_was_left_behind_would_be_found(host: Host, around: Nodes) -> None:
    """The planted fault: a node whose child is not tied to it."""
    exits = Exits()
    host.start(around.command("a", "--stray"), exits)
    running = around.next()
    running.kill(signal.SIGKILL)
    assert exits.next()[0] == "a"
    assert not running.gone(0.2)
