"""Services that many tests share: started at most once in a run, when the first test asks for them."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from elastic.cluster.zookeeper_server import EmbeddedZooKeeper

# How long an example takes is the machine's affair: a busy one is no failure.
settings.register_profile("tests", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("tests")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores it for what a script starts in the background, and so would every command that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if interval := os.environ.get("SWITCH_INTERVAL"):
    # In seconds; with a small one threads change in the midst of everything, and what only works as a rule fails.
    sys.setswitchinterval(float(interval))

_roots = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A real ZooKeeper server on a free port."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def no_session_is_left() -> Iterator[None]:
    """Each session with coordination in memory has a thread, which ends when somebody closes the session."""
    before = sessions()
    yield
    assert not sessions() - before, "MemoryZooKeeper.close() ends all its sessions"


def sessions() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name == "memory-coordination"}


@pytest.fixture
def zookeeper_address(zookeeper_server: EmbeddedZooKeeper) -> str:
    """An address on that server with a root of its own: "host:port/root"."""
    return f"{zookeeper_server.address}/test-{next(_roots)}"
